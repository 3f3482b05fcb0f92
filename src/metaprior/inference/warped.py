"""Posteriors of warped targets, back in the units of y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import Evidence
from metaprior.inference.posterior import Nodes, Posterior, Weighed, moments
from metaprior.priors import Warp
from metaprior.tasks import Tasks

LEAST = 1e-300
"""Times the unit: stands for 0 where a warp takes values above it only."""


@dataclass(frozen=True, eq=False)
class WarpedPosterior(Posterior):
    """What a posterior of `t = g(y)` says of y: quantiles go through g⁻¹, densities gain `g'`, the mean is integrated.

    The function's posterior is that of g⁻¹(f): the median of what would be observed there. Where g does not reach all
    of the line (Box and Cox's), what t has beyond lies at the end: at 0.
    """

    warped: Posterior
    warp: Warp
    evidence: Evidence | None = None

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.warped.points

    @property
    def shape(self) -> tuple[int, int]:
        return self.warped.shape

    @property
    def device(self) -> torch.device:
        return self.warped.device

    @property
    def jitter(self) -> float:  # type: ignore[override]
        return self.warped.jitter

    @property
    def function(self) -> WarpedPosterior:
        """The same without observation noise."""
        return replace(self, warped=self.warped.function)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self._moments[0]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        return moments(self.nodes(Nodes.of(self)), self.warp.inverse(self.warped.mean))

    @torch.no_grad()
    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution: those of t, taken back."""
        return ((self.warp.inverse(values), weights) for values, weights in self.warped.nodes(rule))

    @torch.no_grad()
    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth: those of t, taken back."""
        return self.warp.inverse(self.warped.edges(fine))

    @torch.no_grad()
    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value up to y, at each point."""
        t, reached = self._reached(y)
        return torch.where(reached, self.warped.cdf(t), 0.0)

    @torch.no_grad()
    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        t, reached = self._reached(y)
        return torch.where(reached, self.warped.log_cdf(t), -torch.inf)

    @torch.no_grad()
    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        t, reached = self._reached(y)
        return torch.where(reached, self.warped.log_sf(t), 0.0)

    @torch.no_grad()
    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        (low, has_low), (high, has_high) = self._reached(lower), self._reached(upper)
        found = self.warped.log_interval_probability(torch.where(has_low, low, -torch.inf), high)
        return torch.where(has_high, found, -torch.inf)

    def _reached(self, y: Float[Tensor, "*k N p"]) -> tuple[Float[Tensor, "*k N p"], Bool[Tensor, "*k N p"]]:
        """`g(y)`, and whether y is not below all that the warp takes: 0 is its end, where it takes values above 0."""
        known = self.warp.allowed(y)
        return self.warp(torch.where(known, y, LEAST * self.warp.unit)), known | (y == 0)

    @torch.no_grad()
    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        return self.warp.inverse(self.warped.inverse_cdf(u))

    @torch.no_grad()
    def between(self, u: Float[Tensor, "*k #N #p"]) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
        """Values that the one which has probability u below it lies between."""
        lower, upper = self.warped.between(u)
        return self.warp.inverse(lower), self.warp.inverse(upper)

    @torch.no_grad()
    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own; −∞ where the warp is not defined."""
        t, slopes = self._warped_with_slopes(y)
        return self.warped.log_density(t) + slopes

    @torch.no_grad()
    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        t, slopes = self._warped_with_slopes(y)
        return self.warped.joint_log_density(t) + self.points.summed(slopes.sum(1))

    def _warped_with_slopes(self, y: Any) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        """`g(y)` and `log g'(y)`; −∞ in the latter's place where the warp is not defined."""
        values = self.as_targets(y)
        known = self.warp.allowed(values)
        safe = torch.where(known, values, self.warp.unit)
        return self.warp(safe), torch.where(known, self.warp.log_slope(safe), -torch.inf)

    @torch.no_grad()
    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self.warp.inverse(self.warped.samples(count, seed))


class WarpedConditional(Conditional[WarpedPosterior]):
    """A method that was conditioned on warped contexts. slopes: `Σ log g'` over each of them."""

    def __init__(self, warped: Conditional[Posterior], warp: Warp, context: Tasks, slopes: Float[Tensor, " m"]) -> None:
        self.warped, self.warp, self.context, self.slopes = warped, warp.to(warped.device), context, slopes

    @property
    def device(self) -> torch.device:
        return self.warped.device

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context in the units of y, where the method has one."""
        found = self.warped.evidence
        return None if found is None else found.shifted(self.slopes)

    def posterior(self, points: Tasks) -> WarpedPosterior:
        """The posterior at these points."""
        bare = replace(points, y=points.y[:, :0])
        return WarpedPosterior(self.warped.posterior(bare), self.warp, self.evidence)
