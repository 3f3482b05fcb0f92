"""Posteriors of warped targets, back in the units of y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.evidence import Evidence
from metaprior.inference.marginals import Marginals
from metaprior.inference.method import Predictive
from metaprior.inference.mixtures import MixturePosterior, mixture_moments
from metaprior.priors.warps import Warp
from metaprior.tasks import Tasks

NODES, REACH = 32, 4.0
"""Of the quadrature that mean and deviation are taken by, in standard deviations of t."""


@dataclass(frozen=True, eq=False)
class WarpedPosterior(Marginals):
    """What a posterior of `t = g(y)` says of y: quantiles go through g⁻¹, densities gain `g'`, the mean is integrated.

    The function's posterior is that of g⁻¹(f): the median of what would be observed there.
    """

    warped: Predictive
    warp: Warp
    slopes: Float[Tensor, " m"]  # Σ log g' over each task's context

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.warped.points

    @property
    def function(self) -> WarpedPosterior:
        """The same without observation noise."""
        return WarpedPosterior(self.warped.function, self.warp, self.slopes)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self._moments[0]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self._moments[1]

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context in the units of y, where the method has one."""
        found: Evidence | None = getattr(self.warped, "evidence", None)
        return None if found is None else found._replace(complexity=found.complexity + self.slopes)

    @torch.no_grad()
    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        known = self.warp.allowed(y)
        inside = self.warped.cdf(self.warp(torch.where(known, y, self.warp.unit)))
        return torch.where(known, inside, 0.0)

    @torch.no_grad()
    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        return self.warp.back(self.warped.quantiles(probabilities))

    @torch.no_grad()
    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own; −∞ where the warp is not defined."""
        values = self.as_targets(y)
        known = self.warp.allowed(values)
        safe = torch.where(known, values, self.warp.unit)
        density = self.warped.log_density(self.warp(safe)) + self.warp.log_slope(safe)
        return torch.where(known, density, -torch.inf)

    @torch.no_grad()
    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        values = self.as_targets(y)
        known = self.warp.allowed(values)
        safe = torch.where(known, values, self.warp.unit)
        slopes = torch.where(known, self.warp.log_slope(safe), -torch.inf).sum(1)
        total = torch.zeros(len(self.points), dtype=torch.float64).index_add_(0, self.points.task_of_row, slopes)
        return self.warped.joint_log_density(self.warp(safe)) + total

    @torch.no_grad()
    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self.warp.back(self.warped.samples(count, seed))

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        """Mean and deviation, by quadrature over the middle: beyond that, tails may have no mean at all.

        Those of a mixture follow from its parts', whose quantiles are known without a search.
        """
        if isinstance(self.warped, MixturePosterior):
            parts = self.warped.parts
            return mixture_moments([(WarpedPosterior(one, self.warp, self.slopes), weight) for one, weight in parts])
        nodes, weights = _normal_nodes()
        total = square = torch.zeros(())
        for probability, weight in zip(torch.special.ndtr(nodes).tolist(), weights.tolist(), strict=True):
            value = self.quantiles([probability])[0]
            total, square = total + weight * value, square + weight * value.square()
        return total, (square - total.square()).clamp(min=0.0).sqrt()


def _normal_nodes() -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Nodes and weights of an expectation over a standard normal variable between −4 and 4."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(NODES))
    z = REACH * nodes
    density = weights * torch.exp(-0.5 * z.square())
    return z, density / density.sum()
