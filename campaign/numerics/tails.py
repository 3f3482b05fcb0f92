"""Distributions at single points: cdf, quantiles, densities and scores, in the middle and far out in the tails."""

from __future__ import annotations

import numpy as np
import torch
from mpmath import mp, mpf

from campaign.numerics.drawn import Size, draw
from campaign.numerics.exact import DIGITS, Number
from campaign.numerics.judged import Outcome
from campaign.numerics.wanted import LEAST, ROUNDING, Values
from metaprior import NumericalError, condition
from metaprior.inference import Posterior, StudentPosterior

SCORES = (-37.0, -12.0, -8.3, -5.0, -1.0, -1e-9, 0.0, 0.3, 2.0, 6.0)
"""How many deviations away values are asked about …"""

PROBABILITIES = (1e-300, 1e-150, 1e-60, 1e-15, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-9, 1 - 2.0**-53)
"""… and which quantiles."""

MANY = 1e3
"""Degrees of freedom up to which the exact distribution is summed in reasonable time."""


def judge_tails(seed: int, outcome: Outcome) -> None:
    """Of one point of a random posterior, by its own mean and deviation."""
    group = draw(seed, Size(4, 1, 1))
    try:
        posterior = condition(group.prior, group.context).at(group.points)
    except NumericalError:
        return
    degrees = None
    if isinstance(posterior, StudentPosterior):
        degrees = float(posterior.degrees[0])
    mean, sd = float(posterior.mean[0, 0]), float(posterior.sd[0, 0])
    if not sd > 1e-250 or (degrees is not None and degrees > MANY):
        return
    outcome.counts["distributions"] += 1
    with mp.workdps(DIGITS):
        one = Distribution(mean, sd, degrees)
        for score in SCORES:
            _judge_value(posterior, one, mean + score * sd, f"{group.told}, {score} deviations away", outcome)
        _judge_quantiles(posterior, one, group.told, outcome)


class Distribution:
    """A normal or a Student-t distribution with this mean and standard deviation."""

    def __init__(self, mean: float, sd: float, degrees: float | None) -> None:
        self.mean, self.nu = mpf(mean), None if degrees is None else mpf(degrees)
        self.scale = mpf(sd) if self.nu is None else mpf(sd) * mp.sqrt((self.nu - 2) / self.nu)

    def score(self, y: float | Number) -> Number:
        return (mpf(y) - self.mean) / self.scale

    def cdf(self, t: Number) -> Number:
        if self.nu is None:
            return mp.ncdf(t)
        tail = mp.betainc(self.nu / 2, mpf(1) / 2, 0, self.nu / (self.nu + t * t), regularized=True) / 2
        return tail if t < 0 else 1 - tail

    def log_density(self, t: Number) -> tuple[Number, Number]:
        """With what its error is relative to."""
        if self.nu is None:
            fit, constant = -t * t / 2, -mp.log(2 * mp.pi) / 2
        else:
            fit = -(self.nu + 1) / 2 * mp.log1p(t * t / self.nu)
            constant = mp.loggamma((self.nu + 1) / 2) - mp.loggamma(self.nu / 2) - mp.log(self.nu * mp.pi) / 2
        width = mp.log(self.scale)
        return fit + constant - width, -fit + abs(constant) + abs(width)


def _judge_value(posterior: Posterior, one: Distribution, y: float, told: str, outcome: Outcome) -> None:
    asked = torch.full(posterior.shape, y, dtype=torch.float64)
    t = one.score(y)
    # how far a probability moves when its argument is rounded
    condition = float(1 + t * t) if one.nu is None else float(1 + min(t * t, one.nu))
    probability, density = one.cdf(t), one.log_density(t)
    said = {
        "cdf": (posterior.cdf(asked), (probability, probability), condition),
        "log density": (posterior.log_density(asked), density, 1.0),
    }
    if one.nu is None:
        score = t * (2 * mp.ncdf(t) - 1) + 2 * mp.npdf(t) - 1 / mp.sqrt(mp.pi)
        said["crps"] = (posterior.crps(asked), (one.scale * score, one.scale * (abs(t) + 1)), 1.0)
    for name, (found, (value, scale), kappa) in said.items():
        values = Values(np.array([value], dtype=object), np.array([scale], dtype=object), kappa)
        outcome.compare(f"{name} | {_family(one)}", np.array([float(found[0, 0])]), values, told)


def _judge_quantiles(posterior: Posterior, one: Distribution, told: str, outcome: Outcome) -> None:
    """What is told lies so near that the probability lies between those of its neighbours."""
    for u, found in zip(PROBABILITIES, posterior.quantiles(PROBABILITIES)[:, 0, 0].tolist(), strict=True):
        if not np.isfinite(found):
            outcome.demand(f"quantile | {_family(one)}", False, f"{u}: {found}, {told}")
            continue
        t = one.score(found)
        # towards 1 it is the probability itself that has few digits
        slack = LEAST * (abs(one.mean) + abs(t) * one.scale) / one.scale + mpf(100 * ROUNDING)
        holds = one.cdf(t - slack) <= u * (1 + mpf(LEAST)) and one.cdf(t + slack) >= u * (1 - mpf(LEAST))
        outcome.demand(f"quantile | {_family(one)}", bool(holds), f"{u}: {found}, {told}")


def _family(one: Distribution) -> str:
    return "normal" if one.nu is None else "Student-t"
