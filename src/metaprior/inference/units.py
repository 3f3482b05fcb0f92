"""Posteriors in the user's units, when the prior was learned on scaled ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from jaxtyping import Float
from torch import Tensor

from metaprior.inference.evidence import Evidence
from metaprior.inference.marginals import Marginals
from metaprior.inference.posterior import Conditional, Posterior
from metaprior.inference.student import StudentConditional, StudentPosterior
from metaprior.tasks import Scaler, Tasks

Scalable = Posterior | StudentPosterior
"""What a prior answers in scaled units."""


@dataclass(frozen=True, eq=False)
class UserPosterior(Marginals):
    """A posterior seen through a scaler: the same questions, answered in the units of the meta-tasks' y."""

    scaled: Scalable
    points: Tasks
    scaler: Scaler

    @property
    def is_gaussian(self) -> bool:  # type: ignore[override]
        return self.scaled.is_gaussian

    @property
    def function(self) -> UserPosterior:
        """The same for the function: without observation noise."""
        return UserPosterior(self.scaled.function, self.points, self.scaler)

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

    @property
    def evidence(self) -> Evidence:
        """The evidence of each task's context."""
        fit, complexity, normaliser, jitter = self.scaled.evidence
        shift = self.scaler.log_jacobian(self.scaled.context)
        return Evidence(fit, complexity + shift, normaliser, jitter)

    @property
    def context(self) -> Tasks:
        """What was known, in scaled units."""
        return self.scaled.context

    @property
    def jitter(self) -> float:
        """The largest jitter a factorisation needed, relative to the diagonal: 0 unless one failed without."""
        return self.scaled.jitter

    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self.scaled.cdf(self.scaler.scale_y(y))

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        return self.scaler.unscale_mean(self.scaled.quantiles(probabilities))

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        values = self.scaler.scale_y(self.as_targets(y))
        return self.scaler.unscale_log_density(self.scaled.log_density(values))

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        return self.scaler.unscale_sd(self.scaled.crps(self.scaler.scale_y(self.as_targets(y))))

    def covariances(self) -> list[Float[Tensor, "p n n"]]:
        """Each task's full covariance at its points, for each output."""
        squares = self.scaler.y_scale.square()[:, None, None]
        return [squares * C for C in self.scaled.covariances()]

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        values = self.scaler.scale_y(self.as_targets(y))
        return self.scaled.joint_log_density(values) + self.scaler.log_jacobian(self.points)

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self.scaler.unscale_mean(self.scaled.samples(count, seed))


class InUnits:
    """A method that works on scaled tasks, seen in the user's units."""

    def __init__(self, method: ScaledMethod, scaler: Scaler) -> None:
        self.method, self.scaler = method, scaler

    def fit(self, tasks: Tasks) -> Self:
        """Fit the method on the scaled tasks."""
        self.method.fit(self.scaler.scale(tasks))
        return self

    def predict(self, context: Tasks, at: Tasks) -> UserPosterior:
        """The method's posterior in the user's units."""
        scaled = self.method.predict(self.scaler.scale(context), self.scaler.scale(at))
        return UserPosterior(scaled, at, self.scaler)


class ScaledMethod(Protocol):
    """A method whose answer is a prior's."""

    def fit(self, tasks: Tasks) -> Self: ...
    def predict(self, context: Tasks, at: Tasks) -> Scalable: ...


@dataclass(frozen=True, eq=False)
class UserConditional:
    """A conditioned prior in the user's units. `at` gives the posterior at points of the same tasks."""

    scaled: Conditional | StudentConditional
    scaler: Scaler
    covariates: Float[Tensor, "m c"] | None = None  # of the tasks, which their points have as further inputs

    def at(self, points: Any) -> UserPosterior:
        """The posterior at these points: `Tasks` with the same ids, or one array of points for every task."""
        if not isinstance(points, Tasks):
            ids = self.scaled.context.ids
            points = Tasks.from_inputs([points] * len(ids), ids)
        wide = self.scaler.scale(points.widened(self.covariates))
        return UserPosterior(self.scaled.at(wide), points, self.scaler)
