"""Tails: the degrees of freedom of a Student-t process, in which every task has an amplitude of its own."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import OptionError

LEAST = 2.1
"""Degrees of freedom: at 2 and below there is no variance."""


class Degrees(nn.Module):
    """ν above 2, learned or fixed: `2.1 + softplus(raw)`. With many degrees of freedom the process is Gaussian."""

    def __init__(self, initial: float = 5.0) -> None:
        super().__init__()
        if not LEAST < initial < math.inf:
            raise OptionError(f"{initial} degrees of freedom: give a number above {LEAST}.")
        above = initial - LEAST
        self.raw = nn.Parameter(torch.tensor(above + math.log(-math.expm1(-above)), dtype=torch.float64))

    def forward(self) -> Float[Tensor, ""]:
        return LEAST + nn.functional.softplus(self.raw)
