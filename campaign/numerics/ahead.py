"""The exact posterior of a task at points, and the exact gradient of its evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float
from mpmath import mp, mpf

from campaign.numerics.drawn import Group, Model, Points
from campaign.numerics.exact import DIGITS, Expected, Matrix, Number, Task, exactly, kernel, length_of, mean
from campaign.numerics.wanted import Values, Wanted, summed
from metaprior.arrays import Array

VANISHING = mpf(10) ** -290
"""Share of the prior's variance that a covariance is no longer judged by: an exponential vanishes at 1e-308 …"""

SMALLEST = mpf(10) ** -308
"""… and so do all numbers."""

ONE_POINT = mpf(10) ** -12
"""Squared distance in lengthscales up to which an exponential kernel, which has a kink at 0, is given no slope."""


def vanishing(variance: Number) -> Number:
    """What a covariance beside such a variance is judged by at least."""
    return VANISHING * variance + SMALLEST


def context_task(model: Model, points: Points, y: Float[Array, "n p"], jitter: float) -> Task:
    """A context whose matrix was given jitter, relative to the mean of its diagonal."""
    K = kernel(model, points, points)
    unit = mp.fsum(K[i][i] for i in range(len(K))) / len(K) + mpf(model.noise)
    return Task(model, points, y, [mpf(jitter) * unit] * len(K))


class Posterior:
    """A task's posterior at points."""

    def __init__(self, task: Task, points: Points) -> None:
        self.task, self.points, model = task, points, task.model
        self.cross = [list(column) for column in zip(*kernel(model, task.points, points), strict=True)]
        self.prior = kernel(model, points, points)
        self.weights = [task.solved.solve(column) for column in self.cross]
        self.widening = self.rough = mpf(1)
        if model.degrees is not None:
            free, (beta, rough) = mpf(model.degrees) - 2, task.beta
            self.widening, self.rough = ((free + one) / (free + task.n * task.p) for one in (beta, rough))

    def mean(self) -> list[Expected]:
        """At each point, each output."""
        task, (level, sizes) = self.task, mean(self.task.model, self.points)
        found = []
        for (j, k), o in product(enumerate(self.cross), range(task.p)):
            alpha, w = task.alphas[o], self.weights[j]
            scale = min(length_of(k) * length_of(alpha), length_of(w) * length_of(task.R[o]))
            scale += vanishing(self.prior[j][j]) * length_of(alpha)
            scale += sizes[j][o] + (0 if task.sizes is task.R else length_of(w) * length_of(task.sizes[o]))
            found.append(Expected(level[j][o] + mp.fdot(k, alpha), scale, task.solved.condition))
        return found

    def covariance(self) -> list[Expected]:
        """Of the function, at each pair of points: relative to the prior's deviations there."""
        prior, condition, found = self.prior, self.task.solved.condition, []
        for i, j in product(range(len(prior)), repeat=2):
            left = prior[i][j] - mp.fdot(self.cross[i], self.weights[j])
            found.append(Expected(self.widening * left, self.rough * mp.sqrt(prior[i][i] * prior[j][j]), condition))
        return found

    def variance(self) -> list[Expected]:
        """Of an observation at each point."""
        n, noise, all_of_it = len(self.prior), mpf(self.task.model.noise), self.covariance()
        some = [all_of_it[(n + 1) * k] for k in range(n)]
        return [
            Expected(one.value + self.widening * noise, one.scale + self.rough * noise, one.condition) for one in some
        ]

    def joint(self, y: Float[Array, "n p"], y_at: Float[Array, "k p"], jitter: float) -> Expected | None:
        """Log density of all values at the points: what they add to the evidence. jitter: relative to their variance.

        None where it is no number.
        """
        task, count = self.task, len(y_at)
        unit = mp.fsum(self.prior[k][k] for k in range(count)) / count
        points, added = task.points.joined(self.points), [*task.added, *[mpf(jitter) * unit] * count]
        both = Task(task.model, points, np.concatenate([y, y_at]), added, task.n)
        if both.hopeless:
            return None
        whole, part = both.evidence()["evidence"], task.evidence()["evidence"]
        return Expected(whole.value - part.value, whole.scale + part.scale, max(whole.condition, part.condition))


def wanted(group: Group, k: int, jitter: float, joint_jitter: float) -> Wanted:
    """All that is exact of a group's k-th task."""
    with mp.workdps(DIGITS):
        (points, y), (at, y_at) = group.of(group.context, k), group.of(group.points, k)
        task = context_task(group.model, points, y, jitter)
        least = float(-task.p * task.solved.most_logdet() / 2)
        if task.hopeless:
            return Wanted({}, math.inf, least)
        posterior, n = Posterior(task, at), len(y_at)
        of_function, variance = posterior.covariance(), posterior.variance()
        covariance = list(of_function)
        covariance[:: n + 1] = variance
        found = {name: [value] for name, value in task.evidence().items()} | {
            "mean": posterior.mean(),
            "variance": variance,
            "function variance": of_function[:: n + 1],
            "covariance": covariance,
        }
        joint = posterior.joint(y, y_at, joint_jitter)
        found |= {} if joint is None else {"joint density": [joint]}
        return Wanted({name: as_values(some) for name, some in found.items()}, float(task.solved.condition), least)


def wanted_slopes(group: Group) -> dict[str, Values]:
    """The exact slopes of a group's summed evidence along the numbers of its model; none where a matrix is singular."""
    with mp.workdps(DIGITS):
        tasks = [context_task(group.model, *group.of(group.context, k), 0.0) for k in range(len(group.context))]
        if any(task.hopeless for task in tasks):
            return {}
        each = [gradient(task) for task in tasks]
        return {name: summed([as_values([one[name]]) for one in each]) for name in each[0]}


def as_values(some: Sequence[Expected]) -> Values:
    parts = zip(*((one.value, one.scale, one.condition) for one in some), strict=True)
    value, scale, condition = (np.array(part, dtype=object) for part in parts)
    return Values(value, scale, float(max(condition)))


def gradient(task: Task) -> dict[str, Expected]:
    """How the evidence rises with scale, lengthscale, noise and each level of the mean."""
    model, n = task.model, task.n
    eye = [[mpf(int(i == j)) for j in range(n)] for i in range(n)]
    K = kernel(model, task.points, task.points)
    slopes: dict[str, Matrix] = {
        "scale": [[value / mpf(model.scale) for value in row] for row in K],
        "length": _along_length(model, task.points),
        "noise": eye,
    }
    weight = mpf(1)
    if model.degrees is not None:
        weight = (mpf(model.degrees) + n * task.p) / (mpf(model.degrees) - 2 + task.beta[0])
    inverse = [task.solved.solve(row) for row in eye]
    rough = _rough(task, inverse)
    found = {name: _along(task, slope, inverse, weight, rough) for name, slope in slopes.items()}
    for o, alpha in enumerate(task.alphas):
        size = weight * (length_of(alpha) + rough) * mp.sqrt(n)
        found[f"level {o}"] = Expected(weight * mp.fsum(alpha), size, task.solved.condition)
    return found


def _rough(task: Task, inverse: Matrix) -> Number:
    """What rounding of a mean that is summed from large parts does to `A⁻¹ r`, relative to rounding."""
    if task.sizes is task.R:
        return mpf(0)
    return length_of([value for row in inverse for value in row]) * max(length_of(size) for size in task.sizes)


def _along_length(model: Model, points: Points) -> Matrix:
    """How covariances rise with the lengthscale. Pairs that an exponential kernel takes for one point do not."""
    length, h, n = mpf(model.length), mpf(10) ** -25, len(points.x)
    with mp.workdps(2 * DIGITS):  # points 1e-15 apart have covariances that differ from others in the 60th digit
        longer, shorter = (kernel(model, points, points, length=length * (1 + s * h)) for s in (1, -1))
        found = [[(longer[i][j] - shorter[i][j]) / (2 * h * length) for j in range(n)] for i in range(n)]
    if model.shape == "exponential":
        z = exactly(points.places)
        for i, j in product(range(n), repeat=2):
            if sum(((a - b) / length) ** 2 for a, b in zip(z[i], z[j], strict=True)) <= ONE_POINT:
                found[i][j] = mpf(0)
    return found


def _along(task: Task, slope: Matrix, inverse: Matrix, weight: Number, rough: Number) -> Expected:
    """`½ (w ααᵀ − p A⁻¹)` against dA."""
    least = vanishing(mpf(task.model.scale)) * (1 + 1 / mpf(task.model.length))
    flat = [value for row in slope for value in row]
    trace = mp.fdot([value for row in inverse for value in row], flat)
    fit = mp.fsum(mp.fdot(alpha, [mp.fdot(row, alpha) for row in slope]) for alpha in task.alphas)
    sizes = weight * mp.fsum(length_of(alpha) * (length_of(alpha) + rough) for alpha in task.alphas)
    sizes += task.p * length_of([value for row in inverse for value in row])
    return Expected((weight * fit - task.p * trace) / 2, sizes * (length_of(flat) + least) / 2, task.solved.condition)
