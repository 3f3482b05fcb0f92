"""Observation noise: a variance at each input."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import OptionError
from metaprior.priors.networks import Network, NetworkOptions


class LearnedNoise(nn.Module):
    """One variance for all points, learned, never below `floor`: `floor + softplus(raw)`."""

    def __init__(self, initial: float = 0.1, floor: float = 1e-4) -> None:
        super().__init__()
        if not 0 < floor < math.inf:
            raise OptionError(f"noise floor {floor}: learned noise needs a floor above 0.")
        if not 0 < initial < math.inf:
            raise OptionError(f"initial noise {initial}: give a variance above 0.")
        self.floor = floor
        above = max(initial - floor, 0.01 * floor)
        # the inverse of softplus, in a form that does not overflow
        self.raw = nn.Parameter(torch.tensor(above + math.log(-math.expm1(-above)), dtype=torch.float64))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        return (self.floor + nn.functional.softplus(self.raw)).expand(x.shape[:-1])


class DeepNoise(nn.Module):
    """A variance at each point: `floor + softplus(network(x) + raw)`, for noise that depends on the input."""

    def __init__(
        self, inputs: int, *, seed: int, initial: float = 0.1, floor: float = 1e-4, **network: Unpack[NetworkOptions]
    ) -> None:
        super().__init__()
        self.level = LearnedNoise(initial, floor)
        self.network = Network(inputs, 1, seed=seed, **network)
        last = self.network.layers[-1]
        nn.init.zeros_(last.weight)  # type: ignore[arg-type]
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        return self.level.floor + nn.functional.softplus(self.network(x)[..., 0] + self.level.raw)


class FixedNoise(nn.Module):
    """One known variance for all points; it may be 0."""

    variance: Tensor

    def __init__(self, variance: float) -> None:
        super().__init__()
        if not 0 <= variance < math.inf:
            raise OptionError(f"noise variance {variance}: give a number of 0 or more.")
        self.register_buffer("variance", torch.tensor(variance, dtype=torch.float64))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        return self.variance.expand(x.shape[:-1])
