"""The evidence of tasks under several priors at once, each with tasks of its own: see `priors/stack.py`.

What is of the size of covariance matrices is torch's, which has threads for it; the rest is NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.arrays import Array
from metaprior.inference.evidence import LOG_2PI, student_slopes, student_terms
from metaprior.inference.factor import attempt, inverse
from metaprior.priors import Shape, Stack, squares_in_lengthscales
from metaprior.tasks import Tasks, buckets, distinct_rows, groups_of_inputs

A_BATCH = 10_000
"""Covariance entries that take as long as one batch more: tasks that share inputs are laid out for themselves where
that saves more, and beside the others elsewhere."""


@dataclass(frozen=True, eq=False)
class StackedBatch:
    """Sets of inputs of similar size, each with the targets of all tasks that have it.

    A column of targets is one of a task, or (where a Gaussian prior needs no more) one of a few that have the same sum
    of squares: first the tasks' mean for each output, then some that the prior's mean is not taken off.
    """

    owner: Int[Array, " J"]
    index: Int[Array, "J n"]  # of points among all priors' distinct ones
    mask: Float[Array, "J n"] | None  # 0 where there is padding; None: nowhere
    columns: Float[Array, "J n k"]
    follows: Float[Array, "J k"]  # how much each counts, once the prior's mean is taken off; 0 where it is not
    count: Float[Array, " J"]  # of tasks
    size: Float[Array, " J"]  # points of each task
    rows: Int[Array, "J n c"] | None  # where the columns come from, if they are those of tasks
    rounded: Float[Array, "J n p"] | None  # if they are not, what their mean would have to be more

    def with_targets(self, y: Float[Array, "N p"]) -> Float[Array, "J n k"]:
        """The columns that other targets in the same rows would have."""
        assert self.rows is not None
        return y.take(self.rows, 0).reshape(self.columns.shape)

    def residual(self, columns: Float[Array, "J n k"], mean: Float[Array, "J n p"]) -> Float[Array, "J n k"]:
        """The columns without the prior's mean."""
        if self.rounded is None:
            found: Array = columns - _expected(mean, self.follows)
        else:
            p = mean.shape[-1]
            own = (columns[..., :p] - mean + self.rounded) * self.follows[:, None, :p]
            found = np.concatenate([own, columns[..., p:]], 2)
        if self.mask is not None:
            found *= self.mask[..., None]
        return found

    def select(self, new: Int[Array, " B"], u: int) -> StackedBatch | None:
        """Those of some priors, by their new places among these or −1; u: points of each. None: nothing is left."""
        some = new[self.owner] >= 0
        if not some.any():
            return None
        owner = new[self.owner[some]]
        index = self.index[some] + u * (owner - self.owner[some])[:, None]
        parts = (self.mask, self.columns, self.follows, self.count, self.size, self.rows, self.rounded)
        return StackedBatch(owner, index, *(None if part is None else part[some] for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class StackedTasks:
    """Tasks of several priors, laid out once."""

    x: Float[Array, "B u d"]  # each prior's distinct points
    batches: tuple[StackedBatch, ...]
    values: Float[Array, " B"]  # number of target values
    tasks: Float[Array, " B"]
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
        number = np.array([float(len(own)) for own in tasks])
        values = number * y.shape[1] if per_point else np.array([float(own.y.numel()) for own in tasks])
        return StackedTasks(distinct[places][..., 1:].numpy(), laid_out, values, number, y.shape[1], per_point)

    def select(self, which: Sequence[int]) -> StackedTasks:
        """Those of some of the priors."""
        some, new = list(which), np.full(len(self.x), -1)
        new[some] = np.arange(len(some))
        kept = [batch.select(new, self.x.shape[1]) for batch in self.batches]
        batches = tuple(batch for batch in kept if batch is not None)
        return StackedTasks(self.x[some], batches, self.values[some], self.tasks[some], self.p, self.per_point)

    @property
    def entries(self) -> int:
        """Covariance entries."""
        return sum(batch.index.size * batch.index.shape[1] for batch in self.batches)


def _batched(
    tasks: Sequence[Tasks], starts: Sequence[int], index: Int[Tensor, " N"], y: Float[Tensor, "N p"], whole: bool
) -> Iterator[StackedBatch]:
    """Tasks with inputs of their own in buckets of similar size; those that share them, by their number of points."""
    shared: dict[int, list[tuple[int, Int[Tensor, "c n"]]]] = {}
    alone: list[tuple[int, Int[Tensor, " k"], Int[Tensor, " k"]]] = []  # whose, first rows, numbers of points
    for k, (own, start) in enumerate(zip(tasks, starts, strict=True)):
        groups, single = groups_of_inputs(own)
        for rows in groups:
            shared.setdefault(rows.shape[1], []).append((k, start + rows))
        alone.append((k, start + own.offsets[single], own.sizes[single]))
    several = len(shared) > 1 or any(len(first) for _, first, _ in alone)
    for n in list(shared):
        if several and sum((len(rows) - 1) * n**2 for _, rows in shared[n]) < A_BATCH:
            alone += [(k, rows.min(1).values, torch.full((len(rows),), n)) for k, rows in shared.pop(n)]
    owner = torch.cat([torch.full_like(first, k) for k, first, _ in alone])
    first, sizes = (torch.cat([part[i] for part in alone]) for i in (1, 2))  # type: ignore[misc]
    for bucket in buckets(sizes):
        size = sizes[bucket]
        column = torch.arange(int(size.max()))
        mask = column < size[:, None]
        rows = torch.where(mask, first[bucket, None] + column, first[bucket, None])
        yield _batch(owner[bucket], rows[..., None], mask, torch.ones_like(size), index, y, whole)
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
    rounded: Tensor | None = None
    if not whole and most * p > n + p:
        columns, there, rounded = _reduced(columns, there, count, p)
        kept = None
    parts = (columns, there, count.double(), mask.sum(1).double(), kept, rounded)
    return StackedBatch(
        owner.numpy(),
        index[rows[..., 0]].numpy(),
        None if bool(mask.all()) else mask.double().numpy(),
        *(None if part is None else part.numpy() for part in parts),  # type: ignore[arg-type]
    )


def _reduced(
    columns: Float[Tensor, "J n k"], there: Float[Tensor, "J k"], count: Int[Tensor, " J"], p: int
) -> tuple[Float[Tensor, "J n q"], Float[Tensor, "J q"], Float[Tensor, "J n p"]]:
    """Fewer columns with the same sum of squares around any mean: the mean's own, and a root of the scatter.

    And what the mean has lost by rounding.
    """
    J, n, _ = columns.shape
    by_task = columns.reshape(J, n, -1, p)
    middle = by_task.sum(2) / count[:, None, None]
    present = there.reshape(J, 1, -1, p)
    rounded = ((by_task - middle[:, :, None]) * present).sum(2) / count[:, None, None]
    around = ((by_task - middle[:, :, None] - rounded[:, :, None]) * present).reshape(J, n, -1)
    values, vectors = torch.linalg.eigh(around @ around.mT)
    root = vectors * values.clamp(min=0.0).sqrt()[:, None]
    times = count.double().sqrt()[:, None]
    follows = torch.cat([times.expand(J, p), torch.zeros(J, n, dtype=torch.float64)], 1)
    return torch.cat([middle, root], 2), follows, rounded


class StackedEvidence(NamedTuple):
    """The summed evidence of each prior's tasks, NaN where a covariance cannot be factored.

    Where they were asked for, with its slopes along the parameters, and along the targets if others were given. And the
    largest jitter that a factorisation needed, relative to the diagonal.
    """

    total: Float[Array, " B"]
    slopes: Float[Array, "B P"] | None
    of_targets: Float[Array, "N p"] | None
    jitter: Float[Array, " B"]


@torch.no_grad()
@np.errstate(all="ignore")
def stacked_evidence(
    stack: Stack,
    values: Float[Array, "B P"],
    tasks: StackedTasks,
    y: Float[Array, "N p"] | None = None,
    *,
    sloped: bool = False,
    known: list[Covariances] | None = None,
) -> StackedEvidence:
    """The evidence of each prior's tasks. y: other targets, in the rows that the tasks were laid out from.

    known: where only the mean is learned, the covariances stay as they are; the first time, they are put in here.
    """
    said, back = stack.at(values, tasks.x)
    total, slopes = np.zeros(len(values)), said.zeros()
    of_targets, jitter = np.zeros_like(y) if sloped and y is not None else None, np.zeros(len(values))
    for place, batch in enumerate(tasks.batches):
        owner, weight = batch.owner, 1 / batch.size if tasks.per_point else np.ones(len(batch.size))
        if known is not None and place < len(known):
            covariances = known[place]
        else:
            z, functions, scale, noise = _at(said.places, batch), None, said.scale[owner], said.noise[owner]
            times = said.times[owner]
            if said.functions is not None:
                functions = _at(said.functions, batch)
            covariances = Covariances(z, times, functions, scale, noise, batch.mask, stack.shape, inverted=sloped)
            if known is not None:
                known.append(covariances)
        R = batch.residual(batch.columns if y is None else batch.with_targets(y), _at(said.mean, batch))
        quadratic, alpha = covariances.solved(R, sloped)
        np.maximum.at(jitter, owner, covariances.jitter)
        degrees = None if said.degrees is None else said.degrees[owner]
        terms = _terms(quadratic, covariances.logdet, batch, tasks.p, degrees)
        total += np.bincount(owner, weight * terms.evidence, len(total))
        if not sloped:
            continue
        weighted = alpha * (weight[:, None] * terms.of_quadratic)[:, None]
        along = 2 * weighted * batch.follows[:, None]
        _add(slopes.mean, batch.index, -_by_output(along, tasks.p))
        if of_targets is not None:
            assert batch.rows is not None
            _add(of_targets, batch.rows, along)
        if known is not None:
            continue
        of_places, of_times, of_functions, of_scale, of_noise = covariances.back(
            alpha, weighted, weight * terms.of_logdet
        )
        _add(slopes.places, batch.index, of_places)
        slopes.times[:] += np.bincount(owner, of_times, len(total))
        if slopes.functions is not None and of_functions is not None:
            _add(slopes.functions, batch.index, of_functions)
        slopes.scale[:] += np.bincount(owner, of_scale, len(total))
        slopes.noise[:] += np.bincount(owner, of_noise, len(total))
        if slopes.degrees is not None:
            slopes.degrees[:] += np.bincount(owner, weight * terms.of_degrees, len(total))
    return StackedEvidence(total, back(slopes) if sloped else None, of_targets, jitter)


class _Terms(NamedTuple):
    """The evidence of each set of inputs, and its slopes."""

    evidence: Float[Array, " J"]
    of_quadratic: Float[Array, "J c"]  # c: the columns, or 1 where they are alike
    of_logdet: Float[Array, " J"]
    of_degrees: Float[Array, " J"] | float


def _terms(
    quadratic: Float[Array, "J k"],
    logdet: Float[Array, " J"],
    batch: StackedBatch,
    p: int,
    degrees: Float[Array, " J"] | None,
) -> _Terms:
    """From `rᵀA⁻¹r` of each column and `log|A|`. degrees: of freedom, of a Student-t process."""
    if degrees is None:
        evidence = -0.5 * (quadratic.sum(1) + batch.count * p * (logdet + batch.size * LOG_2PI))
        return _Terms(evidence, np.full((len(evidence), 1), -0.5), -0.5 * p * batch.count, 0.0)
    there = batch.follows[:, ::p]
    each = torch.from_numpy(quadratic.reshape(*there.shape, p).sum(2))
    asked = each, torch.from_numpy(p * batch.size)[:, None], torch.from_numpy(degrees)[:, None]
    fit, normaliser = student_terms(*asked)
    of_quadratic, of_degrees = (part.numpy() * there for part in student_slopes(*asked))
    evidence = ((fit + normaliser).numpy() - 0.5 * p * logdet[:, None]) * there
    return _Terms(evidence.sum(1), of_quadratic.repeat(p, 1), -0.5 * p * there.sum(1), of_degrees.sum(1))


def _at(part: Float[Array, "B u k"], batch: StackedBatch) -> Float[Array, "J n k"]:
    """What is said of points, where each set of inputs has them."""
    return part.reshape(-1, part.shape[-1]).take(batch.index, 0)


def _add(into: Float[Array, "*u k"], index: Int[Array, "*n"], values: Float[Array, "*n k"]) -> None:
    """The way back: whatever is of one point is summed."""
    k = into.shape[-1]
    rows = torch.from_numpy(values.reshape(-1, k))
    torch.from_numpy(into.reshape(-1, k)).index_add_(0, torch.from_numpy(index.reshape(-1)), rows)


def _expected(mean: Float[Array, "J n p"], follows: Float[Array, "J k"]) -> Float[Array, "J n k"]:
    """The mean as often as each column follows it: outputs take turns."""
    k, p = follows.shape[1], mean.shape[-1]
    turns: Array = mean if p == 1 else np.tile(mean, (1, 1, -(-k // p)))[..., :k]
    found: Array = turns * follows[:, None]
    return found


def _by_output(columns: Float[Array, "J n k"], p: int) -> Float[Array, "J n p"]:
    """Columns summed by the output that they are of."""
    return columns.sum(2, keepdims=True) if p == 1 else np.stack([columns[..., o::p].sum(2) for o in range(p)], 2)


class Covariances:
    """`A = F Fᵀ + s k(t |z − z'|²) + σ²I` of sets of inputs, factored, and inverted where slopes will be asked for."""

    def __init__(
        self,
        z: Float[Array, "J n q"],
        times: Float[Array, " J"],
        functions: Float[Array, "J n f"] | None,
        scale: Float[Array, " J"],
        noise: Float[Array, " J"],
        mask: Float[Array, "J n"] | None,
        shape: Shape,
        *,
        inverted: bool,
    ) -> None:
        self.z, self.times, self.scale = (
            torch.from_numpy(z),
            *(torch.from_numpy(v)[:, None, None] for v in (times, scale)),
        )
        self.functions = None if functions is None else torch.from_numpy(functions)
        self.mask = None if mask is None else torch.from_numpy(mask)
        self.squares = squares_in_lengthscales(self.z, self.z, self.times)
        self.K, self.slope = shape(self.squares)
        A = self.K * self.scale
        if self.functions is not None:
            A += self.functions @ self.functions.mT
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal += torch.from_numpy(noise)[:, None]
        unit = None
        if self.mask is not None:
            A *= self.mask[:, :, None]
            A *= self.mask[:, None, :]
            unit = diagonal.sum(-1) / self.mask.sum(-1)
            diagonal += 1 - self.mask
        self.L, jitter, failed = attempt(A, unit)
        self.jitter: Float[Array, " J"] = jitter.numpy()
        logdet = 2 * self.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self.logdet: Float[Array, " J"] = logdet.masked_fill_(failed, torch.nan).numpy()
        self.inverse = inverse(self.L) if inverted else None

    def solved(self, R: Float[Array, "J n k"], sloped: bool) -> tuple[Float[Array, "J k"], Float[Array, "J n k"]]:
        """`rᵀA⁻¹r` of each column; and, where slopes are asked for, `A⁻¹ R`. By the factor, which keeps more digits."""
        half: Tensor = torch.linalg.solve_triangular(self.L, torch.from_numpy(R), upper=False)
        alpha = torch.linalg.solve_triangular(self.L.mT, half, upper=True) if sloped else half
        return half.square().sum(-2).numpy(), alpha.numpy()

    def back(
        self, alpha: Float[Array, "J n k"], weighted: Float[Array, "J n k"], logdet: Float[Array, " J"]
    ) -> tuple[
        Float[Array, "J n q"], Float[Array, " J"], Float[Array, "J n f"] | None, Float[Array, " J"], Float[Array, " J"]
    ]:
        """Slopes along z, t, F, s and σ² of what rises with `rᵀA⁻¹r` and log|A|.

        alpha: `A⁻¹ R`; weighted: by the first. As in `evidence.py`, it is `A⁻¹ − ααᵀ` against dA. Both are used up.
        """
        assert self.inverse is not None
        G = self.inverse.mul_(torch.from_numpy(logdet)[:, None, None])
        G = torch.baddbmm(G, torch.from_numpy(weighted), torch.from_numpy(alpha).mT, alpha=-1)
        diagonal = G.diagonal(dim1=-2, dim2=-1)
        if self.mask is not None:  # between padding and points it is 0 already
            diagonal *= self.mask
        W = self.slope.mul_(self.scale).mul_(G)
        of_times = (W.flatten(1)[:, None] @ self.squares.flatten(1)[..., None])[:, 0, 0] / self.times[:, 0, 0]
        places = (W.sum(-1, keepdim=True) * self.z - W @ self.z).mul_(4 * self.times)
        functions = None if self.functions is None else (2 * (G @ self.functions)).numpy()
        scale = (G.flatten(1)[:, None] @ self.K.flatten(1)[..., None])[:, 0, 0]
        return places.numpy(), of_times.numpy(), functions, scale.numpy(), diagonal.sum(-1).numpy()
