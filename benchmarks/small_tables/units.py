"""Scaling by the training tasks, for methods that have none of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from small_tables.protocol import Array, Gaussian, Pair


class Units(NamedTuple):
    """Where the training values lie: they are learned with mean 0 and deviation 1."""

    x_mean: Array
    x_sd: Array
    y_mean: float
    y_sd: float

    @classmethod
    def of(cls, tasks: Sequence[Pair]) -> Self:
        x, y = (np.concatenate(values) for values in zip(*tasks, strict=True))
        return cls(x.mean(0), x.std(0) + 1e-12, float(y.mean()), float(y.std()) + 1e-12)

    def x(self, x: Array) -> Array:
        return np.asarray((x - self.x_mean) / self.x_sd)

    def y(self, y: Array) -> Array:
        return np.asarray((y - self.y_mean) / self.y_sd)

    def scaled(self, tasks: Sequence[Pair]) -> list[Pair]:
        return [(self.x(x), self.y(y)) for x, y in tasks]

    def back(self, mean: Array, variance: Array) -> Gaussian:
        return Gaussian(self.y_mean + self.y_sd * mean, self.y_sd**2 * variance)
