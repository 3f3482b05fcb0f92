"""Contexts and targets as a user asks for them: some random points, or everything until a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaprior.errors import DataError, OptionError
from metaprior.tasks import ContextTarget, Tasks


@dataclass(frozen=True)
class ContextsBySetting:
    """How tasks are split, in one or several ways, each under the name of its setting. at_random: points are drawn."""

    split: Callable[[Tasks], dict[str, ContextTarget]]
    at_random: bool

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        return self.split(tasks)


SIZES = (1, 2, 3, 5, 8, 12, 20, 30)


def random_sizes(sizes: Sequence[int], seed: int = 0) -> ContextsBySetting:
    """`n` random points of each task that has more than n, for each n."""
    if not sizes or min(sizes) < 0:
        raise OptionError("context sizes: give whole numbers of 0 or more, such as 1,3,5.")

    def split(tasks: Tasks) -> dict[str, ContextTarget]:
        found = {}
        for n in sizes:
            large = tasks.sizes > n
            if bool(large.any()):
                found[str(n)] = tasks.select(large).context_target(n, seed + n)
        if not found:
            raise DataError(f"no task has more than {min(sizes)} points: give smaller contexts.")
        return found

    return ContextsBySetting(split, at_random=True)


def first_sizes(sizes: Sequence[int]) -> ContextsBySetting:
    """The `n` first points of each task that has more than n, by its first input, for each n."""

    def split(tasks: Tasks) -> dict[str, ContextTarget]:
        found = {}
        for n in sizes:
            large = tasks.sizes > n
            if bool(large.any()):
                found[f"first {n}"] = tasks.select(large).first_points(n)
        if not found:
            raise DataError(f"no task has more than {min(sizes)} points: give smaller contexts.")
        return found

    return ContextsBySetting(split, at_random=False)


def contexts_until(column: str, value: float) -> ContextsBySetting:
    """The points of each task where a column is at most a value, and those beyond; tasks that have both."""

    def split(tasks: Tasks) -> dict[str, ContextTarget]:
        if column not in tasks.columns.x:
            raise OptionError(f"no input column {column!r}: there are {', '.join(tasks.columns.x)}.")
        k = tasks.columns.x.index(column)
        context, target = tasks.context_target(where=lambda x: x[:, k] <= value)
        both = (context.sizes > 0) & (target.sizes > 0)
        if not bool(both.any()):
            raise DataError(f"no task has points on both sides of {column} = {value:g}.")
        return {f"{column} ≤ {value:g}": ContextTarget(context.select(both), target.select(both))}

    return ContextsBySetting(split, at_random=False)


def default_sizes(tasks: Tasks) -> tuple[int, ...]:
    """Up to three context sizes that leave half of a typical task to predict."""
    typical = int(tasks.sizes.median())
    fitting = [n for n in SIZES if n <= max(typical // 2, 1) and n < int(tasks.sizes.max())]
    if not fitting:
        raise DataError("every task has one point: nothing is left to predict once it is known.")
    if len(fitting) <= 3:
        return tuple(fitting)
    return fitting[0], fitting[len(fitting) // 2], fitting[-1]


def spare(tasks: Tasks) -> float | None:
    """The share of the tasks to stop by: a tenth, more where that is less than five, none where there are but two."""
    if len(tasks) < 3:
        return None
    return min(max(0.1, 5 / len(tasks)), 0.34)
