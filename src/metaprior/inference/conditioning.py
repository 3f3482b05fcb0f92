"""`condition`: a prior and contexts to posteriors, by the algebra that suits them."""

from __future__ import annotations

from collections.abc import Sequence

from metaprior.inference.evidence import check_fits
from metaprior.inference.gaussian_process import ContextBatch, GaussianConditional
from metaprior.inference.low_rank import LowRankBatch, suits
from metaprior.inference.student import StudentConditional
from metaprior.priors import Prior
from metaprior.tasks import Tasks, padded


def condition(prior: Prior, context: Tasks) -> GaussianConditional | StudentConditional:
    """Condition a prior on each task's context; a task without points keeps the prior."""
    (gaussian,) = conditioned([prior], context)
    return gaussian if prior.degrees is None else StudentConditional(gaussian, float(prior.degrees().detach()))


def conditioned(priors: Sequence[Prior], context: Tasks) -> list[GaussianConditional]:
    """Each of some priors conditioned on each context: the contexts are laid out once for all."""
    for prior in priors:
        check_fits(prior, context)
    laid_out = padded(context)
    return [
        GaussianConditional(
            context,
            [(LowRankBatch if suits(prior, batch) else ContextBatch)(prior, batch, context) for batch in laid_out],
        )
        for prior in priors
    ]
