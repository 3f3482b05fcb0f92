"""Tables of an experiment's results, beside the paper's figures: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rich.table import Table

Row = dict[str, Any]

TITLES = {
    "mse": "Mean squared error (lower is better)",
    "joint_log_likelihood": "Joint log likelihood of a task's test points, per point (higher is better)",
    "log_likelihood": "Log likelihood of each test point (higher is better)",
    "evidence": "Evidence of the context (higher is better)",
    "coverage_90": "Coverage of the 90% interval (0.9 is best)",
    "calibration_error": "Calibration error (lower is better)",
}


def terminal_tables(rows: list[Row]) -> Iterable[Table]:
    """The metrics that the paper has, as tables with the paper's figure beside each of ours."""
    for metric in _metrics(rows):
        if _published(rows, metric):
            header, *body = _grid(rows, metric)
            table = Table(title=TITLES[metric], title_justify="left", title_style="bold")
            for k, cell in enumerate(header):
                table.add_column(cell, justify="left" if k == 0 else "right", no_wrap=True)
            for cells in body:
                table.add_row(*(cell.replace(" ± ", "±") for cell in cells))
            yield table


def markdown_tables(rows: list[Row], metrics: Collection[str] = ()) -> str:
    """Every metric, or these, as Markdown tables."""
    blocks = []
    for metric in _metrics(rows):
        if metrics and metric not in metrics:
            continue
        header, *body = _grid(rows, metric)
        align = ["---", *["---:"] * (len(header) - 1)]
        lines = [f"| {' | '.join(cells)} |" for cells in (header, align, *body)]
        blocks.append("\n".join([f"**{TITLES[metric]}**", "", *lines]))
    return "\n\n".join(blocks) + "\n"


def _grid(rows: list[Row], metric: str) -> list[list[str]]:
    """Header and one line per method: for each setting our figure and, where the paper has the metric, its."""
    with_paper = _published(rows, metric)
    found = {(row["method"], row["setting"]): row for row in rows if row["metric"] == metric}
    methods, settings = _ordered(found, 0), _ordered(found, 1)
    digits = _digits([row["mean"] for row in found.values() if row["mean"] is not None])
    header = ["method"]
    for setting in settings:
        name = f"ñ = {setting}" if setting.isdigit() else setting
        header += [name, "paper"] if with_paper else [name]
    lines = [header]
    for method in methods:
        line = [method]
        for setting in settings:
            row = found.get((method, setting), {})
            line.append(_cell(row.get("mean"), row.get("stderr"), digits))
            if with_paper:
                line.append(_cell(row.get("paper_mean"), row.get("paper_stderr"), digits))
        lines.append(line)
    return lines


def _cell(mean: float | None, stderr: float | None, digits: int) -> str:
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + (f" ± {stderr:.{digits}f}" if stderr is not None else "")


def _digits(means: list[float]) -> int:
    return 2 if max(map(abs, means), default=0.0) >= 2 else 3


def _metrics(rows: list[Row]) -> list[str]:
    present = {row["metric"] for row in rows}
    return [metric for metric in TITLES if metric in present]


def _published(rows: list[Row], metric: str) -> bool:
    return any(row["metric"] == metric and row["paper_mean"] is not None for row in rows)


def _ordered(keys: Iterable[tuple[str, str]], k: int) -> list[str]:
    return list(dict.fromkeys(key[k] for key in keys))
