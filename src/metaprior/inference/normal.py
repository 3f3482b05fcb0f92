"""The normal distribution's own functions, with all their digits in both tails."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROOT = -math.sqrt(0.5)

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)

MIN_LOG_PROBABILITY = -650.0
"""The logarithm of a probability that `ndtri` still takes with all digits."""

NEWTON_STEPS = 4
"""From an asymptotic normal score, to the last digit."""


def normal_cdf(z: Tensor) -> Tensor:
    """`Φ(z)`. torch's own is `½ (1 + erf)`, which has no digit left at −8 and is 0 beyond."""
    found: Tensor = torch.special.erfc(z * ROOT).mul_(0.5)
    return found


def normal_log_cdf(z: Tensor) -> Tensor:
    """`log Φ(z)`; `log (1 − Φ(z))` is that of −z."""
    found: Tensor = torch.special.log_ndtr(z)
    return found


def normal_score(log_cdf: Tensor, log_sf: Tensor) -> Tensor:
    """`Φ⁻¹(F)` from the logarithms of F and 1 − F, of which the smaller one has the digits."""
    tail = torch.minimum(log_cdf, log_sf)
    score: Tensor = torch.special.ndtri(tail.exp())
    far = (tail < MIN_LOG_PROBABILITY) & (tail > -torch.inf)
    if bool(far.any()):
        score = torch.where(far, _far_score(torch.where(far, tail, MIN_LOG_PROBABILITY)), score)
    return torch.where(log_cdf <= log_sf, score, -score)


def _far_score(log_cdf: Tensor) -> Tensor:
    """z with this `log Φ(z)`, which is nearly a parabola so far out."""
    z = -(-2 * log_cdf - (-4 * math.pi * log_cdf).log()).sqrt()
    for _ in range(NEWTON_STEPS):
        said = normal_log_cdf(z)
        z = z - (said - log_cdf) * (said + 0.5 * z.square() + LOG_ROOT_2PI).exp()
    return z
