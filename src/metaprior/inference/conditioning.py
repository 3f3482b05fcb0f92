"""`condition`: a prior and contexts to posteriors, by the algebra that suits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metaprior.inference.evidence import as_tasks, at_inputs, check_fits, in_features, with_few_points
from metaprior.inference.gaussian_process import ContextBatch, GaussianConditional
from metaprior.inference.low_rank import LowRankBatch
from metaprior.inference.student import StudentConditional
from metaprior.priors import AtPoints, Prior
from metaprior.tasks import Inputs, Padded, Task, Tasks, padded

AtEach = Callable[[Tensor], Sequence[AtPoints]]
"""What each of some priors says of points."""


def condition(prior: Prior, context: Tasks | Task) -> GaussianConditional | StudentConditional:
    """Condition a prior on each task's context; a task without points keeps the prior."""
    return condition_many([prior], as_tasks(context))[0]


def condition_many(priors: Sequence[Prior], context: Tasks) -> list[GaussianConditional | StudentConditional]:
    """Each of some priors on the same contexts."""
    tails = [None if prior.degrees is None else float(prior.degrees().detach()) for prior in priors]
    found = zip(conditioned(priors, context), tails, strict=True)
    return [gaussian if degrees is None else StudentConditional(gaussian, degrees) for gaussian, degrees in found]


def conditioned(priors: Sequence[Prior], context: Tasks, at: AtEach | None = None) -> list[GaussianConditional]:
    """Each of some priors conditioned on each context: the contexts are laid out once for all.

    at: what all priors say of some points, where that is computed faster together.
    """
    for prior in priors:
        check_fits(prior, context)
    said: Sequence[AtPoints | None] = [None] * len(priors)
    if at is None:
        laid_out = padded(context, like=priors[0].like)
    else:
        known = Inputs.of_rows(context)
        laid_out, said = padded(context, known=known), at(known.distinct)
    return [
        GaussianConditional(context, [part for batch in laid_out for part in _parts(prior, batch, context, of_prior)])
        for prior, of_prior in zip(priors, said, strict=True)
    ]


def _parts(prior: Prior, batch: Padded, context: Tasks, said: AtPoints | None) -> list[ContextBatch]:
    """A batch by the algebra that suits each of its tasks. said: of the distinct points that all batches share."""
    own = batch.to(prior.like)
    with torch.no_grad():
        z = at_inputs(prior, own, said)
    if own.mask.shape[1] == 0 or not in_features(prior, z):
        return [ContextBatch(prior, own, context, z=z)]
    few = with_few_points(z, own.mask)
    if few is None:
        return [_in_features(prior, own, context, z)]
    found: list[ContextBatch] = []
    for which, by in ((few, ContextBatch), (~few, _in_features)):
        at = torch.nonzero(which)[:, 0]
        if len(at):
            n = int(own.mask[at].sum(1).max())
            found.append(by(prior, own.select(at, n), context, z=z.of_tasks(at).trimmed(n)))
    return found


def _in_features(prior: Prior, batch: Padded, context: Tasks, z: AtPoints) -> ContextBatch:
    """In the features; by the points where that would need jitter, which means something else there."""
    found = LowRankBatch(prior, batch, context, z=z)
    return ContextBatch(prior, batch, context, z=z) if bool(found.jitter.any()) else found
