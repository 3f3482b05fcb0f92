"""The loss of meta-learning: the summed negative evidence of the meta-tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from metaprior.inference import summed_evidence
from metaprior.inference.evidence import check_outputs
from metaprior.priors import Prior
from metaprior.tasks import Batch, Tasks, batches


class Objective:
    """`L(M; ψ) = Σᵢ L(Dᵢ; ψ)` for a fixed set of tasks, laid out in batches once.

    Weighting by task is the paper's sum. With `per_point`, each task's loss is divided by its number of points, so
    that long tasks do not outweigh short ones.
    """

    def __init__(self, prior: Prior, tasks: Tasks, *, per_point: bool = False) -> None:
        check_outputs(prior, tasks)
        self.prior, self.tasks, self.per_point = prior, tasks, per_point
        self.batches: list[Batch] = batches(tasks, prior.device)

    def __call__(self) -> Tensor:
        """The loss at the prior's current parameters, differentiable."""
        return -summed_evidence(self.prior, self.batches, self.tasks.ids, per_point=self.per_point).total

    @torch.no_grad()
    def evidence_per_point(self) -> float:
        """The evidence of all tasks divided by their number of target values: comparable between sets."""
        total = summed_evidence(self.prior, self.batches, self.tasks.ids).total
        return float(total) / self.tasks.y.numel()
