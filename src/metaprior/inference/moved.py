"""Posteriors whose answers lie on another device than they are computed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import Evidence
from metaprior.inference.posterior import Around, Nodes, Posterior, Weighed
from metaprior.tasks import Tasks


@dataclass(frozen=True, eq=False)
class MovedPosterior(Around):
    """The same posterior, asked from another device."""

    onto: torch.device

    @property
    def device(self) -> torch.device:
        return self.onto

    @property
    def is_gaussian(self) -> bool:  # type: ignore[override]
        return self.posterior.is_gaussian

    @property
    def evidence(self) -> Evidence | None:  # type: ignore[override]
        """The evidence of each task's context, where the method has one."""
        found = self.posterior.evidence
        return None if found is None else found.to(self.onto)

    @property
    def function(self) -> MovedPosterior:
        """The same for the function: without observation noise."""
        return replace(self, posterior=self.posterior.function)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self.posterior.mean.to(self.onto)

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.posterior.sd.to(self.onto)

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self.posterior.cdf(self._there(y)).to(self.onto)

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self.posterior.log_cdf(self._there(y)).to(self.onto)

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self.posterior.log_sf(self._there(y)).to(self.onto)

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        return self.posterior.log_interval_probability(self._there(lower), self._there(upper)).to(self.onto)

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        return self.posterior.inverse_cdf(self._there(u)).to(self.onto)

    def between(self, u: Float[Tensor, "*k #N #p"]) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
        """Values that the one which has probability u below it lies between."""
        lower, upper = self.posterior.between(self._there(u))
        return lower.to(self.onto), upper.to(self.onto)

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution."""
        there = Nodes(self._there(rule.probabilities), self._there(rule.weights), rule.at_once)
        return ((values.to(self.onto), weights.to(self.onto)) for values, weights in self.posterior.nodes(there))

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth."""
        return self.posterior.edges(fine).to(self.onto)

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        return self.posterior.log_density(y).to(self.onto)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        return self.posterior.joint_log_density(y).to(self.onto)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        return self.posterior.crps(y).to(self.onto)

    def covariances(self) -> list[Float[Tensor, "p n n"]] | None:
        """Each task's full covariance at its points, for each output."""
        found = self.posterior.covariances()
        return None if found is None else [C.to(self.onto) for C in found]

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self.posterior.samples(count, seed).to(self.onto)

    def _there(self, values: Tensor) -> Tensor:
        return values.to(self.posterior.device)


class MovedConditional(Conditional[MovedPosterior]):
    """A conditioned method whose answers lie on another device."""

    def __init__(self, conditional: Conditional[Posterior], onto: torch.device) -> None:
        self.conditional, self.onto, self.context = conditional, onto, conditional.context

    @property
    def device(self) -> torch.device:
        return self.onto

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, where the method has one."""
        found = self.conditional.evidence
        return None if found is None else found.to(self.onto)

    @property
    def plausibility(self) -> Float[Tensor, " m"] | None:
        """How usual each context is, where the method can tell."""
        found = self.conditional.plausibility
        return None if found is None else found.to(self.onto)

    def posterior(self, points: Tasks) -> MovedPosterior:
        """The posterior at these points."""
        return MovedPosterior(self.conditional.posterior(points), self.onto)


def moved(conditional: Conditional[Posterior], onto: torch.device) -> Conditional[Posterior]:
    """The same with answers on this device."""
    return conditional if conditional.device == onto else MovedConditional(conditional, onto)


def on_one_device(conditionals: Sequence[Conditional[Posterior]]) -> list[Conditional[Posterior]]:
    """The same with answers on the device of one of them: not the CPU, if any is elsewhere."""
    onto = next((one.device for one in conditionals if one.device.type != "cpu"), conditionals[0].device)
    return [moved(one, onto) for one in conditionals]
