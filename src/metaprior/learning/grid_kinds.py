"""Kinds of tasks that share one grid: each kind is probabilistic PCA (Tipping and Bishop 1999) of its weighted tasks.

With `B = Q R`, Q orthonormal, a task is its coordinates `Qᵀy` and what lies outside the span of the basis. In them the
M-step is an eigenproblem of a weighted scatter, and the E-step one product of all tasks with all kinds' components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NumericalError, numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.em import MixedEffects
from metaprior.priors import Basis
from metaprior.tasks import Tasks

NEGLIGIBLE = 1e-8
"""Responsibility below which a task has no say in a kind."""

AT_ONCE = 2048
"""Rows whose products are taken together: what they make stays in the cache, and no large array is made anew …"""

ON_GPU = 65_536
"""… and on a GPU, where it is the calls that cost."""

MANY, SINGLE = 10_000_000, 1e-3
"""So many coordinates are kept in single precision, where no kind has less noise than this (of targets of variance 1):
its rounding errors are then a thousandth of a nat a task."""

BEYOND = 12
"""Directions that are followed beyond those of the rank, which then settle sooner."""

SEVERAL = 4
"""Directions are followed where there are so many times as many coordinates; else all are computed."""

TURNS, FIRST_TURNS = 2, 5
"""Turns of the subspace iteration in a round, from where the last one ended, and in the first."""


class GridKind(NamedTuple):
    """A kind in the coordinates of the grid, and the orthonormal directions that its next round goes on from."""

    mean: Float[Tensor, "q p"]
    loadings: Float[Tensor, "q r"]
    noise: float
    span: Float[Tensor, "q k"] | None


@dataclass(frozen=True, eq=False)
class GridDesigns:
    """What each task on one grid says about any model in a basis."""

    root: Float[Tensor, "c q"]  # R
    rows: Float[Tensor, "mp c"]  # Qᵀy of each task and output, in one row
    outside: Float[Tensor, " m"]  # what is left of yᵀy, over the outputs
    n: int
    p: int

    @staticmethod
    def of(basis: Basis, tasks: Tasks, least_noise: float = 0.0, device: torch.device | None = None) -> GridDesigns:
        """Of all tasks, on a device. least_noise: no model that is asked about has less."""
        m, n, p = len(tasks), int(tasks.sizes[0]), tasks.p
        B, y = basis(tasks.x[:n]).to(device), tasks.y.to(device).view(m, n, p)
        found = GridDesigns.of_values(y)
        if n > basis.size:
            Q, B = torch.linalg.qr(B)
            inside = found.rows @ Q
            gone = found.rows.square().sum(1) - inside.square().sum(1)
            found = replace(found, rows=inside, outside=gone.clamp(min=0.0).view(m, p).sum(1))
        rows = found.rows.float() if found.rows.numel() > MANY and least_noise >= SINGLE else found.rows
        return replace(found, root=B, rows=rows)

    @staticmethod
    def of_values(y: Float[Tensor, "m n p"]) -> GridDesigns:
        """Of tasks with these values on a grid, which are their coordinates themselves: Q = I."""
        m, n, p = y.shape
        eye = torch.eye(n, dtype=torch.float64, device=y.device)
        return GridDesigns(eye, y.mT.reshape(-1, n), eye.new_zeros(m), n, p)

    def __len__(self) -> int:
        return len(self.outside)

    @property
    def _at_once(self) -> int:
        """Rows whose products are taken together."""
        return AT_ONCE if self.rows.device.type == "cpu" else ON_GPU

    @cached_property
    def squares(self) -> Float[Tensor, " m"]:
        """yᵀy of each task, over its outputs."""
        inside = torch.cat([part.double().square().sum(1) for part in self.rows.split(self._at_once)])
        return self.outside + inside.view(-1, self.p).sum(1)

    @numerical("the evidence of the tasks under a kind")
    def evidences(self, models: Sequence[MixedEffects | GridKind]) -> Float[Tensor, "m c"]:
        """The evidence of each task under each model."""
        kinds = [self._placed(model) for model in models]
        most, p = max(kind.loadings.shape[1] for kind in kinds), self.p
        through = self.root.new_zeros(len(self.root), len(kinds), most)
        logdet = self.root.new_empty(len(kinds))
        for c, (_, W, noise, _) in enumerate(kinds):
            r = W.shape[1]
            L, info = torch.linalg.cholesky_ex(W.mT @ W + noise * torch.eye(r, dtype=W.dtype, device=W.device))
            if bool(info.any()):
                raise NumericalError("the scores' covariance is not positive definite: use fewer components.")
            through[:, c, :r] = torch.linalg.solve_triangular(L, W.mT, upper=False).mT
            logdet[c] = 2 * L.diagonal().log().sum() + (self.n - r) * math.log(noise)
        means = torch.stack([kind.mean for kind in kinds], 1)  # [q, c, p]
        noises = means.new_tensor([kind.noise for kind in kinds])
        shifts = torch.einsum("qcr,qcp->pcr", through, means).to(self.rows)
        flat = torch.cat([through.flatten(1), means.flatten(1)], 1).to(self.rows)
        rest = means.square().sum((0, 2))
        found = means.new_empty(len(self), len(kinds))
        step = max(self._at_once // p, 1)
        for first in range(0, len(self), step):
            rows = self.rows[first * p : (first + step) * p]
            said = rows @ flat
            scores = said[:, : len(kinds) * most].view(-1, p, len(kinds), most).sub_(shifts)
            explained = scores.square_().sum((1, 3)).double()
            along = said[:, len(kinds) * most :].view(-1, p, len(kinds), p).diagonal(dim1=1, dim2=3).sum(-1)
            left = self.squares[first : first + step, None] - 2 * along.double() + rest - explained
            found[first : first + step] = left / noises
        return -0.5 * (found + p * (logdet + self.n * LOG_2PI))

    def evidence(self, model: MixedEffects | GridKind) -> Float[Tensor, " m"]:
        """The evidence of each task under a model."""
        return self.evidences([model])[:, 0]

    @numerical("the mean function and the components of a kind")
    def maximised(
        self, weights: Float[Tensor, " m"], rank: int, floor: float, kind: GridKind | None = None
    ) -> GridKind:
        """The kind that weighted tasks are best explained by; kind: what it was, to go on from there."""
        mean, scatter, total = self._moments(weights)
        span = None if kind is None else kind.span
        values, vectors = self._leading(scatter, rank, span)
        left = self.n - rank
        noise = max((total - float(values[:rank].sum())) / left, floor) if left > 0 else floor
        loadings = vectors[:, :rank] * (values[:rank] - noise).clamp(min=0.0).sqrt()
        return GridKind(mean, loadings, noise, vectors if vectors.shape[1] < len(scatter) else None)

    def all_maximised(
        self, weights: Float[Tensor, "m c"], ranks: Sequence[int], floor: float, kinds: Sequence[GridKind | None]
    ) -> list[GridKind]:
        """The kinds that weighted tasks are best explained by, one for each column of weights."""
        given = zip(weights.unbind(1), ranks, kinds, strict=True)
        return [self.maximised(own, rank, floor, kind) for own, rank, kind in given]

    def scores(self, rank: int, floor: float) -> tuple[Float[Tensor, "m r p"], Float[Tensor, "c r"]]:
        """The mean of each task's scores under one model for all, and its loadings."""
        mean, W, noise, _ = self.maximised(torch.ones_like(self.outside), rank, floor)
        through = W / (W.square().sum(0) + noise)  # the loadings are orthogonal
        parts = [(part @ through.to(part)).double() for part in self.rows.split(self._at_once)]
        return (torch.cat(parts).view(len(self), self.p, -1) - mean.mT @ through).mT, W

    @property
    def values(self) -> float:
        """How many there are in all."""
        return float(len(self.rows) * self.n)

    def in_basis(self, kinds: Sequence[GridKind]) -> list[MixedEffects]:
        """The same kinds as models in the basis."""
        self._check_determined()
        columns = torch.cat([torch.cat([kind.mean, kind.loadings], 1) for kind in kinds], 1)
        sizes = [self.p + kind.loadings.shape[1] for kind in kinds]
        parts = torch.linalg.solve(self.root, columns).split(sizes, 1)
        return [
            MixedEffects(part[:, : self.p].contiguous(), part[:, self.p :].contiguous(), kind.noise)
            for part, kind in zip(parts, kinds, strict=True)
        ]

    def _placed(self, model: MixedEffects | GridKind) -> GridKind:
        if isinstance(model, GridKind):
            return model
        return GridKind(self.root @ model.mean, self.root @ model.loadings, model.noise, None)

    def _moments(self, weights: Float[Tensor, " m"]) -> tuple[Float[Tensor, "q p"], Float[Tensor, "q q"], float]:
        """Mean and scatter of weighted tasks, and their whole variance: outside the span of the basis too."""
        some = torch.nonzero(weights > NEGLIGIBLE)[:, 0]
        size, p = float(weights[some].sum()), self.p
        each = torch.arange(p, device=some.device)
        mean = self.outside.new_zeros(p, self.rows.shape[1])
        scatter = self.outside.new_zeros(self.rows.shape[1], self.rows.shape[1])
        which = [(part[:, None] * p + each).flatten() for part in some.split(max(self._at_once // p, 1))]
        for part in which:
            w = weights[part[::p] // p].to(self.rows)
            mean += torch.einsum("k,kpq->pq", w, self.rows[part].view(-1, p, self.rows.shape[1])).double()
        mean /= size
        for part in which:
            w = weights[part // p].sqrt().to(self.rows)
            rows = (self.rows[part].view(-1, p, self.rows.shape[1]) - mean.to(self.rows)).flatten(0, 1)
            rows *= w[:, None]
            scatter += rows.mT @ rows
        outside = float((weights[some] * self.outside[some]).sum())
        return mean.mT, scatter / (size * p), float(scatter.diagonal().sum() + outside) / (size * p)

    def _leading(
        self, scatter: Float[Tensor, "q q"], rank: int, span: Float[Tensor, "q k"] | None
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "q k"]]:
        """Eigenvalues and vectors, the largest first: all, or some more than the rank by subspace iteration.

        A turn is a step of EM, after which the best model within the same directions is taken (Rayleigh and Ritz):
        the evidence rises in each.
        """
        count = rank + BEYOND
        if SEVERAL * count > len(scatter):
            values, vectors = torch.linalg.eigh(scatter)
            return values.flip(0).clamp(min=0.0), vectors.flip(1)
        known = None if span is None or span.shape[1] < count else span
        vectors = (self._common if known is None else known)[:, :count]
        for _ in range(FIRST_TURNS if known is None else TURNS):
            vectors = torch.linalg.qr(scatter @ vectors)[0]
        values, turned = torch.linalg.eigh(vectors.mT @ (scatter @ vectors))
        return values.flip(0).clamp(min=0.0), vectors @ turned.flip(1)

    @cached_property
    def _common(self) -> Float[Tensor, "q q"]:
        """The directions in which all tasks together vary, the leading first."""
        _, scatter, _ = self._moments(torch.ones_like(self.outside))
        vectors: Tensor = torch.linalg.eigh(scatter).eigenvectors
        return vectors.flip(1)

    def _check_determined(self) -> None:
        singular = len(self.root) < self.root.shape[1]
        if singular or torch.linalg.cholesky_ex(self.root.mT @ self.root).info:
            raise DataError(
                "the tasks do not determine every function of the basis: some have no points where they differ from "
                "zero. Use fewer basis functions."
            )
