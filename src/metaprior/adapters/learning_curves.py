"""Learning curves of studies, and how far each is behind the best one that its study had when it ran.

Studies differ in level, scale and direction, so a curve is told by the curve of its study's best trial: step by step
how far it is behind, in the study's own unit. Of all studies the end is then the same question: whether it is below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from metaprior.tasks import Columns, Tasks

NEAR = 0.05
"""The part of a study's unit within which differences count as they are; beyond it, by their logarithm."""

LEAST_STUDIES = 3
"""So many are needed to hold some out as a whole."""

COLUMNS = Columns(("trial",), ("log(1 + step)",), ("behind the best",))
"""What a prior over such curves was learned on, by which its file is known."""

Steps = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Curve:
    """Finite values by step, of which less is better. value: what the trial came to; None where it was stopped."""

    steps: Steps
    values: Float[np.ndarray, " n"]
    value: float | None = None

    def beats(self, other: Curve | None) -> bool:
        """Whether its trial came to a better value."""
        return self.value is not None and (other is None or other.value is None or self.value < other.value)


class Yardstick(NamedTuple):
    """What curves of a study are compared with: the best one so far, and a unit."""

    best: Curve
    unit: float

    @staticmethod
    def of(best: Curve, beginnings: Sequence[float]) -> Yardstick:
        """beginnings: the first value of each curve, which all have, however soon they were stopped.

        The unit is how far from the best one's end curves typically begin: what there is to be learned.
        """
        end = float(best.values[-1])
        return Yardstick(best, float(np.median(np.abs(np.asarray(beginnings) - end))) or abs(end) or 1.0)

    def behind(self, curve: Curve) -> Float[np.ndarray, " n"]:
        """How far a curve is behind the best one, step by step; below 0 where it is ahead."""
        gap = curve.values - np.interp(curve.steps, self.best.steps, self.best.values)
        found: Float[np.ndarray, " n"] = np.arcsinh(gap / (NEAR * self.unit))
        return found


def as_inputs(steps: Steps | Sequence[float]) -> Float[np.ndarray, " n"]:
    """Steps as the prior has them: learning is quick at first, and slow later on."""
    inputs: Float[np.ndarray, " n"] = np.log1p(np.asarray(steps, float))
    return inputs


def replayed(studies: Sequence[Sequence[Curve]]) -> Tasks | None:
    """Every curve as it looked when it ran, against the best before it; None where no study has had one.

    studies: of each its curves in their order. Where there are enough of them, each is a cluster.
    """
    pairs, labels = [], []
    for label, curves in enumerate(studies):
        for curve, yardstick in _compared(curves):
            pairs.append((as_inputs(curve.steps), yardstick.behind(curve)))
            labels.append(label)
    if not pairs:
        return None
    tasks = replace(Tasks.from_pairs(pairs), columns=COLUMNS)
    return tasks.with_clusters(labels) if len(set(labels)) >= LEAST_STUDIES else tasks


def _compared(curves: Sequence[Curve]) -> Iterator[tuple[Curve, Yardstick]]:
    best, beginnings = None, []
    for curve in curves:
        if not len(curve.values):
            continue
        beginnings.append(float(curve.values[0]))
        if best is not None:
            yield curve, Yardstick.of(best, beginnings)
        if curve.beats(best):
            best = curve
