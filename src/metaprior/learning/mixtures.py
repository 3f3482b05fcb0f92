"""EM for a mixture of reduced-rank mixed-effects models: tasks that come in kinds, which nobody has labelled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import NumericalError, numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.em import Block, Designs, MixedEffects, designed, fit_em, start_of
from metaprior.priors import Basis
from metaprior.tasks import Tasks, on_one_grid, padded

ROUNDS = 15
"""Between an E-step over the kinds and the next."""

LEAST = 5.0
"""Tasks' worth of responsibility below which a kind has collapsed: it is taken out, and that is said. The largest kind
stays, however few tasks there are."""

NEGLIGIBLE = 1e-8
"""Responsibility below which a task has no say in a kind."""

INNER = 3
"""EM steps of each kind's own model in one round, where it has no closed form."""


@dataclass(frozen=True, eq=False)
class TaskDesigns:
    """What each task says about any model in a basis: its Gram matrix, `h = Bᵀy` and `yᵀy`."""

    points: Float[Tensor, " m"]
    gram: Float[Tensor, "g q q"]  # one for all (g = 1), or one for each
    projected: Float[Tensor, "m q p"]
    squares: Float[Tensor, " m"]

    @staticmethod
    def of(basis: Basis, tasks: Tasks) -> TaskDesigns:
        """Of all tasks."""
        if on_one_grid(tasks):
            m, n = len(tasks), int(tasks.sizes[0])
            B, y = basis(tasks.x[:n]), tasks.y.view(m, n, tasks.p)
            points = torch.full((m,), float(n), dtype=torch.float64)
            projected = (y.mT.reshape(-1, n) @ B).reshape(m, tasks.p, -1).mT  # one product, not one for each task
            return TaskDesigns(points, (B.mT @ B)[None], projected, y.square().sum((1, 2)))
        laid_out = padded(tasks)
        order = torch.cat([batch.tasks for batch in laid_out]).argsort()
        gram, projected = (
            torch.cat(part)[order] for part in zip(*(designed(basis, one) for one in laid_out), strict=True)
        )
        return TaskDesigns(tasks.sizes.double(), gram, projected, tasks.summed(tasks.y.square().sum(1)))

    def weighted(self, weights: Float[Tensor, " m"]) -> Designs:
        """The same for the M-step, each task counting with its weight."""
        some = torch.nonzero(weights > NEGLIGIBLE)[:, 0]  # most tasks are of one kind
        w, h, points = weights[some], self.projected[some], self.points[some]
        if len(self.gram) == 1:
            total = torch.einsum("k,kqp->qp", w, h)
            flat = (h * w[:, None, None].sqrt()).permute(1, 0, 2).reshape(h.shape[1], -1)
            block = Block(w.sum()[None], points[:1], self.gram, total[None], (flat @ flat.mT)[None])
        else:
            block = Block(w, points, self.gram[some], w[:, None, None] * h, None)
        values, squares = float((w * points).sum()) * h.shape[2], float((w * self.squares[some]).sum())
        return Designs((block,), float(w.sum()), values, squares)

    @numerical("the evidence of the tasks under a kind")
    def evidence(self, model: MixedEffects) -> Float[Tensor, " m"]:
        """The evidence of each task under a model."""
        beta, W, noise = model
        r, p = W.shape[1], beta.shape[1]
        Gb, L = self.gram @ beta, model.factor(self.gram)
        if len(self.gram) == 1:
            through = torch.linalg.solve_triangular(L[0], W.mT, upper=False)
            inner = ((self.projected - Gb).mT.reshape(-1, len(beta)) @ through.mT).reshape(-1, p, r).mT
        else:
            inner = torch.linalg.solve_triangular(L, W.mT @ (self.projected - Gb), upper=False)
        rest = self.squares - 2 * (beta * self.projected).sum((1, 2)) + (beta * Gb).sum((1, 2))
        quadratic = (rest - inner.square().sum((1, 2))) / noise
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (self.points - r) * math.log(noise)
        found: Tensor = -0.5 * (quadratic + p * (logdet + self.points * LOG_2PI))
        return found

    def scores(self, model: MixedEffects) -> Float[Tensor, "m r p"]:
        """The mean of each task's scores z, given its points."""
        residual = self.projected - self.gram @ model.mean
        return torch.cholesky_solve(model.loadings.mT @ residual, model.factor(self.gram))


class KindsFit(NamedTuple):
    """The kinds' models and shares, the evidence before each round and at the end, and what collapsed on the way."""

    models: tuple[MixedEffects, ...]
    shares: tuple[float, ...]
    evidence: tuple[float, ...]
    notes: tuple[str, ...]


@torch.no_grad()
def fit_kinds(
    designs: TaskDesigns, start: Float[Tensor, "m c"], rank: int, *, floor: float, rounds: int = ROUNDS
) -> KindsFit:
    """EM from given responsibilities. Each round fits every kind to the tasks by how much they are of it."""
    responsible, trace, notes = start, [], []
    count = len(start)
    models: list[MixedEffects | None] = [None] * start.shape[1]
    for _ in range(rounds):
        kept = _large_enough(responsible.sum(0))
        if len(kept) < responsible.shape[1]:
            lost = responsible.shape[1] - len(kept)
            notes.append(f"{lost} of {responsible.shape[1]} kinds collapsed and were taken out")
            models = [models[c] for c in kept]
            responsible = responsible[:, kept] + 1e-12  # a task of a kind that is gone may be of any other
            responsible = responsible / responsible.sum(1, keepdim=True)
        models = [_maximised(designs, responsible[:, c], rank, floor, models[c]) for c in range(len(models))]
        log_joint = (responsible.sum(0) / count).log() + kind_evidences(designs, models)  # type: ignore[arg-type]
        trace.append(float(log_joint.logsumexp(1).sum()))
        if not math.isfinite(trace[-1]):
            raise NumericalError("the evidence of the tasks is not finite under any kind: values too large, or NaN.")
        responsible = torch.softmax(log_joint, 1)
        if len(trace) > 1 and trace[-1] - trace[-2] < 1e-4 * abs(trace[-1]):
            break
    shares = (responsible.sum(0) / count).clamp(min=1e-300).tolist()
    return KindsFit(tuple(model for model in models if model is not None), tuple(shares), tuple(trace), tuple(notes))


@torch.no_grad()
def kind_evidences(designs: TaskDesigns, models: Sequence[MixedEffects]) -> Float[Tensor, "m c"]:
    """The evidence of each task under each kind."""
    return torch.stack([designs.evidence(model) for model in models], 1)


def _large_enough(sizes: Float[Tensor, " c"]) -> list[int]:
    """Which kinds have tasks enough to stay."""
    return torch.nonzero((sizes >= LEAST) | (torch.arange(len(sizes)) == sizes.argmax()))[:, 0].tolist()


def _maximised(
    designs: TaskDesigns, weights: Float[Tensor, " m"], rank: int, floor: float, model: MixedEffects | None
) -> MixedEffects:
    weighted = designs.weighted(weights)
    most = max(min(rank, int(weighted.tasks / 2)), 1)
    if weighted.one_grid:
        return start_of(weighted, most, floor)
    start = model if model is not None and model.loadings.shape[1] == most else None
    return fit_em(weighted, most, start=start, floor=floor, max_steps=INNER if start is not None else 10 * INNER).model


def k_means(points: Float[Tensor, "m r"], count: int, seed: int, rounds: int = 30) -> Float[Tensor, "m c"]:
    """Responsibilities of 0 and 1 by Lloyd's algorithm, from centres that are far from each other (k-means++)."""
    from scipy.cluster import vq  # a tenth of a second, for those who need it

    if not bool(points.isfinite().all()):
        raise NumericalError("the tasks' places among each other are not finite: values too large for their squares.")
    count = min(count, len(points.unique(dim=0)))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a centre that nobody is near stays alone
        rng = np.random.default_rng(seed)
        _, nearest = vq.kmeans2(points.numpy(), count, iter=rounds, minit="++", rng=rng)
    return torch.nn.functional.one_hot(torch.from_numpy(nearest).long(), count).double()
