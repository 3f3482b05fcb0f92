"""`condition`: a prior and contexts to posteriors, by the algebra that suits them."""

from __future__ import annotations

from metaprior.inference.evidence import check_fits
from metaprior.inference.low_rank import LowRankBatch, suits
from metaprior.inference.posterior import Conditional, ContextBatch
from metaprior.inference.student import StudentConditional
from metaprior.priors import Prior
from metaprior.tasks import Tasks
from metaprior.tasks.batches import padded


def condition(prior: Prior, context: Tasks) -> Conditional | StudentConditional:
    """Condition a prior on each task's context; a task without points keeps the prior."""
    check_fits(prior, context)
    gaussian = Conditional(
        context,
        [(LowRankBatch if suits(prior, batch) else ContextBatch)(prior, batch, context) for batch in padded(context)],
    )
    return gaussian if prior.degrees is None else StudentConditional(gaussian, float(prior.degrees().detach()))
