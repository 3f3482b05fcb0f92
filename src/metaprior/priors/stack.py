"""`Stack`: several priors of one structure as one, so that what is small and alike is computed together.

GPyTorch's modules take a millisecond of Python for microseconds of arithmetic. A stack knows the named means and
kernels by their formulas: every parameter has a leading axis over the priors, and one call serves them all. For the
same reason slopes are written out rather than traced, and what is small is left to NumPy, whose calls are quicker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.means import ConstantMean, MultitaskMean, ZeroMean
from jaxtyping import Bool, Float
from torch import nn

from metaprior.arrays import Array, product
from metaprior.priors.hyperprior import HyperPrior
from metaprior.priors.kernels import DeepKernel, EigenfunctionKernel, Shape, stationary
from metaprior.priors.means import DeepMean
from metaprior.priors.networks import Network
from metaprior.priors.noise import FixedNoise, LearnedNoise
from metaprior.priors.prior import Prior
from metaprior.priors.tails import LEAST


class StackedAt(NamedTuple):
    """What each prior says of points of its own; or how something rises along each of these."""

    mean: Float[Array, "B u p"]
    functions: Float[Array, "B u k"] | None  # whose inner product is part of the kernel
    places: Float[Array, "B u q"]  # whose distances are …
    times: Float[Array, " B"]  # … whose squares are multiplied by this, to be in lengthscales
    scale: Float[Array, " B"]  # of that part
    noise: Float[Array, " B"]
    degrees: Float[Array, " B"] | None

    def zeros(self) -> StackedAt:
        """Slopes to add to."""
        return StackedAt(*(None if part is None else np.zeros(part.shape) for part in self))  # type: ignore[arg-type]


Back = Callable[[Float[Array, "B u k"]], Float[Array, "B P"]]
"""From the slopes along what a network says to those along its parameters."""


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
    """Priors of one structure: `start [B, P]` are their parameters, one row each. Made by `stacked`.

    where: the columns of networks as wholes, and of other parameters one by one. moves: which columns are learned.
    """

    def __init__(self, priors: Sequence[Prior], scaled: _Scaled) -> None:
        self.priors, self.scaled, self.first = list(priors), scaled, priors[0]
        self.where: dict[str, slice] = {}
        learned, end = [], 0
        for name, value in self.first.named_parameters():
            group, start, end = name.partition(".layers.")[0], end, end + value.numel()
            self.where[group] = slice(self.where[group].start if group in self.where else start, end)
            learned.append(np.full(value.numel(), value.requires_grad))
        self.moves: Bool[Array, " P"] = np.concatenate(learned) if learned else np.zeros(0, bool)
        rows = [torch.cat([value.detach().double().flatten() for value in one.parameters()]) for one in priors]
        self.start: Float[Array, "B P"] = torch.stack(rows).numpy()
        names = [scaled.scale, scaled.length, "noise.raw", "degrees.raw"]
        self._positive = [self.where[name].start for name in names if name in self.where]
        known = [prior.noise.variance for prior in priors if isinstance(prior.noise, FixedNoise)]
        self._known_noise = np.array([float(variance) for variance in known])
        self._levels = [where.start for name, where in self.where.items() if name.endswith(".raw_constant")]

    def select(self, which: Sequence[int]) -> Stack:
        """Some of them."""
        return Stack([self.priors[k] for k in which], self.scaled)

    @property
    def mean_alone(self) -> bool:
        """Whether nothing but the mean is learned."""
        return not any(self.moves[where].any() for name, where in self.where.items() if not name.startswith("mean"))

    @property
    def shape(self) -> Shape:
        """Of the stationary part of the kernel."""
        return self.scaled.shape

    def at(
        self, values: Float[Array, "B P"], x: Float[Array, "B u d"]
    ) -> tuple[StackedAt, Callable[[StackedAt], Float[Array, "B P"]]]:
        """What each prior, with these parameters, says of points of its own.

        And the way back: from how something rises along that to how it rises along the parameters that are learned.
        """
        kernel, noise, ways = self.first.kernel, self.first.noise, dict[str, Back]()

        def network(name: str) -> Float[Array, "B u k"]:
            found, ways[name] = _network_at(self.first.get_submodule(name), values[:, self.where[name]], x)  # type: ignore[arg-type]
            return found

        mean = network("mean.network") if isinstance(self.first.mean, DeepMean) else self._levels_at(values, x)
        functions, share, features, inner = None, 1.0, x, ""
        if isinstance(kernel, DeepKernel):
            features = network(inner := "kernel.network")
        elif isinstance(kernel, EigenfunctionKernel):
            share = 1 / math.sqrt(kernel.network.outputs)
            functions, features = share * network("kernel.network"), network(inner := "kernel.rest.network")
        positive = softplus(values[:, self._positive])
        (scale, length), others = positive.T[:2], list(positive.T[2:])
        variance = noise.floor + others.pop(0) if isinstance(noise, LearnedNoise) else self._known_noise
        degrees = LEAST + others[0] if others else None
        unit = np.ldexp(0.5, np.frexp(length)[1])  # as `kernels.power_of_two`: what it divides is not rounded
        places, times = features / unit[:, None, None], np.square(unit / length)

        def back(slopes: StackedAt) -> Float[Array, "B P"]:
            found = np.zeros_like(values)
            along = {"mean.network": slopes.mean}
            if slopes.functions is not None:
                along["kernel.network"] = share * slopes.functions
            if inner:
                along[inner] = slopes.places / unit[:, None, None]
            for name, way in ways.items():
                if self.moves[self.where[name].start]:
                    found[:, self.where[name]] = way(along[name])
            if self._levels:
                found[:, self._levels] = slopes.mean.sum(1)[:, : len(self._levels)]
            shorter = -2 * slopes.times * times / length
            rest = [slopes.scale, shorter, *([slopes.noise] if isinstance(noise, LearnedNoise) else [])]
            rest += [] if slopes.degrees is None else [slopes.degrees]
            found[:, self._positive] = softplus_slope(positive) * np.stack(rest, 1)
            found *= self.moves
            return found

        return StackedAt(mean, functions, places, times, scale, variance, degrees), back

    def _levels_at(self, values: Float[Array, "B P"], x: Float[Array, "B u d"]) -> Float[Array, "B u p"]:
        """Means that are the same everywhere: one level for each target, or 0."""
        mean = self.first.mean
        count = len(mean.base_means) if isinstance(mean, MultitaskMean) else 1
        levels = values[:, self._levels] if self._levels else np.zeros((len(values), count))
        return np.broadcast_to(levels[:, None], (*x.shape[:2], count))

    def law(
        self, laws: Sequence[HyperPrior]
    ) -> Callable[[Float[Array, "B P"]], tuple[Float[Array, " B"], Float[Array, "B P"]]]:
        """`log p(ψ)` of each under a law of its own, up to a constant, and its slopes, as a function of all parameters.

        The first layer of each network is compared as it would be for standardised inputs.
        """
        inverse, centres = np.zeros_like(self.start), np.zeros_like(self.start)  # what is not learned has no law
        spread = np.concatenate([np.full(one.value.numel(), one.spread) for one in laws[0].standardised()])
        inverse[:, self.moves] = 1 / (np.array([[law.width] for law in laws]) * spread)
        centres[:, self.moves] = [torch.cat([centre.flatten() for centre in law.centres]).numpy() for law in laws]
        moved = []
        for name, module in self.first.named_modules():
            if isinstance(module, Network) and self.moves[(start := self.where[name].start)]:
                own = [prior.get_submodule(name) for prior in self.priors]
                scale, shift = (
                    np.stack([np.asarray(getattr(net, key)) for net in own])[:, None] for key in ("_scale", "_shift")
                )
                outputs, inputs = module.linear[0].weight.shape
                end = start + outputs * inputs
                moved.append((slice(start, end), slice(end, end + outputs), (-1, outputs, inputs), scale, shift))

        def log_density(values: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
            standard = values.copy()
            for weights, biases, shape, scale, shift in moved:
                own = values[:, weights].reshape(shape)
                standard[:, weights] = (own * scale).reshape(len(values), -1)
                standard[:, biases] += (own * shift).sum(2)
            away = (standard - centres) * inverse
            slopes = -away * inverse
            for weights, biases, shape, scale, shift in moved:
                own = slopes[:, weights].reshape(shape) * scale + slopes[:, biases][..., None] * shift
                slopes[:, weights] = own.reshape(len(values), -1)
            return -0.5 * np.einsum("bi,bi->b", away, away), slopes

        return log_density

    @torch.no_grad()
    def write(self, values: Float[Array, "B P"]) -> None:
        """Give these parameters to the priors."""
        for prior, row in zip(self.priors, torch.from_numpy(values), strict=True):
            sizes = [parameter.numel() for parameter in prior.parameters()]
            for parameter, piece in zip(prior.parameters(), row.split(sizes), strict=True):
                parameter.copy_(piece.reshape(parameter.shape))


STRAIGHT = 20.0
"""From here on torch's softplus is the identity, and so is ours: the same parameters are the same prior."""


def softplus(raw: Float[Array, ...]) -> Float[Array, ...]:
    """`log(1 + eʳ)`, as torch has it."""
    return np.where(raw > STRAIGHT, raw, np.logaddexp(0.0, raw))


def softplus_slope(value: Float[Array, ...]) -> Float[Array, ...]:
    """How it rises, where it has this value."""
    return np.where(value > STRAIGHT, 1.0, -np.expm1(-value))


def stacked(priors: Sequence[Prior]) -> Stack | None:
    """The priors as one; None where they are not of one structure, or of one that has no formula here."""
    scaled = _stationary_part(priors[0].kernel)
    if scaled is None or not _known(priors[0]) or len({structure_of(prior) for prior in priors}) > 1:
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
    several = isinstance(mean, MultitaskMean) and {type(one) for one in mean.base_means} in ({ConstantMean}, {ZeroMean})
    free = all(getattr(one, "mean_constraint", None) is None for one in mean.modules())
    on_cpu = prior.like.device.type == "cpu" and prior.like.dtype == torch.float64
    return (plain or several) and free and type(noise) in (LearnedNoise, FixedNoise) and on_cpu


def structure_of(prior: Prior) -> tuple[object, ...]:
    """What priors have in common that can be learned as one."""
    shapes = tuple((name, tuple(value.shape), value.requires_grad) for name, value in prior.named_parameters())
    modules = tuple(type(module) for module in prior.modules())
    forms = tuple(float(module.nu) for module in prior.modules() if isinstance(module, MaternKernel))
    floor = prior.noise.floor if isinstance(prior.noise, LearnedNoise) else None
    return shapes, modules, forms, floor


NUMPY = {torch.float64: np.float64, torch.float32: np.float32}

SLOPES: dict[type[nn.Module], Callable[[Array], Array]] = {
    nn.Sigmoid: lambda out: out * (1 - out),
    nn.Tanh: lambda out: 1 - out * out,
    nn.ReLU: lambda out: out > 0,
}
"""The slope of each activation, by what came out of it."""


def _network_at(
    network: Network, flat: Float[Array, "B P"], x: Float[Array, "B u d"]
) -> tuple[Float[Array, "B u k"], Back]:
    """Networks of one architecture at points of their own. flat: weights and biases of every layer, one row each."""
    dtype = NUMPY[network.dtype]
    own, signals, pieces, end = flat.astype(dtype, copy=False), [x.astype(dtype, copy=False)], [], 0
    shapes = [layer.weight.shape for layer in network.linear]
    for outputs, inputs in shapes:
        start, middle, end = end, end + outputs * inputs, end + outputs * (inputs + 1)
        weights = own[:, start:middle].reshape(-1, outputs, inputs)
        pieces.append((slice(start, middle), slice(middle, end), weights))
        out = product(signals[-1], weights.swapaxes(1, 2))
        out += own[:, None, middle:end]
        if len(pieces) < len(shapes):
            out = network.activation(torch.from_numpy(out)).numpy()  # NumPy's own take twice as long
        signals.append(out)
    slope = SLOPES[type(network.activation)]

    def back(slopes: Float[Array, "B u k"]) -> Float[Array, "B P"]:
        through, found = slopes.astype(dtype, copy=False), np.empty_like(own)
        for k in reversed(range(len(pieces))):
            where, biases, weights = pieces[k]
            found[:, biases] = through.sum(1)
            found[:, where] = product(through.swapaxes(1, 2), signals[k]).reshape(len(own), -1)
            if k:
                through = product(through, weights)
                through *= slope(signals[k])
        return found

    return signals[-1].astype(float, copy=False), back
