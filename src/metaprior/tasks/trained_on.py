"""What a model was trained on: columns, counts and ranges, and which tasks. No raw data."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from metaprior.errors import DataError
from metaprior.notes import Note, first_names
from metaprior.tasks.columns import Columns
from metaprior.tasks.covariates import Covariate
from metaprior.tasks.possible import Possible
from metaprior.tasks.tasks import Tasks

DAYS = 2**40
"""Since 1970, in either direction: more than any type of dates has."""

KNOWN = ("known points", "its prior is a guess there.")
"""What points are called that are known, and what is said of them where they lie outside the range of an input."""

ASKED = ("points", "far from the known points it only repeats its prior there.")
"""The same of points that are asked about."""

DIGEST = 8
"""Bytes of a task's hash: enough to tell tasks apart. Ids that can be guessed can be tested: they are no secret."""


class TaskNumbers(NamedTuple):
    """Of each covariate of the tasks, as numbers: the mean over the tasks, and the range."""

    typical: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, eq=False)
class TrainedOn:
    """Counts and ranges of the meta-tasks; their ids only as salted hashes."""

    columns: Columns
    tasks: int
    rows: int
    sizes: tuple[int, int]
    x_range: tuple[tuple[float, float], ...]
    y_range: tuple[tuple[float, float], ...]
    salt: str
    hashes: UInt8[Tensor, "m 8"]
    dated: tuple[str, ...] = ()  # input columns that are dates, in days
    task_x: TaskNumbers = TaskNumbers()  # noqa: RUF009
    clocks: tuple[str, ...] = ()  # input columns that are times of day
    possible: tuple[Possible, ...] = ()  # what the targets can be; empty: anything

    @staticmethod
    def of(
        tasks: Tasks, earlier: TrainedOn | None = None, *, task_x: bool = False, salt: str | None = None
    ) -> TrainedOn:
        """Of these tasks, and of those that a model had learned from before. task_x: it took in their covariates."""
        tasks = tasks if task_x else tasks.without_task_x()
        salt = earlier.salt if earlier else salt or _salt(tasks)
        hashes = _hashes(salt, tasks.ids)
        ranges = [_ranges(values) for values in (tasks.x, tasks.y)]
        counts = [len(tasks), len(tasks.x), int(tasks.sizes.min()), int(tasks.sizes.max())]
        if earlier:
            known = {bytes(row) for row in earlier.hashes.tolist()}
            new = torch.tensor([bytes(row) not in known for row in hashes.tolist()])
            hashes = torch.cat([earlier.hashes, hashes[new]])
            counts[0], counts[1] = int(new.sum()), int(tasks.sizes[new].sum())
            ranges = [_wider(*pair) for pair in zip((earlier.x_range, earlier.y_range), ranges, strict=True)]
            counts[0], counts[1] = counts[0] + earlier.tasks, counts[1] + earlier.rows
            counts[2], counts[3] = min(counts[2], earlier.sizes[0]), max(counts[3], earlier.sizes[1])
        known_of = tasks.covariates if tasks.covariates is not None else tasks.x[:0, :0]
        typical, reach = tuple(known_of.mean(0).tolist()), _ranges(known_of)
        if earlier and earlier.task_x.ranges:
            reach = _wider(earlier.task_x.ranges, reach)
        sizes = (counts[2], counts[3])
        return TrainedOn(
            *(tasks.columns, counts[0], counts[1], sizes, ranges[0], ranges[1], salt, hashes),
            *(
                tasks.dated,
                TaskNumbers(typical, reach),
                tasks.clocks,
                tasks.possible or (earlier.possible if earlier else ()),
            ),
        )

    @staticmethod
    def joined(parts: Sequence[TrainedOn]) -> TrainedOn:
        """Of the tasks of several, of which none is in two; all of one salt."""
        first, tasks = parts[0], sum(part.tasks for part in parts)
        x_range, y_range = (reduce(_wider, (getattr(part, name) for part in parts)) for name in ("x_range", "y_range"))
        reach = reduce(_wider, (part.task_x.ranges for part in parts))
        typical = tuple(
            sum(part.tasks * value for part, value in zip(parts, values, strict=True)) / tasks
            for values in zip(*(part.task_x.typical for part in parts), strict=True)
        )
        return replace(
            first,
            tasks=tasks,
            rows=sum(part.rows for part in parts),
            sizes=(min(part.sizes[0] for part in parts), max(part.sizes[1] for part in parts)),
            x_range=x_range,
            y_range=y_range,
            hashes=torch.cat([part.hashes for part in parts]),
            task_x=TaskNumbers(typical, reach),
        )

    def and_of(self, others: Tasks) -> TrainedOn:
        """The same with other tasks that had a say in it: those that it was stopped by."""
        both = TrainedOn.of(others, self, task_x=bool(self.columns.task_x))
        about = both.task_x._replace(typical=self.task_x.typical)
        known = {"columns": self.columns, "dated": self.dated, "clocks": self.clocks, "possible": self.possible}
        return replace(both, **known, task_x=about)  # type: ignore[arg-type]

    def task_numbers(self) -> list[tuple[int, str, float, float]]:
        """Of each covariate that is a number: its place among a task's numbers, its name and its range."""
        found, place = [], 0
        for one in self.columns.task_x:
            if not one.levels and self.task_x.ranges:
                found.append((place, one.name, *self.task_x.ranges[place]))
            place += one.width
        return found

    def check_inputs(self, tasks: Tasks) -> None:
        """Whether inputs are dates, times of day or numbers, as they were where the model was trained."""
        for name in self.columns.x:
            was, now = (_held(one, name) for one in (self, tasks))
            if was != now:
                raise DataError(f"the model was trained on {was} in column {name!r}; here it holds {now}.")

    def shown_range(self, k: int) -> str:
        """The range of an input column, for a message; days as dates."""
        low, high = self.x_range[k]
        if self.columns.x[k] not in self.dated:
            return f"{low:g} to {high:g}"
        days = [np.datetime64("1970-01-01", "D") + np.timedelta64(int(end), "D") for end in (low, high)]
        return f"{days[0]} to {days[1]}"

    def outside(self, points: Tasks, known: Tasks | None = None) -> list[Note]:
        """Notes on points and covariates outside the ranges of the meta-tasks, one for each column.

        Args:
            points: where tasks are asked, or points to score.
            known: what is known of these tasks.
        """
        return [
            *([] if known is None else self._beyond(known, KNOWN)),
            *self._beyond(points, ASKED),
            *self._unlike(points),
        ]

    def _beyond(self, points: Tasks, words: tuple[str, str]) -> list[Note]:
        """Of each input, how many points lie outside the range of the meta-tasks."""
        found = []
        for k, (low, high) in enumerate(self.x_range):
            beyond = (points.x[:, k] < low) | (points.x[:, k] > high)
            found.append(Note(int(beyond.sum()), self.said_outside(k, words), len(points.x)))
        return found

    def said_outside(self, k: int, words: tuple[str, str]) -> str:
        """What is said of points outside the range of an input, after their number. words: `KNOWN` or `ASKED`."""
        which, then = words
        name = self.columns.x[k]
        return (
            f"{which} lie outside the range of {name!r} that the model was trained on ({self.shown_range(k)}): {then}"
        )

    def said_unlike(self, name: str, low: float, high: float) -> str:
        """What is said of tasks outside the range of a covariate, after their number."""
        return (
            f"tasks lie outside the range of {name!r} that the model was trained on ({low:g} to {high:g}): what it "
            "says of them is a guess."
        )

    def _unlike(self, tasks: Tasks) -> list[Note]:
        """Of each covariate, how many of these tasks lie outside the range of the meta-tasks."""
        found = []
        for place, name, low, high in self.task_numbers() if tasks.covariates is not None else ():
            column = tasks.covariates[:, place]  # type: ignore[index]
            outside = (column < low) | (column > high)
            found.append(Note(int(outside.sum()), self.said_unlike(name, low, high), len(tasks)))
        return found

    def note_on_seen(self, ids: Sequence[Hashable]) -> Note:
        """A note on tasks to score that were among the meta-tasks."""
        seen = self.seen(ids)
        then = ": their scores are too good."
        return Note(len(seen), "tasks", len(ids), first_names(seen), then, "the model was trained on ")

    def note_on_earlier(self, ids: Sequence[Hashable]) -> Note:
        """A note on tasks to learn from that the model has learned from before."""
        seen = self.seen(ids)
        return Note(len(seen), "of these tasks before.", before="the earlier model has learned from ")

    def seen(self, ids: Iterable[Hashable]) -> list[Hashable]:
        """Those of these tasks that were among the meta-tasks."""
        known = {bytes(row) for row in self.hashes.tolist()}
        ids = list(ids)
        return [name for name, row in zip(ids, _hashes(self.salt, ids).tolist(), strict=True) if bytes(row) in known]

    def as_json(self) -> dict[str, Any]:
        """All but the hashes, which are a tensor."""
        return {
            "columns": {
                "task": self.columns.task,
                "x": self.columns.x,
                "y": self.columns.y,
                "task_x": [{"name": one.name, "levels": one.levels or ()} for one in self.columns.task_x],
            },
            "tasks": self.tasks,
            "rows": self.rows,
            "sizes": self.sizes,
            "x_range": self.x_range,
            "y_range": self.y_range,
            "salt": self.salt,
            "dated": self.dated,
            "clocks": self.clocks,
            "typical": self.task_x.typical,
            "task_x_range": self.task_x.ranges,
            "possible": [[one.lower.hex(), one.upper.hex(), one.whole] for one in self.possible],
        }

    @staticmethod
    def from_json(found: dict[str, Any], hashes: Tensor) -> TrainedOn:
        names = found["columns"]
        about = tuple(Covariate(one["name"], tuple(one["levels"])) for one in names.get("task_x", ()))
        columns = Columns(tuple(names["task"]), tuple(names["x"]), tuple(names["y"]), about)
        x_range, y_range = (tuple((low, high) for low, high in found[key]) for key in ("x_range", "y_range"))
        sizes, dated = (found["sizes"][0], found["sizes"][1]), tuple(found["dated"])
        counts, typical = (found["tasks"], found["rows"]), tuple(found.get("typical", ()))
        reach = tuple((low, high) for low, high in found.get("task_x_range", ()))
        clocks = tuple(found.get("clocks", ()))
        possible = tuple(
            Possible(float.fromhex(low), float.fromhex(high), bool(whole))
            for low, high, whole in found.get("possible", ())
        )
        made = TrainedOn(
            *(
                columns,
                *counts,
                sizes,
                x_range,
                y_range,
                found["salt"],
                hashes,
                dated,
                TaskNumbers(typical, reach),
                clocks,
                possible,
            )
        )
        wrong = [what for what, right in made._parts() if not right]
        if wrong:
            raise ValueError(f"{wrong[0]} cannot be what it was trained on")
        return made

    def _parts(self) -> list[tuple[str, bool]]:
        """What has to hold of what a file says."""
        columns, width = self.columns, sum(one.width for one in self.columns.task_x)
        names = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
        levels = [level for one in columns.task_x for level in one.levels or ()]
        numbered = len(self.task_x.typical) == len(self.task_x.ranges) == width
        return [
            ("its columns", bool(columns.task and columns.x and columns.y) and all(map(_is_name, names))),
            ("a level", all(isinstance(level, str) for level in levels)),
            ("a count", all(type(one) is int and one > 0 for one in (self.tasks, self.rows, *self.sizes))),
            ("a range", _are_ranges(self.x_range, len(columns.x)) and _are_ranges(self.y_range, len(columns.y))),
            ("a salt", isinstance(self.salt, str)),
            ("a hash", self.hashes.dtype == torch.uint8 and self.hashes.shape[1:] == (DIGEST,)),
            ("a date", {*self.dated, *self.clocks} <= {*columns.x} and self._are_days()),
            ("a task column", numbered and _are_ranges([(one, one) for one in self.task_x.typical], width)),
            ("the range of a task column", _are_ranges(self.task_x.ranges, width)),
            ("a possible value", len(self.possible) in (0, len(columns.y)) and all(a < b for a, b, _ in self.possible)),
        ]

    def _are_days(self) -> bool:
        """Whether columns of dates lie among the days that there are."""
        ends = [
            end for name, pair in zip(self.columns.x, self.x_range, strict=True) for end in pair if name in self.dated
        ]
        return all(abs(end) < DAYS for end in ends)


def _is_name(name: object) -> bool:
    return isinstance(name, (str, int, float))


def _are_ranges(found: Sequence[tuple[Any, Any]], count: int) -> bool:
    """Whether there are so many pairs of finite numbers, the lower first."""
    numbers = all(type(end) in (int, float) and math.isfinite(end) for pair in found for end in pair)
    return len(found) == count and numbers and all(low <= high for low, high in found)


def _salt(tasks: Tasks) -> str:
    """As hard to guess as the data, and the same for the same data: so are the files."""
    if tasks not in _SALTS:
        digest = hashlib.blake2b(digest_size=DIGEST)
        for values in (tasks.x, tasks.y, tasks.offsets):
            digest.update(values.contiguous().numpy().data)
        _SALTS[tasks] = digest.hexdigest()
    return _SALTS[tasks]


_SALTS: WeakKeyDictionary[Tasks, str] = WeakKeyDictionary()
"""Several methods learn from the same tasks, and going through all of their bytes takes a while."""


def _hashes(salt: str, ids: Iterable[Hashable]) -> UInt8[Tensor, "m 8"]:
    rows = [list(hashlib.blake2b(f"{salt} {_text(name)}".encode(), digest_size=DIGEST).digest()) for name in ids]
    return torch.tensor(rows, dtype=torch.uint8).reshape(-1, DIGEST)


def _text(name: Hashable) -> str:
    return "\x1f".join(map(as_written, name)) if isinstance(name, tuple) else as_written(name)


def as_written(name: Any) -> str:
    """An id as text: 1950, 1950.0, "1950" and "1950.0" are the same task, whatever a table has made of them."""
    whole = isinstance(name, float) and name.is_integer()
    return str(int(name)) if whole else re.sub(r"^(-?\d+)\.0$", r"\1", str(name))


def _held(one: TrainedOn | Tasks, name: str) -> str:
    return "dates" if name in one.dated else "times of day" if name in one.clocks else "numbers"


def _ranges(values: Tensor) -> tuple[tuple[float, float], ...]:
    return tuple((float(column.min()), float(column.max())) for column in values.unbind(1))


def _wider(
    first: tuple[tuple[float, float], ...], second: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    return tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(first, second, strict=True))
