"""Mixtures of posteriors: of the priors of several kinds of tasks, of an ensemble's members, of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.evidence import LOG_2PI, Evidence
from metaprior.inference.gaussian import IndependentGaussians
from metaprior.inference.marginals import Marginals, checked_probabilities, quantiles_by_halving
from metaprior.inference.method import Predictive
from metaprior.seeds import generator_of
from metaprior.tasks import Tasks

NEGLIGIBLE = 1e-12
"""A component of less weight than this in every task is not asked."""


@dataclass(frozen=True, eq=False)
class MixturePosterior(Marginals):
    """`Σ_c w_c p_c(y)` with weights of each task: its mean, quantiles and densities are those of the mixture itself."""

    components: Sequence[Predictive]
    log_weights: Float[Tensor, "m c"]
    evidence: Evidence | None = None

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.components[0].points

    @property
    def weights(self) -> Float[Tensor, "m c"]:
        """How much of each task's prediction comes from each component."""
        return self.log_weights.exp()

    @property
    def function(self) -> MixturePosterior:
        """The same for the function: without observation noise."""
        return MixturePosterior([one.function for one in self.components], self.log_weights, self.evidence)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self._moments[0]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point: within the components and between them."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        return mixture_moments(self.parts)

    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return _total([weight * one.cdf(y) for one, weight in self.parts]).clamp(max=1.0)

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities: between those of the components."""
        wanted = checked_probabilities(probabilities)
        found = [(one.quantiles(probabilities), weight) for one, weight in self.parts]
        if len(found) == 1:
            return found[0][0]
        lower = torch.stack([torch.where(weight > 0, q, torch.inf) for q, weight in found]).amin(0)
        upper = torch.stack([torch.where(weight > 0, q, -torch.inf) for q, weight in found]).amax(0)
        return quantiles_by_halving(self, lower, upper, wanted)

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        rows, targets = self.points.task_of_row, self.as_targets(y)
        parts = zip(self._asked, self.parts, strict=True)
        found = [self.log_weights[rows, c, None] + one.log_density(targets) for c, (one, _) in parts]
        return torch.stack(found).logsumexp(0)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        targets = self.as_targets(y)
        parts = [self.log_weights[:, c] + self.components[c].joint_log_density(targets) for c in self._asked]
        return torch.stack(parts).logsumexp(0)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score: for Gaussians, `E|X − y| − ½ E|X − X'|` in closed form."""
        if not all(getattr(one, "is_gaussian", False) for one, _ in self.parts):
            return super().crps(y)
        values, parts = self.as_targets(y), [(one.mean, one.sd, weight) for one, weight in self.parts]
        total = torch.zeros_like(values)
        for i, (means, sds, weights) in enumerate(parts):
            rows = torch.nonzero(weights[:, 0])[:, 0]  # most tasks are of few kinds
            mean, sd, weight = means[rows], sds[rows], weights[rows]
            found = weight * _absolute(values[rows] - mean, sd)
            for j, (others, spreads, shares) in enumerate(parts[: i + 1]):
                once = 0.5 if i == j else 1.0
                spread = (sd.square() + spreads[rows].square()).sqrt()
                found -= once * weight * shares[rows] * _absolute(mean - others[rows], spread)
            total[rows] += found
        return total

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together: each from one component, chosen by the task's weights."""
        chosen = torch.multinomial(self.weights, count, replacement=True, generator=generator_of(seed)).mT
        rows = chosen[:, self.points.task_of_row, None]
        drawn = torch.zeros(count, *self.mean.shape, dtype=torch.float64)
        for c in self._asked:
            drawn = torch.where(rows == c, self.components[c].samples(count, seed + 1 + c), drawn)
        return drawn

    @cached_property
    def _asked(self) -> list[int]:
        return torch.nonzero(self.weights.amax(0) > NEGLIGIBLE)[:, 0].tolist()

    @cached_property
    def parts(self) -> list[tuple[Predictive, Float[Tensor, "N 1"]]]:
        """The components that have a say and their weights at each point: their marginals, in one piece each."""
        logs = self.log_weights[self.points.task_of_row]
        return [(self._marginals(self.components[c], logs[:, c, None]), logs[:, c, None].exp()) for c in self._asked]

    def _marginals(self, one: Predictive, log_weight: Float[Tensor, "N 1"]) -> Predictive:
        if not getattr(one, "is_gaussian", False):
            return one
        return IndependentGaussians(self.points, one.mean, torch.where(log_weight > -torch.inf, one.sd.square(), 1.0))


def by_evidence(components: Sequence[Predictive], log_shares: Float[Tensor, " c"]) -> MixturePosterior:
    """The posterior under `p(f) = Σ_c π_c GP(m_c, k_c)`: weights are responsibilities, from each context's evidence."""
    terms = torch.stack([one.evidence.total.detach() for one in components], -1) + log_shares  # type: ignore[attr-defined]
    total = terms.logsumexp(-1)
    zero = torch.zeros_like(total)
    return MixturePosterior(components, terms - total[:, None], Evidence(total, zero, zero))


def mixture_moments(
    parts: Sequence[tuple[Predictive, Float[Tensor, "N 1"]]],
) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
    """Mean and standard deviation of a mixture: within its parts and between them."""
    mean = _total([weight * one.mean for one, weight in parts])
    variance = _total([weight * (one.sd.square() + (one.mean - mean).square()) for one, weight in parts])
    return mean, variance.sqrt()


def _total(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _absolute(mean: Tensor, sd: Tensor) -> Tensor:
    """`E|X|` of a Gaussian."""
    z = mean / torch.where(sd > 0, sd, 1.0)
    density = torch.exp(-0.5 * (z.square() + LOG_2PI))
    return torch.where(sd > 0, sd * 2 * density + mean * (2 * torch.special.ndtr(z) - 1), mean.abs())
