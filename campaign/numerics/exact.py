"""The same problems in as many digits as it takes (mpmath), with the scale that each answer's error is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float
from mpmath import mp, mpf

from campaign.numerics.drawn import Model, Points
from campaign.numerics.wanted import ROUNDING
from metaprior.arrays import Array

DIGITS = 60
HOPELESS = mpf(10) ** 30
"""Condition number from which on a matrix counts as singular."""

Number = Any
Matrix = list[list[Number]]


@dataclass(frozen=True)
class Expected:
    """An exact value, what its error is relative to, and the condition number that the tolerance follows from."""

    value: Number
    scale: Number
    condition: Number


def exactly(rows: Float[Array, "n k"]) -> Matrix:
    return [[mpf(float(value)) for value in row] for row in rows]


class Solved:
    """`A = L Lᵀ` of a symmetric positive definite matrix, with its eigenvalues."""

    def __init__(self, A: Matrix) -> None:
        self.A, self.n = A, len(A)
        found = mp.eigsy(mp.matrix(A), eigvals_only=True) if A else []
        self.eigenvalues = [found[k] for k in range(self.n)]
        self.largest = max(self.eigenvalues, default=mpf(1))
        least = min(self.eigenvalues, default=mpf(1))
        singular = least <= self.largest / HOPELESS
        self.condition = HOPELESS if singular else self.largest / least
        self.L = None if singular else _cholesky(A)

    @property
    def logdet(self) -> Number:
        return mp.fsum(mp.log(value) for value in self.eigenvalues)

    @property
    def spread(self) -> Number:
        """`Σ |log λ|`, and 1 for each."""
        return mp.fsum(abs(mp.log(value)) + 1 for value in self.eigenvalues)

    def most_logdet(self) -> Number:
        """The most that `log|A|` can be, however A was rounded: what holds where no digit of it is promised."""
        return mp.fsum(mp.log(max(value, 0) + 100 * ROUNDING * self.largest) for value in self.eigenvalues)

    def half(self, b: Sequence[Number]) -> list[Number]:
        """`L⁻¹ b`."""
        assert self.L is not None
        found: list[Number] = []
        for row, value in zip(self.L, b, strict=True):
            found.append((value - mp.fdot(row[: len(found)], found)) / row[len(found)])
        return found

    def solve(self, b: Sequence[Number]) -> list[Number]:
        """`A⁻¹ b`."""
        assert self.L is not None
        half, found = self.half(b), [mpf(0)] * self.n
        for i in reversed(range(self.n)):
            below = mp.fdot((self.L[k][i] for k in range(i + 1, self.n)), found[i + 1 :])
            found[i] = (half[i] - below) / self.L[i][i]
        return found


def _cholesky(A: Matrix) -> Matrix:
    L: Matrix = []
    for i, row in enumerate(A):
        own: list[Number] = []
        for j in range(i):
            own.append((row[j] - mp.fdot(own, L[j][:j])) / L[j][j])
        own.append(mp.sqrt(row[i] - mp.fdot(own, own)))
        L.append(own)
    return L


def length_of(values: Sequence[Number]) -> Number:
    return mp.sqrt(mp.fdot(values, values))


def kernel(model: Model, one: Points, two: Points, length: Number = None, scale: Number = None) -> Matrix:
    """`k(x, x')`."""
    length, scale = mpf(model.length) if length is None else length, mpf(model.scale) if scale is None else scale
    F1, F2, Z1, Z2 = (exactly(part) for part in (one.functions, two.functions, one.places, two.places))
    found = [[mp.fdot(f, g) for g in F2] for f in F1]
    if model.shape is not None:
        found = [
            [inner + scale * _shape(model.shape, z, w, length) for inner, w in zip(row, Z2, strict=True)]
            for row, z in zip(found, Z1, strict=True)
        ]
    return found


def _shape(name: str, z: Sequence[Number], w: Sequence[Number], length: Number) -> Number:
    square = mp.fsum(((a - b) / length) ** 2 for a, b in zip(z, w, strict=True))
    if name == "rbf":
        return mp.exp(-square / 2)
    distance = mp.sqrt(square if name == "exponential" else 5 * square)
    decay = mp.exp(-distance)
    return decay if name == "exponential" else (1 + distance + distance**2 / 3) * decay


def mean(model: Model, points: Points) -> tuple[Matrix, Matrix]:
    """The mean at each point, and the size of what it is summed from."""
    if points.mean is not None:
        said = exactly(points.mean)
        return said, [[abs(value) for value in row] for row in said]
    level = [mpf(float(value)) for value in model.level]
    if model.weights.size == 0:
        return [level for _ in points.x], [[abs(value) for value in level] for _ in points.x]
    W = exactly(model.weights.T)
    values = [[b + mp.fdot(w, x) for w, b in zip(W, level, strict=True)] for x in exactly(points.x)]
    sizes = [
        [abs(b) + mp.fsum(abs(c * a) for c, a in zip(w, x, strict=True)) for w, b in zip(W, level, strict=True)]
        for x in exactly(points.x)
    ]
    return values, sizes


def with_diagonal(K: Matrix, added: Sequence[Number]) -> Matrix:
    return [[value + (added[i] if i == j else 0) for j, value in enumerate(row)] for i, row in enumerate(K)]


class Task:
    """One task's points: their matrix factored, and its evidence. added: to the diagonal, as jitter.

    told_from: the first of the points whose mean was rounded before it was taken off y, as a posterior's is.
    """

    def __init__(
        self,
        model: Model,
        points: Points,
        y: Float[Array, "n p"],
        added: Sequence[Number],
        told_from: int | None = None,
    ) -> None:
        self.model, self.points, self.added = model, points, added
        self.solved = Solved(with_diagonal(kernel(model, points, points), [mpf(model.noise) + one for one in added]))
        m, sizes = mean(model, points)
        Y = exactly(y)
        self.p, self.n = len(Y[0]), len(Y)
        # one subtraction is rounded once; a mean that is summed from larger parts has their rounding
        self.R = self.sizes = [[Y[i][o] - m[i][o] for i in range(self.n)] for o in range(self.p)]
        first = 0 if points.mean is None and model.weights.size else told_from
        if first is not None:
            self.sizes = [
                [abs(r[i]) + (sizes[i][o] if i >= first else 0) for i in range(self.n)] for o, r in enumerate(self.R)
            ]

    @property
    def hopeless(self) -> bool:
        return self.solved.L is None

    @cached_property
    def alphas(self) -> list[list[Number]]:
        """`A⁻¹ r` of each output."""
        return [self.solved.solve(r) for r in self.R]

    @cached_property
    def beta(self) -> tuple[Number, Number]:
        """`rᵀA⁻¹r` over all outputs, and what its error is relative to."""
        found = mp.fsum(mp.fdot(alpha, r) for alpha, r in zip(self.alphas, self.R, strict=True))
        if self.sizes is self.R:
            return found, found
        pairs = zip(self.alphas, self.sizes, strict=True)
        return found, found + mp.fsum(length_of(alpha) * length_of(size) for alpha, size in pairs)

    def evidence(self) -> dict[str, Expected]:
        """The three terms and their sum."""
        solved, p, n = self.solved, self.p, self.n
        fit, fit_scale, normaliser = self._terms(*self.beta, mpf(p * n))
        complexity, spread = -p * solved.logdet / 2, p * solved.spread / 2
        whole = fit_scale + spread + abs(normaliser)
        condition = solved.condition
        return {
            "data fit": Expected(fit, fit_scale, condition),
            "complexity": Expected(complexity, spread, condition),
            "normaliser": Expected(normaliser, abs(normaliser) + p * n, mpf(1)),
            "evidence": Expected(fit + complexity + normaliser, whole, condition),
        }

    def _terms(self, beta: Number, rough: Number, count: Number) -> tuple[Number, Number, Number]:
        """Data fit, its scale, and normaliser."""
        if self.model.degrees is None:
            return -beta / 2, rough / 2, -count * mp.log(2 * mp.pi) / 2
        return student_terms(beta, rough, count, mpf(self.model.degrees))


def student_terms(beta: Number, rough: Number, count: Number, nu: Number) -> tuple[Number, Number, Number]:
    fit = -(nu + count) / 2 * mp.log1p(beta / (nu - 2))
    scale = abs(fit) + (nu + count) / 2 * rough / (nu - 2 + beta)
    normaliser = mp.loggamma((nu + count) / 2) - mp.loggamma(nu / 2) - count / 2 * mp.log((nu - 2) * mp.pi)
    return fit, scale, normaliser
