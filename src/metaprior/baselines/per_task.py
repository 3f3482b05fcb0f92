"""A Gaussian process for each task alone: what its own context says, with vague beliefs about everything else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Self

import torch
from gpytorch.kernels import ConstantKernel, Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import NotFittedError
from metaprior.files import Saved, State
from metaprior.inference import Conditional, ContextBatch, UserPosterior, factor
from metaprior.inference.factor import padded_identity
from metaprior.priors import Prior, make_mean
from metaprior.tasks import Padded, Scaler, Tasks, TrainedOn
from metaprior.tasks.batches import MAX_ENTRIES, pad, padded

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
        choices = torch.tensor(list(itertools.product(LENGTHS, VARIANCES, NOISES)), dtype=torch.float64)
        belief = -(choices / torch.tensor(LIKELY, dtype=torch.float64)).log().square().sum(1) / (2 * SPREAD**2)
        found = belief[:, None] + self._evidence(context, batch)
        length, variance, noise = choices[found.argmax(0)].unbind(1)
        return length, variance, noise

    @staticmethod
    def _evidence(context: Tasks, batch: Padded) -> Float[Tensor, "c b"]:
        """The evidence of each context under every choice: distances once, then a batch of matrices per lengthscale."""
        b, n = batch.mask.shape
        if n == 0:
            return torch.zeros(1, b, dtype=torch.float64)
        x = batch.inputs.distinct[batch.inputs.index]
        squares = (x[:, :, None] - x[:, None, :]).square().sum(-1)
        pairs = torch.tensor(list(itertools.product(VARIANCES, NOISES)), dtype=torch.float64)
        eye, found = torch.eye(n, dtype=torch.float64), []
        names = [context.ids[i] for i in batch.tasks.tolist()]
        for length in LENGTHS:
            K = torch.exp(-squares / (2 * length**2))
            for some in pairs.split(max(MAX_ENTRIES // (b * n * n), 1)):
                variance, noise = some[:, :, None, None, None].unbind(1)
                A = (1 + variance * K + noise * eye).reshape(-1, n, n)
                L, _ = factor(padded_identity(A, batch.mask.repeat(len(some), 1)), names * len(some))
                half = torch.linalg.solve_triangular(L, batch.y.repeat(len(some), 1, 1), upper=False)
                logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
                terms = half.square().sum((-2, -1)) + context.p * logdet
                found.append(-0.5 * terms.reshape(len(some), b))
        return torch.cat(found)


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
