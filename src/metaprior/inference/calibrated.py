"""Recalibration: bounds as wide as held-out tasks show that they must be, for any posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference.marginals import Marginals, checked_probabilities
from metaprior.inference.method import Predictive
from metaprior.tasks import Tasks

LEVELS = (0.5, 0.8, 0.9, 0.97)
"""Central intervals whose reach is taken from held-out tasks."""

STEADY = 30
"""With so many held-out tasks, half of what they show is believed."""

FAR = 8.0
"""Standard deviations beyond which a probability has no digits left."""


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
    def of(cdf: Float[Tensor, " N"], weights: Float[Tensor, " N"], tasks: int) -> Calibration:
        """From the probabilities at which held-out values were, weighted so that tasks count the same."""
        score = normal_scores(cdf).abs()
        order = score.argsort()
        total = (weights[order] / weights.sum()).cumsum(0)
        expected, found = _expected(), []
        for level in LEVELS:
            found.append(float(score[order[int((total < level).sum().clamp(max=len(order) - 1))]]))
        trust = tasks / (tasks + STEADY)
        logs = trust * torch.tensor(found).double().clamp(min=1e-3).log() + (1 - trust) * expected.log()
        reach = [0.0]
        for value, before in zip(logs.exp().tolist(), [0.0, *expected.tolist()], strict=False):
            reach.append(max(value, reach[-1] + 0.05 * (1 + before)))
        return Calibration(tuple(reach[1:]))

    def outward(self, z: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """A standard normal score to the method's own."""
        return _linear(z, _expected(), torch.tensor(self.reach, dtype=torch.float64))[0]

    def inward(self, z: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """The method's score to a standard normal one, and the slope of that."""
        return _linear(z, torch.tensor(self.reach, dtype=torch.float64), _expected())


@dataclass(frozen=True, eq=False)
class CalibratedPosterior(Marginals):
    """A posterior with its normal scores put right. The mean stays, and so does what ties points to each other."""

    posterior: Predictive
    calibration: Calibration

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.posterior.points

    @property
    def function(self) -> CalibratedPosterior:
        """The same for the function: without observation noise."""
        return CalibratedPosterior(self.posterior.function, self.calibration)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self.posterior.mean

    @cached_property
    def sd(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        """Standard deviation at each point: the posterior's, by the factor of a normal variable."""
        z = torch.linspace(-5, 5, 2001, dtype=torch.float64)
        density = torch.exp(-0.5 * z.square())
        factor = ((self.calibration.outward(z).square() * density).sum() / density.sum()).sqrt()
        return factor * self.posterior.sd

    @property
    def evidence(self) -> Any:
        """The evidence of each task's context, where the method has one."""
        return getattr(self.posterior, "evidence", None)

    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        found: Tensor = torch.special.ndtr(self.calibration.inward(normal_scores(self.posterior.cdf(y)))[0])
        return found

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        z = self.calibration.outward(torch.special.ndtri(checked_probabilities(probabilities)))
        return self.posterior.quantiles(torch.special.ndtr(z.clamp(-FAR, FAR)).tolist())

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        return self.posterior.log_density(y) + self._gain(y)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: the posterior's own, for only single values are put right."""
        return self.posterior.joint_log_density(y)

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together, each moved to where the calibrated distribution has it."""
        drawn = self.posterior.samples(count, seed)
        z = normal_scores(self.posterior.cdf(drawn))
        moved = self.calibration.outward(z)
        spread = torch.where(z.abs() > 1e-6, moved / torch.where(z.abs() > 1e-6, z, 1.0), 1.0)
        return self.mean + (drawn - self.mean) * spread

    def _gain(self, y: Any) -> Float[Tensor, "N p"]:
        """`log φ(T(z)) T'(z) / φ(z)`: what putting right adds to a log density."""
        z = normal_scores(self.posterior.cdf(self.as_targets(y)))
        right, slope = self.calibration.inward(z)
        return 0.5 * (z.square() - right.square()) + slope.log()


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
    """The odd, rising map that takes 0 to 0 and each point `here` to one `there`, linear in between; and its slope."""
    zero = torch.zeros(1, dtype=torch.float64)
    x, y = torch.cat([zero, here]), torch.cat([zero, there])
    slopes = y.diff() / x.diff()
    size = z.abs()
    piece = (torch.bucketize(size.contiguous(), x, right=True) - 1).clamp(0, len(slopes) - 1)
    value = y[piece] + slopes[piece] * (size - x[piece])
    return value * z.sign(), slopes[piece]
