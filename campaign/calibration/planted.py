"""Errors that are planted on purpose: a statistic that does not find them would say nothing by being quiet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from campaign.calibration.asking import Plant
from metaprior.inference import IndependentGaussians, Posterior, WarpedPosterior
from metaprior.tasks import Tasks

SHAPE = (1, 1)


@dataclass(frozen=True, eq=False)
class Stretched(Posterior):
    """A posterior whose deviations are all so many times what they should be."""

    posterior: Posterior
    factor: float

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.posterior.points

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.posterior.mean

    @property
    def sd(self) -> Tensor:
        return torch.as_tensor(self.factor * self.posterior.sd)

    @property
    def function(self) -> Posterior:
        return Stretched(self.posterior.function, self.factor)

    def _cdf(self, y: Tensor) -> Tensor:
        return self.posterior.cdf(self._back(y))

    def _inverse_cdf(self, u: Tensor) -> Tensor:
        return self._out(self.posterior.inverse_cdf(u))

    def log_density(self, y: Any) -> Tensor:
        return self.posterior.log_density(self._back(self.as_targets(y))) - math.log(self.factor)

    def joint_log_density(self, y: Any) -> Tensor:
        values = self.points.sizes * self.mean.shape[1] * math.log(self.factor)
        return self.posterior.joint_log_density(self._back(self.as_targets(y))) - values

    def samples(self, count: int, seed: int) -> Tensor:
        return self._out(self.posterior.samples(count, seed))

    def covariances(self) -> list[Tensor] | None:
        found = self.posterior.covariances()
        return None if found is None else [self.factor**2 * C for C in found]

    def _back(self, y: Tensor) -> Tensor:
        return self.mean + (y - self.mean) / self.factor

    def _out(self, y: Tensor) -> Tensor:
        return self.mean + (y - self.mean) * self.factor


@dataclass(frozen=True, eq=False)
class WithoutJacobian(WarpedPosterior):
    """A warped posterior whose density is that of the warped value."""

    def _warped_with_slopes(self, y: Any) -> tuple[Tensor, Tensor]:
        t, slopes = super()._warped_with_slopes(y)
        return t, torch.zeros_like(slopes)


@dataclass(frozen=True, eq=False)
class JacobianAtMedian(WarpedPosterior):
    """One whose density takes the slope of the warp at the median, and not at the value."""

    def _warped_with_slopes(self, y: Any) -> tuple[Tensor, Tensor]:
        t, _ = super()._warped_with_slopes(y)
        return t, super()._warped_with_slopes(self.quantiles([0.5])[0])[1]


def _warped_as(wrong: type[WarpedPosterior]) -> Plant:
    def plant(posterior: Posterior) -> Posterior:
        assert isinstance(posterior, WarpedPosterior)
        return wrong(posterior.warped, posterior.warp, posterior.evidence)

    return plant


def _independent(posterior: Posterior) -> Posterior:
    return IndependentGaussians(posterior.points, posterior.mean, posterior.sd)


class Planted(NamedTuple):
    """An error, in a kind of prior; and what finds it, with so many tasks or more."""

    kind: str
    plant: Plant
    found_by: str
    needed: int = 5_000


FINE = 30_000
"""Tasks that find 5% of a standard deviation: 0.8% too many or too few then lie beyond 1.645 deviations on either side,
where the limits are 0.6% away."""

ERRORS = {
    "standard deviation 5% too large": Planted("vanilla", lambda one: Stretched(one, 1.05), "value", FINE),
    "standard deviation 5% too small": Planted("vanilla", lambda one: Stretched(one, 0.95), "value", FINE),
    "noise dropped": Planted("vanilla", lambda one: one.function, "value"),
    "points taken for independent": Planted("vanilla", _independent, "projection", FINE),
    "Jacobian of a warp left out": Planted("warped", _warped_as(WithoutJacobian), "density"),
    "Jacobian of a warp taken at the median": Planted("warped", _warped_as(JacobianAtMedian), "density"),
}
"""By name."""
