"""Tasks of known kinds, and what an oracle that knows the kind says of them: NumPy, and nothing of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

Array = np.ndarray[Any, np.dtype[np.float64]]

WIDTH = 10.0
"""Inputs lie between 0 and this."""

POINTS = 15
"""Of each task."""


class Gaussian(NamedTuple):
    """A Gaussian process with a known mean, kernel (of two sets of inputs) and noise variance; and its share."""

    mean: Callable[[Array], Array]
    kernel: Callable[[Array, Array], Array]
    noise: float
    share: float = 1.0


class Said(NamedTuple):
    """Of each value on its own: the log density, and the probability below it."""

    log_density: Array
    cdf: Array


@dataclass(frozen=True)
class Known:
    """Tasks of one or several kinds. positive: what is drawn is the logarithm of what is observed."""

    kinds: tuple[Gaussian, ...]
    positive: bool = False

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Inputs and values of so many tasks, `[count, POINTS]` each."""
        x = rng.uniform(0, WIDTH, (count, POINTS))
        normal = rng.normal(size=(count, POINTS, 1))
        every = []
        for one in self.kinds:
            A = one.kernel(x[:, :, None], x[:, None, :]) + one.noise * np.eye(POINTS)
            every.append(one.mean(x) + (np.linalg.cholesky(A) @ normal)[..., 0])
        kind = rng.choice(len(self.kinds), size=count, p=[one.share for one in self.kinds])
        t = np.stack(every)[kind, np.arange(count)]
        return x, np.exp(t) if self.positive else t

    def says(self, x: Array, y: Array, at: Array, values: Array) -> Said:
        """What it says of values at some points of tasks, given others: all `[m, …]`, with as many points each."""
        t, wanted = (np.log(y), np.log(values)) if self.positive else (y, values)
        found = [self._one(one, x, t, at, wanted) for one in self.kinds]
        logs = np.stack([np.log(one.share) + part[0] for one, part in zip(self.kinds, found, strict=True)])
        logs = logs - special.logsumexp(logs, axis=0)
        density = special.logsumexp(logs[:, :, None] + np.stack([part[1] for part in found]), axis=0)
        cdf = (np.exp(logs)[:, :, None] * np.stack([part[2] for part in found])).sum(0)
        return Said(density - wanted if self.positive else density, cdf)

    def _one(self, one: Gaussian, x: Array, t: Array, at: Array, wanted: Array) -> tuple[Array, Array, Array]:
        """Under one kind: the evidence of what is known, and log density and cdf of what is asked."""
        A = one.kernel(x[:, :, None], x[:, None, :]) + one.noise * np.eye(x.shape[1])
        L, r = np.linalg.cholesky(A), t - one.mean(x)
        w = np.linalg.solve(L, r[..., None])[..., 0]
        V = np.linalg.solve(L, one.kernel(x[:, :, None], at[:, None, :]))
        evidence = -0.5 * (w**2).sum(1) - np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1)
        mean = one.mean(at) + (V * w[..., None]).sum(1)
        variance = one.kernel(at[..., None], at[..., None])[..., 0] + one.noise - (V**2).sum(1)
        z = (wanted - mean) / np.sqrt(variance)
        return evidence, -0.5 * (z**2 + np.log(2 * np.pi * variance)), special.ndtr(z)


def _smooth(variance: float, length: float) -> Callable[[Array, Array], Array]:
    return lambda a, b: variance * np.exp(-0.5 * ((a - b) / length) ** 2)


def _rough(variance: float, length: float) -> Callable[[Array, Array], Array]:
    return lambda a, b: variance * np.exp(-np.abs(a - b) / length)


def _components(a: Array, b: Array) -> Array:
    """Two curves that every task has more or less of, and a level."""
    first, second = np.sin(np.pi * a / WIDTH) * np.sin(np.pi * b / WIDTH), np.cos(2 * np.pi * a / WIDTH)
    return np.asarray(4.0 * first + second * np.cos(2 * np.pi * b / WIDTH) + 0.5)


def _walk(a: Array, b: Array) -> Array:
    return 1.0 + 0.5 * np.minimum(a, b)


def _level(value: float) -> Callable[[Array], Array]:
    return lambda x: np.full_like(x, value)


KNOWN = {
    "one smooth process": Known((Gaussian(lambda x: 3 * np.sin(x / 2), _smooth(1.0, 2.0), 0.04),)),
    "few components": Known((Gaussian(lambda x: 0.4 * x, _components, 0.04),)),
    "three kinds": Known(
        (
            Gaussian(lambda x: 4 * np.sin(x / 2), _rough(0.25, 3.0), 0.02, 0.5),
            Gaussian(lambda x: 4 * np.cos(x / 2), _rough(0.25, 3.0), 0.02, 0.3),
            Gaussian(lambda x: 6 - x, _rough(0.25, 3.0), 0.02, 0.2),
        )
    ),
    "skewed": Known((Gaussian(lambda x: 1 + np.sin(x / 2), _smooth(0.3, 2.5), 0.01),), positive=True),
    "random walk": Known((Gaussian(_level(10.0), _walk, 0.01),)),
}
"""By name: what a rung of the ladder is for."""
