"""The objectives of meta-learning: the summed negative evidence of the meta-tasks, and what goes beside it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import torch
from torch import Tensor

from metaprior.errors import DataError, UnknownNameError
from metaprior.inference import check_fits, summed_evidence
from metaprior.priors import HyperPrior, Prior
from metaprior.splits import drawn_contexts
from metaprior.tasks import Batch, Tasks, batches

Weighting = Literal["task", "point"]

WEIGHTINGS: tuple[Weighting, ...] = ("task", "point")

Objective = Literal["evidence", "predictive"]

OBJECTIVES: tuple[Objective, ...] = ("evidence", "predictive")

SPLITS = 4
"""Random contexts of each task that the predictive objective is averaged over."""

Loss = Callable[[Sequence[Batch], Sequence[Hashable]], Tensor]
"""The summed loss of some tasks, laid out in batches, with the ids of all of them; what the updates minimise."""


def evidence_loss(prior: Prior, weighting: Weighting) -> Loss:
    """`L(M; ψ) = Σᵢ L(Dᵢ; ψ)`, the paper's sum; weighted by point, each task's loss is divided by its size first."""
    if weighting not in WEIGHTINGS:
        raise UnknownNameError("weighting", weighting, WEIGHTINGS)

    def loss(laid_out: Sequence[Batch], ids: Sequence[Hashable]) -> Tensor:
        return -summed_evidence(prior, laid_out, ids, per_point=weighting == "point").total

    return loss


def predictive_loss(prior: Prior, tasks: Tasks, seed: int) -> Loss:
    """`−Σᵢ log p(targetsᵢ | contextᵢ; ψ)`, averaged over random contexts that are drawn once, for all of these tasks.

    By the chain rule this is the evidence of a task less that of its context: what the prior says of a task's first
    points, before anything is known of it, does not count, and a task of one point says nothing.
    """
    if int(tasks.sizes.max()) < 2:
        raise DataError(
            f"the predictive objective needs tasks of two points or more, and none of {len(tasks)} (learned from or "
            "held out) has: use objective='evidence', or hold out others."
        )
    contexts = drawn_contexts(tasks, SPLITS, seed)
    evidence, known = evidence_loss(prior, "task"), batches(contexts, prior.like)

    def loss(laid_out: Sequence[Batch], ids: Sequence[Hashable]) -> Tensor:
        return evidence(laid_out, ids) - evidence(known, contexts.ids) / SPLITS

    return loss


def with_hyper_prior(loss: Loss, hyper_prior: HyperPrior, count: int) -> Loss:
    """A loss of `count` tasks less `log p(ψ)`, of which each task bears its share: the MAP objective."""

    def total(laid_out: Sequence[Batch], ids: Sequence[Hashable]) -> Tensor:
        share = sum(len(batch.tasks) for batch in laid_out) / count
        return loss(laid_out, ids) - share * hyper_prior.log_density()

    return total


class HeldOut:
    """The tasks that learning is judged by, laid out once, and the loss they are judged by: by default the evidence."""

    def __init__(self, prior: Prior, tasks: Tasks, weighting: Weighting = "task", *, loss: Loss | None = None) -> None:
        check_fits(prior, tasks)
        if bool((tasks.sizes == 0).any()):
            raise DataError("every held-out task needs at least one point.")
        self.tasks, self.loss = tasks, loss or evidence_loss(prior, weighting)
        self.batches = batches(tasks, prior.like)
        self.values = tasks.y.numel() if weighting == "task" else len(tasks) * tasks.p

    @torch.no_grad()
    def evidence(self) -> float:
        """Evidence per target value, so that sets of tasks compare; by point, it is averaged within tasks first."""
        return -float(self.loss(self.batches, self.tasks.ids)) / self.values
