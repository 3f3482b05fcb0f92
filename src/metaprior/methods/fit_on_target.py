"""A mean fitted on each target's own context: the case of overfitting that meta-learning is there to avoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.inference import (
    ContextBatch,
    GaussianConditional,
    Method,
    at_inputs,
    check_fits,
    covariance_matrix,
    factor,
    inverse,
    mean_over,
)
from metaprior.priors import DeepMean, DeepMeans, NetworkOptions, Prior
from metaprior.progress import progress_bar
from metaprior.seeds import affine_seed
from metaprior.tasks import Padded, Tasks, padded

POINTS = 4096
"""Points of some contexts that are fitted at a time: what the networks make of them then stays in the cache …"""

NETWORKS = 64
"""… and so do these many networks with their gradients and moments."""

ON_GPU = 1024
"""Networks on a GPU, where it is the calls that cost."""

CHECK_EVERY = 50
"""Steps between two looks at the evidence."""


class MeanFitOnTarget(Method):
    """Kernel and noise of a prior, fixed; a mean network fitted on each context until its evidence stops improving.

    There is no early stopping. All targets are fitted together by Adam, each with a network of its own; all start from
    the same one. A target is done when its evidence has not risen by more than `tolerance` per value in 50 steps, so
    what becomes of it does not depend on the others.
    """

    def __init__(
        self,
        prior: Prior,
        *,
        rate: float = 1e-2,
        max_steps: int = 400,
        tolerance: float = 1e-3,
        seed: int = 0,
        progress: bool | str = False,
        **network: Unpack[NetworkOptions],
    ) -> None:
        self.prior, self.network = prior, network
        self.rate, self.max_steps, self.tolerance = rate, max_steps, tolerance
        self.seed, self.progress = seed, progress

    def fit(self, tasks: Tasks) -> Self:
        """Nothing is learned from the meta-tasks beyond the prior; they say where the inputs lie."""
        check_fits(self.prior, tasks)
        options: NetworkOptions = {"like": tasks.x, **self.network}
        self.start_ = DeepMean(tasks.d, tasks.p, seed=affine_seed(self.seed, factor=2), **options)
        return self

    def condition(self, context: Tasks) -> GaussianConditional:
        """Each task around a mean of its own."""
        check_fits(self.prior, context)
        laid_out, parts = padded(context), []
        label = self.progress if isinstance(self.progress, str) else "fitting on targets"
        with progress_bar(label, len(laid_out), show=bool(self.progress)) as advance:
            for batch in laid_out:
                own = batch.to(self.prior.like)
                parts.append(ContextBatch(self._fitted(own), own, context))
                advance(f"{own.mask.shape[1]} points")
        return GaussianConditional(context, parts)

    def _fitted(self, batch: Padded) -> Prior:
        means = DeepMeans(self.start_, len(batch.tasks)).to(self.prior.like.device)
        if batch.mask.shape[1] > 0:
            with torch.no_grad():
                A = covariance_matrix(self.prior, at_inputs(self.prior, batch), batch.mask)
            L = factor(A, None, mean_over(A.diagonal(dim1=-2, dim2=-1), batch.mask)).L
            few = min(max(POINTS // batch.mask.shape[1], 1), NETWORKS) if not L.is_cuda else ON_GPU
            for which in torch.arange(len(batch.tasks), device=L.device).split(few):
                contexts = _Contexts(means, batch, L, which)
                contexts.run(self.rate, self.max_steps, self.tolerance)
        return Prior(means, self.prior.kernel, self.prior.noise, learn=())


class _Contexts:
    """Some contexts, and the networks that are being fitted to them: `½ (y − m)ᵀ A⁻¹ (y − m)` of each falls."""

    def __init__(self, means: DeepMeans, batch: Padded, L: Float[Tensor, "b n n"], which: Int[Tensor, " k"]) -> None:
        self.means, self.like = means, means.values[0].detach()
        self.x = batch.inputs.distinct[batch.inputs.index[which]].to(self.like)
        self.y, self.mask = batch.y[which].to(self.like), batch.mask[which]
        self.inverse = inverse(L[which]).to(self.like)
        self.alive = which
        self.best = torch.full((len(batch.tasks),), torch.inf).to(self.like)

    def run(self, rate: float, max_steps: int, tolerance: float) -> None:
        """Adam until no task's loss falls any more; each task keeps the parameters of its best look."""
        adam = _adam([value.detach()[self.alive] for value in self.means.values], rate)
        enough = tolerance * self.mask.sum(1).to(self.like) * self.y.shape[-1]
        for step in range(max_steps + 1):
            values = adam.param_groups[0]["params"]
            if step % CHECK_EVERY == 0 or step == max_steps:
                fell = self._look(values)
                keep = fell > enough
                if not bool(keep.any()):
                    return
                if not bool(keep.all()):
                    self._drop(~keep)
                    enough, adam = enough[keep], _of_tasks(adam, keep)
                    values = adam.param_groups[0]["params"]
            for value, grad in zip(values, self._gradients(values), strict=True):
                value.grad = grad.contiguous()
            adam.step()

    @torch.no_grad()
    def _look(self, values: Sequence[Tensor]) -> Float[Tensor, " k"]:
        """By how much each loss has fallen below its best so far, whose parameters are kept."""
        _, residual, weighted = self._residuals(values)
        loss = 0.5 * (residual * weighted).sum((1, 2))
        fell = (self.best[self.alive] - loss).nan_to_num(-torch.inf, torch.inf, -torch.inf)
        better = fell > 0
        self.best[self.alive[better]] = loss[better]
        for kept, value in zip(self.means.values, values, strict=True):
            kept[self.alive[better]] = value[better]
        return fell

    def _drop(self, done: Bool[Tensor, " k"]) -> None:
        rest = ~done
        self.alive, self.x, self.y = self.alive[rest], self.x[rest], self.y[rest]
        self.mask, self.inverse = self.mask[rest], self.inverse[rest]

    def _residuals(self, values: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """m, y − m and A⁻¹(y − m)."""
        out = self.means.at(self.x, values)[-1]
        residual = torch.where(self.mask[..., None], self.y - out.detach(), 0.0)
        return (
            out,
            residual,
            (residual.mT @ self.inverse).mT,
        )  # A⁻¹ is symmetric, and a row times it is five times faster

    def _gradients(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        out, _, weighted = self._residuals(values)
        return torch.autograd.grad(out, values, -weighted)


def _adam(values: Sequence[Tensor], rate: float) -> torch.optim.Adam:
    """Adam works number by number, so many problems can share it; fused, it passes over its memory once a step.

    Fused on a CPU, it takes numbers and gradients in the order in which they lie in memory: both must be contiguous.
    """
    return torch.optim.Adam([value.contiguous().requires_grad_() for value in values], lr=rate, fused=True)


def _of_tasks(adam: torch.optim.Adam, keep: Bool[Tensor, " k"]) -> torch.optim.Adam:
    """The same optimiser with what it remembers of some of the tasks."""
    group = adam.param_groups[0]
    some = _adam([value.detach()[keep] for value in group["params"]], group["lr"])
    for old, new in zip(group["params"], some.param_groups[0]["params"], strict=True):
        if remembered := adam.state[old]:
            moments = {name: remembered[name][keep] for name in ("exp_avg", "exp_avg_sq")}
            some.state[new] = {"step": remembered["step"], **moments}
    return some
