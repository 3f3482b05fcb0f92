"""The objective of meta-learning: the summed negative evidence of the meta-tasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import torch
from torch import Tensor

from metaprior.errors import DataError, UnknownNameError
from metaprior.inference import summed_evidence
from metaprior.inference.evidence import check_fits
from metaprior.priors import Prior
from metaprior.tasks import Batch, Tasks, batches

Weighting = Literal["task", "point"]

WEIGHTINGS: tuple[Weighting, ...] = ("task", "point")

Loss = Callable[[Sequence[Batch], Sequence[Hashable]], Tensor]
"""The summed loss of some tasks, laid out in batches, with the ids of all of them; what the updates minimise."""


def evidence_loss(prior: Prior, weighting: Weighting) -> Loss:
    """`L(M; ψ) = Σᵢ L(Dᵢ; ψ)`, the paper's sum; weighted by point, each task's loss is divided by its size first."""
    if weighting not in WEIGHTINGS:
        raise UnknownNameError("weighting", weighting, WEIGHTINGS)

    def loss(laid_out: Sequence[Batch], ids: Sequence[Hashable]) -> Tensor:
        return -summed_evidence(prior, laid_out, ids, per_point=weighting == "point").total

    return loss


class HeldOut:
    """The tasks that learning is judged by, laid out once."""

    def __init__(self, prior: Prior, tasks: Tasks, weighting: Weighting = "task") -> None:
        check_fits(prior, tasks)
        if bool((tasks.sizes == 0).any()):
            raise DataError("every held-out task needs at least one point.")
        self.tasks, self.loss = tasks, evidence_loss(prior, weighting)
        self.batches = batches(tasks, prior.like)
        self.values = tasks.y.numel() if weighting == "task" else len(tasks) * tasks.p

    @torch.no_grad()
    def evidence(self) -> float:
        """Evidence per target value, so that sets of tasks compare; by point, it is averaged within tasks first."""
        return -float(self.loss(self.batches, self.tasks.ids)) / self.values
