"""Recalibration: bounds as wide as held-out tasks show that they must be, for any posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.conditional import Conditional
from metaprior.inference.crps import integrated_crps
from metaprior.inference.evidence import Evidence
from metaprior.inference.mixtures import MANY_PARTS
from metaprior.inference.normal import normal_cdf, normal_log_cdf
from metaprior.inference.posterior import (
    EDGES,
    NARROW,
    Around,
    Nodes,
    Posterior,
    Weighed,
    log_dependence,
    log_tail_difference,
    normal_nodes,
)
from metaprior.inference.quadrature import SHARES, WEIGHTS, PiecewiseLinear, Quadrature, recalibrated_quadrature
from metaprior.tasks import Tasks

LEVELS = (0.5, 0.8, 0.9, 0.97)
"""Central intervals whose reach is taken from held-out tasks."""

STEADY = 30
"""With so many held-out tasks, half of what they show is believed."""

FAR = 8.0
"""Standard deviations beyond which a probability has no digits left."""

FURTHEST = 1e100
"""A score beyond this has a square that may overflow."""

PIT_NODES = 20
"""Probabilities that stand for those of a whole number, or of an end …"""

NO_ATOM = 1e-12
"""… which has more than this."""

TOLD = 3.0
"""Standard deviations as far as what held-out tasks show goes on."""


class Calibration(NamedTuple):
    """How far central intervals must reach, in standard deviations of a normal score, for each of the levels.

    A value's normal score is `z = Φ⁻¹(F(y))` under the method's own distribution F: a standard normal variable if
    that is right. Held-out tasks say how far out z lies in truth. Between the levels the map is linear; it has no side.
    """

    reach: tuple[float, ...]

    @staticmethod
    def identity() -> Calibration:
        """What a method that is calibrated already needs."""
        return Calibration(tuple(_expected().tolist()))

    @staticmethod
    def of(cdf: Float[Tensor, " N *k"], weights: Float[Tensor, " N"], tasks: int) -> Calibration:
        """From the probabilities at which held-out values were, weighted so that tasks count the same.

        Args:
            cdf: of each value; several of a value that has a probability of its own, each as likely (see `pit_nodes`).
            weights: of the values.
            tasks: how many tasks they are of.
        """
        each = cdf.reshape(len(weights), -1)
        score = normal_scores(each.flatten()).abs()
        weights = (weights[:, None] / each.shape[1]).expand_as(each).flatten()
        order = score.argsort()
        total = (weights[order] / weights.sum()).cumsum(0)
        expected, found = _expected(), []
        for level in LEVELS:
            found.append(float(score[order[int((total < level).sum().clamp(max=len(order) - 1))]]))
        trust = tasks / (tasks + STEADY)
        logs = trust * torch.tensor(found, dtype=torch.float64).clamp(min=1e-3).log() + (1 - trust) * expected.log()
        reach = [0.0]
        for value, before in zip(logs.exp().tolist(), [0.0, *expected.tolist()], strict=False):
            reach.append(max(value, reach[-1] + 0.05 * (1 + before)))
        return Calibration(tuple(reach[1:]))

    @staticmethod
    def pit_nodes(below: Float[Tensor, " N"], upto: Float[Tensor, " N"]) -> Float[Tensor, " N *k"]:
        """Probabilities that stand for all between two, evenly; one of them where no value has one of its own.

        Args:
            below: the probability of less than each value.
            upto: the probability of each value or less.
        """
        if bool((upto - below <= NO_ATOM).all()):
            return upto
        shares = (torch.arange(PIT_NODES, dtype=upto.dtype) + 0.5) / PIT_NODES
        return below[:, None] + (upto - below)[:, None] * shares

    def outward(self, z: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """A standard normal score to the method's own."""
        return _linear(z, *self.knots())[0]

    def inward(self, z: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """The method's score to a standard normal one, and the slope of that."""
        right, own = self.knots()
        return _linear(z, own, right)

    def knots(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Standard scores, and where they lie under the method.

        Beyond the last level the map goes on as it was as far as held-out values can tell; then to where a score has no
        digits left, which stays where it is: so every tail ends where it ended.
        """
        right, own = _expected(), torch.tensor(self.reach, dtype=torch.float64)
        slope = (own[-1] - own[-2]) / (right[-1] - right[-2])
        onward = torch.minimum(own[-1] + slope * (TOLD - right[-1]), (own[-1] + FAR) / 2).clamp(
            min=float(own[-1]) + 0.1
        )
        ends = torch.tensor([TOLD, FAR], dtype=torch.float64)
        last = torch.maximum(onward + 0.1, torch.tensor(FAR, dtype=torch.float64))
        return torch.cat([right, ends]), torch.cat([own, onward[None], last[None]])

    @property
    def spread(self) -> float:
        """The standard deviation of a standard normal score that is moved outward."""
        probabilities, weights = normal_nodes()
        return float((weights * self.outward(torch.special.ndtri(probabilities)).square()).sum().sqrt())

    def probability(self, cdf: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """The method's probability of a value below some, put right."""
        found: Tensor = normal_cdf(self.inward(normal_scores(cdf))[0])
        return found

    def gain(self, z: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """`log φ(T(z)) T'(z) / φ(z)`: what putting right adds to a log density, at the method's own score."""
        right, slope = self.inward(z)
        return 0.5 * (z - right) * (z + right) + slope.log()

    def interval_gain(self, lower: Float[Tensor, "*n"], upper: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """What putting right adds to the log probability between two scores of the method; between equal ones, `gain`.

        Args:
            lower: the method's own score at the lower end, −∞ where there is none.
            upper: the same at the upper end.
        """
        found, gap = _log_normal_difference(lower, upper)
        put_right, _ = _log_normal_difference(self.inward(lower)[0], self.inward(upper)[0])
        narrow = (gap > -NARROW) & lower.isfinite() & upper.isfinite()
        middle = torch.where(narrow, (lower + upper) / 2, 0.0)
        return torch.where(narrow, self.gain(middle), put_right - found)


@dataclass(frozen=True, eq=False)
class CalibratedPosterior(Around):
    """A posterior with its normal scores put right: `F'(y) = Φ(T(Φ⁻¹(F(y))))`, value by value.

    What ties points to each other stays: a draw of the posterior is moved, point by point, to where the calibrated
    distribution has it.
    """

    calibration: Calibration

    @property
    def function(self) -> CalibratedPosterior:
        """The same for the function: without observation noise."""
        return CalibratedPosterior(self.posterior.function, self.calibration)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self.posterior.mean if self.posterior.is_gaussian else self._moments[0]

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        if self.posterior.is_gaussian:
            return self.calibration.spread * self.posterior.sd
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        """What recalibration changes is integrated, and added to what is known: so are tails beyond the last edge."""
        mean, sd = self.posterior.mean, self.posterior.sd
        unit, changes = _unit(sd), []
        for parts in self._quadratures():
            change = torch.zeros(2, 1, dtype=torch.float64, device=self.device)
            for values, weights, plain_weights in parts:
                first = (weights - plain_weights) * values
                change = change + torch.stack([first.sum(1), (first * values).sum(1)])
            changes.append(change)
        shift, second = torch.cat(changes, 1).view(2, *self.shape)
        spread = ((sd / unit).square() + second - shift.square()).clamp(min=0.0).sqrt()
        return mean + unit * shift, unit * spread

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution."""
        if self.posterior.is_gaussian:
            yield from super().nodes(rule)
        else:
            for parts in zip(*self._quadratures(), strict=True):
                values, weights, _ = (torch.cat(each).mT.reshape(-1, *self.shape) for each in zip(*parts, strict=True))
                yield self.posterior.mean + _unit(self.posterior.sd) * values, weights

    @cached_property
    def _map(self) -> PiecewiseLinear:
        ends = self.calibration.knots()[1].to(self.device).clamp(max=FAR).unique()
        return PiecewiseLinear(torch.cat([-ends.flip(0), torch.zeros_like(ends[:1]), ends]), self.calibration.inward)

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        return integrated_crps(self.posterior.cdf, self.as_targets(y), self.edges(fine=True), self._map)

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth: those of the posterior."""
        return self.posterior.edges(fine)

    def _quadratures(self) -> Iterator[Iterator[Quadrature]]:
        """Values, in standard deviations from the mean, with their weights, of some distributions at a time.

        The cdf is computed at the edges of the posterior's parts: quantiles of a mixture would each take a search.
        """
        values, at_once = self.edges(), Nodes.of(self).at_once
        cdf = torch.cat([self.posterior.cdf(some) for some in values.split(at_once)])
        gaps = (values - self.posterior.mean) / _unit(self.posterior.sd)  # squares of very small values would vanish
        rows = max(at_once * len(self.points.x) // len(values), 1)
        for some, below in zip(gaps.flatten(1).mT.split(rows), cdf.flatten(1).mT.split(rows), strict=True):
            yield recalibrated_quadrature(some, below, self._map)

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self.calibration.probability(self.posterior.cdf(y))

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return normal_log_cdf(self.calibration.inward(self.posterior.normal_score(y))[0])

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return normal_log_cdf(-self.calibration.inward(self.posterior.normal_score(y))[0])

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        own = self.posterior.log_interval_probability(lower, upper)
        gain = self.calibration.interval_gain(self.posterior.normal_score(lower), self.posterior.normal_score(upper))
        return torch.where(own > -torch.inf, own + gain, own)

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        return self._moved(torch.special.ndtri(u))

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        z = self.posterior.normal_score(self.as_targets(y)).clamp(-FURTHEST, FURTHEST)
        return self.posterior.log_density(y) + self.calibration.gain(z)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, where a draw is moved point by point."""
        values = self.as_targets(y)
        own = self.posterior.inverse_cdf(self.cdf(values))
        return log_dependence(self.posterior, own) + self.points.summed(self.log_density(values).sum(1))

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together, each moved to where the calibrated distribution has it."""
        return self._moved(normal_scores(self.posterior.cdf(self.posterior.samples(count, seed))))

    def _moved(self, z: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The values at these standard normal scores."""
        return self.posterior.inverse_cdf(normal_cdf(self.calibration.outward(z).clamp(-FAR, FAR)))


class CalibratedConditional(Conditional[CalibratedPosterior]):
    """A conditioned method whose posteriors are put right."""

    def __init__(self, conditional: Conditional[Posterior], calibration: Calibration) -> None:
        self.conditional, self.calibration, self.context = conditional, calibration, conditional.context

    @property
    def device(self) -> torch.device:
        return self.conditional.device

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, where the method has one."""
        return self.conditional.evidence

    def posterior(self, points: Tasks) -> CalibratedPosterior:
        """The posterior at these points."""
        return CalibratedPosterior(self.conditional.posterior(points), self.calibration)


def _log_normal_difference(
    lower: Float[Tensor, "*n"], upper: Float[Tensor, "*n"]
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """`log (Φ(upper) − Φ(lower))`, and the gap between the logarithms that it is the difference of."""
    return log_tail_difference(
        normal_log_cdf(lower), normal_log_cdf(-lower), normal_log_cdf(upper), normal_log_cdf(-upper)
    )


def _unit(sd: Float[Tensor, "N p"]) -> Float[Tensor, "N p"]:
    return torch.where(sd > 0, sd, 1.0)


def quadrature_rule() -> dict[str, Any]:
    """The rule by which recalibrated moments are integrated, for those who compute them elsewhere."""
    return {"edges": list(EDGES), "many_parts": MANY_PARTS, "between": [SHARES, WEIGHTS]}


def normal_scores(probabilities: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """`Φ⁻¹`, bounded to where probabilities have digits."""
    scores: Tensor = torch.special.ndtri(probabilities).clamp(-FAR, FAR)
    return scores


def _expected() -> Float[Tensor, " k"]:
    found: Tensor = torch.special.ndtri((1 + torch.tensor(LEVELS, dtype=torch.float64)) / 2)
    return found


def _linear(
    z: Float[Tensor, "*n"], here: Float[Tensor, " k"], there: Float[Tensor, " k"]
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """The odd, rising map that takes 0 to 0 and each point `here` to one `there`; and its slope.

    It is linear in between, and goes on beyond the last point with a slope of 1: no tail becomes heavier there.
    """
    zero = torch.zeros(1, dtype=torch.float64)
    x, y = torch.cat([zero, here]).to(z), torch.cat([zero, there]).to(z)
    slopes = torch.cat([y.diff() / x.diff(), torch.ones(1).to(z)])
    size = z.abs()
    piece = (torch.bucketize(size.contiguous(), x, right=True) - 1).clamp(0, len(slopes) - 1)
    value = y[piece] + slopes[piece] * (size - x[piece])
    return value * z.sign(), slopes[piece]
