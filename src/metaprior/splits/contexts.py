"""Contexts and targets: what is known of a task and what is to be predicted, in one or several ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.seeds import affine_seed, generator_of
from metaprior.tasks import ContextTarget, Tasks

SIZES = (1, 2, 3, 5, 8, 12, 20, 30)


FIRST_IDS = 5
"""Tasks that a message about more of them names."""


class LeftOut(NamedTuple):
    """Tasks that are not scored in a setting, and why."""

    setting: str
    ids: tuple[Hashable, ...]
    tasks: int  # how many there are in all
    reason: str

    def __str__(self) -> str:
        first = ", ".join(map(str, self.ids[:FIRST_IDS])) + ", …" * (len(self.ids) > FIRST_IDS)
        where = f"{self.setting} point" + "s" * (self.setting != "1") if self.setting.isdigit() else self.setting
        return f"{len(self.ids):,} of {self.tasks:,} tasks are not scored from {where}: {self.reason} ({first})."


class Contexts(ABC):
    """How tasks will be asked: each split in one or several ways, under the name of its setting."""

    at_random: bool
    """Whether the known points are any of a task's, so that the others lie between them."""

    @abstractmethod
    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        """The tasks that can be split so, by setting; an error where none can."""

    def where_possible(self, tasks: Tasks) -> dict[str, ContextTarget]:
        """The same; nothing where none can: such tasks say nothing."""
        try:
            return self(tasks)
        except DataError:
            return {}

    def left_out(self, tasks: Tasks) -> list[LeftOut]:
        """The tasks that cannot be split, for each setting that leaves some out."""
        found = []
        for setting, split in self.where_possible(tasks).items():
            scored = set(split.target.ids)
            ids = tuple(name for name in tasks.ids if name not in scored)
            found.append(LeftOut(setting, ids, len(tasks), "no point is known, or none is left to predict"))
        return [one for one in found if one.ids]


@dataclass(frozen=True)
class _Sizes(Contexts):
    """`n` points of each task that has more than n, for each n."""

    sizes: tuple[int, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or not all(isinstance(n, SupportsIndex) and index(n) >= 0 for n in self.sizes):
            raise OptionError("context sizes: give whole numbers of 0 or more, such as 1,3,5.")

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        found = {}
        for n in self.sizes:
            large = tasks.sizes > n
            if bool(large.any()):
                found[self.named(n)] = self.split(tasks.select(large), n)
        if not found:
            raise DataError(f"no task has more than {min(self.sizes)} points: give smaller contexts.")
        return found

    def left_out(self, tasks: Tasks) -> list[LeftOut]:
        """The tasks that have no more points than a context, for each setting that leaves some out."""
        found = []
        for n in self.sizes:
            small = torch.nonzero(tasks.sizes <= n)[:, 0].tolist()
            reason = f"they have no more than {n} point" + "s" * (n != 1)
            found.append(LeftOut(self.named(n), tuple(tasks.ids[i] for i in small), len(tasks), reason))
        return [one for one in found if one.ids]

    @abstractmethod
    def named(self, n: int) -> str: ...

    @abstractmethod
    def split(self, tasks: Tasks, n: int) -> ContextTarget: ...


class RandomSizes(_Sizes):
    """`n` random points of each task that has more than n, for each n."""

    at_random = True

    def named(self, n: int) -> str:
        return str(n)

    def split(self, tasks: Tasks, n: int) -> ContextTarget:
        return tasks.context_target(n, affine_seed(self.seed, offset=n))


class FirstSizes(_Sizes):
    """The `n` first points of each task that has more than n, by its first input, for each n."""

    at_random = False

    def named(self, n: int) -> str:
        return f"first {n}"

    def split(self, tasks: Tasks, n: int) -> ContextTarget:
        return tasks.first_points(n)


@dataclass(frozen=True)
class Until(Contexts):
    """The points of each task where a column is at most a value, and those beyond; tasks that have both."""

    column: str
    value: float

    at_random = False

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        if self.column not in tasks.columns.x:
            raise OptionError(f"no input column {self.column!r}: there are {', '.join(tasks.columns.x)}.")
        k, shown = tasks.columns.x.index(self.column), self._shown(tasks)
        split = both_sides(tasks, lambda x: x[:, k] <= self.value, f"{self.column} = {shown}")
        return {f"{self.column} ≤ {shown}": split}

    def _shown(self, tasks: Tasks) -> str:
        """The value; days as a date, with the time where there is one."""
        if self.column not in tasks.dated:
            return f"{self.value:g}"
        return str(np.datetime64(round(86_400 * self.value), "s")).removesuffix("T00:00:00")


@dataclass(frozen=True)
class Doubling(Contexts):
    """Random contexts of 0, 1, 2, 4, 8 … points, as far as some tasks have more."""

    seed: int = 0

    at_random = True

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        sizes = [0]
        while bool((tasks.sizes > max(2 * sizes[-1], 1)).any()):
            sizes.append(max(2 * sizes[-1], 1))
        return RandomSizes(tuple(sizes), self.seed)(tasks)


@dataclass(frozen=True)
class Given(Contexts):
    """Splits of one's own, by the names of their settings."""

    splits: Callable[[Tasks], dict[str, ContextTarget]]
    at_random: bool = False

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        return self.splits(tasks)


@dataclass(frozen=True)
class Several(Contexts):
    """Several ways at once."""

    ways: tuple[Contexts, ...]

    @property
    def at_random(self) -> bool:  # type: ignore[override]
        return all(way.at_random for way in self.ways)

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        found: dict[str, ContextTarget] = {}
        for way in self.ways:
            found |= way.where_possible(tasks)
        return found or self.ways[0](tasks)

    def left_out(self, tasks: Tasks) -> list[LeftOut]:
        """The tasks that cannot be split, for each setting of each way that leaves some out."""
        return [one for way in self.ways for one in way.left_out(tasks)]


def both_sides(tasks: Tasks, where: Callable[[Tensor], Any], border: str = "the condition") -> ContextTarget:
    """The points of each task where a predicate on x holds, and the others; tasks that have both.

    border: what divides them, for the error where no task has both.
    """
    context, target = tasks.context_target(where=where)
    both = (context.sizes > 0) & (target.sizes > 0)
    if not bool(both.any()):
        raise DataError(f"no task has points on both sides of {border}.")
    return ContextTarget(context.select(both), target.select(both))


def drawn_contexts(tasks: Tasks, draws: int, seed: int) -> Tasks:
    """Of each task some contexts: of 1 to all but one of its points, any number as likely as any other."""
    generator = generator_of(seed)
    pairs, names = [], []
    for draw in range(draws):
        for task, size in zip(tasks, tasks.sizes.tolist(), strict=True):
            count = 1 + int(torch.randint(max(size - 1, 1), (1,), generator=generator))  # one point: all that it has
            some = torch.randperm(size, generator=generator)[:count].sort().values
            pairs.append((task.x[some], task.y[some]))
            names.append(f"{task.id}, context {draw + 1}")
    return replace(Tasks.from_pairs(pairs), ids=tuple(names))  # a task may be there twice


def checked_contexts(contexts: Contexts | None) -> Contexts | None:
    """Contexts, if they are some: a function has to say how its splits are called, and whether points are drawn."""
    if contexts is not None and not isinstance(contexts, Contexts):
        raise OptionError(
            "contexts: give one of metaprior.splits, such as RandomSizes((1, 3)) or Until('hour', 24), or a function "
            "of your own in Given(lambda tasks: {'name': tasks.context_target(...)})."
        )
    return contexts


def random_sizes(sizes: Sequence[int], seed: int = 0) -> RandomSizes:
    """Random contexts of these sizes."""
    return RandomSizes(tuple(sizes), seed)


def first_sizes(sizes: Sequence[int]) -> FirstSizes:
    """The first points of each task, so many."""
    return FirstSizes(tuple(sizes))


def default_sizes(tasks: Tasks) -> tuple[int, ...]:
    """Up to three context sizes that leave half of a typical task to predict."""
    typical = int(tasks.sizes.median())
    fitting = [n for n in SIZES if n <= max(typical // 2, 1) and n < int(tasks.sizes.max())]
    if not fitting:
        raise DataError("every task has one point: nothing is left to predict once it is known.")
    if len(fitting) <= 3:
        return tuple(fitting)
    return fitting[0], fitting[len(fitting) // 2], fitting[-1]


def default_contexts(tasks: Tasks, seed: int) -> Contexts:
    """How a method is asked unless it is said: from a few random points, and from the first few."""
    if int(tasks.sizes.max()) < 2:
        return RandomSizes((0,), seed)
    sizes = default_sizes(tasks)
    return Several((RandomSizes(sizes, seed), FirstSizes(sizes)))
