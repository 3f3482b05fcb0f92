"""What follows from a Gaussian mean and deviation at each point: variance, quantiles, log density, score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.evidence import LOG_2PI
from metaprior.inference.normal import normal_cdf, normal_log_cdf
from metaprior.inference.posterior import Posterior
from metaprior.seeds import generator_of
from metaprior.tasks import Tasks


class GaussianMarginals(Posterior):
    """A posterior whose values are each Gaussian on their own, from its `mean` and `sd`."""

    is_gaussian = True

    @property
    def variance(self) -> Float[Tensor, "N p"]:
        return self.sd.square()

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point; a step (½ at the mean) where nothing is uncertain."""
        return gaussian_cdf(y, self.mean, self.sd)

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return gaussian_log_cdf(y - self.mean, self.sd)

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return gaussian_log_cdf(self.mean - y, self.sd)

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        deviations: Tensor = torch.special.ndtri(u)
        return self.mean + deviations * self.sd

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own; where nothing is uncertain, +∞ at the mean and −∞ elsewhere."""
        residual, sd = self.as_targets(y) - self.mean, self.sd
        certain = torch.where(residual == 0, torch.inf, -torch.inf).to(residual)
        density = -0.5 * ((residual / sd).square() + LOG_2PI) - sd.log()
        return torch.where(sd > 0, density, certain)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value, in closed form."""
        residual, sd = self.as_targets(y) - self.mean, self.sd
        z = residual / sd
        density = torch.exp(-0.5 * (z.square() + LOG_2PI))
        score = sd * (z * (2 * normal_cdf(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
        return torch.where(sd > 0, score, residual.abs())


def gaussian_cdf(y: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """The probability of a value below y; a step (½ at the mean) where nothing is uncertain."""
    residual = y - mean
    found: Tensor = normal_cdf(residual / sd)
    return found if bool((sd > 0).all()) else torch.where(sd > 0, found, (residual.sign() + 1) / 2)


def gaussian_log_cdf(residual: Tensor, sd: Tensor) -> Tensor:
    """The log probability of a deviation up to this one; of a step (½ at 0) where nothing is uncertain."""
    found = normal_log_cdf(residual / sd)
    return found if bool((sd > 0).all()) else torch.where(sd > 0, found, ((residual.sign() + 1) / 2).log())


@dataclass(frozen=True, eq=False)
class IndependentGaussians(GaussianMarginals):
    """A Gaussian at each point, independent of all others. Noise and function are not told apart."""

    points: Tasks
    mean: Float[Tensor, "N p"]
    deviations: Float[Tensor, "N p"]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.deviations

    @property
    def function(self) -> IndependentGaussians:
        """The same: noise and function are not told apart."""
        return self

    def covariances(self) -> list[Float[Tensor, "p n n"]]:
        """Each task's covariance at its points: diagonal."""
        return [torch.diag_embed(part.mT) for part in self.variance.split(self.points.sizes.tolist())]

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: the sum of the single ones."""
        return self.points.summed(self.log_density(y).sum(1))

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of each point on its own."""
        normal = torch.randn(count, *self.mean.shape, generator=generator_of(seed), dtype=torch.float64)
        return self.mean + self.sd * normal.to(self.mean)
