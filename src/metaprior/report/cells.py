"""What stands in a table: our figure, the paper's beside it, which is better, and the digits that each deserves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from metaprior.report.methods import Row, references
from metaprior.scoring import METRICS

BETTER, WORSE = "▲", "▼"

MOST_DECIMALS = 4


@dataclass(frozen=True)
class Cell:
    """A figure as text, whether it is better or worse than the paper's, and whether it is the best of its column."""

    text: str
    mark: str = ""
    best: bool = False


Pair = tuple[Cell, Cell]
NOTHING = Cell("–")


@dataclass(frozen=True)
class Grid:
    """One metric: for each method (line) and setting (column) our figure and the paper's."""

    metric: str
    title: str
    settings: list[str]
    lines: dict[str, list[Pair]]
    published: bool

    @property
    def marked(self) -> bool:
        """Whether a figure is better or worse than the paper's."""
        return any(ours.mark for line in self.lines.values() for ours, _ in line)

    @property
    def has_best(self) -> bool:
        """Whether a figure is the best of its column."""
        return any(ours.best for line in self.lines.values() for ours, _ in line)


def make_grids(rows: Sequence[Row]) -> list[Grid]:
    """A grid for each metric there is, and for each thing that is varied: settings such as `kernel = RBF`."""
    grids = []
    for metric in METRICS:
        some = [row for row in rows if row["metric"] == metric]
        for varied in dict.fromkeys(_varied(row["setting"]) for row in some):
            grids.append(_grid([row for row in some if _varied(row["setting"]) == varied], varied))
    return grids


def mark_of(row: Row, decimals: int) -> str:
    """▲ or ▼ if our figure differs from the paper's by more than two standard errors of the difference.

    The paper's figure is rounded to so many decimals, which adds the variance of a uniform error.
    """
    cost = METRICS[row["metric"]].cost
    if cost is None or row["mean"] is None or row["stderr"] is None or row["paper_mean"] is None:
        return ""
    rounding = 10.0**-decimals / math.sqrt(12)
    error = math.hypot(row["stderr"], row["paper_stderr"] or 0.0, rounding)
    gain = cost(row["paper_mean"]) - cost(row["mean"])
    if abs(gain) <= 2 * error:
        return ""
    return BETTER if gain > 0 else WORSE


def paper_decimals(rows: Iterable[Row]) -> int:
    """How many decimals it takes to write the paper's figures."""
    figures = [row[key] for row in rows for key in ("paper_mean", "paper_stderr") if row[key] is not None]
    return max((len(f"{figure:.6f}".rstrip("0").partition(".")[2]) for figure in figures), default=0)


def _varied(setting: str) -> str:
    """What is varied: ñ where the setting is a number, nothing where it is a name."""
    return "ñ" if setting.isdigit() else setting.rpartition(" = ")[0]


def _grid(rows: list[Row], varied: str) -> Grid:
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    decimals = paper_decimals(rows)
    columns = [_column([row for row in rows if row["setting"] == setting], decimals) for setting in settings]
    metric = rows[0]["metric"]
    aside = references()
    methods = sorted(dict.fromkeys(row["method"] for row in rows), key=lambda name: name in aside)
    return Grid(
        metric=metric,
        title=METRICS[metric].title + (f", by {varied}" if varied not in ("", "ñ") else ""),
        settings=[("ñ = " if varied == "ñ" else "") + setting.rpartition(" = ")[2] for setting in settings],
        lines={name: [column.get(name, (NOTHING, NOTHING)) for column in columns] for name in methods},
        published=any(row["paper_mean"] is not None for row in rows),
    )


def _column(rows: list[Row], decimals: int) -> dict[str, Pair]:
    """The cells of one setting by method, given the paper's decimals."""
    digits = _digits(rows, decimals)
    best = _best(rows, digits)
    column = {}
    for row in rows:
        text = _small(row["mean"]) if METRICS[row["metric"]].small else _text(row["mean"], row["stderr"], digits)
        ours = Cell(text, mark_of(row, decimals), row["method"] in best)
        column[row["method"]] = ours, Cell(_text(row["paper_mean"], row["paper_stderr"], decimals))
    return column


def _best(rows: list[Row], digits: int) -> set[str]:
    """The best of at least two methods, several where the digits shown do not tell them apart."""
    cost, aside = METRICS[rows[0]["metric"]].cost, references()
    if cost is None:
        return set()
    rivals = [row for row in rows if row["method"] not in aside and row["mean"] is not None]
    costs = {row["method"]: cost(round(row["mean"], digits)) for row in rivals}
    return {method for method, value in costs.items() if len(costs) > 1 and value == min(costs.values())}


def _digits(rows: list[Row], decimals: int) -> int:
    """Decimals of a column: for three digits of a typical figure, one of a typical error, and all of the paper's."""
    wanted = [decimals]
    if means := [abs(row["mean"]) for row in rows if row["mean"]]:
        wanted.append(2 - _magnitude(median_low(means)))
    if errors := [row["stderr"] for row in rows if row["stderr"]]:
        wanted.append(-_magnitude(median_low(errors)))
    return min(max(wanted), MOST_DECIMALS)


def _text(mean: float | None, stderr: float | None, digits: int) -> str:
    """Figure and error with so many decimals, fewer where that is more than four digits in all."""
    if mean is None:
        return NOTHING.text
    largest = max(abs(mean), stderr or 0.0, 0.1)
    digits = min(digits, max(3 - _magnitude(largest), 0))
    style = f"{',' if largest >= 10_000 else ''}.{digits}f"
    return f"{mean:z{style}}" + ("" if stderr is None else f" ± {stderr:{style}}")


def _small(mean: float | None) -> str:
    """A figure by its order of magnitude; 0 is exactly 0."""
    if mean is None:
        return NOTHING.text
    return "0" if mean == 0 else f"{mean:.2g}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(value))
