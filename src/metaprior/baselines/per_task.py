"""A Gaussian process for each task alone: what its own context says, with vague beliefs about everything else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Self

import torch
from gpytorch.kernels import ConstantKernel, Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import NotFittedError
from metaprior.files import Saved, State
from metaprior.inference import Conditional, ContextBatch, UserPosterior, task_evidence
from metaprior.priors import Prior, make_mean
from metaprior.tasks import Padded, Scaler, Tasks, TrainedOn
from metaprior.tasks.batches import pad, padded

LENGTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 6.0)
VARIANCES = (0.05, 0.2, 0.7, 2.0)
NOISES = (0.002, 0.01, 0.05, 0.2)
"""Lengthscales, variances and noise variances that a task may have, in scaled units."""

LIKELY, SPREAD = (1.0, 0.5, 0.03), 1.2
"""Where they are believed to lie, and how far around, in natural logarithms."""


class GPPerTask(Saved):
    """A level of unknown height plus an RBF kernel, whose lengthscale, variance and noise each context decides alone.

    They are the most probable ones on a grid, under vague log-normal beliefs. Of the meta-tasks only the units are
    used: mean and deviation of x and y.
    """

    kind = "gp per task"
    scaler_: Scaler

    def fit(self, tasks: Tasks) -> Self:
        """Take over the units."""
        self.scaler_, self.trained_on_ = Scaler.fit(tasks), TrainedOn.of(tasks)
        return self

    @torch.no_grad()
    def predict(self, context: Tasks, at: Tasks) -> UserPosterior:
        """The posterior of each task under its own kernel."""
        if not hasattr(self, "scaler_"):
            raise NotFittedError("this GPPerTask knows no units yet: call fit(tasks) first.")
        scaled = self.scaler_.scale(context)
        parts = [part for batch in padded(scaled) for part in self._parts(scaled, batch)]
        return UserPosterior(Conditional(scaled, parts).at(self.scaler_.scale(at)), at, self.scaler_)

    def state(self) -> State:
        """Its units, for a file."""
        if not hasattr(self, "scaler_"):
            raise NotFittedError("this GPPerTask knows no units yet: call fit(tasks) first.")
        return State(self.kind, {}, self.scaler_.as_tensors())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        method = cls()
        method.scaler_ = Scaler.from_tensors(state.tensors)
        return method

    def _parts(self, context: Tasks, batch: Padded) -> Iterator[ContextBatch]:
        """Contexts with their own kernels, by the noise that suits them."""
        length, variance, noise = self._most_probable(context, batch)
        for value in noise.unique().tolist():
            chosen = torch.nonzero(noise == value)[:, 0]
            own = _prior(context, _kernel(length[chosen], variance[chosen]), value)
            yield ContextBatch(own, pad(context, batch.tasks[chosen]), context)

    def _most_probable(self, context: Tasks, batch: Padded) -> tuple[Tensor, Tensor, Tensor]:
        choices = list(itertools.product(LENGTHS, VARIANCES, NOISES))
        found = torch.stack([self._log_probability(context, batch, *choice) for choice in choices])
        best = torch.tensor(choices, dtype=torch.float64)[found.argmax(0)]
        length, variance, noise = best.unbind(1)
        return length, variance, noise

    def _log_probability(
        self, context: Tasks, batch: Padded, length: float, variance: float, noise: float
    ) -> Float[Tensor, " b"]:
        belief = -sum(
            math.log(value / likely) ** 2 for value, likely in zip((length, variance, noise), LIKELY, strict=True)
        ) / (2 * SPREAD**2)
        if batch.mask.shape[1] == 0:
            return torch.full((len(batch.tasks),), belief, dtype=torch.float64)
        kernel = _kernel(*torch.tensor([length, variance], dtype=torch.float64))
        prior = _prior(context, kernel, noise)
        return task_evidence(prior, batch, context.ids).total + belief


def _prior(context: Tasks, kernel: Kernel, noise: float) -> Prior:
    return Prior(make_mean("zero", d=context.d, p=context.p, seed=0), kernel, noise, learn=())


def _kernel(length: Float[Tensor, "*b"], variance: Float[Tensor, "*b"]) -> Kernel:
    """`1 + v exp(−|x − x'|² / 2l²)`, one for all or one for each of several tasks."""
    shape = length.shape
    level = ConstantKernel(batch_shape=shape).double()
    curve = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    level.constant = torch.ones(*shape, 1, dtype=torch.float64)
    curve.outputscale, curve.base_kernel.lengthscale = variance, length[..., None, None]
    return level + curve
