"""A round of EM for all kinds of tasks at once, as a GPU likes it: the steps of `together.py`, weighted by kind.

Every task goes through every kind, also where it has no share: more numbers than kind by kind, and far fewer calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NumericalError
from metaprior.inference import LOG_2PI
from metaprior.learning.em import UNDETERMINED, MixedEffects
from metaprior.learning.stacks import StackedCurves, Weights
from metaprior.learning.together import NO_BASIS, Models, em_step, error_of, starts

if TYPE_CHECKING:  # which calls what is here
    from metaprior.learning.mixtures import TaskDesigns


def maximised_together(
    tasks: TaskDesigns,
    weights: Float[Tensor, "m c"],
    ranks: Sequence[int],
    floor: float,
    models: Sequence[MixedEffects | None],
    first: int,
) -> list[MixedEffects]:
    """Models that weighted tasks are better explained by, one for each column of weights.

    models: what they were. One that is new, or of another rank than before, takes so many steps as the first; the
    others take one.
    """
    stack, p = _weighted(tasks, weights), tasks.projected.shape[2]
    least = weights.new_full((1,), floor)
    known = [model is not None and model.loadings.shape[1] == rank for model, rank in zip(models, ranks, strict=True)]
    going = torch.tensor(known, device=weights.device)
    if all(known):
        began = _as_one([model for model in models if model is not None])
    else:
        began = _started(stack, least, ranks, p)
        if any(known):
            earlier = _as_one([model if ok else None for model, ok in zip(models, known, strict=True)], began)
            began = _chosen(going, earlier, began)
    found = _stepped(stack, began, least)
    after = found
    for _ in range(0 if all(known) else first - 1):
        after = _stepped(stack, after, least)
    found = _chosen(going, found, after)
    noises = found.noise[0].tolist()
    return [
        MixedEffects(C[:p].mT.contiguous(), C[p : p + rank].mT.contiguous(), noise)
        for C, rank, noise in zip(found.coefficients[0], ranks, noises, strict=True)
    ]


def evidences_together(tasks: TaskDesigns, models: Sequence[MixedEffects]) -> Float[Tensor, "m c"]:
    """The evidence of each task under each model."""
    m, q, p = tasks.projected.shape
    C, noise = _as_one(models).coefficients[0], tasks.points.new_tensor([model.noise for model in models])
    c, s = C.shape[:2]
    flat, rows = C.reshape(c * s, q), tasks.gram.transpose(0, 1).reshape(q, m * q)
    inner = ((flat @ rows).view(c, s * m, q) @ C.mT).view(c, s, m, s).transpose(1, 2)  # [β W]ᵀ G [β W]
    h = (flat @ tasks.projected.transpose(0, 1).reshape(q, m * p)).view(c, s, m, p).transpose(1, 2)
    eye = torch.eye(s - p, dtype=C.dtype, device=C.device)
    L, info = torch.linalg.cholesky_ex(inner[..., p:, p:] + noise[:, None, None, None] * eye)
    if bool(info.any()):
        raise NumericalError("the scores' covariance is not positive definite: use fewer components, more noise.")
    explained = torch.linalg.solve_triangular(L, h[..., p:, :] - inner[..., p:, :p], upper=False)
    mean, own = h[..., :p, :].diagonal(dim1=-2, dim2=-1), inner[..., :p, :p].diagonal(dim1=-2, dim2=-1)
    rest = tasks.squares - 2 * mean.sum(-1) + own.sum(-1)
    quadratic = (rest - explained.square().sum((-2, -1))) / noise[:, None]
    logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (tasks.points - (s - p)) * noise.log()[:, None]
    found: Tensor = -0.5 * (quadratic + p * (logdet + tasks.points * LOG_2PI)).mT
    return found


def _weighted(tasks: TaskDesigns, weights: Float[Tensor, "m c"]) -> StackedCurves:
    """One table with a model for each column of weights; each task is a design of its own."""
    (m, q, p), of_kinds = tasks.projected.shape, weights.mT.contiguous()
    own = Weights(
        of_kinds[None, :, :, None].expand(1, -1, m, p),
        of_kinds[None],
        of_kinds.sum(1)[None],
        p * (of_kinds @ tasks.points)[None],
        (of_kinds @ tasks.squares)[None],
    )
    outputs = torch.eye(p, dtype=weights.dtype, device=weights.device).expand(1, 1, m, p, p)
    rows = tasks.gram.transpose(0, 1).reshape(1, q, m * q)
    columns = tasks.projected.transpose(0, 1).reshape(1, q, m * p)
    return StackedCurves(tasks.gram.reshape(1, m, q * q), rows, tasks.points[None], outputs, columns, own, own)


def _started(stack: StackedCurves, floor: Float[Tensor, " 1"], ranks: Sequence[int], p: int) -> Models:
    start = starts(stack, floor)
    if bool(start.failure.any()):
        raise error_of(NO_BASIS if bool((start.failure == NO_BASIS).any()) else int(start.failure.max()))
    found = start.models(max(ranks))
    for c, rank in enumerate(ranks):
        found.coefficients[0, c, p + rank :] = 0.0  # a component of nothing stays nothing
    return found


def _stepped(stack: StackedCurves, models: Models, floor: Float[Tensor, " 1"]) -> Models:
    found, no_scores, no_basis = em_step(stack, models, floor)
    if bool(no_scores.any()):
        raise NumericalError("the scores' covariance is not positive definite: use fewer components, more noise.")
    if bool(no_basis.any()):
        raise DataError(UNDETERMINED)
    return found


def _as_one(models: Sequence[MixedEffects | None], like: Models | None = None) -> Models:
    """Side by side, those of lower rank with components of nothing; where there is none, what is there already."""
    known = [model for model in models if model is not None]
    q, p = known[0].mean.shape
    most = max(model.loadings.shape[1] for model in known) if like is None else like.coefficients.shape[2] - p
    found = known[0].mean.new_zeros(1, len(models), p + most, q)
    noise = known[0].mean.new_tensor([[1.0 if model is None else model.noise for model in models]])
    for c, model in enumerate(models):
        if model is not None:
            found[0, c, :p], found[0, c, p : p + model.loadings.shape[1]] = model.mean.mT, model.loadings.mT
    return Models(found, noise)


def _chosen(first: Tensor, one: Models, other: Models) -> Models:
    """Of the first kind from the one, of the others from the other."""
    return Models(
        torch.where(first[:, None, None], one.coefficients, other.coefficients),
        torch.where(first, one.noise, other.noise),
    )
