"""The exact posterior of a task at points, and the exact gradient of its evidence."""

from __future__ import annotations

from itertools import product

import numpy as np
from jaxtyping import Float
from mpmath import mp, mpf

from campaign.numerics.drawn import Model, Points
from campaign.numerics.exact import Expected, Matrix, Number, Task, kernel, length_of, mean
from metaprior.arrays import Array

VANISHING = mpf(10) ** -290
"""Share of the prior's variance that a covariance is no longer judged by: an exponential vanishes at 1e-308."""


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
            scale += VANISHING * self.prior[j][j] * length_of(alpha)
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
        points, added = joined(task.points, self.points), [*task.added, *[mpf(jitter) * unit] * count]
        both = Task(task.model, points, np.concatenate([y, y_at]), added, task.n)
        if both.hopeless:
            return None
        whole, part = both.evidence()["evidence"], task.evidence()["evidence"]
        return Expected(whole.value - part.value, whole.scale + part.scale, max(whole.condition, part.condition))


def joined(one: Points, two: Points) -> Points:
    said = None if one.mean is None or two.mean is None else np.concatenate([one.mean, two.mean])
    parts = [(one.x, two.x), (one.functions, two.functions), (one.places, two.places)]
    return Points(*(np.concatenate(pair) for pair in parts), said)


def gradient(task: Task) -> dict[str, Expected]:
    """How the evidence rises with scale, lengthscale, noise and each level of the mean."""
    model, n, h = task.model, task.n, mpf(10) ** -25
    length, scale = mpf(model.length), mpf(model.scale)
    longer, shorter = (kernel(model, task.points, task.points, length=length * (1 + s * h)) for s in (1, -1))
    eye = [[mpf(int(i == j)) for j in range(n)] for i in range(n)]
    K = kernel(model, task.points, task.points)
    slopes: dict[str, Matrix] = {
        "scale": [[value / scale for value in row] for row in K],
        "length": [[(a - b) / (2 * h * length) for a, b in zip(*rows, strict=True)] for rows in zip(longer, shorter, strict=True)],
        "noise": eye,
    }
    weight = mpf(1)
    if model.degrees is not None:
        weight = (mpf(model.degrees) + n * task.p) / (mpf(model.degrees) - 2 + task.beta[0])
    inverse = [task.solved.solve(row) for row in eye]
    found = {name: _along(task, slope, inverse, weight) for name, slope in slopes.items()}
    for o, alpha in enumerate(task.alphas):
        size = weight * length_of(alpha) * mp.sqrt(n)
        found[f"level {o}"] = Expected(weight * mp.fsum(alpha), size, task.solved.condition)
    return found


def _along(task: Task, slope: Matrix, inverse: Matrix, weight: Number) -> Expected:
    """`½ (w ααᵀ − p A⁻¹)` against dA."""
    flat = [value for row in slope for value in row]
    trace = mp.fdot([value for row in inverse for value in row], flat)
    fit = mp.fsum(mp.fdot(alpha, [mp.fdot(row, alpha) for row in slope]) for alpha in task.alphas)
    sizes = weight * mp.fsum(mp.fdot(alpha, alpha) for alpha in task.alphas)
    sizes += task.p * length_of([value for row in inverse for value in row])
    return Expected((weight * fit - task.p * trace) / 2, sizes * length_of(flat) / 2, task.solved.condition)
