"""Are they uniform? Probabilities at which values lay, counted below each per cent, against exact binomial limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

LEVELS = np.linspace(0.01, 0.99, 99)

OUTSIDE = 0.01
"""The probability that any of all limits is passed where everything is right, at most: shared out among them."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How many of so many probabilities lie below each level. Sums of counts are counts."""

    below: np.ndarray[Any, np.dtype[np.int64]]
    total: int

    @staticmethod
    def of(probabilities: np.ndarray[Any, Any]) -> Counts:
        if not np.isfinite(probabilities).all():
            raise ValueError("a probability that is none")
        return Counts(np.searchsorted(np.sort(probabilities), LEVELS, side="left"), len(probabilities))

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.below + other.below, self.total + other.total)

    def judged(self, looked_at: int) -> Judged:
        """Where they are furthest from what they should be, as so many such counts are looked at."""
        share = OUTSIDE / (2 * looked_at * len(LEVELS))
        lower, upper = (binom.ppf(share, self.total, LEVELS), binom.isf(share, self.total, LEVELS))
        expected = LEVELS * self.total
        room = np.where(self.below < expected, expected - lower, upper - expected)
        ratio = np.abs(self.below - expected) / np.maximum(room, 0.5)
        k = int(ratio.argmax())
        bounds = (float(lower[k] / self.total), float(upper[k] / self.total))
        return Judged(self.total, float(LEVELS[k]), float(self.below[k] / self.total), bounds, float(ratio[k]))


@dataclass(frozen=True)
class Judged:
    """The level that is worst: the share below it, its limits, and how much of the room to them is used (1: all)."""

    total: int
    level: float
    share: float
    limits: tuple[float, float]
    used: float

    @property
    def inside(self) -> bool:
        return self.used <= 1.0
