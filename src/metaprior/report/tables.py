"""Tables of an experiment's results, beside the paper's figures: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from metaprior.report.cells import BETTER, WORSE, Cell, Grid, make_grids
from metaprior.report.methods import Row, references
from metaprior.scoring import METRICS

MARKS = f"{BETTER} better, {WORSE} worse than the paper by more than two standard errors of the difference."
ELSEWHERE = ("mse", "joint_log_likelihood")
STYLES = {BETTER: "green", WORSE: "red", "": ""}


def terminal_tables(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """The metrics that the paper has, as tables with the paper's figure beside each of ours, and what marks mean.

    On data that the paper does not have: the metrics that it has elsewhere.
    """
    grids = make_grids(rows)
    shown = [grid for grid in grids if grid.published] or [
        grid for grid in grids if grid.metric in ELSEWHERE or METRICS[grid.metric].small
    ]
    yield from map(_Fitted, shown)
    if any(grid.marked for grid in shown):
        yield Text(f"± one standard error. {MARKS}", style="dim")


def markdown_tables(rows: Sequence[Row], metrics: Collection[str] = ()) -> str:
    """Every metric, or these, as Markdown tables, and what marks and bold mean."""
    grids = [grid for grid in make_grids(rows) if not metrics or grid.metric in metrics]
    blocks = [f"**{grid.title}**\n\n{_markdown(grid)}" for grid in grids]
    if note := explain(grids):
        blocks.append(note)
    return "\n\n".join(blocks) + "\n"


def explain(grids: Sequence[Grid]) -> str:
    """What marks and bold mean, where these tables have them."""
    notes = [MARKS] if any(grid.marked for grid in grids) else []
    if any(grid.has_best for grid in grids):
        aside = [name for name in references() if any(name in grid.lines for grid in grids)]
        notes.append("Bold: the best of its column" + (f" ({', '.join(aside)} aside)." if aside else "."))
    return " ".join(notes)


def _markdown(grid: Grid) -> str:
    header = _header(grid)
    align = ["---", *["---:"] * (len(header) - 1)]
    body = [[method, *map(_markdown_cell, _flat(grid, method))] for method in grid.lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, align, *body))


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{cell.mark} {text}".lstrip()


def _header(grid: Grid) -> list[str]:
    names = [[setting, "paper"] if grid.published else [setting] for setting in grid.settings]
    return ["method", *(name for pair in names for name in pair)]


def _flat(grid: Grid, method: str) -> list[Cell]:
    """A line's cells from left to right, with the paper's where it has the metric."""
    return [cell for pair in grid.lines[method] for cell in (pair if grid.published else pair[:1])]


@dataclass(frozen=True)
class _Fitted:
    """A table for the terminal. Where it is too wide it goes on below, with the settings that had no room."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        start, count = 0, len(self.grid.settings)
        while start < count:
            stop = start + 1
            while stop < count and _width(_part(self.grid, start, stop + 1)) <= options.max_width:
                stop += 1
            yield _table(_part(self.grid, start, stop))
            start = stop


def _part(grid: Grid, start: int, stop: int) -> Grid:
    lines = {method: line[start:stop] for method, line in grid.lines.items()}
    return replace(grid, settings=grid.settings[start:stop], lines=lines)


def _table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left", title_style="bold")
    for k, name in enumerate(_header(grid)):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for method in grid.lines:
        table.add_row(method, *(Text(_plain(cell), STYLES[cell.mark]) for cell in _flat(grid, method)))
    return table


def _width(grid: Grid) -> int:
    """Of the table with its lines and the blanks beside them."""
    lines = [_header(grid), *([method, *map(_plain, _flat(grid, method))] for method in grid.lines)]
    return 1 + sum(3 + max(map(len, column)) for column in zip(*lines, strict=True))


def _plain(cell: Cell) -> str:
    return f"{cell.mark} {cell.text.replace(' ± ', '±')}".lstrip()
