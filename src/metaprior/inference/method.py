"""The one protocol that every method satisfies: fit on meta-tasks, then predict target tasks from their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from metaprior.inference.marginals import Interval
from metaprior.tasks import Tasks


class Predictive(Protocol):
    """A method's answer at points of some tasks, for a new observation; rows follow the points."""

    @property
    def points(self) -> Tasks: ...
    @property
    def mean(self) -> Float[Tensor, "N p"]: ...
    @property
    def sd(self) -> Float[Tensor, "N p"]: ...
    @property
    def function(self) -> Predictive: ...
    def interval(self, level: float = 0.9) -> Interval: ...
    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]: ...
    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]: ...
    def log_density(self, y: Any) -> Float[Tensor, "N p"]: ...
    def crps(self, y: Any) -> Float[Tensor, "N p"]: ...
    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]: ...
    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]: ...


@runtime_checkable
class Method(Protocol):
    """Anything that learns from meta-tasks and predicts a target task from its context."""

    def fit(self, tasks: Tasks) -> Self:
        """Learn from the meta-tasks."""

    def predict(self, context: Tasks, at: Tasks) -> Predictive:
        """The posterior at points of the target tasks, given their contexts: the same tasks in the same order."""
