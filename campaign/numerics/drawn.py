"""Random problems: a prior with few tasks, each a context and points to predict at, from the tame to the extreme."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from metaprior import Prior, Tasks, make_prior
from metaprior.arrays import Array
from metaprior.priors import BasisKernel, FixedNoise, LearnedNoise, PolynomialBasis, shape_name

Rng = np.random.Generator

STATIONARY = ("rbf", "matern", "exponential")
FEATURES = ("deep", "eigenfunctions", "eigenfunctions + deep", "basis")
DECADES = 150


@dataclass(frozen=True)
class Model:
    """A prior in plain numbers: `f(x)ᵀf(x') + s k(|z(x) − z(x')| / l)`, mean `Wᵀx + b`, noise, degrees of freedom.

    What networks and bases say of a point (f, z, and the mean where it is a network's) is taken as they say it.
    """

    shape: str | None
    scale: float
    length: float
    noise: float
    weights: Float[Array, "d p"]
    level: Float[Array, " p"]
    degrees: float | None


@dataclass(frozen=True)
class Points:
    """Points as the model sees them. mean: where a network says it."""

    x: Float[Array, "n d"]
    functions: Float[Array, "n f"]
    places: Float[Array, "n q"]
    mean: Float[Array, "n p"] | None

    def joined(self, other: Points) -> Points:
        """These points and some more."""
        said = None if self.mean is None or other.mean is None else np.concatenate([self.mean, other.mean])
        pairs = ((self.x, other.x), (self.functions, other.functions), (self.places, other.places))
        x, functions, places = (np.concatenate(pair) for pair in pairs)
        return Points(x, functions, places, said)


@dataclass(frozen=True)
class Group:
    """Tasks under one prior, laid out together. told: in words, how it was drawn."""

    prior: Prior
    model: Model
    context: Tasks
    points: Tasks
    told: str

    def of(self, tasks: Tasks, k: int) -> tuple[Points, Float[Array, "n p"]]:
        """The k-th task's points and its targets."""
        rows = slice(int(tasks.offsets[k]), int(tasks.offsets[k + 1]))
        return self.seen(tasks.x[rows].numpy()), tasks.y[rows].numpy()

    def seen(self, x: Float[Array, "n d"]) -> Points:
        first, empty = _functions(self.prior), np.zeros((len(x), 0))
        with torch.no_grad():
            z = self.prior.at(torch.from_numpy(x))
        mean = z.mean.numpy() if hasattr(self.prior.mean, "network") else None
        if not hasattr(self.prior.kernel, "features"):
            return Points(x, empty, x, mean)
        features = z.features.numpy()
        return Points(x, features[:, :first], features[:, first:], mean)


def _functions(prior: Prior) -> int:
    """Of a prior's features, how many enter by their inner product: the first of them."""
    base: Any = getattr(prior.kernel, "base_kernel", None)
    if hasattr(base, "first"):
        return int(base.first)
    return 10**9 if type(base).__name__ == "InnerProduct" else 0


def model_of(prior: Prior) -> Model:
    """The numbers of a prior, as float64 has them."""
    base = getattr(prior.kernel, "base_kernel", prior.kernel) if hasattr(prior.kernel, "features") else prior.kernel
    base = getattr(base, "other", base)
    shape, scale, length = shape_name(base), 0.0, 1.0
    if shape is not None:
        scale, length = float(base.outputscale.detach()), float(base.base_kernel.lengthscale.detach())
    known = dict(prior.named_parameters())
    outputs = list(getattr(prior.mean, "base_means", None) or [prior.mean])
    weights = [one.weights.detach().numpy()[:, 0] for one in outputs if hasattr(one, "weights")]
    names = ("raw_constant", "bias")
    level = [float(next((getattr(one, name).detach() for name in names if hasattr(one, name)), 0.0)) for one in outputs]
    degrees = float(prior.degrees().detach()) if "degrees.raw" in known else None  # type: ignore[misc]
    noise = float(prior.noise(torch.zeros(1, 1, dtype=torch.float64)).detach())
    return Model(shape, scale, length, noise, np.array(weights).T, np.array(level), degrees)


@dataclass(frozen=True)
class Size:
    """How large problems are: at most so many points in a context, to predict at, and tasks."""

    context: int
    points: int
    tasks: int


def draw(seed: int, size: Size, kernels: tuple[str, ...] = STATIONARY + FEATURES) -> Group:
    """A group of problems; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kernel = str(rng.choice(kernels))
    d, p = int(rng.choice([1, 1, 1, 2, 3, 20])), int(rng.choice([1, 1, 2]))
    d = 1 if kernel == "basis" else d
    plain = kernel in STATIONARY
    unit_x = _decades(rng) if plain else 1.0
    unit_y = _decades(rng) if plain or kernel == "basis" else 10.0 ** rng.uniform(-3, 3)
    prior, model, told = _prior(rng, kernel, d, p, unit_x, unit_y)
    places, x_told = _places(rng, d)
    count = int(rng.integers(1, size.tasks + 1))
    shared = count >= 4 and bool(rng.integers(2))
    sizes = np.full(count, rng.integers(1, size.context + 1)) if shared else rng.integers(1, size.context + 1, count)
    targets, y_told = _targets(rng, p)
    xs = [places(rng, int(n)) for n in sizes]
    xs = [xs[0][rng.permutation(len(xs[0]))] for _ in xs] if shared else xs
    k = int(rng.integers(1, size.points + 1))
    ats = [_ahead(rng, x, places(rng, k)) for x in (xs if not shared else [xs[0]] * count)]
    ats = [ats[0]] * count if shared else ats
    level = model.level if model.level.any() else np.zeros(p)
    wild = 10.0 ** rng.choice([0.0, 0.0, 0.0, rng.uniform(-6, 6)])

    def pairs(inputs: list[Array]) -> Tasks:
        return Tasks.from_pairs([(unit_x * x, level + wild * unit_y * targets(rng, x)) for x in inputs])

    told = f"seed {seed}: {told}, x {unit_x:.0e} × {x_told}, y {unit_y:.0e} × {y_told}"
    return Group(prior, model, pairs(xs), pairs(ats), told + (", shared inputs" if shared else ""))


def _decades(rng: Rng) -> float:
    """A unit: often an ordinary one, else anything."""
    return float(10.0 ** (rng.uniform(-3, 3) if rng.integers(2) else rng.uniform(-DECADES, DECADES)))


def _prior(rng: Rng, kernel: str, d: int, p: int, unit_x: float, unit_y: float) -> tuple[Prior, Model, str]:
    tame_x, tame_y = (abs(math.log10(unit)) < 4 for unit in (unit_x, unit_y))
    mean = str(rng.choice(["zero", "constant", *["linear"] * tame_x, *["deep"] * (tame_x and tame_y)]))
    degrees = float(2.1 + 10.0 ** rng.choice([rng.uniform(-3, 2), rng.uniform(2, 9)])) if rng.random() < 0.3 else None
    told, noise = _noise(rng, unit_y)
    options: dict[str, Any] = {"hidden": (4,), "functions": 3, "activation": "tanh", "degrees": degrees}
    made: Any = kernel
    if kernel == "basis":
        rank = int(rng.integers(1, 4))
        basis = PolynomialBasis(-3.0, 3.0, 4)
        made = BasisKernel(basis, torch.from_numpy(unit_y * rng.normal(size=(4, rank))))
    prior = make_prior(mean, made, d=d, p=p, noise=noise, seed=int(rng.integers(1000)), **options)
    with torch.no_grad():
        _set(rng, prior, mean, unit_x, unit_y)
    tail = "" if degrees is None else f", {degrees:.3g} degrees"
    return prior, model_of(prior), f"{mean} mean, {kernel} kernel, {d} inputs, {p} outputs, noise {told}{tail}"


def _noise(rng: Rng, unit_y: float) -> tuple[str, FixedNoise | LearnedNoise]:
    share = float(10.0 ** rng.choice([rng.uniform(-3, 2), rng.uniform(-13, -3)]))
    if rng.random() < 0.2:
        return "none", FixedNoise(0.0)
    variance = share * unit_y**2
    learned = bool(rng.integers(2))
    return f"{share:.0e}", LearnedNoise(variance, 0.01 * variance) if learned else FixedNoise(variance)


def _set(rng: Rng, prior: Prior, mean: str, unit_x: float, unit_y: float) -> None:
    """Parameters that suit the units."""
    base: Any = getattr(prior.kernel, "base_kernel", None) if hasattr(prior.kernel, "features") else prior.kernel
    base = getattr(base, "other", base)
    if hasattr(base, "outputscale"):
        base.outputscale = torch.tensor(unit_y**2 * 10.0 ** rng.uniform(-2, 2), dtype=torch.float64)
        base.base_kernel.lengthscale = torch.tensor(unit_x * 10.0 ** rng.uniform(-1.5, 1.5), dtype=torch.float64)
    for name, value in prior.mean.named_parameters():
        if mean in ("constant", "linear"):
            offset = unit_y * (1e9 if rng.random() < 0.15 else 1.0)
            value += offset * torch.from_numpy(rng.normal(size=value.shape)) / (unit_x if "weights" in name else 1.0)


Places = Callable[[Rng, int], Float[Array, "n d"]]


def _places(rng: Rng, d: int) -> tuple[Places, str]:
    """How inputs lie."""
    apart = float(10.0 ** rng.uniform(-15, -2))
    kinds: dict[str, Places] = {
        "anywhere": lambda rng, n: rng.normal(size=(n, d)),
        "on a grid": lambda rng, n: np.tile(np.arange(n)[:, None] / 2.0, d),
        "in pairs": lambda rng, n: rng.normal(size=(n, d)).repeat(2, 0)[:n],
        "all one": lambda rng, n: np.ones((n, d)),
        f"within {apart:.0e}": lambda rng, n: 1 + apart * rng.normal(size=(n, d)),
        "1e9 ± 1": lambda rng, n: 1e9 + rng.uniform(-1, 1, size=(n, d)),
        "two heaps": lambda rng, n: 1e6 * rng.choice([-1.0, 1.0], size=(n, 1)) + rng.normal(size=(n, d)),
    }
    told = str(rng.choice(list(kinds), p=[0.4, 0.1, 0.1, 0.05, 0.15, 0.1, 0.1]))
    return kinds[told], told


def _ahead(rng: Rng, x: Float[Array, "n d"], other: Float[Array, "k d"]) -> Float[Array, "k d"]:
    """Where to predict: elsewhere, and sometimes where the context is."""
    if rng.random() < 0.3:
        other = other.copy()
        other[0] = x[0]
    return other


Targets = Callable[[Rng, Float[Array, "n d"]], Float[Array, "n p"]]


def _targets(rng: Rng, p: int) -> tuple[Targets, str]:
    """What the targets are, in units of y."""
    kinds: dict[str, Targets] = {
        "noise": lambda rng, x: rng.normal(size=(len(x), p)),
        "a curve": lambda rng, x: np.sin(x.mean(1, keepdims=True) % 7.0 + np.arange(p)),
        "a constant": lambda rng, x: np.full((len(x), p), 1.5),
        "0": lambda rng, x: np.zeros((len(x), p)),
        "1e9 ± 1": lambda rng, x: 1e9 + rng.choice([-1.0, 1.0], size=(len(x), p)),
    }
    told = str(rng.choice(list(kinds), p=[0.45, 0.3, 0.1, 0.05, 0.1]))
    return kinds[told], told


def lone(group: Group, k: int) -> Group:
    """One of its tasks for itself."""
    which = torch.tensor([k])
    return replace(group, context=group.context.select(which), points=group.points.select(which))
