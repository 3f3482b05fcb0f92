"""`Stack`: several priors of one structure as one, so that what is small and alike is computed together.

GPyTorch's modules take a millisecond of Python for microseconds of arithmetic. A stack knows the named means and
kernels by their formulas: every parameter has a leading axis over the priors, and one call serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.means import ConstantMean, Mean, MultitaskMean, ZeroMean
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from metaprior.priors.hyperprior import HyperPrior
from metaprior.priors.kernels import DeepKernel, EigenfunctionKernel, Shape, stationary
from metaprior.priors.means import DeepMean
from metaprior.priors.networks import Network
from metaprior.priors.noise import FixedNoise, LearnedNoise
from metaprior.priors.prior import Prior
from metaprior.priors.tails import LEAST

Parameters = dict[str, Tensor]
"""By name, each `[B, ...]`."""


STANDARD = 1e-9
"""Inputs of a mean and deviation that differ from 0 and 1 by no more are standardised."""


class StackedAt(NamedTuple):
    """What each prior says of points of its own."""

    mean: Float[Tensor, "B u p"]
    functions: Float[Tensor, "B u k"] | None  # whose inner product is part of the kernel
    places: Float[Tensor, "B u q"]  # whose distances are, in lengthscales
    scale: Float[Tensor, " B"]  # of that part
    noise: Float[Tensor, " B"]
    degrees: Float[Tensor, " B"] | None


@dataclass(frozen=True)
class _Scaled:
    """`s k(|z − z'| / l)` with the names of s and l."""

    shape: Shape
    scale: str
    length: str


def _scaled(kernel: Kernel, name: str) -> _Scaled | None:
    shape = stationary(kernel)
    if shape is None:
        return None
    return _Scaled(shape, f"{name}.raw_outputscale", f"{name}.base_kernel.raw_lengthscale")


class Stack:
    """Priors of one structure: `start [B, P]` are their parameters, one row each. Made by `stacked`."""

    def __init__(self, priors: Sequence[Prior], scaled: _Scaled) -> None:
        self.priors, self.scaled, self.first = list(priors), scaled, priors[0]
        named = dict(self.first.named_parameters())
        self.names, self.shapes = list(named), [tuple(value.shape) for value in named.values()]
        self.sizes = [value.numel() for value in named.values()]
        self.learned = [value.requires_grad for value in named.values()]
        self.groups: dict[str, int] = {}  # networks whole, other parameters one by one, with their sizes
        for name, size in zip(self.names, self.sizes, strict=True):
            group = name.partition(".layers.")[0]
            self.groups[group] = self.groups.get(group, 0) + size
        learned = dict(zip((name.partition(".layers.")[0] for name in self.names), self.learned, strict=True))
        self.moving = [learned[group] for group in self.groups]
        rows = [torch.cat([value.detach().double().flatten() for value in one.parameters()]) for one in priors]
        self.start: Float[Tensor, "B P"] = torch.stack(rows)

    def select(self, which: Sequence[int]) -> Stack:
        """Some of them."""
        return Stack([self.priors[k] for k in which], self.scaled)

    @property
    def shape(self) -> Shape:
        """Of the stationary part of the kernel."""
        return self.scaled.shape

    @property
    def moves(self) -> Bool[Tensor, " P"]:
        """Which parameters are learned."""
        return torch.cat([torch.full((n,), own) for n, own in zip(self.sizes, self.learned, strict=True)])

    def parts(self, values: Float[Tensor, "B P"]) -> Parameters:
        """The parameters by name; no gradient goes to those that are not learned."""
        pieces = zip(self.names, self.shapes, self.learned, values.split(self.sizes, 1), strict=True)
        return {
            name: (piece if own else piece.detach()).reshape(len(values), *shape) for name, shape, own, piece in pieces
        }

    def at(self, values: Float[Tensor, "B P"], x: Float[Tensor, "B u d"]) -> StackedAt:
        """What each prior, with these parameters, says of points of its own."""
        pieces = zip(self.groups, self.moving, values.split(list(self.groups.values()), 1), strict=True)
        own = {name: piece if moves else piece.detach() for name, moves, piece in pieces}
        kernel, first = self.first.kernel, self.first
        mean = _mean_at(first.mean, own, x)
        functions, places = None, x
        if isinstance(kernel, DeepKernel):
            places = _network_at(kernel.network, own["kernel.network"], x)
        elif isinstance(kernel, EigenfunctionKernel):
            assert kernel.rest is not None
            functions = _network_at(kernel.network, own["kernel.network"], x) / math.sqrt(kernel.network.outputs)
            places = _network_at(kernel.rest.network, own["kernel.rest.network"], x)
        positive = [self.scaled.scale, self.scaled.length]
        positive += ["noise.raw"] * isinstance(first.noise, LearnedNoise) + ["degrees.raw"] * (
            first.degrees is not None
        )
        found = dict(zip(positive, softplus(torch.cat([own[name] for name in positive], 1)).unbind(1), strict=True))
        if isinstance(first.noise, LearnedNoise):
            variance = first.noise.floor + found["noise.raw"]
        else:
            variance = torch.stack([prior.noise.variance for prior in self.priors])  # type: ignore[misc]
        degrees = None if first.degrees is None else LEAST + found["degrees.raw"]
        scale, length = found[self.scaled.scale], found[self.scaled.length]
        return StackedAt(mean, functions, places / length[:, None, None], scale, variance, degrees)

    def law(self, laws: Sequence[HyperPrior]) -> Callable[[Float[Tensor, "B P"]], Float[Tensor, " B"]]:
        """`log p(ψ)` of each under a law of its own, up to a constant, as a function of all parameters."""
        centres = torch.stack([torch.cat([centre.flatten() for centre in law.centres]) for law in laws])
        spread = torch.cat([torch.full((one.value.numel(),), one.spread).double() for one in laws[0].standardised()])
        width = torch.tensor([law.width for law in laws], dtype=torch.float64)[:, None] * spread
        moved = []  # the first layer of each network, which stands where its inputs lie
        for name, module in self.first.named_modules():
            if isinstance(module, Network) and module.layers[0].weight.requires_grad:
                own = [prior.get_submodule(name) for prior in self.priors]
                scale, shift = (torch.stack([getattr(net, key) for net in own]) for key in ("_scale", "_shift"))
                if float(shift.abs().max()) > STANDARD or float((scale - 1).abs().max()) > STANDARD:
                    moved.append((f"{name}.layers.0.weight", f"{name}.layers.0.bias", scale[:, None], shift[..., None]))
        if not moved:
            inverse = torch.zeros_like(self.start)  # what is not learned has no law
            inverse[:, self.moves] = 1 / width
            around = torch.zeros_like(self.start)
            around[:, self.moves] = centres
            return lambda values: -0.5 * ((values - around) * inverse).square().sum(1)

        def log_density(values: Tensor) -> Tensor:
            parts = self.parts(values)
            for weight, bias, scale, shift in moved:
                parts[bias] = parts[bias] + (parts[weight] @ shift)[..., 0]
                parts[weight] = parts[weight] * scale
            learned = [part for part, own in zip(parts.values(), self.learned, strict=True) if own]
            flat = torch.cat([part.reshape(len(values), -1) for part in learned], 1)
            return -0.5 * ((flat - centres) / width).square().sum(1)

        return log_density

    @torch.no_grad()
    def write(self, values: Float[Tensor, "B P"]) -> None:
        """Give these parameters to the priors."""
        for prior, row in zip(self.priors, values, strict=True):
            for parameter, piece in zip(prior.parameters(), row.split(self.sizes), strict=True):
                parameter.copy_(piece.reshape(parameter.shape))


def stacked(priors: Sequence[Prior]) -> Stack | None:
    """The priors as one; None where they are not of one structure, or of one that has no formula here."""
    scaled = _stationary_part(priors[0].kernel)
    if scaled is None or not _known(priors[0]) or len({_structure(prior) for prior in priors}) > 1:
        return None
    return Stack(priors, scaled)


def _stationary_part(kernel: Kernel) -> _Scaled | None:
    if type(kernel) is DeepKernel:
        return _scaled(kernel.base_kernel, "kernel.base_kernel")
    if type(kernel) is EigenfunctionKernel and kernel.rest is not None:
        return _scaled(kernel.rest.base_kernel, "kernel.base_kernel.other")
    return _scaled(kernel, "kernel")


def _known(prior: Prior) -> bool:
    mean, noise = prior.mean, prior.noise
    plain = type(mean) in (ConstantMean, ZeroMean, DeepMean)
    several = isinstance(mean, MultitaskMean) and all(type(one) in (ConstantMean, ZeroMean) for one in mean.base_means)
    free = all(getattr(one, "mean_constraint", None) is None for one in mean.modules())
    on_cpu = prior.like.device.type == "cpu" and prior.like.dtype == torch.float64
    return (plain or several) and free and type(noise) in (LearnedNoise, FixedNoise) and on_cpu


def _structure(prior: Prior) -> tuple[object, ...]:
    shapes = tuple((name, tuple(value.shape), value.requires_grad) for name, value in prior.named_parameters())
    modules = tuple(type(module) for module in prior.modules())
    forms = tuple(float(module.nu) for module in prior.modules() if isinstance(module, MaternKernel))
    floor = prior.noise.floor if isinstance(prior.noise, LearnedNoise) else None
    return shapes, modules, forms, floor


def _mean_at(mean: Mean, own: Parameters, x: Float[Tensor, "B u d"]) -> Float[Tensor, "B u p"]:
    if isinstance(mean, DeepMean):
        return _network_at(mean.network, own["mean.network"], x)
    parts = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean]
    levels = []
    for k, part in enumerate(parts):
        name = f"mean.base_means.{k}" if isinstance(mean, MultitaskMean) else "mean"
        constant = isinstance(part, ConstantMean)
        levels.append(own[f"{name}.raw_constant"] if constant else x.new_zeros(len(x), 1))
    return torch.cat(levels, 1)[:, None].expand(-1, x.shape[1], -1)


def _network_at(network: Network, flat: Float[Tensor, "B P"], x: Float[Tensor, "B u d"]) -> Float[Tensor, "B u k"]:
    found: Tensor = _Layers.apply(flat, x, network)  # type: ignore[no-untyped-call]
    return found


BACK: dict[type[nn.Module], Callable[[Tensor, Tensor], Tensor]] = {
    nn.Sigmoid: torch.ops.aten.sigmoid_backward,
    nn.Tanh: torch.ops.aten.tanh_backward,
    nn.ReLU: lambda gradient, signal: torch.ops.aten.threshold_backward(gradient, signal, 0.0),
}
"""Each activation with the way of a gradient back through it, by what came out of it."""


class _Layers(torch.autograd.Function):
    """Networks of one architecture at points of their own. flat: weights and biases of every layer, one row each.

    The gradient is written out: a third of the calls that tracing every layer takes.
    """

    @staticmethod
    def forward(ctx: Any, flat: Float[Tensor, "B P"], x: Float[Tensor, "B u d"], network: Network) -> Any:
        signals, weights, start = [x.to(network.dtype)], [], 0
        own, shapes = flat.to(network.dtype), [one.weight.shape for one in network.linear]
        for k, (outputs, inputs) in enumerate(shapes):
            middle, end = start + outputs * inputs, start + outputs * (inputs + 1)
            weights.append(own[:, start:middle].view(-1, outputs, inputs))
            out = torch.baddbmm(own[:, None, middle:end], signals[-1], weights[-1].mT)
            signals.append(out if k == len(shapes) - 1 else network.activation(out))
            start = end
        ctx.network, ctx.signals, ctx.weights = network, signals, weights
        return signals[-1].to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        network, signals, weights = ctx.network, ctx.signals, ctx.weights
        through, back, found = gradient.to(network.dtype), BACK[type(network.activation)], []
        for k in reversed(range(len(weights))):
            found += [through.sum(1), (through.mT @ signals[k]).flatten(1)]
            if k:
                through = back(through @ weights[k], signals[k])
        return torch.cat(found[::-1], 1).to(gradient.dtype), None, None
