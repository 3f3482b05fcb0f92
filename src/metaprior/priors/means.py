"""Mean functions. Any `gpytorch.means.Mean` is one; these add the deep mean and fixed callables.

A mean maps `[*n, d]` to `[*n]` (one output) or `[*n, p]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, UnknownNameError
from metaprior.priors.networks import Network, NetworkOptions

MEANS = ("zero", "constant", "linear", "deep")


class DeepMean(Mean):  # type: ignore[misc]
    """A feed-forward network as mean function (eq:deep_mean), with `outputs` columns."""

    def __init__(self, inputs: int, outputs: int = 1, *, seed: int, **network: Unpack[NetworkOptions]) -> None:
        super().__init__()
        self.network = Network(inputs, outputs, seed=seed, **network)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
        return self.network(x)  # type: ignore[no-any-return]


class FixedMean(Mean):  # type: ignore[misc]
    """A given function of x as mean. A plain function has nothing to learn; a module's parameters may be learned."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Float[Tensor, "*n d"]) -> Tensor:
        return self.function(x)


def make_mean(
    kind: str | Mean | Callable[[Tensor], Tensor], *, d: int, p: int, seed: int, **network: Unpack[NetworkOptions]
) -> Mean:
    """A mean by name (each output has its own), a GPyTorch mean as it is, or a fixed callable."""
    if isinstance(kind, Mean):
        return kind
    if callable(kind):
        return FixedMean(kind)
    if kind == "deep":
        return DeepMean(d, p, seed=seed, **network)
    simple = {"zero": ZeroMean, "constant": ConstantMean, "linear": lambda: _flat_line(d)}
    if kind not in simple:
        raise UnknownNameError("mean", kind, MEANS)
    one = simple[kind]().double()
    return one if p == 1 else MultitaskMean(one, num_tasks=p)


def mean_values(mean: Mean, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
    """The mean at each point with one column per output, whatever form the mean gives it in."""
    values: Tensor = mean(x)
    if values.shape == x.shape[:-1]:
        return values[..., None]
    if values.shape[:-1] == x.shape[:-1]:
        return values
    raise DataError(
        f"the mean maps points of shape {tuple(x.shape)} to {tuple(values.shape)}; "
        "it must give one value, or one row of outputs, per point."
    )


def _flat_line(d: int) -> LinearMean:
    line = LinearMean(d)  # GPyTorch draws its weights from the global generator: start flat instead
    torch.nn.init.zeros_(line.weights)
    torch.nn.init.zeros_(line.bias)
    return line
