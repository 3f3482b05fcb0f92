"""Mean functions. Any `gpytorch.means.Mean` is one; these add deep means, means in a basis, and fixed callables.

A mean maps `[*n, d]` to `[*n]` (one output) or `[*n, p]`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from jaxtyping import Float, Int
from torch import Tensor, nn

from metaprior.errors import DataError, UnknownNameError
from metaprior.priors.bases import Basis
from metaprior.priors.networks import MadeFor, Network, NetworkOptions


class DeepMean(Mean):  # type: ignore[misc]
    """A feed-forward network as mean function (eq:deep_mean), with `outputs` columns."""

    def __init__(self, inputs: int, outputs: int = 1, *, seed: int, **network: Unpack[NetworkOptions]) -> None:
        super().__init__()
        self.network = Network(inputs, outputs, seed=seed, **network)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
        return self.network(x)  # type: ignore[no-any-return]


class BasisMean(Mean):  # type: ignore[misc]
    """`m(x) = b(x)ᵀ θ_m` for a basis b, with one column of θ_m for each output."""

    def __init__(self, basis: Basis, coefficients: Float[Tensor, "q p"]) -> None:
        super().__init__()
        self.basis, self.coefficients = basis, nn.Parameter(coefficients)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
        return self.basis(x) @ self.coefficients  # type: ignore[no-any-return]


class DeepMeans(Mean):  # type: ignore[misc]
    """A deep mean for each of several tasks, all of one architecture, evaluated together: `[b, n, d]` to `[b, n, p]`.

    All start as the same one. `batch_shape` is GPyTorch's name for it.
    """

    def __init__(self, start: DeepMean, tasks: int) -> None:
        super().__init__()
        self.activation = start.network.activation
        layers = [layer for layer in start.network.layers if isinstance(layer, nn.Linear)]
        stacked = (values.detach().expand(tasks, *values.shape) for layer in layers for values in _matrices(layer))
        self.values = nn.ParameterList([nn.Parameter(values.clone()) for values in stacked])

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size(self.values[0].shape[:1])

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n p"]:
        return self.at(x, list(self.values))[-1].to(x.dtype)

    def at(self, x: Float[Tensor, "b n d"], values: Sequence[Tensor]) -> list[Float[Tensor, "b n k"]]:
        """What comes out of each linear layer, with these weights and biases."""
        out: list[Tensor] = []
        for weight, bias in zip(values[::2], values[1::2], strict=True):
            signal = self.activation(out[-1]) if out else x.to(weight)
            out.append(torch.baddbmm(bias, signal, weight))
        return out

    def __getitem__(self, which: Int[Tensor, " k"]) -> DeepMeans:
        some = copy.copy(self)
        some._parameters, some._modules = {}, dict(self._modules)
        some.values = nn.ParameterList([nn.Parameter(values.detach()[which]) for values in self.values])
        return some


def _matrices(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias as a row of inputs is multiplied by them: `[in, out]` and `[1, out]`."""
    return layer.weight.mT, layer.bias[None]


class FixedMean(Mean):  # type: ignore[misc]
    """A given function of x as mean. A plain function has nothing to learn; a module's parameters may be learned."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Float[Tensor, "*n d"]) -> Tensor:
        return self.function(x)


MeanMaker = Callable[[MadeFor], Mean]

MEANS: dict[str, MeanMaker] = {
    "zero": lambda made_for: _for_each(ZeroMean(), made_for.p),
    "constant": lambda made_for: _for_each(ConstantMean(), made_for.p),
    "linear": lambda made_for: _for_each(_flat_line(made_for.d), made_for.p),
    "deep": lambda made_for: DeepMean(made_for.d, made_for.p, seed=made_for.seed, **made_for.network),
}
"""Means by name, each with how it is made. One that is added here can be asked for, saved and loaded by its name."""


def make_mean(
    given: str | Mean | Callable[[Tensor], Tensor], *, d: int, p: int, seed: int, **network: Unpack[NetworkOptions]
) -> Mean:
    """A mean by name (each output has its own), a GPyTorch mean as it is, or a fixed callable."""
    if isinstance(given, Mean):
        return given
    if callable(given):
        return FixedMean(given)
    if given not in MEANS:
        raise UnknownNameError("mean", given, MEANS)
    return MEANS[given](MadeFor(d, p, seed, network))


def _for_each(one: Mean, p: int) -> Mean:
    """A mean of one output for each of several."""
    return one if p == 1 else MultitaskMean(one, num_tasks=p)


def mean_values(mean: Mean, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
    """The mean at each point with one column per output, whatever form the mean gives it in."""
    if type(mean) in (ConstantMean, ZeroMean) and not mean.batch_shape:  # GPyTorch imports sympy to broadcast it
        level = mean.constant if isinstance(mean, ConstantMean) else x.new_zeros(())
        return level.expand(*x.shape[:-1], 1)
    if type(mean) is MultitaskMean:
        return torch.cat([mean_values(one, x) for one in mean.base_means], -1)
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
