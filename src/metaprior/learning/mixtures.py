"""EM for a mixture of reduced-rank mixed-effects models: tasks that come in kinds, which nobody has labelled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import NumericalError, numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.designs import Block, Designs, designed
from metaprior.learning.em import MixedEffects, em_steps, fit_em
from metaprior.learning.grid_kinds import NEGLIGIBLE, GridDesigns
from metaprior.learning.kinds_together import evidences_together, maximised_together
from metaprior.priors import Basis
from metaprior.tasks import Tasks, on_one_grid, padded

ROUNDS = 15
"""Between an E-step over the kinds and the next."""

LEAST = 5.0
"""Tasks' worth of responsibility below which a kind has collapsed: it is taken out, and that is said. The largest kind
stays, however few tasks there are."""

FIRST = 3
"""EM steps of each kind's own model in the first round, where it has no closed form; one in the others."""

ENOUGH = 1e-4
"""Of the evidence: a round that gains less is the last."""


@dataclass(frozen=True, eq=False)
class TaskDesigns:
    """What each task says about any model in a basis: its Gram matrix, `h = Bᵀy` and `yᵀy`."""

    points: Float[Tensor, " m"]
    gram: Float[Tensor, "m q q"]
    projected: Float[Tensor, "m q p"]
    squares: Float[Tensor, " m"]

    @staticmethod
    def of(basis: Basis, tasks: Tasks) -> TaskDesigns:
        """Of all tasks."""
        laid_out = padded(tasks)
        order = torch.cat([batch.tasks for batch in laid_out]).argsort()
        gram, projected = (
            torch.cat(part)[order] for part in zip(*(designed(basis, one) for one in laid_out), strict=True)
        )
        return TaskDesigns(tasks.sizes.double(), gram, projected, tasks.summed(tasks.y.square().sum(1)))

    def to(self, device: torch.device) -> TaskDesigns:
        """The same on a device."""
        return TaskDesigns(*(part.to(device) for part in (self.points, self.gram, self.projected, self.squares)))

    def __len__(self) -> int:
        return len(self.points)

    def weighted(self, weights: Float[Tensor, " m"]) -> Designs:
        """The same for the M-step, each task counting with its weight."""
        some = torch.nonzero(weights > NEGLIGIBLE)[:, 0]  # most tasks are of one kind
        w, h, points = weights[some], self.projected[some], self.points[some]
        block = Block(w, points, self.gram[some], w[:, None, None] * h, None)
        values, squares = float((w * points).sum()) * h.shape[2], float((w * self.squares[some]).sum())
        return Designs((block,), float(w.sum()), values, squares)

    @numerical("the evidence of the tasks under a kind")
    def evidence(self, model: MixedEffects) -> Float[Tensor, " m"]:
        """The evidence of each task under a model."""
        beta, W, noise = model
        r, p = W.shape[1], beta.shape[1]
        Gb, L = self.gram @ beta, model.factor(self.gram)
        inner = torch.linalg.solve_triangular(L, W.mT @ (self.projected - Gb), upper=False)
        rest = self.squares - 2 * (beta * self.projected).sum((1, 2)) + (beta * Gb).sum((1, 2))
        quadratic = (rest - inner.square().sum((1, 2))) / noise
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (self.points - r) * math.log(noise)
        found: Tensor = -0.5 * (quadratic + p * (logdet + self.points * LOG_2PI))
        return found

    @numerical("the evidence of the tasks under the kinds")
    def evidences(self, models: Sequence[MixedEffects]) -> Float[Tensor, "m c"]:
        """The evidence of each task under each model."""
        if self.points.is_cuda:
            return evidences_together(self, models)
        return torch.stack([self.evidence(model) for model in models], 1)

    @numerical("the mean function and the components of the kinds")
    def all_maximised(
        self, weights: Float[Tensor, "m c"], ranks: Sequence[int], floor: float, models: Sequence[MixedEffects | None]
    ) -> list[MixedEffects]:
        """Models that weighted tasks are better explained by, one for each column of weights; models: what they were.

        On a GPU all at once; elsewhere kind by kind, each from the tasks that have a share in it.
        """
        if self.points.is_cuda:
            return maximised_together(self, weights, ranks, floor, models, FIRST)
        given = zip(weights.unbind(1), ranks, models, strict=True)
        return [self.maximised(own, rank, floor, model) for own, rank, model in given]

    def maximised(
        self, weights: Float[Tensor, " m"], rank: int, floor: float, model: MixedEffects | None = None
    ) -> MixedEffects:
        """A model that weighted tasks are better explained by; model: what it was, to go on from there."""
        start = model if model is not None and model.loadings.shape[1] == rank else None
        return em_steps(self.weighted(weights), rank, FIRST if start is None else 1, start=start, floor=floor)

    def scores(self, rank: int, floor: float) -> tuple[Float[Tensor, "m r p"], Float[Tensor, "q r"]]:
        """The mean of each task's scores under one model for all (roughly the best), and its loadings."""
        everything = self.weighted(torch.ones_like(self.points))
        model = fit_em(everything, rank, floor=floor, tolerance=1e-3).model
        residual = self.projected - self.gram @ model.mean
        return torch.cholesky_solve(model.loadings.mT @ residual, model.factor(self.gram)), model.loadings

    @property
    def values(self) -> float:
        """How many there are in all."""
        return float(self.points.sum()) * self.projected.shape[2]

    def in_basis(self, models: Sequence[MixedEffects]) -> list[MixedEffects]:
        """The models themselves."""
        return list(models)


AnyDesigns = TaskDesigns | GridDesigns


def designs_of(basis: Basis, tasks: Tasks, least_noise: float = 0.0, device: torch.device | None = None) -> AnyDesigns:
    """What each task says about any model in a basis with no less noise than this, on a device."""
    onto = device or torch.device("cpu")
    if on_one_grid(tasks):
        return GridDesigns.of(basis, tasks, least_noise, onto)
    return TaskDesigns.of(basis, tasks).to(onto)


class KindsFit(NamedTuple):
    """The kinds' models and shares, the evidence before each round and at the end, and what collapsed on the way."""

    models: tuple[MixedEffects, ...]
    shares: tuple[float, ...]
    evidence: tuple[float, ...]
    notes: tuple[str, ...]


class KindsEM:
    """EM from given responsibilities, some rounds at a time.

    Each round fits every kind to the tasks by how much they are of it.
    """

    def __init__(self, designs: AnyDesigns, start: Float[Tensor, "m c"], rank: int, floor: float) -> None:
        self.designs, self.responsible, self.rank, self.floor = designs, start, rank, floor
        self.models: list[Any] = [None] * start.shape[1]
        self.evidence: list[float] = []
        self.notes: list[str] = []
        self.converged = False

    @torch.no_grad()
    def advance(self, rounds: int) -> Self:
        """So many rounds in all, or fewer where the evidence no longer rises."""
        while len(self.evidence) < rounds and not self.converged:
            self._take_out()
            sizes = self.responsible.sum(0)
            ranks = [max(min(self.rank, int(size / 2)), 1) for size in sizes.tolist()]
            self.models = [*self.designs.all_maximised(self.responsible, ranks, self.floor, self.models)]
            log_joint = (sizes / len(self.designs)).log() + self.designs.evidences(self.models)
            self.evidence.append(float(log_joint.logsumexp(1).sum()))
            if not math.isfinite(self.evidence[-1]):
                raise NumericalError(
                    "the evidence of the tasks is not finite under any kind: values too large, or NaN."
                )
            self.responsible = torch.softmax(log_joint, 1)
            self.converged = len(self.evidence) > 1 and self.gain < ENOUGH * abs(self.evidence[-1])
        return self

    @property
    def gain(self) -> float:
        """Of the last round."""
        return self.evidence[-1] - self.evidence[-2]

    @property
    def fit(self) -> KindsFit:
        """What is found so far."""
        shares = (self.responsible.sum(0) / len(self.designs)).clamp(min=1e-300).tolist()
        models = self.designs.in_basis(self.models)
        return KindsFit(tuple(models), tuple(shares), tuple(self.evidence), tuple(self.notes))

    def _take_out(self) -> None:
        """Kinds that have collapsed."""
        count = self.responsible.shape[1]
        kept = _large_enough(self.responsible.sum(0))
        if len(kept) < count:
            self.notes.append(f"{count - len(kept)} of {count} kinds collapsed and were taken out")
            self.models = [self.models[c] for c in kept]
            left = self.responsible[:, kept] + 1e-12  # a task of a kind that is gone may be of any other
            self.responsible = left / left.sum(1, keepdim=True)


def fit_kinds(
    designs: AnyDesigns, start: Float[Tensor, "m c"], rank: int, *, floor: float, rounds: int = ROUNDS
) -> KindsFit:
    """EM from given responsibilities until the evidence no longer rises, or for so many rounds."""
    return KindsEM(designs, start, rank, floor).advance(rounds).fit


def _large_enough(sizes: Float[Tensor, " c"]) -> list[int]:
    """Which kinds have tasks enough to stay."""
    sizes = sizes.cpu()
    return torch.nonzero((sizes >= LEAST) | (torch.arange(len(sizes)) == sizes.argmax()))[:, 0].tolist()


def k_means(points: Float[Tensor, "m r"], count: int, seed: int, rounds: int = 30) -> Float[Tensor, "m c"]:
    """Responsibilities of 0 and 1 by Lloyd's algorithm, from centres that are far from each other (k-means++)."""
    from scipy.cluster import vq  # a tenth of a second, for those who need it

    if not bool(points.isfinite().all()):
        raise NumericalError("the tasks' places among each other are not finite: values too large for their squares.")
    count = min(count, len(points.unique(dim=0)))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a centre that nobody is near stays alone
        rng = np.random.default_rng(seed)
        _, nearest = vq.kmeans2(points.cpu().numpy(), count, iter=rounds, minit="++", rng=rng)
    return torch.nn.functional.one_hot(torch.from_numpy(nearest).long(), count).to(points)
