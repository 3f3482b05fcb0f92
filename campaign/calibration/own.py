"""Draws from a fitted prior by a way of our own: NumPy's formulas and factors, and none of the library's inference.

What is taken from the method is its parameters alone: weights of networks, lengthscales, knots, shares, the powers of
a warp. Covariances, mixtures, scales of tails and inverse warps are written out here once more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.means import ConstantMean, Mean, MultitaskMean, ZeroMean
from scipy.interpolate import BSpline
from torch import nn

from metaprior.inference import Method
from metaprior.methods import FPCA, HyperPosterior, LearnedPrior, Mixture, Warped
from metaprior.priors import (
    Basis,
    BasisKernel,
    BasisMean,
    DeepKernel,
    DeepMean,
    DeepNoise,
    EigenfunctionKernel,
    FixedNoise,
    LearnedNoise,
    Network,
    Prior,
    SplineBasis,
    TensorBasis,
    Warp,
)
from metaprior.tasks import Scaler

Array = np.ndarray[Any, np.dtype[np.float64]]


class Law(NamedTuple):
    """Of m tasks at n points each: the mean `[m, n, p]` and the covariance `[m, n, n]` of what is observed."""

    mean: Array
    covariance: Array

    def drawn(self, rng: np.random.Generator, scale: Array | None = None) -> Array:
        """One draw of each task. scale: of each task's deviations from the mean."""
        normal = np.linalg.cholesky(self.covariance) @ rng.normal(size=self.mean.shape)
        return self.mean + (normal if scale is None else scale[:, None, None] * normal)


def drawn(method: Method, x: Array, rng: np.random.Generator) -> Array:
    """Values of m tasks at their points x `[m, n, d]`, drawn from what a method believes before it sees any."""
    if isinstance(method, LearnedPrior):
        return _in_units(method.scaler_, x, lambda z: _of_prior(method.prior_, z, rng))
    if isinstance(method, FPCA):
        return _in_units(method.scaler_, x, lambda z: _of_prior(method.prior_, z, rng))
    if isinstance(method, Mixture):
        return _in_units(method.scaler_, x, lambda z: _by_kinds(method.priors_, method.shares_, z, rng))
    if isinstance(method, HyperPosterior):
        members = method.members_
        return _chosen([drawn(one, x, rng) for one in members], np.full(len(members), 1 / len(members)), rng)
    if isinstance(method, Warped):
        return unwarped(method.warp_, drawn(method.method, x, rng))
    raise NotImplementedError(type(method).__name__)


def _in_units(scaler: Scaler, x: Array, draw: Any) -> Array:
    x_shift, x_scale, y_shift, y_scale = (part.numpy() for part in scaler.as_tensors().values())
    found: Array = draw((x - x_shift) / x_scale) * y_scale + y_shift
    return found


def _chosen(drawn_of_each: list[Array], shares: Any, rng: np.random.Generator) -> Array:
    """For each task, the draw of a kind that is chosen by the shares."""
    every = np.stack(drawn_of_each)
    kind = rng.choice(len(every), size=every.shape[1], p=np.asarray(shares) / np.sum(shares))
    found: Array = every[kind, np.arange(every.shape[1])]
    return found


def _by_kinds(priors: list[Prior], shares: list[float], x: Array, rng: np.random.Generator) -> Array:
    return _chosen([_of_prior(prior, x, rng) for prior in priors], shares, rng)


def _of_prior(prior: Prior, x: Array, rng: np.random.Generator) -> Array:
    law = law_of(prior, x)
    if prior.degrees is None:
        return law.drawn(rng)
    freedom = 2.1 + _softplus(prior.degrees.raw.item())
    return law.drawn(rng, np.sqrt((freedom - 2) / rng.chisquare(freedom, size=len(x))))


def law_of(prior: Prior, x: Array) -> Law:
    """A prior's mean and covariance, noise included, in its own units."""
    noise = _noise(prior.noise, x)[..., None] * np.eye(x.shape[1])
    return Law(_mean(prior.mean, x), _kernel(prior.kernel, x) + noise)


def _mean(mean: Mean, x: Array) -> Array:
    if isinstance(mean, MultitaskMean):
        return np.concatenate([_mean(one, x) for one in mean.base_means], -1)
    if isinstance(mean, ZeroMean):
        return np.zeros((*x.shape[:-1], 1))
    if isinstance(mean, ConstantMean):
        return np.full((*x.shape[:-1], 1), mean.constant.item())
    if isinstance(mean, DeepMean):
        return _network(mean.network, x)
    assert isinstance(mean, BasisMean)
    return np.asarray(_basis(mean.basis, x) @ mean.coefficients.detach().numpy())


def _kernel(kernel: Kernel, x: Array) -> Array:
    if isinstance(kernel, DeepKernel):
        return _stationary(kernel.base_kernel, _network(kernel.network, x))
    if isinstance(kernel, BasisKernel):
        return _inner(_basis(kernel.basis, x) @ kernel.loadings.detach().numpy())
    if isinstance(kernel, EigenfunctionKernel):
        functions = _network(kernel.network, x)
        inner = _inner(functions) / functions.shape[-1]
        return inner if kernel.rest is None else np.asarray(inner + _kernel(kernel.rest, x))
    return _stationary(kernel, x)


def _inner(z: Array) -> Array:
    return np.asarray(z @ z.swapaxes(1, 2))


def _stationary(kernel: Kernel, z: Array) -> Array:
    base, scale = kernel.base_kernel, float(kernel.outputscale.detach())
    squares: Array = np.square((z[:, :, None] - z[:, None]) / float(base.lengthscale.detach())).sum(-1)
    if isinstance(base, RBFKernel):
        return scale * np.exp(-squares / 2)
    assert isinstance(base, MaternKernel)
    if base.nu == 0.5:
        return scale * np.exp(-np.sqrt(squares))
    assert base.nu == 2.5
    far = np.sqrt(5 * squares)
    return scale * (1 + far + far**2 / 3) * np.exp(-far)


def _noise(noise: nn.Module, x: Array) -> Array:
    if isinstance(noise, DeepNoise):
        return np.asarray(noise.level.floor + _softplus(_network(noise.network, x)[..., 0] + noise.level.raw.item()))
    if isinstance(noise, LearnedNoise):
        return np.full(x.shape[:-1], noise.floor + _softplus(noise.raw.item()))
    assert isinstance(noise, FixedNoise)
    return np.full(x.shape[:-1], noise.variance.item())


def _softplus(value: Any) -> Any:
    return np.logaddexp(0.0, value)


def _network(network: Network, x: Array) -> Array:
    out = x
    for layer in network.layers:
        if isinstance(layer, nn.Linear):
            weight, bias = (part.detach().double().numpy() for part in (layer.weight, layer.bias))
            out = out @ weight.T + bias
        else:
            out = np.tanh(out) if isinstance(layer, nn.Tanh) else 1 / (1 + np.exp(-out))
    return out


def _basis(basis: Basis, x: Array) -> Array:
    """B-splines by SciPy's recursion; the library's own is not asked."""
    if isinstance(basis, TensorBasis):
        one, two = _basis(basis.first, x[..., :1]), _basis(basis.second, x[..., 1:])
        return (one[..., :, None] * two[..., None, :]).reshape(*x.shape[:-1], -1)
    assert isinstance(basis, SplineBasis)
    knots = basis.knots.numpy()
    inside = x[..., 0].clip(knots[0], knots[-1])
    plain = BSpline(knots, np.eye(basis.size), basis.degree)(inside)
    found: Array = plain @ basis.whitening.numpy()
    return found


def unwarped(warp: Warp, t: Array) -> Array:
    """The y with `g(y) = t`: within the range of past values by its formula, beyond it straight."""
    y, unit = _root(warp, t), warp.unit.numpy()
    ends = [(warp.upper.numpy(), np.greater), *([] if warp.name in POSITIVE else [(warp.lower.numpy(), np.less)])]
    for end, beyond in ends:
        edge, slope = _bent(warp, end / unit)
        y = np.where(beyond(t, edge), end + (t - edge) / slope * unit, y)
    return y


POSITIVE = ("log", "box-cox")
"""Warps of values above 0, which keep their shape down to it."""


def _bent(warp: Warp, v: Array) -> tuple[Array, Array]:
    """`g` and its slope at v units, within the range."""
    if warp.name == "log":
        return np.log(v), 1 / v
    power, zoom = _bends(warp, v)
    base = v if warp.name == "box-cox" else 1 + np.abs(v) / zoom
    sign = 1.0 if warp.name == "box-cox" else np.sign(v)
    return sign * (base**power - 1) / power, base ** (power - 1) / zoom


def _root(warp: Warp, t: Array) -> Array:
    unit = warp.unit.numpy()
    if warp.name == "log":
        return unit * np.exp(t)
    power, zoom = _bends(warp, t)
    if warp.name == "box-cox":
        return unit * (1 + power * t).clip(min=0) ** (1 / power)
    assert warp.name == "yeo-johnson"
    return unit * zoom * np.sign(t) * ((1 + power * np.abs(t)) ** (1 / power) - 1)


def _bends(warp: Warp, sign: Array) -> tuple[Array, Array]:
    """The power (of Yeo and Johnson's, that of this side) and the unit, in the units of the data."""
    power = 2 / (1 + np.exp(-warp.learned["raw"].numpy()))
    if warp.name == "box-cox":
        return power, np.ones_like(power)
    return np.where(sign >= 0, power, 2 - power), np.exp(4 * np.tanh(warp.learned["zoom"].numpy()))
