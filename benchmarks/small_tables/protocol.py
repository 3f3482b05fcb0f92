"""Who is held out, what is known of them, and how a prediction is scored.

Tasks are held out whole: 30% of them, or each of three folds where there are fewer than 30. A context is a held-out
task's first points or random ones; the rest is predicted. Everything random is fixed by the names of table and task.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr

Array = np.ndarray[Any, np.dtype[np.float64]]
Pair = tuple[Array, Array]
"""A task's inputs [n, d] and targets [n], by the first input."""

FEW, SHARE, FOLDS, LEAST = 30, 0.3, 3, 3
"""Fewer tasks than this are split into folds; else this share is held out. A task to judge by has so many points."""
SIZES, WAYS = (1, 3, 5), ("first", "random")
CONTEXTS = [f"{way} {size}" for way in WAYS for size in SIZES]
AHEAD = 2
"""Points that must be left to predict."""
METRICS = ("log_density", "error", "crps", "coverage")
LEVEL, BOUND = 0.9, 1.6448536269514722


class Distribution(Protocol):
    """What a method says of all targets of a cell, task after task, in the table's units."""

    mean: Array

    def log_density(self, y: Array) -> Array: ...
    def bounds(self) -> tuple[Array, Array]: ...  # of the 90% interval
    def crps(self, y: Array) -> Array: ...


Predict = Callable[[Sequence[Pair], Sequence[Array]], Distribution]
"""Contexts, and the inputs at which each of these tasks is asked."""
Fit = Callable[[Sequence[Pair]], Predict]


class Gaussian:
    """Independent Gaussians of given means and variances, a value each."""

    def __init__(self, mean: Array, variance: Array) -> None:
        self.mean, self.sd = mean, np.sqrt(variance)

    def log_density(self, y: Array) -> Array:
        return np.asarray(-0.5 * ((y - self.mean) / self.sd) ** 2 - np.log(self.sd) - 0.5 * math.log(2 * math.pi))

    def bounds(self) -> tuple[Array, Array]:
        return self.mean - BOUND * self.sd, self.mean + BOUND * self.sd

    def crps(self, y: Array) -> Array:
        z = (y - self.mean) / self.sd
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        return np.asarray(self.sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi)))


class Split(NamedTuple):
    """Tasks to learn from, and held-out ones by their names."""

    train: list[Pair]
    held: dict[str, Pair]


class Asked(NamedTuple):
    """A held-out task: what is known, and what is to be predicted."""

    context: Pair
    x: Array
    y: Array


def read_table(path: Path) -> dict[str, Pair]:
    """The tasks of a CSV file with the columns task, x (x2), y."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    if [header[0], header[-1]] != ["task", "y"] or len(header) < 3:
        raise ValueError(f"{path} has the columns {', '.join(header)}: task first, then inputs, and y last are needed.")
    found: dict[str, list[list[float]]] = {}
    for task, *values in rows:
        found.setdefault(task, []).append([float(value) for value in values])
    return {task: _by_input(np.array(values)) for task, values in sorted(found.items())}


def _by_input(values: Array) -> Pair:
    ordered = values[np.argsort(values[:, 0], kind="stable")]
    return ordered[:, :-1], ordered[:, -1]


def splits(name: str, tasks: dict[str, Pair]) -> list[Split]:
    """One split, or one for each fold where there are few tasks."""
    ids = sorted(tasks)
    order = [ids[k] for k in _random(name).permutation(len(ids))]
    parts = [order[k::FOLDS] for k in range(FOLDS)] if len(ids) < FEW else [order[: round(SHARE * len(ids))]]
    return [
        Split(
            [tasks[task] for task in ids if task not in part],
            {task: tasks[task] for task in sorted(part) if len(tasks[task][1]) >= LEAST},
        )
        for part in parts
    ]


def asked(name: str, held: dict[str, Pair], context: str) -> dict[str, Asked]:
    """The held-out tasks that are long enough for this context; random ones are nested: one point is among three."""
    way, size = context.split()
    found = {}
    for task, (x, y) in held.items():
        if len(y) < int(size) + AHEAD:
            continue
        order = np.arange(len(y)) if way == "first" else _random(f"{name}|{task}").permutation(len(y))
        known, rest = np.sort(order[: int(size)]), np.sort(order[int(size) :])
        found[task] = Asked((x[known], y[known]), x[rest], y[rest])
    return found


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def scores(said: Distribution, targets: Sequence[Array], unit: float) -> dict[str, list[float | None]]:
    """Each metric of each task, in units of the training targets' deviation; None where a prediction is of no use."""
    y = np.concatenate(targets)
    if said.mean.shape != y.shape:
        raise ValueError(f"{said.mean.shape} predictions of {y.shape} targets.")
    lower, upper = said.bounds()
    with np.errstate(all="ignore"):
        values = {
            "log_density": said.log_density(y) + math.log(unit),
            "error": ((y - said.mean) / unit) ** 2,
            "crps": said.crps(y) / unit,
            "coverage": ((lower <= y) & (y <= upper)).astype(float),
        }
    ends = np.cumsum([len(one) for one in targets])[:-1]
    means = {metric: [float(np.mean(part)) for part in np.split(found, ends)] for metric, found in values.items()}
    means["error"] = [math.sqrt(value) for value in means["error"]]
    return {metric: [value if math.isfinite(value) else None for value in found] for metric, found in means.items()}
