"""What every part of the campaign is: a function that tries much and returns a `Section` of the report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from metaprior.output import write_whole
from metaprior.progress import progress_bar
from metaprior.seeds import child_seed
from metaprior.workers import in_processes

Found = TypeVar("Found")
Cell = str | float | int | bool | None


@dataclass(frozen=True)
class Effort:
    """How much is tried. share: of what the full campaign tries, from 0 to 1; jobs: processes at a time."""

    share: float
    seed: int = 0
    jobs: int = 1

    def of(self, count: int, least: int = 1) -> int:
        """How many of so many."""
        return min(count, max(least, round(self.share * count)))

    def seed_of(self, *path: int) -> int:
        """A seed for one of the things that are tried."""
        return child_seed(self.seed, *path)

    def each(self, work: Callable[[int], Found], count: int, what: str) -> Iterator[tuple[int, Found]]:
        """What the work gives for 0 … count − 1, as it comes, with a bar. The work can be pickled."""
        with progress_bar(what, count) as advance:
            if self.jobs == 1:
                found: Iterator[tuple[int, Found]] = ((k, work(k)) for k in range(count))
            else:
                found = in_processes(work, range(count), workers=self.jobs, what=what)
            for pair in found:
                advance()
                yield pair


@dataclass(frozen=True)
class Check:
    """Something that has to hold, and the figures by which it does or does not."""

    text: str
    holds: bool
    because: str


@dataclass(frozen=True)
class Table:
    """Figures of the report. A cell that is a number is rounded by the report, text stays as it is."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        """What is no finite number is a text: a file of results has none, and nothing that was found may be lost."""
        object.__setattr__(self, "rows", tuple(tuple(map(_told, row)) for row in self.rows))


def _told(cell: Cell) -> Cell:
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


@dataclass(frozen=True)
class Section:
    """A part's outcome, as data: what was asked and how it was tried, what has to hold, the figures, what was noted."""

    title: str
    how: str
    checks: Sequence[Check]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    counts: dict[str, float] = field(default_factory=dict)
    """How much was tried, by name."""

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


Part = Callable[[Effort], Section]


def write_section(section: Section, about: dict[str, Any], path: Path) -> None:
    """A part's file. about: effort, seconds, versions."""
    text = json.dumps({"about": about} | asdict(section), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def read_section(path: Path) -> tuple[Section, dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))
    about = found.pop("about")
    found["checks"] = tuple(Check(**one) for one in found["checks"])
    found["tables"] = tuple(
        Table(one["title"], tuple(one["columns"]), tuple(tuple(row) for row in one["rows"])) for one in found["tables"]
    )
    return Section(**found), about
