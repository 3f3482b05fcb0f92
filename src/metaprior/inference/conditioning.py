"""`condition`: a prior and contexts to posteriors, by the algebra that suits them."""

from __future__ import annotations

from metaprior.inference.evidence import check_fits
from metaprior.inference.low_rank import LowRankBatch, suits
from metaprior.inference.posterior import Conditional, ContextBatch
from metaprior.priors import Prior
from metaprior.tasks import Tasks
from metaprior.tasks.batches import padded


def condition(prior: Prior, context: Tasks) -> Conditional:
    """Condition a prior on each task's context; a task without points keeps the prior."""
    check_fits(prior, context)
    return Conditional(
        context,
        [(LowRankBatch if suits(prior, batch) else ContextBatch)(prior, batch, context) for batch in padded(context)],
    )
