"""Mixed effects: a B-spline mean and random curves of low rank in the same basis, by EM.

y = B(x) (b + L a) + e with a ~ N(0, I) for each task and e ~ N(0, s²). The number of basis functions and the rank are
those of the highest joint density of held-out tasks, in three folds. NumPy and SciPy alone: a yardstick of seconds too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.interpolate import BSpline

from small_tables.protocol import Array, Gaussian, Pair, Predict
from small_tables.units import Units

FUNCTIONS, RANKS = (2, 4, 6, 8, 11), (1, 2, 3, 5)
FOLDS, TRIAL, ROUNDS = 3, 40, 150
RIDGE, LEAST_NOISE = 1e-3, 1e-5


class Basis:
    """Cubic B-splines of the first input, constant beyond the past range; further inputs and their squares."""

    def __init__(self, x: Array, functions: int) -> None:
        self.low, self.high = x.min(0), x.max(0)
        degree = min(3, functions - 1)
        shares = np.linspace(0, 1, functions - degree + 1)[1:-1]
        even = self.low[0] + shares * (self.high[0] - self.low[0])
        inner = np.unique((np.quantile(x[:, 0], shares) + even) / 2)  # knots both where points are and where none is
        ends = (np.full(degree + 1, self.low[0]), np.full(degree + 1, self.high[0]))
        self.spline = BSpline(np.r_[ends[0], inner, ends[1]], np.eye(len(inner) + degree + 1), degree)

    def __call__(self, x: Array) -> Array:
        inside = np.clip(x, self.low, self.high)
        return np.concatenate([self.spline(inside[:, 0]), inside[:, 1:], inside[:, 1:] ** 2], 1)


class Moments(NamedTuple):
    """All that EM asks of each task: BᵀB, Bᵀy, yᵀy and the number of points."""

    gram: Array
    by: Array
    yy: Array
    points: Array

    @classmethod
    def of(cls, tasks: Sequence[Pair], basis: Basis) -> Self:
        designs = [basis(x) for x, _ in tasks]
        by = np.stack([design.T @ y for design, (_, y) in zip(designs, tasks, strict=True)])
        yy = np.array([y @ y for _, y in tasks])
        return cls(np.stack([one.T @ one for one in designs]), by, yy, np.array([len(y) for _, y in tasks], float))

    def some(self, which: Array) -> Moments:
        return Moments(*(part[which] for part in self))


class Curves:
    """Mean b, loadings L and noise s², learned from the moments of tasks."""

    def __init__(self, tasks: Moments, rank: int, rounds: int) -> None:
        p = tasks.by.shape[1]
        self.b = np.linalg.solve(tasks.gram.sum(0) + RIDGE * np.eye(p), tasks.by.sum(0))
        self.noise = 0.1
        own = np.linalg.solve(tasks.gram + np.eye(p), (tasks.by - tasks.gram @ self.b)[..., None])[..., 0]
        _, sizes, directions = np.linalg.svd(own / math.sqrt(len(own)), full_matrices=False)
        start = directions[:rank].T * np.maximum(sizes[:rank], 1e-3)
        self.loadings = np.pad(start, ((0, 0), (0, min(rank, p) - start.shape[1])), constant_values=1e-3)
        for _ in range(rounds):
            self._improve(tasks)

    def scores(self, tasks: Moments) -> tuple[Array, Array, Array]:
        """Of each task: Lᵀ Bᵀ(y − B b), and mean and covariance of a."""
        along = (tasks.by - tasks.gram @ self.b) @ self.loadings
        precision = np.eye(self.loadings.shape[1]) + self.loadings.T @ tasks.gram @ self.loadings / self.noise
        covariance = np.linalg.inv(precision)
        return along, (covariance @ along[..., None])[..., 0] / self.noise, covariance

    def _improve(self, tasks: Moments) -> None:
        """A round of EM: b and L are learned together, as the coefficients of (1, a)."""
        _, a, covariance = self.scores(tasks)
        n, p = tasks.by.shape
        one = np.concatenate([np.ones((n, 1)), a], 1)
        second = one[:, :, None] * one[:, None, :]
        second[:, 1:, 1:] += covariance
        q = one.shape[1]
        normal = np.tensordot(tasks.gram, second, (0, 0)).transpose(0, 2, 1, 3).reshape(p * q, p * q)
        found = np.linalg.solve(normal + RIDGE * np.eye(p * q), (tasks.by.T @ one).reshape(-1)).reshape(p, q)
        self.b, self.loadings = found[:, 0], found[:, 1:]
        explained = 2 * np.sum((tasks.by @ found) * one) - np.sum((found.T @ tasks.gram @ found) * second)
        self.noise = max(float(tasks.yy.sum() - explained) / float(tasks.points.sum()), LEAST_NOISE)

    def log_density(self, tasks: Moments) -> float:
        """Of all values together, per value."""
        along, a, covariance = self.scores(tasks)
        rest = tasks.yy - 2 * tasks.by @ self.b + np.einsum("i,nij,j->n", self.b, tasks.gram, self.b)
        distance = (rest - np.sum(along * a, 1)) / self.noise
        log_det = tasks.points * math.log(2 * math.pi * self.noise) - np.linalg.slogdet(covariance)[1]
        return float(-0.5 * np.sum(distance + log_det) / tasks.points.sum())


def fit(train: Sequence[Pair]) -> Predict:
    units = Units.of(train)
    tasks = units.scaled(train)
    functions, rank = _sizes(tasks)
    basis = Basis(np.concatenate([x for x, _ in tasks]), functions)
    curves = Curves(Moments.of(tasks, basis), rank, ROUNDS)

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Gaussian:
        _, a, covariance = curves.scores(Moments.of(units.scaled(contexts), basis))
        means, variances = [], []
        for x, own, spread in zip(inputs, a, covariance, strict=True):
            design = basis(units.x(x))
            along = design @ curves.loadings
            means.append(design @ curves.b + along @ own)
            variances.append(np.sum((along @ spread) * along, 1) + curves.noise)
        return units.back(np.concatenate(means), np.concatenate(variances))

    return predict


def _sizes(tasks: Sequence[Pair]) -> tuple[int, int]:
    """Number of basis functions and rank."""
    fold = np.random.default_rng(0).permutation(len(tasks)) % FOLDS
    x = np.concatenate([one for one, _ in tasks])
    best, chosen = -math.inf, (4, 1)
    for functions in FUNCTIONS:
        moments = Moments.of(tasks, Basis(x, functions))
        for rank in (rank for rank in RANKS if rank <= functions):
            density = 0.0
            for k in range(FOLDS):
                density += Curves(moments.some(fold != k), rank, TRIAL).log_density(moments.some(fold == k))
            if density > best:
                best, chosen = density, (functions, rank)
    return chosen
