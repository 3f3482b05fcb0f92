"""Learning curves of studies, and how far each is behind the best one that its study had when it ran.

Studies differ in level, scale and direction, so a curve is told by those before it: step by step how far it is behind
the best one, in units of how far curves of its study usually are. Of all studies the end is then the same question:
whether it is below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from metaprior.errors import DataError
from metaprior.splits import Contexts, FirstSizes
from metaprior.tasks import Columns, ContextTarget, Tasks

NEAR = 0.3
"""The part of a unit within which differences count as they are; beyond it, by their logarithm."""

LEAST_UNIT = 1e-3
"""Of a step's unit, as part of what there is to be learned in the study: where all curves have met, it would vanish."""

MANY = 200
"""Curves, the latest ones, that tell what is usual in a study."""

COLUMNS = Columns(("trial",), ("log(1 + step)",), ("behind the best",))
"""What a prior over such curves was learned on, by which its file is known."""

Steps = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Curve:
    """Finite values by step, at least one, of which less is better. value: what the trial came to; None if stopped."""

    steps: Steps
    values: Float[np.ndarray, " n"]
    value: float | None = None

    def within(self, steps: Steps) -> Float[np.ndarray, " n"]:
        """Its values at these steps, on straight lines between its own; NaN before and after them."""
        found: Float[np.ndarray, " n"] = np.interp(steps, self.steps, self.values, left=np.nan, right=np.nan)
        return found


@dataclass(frozen=True)
class Yardstick:
    """What curves of a study are compared with: the best one so far, and a unit at each of its steps."""

    best: Curve
    units: Float[np.ndarray, " n"]

    @staticmethod
    def of(curves: Sequence[Curve]) -> Yardstick | None:
        """Of the curves that a study has had; None before one of them has come to its end."""
        ended = [curve for curve in curves if curve.value is not None]
        if not ended:
            return None
        best, latest = min(ended, key=lambda curve: float(curve.value or 0.0)), curves[-MANY:]
        end = float(best.values[-1])
        whole = float(np.median([abs(curve.values[0] - end) for curve in latest])) or abs(end) or 1.0
        gaps = [np.abs(curve.within(best.steps) - best.values) for curve in latest if curve is not best]
        return Yardstick(best, np.maximum(_medians(gaps, len(best.steps), whole), LEAST_UNIT * whole))

    def behind(self, curve: Curve) -> Float[np.ndarray, " n"]:
        """How far a curve is behind the best one, step by step; below 0 where it is ahead."""
        middle, unit = self._at(curve.steps)
        found: Float[np.ndarray, " n"] = np.arcsinh((curve.values - middle) / unit)
        return found

    def values_at(self, steps: Steps, behind: Float[np.ndarray, "*k n"]) -> Float[np.ndarray, "*k n"]:
        """The values of curves that are so far behind at these steps."""
        middle, unit = self._at(steps)
        found: Float[np.ndarray, "*k n"] = middle + unit * np.sinh(behind)
        return found

    def _at(self, steps: Steps) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        values, units = (np.interp(steps, self.best.steps, part) for part in (self.best.values, self.units))
        return values, NEAR * units


def _medians(gaps: Sequence[Float[np.ndarray, " n"]], steps: int, otherwise: float) -> Float[np.ndarray, " n"]:
    """The median gap at each step, of those curves that have got there."""
    found = np.full(steps, otherwise)
    known = np.array(gaps).reshape(-1, steps)
    some = np.isfinite(known).any(0)
    found[some] = np.nanmedian(known[:, some], axis=0)
    return found


def as_inputs(steps: Steps | Sequence[float]) -> Float[np.ndarray, " n"]:
    """Steps as the prior has them: learning is quick at first, and slow later on."""
    inputs: Float[np.ndarray, " n"] = np.log1p(np.asarray(steps, float))
    return inputs


class Past(NamedTuple):
    """Past curves as tasks, and what a prior over them will be asked."""

    tasks: Tasks
    asked: Contexts


def replayed(studies: Sequence[Sequence[Curve]]) -> Past | None:
    """Every curve as it looked when it ran, against those before it; None where there is too little to learn from.

    studies: of each its curves in their order. All curves are alike, whatever study they are of: to hold studies out as
    a whole would ask what a study unlike all past ones is like, and chances would hardly ever be small.
    """
    compared = [one for curves in studies for one in _compared(curves)]
    longest = max((len(curve.steps) for curve, _ in compared), default=0)
    if len(compared) < 2 or longest < 2:
        return None
    pairs = [(as_inputs(curve.steps), yardstick.behind(curve)) for curve, yardstick in compared]
    tasks = replace(Tasks.from_pairs(pairs), columns=COLUMNS)
    ended = [k for k, (curve, _) in enumerate(compared) if curve.value is not None and len(curve.steps) > 1]
    sizes = tuple(2**k for k in range((longest // 2).bit_length()))
    return Past(tasks, ToTheEnd(sizes, frozenset(tasks.ids[k] for k in ended)) if ended else FirstSizes(sizes))


def _compared(curves: Sequence[Curve]) -> Iterator[tuple[Curve, Yardstick]]:
    for k, curve in enumerate(curves):
        yardstick = Yardstick.of(curves[:k])
        if yardstick is not None:
            yield curve, yardstick


@dataclass(frozen=True)
class ToTheEnd(Contexts):
    """The last point of each task, from its `n` first ones, for each n. ended: the ids of tasks that have an end."""

    sizes: tuple[int, ...]
    ended: frozenset[object]

    at_random = False

    def __call__(self, tasks: Tasks) -> dict[str, ContextTarget]:
        ended = torch.tensor([one in self.ended for one in tasks.ids])
        found = {}
        for n in self.sizes:
            large = ended & (tasks.sizes > n)
            if bool(large.any()):
                found[f"first {n}"] = _end_from(tasks.select(large), n)
        if not found:
            raise DataError(f"no task that came to its end has more than {min(self.sizes)} points.")
        return found


def _end_from(tasks: Tasks, n: int) -> ContextTarget:
    last = torch.zeros(len(tasks.x), dtype=torch.bool)
    last[tasks.offsets[1:] - 1] = True
    before, end = tasks.context_target(where=lambda _: ~last)
    return ContextTarget(before.first_points(n).context, end)
