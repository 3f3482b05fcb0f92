"""Posteriors in the user's units, of methods that learn on scaled ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import Evidence
from metaprior.inference.method import Method
from metaprior.inference.posterior import Nodes, Posterior, Weighed
from metaprior.tasks import Scaler, Tasks


@dataclass(frozen=True, eq=False)
class UserPosterior(Posterior):
    """A posterior seen through a scaler: the same questions, answered in the units of the meta-tasks' y."""

    scaled: Posterior
    points: Tasks
    scaler: Scaler
    evidence: Evidence | None = None

    @property
    def is_gaussian(self) -> bool:  # type: ignore[override]
        return self.scaled.is_gaussian

    @property
    def shape(self) -> tuple[int, int]:
        return self.scaled.shape

    @property
    def device(self) -> torch.device:
        return self.scaled.device

    @property
    def jitter(self) -> float:  # type: ignore[override]
        """The largest jitter a factorisation needed, relative to the diagonal: 0 unless one failed without."""
        return self.scaled.jitter

    @property
    def function(self) -> UserPosterior:
        """The same for the function: without observation noise."""
        return replace(self, scaled=self.scaled.function)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self.scaler.unscale_mean(self.scaled.mean)

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.scaler.unscale_sd(self.scaled.sd)

    @property
    def variance(self) -> Float[Tensor, "N p"]:
        return self.sd.square()

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self.scaled.cdf(self.scaler.scale_y(y))

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self.scaled.log_cdf(self.scaler.scale_y(y))

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self.scaled.log_sf(self.scaler.scale_y(y))

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        return self.scaled.log_interval_probability(self.scaler.scale_y(lower), self.scaler.scale_y(upper))

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        return self.scaler.unscale_mean(self.scaled.inverse_cdf(u))

    def between(self, u: Float[Tensor, "*k #N #p"]) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
        """Values that the one which has probability u below it lies between."""
        lower, upper = self.scaled.between(u)
        return self.scaler.unscale_mean(lower), self.scaler.unscale_mean(upper)

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution."""
        return ((self.scaler.unscale_mean(values), weights) for values, weights in self.scaled.nodes(rule))

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth."""
        return self.scaler.unscale_mean(self.scaled.edges(fine))

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        values = self.scaler.scale_y(self.as_targets(y))
        return self.scaler.unscale_log_density(self.scaled.log_density(values))

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        return self.scaler.unscale_sd(self.scaled.crps(self.scaler.scale_y(self.as_targets(y))))

    def covariances(self) -> list[Float[Tensor, "p n n"]] | None:
        """Each task's full covariance at its points, for each output."""
        found, scale = self.scaled.covariances(), self.scaler.y_scale[:, None, None].to(self.device)
        return None if found is None else [scale * (scale * C) for C in found]  # the square alone could overflow

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        values = self.scaler.scale_y(self.as_targets(y))
        return self.scaled.joint_log_density(values) + self.scaler.log_jacobian(self.points).to(values)

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self.scaler.unscale_mean(self.scaled.samples(count, seed))


class UserConditional(Conditional[UserPosterior]):
    """A conditioned method in the user's units. covariates: of the tasks, which its points have as further inputs."""

    def __init__(
        self,
        scaled: Conditional[Posterior],
        scaler: Scaler,
        context: Tasks,
        covariates: Float[Tensor, "m c"] | None = None,
    ) -> None:
        self.scaled, self.scaler, self.context, self.covariates = scaled, scaler, context, covariates

    @property
    def device(self) -> torch.device:
        return self.scaled.device

    @cached_property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, in the units of y."""
        found = self.scaled.evidence
        return None if found is None else found.shifted(self.scaler.log_jacobian(self.context))

    def posterior(self, points: Tasks) -> UserPosterior:
        """The posterior at these points."""
        wide = self.scaler.scale(points.widened(self.covariates))
        return UserPosterior(self.scaled.posterior(wide), points, self.scaler, self.evidence)


class InUnits(Method):
    """A method that works on scaled tasks, seen in the user's units."""

    def __init__(self, method: Method, scaler: Scaler) -> None:
        self.method, self.scaler = method, scaler

    def fit(self, tasks: Tasks) -> Self:
        """Fit the method on the scaled tasks."""
        self.method.fit(self.scaler.scale(tasks))
        return self

    def condition(self, context: Tasks) -> UserConditional:
        """The method conditioned on contexts in the user's units."""
        return UserConditional(self.method.condition(self.scaler.scale(context)), self.scaler, context)
