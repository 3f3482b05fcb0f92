"""A kernel refitted on each target's own context: the classical GP, which learns nothing from other tasks."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Self

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel

from metaprior.inference import ContextBatch, GaussianConditional, Method, check_fits, task_evidence
from metaprior.learning import LBFGS
from metaprior.priors import Prior
from metaprior.tasks import Padded, Tasks, padded

SMALLEST = 1e-5
"""The shortest lengthscale: a context of pure noise would otherwise drive it to zero."""


class RefittedRBF(Method):
    """The mean and noise of a prior; variance and lengthscale of an RBF kernel by evidence on each context alone.

    All contexts are fitted together, each with its own two parameters.
    """

    def __init__(self, prior: Prior, *, iterations: int = 200) -> None:
        self.prior, self.iterations = prior, iterations

    def fit(self, tasks: Tasks) -> Self:
        """Nothing is learned from the meta-tasks; the mean is taken as it is."""
        check_fits(self.prior, tasks)
        return self

    def condition(self, context: Tasks) -> GaussianConditional:
        """Each task under a kernel of its own."""
        check_fits(self.prior, context)
        parts = []
        for batch in padded(context):
            own = batch.to(self.prior.like)
            parts.append(ContextBatch(self._refit(own, context.ids), own, context))
        return GaussianConditional(context, parts)

    def _refit(self, batch: Padded, ids: Sequence[Hashable]) -> Prior:
        shape = torch.Size([len(batch.tasks)])
        rbf = RBFKernel(batch_shape=shape, lengthscale_constraint=GreaterThan(SMALLEST))
        kernel = ScaleKernel(rbf, batch_shape=shape, outputscale_constraint=GreaterThan(SMALLEST**2))
        mean, noise = copy.deepcopy(self.prior.mean), copy.deepcopy(self.prior.noise)
        prior = Prior(mean, kernel, noise, learn=["kernel"]).to(self.prior.like)
        updates = LBFGS(prior.learned_parameters(), lambda: -task_evidence(prior, batch, ids).total.sum())
        updates.run(self.iterations)
        return prior
