"""Feed-forward networks, for means and kernels alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from metaprior.errors import OptionError, UnknownNameError
from metaprior.seeds import generator_of

ACTIVATIONS: dict[str, tuple[type[nn.Module], float]] = {
    "sigmoid": (nn.Sigmoid, 4.0),
    "tanh": (nn.Tanh, 1.0),
    "relu": (nn.ReLU, math.sqrt(2.0)),
}
"""Each activation with the gain of the layer before it that keeps a signal's variance (1 / its slope at 0)."""


class Remembered:
    """What was last made of some points, for those who ask about the very same: a mean and a kernel often share it."""

    def __init__(self) -> None:
        self._last: tuple[Tensor, Tensor] | None = None

    def of(self, x: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """The same as `make(x)`. Where gradients are asked for, nothing is remembered."""
        if torch.is_grad_enabled():
            return make(x)
        last = self._last  # one look: another thread may ask about other points meanwhile
        if last is None or last[0] is not x:
            self._last = last = (x, make(x))
        return last[1]

    def __deepcopy__(self, memo: object) -> Remembered:
        return Remembered()

    def __getstate__(self) -> dict[str, None]:
        return {"_last": None}


class NetworkOptions(TypedDict, total=False):
    """What a mean or a kernel hands on to its network."""

    hidden: Sequence[int]
    activation: str
    gain: float | None
    dtype: torch.dtype
    like: Float[Tensor, "k d"] | None
    device: str


class MadeFor(NamedTuple):
    """What a mean or a kernel by name is made for: numbers of inputs and outputs, its sizes, its seed, its networks."""

    d: int
    p: int
    seed: int
    network: NetworkOptions
    features: int = 2
    functions: int = 16


class Standardised(NamedTuple):
    """A parameter of a network, its value as it would be for inputs of mean 0 and deviation 1, and the standard
    deviation of the law that this value starts from, of mean 0."""

    parameter: nn.Parameter
    value: Tensor
    spread: float


class Network(nn.Module):
    """`W₃ σ(W₂ σ(W₁ x + b₁) + b₂) + b₃`, with any number of hidden layers (eq:deep_mean).

    Its parameters may be float32 under a float64 covariance: inputs are cast to them and outputs back. Weights and
    biases start uniform with variance `gain² / fan_in`, for inputs of mean 0 and deviation 1; `like` (points such as
    the network will see) moves the first layer to where other inputs lie. gain: of the hidden layers; by default the
    one that keeps a signal's variance, a smaller one starts with a smoother function. device: "meta" for shapes alone.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        seed: int,
        hidden: Sequence[int] = (128, 64),
        activation: str = "sigmoid",
        gain: float | None = None,
        dtype: torch.dtype = torch.float64,
        like: Float[Tensor, "k d"] | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UnknownNameError("activation", activation, ACTIVATIONS)
        if min(inputs, outputs, *hidden) < 1:
            raise OptionError(f"layers of {inputs}, {list(hidden)} and {outputs} units: each needs one or more.")
        if gain is not None and not 0 < gain < math.inf:
            raise OptionError(f"gain={gain}: the initial weights need a finite gain above 0.")
        make, preserving = ACTIVATIONS[activation]
        widths = [inputs, *hidden, outputs]
        generator = generator_of(seed)
        self.activation, self.outputs = make(), outputs
        layers: list[nn.Module] = []
        self._spreads: list[float] = []  # of weights and biases in turn
        for k, (fan_in, fan_out) in enumerate(pairwise(widths)):
            last = k == len(widths) - 2
            linear = _linear(fan_in, fan_out, dtype, device)
            bound = _initialise(linear, 1.0 if last else gain or preserving, generator)
            self._spreads += [bound / math.sqrt(3.0)] * 2
            layers += [linear] if last else [linear, self.activation]
        self.layers = nn.Sequential(*layers)
        self._shift, self._scale = _standard(inputs) if like is None else _move_to(self._first, like)

    @property
    def _first(self) -> nn.Linear:
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        return first

    @property
    def linear(self) -> list[nn.Linear]:
        """Its layers, without the activations between them."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    @property
    def dtype(self) -> torch.dtype:
        """Its own precision."""
        return self._first.weight.dtype

    def standardised(self) -> list[Standardised]:
        """Every parameter as for standardised inputs, wherever the first layer was moved to; gradients go through."""
        parameters = list(self.layers.parameters())
        values: list[Tensor] = [parameter.double() for parameter in parameters]
        weight, bias = values[:2]
        values[:2] = [weight * self._scale.to(weight), bias + weight @ self._shift.to(weight)]
        return [Standardised(*each) for each in zip(parameters, values, self._spreads, strict=True)]

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n k"]:
        out: Tensor = x.to(self.dtype)
        for layer in self.layers:
            on_gpu = isinstance(layer, nn.Linear) and out.is_cuda and out.ndim == 2
            out = _Affine.apply(out, layer.weight, layer.bias) if on_gpu else layer(out)  # type: ignore[no-untyped-call]
        return out.to(x.dtype)


class _Affine(torch.autograd.Function):
    """`x Wᵀ + b` of many points: torch sums the slopes along b over them ten times as slowly as a product does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        ones = slopes.new_ones(1, len(slopes))
        return slopes @ weight if ctx.needs_input_grad[0] else None, slopes.mT @ x, (ones @ slopes)[0]


def _linear(inputs: int, outputs: int, dtype: torch.dtype, device: str) -> nn.Linear:
    """A layer whose numbers are yet to be drawn. (`skip_init` imports a second's worth of torch for the same.)"""
    linear = nn.Linear(inputs, outputs, dtype=dtype, device="meta")
    if device != "meta":
        linear.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype, device=device))
        linear.bias = nn.Parameter(torch.empty(outputs, dtype=dtype, device=device))
    return linear


@torch.no_grad()
def _initialise(linear: nn.Linear, gain: float, generator: torch.Generator) -> float:
    bound = gain * math.sqrt(3.0 / linear.in_features)  # a uniform law of variance gain² / fan_in
    for values in (linear.weight, linear.bias) if not linear.weight.is_meta else ():
        draw = torch.rand(values.shape, generator=generator, dtype=torch.float64)
        values.copy_(bound * (2 * draw - 1))
    return bound


@torch.no_grad()
def _move_to(first: nn.Linear, like: Float[Tensor, "k d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Make it say of these points what it would of standardised ones; returns their shift and scale."""
    shift, spread = like.double().mean(0), like.double().std(0, correction=0)
    scale = torch.where(spread > 0, spread, 1.0)
    first.weight.div_(scale.to(first.weight))
    first.bias.sub_(first.weight @ shift.to(first.weight))
    return shift, scale


def _standard(inputs: int) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Shift and scale of inputs that are standardised already."""
    return torch.zeros(inputs, dtype=torch.float64), torch.ones(inputs, dtype=torch.float64)
