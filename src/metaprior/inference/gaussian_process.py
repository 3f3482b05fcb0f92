"""Posteriors of many tasks at once (eq:gp-posterior): factor each context once, then ask at any points."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.errors import NumericalError
from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import (
    LOG_2PI,
    Evidence,
    at_inputs,
    check_overflow,
    covariance_matrix,
    evidence_terms,
    task_evidence,
)
from metaprior.inference.factor import Factor, factor, mean_over, padded_identity
from metaprior.inference.gaussian import GaussianMarginals
from metaprior.priors import AtPoints, Prior
from metaprior.seeds import generator_of
from metaprior.tasks import LEAST_SHARED, Inputs, Padded, SharedInputs, Tasks, batches, buckets, on_one_grid, pad


class GaussianConditional(Conditional["GaussianPosterior"]):
    """A prior conditioned on the contexts of some tasks: a factor of each, and what follows from it."""

    def __init__(self, context: Tasks, parts: Sequence[ContextBatch]) -> None:
        self.context, self.parts = context, parts

    def posterior(
        self, points: Tasks, known: Inputs | None = None, at_distinct: AtPoints | None = None
    ) -> GaussianPosterior:
        """The posterior at these points. known: their distinct ones; at_distinct: what the prior says of those."""
        p, device = self.context.p, self.device
        if known is None and on_one_grid(points):
            known = Inputs.of_rows(points)
        mean = torch.empty(len(points.x), p, dtype=torch.float64, device=device)
        variance, noise = torch.empty(2, len(points.x), dtype=torch.float64, device=device)
        for part, batch, rows in self.each(points, with_context_only=True, known=known):
            z = at_inputs(part.prior, batch, at_distinct)
            keep = batch.mask
            part_mean, part_variance = part.marginals(z)
            mean[rows], variance[rows] = part_mean[keep].to(mean), part_variance[keep].to(mean)
            noise[rows] = z.noise[keep].to(mean)
        _check_finite(points, mean, variance + noise)
        return GaussianPosterior(self, points, mean, variance, noise)

    @property
    def device(self) -> torch.device:
        """Where it computes, and where its answers lie."""
        return self.parts[0].prior.like.device

    def select(self, which: Int[Tensor, " k"]) -> GaussianConditional:
        """Some of the tasks, in this order, without factoring again."""
        place = torch.full((len(self.context),), -1)
        place[which] = torch.arange(len(which))
        parts = []
        for part in self.parts:
            kept = torch.nonzero(place[part.tasks] >= 0)[:, 0]
            if len(kept):
                some = part.select(kept)
                parts.append(some.renumbered(place[some.tasks]))
        return GaussianConditional(self.context.select(which), parts)

    def each(
        self, points: Tasks, with_context_only: bool = False, known: Inputs | None = None
    ) -> Iterator[tuple[ContextBatch, Padded, Int[Tensor, " k"]]]:
        """Contexts of similar size with points of similar number, padded, and the rows of those points.

        with_context_only: the points' covariances among themselves are not needed.
        """
        for part in self.parts:
            n, sizes = part.mask.shape[1], points.sizes[part.tasks]
            for chosen in buckets(sizes, beside=max(n, 1)) if with_context_only else buckets(sizes.clamp(min=n)):
                batch = pad(points, part.tasks[chosen], known)
                rows = points.offsets[batch.tasks][:, None] + torch.arange(batch.mask.shape[1])
                chosen_part = part.select(chosen)
                yield chosen_part, batch.to(chosen_part.prior.like), rows[batch.mask].to(self.device)

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence of each task's context, from the factors that are already there."""
        with torch.no_grad():
            found = [part.terms for part in self.parts]
        terms = [torch.cat([part[k] for part in found])[self._order].double() for k in range(3)]
        return Evidence(terms[0], terms[1], terms[2], self.jitter)

    @cached_property
    def quadratic(self) -> Float[Tensor, " m"]:
        """`rᵀA⁻¹r` of each task's context: the number of its values, where they are as the prior expects."""
        return torch.cat([part.fit for part in self.parts])[self._order].double()

    @cached_property
    def _order(self) -> Int[Tensor, " m"]:
        """Where each task stands among those of all parts."""
        return torch.cat([part.tasks for part in self.parts]).argsort().to(self.device)

    @cached_property
    def jitter(self) -> float:
        """The largest jitter a factorisation of a context needed, relative to its diagonal."""
        return max(float(part.jitter.max()) for part in self.parts)


def _check_finite(points: Tasks, mean: Float[Tensor, "N p"], variance: Float[Tensor, " N"]) -> None:
    """What overflows, or a mean or kernel that gives no number at a point, is told, and not handed on as NaN."""
    if bool(torch.isfinite(mean.sum() + variance.sum())):  # one pass; the second one, which names the task, is rare
        return
    finite = torch.isfinite(mean).all(1) & torch.isfinite(variance)
    if not bool(finite.all()):
        row = torch.nonzero(~finite)[0, 0]
        raise NumericalError(
            f"the posterior of task {points.ids[int(points.task_of_row[row])]!r} at {points.x[row].tolist()} is not "
            "finite. Likely causes: (a) a point so far away, or values so large beside past ones, that something "
            "overflows: are they in the same units? (b) a mean or a kernel that is not finite there."
        )


class ContextBatch:
    """Contexts of similar size, padded to one: `A = L Lᵀ` and `w = L⁻¹(y − m)` of each.

    The prior may have a kernel of its own for each of them (GPyTorch's batch shape). known: their factors, where these
    are there already. z: what the prior says of the points, where that is known.
    """

    @torch.no_grad()
    def __init__(
        self, prior: Prior, batch: Padded, context: Tasks, known: Factor | None = None, *, z: AtPoints | None = None
    ) -> None:
        batch = batch.to(prior.like)
        self.prior, self.tasks, self.mask = prior, batch.tasks, batch.mask
        self.z = at_inputs(prior, batch) if z is None else z
        self.L, self.jitter = known or self._factored([context.ids[i] for i in self.tasks.tolist()])
        residual = torch.where(self.mask[..., None], batch.y - self.z.mean, 0.0)
        self.w = torch.linalg.solve_triangular(self.L, residual, upper=False)

    def _factored(self, names: Sequence[Hashable]) -> Factor:
        A = covariance_matrix(self.prior, self.z, self.mask)
        return factor(A, names, mean_over(A.diagonal(dim1=-2, dim2=-1), self.mask))

    @property
    def fit(self) -> Float[Tensor, " b"]:
        """`rᵀA⁻¹r`, over all outputs."""
        total: Tensor = self.w.square().sum((-2, -1))
        return total

    @property
    def logdet(self) -> Float[Tensor, " b"]:
        """`log|A|`."""
        return 2 * self.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @property
    def terms(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three terms of the evidence."""
        return evidence_terms(self.prior, self.fit, self.logdet, self.mask.sum(1).to(self.fit), self.outputs)

    @property
    def outputs(self) -> int:
        return int(self.w.shape[-1])

    def select(self, chosen: Int[Tensor, " k"]) -> ContextBatch:
        """Some of the contexts, in this order, without factoring again."""
        if torch.equal(chosen, torch.arange(len(self.tasks))):
            return self
        some = copy(self)
        where = chosen.to(self.L.device)
        some.prior, some.tasks = self.prior.of_tasks(where), self.tasks[chosen]
        some.z = self.z.of_tasks(where)
        some.mask, some.L, some.w = self.mask[where], self.L[where], self.w[where]
        some.jitter = self.jitter[where]
        return some

    def renumbered(self, tasks: Int[Tensor, " b"]) -> Self:
        """The same contexts as other tasks of a container."""
        same = copy(self)
        same.tasks = tasks
        return same

    def cross(self, z: AtPoints) -> Float[Tensor, "b n k"]:
        """`L⁻¹ K^{x*}`: the one solve that mean and covariance share."""
        K = torch.where(self.mask[..., None], self.prior.covariance(self.z, z), 0.0)
        V: Tensor = torch.linalg.solve_triangular(self.L, K, upper=False)
        return V

    def marginals(self, z: AtPoints) -> tuple[Float[Tensor, "b k p"], Float[Tensor, "b k"]]:
        """`m*` and the diagonal of `K*`."""
        if self.mask.shape[1] == 0:
            return z.mean, self.prior.variance(z)
        V = self.cross(z)
        return z.mean + V.mT @ self.w, (self.prior.variance(z) - V.square().sum(1)).clamp(min=0.0)

    def covariance(self, z: AtPoints) -> Float[Tensor, "b k k"]:
        """`K*`."""
        K = self.prior.covariance(z, z)
        if self.mask.shape[1] == 0:
            return K
        V = self.cross(z)
        C: Tensor = K - V.mT @ V
        C.diagonal(dim1=-2, dim2=-1).clamp_(min=0.0)
        return C


@dataclass(frozen=True, eq=False)
class GaussianPosterior(GaussianMarginals):
    """The posterior at given points, for a new observation there; `function` is the one of f itself.

    Rows follow the points' rows, `[N, p]`; per-task results follow the tasks, `[m]`. The outputs share their
    covariance.
    """

    conditional: GaussianConditional
    points: Tasks
    mean: Float[Tensor, "N p"]
    function_variance: Float[Tensor, " N"]
    noise: Float[Tensor, " N"]
    of_function: bool = False
    needed: list[float] = field(default_factory=list)  # jitter of joint densities and samples so far

    @property
    def function(self) -> GaussianPosterior:
        """The same for the function: without observation noise."""
        return replace(self, of_function=True)

    def select(self, which: Int[Tensor, " k"]) -> GaussianPosterior:
        """Some of the tasks, in this order."""
        rows, kept = self.points.rows_of(which), self.conditional.select(which)
        points, mean = self.points.select(which), self.mean[rows]
        variance, noise = self.function_variance[rows], self.noise[rows]
        return GaussianPosterior(kept, points, mean, variance, noise, self.of_function)

    @property
    def variance(self) -> Float[Tensor, "N p"]:
        total = self.function_variance if self.of_function else self.function_variance + self.noise
        return total[:, None].expand_as(self.mean)

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.variance.sqrt()

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """The evidence of each task's context."""
        return self.conditional.evidence

    @property
    def jitter(self) -> float:  # type: ignore[override]
        """The largest jitter a factorisation needed so far, relative to the prior variance: 0 if none failed."""
        return max([self.conditional.jitter, *self.needed])

    def covariances(self) -> list[Float[Tensor, "p n n"]]:
        """Each task's full covariance at its points, for each output (they share it)."""
        found: dict[int, Tensor] = {}
        for batch, _, C, _ in self._covariances():
            for i, size, matrix in zip(batch.tasks.tolist(), batch.mask.sum(1).tolist(), C, strict=True):
                found[i] = matrix[:size, :size].double().expand(self.mean.shape[1], size, size)
        return [found[i] for i in range(len(self.points))]

    @torch.no_grad()
    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        targets = self.as_targets(y)
        if (whole := self._on_one_grid(targets)) is not None:
            prior = self.conditional.parts[0].prior
            together = task_evidence(prior, whole.to(prior.like), self.points.ids)
            if together.jitter == 0:  # else the two factorisations are not of one matrix
                found = together.total.double() - self.evidence.total
                if bool(torch.isfinite(found).all()):  # it may be that of two infinite numbers
                    return found
        quadratic, logdet = self.joint_terms(targets)
        return -0.5 * (quadratic + self.mean.shape[1] * (logdet + self.points.sizes.to(logdet) * LOG_2PI))

    @torch.no_grad()
    def joint_terms(self, y: Any) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """`rᵀC⁻¹r` (over all outputs) and `log|C|` of each task's values, C being their covariance."""
        residual = self.as_targets(y) - self.mean
        quadratic, logdet = self.mean.new_zeros(2, len(self.points))
        for batch, rows, C, scale in self._covariances():
            L, r = self._factor(batch, C, scale), self._spread(residual, batch, rows)
            half = torch.linalg.solve_triangular(L, r, upper=False)
            quadratic[batch.tasks] = half.square().sum((-2, -1)).to(quadratic)
            logdet[batch.tasks] = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1).to(logdet)
        check_overflow(quadratic, self.points.ids)
        return quadratic, logdet

    @torch.no_grad()
    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together; the same seed gives the same draws however tasks are batched."""
        N, p = self.mean.shape
        normal = torch.randn(N, count * p, generator=generator_of(seed), dtype=torch.float64).to(self.mean)
        drawn = torch.empty_like(normal)
        for batch, rows, C, scale in self._covariances():
            L, white = self._factor(batch, C, scale), self._spread(normal, batch, rows)
            drawn[rows] = (L @ white)[batch.mask].to(drawn)
        return self.mean + drawn.reshape(N, count, p).permute(1, 0, 2)

    def _on_one_grid(self, y: Float[Tensor, "N p"]) -> SharedInputs | None:
        """Contexts and targets together, where all tasks then have the same inputs (images) and one prior with noise.

        Their joint density is evidence(all) − evidence(context), and evidence(all) takes one factorisation. Without
        noise that difference would have other rounding errors than the posterior's own covariance.
        """
        if self.of_function or self.conditional.jitter > 0 or not bool((self.noise > 0).all()):
            return None
        if any(part.prior.differs_by_task for part in self.conditional.parts):
            return None
        sizes = self.conditional.context.sizes + self.points.sizes
        if len(sizes) < LEAST_SHARED or not bool((sizes == sizes[0]).all()):
            return None
        first, *others = batches(self.conditional.context.joined(replace(self.points, y=y.cpu())))
        # a lone group holds its tasks in their order
        return first if isinstance(first, SharedInputs) and not others else None

    def _covariances(self) -> Iterator[tuple[Padded, Tensor, Float[Tensor, "b k k"], Float[Tensor, " b"]]]:
        """Padded points, their rows, their covariance, and the prior variance: the scale of its rounding errors."""
        for part, batch, rows in self.conditional.each(self.points):
            with torch.no_grad():
                z = at_inputs(part.prior, batch)
                C = part.covariance(z)
                C = C if self.of_function else C + torch.diag_embed(z.noise)
                yield batch, rows, C, mean_over(part.prior.variance(z), batch.mask)

    def _factor(self, batch: Padded, C: Float[Tensor, "b k k"], scale: Tensor) -> Float[Tensor, "b k k"]:
        names = [self.points.ids[i] for i in batch.tasks.tolist()]
        L, jitter = factor(padded_identity(C, batch.mask), names, scale)
        self.needed.append(float(jitter.max()))
        return L

    @staticmethod
    def _spread(values: Float[Tensor, "N q"], batch: Padded, rows: Tensor) -> Float[Tensor, "b k q"]:
        spread = torch.zeros(*batch.mask.shape, values.shape[1]).to(batch.y)
        spread[batch.mask] = values[rows].to(spread)
        return spread
