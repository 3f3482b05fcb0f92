"""The evidence of tasks under several priors at once, each with tasks of its own: see `priors/stack.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from metaprior.inference.evidence import LOG_2PI, student_terms
from metaprior.inference.factor import attempt, inverse
from metaprior.priors import Shape, Stack, squared_distances
from metaprior.tasks import Tasks, buckets, distinct_rows, groups_of_inputs

FEW = 100_000
"""Covariance entries up to which tasks that share inputs are laid out beside the others: a batch less is worth more."""


@dataclass(frozen=True, eq=False)
class StackedBatch:
    """Sets of inputs of similar size, each with the targets of all tasks that have it.

    A column of targets is one of a task, or (where a Gaussian prior needs no more) one of a few that have the same sum
    of squares; `follows` says how many times the prior's mean is taken off it.
    """

    owner: Int[Tensor, " J"]
    index: Int[Tensor, "J n"]  # of points among all priors' distinct ones
    mask: Bool[Tensor, "J n"] | None  # None: no padding
    columns: Float[Tensor, "J n k"]
    follows: Float[Tensor, "J k"]
    count: Float[Tensor, " J"]  # of tasks
    size: Float[Tensor, " J"]  # points of each task
    rows: Int[Tensor, "J n c"] | None  # where the columns come from, if they are those of tasks

    def with_targets(self, y: Float[Tensor, "N p"]) -> Float[Tensor, "J n k"]:
        """The columns that other targets in the same rows would have."""
        assert self.rows is not None
        found = y[self.rows].flatten(2) * self.follows[:, None]
        return found if self.mask is None else found * self.mask[..., None]


@dataclass(frozen=True, eq=False)
class StackedTasks:
    """Tasks of several priors, laid out once."""

    x: Float[Tensor, "B u d"]  # each prior's distinct points
    batches: tuple[StackedBatch, ...]
    values: Float[Tensor, " B"]  # number of target values
    tasks: Float[Tensor, " B"]
    p: int
    per_point: bool

    @staticmethod
    def of(tasks: Sequence[Tasks], *, whole: bool = False, per_point: bool = False) -> StackedTasks:
        """These tasks, one `Tasks` for each prior. whole: every task keeps a column of its own."""
        counts = torch.tensor([len(own.x) for own in tasks])
        starts = (counts.cumsum(0) - counts).tolist()
        x, y = torch.cat([own.x for own in tasks]), torch.cat([own.y for own in tasks])
        of_row = torch.arange(len(tasks)).repeat_interleave(counts)
        distinct, which = distinct_rows(torch.cat([of_row[:, None].to(x), x], 1))
        numbers = distinct[:, 0].long().bincount(minlength=len(tasks))
        widest = int(numbers.max())
        first = numbers.cumsum(0) - numbers
        places = first[:, None] + torch.arange(widest).clamp(max=numbers[:, None] - 1)
        index = which - first[of_row] + widest * of_row
        laid_out = tuple(_batched(tasks, starts, index, y, whole))
        values = torch.tensor([float(own.y.numel()) for own in tasks], dtype=torch.float64)
        if per_point:
            values = torch.tensor([float(len(own) * own.p) for own in tasks], dtype=torch.float64)
        number = torch.tensor([float(len(own)) for own in tasks], dtype=torch.float64)
        return StackedTasks(distinct[places][..., 1:], laid_out, values, number, y.shape[1], per_point)

    def select(self, which: Sequence[int]) -> StackedTasks:
        """Those of some of the priors."""
        B, u = self.x.shape[:2]
        new = torch.full((B,), -1)
        new[torch.tensor(which)] = torch.arange(len(which))
        kept = []
        for batch in self.batches:
            some = new[batch.owner] >= 0
            if bool(some.any()):
                owner = new[batch.owner[some]]
                index = batch.index[some] + u * (owner - batch.owner[some])[:, None]
                parts = (None if part is None else part[some] for part in (batch.mask, batch.columns, batch.follows))
                rest = (None if part is None else part[some] for part in (batch.count, batch.size, batch.rows))
                kept.append(StackedBatch(owner, index, *parts, *rest))  # type: ignore[arg-type]
        chosen = torch.tensor(which)
        return StackedTasks(
            self.x[chosen], tuple(kept), self.values[chosen], self.tasks[chosen], self.p, self.per_point
        )

    @property
    def entries(self) -> int:
        """Covariance entries."""
        return sum(batch.index.numel() * batch.index.shape[1] for batch in self.batches)


def _batched(
    tasks: Sequence[Tasks], starts: Sequence[int], index: Int[Tensor, " N"], y: Float[Tensor, "N p"], whole: bool
) -> Iterator[StackedBatch]:
    """Tasks with inputs of their own in buckets of similar size; those that share them, by their number of points."""
    shared: dict[int, list[tuple[int, Int[Tensor, "c n"]]]] = {}
    alone: list[tuple[int, Int[Tensor, " k"], Int[Tensor, " k"]]] = []
    for k, (own, start) in enumerate(zip(tasks, starts, strict=True)):
        groups, single = groups_of_inputs(own)
        if len(single) and float(own.sizes.square().sum()) * len(tasks) <= FEW:
            groups, single = [], torch.arange(len(own))
        for rows in groups:
            shared.setdefault(rows.shape[1], []).append((k, start + rows))
        alone.append((k, start + own.offsets[single], own.sizes[single]))
    owner = torch.cat([torch.full_like(first, k) for k, first, _ in alone])
    first, sizes = (torch.cat([part[i] for part in alone]) for i in (1, 2))  # type: ignore[misc]
    for bucket in buckets(sizes):
        size = sizes[bucket]
        column = torch.arange(int(size.max()))
        mask = column < size[:, None]
        rows = torch.where(mask, first[bucket, None] + column, first[bucket, None])
        yield _batch(owner[bucket], rows[..., None], mask, torch.ones_like(size), index, y, True)
    for n, some in shared.items():
        counts = torch.tensor([len(rows) for _, rows in some])
        most = int(counts.max())
        padded = [torch.cat([rows, rows[:1].expand(most - len(rows), -1)]).mT for _, rows in some]
        mask = torch.ones(len(some), n, dtype=torch.bool)
        yield _batch(torch.tensor([k for k, _ in some]), torch.stack(padded), mask, counts, index, y, whole)


def _batch(
    owner: Int[Tensor, " J"],
    rows: Int[Tensor, "J n c"],
    mask: Bool[Tensor, "J n"],
    count: Int[Tensor, " J"],
    index: Int[Tensor, " N"],
    y: Float[Tensor, "N p"],
    whole: bool,
) -> StackedBatch:
    (_, n, most), p = rows.shape, y.shape[1]
    there = (torch.arange(most) < count[:, None]).repeat_interleave(p, 1).double()
    columns = y[rows].flatten(2) * there[:, None] * mask[..., None]
    kept: Tensor | None = rows
    if not whole and most * p > n + p:
        columns, there, kept = *_reduced(columns, there, count, p), None
    partial = None if bool(mask.all()) else mask
    size = mask.sum(1).double()
    return StackedBatch(owner, index[rows[..., 0]], partial, columns, there, count.double(), size, kept)


def _reduced(
    columns: Float[Tensor, "J n k"], there: Float[Tensor, "J k"], count: Int[Tensor, " J"], p: int
) -> tuple[Float[Tensor, "J n q"], Float[Tensor, "J q"]]:
    """Fewer columns with the same sum of squares around any mean: the mean's own, and a root of the scatter."""
    J, n, _ = columns.shape
    by_task = columns.reshape(J, n, -1, p)
    middle = by_task.sum(2) / count[:, None, None]
    present = there.reshape(J, 1, -1, p)
    around = ((by_task - middle[:, :, None]) * present).reshape(J, n, -1)
    values, vectors = torch.linalg.eigh(around @ around.mT)
    root = vectors * values.clamp(min=0.0).sqrt()[:, None]
    times = count.double().sqrt()[:, None]
    follows = torch.cat([times.expand(J, p), torch.zeros(J, n, dtype=torch.float64)], 1)
    return torch.cat([middle * times[..., None], root], 2), follows


def stacked_evidence(
    stack: Stack, values: Float[Tensor, "B P"], tasks: StackedTasks, y: Float[Tensor, "N p"] | None = None
) -> Float[Tensor, " B"]:
    """The summed evidence of each prior's tasks; NaN where a covariance cannot be factored.

    y: other targets, in the rows that the tasks were laid out from.
    """
    z = stack.at(values, tasks.x)
    mean, places = z.mean.flatten(0, 1), z.places.flatten(0, 1)
    functions = None if z.functions is None else z.functions.flatten(0, 1)
    total = values.new_zeros(len(values))
    for batch in tasks.batches:
        flat, shape, owner = batch.index.reshape(-1), batch.index.shape, batch.owner
        expected = mean[flat].view(*shape, -1)
        columns = batch.columns if y is None else batch.with_targets(y)
        R = columns - _expected(expected, batch.follows, columns.shape[-1])
        if batch.mask is not None:
            R = R * batch.mask[..., None]
        inner = None if functions is None else functions[flat].view(*shape, -1)
        quadratic, logdet = _Terms.apply(  # type: ignore[no-untyped-call]
            places[flat].view(*shape, -1), inner, z.scale[owner], z.noise[owner], R, batch.mask, stack.shape
        )
        if z.degrees is None:
            constant = batch.count * tasks.p * batch.size * LOG_2PI
            found = -0.5 * (quadratic.sum(1) + batch.count * tasks.p * logdet + constant)
        else:
            each = quadratic.view(len(owner), -1, tasks.p).sum(2)
            there = batch.follows[:, :: tasks.p]
            fit, normaliser = student_terms(each, (tasks.p * batch.size)[:, None], z.degrees[owner][:, None])
            found = ((fit + normaliser - 0.5 * tasks.p * logdet[:, None]) * there).sum(1)
        total = total.index_add(0, owner, found / batch.size if tasks.per_point else found)
    return total


def _expected(mean: Float[Tensor, "J n p"], follows: Float[Tensor, "J k"], columns: int) -> Float[Tensor, "J n k"]:
    """The mean as often as each column follows it: outputs take turns."""
    p = mean.shape[-1]
    if p == 1:
        return mean * follows[:, None]
    turns = -(-columns // p)
    return mean.repeat(1, 1, turns)[..., :columns] * follows[:, None]


class _Terms(torch.autograd.Function):
    """`rᵀA⁻¹r` of each column and `log|A|`, for `A = F Fᵀ + s k(|z − z'|²) + σ²I`, with the gradient written out.

    As in `evidence.py` it is `A⁻¹ − ααᵀ` against `dA`; here that goes on to the places z, to F, s and σ².
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Float[Tensor, "J n q"],
        functions: Float[Tensor, "J n k"] | None,
        scale: Float[Tensor, " J"],
        noise: Float[Tensor, " J"],
        R: Float[Tensor, "J n c"],
        mask: Bool[Tensor, "J n"] | None,
        shape: Shape,
    ) -> Any:
        K, slope = shape(squared_distances(z, z))
        A = K * scale[:, None, None]
        if functions is not None:
            A += functions @ functions.mT
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal += noise[:, None]
        if mask is not None:
            A *= mask[:, :, None]
            A *= mask[:, None, :]
            diagonal += (~mask).to(A)
        L, failed = attempt(A)
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if not any(ctx.needs_input_grad[:5]):
            half = torch.linalg.solve_triangular(L, R, upper=False)
            return half.square().sum(-2), torch.where(failed, torch.nan, logdet)
        A_inverse = inverse(L)
        alpha = A_inverse @ R
        ctx.save_for_backward(z, functions, scale, K, slope, A_inverse, alpha, mask)
        return (R * alpha).sum(-2), torch.where(failed, torch.nan, logdet)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, quadratic: Tensor, logdet: Tensor) -> Any:
        z, functions, scale, K, slope, A_inverse, alpha, mask = ctx.saved_tensors
        weighted = alpha * quadratic[:, None]
        G = torch.baddbmm(A_inverse * logdet[:, None, None], weighted, alpha.mT, alpha=-1)
        if mask is not None:
            G *= mask[:, :, None]
            G *= mask[:, None, :]
        needs = ctx.needs_input_grad
        grad_z = grad_functions = grad_scale = grad_noise = None
        if needs[0]:
            W = slope.mul_(scale[:, None, None]).mul_(G)
            grad_z = 4 * (W.sum(-1, keepdim=True) * z - W @ z)
        if functions is not None and needs[1]:
            grad_functions = 2 * (G @ functions)
        if needs[2]:
            grad_scale = (G * K).sum((-2, -1))
        if needs[3]:
            grad_noise = G.diagonal(dim1=-2, dim2=-1).sum(-1)
        return grad_z, grad_functions, grad_scale, grad_noise, 2 * weighted if needs[4] else None, None, None
