"""Mixtures of posteriors: of the priors of several kinds of tasks, of an ensemble's members, of several methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import LOG_2PI, Evidence
from metaprior.inference.gaussian import IndependentGaussians, gaussian_cdf
from metaprior.inference.moved import on_one_device
from metaprior.inference.posterior import EDGES, Nodes, Posterior, Weighed
from metaprior.inference.searching import rising_root
from metaprior.seeds import child_seed, generator_of
from metaprior.tasks import Tasks

AT_ONCE = 16_384
"""Rows whose pairs of components are gone through together: what they take stays in the cache …"""

ON_GPU = 1000
"""… which a GPU does not need: there so many times as many."""

MANY_PARTS = 8
"""Of more components than this, every second edge is enough."""

NEGLIGIBLE = 1e-12
"""A component of less weight than this in every task is not asked."""


@dataclass(frozen=True, eq=False)
class MixturePosterior(Posterior):
    """`Σ_c w_c p_c(y)` with weights of each task: its mean, quantiles and densities are those of the mixture itself."""

    components: Sequence[Posterior]
    log_weights: Float[Tensor, "m c"]
    evidence: Evidence | None = None

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.components[0].points

    @property
    def shape(self) -> tuple[int, int]:
        return self.components[0].shape

    @property
    def device(self) -> torch.device:
        return self.log_weights.device

    @property
    def jitter(self) -> float:  # type: ignore[override]
        return max(one.jitter for one in self.components)

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
        mean = _total([weight * one.mean for one, weight in self.parts])
        spread = [weight.sqrt() * torch.hypot(one.sd, one.mean - mean) for one, weight in self.parts]
        return mean, reduce(torch.hypot, spread)  # squares of very small values would vanish

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution: those of the components, where they have a say."""
        for one, share in self.parts:
            for values, weights in one.nodes(rule):
                yield torch.where(share > 0, values, self.mean), share * weights

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth: those of the components."""
        if len(self.parts) <= MANY_PARTS:
            return super().edges(fine)
        return torch.cat([values for values, _ in self.nodes(Nodes.of(self, EDGES[::2]))])

    def covariances(self) -> list[Float[Tensor, "p n n"]] | None:
        """Each task's full covariance at its points, for each output: within the components and between them."""
        found = [self.components[c].covariances() for c in self._asked]
        sizes = self.points.sizes.tolist()
        gaps = [(self.components[c].mean - self.mean).split(sizes) for c in self._asked]
        total: list[Tensor] = []
        for i, weights in enumerate(self.weights[:, self._asked].tolist()):
            parts = []
            for weight, within, gap in zip(weights, found, gaps, strict=True):
                if within is None:
                    return None
                parts.append(weight * (within[i] + gap[i].mT[:, :, None] * gap[i].mT[:, None, :]))
            total.append(_total(parts))
        return total

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        normal = self._gaussians
        found = [weight * one.cdf(y) for one, weight in self._others]
        if len(normal.means) * y.numel() <= self._at_once:
            found.append((normal.weights * normal.cdf(y[..., None, :, :])).sum(-3))
        else:
            found += [one.weights * one.cdf(y) for one in normal.each()]
        return _total(found).clamp(max=1.0)

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self._log_total(lambda one: one.log_cdf(y))

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self._log_total(lambda one: one.log_sf(y))

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`: of each component, and together."""
        return self._log_total(lambda one: one.log_interval_probability(lower, upper))

    def _log_total(self, of: Callable[[Posterior], Float[Tensor, "*k N p"]]) -> Float[Tensor, "*k N p"]:
        """The log of a weighted sum of what has this log under each component."""
        total: Tensor | None = None
        for one, weight in self.parts:
            part = of(one) + weight.log()
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None  # some component has a weight
        return total.clamp(max=0.0)

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point: between those of the components."""
        if len(self.parts) == 1:
            return self.parts[0][0].inverse_cdf(u)
        lower, upper = self.between(u)
        return rising_root(self.cdf, u.expand_as(lower), lower, upper)

    def between(self, u: Float[Tensor, "*k #N #p"]) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
        """Values that the one which has probability u below it lies between: the components' least and greatest."""
        found = [(*one.between(u), weight) for one, weight in self.parts]
        lower = torch.stack([torch.where(weight > 0, low, torch.inf) for low, _, weight in found]).amin(0)
        upper = torch.stack([torch.where(weight > 0, high, -torch.inf) for _, high, weight in found]).amax(0)
        return lower, upper

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        targets = self.as_targets(y)
        found = [log_weight + one.log_density(targets) for one, log_weight in self._marginals]
        return torch.stack(found).logsumexp(0)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        targets = self.as_targets(y)
        parts = [self.log_weights[:, c] + self.components[c].joint_log_density(targets) for c in self._asked]
        return torch.stack(parts).logsumexp(0)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score: for Gaussians, `E|X − y| − ½ E|X − X'|` in closed form."""
        if not all(one.is_gaussian for one, _ in self.parts):
            return super().crps(y)
        values, parts = self.as_targets(y), self.parts
        weights = torch.stack([weight for _, weight in parts])
        places = torch.arange(1, len(parts) + 1, device=self.device)[:, None]
        last = torch.where(weights[..., 0] > 0, places, 0).amax(0)  # components of a row, up to the last with a say
        order = last.argsort(descending=True)
        means, sds = torch.stack([one.mean for one, _ in parts]), torch.stack([one.sd for one, _ in parts])
        total = torch.zeros_like(values)
        for rows in order.split(self._at_once):
            counts = (last[rows] >= places).sum(1).tolist()
            total[rows] = _crps(values[rows], means[:, rows], sds[:, rows], weights[:, rows], counts)
        return total

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together: each from one component, chosen by the task's weights."""
        chosen = torch.multinomial(self.weights.cpu(), count, replacement=True, generator=generator_of(seed)).mT
        rows = chosen[:, self.points.task_of_row, None].to(self.device)
        drawn = torch.zeros(count, *self.shape, dtype=torch.float64, device=self.device)
        for c in self._asked:
            drawn = torch.where(rows == c, self.components[c].samples(count, child_seed(seed, c)), drawn)
        return drawn

    @property
    def _at_once(self) -> int:
        return AT_ONCE if self.device.type == "cpu" else ON_GPU * AT_ONCE

    @cached_property
    def _asked(self) -> list[int]:
        return torch.nonzero(self.weights.amax(0) > NEGLIGIBLE)[:, 0].tolist()

    def marginals(self, c: int) -> Posterior:
        """What a component says of each value on its own: in one piece where that is Gaussian."""
        one = self.components[c]
        if not one.is_gaussian:
            return one
        has_say = self.log_weights[self.points.task_of_row, c, None] > -torch.inf
        return IndependentGaussians(self.points, one.mean, torch.where(has_say, one.sd, 1.0))

    @cached_property
    def _marginals(self) -> list[tuple[Posterior, Float[Tensor, "N 1"]]]:
        """The components that have a say, and the logs of their weights at each point."""
        logs = self.log_weights[self.points.task_of_row]
        return [(self.marginals(c), logs[:, c, None]) for c in self._asked]

    @cached_property
    def parts(self) -> list[tuple[Posterior, Float[Tensor, "N 1"]]]:
        """What it is made of in the end, and with which weights at each point: a mixture of mixtures is one mixture."""
        found: list[tuple[Posterior, Tensor]] = []
        for one, log_weight in self._marginals:
            inside = one.parts if isinstance(one, MixturePosterior) else [(one, torch.ones_like(log_weight))]
            found += [(part, log_weight.exp() * weight) for part, weight in inside]
        return found

    @cached_property
    def _others(self) -> list[tuple[Posterior, Float[Tensor, "N 1"]]]:
        return [(one, weight) for one, weight in self.parts if not one.is_gaussian]

    @cached_property
    def _gaussians(self) -> _Gaussians:
        found = [(one.mean, one.sd, weight) for one, weight in self.parts if one.is_gaussian]
        if not found:
            return _Gaussians(*torch.empty(3, 0, *self.shape, dtype=torch.float64, device=self.device))
        return _Gaussians(*(torch.stack(each) for each in zip(*found, strict=True)))


class _Gaussians(NamedTuple):
    """The Gaussian parts of a mixture, side by side."""

    means: Float[Tensor, "*c N p"]
    sds: Float[Tensor, "*c N p"]
    weights: Float[Tensor, "*c N #p"]

    def each(self) -> Iterator[_Gaussians]:
        """One after the other."""
        return (_Gaussians(*one) for one in zip(*self, strict=True))

    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y under each."""
        return gaussian_cdf(y, self.means, self.sds)


class MixtureConditional(Conditional[MixturePosterior]):
    """Several conditioned methods as one, with fixed weights.

    by_evidence: the mixture is of priors, `p(f) = Σ_c π_c GP(m_c, k_c)`, so that each context says how much of a task's
    prediction comes from each: weights are responsibilities.
    """

    def __init__(
        self, components: Sequence[Conditional[Posterior]], log_shares: Float[Tensor, " c"], *, by_evidence: bool
    ) -> None:
        self.components, self.context = on_one_device(components), components[0].context
        said, log_shares = [one.evidence for one in self.components], log_shares.to(self.device)
        known = [one.total.detach() for one in said if one is not None]
        self.total = (torch.stack(known, -1) + log_shares).logsumexp(-1) if len(known) == len(said) else None
        self.log_weights = log_shares.expand(len(self.context), len(components))
        if by_evidence:
            assert self.total is not None  # priors have an evidence
            self.log_weights = torch.stack(known, -1) + log_shares - self.total[:, None]

    @property
    def device(self) -> torch.device:
        return self.components[0].device

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, `log Σ_c π_c p_c(y)`, where every component has one."""
        return None if self.total is None else Evidence.of_total(self.total)

    def posterior(self, points: Tasks) -> MixturePosterior:
        """The mixture of what the components say at these points."""
        return MixturePosterior([one.posterior(points) for one in self.components], self.log_weights, self.evidence)


def _crps(values: Tensor, means: Tensor, sds: Tensor, weights: Tensor, counts: Sequence[int]) -> Tensor:
    """The score under weighted Gaussians, of which the i-th has a say in so many of the first rows."""
    total, uncertain = torch.zeros_like(values), bool((sds > 0).all())
    for i, n in enumerate(counts):
        mean, sd, weight = means[i, :n], sds[i, :n], weights[i, :n]
        found = _absolute(values[:n] - mean, sd, uncertain) - weight * sd / math.sqrt(math.pi)
        for j in range(i):
            apart, spread = mean - means[j, :n], torch.hypot(sd, sds[j, :n])
            found.addcmul_(weights[j, :n], _absolute(apart, spread, uncertain), value=-1.0)
        total[:n] += weight * found
    return total


def _total(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _absolute(mean: Tensor, sd: Tensor, uncertain: bool) -> Tensor:
    """`E|X|` of Gaussians. uncertain: none has a deviation of 0."""
    z = mean / sd
    density = z.square().add_(LOG_2PI).mul_(-0.5).exp_()
    found = density.mul_(sd).mul_(2.0).addcmul_(mean, z.mul_(math.sqrt(0.5)).erf_())
    return found if uncertain else torch.where(sd > 0, found, mean.abs())
