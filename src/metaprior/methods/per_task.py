"""A Gaussian process for each task alone: what its own context says, with vague beliefs about everything else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.files import State
from metaprior.inference import (
    LOG_2PI,
    ContextBatch,
    Evidence,
    Factor,
    GaussianConditional,
    KeptMethod,
    UserConditional,
    factor,
    padded_identity,
)
from metaprior.priors import DirectKernel, Prior, make_mean, squared_distances
from metaprior.tasks import MAX_ENTRIES, Padded, Scaler, Tasks, TrainedOn, padded

LENGTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 6.0)
VARIANCES = (0.05, 0.2, 0.7, 2.0)
NOISES = (0.002, 0.01, 0.05, 0.2)
"""Lengthscales, variances and noise variances that a task may have, in scaled units."""

LIKELY, SPREAD = (1.0, 0.5, 0.03), 1.2
"""Where they are believed to lie, and how far around, in natural logarithms."""


class GPPerTask(KeptMethod):
    """A level of unknown height plus an RBF kernel, whose lengthscale, variance and noise each context decides alone.

    They are the most probable ones on a grid, under vague log-normal beliefs. Of the meta-tasks only the units are
    used: mean and deviation of x and y.
    """

    saved_as = "gp per task"
    fitted_as = "scaler_"
    scaler_: Scaler

    def fit(self, tasks: Tasks) -> Self:
        """Take over the units."""
        self.scaler_, self.trained_on_ = Scaler.fit(tasks), TrainedOn.of(tasks)
        return self

    @torch.no_grad()
    def condition(self, context: Tasks) -> UserConditional:
        """Each task under a kernel of its own."""
        self._check_fitted()
        scaled = self.scaler_.scale(context)
        laid_out = padded(scaled)
        found = [_search(scaled, batch) for batch in laid_out]
        parts = [
            part for batch, one in zip(laid_out, found, strict=True) for part in _under_its_kernel(scaled, batch, one)
        ]
        order = torch.cat([batch.tasks for batch in laid_out]).argsort()
        evidence = torch.cat([one.evidence for one in found])[order]
        return UserConditional(GridConditional(scaled, parts, evidence), self.scaler_, context)

    def state(self) -> State:
        """Its units, for a file."""
        self._check_fitted()
        return State(self.saved_as, {}, self.scaler_.as_tensors())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        method = cls()
        method.scaler_ = Scaler.from_tensors(state.tensors)
        return method


class GridConditional(GaussianConditional):
    """Tasks under the most probable kernel of each; their evidence is that of all kernels, by the belief in them."""

    def __init__(self, context: Tasks, parts: list[ContextBatch], total: Float[Tensor, " m"]) -> None:
        super().__init__(context, parts)
        self.total = total

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """The evidence of each task's context."""
        return Evidence.of_total(self.total)


class _Searched(NamedTuple):
    """What each context says of the kernels: the most probable one, its factor, and the evidence of all of them."""

    choice: Int[Tensor, " b"]
    factor: Factor
    evidence: Float[Tensor, " b"]


@cache
def grid_of_kernels() -> tuple[Float[Tensor, "c 3"], Float[Tensor, " c"]]:
    """Lengthscale, variance and noise of every kernel, and the logarithm of the belief in it."""
    choices = torch.tensor(list(itertools.product(LENGTHS, VARIANCES, NOISES)), dtype=torch.float64)
    belief = -(choices / torch.tensor(LIKELY, dtype=torch.float64)).log().square().sum(1) / (2 * SPREAD**2)
    return choices, belief - belief.logsumexp(0)


def _search(context: Tasks, batch: Padded) -> _Searched:
    """Every context under every kernel, factored once: distances once, then a batch of matrices per lengthscale."""
    choices, belief = grid_of_kernels()
    b, n = batch.mask.shape
    names = [context.ids[i] for i in batch.tasks.tolist()]
    x = batch.inputs.distinct[batch.inputs.index]
    squares = (x[:, :, None] - x[:, None, :]).square().sum(-1)
    eye, y = torch.eye(n, dtype=torch.float64), batch.y
    best, choice = torch.full((b,), -torch.inf, dtype=torch.float64), torch.zeros(b, dtype=torch.int64)
    L_best, jitter, scores = torch.zeros(b, n, n, dtype=torch.float64), torch.zeros(b, dtype=torch.float64), []
    for same_length in torch.arange(len(choices)).split(len(VARIANCES) * len(NOISES)):
        K = torch.exp(-squares / (2 * choices[same_length[0], 0] ** 2))
        for some in same_length.split(max(MAX_ENTRIES // max(b * n * n, 1), 1)):
            variance, noise = choices[some, 1:, None, None, None].unbind(1)
            A = (1 + variance * K + noise * eye).reshape(len(some) * b, n, n)
            L, added = factor(padded_identity(A, batch.mask.repeat(len(some), 1)), names * len(some))
            half = torch.linalg.solve_triangular(L, y.repeat(len(some), 1, 1), upper=False)
            logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            fit = -0.5 * (half.square().sum((-2, -1)) + context.p * logdet).reshape(len(some), b)
            scores.append(belief[some, None] + fit)
            highest, at = scores[-1].max(0)
            better = highest > best
            rows = (at * b + torch.arange(b))[better]
            best[better], choice[better] = highest[better], some[at[better]]
            L_best[better], jitter[better] = L[rows], added[rows]
    evidence = torch.cat(scores).logsumexp(0) - 0.5 * context.p * batch.mask.sum(1).double() * LOG_2PI
    return _Searched(choice, Factor(L_best, jitter), evidence)


def _under_its_kernel(context: Tasks, batch: Padded, found: _Searched) -> Iterator[ContextBatch]:
    """Contexts with their own kernels, by the noise that suits them."""
    length, variance, noise = grid_of_kernels()[0][found.choice].unbind(1)
    for value in noise.unique().tolist():
        chosen = torch.nonzero(noise == value)[:, 0]
        own = _prior(context, _LevelAndCurve(length[chosen], variance[chosen]), value)
        known = Factor(found.factor.L[chosen], found.factor.jitter[chosen])
        yield ContextBatch(own, batch.select(chosen), context, known)


def _prior(context: Tasks, kernel: Kernel, noise: float) -> Prior:
    return Prior(make_mean("zero", d=context.d, p=context.p, seed=0), kernel, noise, learn=())


class _LevelAndCurve(DirectKernel):
    """`1 + v exp(−|x − x'|² / 2l²)`, one for all or one for each of several tasks."""

    length: Tensor
    variance: Tensor

    def __init__(self, length: Float[Tensor, "*b"], variance: Float[Tensor, "*b"]) -> None:
        super().__init__(batch_shape=length.shape)
        self.register_buffer("length", length)
        self.register_buffer("variance", variance)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        if diag:
            return (1 + self.variance[..., None]).expand(x1.shape[:-1])
        length, variance = self.length[..., None, None], self.variance[..., None, None]
        return 1 + variance * torch.exp(-0.5 * squared_distances(x1 / length, x2 / length))

    def __getitem__(self, which: Any) -> _LevelAndCurve:
        return _LevelAndCurve(self.length[which], self.variance[which])
