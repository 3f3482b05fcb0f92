"""Posteriors of targets that cannot be anything: no negative urine, no coma score of 18, no half a child."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.crps import integrated_crps
from metaprior.inference.evidence import Evidence
from metaprior.inference.method import Method
from metaprior.inference.normal import normal_cdf
from metaprior.inference.posterior import Around, Nodes, Posterior, Weighed, log_dependence, moments, next_below
from metaprior.tasks import Possible, Tasks

NOTHING = 1e-9
"""Probability beyond what is possible that changes no mean."""

FAR, MANY = 6.5, 200
"""Normal scores within which whole numbers are gone through one by one, where there are not more than so many."""


@dataclass(frozen=True, eq=False)
class PossiblePosterior(Around):
    """What lies beyond the possible is as probable at its end: values are cut there, and rounded where they are whole.

    So quantiles, draws and means are possible ones. A whole number has a probability and no density; so has an end. In
    between there is a density: integrated, it is 1 together with the probabilities of the ends. A log density is in the
    units of y, and a log probability has none.
    """

    lower: Float[Tensor, " p"]
    upper: Float[Tensor, " p"]
    whole: Bool[Tensor, " p"]

    @staticmethod
    def of(posterior: Posterior, possible: Sequence[Possible]) -> PossiblePosterior:
        lower, upper, whole = (torch.tensor(part, dtype=torch.float64) for part in zip(*possible, strict=True))
        return PossiblePosterior(posterior, *(part.to(posterior.device) for part in (lower, upper, whole.bool())))

    @property
    def function(self) -> PossiblePosterior:
        """The same for the function: without observation noise, and not rounded."""
        return replace(self, posterior=self.posterior.function, whole=torch.zeros_like(self.whole))

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self._moments[0]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        mean, sd, (below, above) = self.posterior.mean, self.posterior.sd, self._beyond
        cut = below + above > NOTHING
        if bool(cut.any()):
            found = moments(self.nodes(Nodes.of(self)), mean.clamp(self.lower, self.upper))
            mean, sd = torch.where(cut, found[0], mean).clamp(self.lower, self.upper), torch.where(cut, found[1], sd)
        if bool(self.whole.any()) and (numbers := self._numbers()) is not None:
            share = self.cdf(numbers) - self.cdf(numbers - 1)
            middle = (share * numbers).sum(0) / share.sum(0)
            spread = (share * (numbers - middle).square()).sum(0).sqrt()
            mean, sd = torch.where(self.whole, middle, mean), torch.where(self.whole, spread, sd)
        return mean, sd

    def _numbers(self, also: Float[Tensor, "N p"] | None = None) -> Float[Tensor, "k N p"] | None:
        """All whole numbers that matter at each point; None where they are so many that rounding does not matter."""
        ends = normal_cdf(torch.tensor([[[-FAR]], [[FAR]]], dtype=torch.float64)).to(self.device)
        low, high = self._recorded(self.posterior.inverse_cdf(ends))
        if also is not None:
            low, high = torch.minimum(low, also), torch.maximum(high, also)
        count = int(torch.where(self.whole, high - low, 0.0).max()) + 1
        return low + torch.arange(count, dtype=low.dtype, device=low.device)[:, None, None] if count <= MANY else None

    @cached_property
    def _beyond(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        """The probability below and above what is possible."""
        ends = (self.lower.expand(self.shape), self.upper.expand(self.shape))
        below, above = (self.posterior.cdf(torch.where(end.isfinite(), end, 0.0)) for end in ends)
        return torch.where(ends[0].isfinite(), below, 0.0), torch.where(ends[1].isfinite(), 1 - above, 0.0)

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution."""
        return ((values.clamp(self.lower, self.upper), weights) for values, weights in self.posterior.nodes(rule))

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth: whole numbers are left aside."""
        return self.posterior.edges(fine).clamp(self.lower, self.upper)

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value up to y, at each point."""
        inside = self.posterior.cdf(torch.where(self.whole, y.floor() + 0.5, y))
        return torch.where(y < self.lower, 0.0, torch.where(y >= self.upper, 1.0, inside))

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self.posterior.log_cdf(self._last_recorded(y))

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self.posterior.log_sf(self._last_recorded(y))

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        return self.posterior.log_interval_probability(self._last_recorded(lower), self._last_recorded(upper))

    def _last_recorded(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The greatest value of the posterior that is recorded as y or less; −∞ and ∞ beyond the ends."""
        inside = torch.where(self.whole, y.floor() + 0.5, y)
        return torch.where(y < self.lower, -torch.inf, torch.where(y >= self.upper, torch.inf, inside))

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The least value that has probability u up to it, at each point."""
        return self._recorded(self.posterior.inverse_cdf(u))

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own; log probability of whole numbers and of ends; −∞ if impossible."""
        values = self.as_targets(y)
        before = torch.where(self.whole, values - 1, next_below(values))
        has_mass = (self.whole | (values == self.lower) | (values == self.upper)) & (before < values)
        found = self.posterior.log_density(values.clamp(self.lower, self.upper))
        if bool(has_mass.any()):
            found = torch.where(has_mass, self.log_interval_probability(before, values), found)
        return torch.where(values == self._recorded(values), found, -torch.inf)

    def log_recorded_density(self, y: Any, steps: Float[Tensor, " p"] | None = None) -> Float[Tensor, "N p"]:
        """Log density of values as they were recorded; of a whole number its log probability, whatever the step."""
        steps = None if steps is None else torch.where(self.whole, 0.0, steps.to(self.lower))
        return super().log_recorded_density(y, steps)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: what ties them is what tied them before."""
        values = self.as_targets(y)
        ties = log_dependence(self.posterior, values.clamp(self.lower, self.upper))
        return ties + self.points.summed(self.log_density(values).sum(1))

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        plain, values = replace(self, whole=torch.zeros_like(self.whole)), self.as_targets(y)
        found = integrated_crps(plain.cdf, values, self.edges(fine=True))
        if not bool(self.whole.any()) or (numbers := self._numbers(values)) is None:
            return found
        steps = (self.cdf(numbers) - (numbers >= values).double()).square().sum(0)
        return torch.where(self.whole, steps, found)

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self._recorded(self.posterior.samples(count, seed))

    def _recorded(self, values: Tensor) -> Tensor:
        """As they would be written down."""
        written = torch.where(self.whole, (values - 0.5).ceil(), values).clamp(self.lower, self.upper)
        return written + 0.0  # there is one zero


class PossibleConditional(Conditional[PossiblePosterior]):
    """A conditioned method whose posteriors are of possible values."""

    def __init__(self, conditional: Conditional[Posterior], possible: Sequence[Possible]) -> None:
        self.conditional, self.possible, self.context = conditional, possible, conditional.context

    @property
    def device(self) -> torch.device:
        return self.conditional.device

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, where the method has one."""
        return self.conditional.evidence

    @property
    def plausibility(self) -> Float[Tensor, " m"] | None:
        """How usual each context is, where the method can tell."""
        return self.conditional.plausibility

    def posterior(self, points: Tasks) -> PossiblePosterior:
        """The posterior at these points."""
        return PossiblePosterior.of(self.conditional.posterior(points), self.possible)


class WithinPossible(Method):
    """A method whose predictions are of possible values."""

    def __init__(self, method: Method, possible: Sequence[Possible]) -> None:
        self.method, self.possible = method, possible

    def fit(self, tasks: Tasks) -> Self:
        """Fit the method."""
        self.method.fit(tasks)
        return self

    def condition(self, context: Tasks) -> PossibleConditional:
        """The method with what is known."""
        return PossibleConditional(self.method.condition(context), self.possible)
