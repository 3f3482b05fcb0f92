"""Who may see what: tasks to train on, tasks to stop by, tasks to judge by.

What decides anything in learning (when to stop, how many components) is seen by the method, though not trained on: a
score on those tasks is too good. So every score that is kept is of tasks that had neither role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from metaprior.errors import DataError
from metaprior.tasks import Tasks

ENOUGH_TO_JUDGE = 20
"""Tasks from which on some can be spared to judge by."""

LEAST = 4
"""Of them for each of the two roles, where a tenth is less."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of tasks to train on (which a method may set some of aside to stop by), and of others to judge by."""

    train: Int[Tensor, " k"]
    judge: Int[Tensor, " j"]

    def __post_init__(self) -> None:
        if bool(torch.isin(self.judge, self.train).any()):
            raise DataError("a task is both to train on and to judge by: its score would be too good.")


@dataclass(frozen=True, eq=False)
class Roles:
    """The tasks of each role. stop and judge: None where none can be spared."""

    train: Tasks
    stop: Tasks | None
    judge: Tasks | None

    def __post_init__(self) -> None:
        seen = set(self.train.ids) | (set(self.stop.ids) if self.stop is not None else set())
        twice = [name for name in (self.judge.ids if self.judge is not None else ()) if name in seen]
        if twice:
            raise DataError(f"task {twice[0]!r} is to judge by, and to train on or to stop by: its score is too good.")


def k_folds(tasks: Tasks, folds: int, seed: int) -> list[Fold]:
    """Every task is judged once, by what was trained on all others but those of its fold; clusters stay together."""
    order = tasks.shuffled(seed)
    judged = [tasks.of_units(part) for part in order.tensor_split(min(folds, len(order)))]
    everyone = torch.arange(len(tasks))
    return [Fold(everyone[~torch.isin(everyone, part)], part) for part in judged]


def one_fold(tasks: Tasks, share: float, seed: int) -> Fold:
    """This share of the tasks or clusters to judge by, one at least, and the rest to train on."""
    order = tasks.shuffled(seed)
    held = min(max(round(share * len(order)), 1), len(order) - 1)
    return Fold(tasks.of_units(order[held:]), tasks.of_units(order[:held]))


def within(fold: Fold, tasks: Tasks, share: float, seed: int) -> Fold:
    """A fold of the tasks that are trained on: whatever is chosen by it has not seen those that are judged by."""
    inner = one_fold(tasks.select(fold.train), share, seed)
    return Fold(fold.train[inner.train], fold.train[inner.judge])


def to_stop_by(tasks: Tasks, given: float | Tasks | None, seed: int) -> tuple[Tasks, Tasks]:
    """Tasks to train on and tasks to stop by: a share of them, others, or (None) the same."""
    if given is None:
        return tasks, tasks
    if isinstance(given, Tasks):
        return tasks, given
    if len(tasks) < 2:
        raise DataError("one task cannot be held out of one; give more tasks, or held_out=None.")
    stop, train = tasks.split(given, seed)
    return train, stop


def some_of(tasks: Tasks, most: int, seed: int) -> Tasks:
    """Random ones of the tasks, where there are more than are needed."""
    return tasks if len(tasks) <= most else tasks.split(most / len(tasks), seed)[0]


def spare(count: int) -> float | None:
    """The share of so many tasks to stop by: a tenth, more where that is less than five, none where there are two."""
    return None if count < 3 else min(max(0.1, 5 / count), 0.34)


def roles_of(tasks: Tasks, seed: int, among: Sequence[int] | None = None) -> Roles:
    """Tasks for each role. Those to stop and to judge by come from `among` (positions; by default all)."""
    places = torch.arange(len(tasks)) if among is None else torch.tensor(among, dtype=torch.int64)
    free = tasks.select(places)
    order = free.shuffled(seed)
    if len(order) >= ENOUGH_TO_JUDGE:
        count = max(round(0.1 * len(order)), LEAST)
        first, second, _ = order.tensor_split([count, 2 * count])
    else:
        first, second = order[: round((spare(len(order)) or 0.0) * len(order))], order[:0]
    stop, judge = (places[free.of_units(part)] for part in (first, second))
    train = torch.ones(len(tasks), dtype=torch.bool)
    train[torch.cat([stop, judge])] = False
    parts = [tasks.select(which.sort().values) if len(which) else None for which in (stop, judge)]
    return Roles(tasks.select(train), *parts)
