"""Figures that were printed, beside those that are recorded: which differ by more than they may."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

RELATIVE = 0.05
"""What a figure without a standard error may differ by, relative to its size."""

UNITS = 2
"""What it may differ by in any case, in units of its last digit."""

NUMBER = r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
FIGURE = re.compile(rf"({NUMBER})(?:\s*±\s*({NUMBER}))?")
TIMES = re.compile(r"(^|\s)(s|seconds|rows/s|tasks/s|peak memory)$")
"""Headings of columns that say how long something took: nobody compares those."""


class Figure(NamedTuple):
    """A number with its standard error, if it has one, and the unit of its last digit."""

    value: float
    stderr: float | None
    unit: float

    def agrees(self, other: Figure) -> bool:
        if self.stderr is not None and other.stderr is not None:
            allowed = max(self.stderr, other.stderr)
        else:
            allowed = max(RELATIVE * abs(self.value), UNITS * max(self.unit, other.unit))
        return abs(self.value - other.value) <= allowed * (1 + 1e-9)


@dataclass
class Compared:
    """How many figures were compared, which differ, and recorded lines that nothing was printed for."""

    figures: int = 0
    differ: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def compared(recorded: str, printed: str, *, whole: bool = True) -> Compared:
    """The figures of lines with the same words, of which there may be several: they are taken in their order.

    whole: all that is recorded has to be printed; else only lines with as many figures are compared.
    """
    found: dict[tuple[str, ...], list[list[Figure]]] = defaultdict(list)
    for words, figures, _ in _lines(printed):
        found[words].append(figures)
    outcome = Compared()
    for words, figures, line in _lines(recorded):
        ours = found[words].pop(0) if found[words] else []
        if not ours or (not whole and len(ours) != len(figures)):
            outcome.missing += [line] * whole
            continue
        outcome.figures += len(figures)
        if len(ours) != len(figures) or not all(map(Figure.agrees, figures, ours)):
            outcome.differ.append(f"{line} (now {', '.join(f'{one.value:g}' for one in ours)})")
    return outcome


def _lines(text: str) -> list[tuple[tuple[str, ...], list[Figure], str]]:
    """The words and the figures of each line that has figures. Of a table, columns of seconds are left out."""
    found = []
    times: set[int] = set()
    previous: list[str] = []
    for line in text.replace("−", "-").splitlines():
        cells = [re.sub(r"[*▲▼]", "", cell).strip() for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(r"\|[\s:|-]+\|", line.strip()):
            times = {k for k, cell in enumerate(previous) if TIMES.search(cell)}
        elif not line.strip():
            times = set()
        kept = " | ".join(cell for k, cell in enumerate(cells) if k not in times)
        figures = [_figure(*match.groups()) for match in FIGURE.finditer(kept)]
        if figures:
            found.append((tuple(re.findall(r"[^\W\d]+", FIGURE.sub(" ", kept))), figures, line.strip()))
        previous = cells
    return found


def _figure(text: str, stderr: str | None) -> Figure:
    digits = text.partition("e")[0].partition(".")[2]
    value, error = float(text.replace(",", "")), stderr and float(stderr.replace(",", ""))
    return Figure(value, error or None, 10.0 ** -len(digits) * 10.0 ** int(text.partition("e")[2] or 0))


def compared_results(folder: Path, recorded: Path) -> Compared:
    """The rows of an experiment that both folders have, and its claims. Other settings: there is nothing to compare."""
    ours, theirs = (json.loads((place / "results.json").read_text(encoding="utf-8")) for place in (folder, recorded))
    outcome = Compared()
    if any(ours["settings"].get(key) != theirs["settings"].get(key) for key in ("seed", "quick", "optimizer")):
        return outcome
    rows = {_key(row): row for row in theirs["rows"]}
    for row in ours["rows"]:
        known = rows.get(_key(row))
        if known is None:
            continue
        outcome.figures += 1
        if not _same(row, known):
            outcome.differ.append(f"{', '.join(_key(row))}: {known['mean']} ± {known['stderr']} (now {row['mean']})")
    claims = {claim["id"]: claim for claim in theirs["claims"]}
    for claim in ours["claims"]:
        known = claims.get(claim["id"])
        if known is not None and known["holds"] != claim["holds"] and len(ours["rows"]) == len(theirs["rows"]):
            outcome.differ.append(f"claim {claim['id']}: {known['holds']} (now {claim['holds']})")
    return outcome


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["method"], row["setting"], row["metric"]


def _same(row: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether two rows agree within a standard error, or nearly where there is none."""
    if row["mean"] is None or known["mean"] is None:
        return row["mean"] is known["mean"]
    allowed = max(row["stderr"] or 0.0, known["stderr"] or 0.0) or RELATIVE * abs(known["mean"])
    return math.isclose(row["mean"], known["mean"], rel_tol=1e-6, abs_tol=max(allowed, 1e-9))
