"""The normal distribution's own function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROOT = -math.sqrt(0.5)


def normal_cdf(z: Tensor) -> Tensor:
    """`Φ(z)`. torch's own is `½ (1 + erf)`, which has no digit left at −8 and is 0 beyond."""
    found: Tensor = torch.special.erfc(z * ROOT).mul_(0.5)
    return found
