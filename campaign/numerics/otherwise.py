"""The same answers by another route in float64: eigenvalues and -vectors, formulas written out in NumPy.

Everything is divided by a power of four near the variance, which rounds nothing, so that no unit is extreme.
"""

from __future__ import annotations

import math
from functools import cache, cached_property

import numpy as np
from jaxtyping import Float
from mpmath import mp, mpf

from campaign.numerics.drawn import Group, Model, Points
from campaign.numerics.wanted import ROUNDING, Values, Wanted
from metaprior.arrays import Array


def kernel(model: Model, one: Points, two: Points, unit: float) -> Float[Array, "n k"]:
    """`k(x, x')` divided by the unit."""
    root = math.sqrt(unit)
    found: Array = (one.functions / root) @ (two.functions / root).T
    if model.shape is None:
        return found
    gaps = (one.places[:, None] - two.places[None]) / model.length
    with np.errstate(over="ignore"):
        square = np.square(gaps).sum(-1)
    t = np.sqrt(np.minimum(square, 1e8) * (5.0 if model.shape == "matern" else 1.0))
    shapes = {"rbf": np.exp(-0.5 * t * t), "exponential": np.exp(-t), "matern": (1 + t + t * t / 3) * np.exp(-t)}
    found += model.scale / unit * shapes[model.shape]
    return found


def mean(model: Model, points: Points, p: int) -> tuple[Float[Array, "n p"], Float[Array, "n p"]]:
    """The mean, and the size of what it is summed from."""
    if points.mean is not None:
        return points.mean, np.abs(points.mean)
    level = np.broadcast_to(model.level, (len(points.x), p))
    if model.weights.size == 0:
        return level, np.abs(level)
    return level + points.x @ model.weights, np.abs(level) + np.abs(points.x) @ np.abs(model.weights)


@cache
def normaliser(degrees: float | None, count: int) -> float:
    if degrees is None:
        return -0.5 * count * math.log(2 * math.pi)
    with mp.workdps(40):
        nu = mpf(degrees)
        ratio = mp.loggamma((nu + count) / 2) - mp.loggamma(nu / 2)
        return float(ratio - mpf(count) / 2 * mp.log((nu - 2) * mp.pi))


class Solved:
    """A task's points: `A = Q Λ Qᵀ` and what follows. jitter: added to the diagonal, in units of the matrix."""

    def __init__(
        self, model: Model, points: Points, y: Float[Array, "n p"], jitter: Float[Array, " n"], told_from: int | None
    ) -> None:
        self.model, self.points, self.added = model, points, jitter
        self.unit = unit_of(model, points)
        A = kernel(model, points, points, self.unit)
        A[np.diag_indices(len(A))] += model.noise / self.unit + jitter
        self.eigenvalues, self.Q = np.linalg.eigh(A)
        least, most = float(self.eigenvalues[0]), float(self.eigenvalues[-1])
        self.hopeless = least <= 8 * len(A) * ROUNDING * most
        self.condition = math.inf if self.hopeless else most / least
        root = math.sqrt(self.unit)
        m, sizes = mean(model, points, y.shape[1])
        self.R = (y - m) / root
        first = 0 if points.mean is None and model.weights.size else told_from
        self.sizes = np.abs(self.R)
        if first is not None:
            self.sizes[first:] += sizes[first:] / root
        self.exact = first is None

    @cached_property
    def alpha(self) -> Float[Array, "n p"]:
        found: Array = self.Q @ ((self.Q.T @ self.R) / self.eigenvalues[:, None])
        return found

    @cached_property
    def beta(self) -> tuple[float, float]:
        """`rᵀA⁻¹r`, and what its error is relative to."""
        found = float((np.square(self.Q.T @ self.R) / self.eigenvalues[:, None]).sum())
        return found, found if self.exact else found + float((lengths_of(self.alpha) * lengths_of(self.sizes)).sum())

    def evidence(self) -> dict[str, Values]:
        """The three terms and their sum."""
        (n, p), nu, (beta, rough) = self.R.shape, self.model.degrees, self.beta
        fit, fit_scale = -beta / 2, rough / 2
        if nu is not None:
            fit = -(nu + n * p) / 2 * math.log1p(beta / (nu - 2))
            fit_scale = -fit + (nu + n * p) / 2 * rough / (nu - 2 + beta)
        logs = np.log(self.eigenvalues) + math.log(self.unit)
        complexity, spread = -p * float(logs.sum()) / 2, p * float((np.abs(logs) + 1).sum()) / 2
        constant = normaliser(nu, n * p)
        found = {
            "data fit": (fit, fit_scale),
            "complexity": (complexity, spread),
            "normaliser": (constant, abs(constant) + n * p),
            "evidence": (fit + complexity + constant, fit_scale + spread + abs(constant)),
        }
        return {name: Values(np.array([v]), np.array([s]), self.condition) for name, (v, s) in found.items()}


def wanted(group: Group, k: int, jitter: float, joint_jitter: float) -> Wanted:
    """All that is known of a group's k-th task."""
    (points, y), (at, y_at) = group.of(group.context, k), group.of(group.points, k)
    task = context_task(group.model, points, y, jitter)
    floor = 100 * ROUNDING * task.eigenvalues[-1]
    logs = np.log(np.maximum(task.eigenvalues, 0) + floor) + math.log(task.unit)
    least = -y.shape[1] * float(logs.sum()) / 2
    if task.hopeless:
        return Wanted({}, math.inf, least)
    found = task.evidence() | posterior(task, at)
    together = joint(task, at, y, y_at, joint_jitter)
    found |= {} if together is None else {"joint density": together}
    return Wanted(found, task.condition, least)


def slope_decades(group: Group, k: int) -> float:
    """The decimal logarithm of what no entry of `A⁻¹`, `ααᵀ` or `A⁻¹SA⁻¹` of a group's k-th task is above."""
    task = context_task(group.model, *group.of(group.context, k), 0.0)
    least = max(float(task.eigenvalues[0]), ROUNDING * float(task.eigenvalues[-1]))
    rotated = task.Q.T @ task.R
    beta = float((np.square(rotated) / np.maximum(task.eigenvalues, least)[:, None]).sum())
    return math.log10(1 + beta) - math.log10(least) - math.log10(task.unit)


def lengths_of(columns: Float[Array, "n k"]) -> Float[Array, " k"]:
    """Of each column; squares of very small numbers would vanish."""
    largest = np.abs(columns).max(0)
    found: Array = largest * np.linalg.norm(columns / np.where(largest > 0, largest, 1.0), axis=0)
    return found


def unit_of(model: Model, points: Points) -> float:
    """A power of four near the variance at these points."""
    variance = model.scale + model.noise
    if points.functions.size:
        variance += float(np.square(points.functions).sum(1).max())
    return float(4.0 ** round(math.log(variance, 4)))


def context_task(model: Model, points: Points, y: Float[Array, "n p"], jitter: float) -> Solved:
    """A context whose matrix was given jitter, relative to the mean of its diagonal."""
    unit = unit_of(model, points)
    diagonal = np.diagonal(kernel(model, points, points, unit)) + model.noise / unit
    return Solved(model, points, y, np.full(len(y), jitter * float(diagonal.mean())), None)


@np.errstate(over="ignore")  # what is beyond float64 has to be so in the library too
def posterior(task: Solved, at: Points) -> dict[str, Values]:
    """Mean, variances and covariance at points."""
    model, unit, p = task.model, task.unit, task.R.shape[1]
    cross, prior = kernel(model, task.points, at, unit), kernel(model, at, at, unit)
    half = (task.Q.T @ cross) / np.sqrt(task.eigenvalues)[:, None]
    weights, root = task.Q @ (half / np.sqrt(task.eigenvalues)[:, None]), math.sqrt(unit)
    level, sizes = mean(model, at, p)
    k, a, w, r, s = (lengths_of(part) for part in (cross, task.alpha, weights, task.R, task.sizes))
    scale = np.minimum(np.outer(k, a), np.outer(w, r)) + np.outer(1e-290 * np.diagonal(prior) + 1e-308 / unit, a)
    scale += 0 if task.exact else np.outer(w, s)
    free, (beta, rough) = (model.degrees or 0.0) - 2, task.beta
    widening, wide = (1.0, 1.0) if model.degrees is None else ((free + b) / (free + task.R.size) for b in (beta, rough))
    C, deviations = unit * (widening * (prior - half.T @ half)), np.sqrt(np.diagonal(prior))
    C_scale = unit * (wide * np.outer(deviations, deviations))
    noisy, noisy_scale = C.copy(), C_scale.copy()
    noisy[np.diag_indices(len(C))] += widening * model.noise
    noisy_scale[np.diag_indices(len(C))] += wide * model.noise
    found = {
        "mean": (level + root * cross.T @ task.alpha, sizes + root * scale),
        "function variance": (np.diagonal(C), np.diagonal(C_scale)),
        "variance": (np.diagonal(noisy), np.diagonal(noisy_scale)),
        "covariance": (noisy, noisy_scale),
    }
    return {name: Values(v.ravel(), s.ravel(), task.condition) for name, (v, s) in found.items()}


def joint(task: Solved, at: Points, y: Array, y_at: Array, jitter: float) -> Values | None:
    """Log density of all values at the points. jitter: relative to their variance. None where it is no number."""
    points = task.points.joined(at)
    unit = unit_of(task.model, points)
    added = jitter * float(np.diagonal(kernel(task.model, at, at, unit)).mean())
    jitters = np.concatenate([task.added * task.unit / unit, np.full(len(y_at), added)])
    both = Solved(task.model, points, np.concatenate([y, y_at]), jitters, len(y))
    if both.hopeless:
        return None
    whole, part = both.evidence()["evidence"], task.evidence()["evidence"]
    condition = max(whole.condition, part.condition)
    return Values(whole.value - part.value, whole.scale + part.scale, condition)
