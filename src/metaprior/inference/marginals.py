"""What follows from any distribution at each point: interval, quantiles, ranked probability score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.tasks import Tasks

NODES = 64
"""Probabilities at which an integral over a distribution is taken."""

HALVINGS = 60
"""Of a bracket around a quantile: to the last digit."""


class Interval(NamedTuple):
    """The bounds of a central interval at each point."""

    lower: Float[Tensor, "N p"]
    upper: Float[Tensor, "N p"]


class Marginals(ABC):
    """A posterior at the rows of some points, each value with a distribution of its own: `mean`, `sd`, `cdf`, density.

    Nobody computes bounds from mean and sd: a mixture, a warp or a recalibrated posterior has others.
    """

    is_gaussian = False
    points: Tasks
    mean: Float[Tensor, "N p"]

    @property
    @abstractmethod
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""

    @abstractmethod
    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""

    @abstractmethod
    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""

    @abstractmethod
    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""

    def interval(self, level: float = 0.9) -> Interval:
        """The central interval that holds a value with this probability."""
        if not 0 < level < 1:
            raise OptionError(f"level={level} must lie between 0 and 1.")
        lower, upper = self.quantiles([(1 - level) / 2, (1 + level) / 2])
        return Interval(lower, upper)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value: an error in y's units, for the whole distribution.

        It is twice the pinball loss, averaged over all probabilities.
        """
        values, total = self.as_targets(y), torch.zeros_like(self.mean)
        probabilities, weights = _legendre(NODES)
        for probability, weight in zip(probabilities, weights, strict=True):
            gap = values - self.quantiles([probability])[0]
            total += 2 * weight * torch.maximum(probability * gap, (probability - 1) * gap)
        return total

    def as_targets(self, y: Any) -> Float[Tensor, "N p"]:
        """Values of y, one row per point, as a tensor of the mean's shape."""
        values = torch.as_tensor(y, dtype=torch.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != self.mean.shape:
            raise DataError(
                f"y has shape {tuple(values.shape)}, but the posterior has {tuple(self.mean.shape)}; "
                "give one value per point and output."
            )
        if not bool(torch.isfinite(values).all()):
            raise DataError("NaN or infinity in y: a density is of finite values.")
        return values


def checked_probabilities(probabilities: Sequence[float]) -> Float[Tensor, " k"]:
    """Probabilities as a tensor, if they are some."""
    wanted = torch.as_tensor(probabilities, dtype=torch.float64)
    if wanted.ndim != 1 or not bool(((wanted > 0) & (wanted < 1)).all()):
        raise OptionError(f"probabilities {probabilities}: give a list of numbers between 0 and 1.")
    return wanted


def quantiles_by_halving(
    marginals: Marginals, lower: Float[Tensor, "k N p"], upper: Float[Tensor, "k N p"], wanted: Float[Tensor, " k"]
) -> Float[Tensor, "k N p"]:
    """Quantiles of a distribution that has a cdf only, from values that they lie between."""
    target = wanted[:, None, None]
    for _ in range(HALVINGS):
        middle = (lower + upper) / 2
        below = marginals.cdf(middle) < target
        lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
    return (lower + upper) / 2


def _legendre(count: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of an integral over probabilities from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return ((nodes + 1) / 2).tolist(), (weights / 2).tolist()
