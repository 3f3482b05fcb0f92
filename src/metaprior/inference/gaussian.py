"""What follows from a Gaussian mean and variance at each point: deviation, interval, quantiles, log density."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.inference.evidence import LOG_2PI


class Interval(NamedTuple):
    """The bounds of a central interval at each point."""

    lower: Float[Tensor, "N p"]
    upper: Float[Tensor, "N p"]


class GaussianMarginals(ABC):
    """A posterior whose marginals are Gaussian, from its `mean` and `variance`."""

    mean: Float[Tensor, "N p"]

    @property
    @abstractmethod
    def variance(self) -> Float[Tensor, "N p"]: ...

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.variance.sqrt()

    def interval(self, level: float = 0.9) -> Interval:
        """The central interval that holds a value with this probability."""
        if not 0 < level < 1:
            raise OptionError(f"level={level} must lie between 0 and 1.")
        lower, upper = self.quantiles([(1 - level) / 2, (1 + level) / 2])
        return Interval(lower, upper)

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        wanted = torch.as_tensor(probabilities, dtype=torch.float64)
        if wanted.ndim != 1 or not bool(((wanted > 0) & (wanted < 1)).all()):
            raise OptionError(f"probabilities {probabilities}: give a list of numbers between 0 and 1.")
        deviations: Tensor = torch.special.ndtri(wanted)
        return self.mean + deviations[:, None, None] * self.sd

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own; where nothing is uncertain, +∞ at the mean and −∞ elsewhere."""
        residual, variance = self.as_targets(y) - self.mean, self.variance
        certain = torch.where(residual == 0, torch.inf, -torch.inf).to(residual)
        safe = torch.where(variance > 0, variance, 1.0)
        density = -0.5 * (residual.square() / safe + safe.log() + LOG_2PI)
        return torch.where(variance > 0, density, certain)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value: an error in y's units, for the whole distribution."""
        residual, sd = self.as_targets(y) - self.mean, self.sd
        z = residual / torch.where(sd > 0, sd, 1.0)
        density = torch.exp(-0.5 * (z.square() + LOG_2PI))
        score = sd * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
        return torch.where(sd > 0, score, residual.abs())

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
