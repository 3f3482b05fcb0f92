"""Batches: tasks laid out so that one batched computation serves many of them, exactly.

Tasks with identical inputs share everything but their y: `SharedInputs`. The rest are padded to the size of the
largest in their bucket, with a mask: `Padded`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.tasks.tasks import Tasks

MAX_ENTRIES = 4_000_000
"""Covariance entries in one padded batch: 32 MB in float64."""

ON_GPU = 25
"""How many times as many there are on a GPU: there it is the calls that cost."""

LEAST_SHARED = 4
"""Fewer tasks than this with the same inputs are not worth a factorisation of their own: they are padded."""

PADDING = 0.3
"""Padding may add this share to a bucket's covariance entries …"""

FREE_PADDING = 20_000
"""… or this many entries, which cost less than another batch."""


CHUNK = 4096
"""Tasks with the same inputs whose scatter is summed at a time."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Points `distinct[index]`: what costs per point (a network) is computed once per distinct one."""

    distinct: Float[Tensor, "u d"]
    index: Int[Tensor, "*n"]
    own: bool = False  # whether none comes twice, and they stand in the order of the points

    @staticmethod
    def of(x: Float[Tensor, "b n d"]) -> Inputs:
        rows = x.reshape(-1, x.shape[-1])
        distinct, index = distinct_rows(rows)
        if len(distinct) == len(rows):
            places = torch.arange(len(rows), device=x.device)
            return Inputs(rows, places.reshape(x.shape[:-1]), own=True)
        return Inputs(distinct, index.reshape(x.shape[:-1]))

    @staticmethod
    def of_rows(tasks: Tasks) -> Inputs:
        """The distinct points of all tasks, and which of them each row is."""
        if on_one_grid(tasks):
            distinct, index = distinct_rows(tasks.x[: int(tasks.sizes[0])])
            return Inputs(distinct, index.repeat(len(tasks)))
        return Inputs(*distinct_rows(tasks.x))

    def to(self, like: Tensor) -> Inputs:
        return Inputs(self.distinct.to(like), self.index.to(like.device), self.own)


@dataclass(frozen=True, eq=False)
class SharedInputs:
    """All tasks that have the same inputs; their evidence needs y only through count, mean and scatter."""

    tasks: Int[Tensor, " c"]
    inputs: Inputs  # index [1, n]
    y: Float[Tensor, "c n p"]
    mean: Float[Tensor, "1 n p"]
    rounded: Float[Tensor, "1 n p"]  # what the mean would have to be more: at 1e9 its last digit is 1e-7
    scatter: Float[Tensor, "1 n n"]  # Σ over outputs of the covariance of y over the tasks

    @staticmethod
    def of(tasks: Int[Tensor, " c"], x: Float[Tensor, "n d"], y: Float[Tensor, "c n p"]) -> SharedInputs:
        mean = y.mean(0, keepdim=True)
        rounded, scatter = torch.zeros_like(mean), y.new_zeros(len(x), len(x))
        for part in y.split(CHUNK):  # [n, c·p] times itself: Σ over tasks and outputs, without a copy of all y
            gaps = part - mean
            flat = gaps.permute(1, 0, 2).reshape(len(x), -1)
            rounded += gaps.sum(0, keepdim=True) / len(y)
            scatter += flat @ flat.mT
        scatter = scatter / len(y) - (rounded @ rounded.mT)[0]
        return SharedInputs(tasks, Inputs.of(x[None]), y, mean, rounded, scatter[None])

    def to(self, like: Tensor) -> SharedInputs:
        """The same on the device and in the precision of a tensor."""
        y, mean, rounded, scatter = (values.to(like) for values in (self.y, self.mean, self.rounded, self.scatter))
        return SharedInputs(self.tasks, self.inputs.to(like), y, mean, rounded, scatter)


@dataclass(frozen=True, eq=False)
class Padded:
    """Tasks of similar size. Padding repeats a row of x, has y = 0 and is `False` in the mask."""

    tasks: Int[Tensor, " b"]
    inputs: Inputs
    y: Float[Tensor, "b n p"]
    mask: Bool[Tensor, "b n"]
    full: bool = False  # whether it is known that no point is padding

    def select(self, chosen: Int[Tensor, " k"], n: int | None = None) -> Padded:
        """Some of the tasks, in this order, padded to the same size, or to n points."""
        inputs = Inputs(self.inputs.distinct, self.inputs.index[chosen, :n])
        return Padded(self.tasks[chosen.cpu()], inputs, self.y[chosen, :n], self.mask[chosen, :n], self.full)

    def to(self, like: Tensor) -> Padded:
        """The same on the device and in the precision of a tensor."""
        return Padded(self.tasks, self.inputs.to(like), self.y.to(like), self.mask.to(like.device), self.full)


Batch = SharedInputs | Padded


def batches(tasks: Tasks, like: Tensor | None = None) -> list[Batch]:
    """Each task in exactly one batch: groups with identical inputs first, then buckets of similar size.

    like: a tensor whose device and precision to take.
    """
    laid_out: list[Batch] = []
    if on_one_grid(tasks):
        m, n = len(tasks), int(tasks.sizes[0])
        laid_out += [SharedInputs.of(torch.arange(m), tasks.x[:n], tasks.y.view(m, n, tasks.p))]
    else:
        shared, rest = _groups(tasks)
        laid_out += [SharedInputs.of(members, tasks.x[rows[0]], tasks.y[rows]) for members, rows in shared]
        laid_out += padded(tasks, rest, like=like)
    return _share_distinct([batch.to(like) for batch in laid_out] if like is not None else laid_out)


def _share_distinct(laid_out: list[Batch]) -> list[Batch]:
    """The same batches, all of whose inputs refer to the same distinct points: a network sees each of those once."""
    if len(laid_out) < 2:
        return laid_out
    parts = [batch.inputs.distinct for batch in laid_out]
    distinct, which = distinct_rows(torch.cat(parts))
    ends = torch.tensor([len(part) for part in parts]).cumsum(0).tolist()
    common = []
    for batch, end, part in zip(laid_out, ends, parts, strict=True):
        own = which[end - len(part) : end]
        common.append(replace(batch, inputs=Inputs(distinct, own[batch.inputs.index])))
    return common


def padded(
    tasks: Tasks, which: Int[Tensor, " k"] | None = None, known: Inputs | None = None, *, like: Tensor | None = None
) -> list[Padded]:
    """These tasks (default: all) in padded batches of similar size. known: the distinct points of all tasks' rows.

    like: a tensor of the device on which they are computed with.
    """
    which = torch.arange(len(tasks)) if which is None else which
    gpu = like if like is not None and like.is_cuda else None
    return [pad(tasks, which[bucket], known, gpu) for bucket in buckets(tasks.sizes[which], on_gpu=gpu is not None)]


def pad(tasks: Tasks, which: Int[Tensor, " b"], known: Inputs | None = None, gpu: Tensor | None = None) -> Padded:
    """These tasks in one padded batch, in this order. known: the distinct points of all tasks' rows.

    gpu: a tensor of the device on which distinct points are looked for, where that is quicker.
    """
    sizes = tasks.sizes[which]
    column = torch.arange(int(sizes.max()) if len(which) else 0)
    mask = column < sizes[:, None]
    # beyond its end a task repeats its first row; a task without points borrows any row there is
    first = tasks.offsets[which].clamp(max=max(len(tasks.x) - 1, 0))
    rows = torch.where(mask, first[:, None] + column, first[:, None])
    y = torch.where(mask[..., None], tasks.y[rows], 0.0)
    if known is None:
        inputs = Inputs.of(tasks.x[rows] if gpu is None else tasks.x[rows].to(gpu))
    else:
        inputs = Inputs(known.distinct, known.index[rows])
    return Padded(which, inputs, y, mask, bool(mask.all()))


def buckets(
    sizes: Int[Tensor, " k"], beside: int | None = None, *, on_gpu: bool = False
) -> Iterator[Int[Tensor, " b"]]:
    """Positions in groups of similar size, smallest first, each within the memory of one batch.

    beside: the number of other points that their covariances are with; by default they are among themselves. on_gpu:
    fewer groups, however much they are padded.
    """
    most, free = (ON_GPU * MAX_ENTRIES, ON_GPU * MAX_ENTRIES) if on_gpu else (MAX_ENTRIES, FREE_PADDING)
    order = sizes.argsort(stable=True)
    ordered = sizes[order].tolist()
    if ordered and ordered[0] == ordered[-1]:
        alone = ordered[0] * (ordered[0] if beside is None else beside)
        yield from order.split(max(most // max(alone, 1), 1))
        return
    start, own = 0, 0  # the bucket's first position, and the entries its tasks would have unpadded
    for stop, size in enumerate(ordered):
        alone = size * (size if beside is None else beside)
        entries = (stop + 1 - start) * alone
        allowed = own + alone + max(PADDING * own, free)
        if stop > start and (entries > allowed or entries > most):
            yield order[start:stop]
            start, own = stop, 0
        own += alone
    if ordered:
        yield order[start:]


def on_one_grid(tasks: Tasks) -> bool:
    """Whether all tasks have the same inputs in the same order, the commonest case of shared ones: no sorting then."""
    n = int(tasks.sizes[0]) if len(tasks) >= LEAST_SHARED else 0
    if n == 0 or not bool((tasks.sizes == n).all()):
        return False
    parts = tasks.x.view(len(tasks), n, tasks.d).split(CHUNK)
    return all(bool((part == tasks.x[:n]).all()) for part in parts)


def groups_of_inputs(tasks: Tasks) -> tuple[list[Int[Tensor, "c n"]], Int[Tensor, " k"]]:
    """The rows of tasks that have the same inputs, in one common order; and which tasks have inputs of their own."""
    if on_one_grid(tasks):
        return [torch.arange(len(tasks.x)).view(len(tasks), -1)], torch.zeros(0, dtype=torch.int64)
    shared, alone = _groups(tasks)
    return [rows for _, rows in shared], alone


def _groups(tasks: Tasks) -> tuple[list[tuple[Tensor, Tensor]], Int[Tensor, " k"]]:
    """Tasks with identical inputs, as (members [c], their rows in one common order [c, n]), and the rest."""
    rows = _rows_by_x(tasks)
    shared, alone = [], []
    for group in _members(tasks, tasks.x if rows is None else tasks.x[rows]):
        if len(group) < LEAST_SHARED or int(tasks.sizes[group[0]]) == 0:
            alone += group
            continue
        which = torch.tensor(group)
        at = tasks.offsets[which][:, None] + torch.arange(int(tasks.sizes[group[0]]))
        shared.append((which, at if rows is None else rows[at]))
    return shared, torch.tensor(sorted(alone), dtype=torch.int64)


def in_order(tasks: Tasks) -> Tasks:
    """The same tasks, the points of each in the order of their inputs; on one grid they stay as they are."""
    rows = None if on_one_grid(tasks) else _rows_by_x(tasks)
    return tasks if rows is None else replace(tasks, x=tasks.x[rows], y=tasks.y[rows])


def same_inputs(tasks: Tasks) -> Int[Tensor, " m"]:
    """A number for each task, from 0 on: tasks have the same one if their inputs are the same, in whatever order."""
    rows = _rows_by_x(tasks)
    found = torch.empty(len(tasks), dtype=torch.int64)
    for number, group in enumerate(_members(tasks, tasks.x if rows is None else tasks.x[rows])):
        found[group] = number
    return found


def _members(tasks: Tasks, x: Float[Tensor, "N d"]) -> Iterable[list[int]]:
    """The tasks of each set of inputs, where those of a task stand in one order."""
    values, offsets = x.numpy() + 0.0, tasks.offsets.tolist()  # −0.0 becomes 0.0
    members: dict[bytes, list[int]] = {}
    for i in range(len(tasks)):
        members.setdefault(values[offsets[i] : offsets[i + 1]].tobytes(), []).append(i)
    return members.values()


def _rows_by_x(tasks: Tasks) -> Int[Tensor, " N"] | None:
    """Rows sorted by x within each task, so that the order of a task's points does not matter; None: they are."""
    keys = [tasks.task_of_row, *tasks.x.unbind(1)]
    in_order = torch.ones(max(len(tasks.x) - 1, 0), dtype=torch.bool)
    for key in reversed(keys):  # lexicographic: the first key that differs decides
        in_order = (key[:-1] < key[1:]) | ((key[:-1] == key[1:]) & in_order)
    if bool(in_order.all()):
        return None
    distinct, rank = distinct_rows(tasks.x)
    return (tasks.task_of_row * len(distinct) + rank).argsort(stable=True)


def distinct_rows(values: Float[Tensor, "N k"]) -> tuple[Float[Tensor, "u k"], Int[Tensor, " N"]]:
    """The distinct rows in lexicographic order and, for each row, which of them it is."""
    if len(values) == 0:
        return values, torch.zeros(0, dtype=torch.int64)
    distinct, which = values[:, 0].unique(return_inverse=True)
    if values.shape[1] == 1:
        return distinct[:, None], which
    for column in values.unbind(1)[1:]:  # whole numbers that stand for the columns so far: faster than unique(dim=0)
        levels, level = column.unique(return_inverse=True)
        which = (which * len(levels) + level).unique(return_inverse=True)[1]
    rows = torch.arange(len(which), device=values.device)
    first = torch.empty(int(which.max()) + 1, dtype=torch.int64, device=values.device)
    first[which] = rows  # any row that has the values
    return values[first], which
