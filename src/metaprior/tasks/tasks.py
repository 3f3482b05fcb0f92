"""`Tasks`: many small regression tasks of unequal size, in one ragged container."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.arrays import writable
from metaprior.errors import DataError, OptionError
from metaprior.notes import told
from metaprior.seeds import generator_of
from metaprior.tasks._checks import Missing, NothingLeftError, as_matrix, check_missing_option, check_shapes, names_of
from metaprior.tasks.arrow import as_frame, is_table
from metaprior.tasks.columns import Columns, default_columns
from metaprior.tasks.covariates import Covariate, encode
from metaprior.tasks.patterns import looks_wide
from metaprior.tasks.possible import PAST, Possible, Support, check_possible, possible_values
from metaprior.tasks.rows import Rows
from metaprior.tasks.tables import DAYS, LongTable, Names, named_columns, read_long
from metaprior.tasks.wide import long_table, wide_columns

LARGEST = 1e75
"""Of targets that are to be scored."""


LEAST_CLUSTERS = 3
"""Of which one can be held out to judge by, one to stop by, and one to learn from."""


class Task(NamedTuple):
    """One task: its id, its inputs and its targets."""

    id: Hashable
    x: Float[Tensor, "n d"]
    y: Float[Tensor, "n p"]


class ContextTarget(NamedTuple):
    """The same tasks twice: the points to condition on, and the points to predict."""

    context: Tasks
    target: Tasks


@dataclass(frozen=True, eq=False, repr=False)
class Tasks:
    """The points of all tasks one after another; task `i` owns rows `offsets[i]` to `offsets[i + 1]`.

    Build one with `from_pairs` or `from_table`. Tensors are float64 and the container's own: treat them as
    read-only. `notes` says what was left out when it was built; `dated` names the inputs that are dates, in days, and
    `clocks` those that are times of day.
    `covariates` are what is known of each task as a whole, as numbers (see `with_task_x`). `clusters` are numbers of
    the groups in which tasks share a fate (see `with_clusters`). `possible` is what the targets can be (see
    `with_possible`); empty if anything.
    """

    x: Float[Tensor, "N d"]
    y: Float[Tensor, "N p"]
    offsets: Int[Tensor, " m+1"]
    ids: tuple[Hashable, ...]
    columns: Columns
    notes: tuple[str, ...] = ()
    dated: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()
    covariates: Float[Tensor, "m c"] | None = None
    clusters: Int[Tensor, " m"] | None = None
    possible: tuple[Possible, ...] = ()

    @staticmethod
    def from_pairs(
        pairs: Iterable[tuple[Any, Any]], ids: Sequence[Hashable] | None = None, *, missing: Missing = "error"
    ) -> Tasks:
        """Tasks from `(x, y)` pairs of arrays or tensors: x `[n, d]` or `[n]`, y `[n, p]` or `[n]`."""
        check_missing_option(missing)
        pairs = list(pairs)
        names = names_of(ids, len(pairs))
        xs = [as_matrix(x, f"x of task {name!r}") for name, (x, _) in zip(names, pairs, strict=True)]
        ys = [as_matrix(y, f"y of task {name!r}") for name, (_, y) in zip(names, pairs, strict=True)]
        check_shapes(names, xs, ys)
        numbers = np.concatenate([np.arange(len(x)) for x in xs])
        owner = np.repeat(np.arange(len(xs)), [len(x) for x in xs])
        columns = default_columns(xs[0].shape[1], ys[0].shape[1])
        return _assembled(Rows(torch.cat(xs), torch.cat(ys), owner, names, columns, numbers), missing)

    @staticmethod
    def on_grid(x: Any, y: Any, ids: Sequence[Hashable] | None = None) -> Tasks:
        """Tasks that were all observed at the same points: x `[n, d]` or `[n]`, y `[m, n, p]` or `[m, n]`."""
        grid = as_matrix(x, "x")
        values = torch.as_tensor(writable(y)).to(torch.float64) + 0.0  # a copy, with one zero
        values = values[..., None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[1] != len(grid) or min(values.shape[:2]) == 0:
            raise DataError(
                f"y of shape {tuple(values.shape)} on a grid of {len(grid)} points; give one row of y per task, "
                "with one value per point."
            )
        m, n, p = values.shape
        values, names, columns = values.reshape(m * n, p), names_of(ids, m), default_columns(grid.shape[1], p)
        if not bool(torch.isfinite(values).all() and torch.isfinite(grid).all()):  # to say where
            places = np.arange(m * n)
            return _assembled(Rows(grid.repeat(m, 1), values, places // n, names, columns, places % n), "error")
        sizes = torch.full((m,), n, dtype=torch.int64)
        return Tasks(grid.repeat(m, 1), values, offsets_of(sizes), tuple(names), columns)

    @staticmethod
    def from_inputs(xs: Iterable[Any], ids: Sequence[Hashable] | None = None) -> Tasks:
        """Points without targets (y has no columns), one entry per task: where to predict."""
        pairs = [(matrix, matrix[:, :0]) for matrix in (as_matrix(x, "x") for x in xs)]
        return Tasks.from_pairs(pairs, ids)

    @staticmethod
    def empty(ids: Sequence[Hashable], d: int, p: int) -> Tasks:
        """Tasks with no points yet: conditioning on them leaves the prior. Ids may repeat, as they do in `select`."""
        if len(ids) == 0:
            raise DataError("no tasks: give at least one id.")
        x, y = (torch.zeros(0, columns, dtype=torch.float64) for columns in (d, p))
        offsets = torch.zeros(len(ids) + 1, dtype=torch.int64)
        return Tasks(x, y, offsets, tuple(ids), default_columns(d, p))

    @staticmethod
    def from_table(
        table: Any,
        *,
        task: Names | None = None,
        x: Names | None = None,
        y: Names | None = None,
        wide: str | None = None,
        task_x: str | Sequence[str | Covariate] = (),
        cluster: str | None = None,
        missing: Missing = "error",
    ) -> Tasks:
        """Tasks from a long table, one row per observation, by column names: pandas, polars, what speaks Arrow.

        wide: of a table with one row per task, a pattern of the columns that are its points, such as `week_*`: the
        number in a name is the input, `week` unless x says otherwise, and the target is called `value`, or y. Empty
        cells are no points. Without task, rows are tasks by their number.
        task_x: columns that say something of the task as a whole, such as age or diet: constant within each task.
        cluster: a column of groups of tasks that share a fate, such as the school of a pupil (see `with_clusters`).
        """
        check_missing_option(missing)
        columns = named_columns(task, x, y, task_x)
        if wide is not None:
            more = [*(one.name for one in columns.task_x), *([] if cluster is None else [cluster])]
            columns = wide_columns(wide, columns)
            table = long_table(table, wide, columns, more)
        found = read_long(table, columns, cluster)
        tasks = _assembled(found.rows, missing) if wide is None else _with_values(found.rows)
        said = [f"column {name!r}: dates, in {DAYS}" for name in found.dated]
        said += [f"column {name!r}: times of day, in days (noon is 0.5)" for name in found.clocks]
        said += told(found.zones)
        tasks = replace(tasks, notes=(*said, *tasks.notes), dated=found.dated, clocks=found.clocks)
        tasks = _with_task_columns(tasks, found, missing) if found.task_x else tasks
        if found.cluster is None:
            return tasks
        place = {name: i for i, name in enumerate(found.rows.ids)}
        return tasks.with_clusters([found.cluster[place[name]] for name in tasks.ids])

    def at_points(self, x: Any) -> Tasks:
        """The same tasks with one array of points for each of them and no targets: where to predict."""
        points = as_matrix(x, "x")
        if len(points) == 0:
            raise DataError("no points to predict at: x has no rows.")
        bad = torch.nonzero(~torch.isfinite(points).all(1))[:, 0].tolist()
        if bad:
            raise DataError(f"NaN or infinity in {len(bad)} points (the first is row {bad[0]} of x): leave them out.")
        sizes = torch.full((len(self),), len(points), dtype=torch.int64)
        x = points.repeat(len(self), 1)
        return replace(self, x=x, y=x[:, :0], offsets=offsets_of(sizes), notes=(), covariates=None)

    @staticmethod
    def one_after_another(parts: Sequence[Tasks]) -> Tasks:
        """The tasks of several sets of one form, of which some may be the same."""
        first = parts[0]
        about = None if first.covariates is None else torch.cat([part.covariates for part in parts])  # type: ignore[misc]
        return replace(
            first,
            x=torch.cat([part.x for part in parts]),
            y=torch.cat([part.y for part in parts]),
            offsets=offsets_of(torch.cat([part.sizes for part in parts])),
            ids=tuple(name for part in parts for name in part.ids),
            covariates=about,
            clusters=None if first.clusters is None else torch.cat([part.clusters for part in parts]),  # type: ignore[misc]
        )

    def with_clusters(self, labels: Sequence[Any]) -> Tasks:
        """The same tasks in groups that share a fate: plots of one field, pupils of one school. A label for each task.

        Whole groups are then held out wherever tasks are, so that what is learned, chosen and told holds for tasks of
        new groups.
        """
        if len(labels) != len(self):
            raise DataError(f"{len(labels)} clusters for {len(self)} tasks: give one for each.")
        lacking = [name for name, label in zip(self.ids, labels, strict=True) if label is None or label != label]
        if lacking:
            raise DataError(f"{len(lacking)} tasks have no cluster (the first is {lacking[0]!r}): give every task one.")
        codes = {label: k for k, label in enumerate(dict.fromkeys(labels))}
        if len(codes) < LEAST_CLUSTERS:
            raise DataError(
                f"{len(codes)} cluster{'s' * (len(codes) != 1)}: some are held out to judge by and some to stop by, so "
                f"give {LEAST_CLUSTERS} or more, or leave them out."
            )
        return replace(self, clusters=torch.tensor([codes[label] for label in labels]))

    def with_possible(self, support: Support | None = None, integer: bool | Sequence[str] = False) -> Tasks:
        """The same tasks with what is known of their targets: `support=(0, None)` is 0 or more, `(3, 15)` from 3 to 15.

        integer: whether they are whole numbers. Of several targets, give support by name, `{"wind": (0, None)}`, and
        the names of those that are whole. Predictions stay within what is possible.
        """
        possible = possible_values(self.columns.y, support, integer)
        check_possible(self.columns.y, possible, self.y, self._where, PAST)
        return replace(self, possible=possible)

    def check_possible(self, names: Sequence[str], possible: Sequence[Possible]) -> None:
        """Check that a model whose targets are called so, and can be this, may be asked about the tasks."""
        check_possible(names, possible, self.y, self._where)

    def _where(self, row: int) -> str:
        """A row of the container, as a user would find it."""
        task = int(self.task_of_row[row])
        return f"row {row - int(self.offsets[task])} of task {self.ids[task]!r}"

    @cached_property
    def units(self) -> Int[Tensor, " m"]:
        """What each task is held out together with: the number of its cluster, or its own where it has none."""
        alone = self.clusters is None or bool((self.clusters == self.clusters[:1]).all())
        return torch.arange(len(self)) if alone or self.clusters is None else self.clusters

    def shuffled(self, seed: int) -> Int[Tensor, " u"]:
        """The units in random order: what is held out is taken from the front."""
        units: Tensor = self.units.unique()
        return units[torch.randperm(len(units), generator=generator_of(seed))]

    def of_units(self, which: Int[Tensor, " u"]) -> Int[Tensor, " k"]:
        """The positions of the tasks of some units."""
        return torch.nonzero(torch.isin(self.units, which))[:, 0]

    def with_task_x(self, columns: Mapping[str, Sequence[Any]], known: Sequence[Covariate] = ()) -> Tasks:
        """The same tasks with what is known of each as a whole: a value per task in each column, numbers or text.

        `tasks.with_task_x({"age": [61, 47], "diet": ["plain", "rich"]})`; known: `columns.task_x` of earlier tasks.
        """
        described, values = encode(columns, self.ids, known)
        return replace(self, columns=self.columns._replace(task_x=described), covariates=values)

    def without_task_x(self) -> Tasks:
        """The same tasks as curves alone."""
        return replace(self, columns=self.columns._replace(task_x=()), covariates=None)

    def widened(self, covariates: Float[Tensor, "m c"] | None) -> Tasks:
        """The same points with each task's covariates as further inputs, for a prior that takes them in."""
        if covariates is None:
            return self
        return replace(self, x=torch.cat([self.x, covariates[self.task_of_row]], 1), covariates=None)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Task:
        if not -len(self) <= i < len(self):
            raise IndexError(f"task {i} of {len(self)}")
        i = i % len(self)
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return Task(self.ids[i], self.x[rows], self.y[rows])

    def __iter__(self) -> Iterator[Task]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        sizes = self.sizes
        span = f"{int(sizes.min())}–{int(sizes.max())}" if len(self) else "0"
        return f"Tasks({len(self)} tasks × {span} points, d={self.d}, p={self.p})"

    @property
    def d(self) -> int:
        """Number of input columns."""
        return self.x.shape[1]

    @property
    def p(self) -> int:
        """Number of target columns."""
        return self.y.shape[1]

    @cached_property
    def sizes(self) -> Int[Tensor, " m"]:
        """Number of points of each task."""
        return self.offsets.diff()

    @cached_property
    def task_of_row(self) -> Int[Tensor, " N"]:
        """The position of the task that owns each row."""
        return torch.repeat_interleave(torch.arange(len(self)), self.sizes)

    def summed(self, values: Float[Tensor, "N ..."]) -> Float[Tensor, "m ..."]:
        """The sum of each task's rows; 0 for a task without any."""
        total = values.new_zeros(len(self), *values.shape[1:])
        return total.index_add_(0, self.task_of_row.to(values.device), values)

    def select(self, which: Sequence[int] | Tensor | np.ndarray[Any, Any]) -> Tasks:
        """These tasks, in this order: positions, or one boolean per task."""
        chosen = torch.as_tensor(which)
        if chosen.dtype == torch.bool:
            if chosen.shape != (len(self),):
                raise DataError(f"{chosen.numel()} booleans for {len(self)} tasks; give one each.")
            chosen = torch.nonzero(chosen)[:, 0]
        if chosen.is_floating_point() and chosen.numel():
            raise DataError("select takes positions or booleans, not fractions.")
        chosen = chosen.to(torch.int64)
        if chosen.numel() and not (-len(self) <= int(chosen.min()) and int(chosen.max()) < len(self)):
            raise DataError(f"positions must lie in 0 … {len(self) - 1}.")
        chosen = chosen % max(len(self), 1)
        rows, offsets = self.rows_of(chosen), offsets_of(self.sizes[chosen])
        ids = tuple(self.ids[i] for i in chosen.tolist())
        about, groups = (None if part is None else part[chosen] for part in (self.covariates, self.clusters))
        x, y = self.x[rows], self.y[rows]
        return replace(self, x=x, y=y, offsets=offsets, ids=ids, covariates=about, clusters=groups)

    def rows_of(self, which: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
        """The rows of some tasks, task by task."""
        sizes = self.sizes[which]
        offsets = offsets_of(sizes)
        return torch.arange(int(offsets[-1])) + torch.repeat_interleave(self.offsets[which] - offsets[:-1], sizes)

    def split(self, fraction: float, seed: int) -> tuple[Tasks, Tasks]:
        """Two random disjoint parts: this fraction of the tasks or clusters (at least one), and the rest."""
        if not 0 < fraction < 1:
            raise OptionError(f"fraction={fraction} must lie between 0 and 1.")
        if len(self) < 2:
            raise DataError(f"{len(self)} task cannot be split in two; give more tasks.")
        order = self.shuffled(seed)
        count = min(max(round(fraction * len(order)), 1), len(order) - 1)
        return self.select(self.of_units(order[:count])), self.select(self.of_units(order[count:]))

    def context_target(
        self,
        n: int | None = None,
        seed: int | None = None,
        *,
        where: Callable[[Float[Tensor, "N d"]], Any] | None = None,
    ) -> ContextTarget:
        """Each task's points in two: `n` random ones, or those where a predicate on x holds, and the rest.

        `tasks.context_target(5, seed=0)`; `tasks.context_target(where=lambda x: x[:, 0] < 24)`.
        """
        if (n is None) == (where is None):
            raise OptionError("give either n (with a seed) or where, not both.")
        mask = self._random_rows(n, seed) if n is not None else self._rows_where(where)
        return ContextTarget(self._keep_rows(mask), self._keep_rows(~mask))

    def first_points(self, n: int) -> ContextTarget:
        """Each task's points in two: the `n` with the lowest first input, and the rest."""
        order = self.x[:, 0].argsort(stable=True)
        order = order[self.task_of_row[order].argsort(stable=True)]
        mask = torch.empty(len(order), dtype=torch.bool)
        mask[order] = torch.arange(len(order)) - self.offsets[:-1].repeat_interleave(self.sizes) < n
        return ContextTarget(self._keep_rows(mask), self._keep_rows(~mask))

    def joined(self, other: Tasks) -> Tasks:
        """Each task's points of both containers, which hold the same tasks in the same order."""
        if self.ids != other.ids:
            raise DataError("only containers with the same tasks in the same order can be joined.")
        order = torch.cat([self.task_of_row, other.task_of_row]).argsort(stable=True)
        x, y = torch.cat([self.x, other.x])[order], torch.cat([self.y, other.y])[order]
        return replace(self, x=x, y=y, offsets=offsets_of(self.sizes + other.sizes))

    def _random_rows(self, n: int, seed: int | None) -> Bool[Tensor, " N"]:
        if seed is None:
            raise OptionError("random context points need a seed: context_target(n, seed=0).")
        if n < 0 or n != int(n):
            raise OptionError(f"n={n}: a context has a whole number of points, 0 or more.")
        short = torch.nonzero(self.sizes < n)[:, 0].tolist()
        if short:
            i = short[0]
            raise DataError(
                f"a context of {n} points is larger than {len(short)} of the {len(self)} tasks "
                f"(the first is {self.ids[i]!r} with {int(self.sizes[i])}). Use a smaller context, or "
                "select the tasks that have more points."
            )
        # of float32 keys in [0, 1), task + key is exact in float64, and sorts by task first
        keys = torch.rand(len(self.x), generator=generator_of(seed), dtype=torch.float32)
        order = (self.task_of_row + keys.double()).argsort(stable=True)
        rank = torch.empty(len(order), dtype=torch.int64)
        rank[order] = torch.arange(len(order)) - self.offsets[self.task_of_row]
        return rank < n

    def _rows_where(self, where: Callable[[Tensor], Any] | None) -> Bool[Tensor, " N"]:
        assert where is not None
        mask = torch.as_tensor(where(self.x))
        if mask.shape != (len(self.x),) or mask.dtype != torch.bool:
            raise OptionError(
                f"the predicate must map x [{len(self.x)}, {self.d}] to one boolean per row; "
                f"it gave {mask.dtype} of shape {tuple(mask.shape)}."
            )
        return mask

    def _keep_rows(self, mask: Bool[Tensor, " N"]) -> Tasks:
        sizes = torch.bincount(self.task_of_row[mask], minlength=len(self))
        return replace(self, x=self.x[mask], y=self.y[mask], offsets=offsets_of(sizes))


def offsets_of(sizes: Int[Tensor, " m"]) -> Int[Tensor, " m+1"]:
    """Where each task's rows begin, and where the last one's end."""
    return torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])


def as_tasks(
    given: Any,
    *,
    task: Names | None = None,
    x: Names | None = None,
    y: Names | None = None,
    wide: str | None = None,
    task_x: str | Sequence[str | Covariate] = (),
    clusters: str | Sequence[Any] | None = None,
    support: Support | None = None,
    integer: bool | Sequence[str] = False,
    missing: Missing = "error",
) -> Tasks:
    """Tasks as they are, or from a table with the names of its columns."""
    if support is not None or integer:
        plain = as_tasks(given, task=task, x=x, y=y, wide=wide, task_x=task_x, clusters=clusters, missing=missing)
        return plain.with_possible(support, integer)
    if isinstance(given, Tasks):
        if task_x:
            raise DataError("task_x names columns of a table; for Tasks use tasks.with_task_x({name: values}).")
        if wide is not None:
            raise DataError("wide is of a table: Tasks are what they are.")
        if isinstance(clusters, str):
            raise DataError("clusters names a column of a table; for Tasks give a label for each of them.")
        return given if clusters is None else given.with_clusters(clusters)
    if clusters is not None and not isinstance(clusters, str):
        raise DataError("the clusters of a table are one of its columns: give its name.")
    if wide is None and (task is None or x is None or y is None):
        advice = looks_wide(as_frame(given).columns) if is_table(given) else ""
        raise DataError(
            f"a table needs the names of its columns: fit(table, task=..., x=..., y=...). {advice}".rstrip()
        )
    return Tasks.from_table(given, task=task, x=x, y=y, wide=wide, task_x=task_x, cluster=clusters, missing=missing)


def _assembled(rows: Rows, missing: Missing) -> Tasks:
    """Tasks from what is usable of their rows."""
    kept, notes = rows.usable(missing)
    sizes = torch.from_numpy(np.bincount(kept.owner, minlength=len(kept.ids)))
    return Tasks(kept.x, kept.y, offsets_of(sizes), tuple(kept.ids), kept.columns, notes)


def _with_values(rows: Rows) -> Tasks:
    """Tasks of a wide table, of which some may have no value at all: only that is worth a note."""
    tasks = _assembled(rows, "drop")
    return replace(tasks, notes=tasks.notes[1:])


def _with_task_columns(tasks: Tasks, table: LongTable, missing: Missing) -> Tasks:
    """The tasks with what the table says of each; where that is missing, they may be dropped."""
    whole, place = table.task_x, {name: i for i, name in enumerate(table.rows.ids)}
    lacking = {name for name in tasks.ids for values in whole.values() if values[place[name]] is None}
    if lacking and missing == "drop":
        named = ", ".join(map(repr, [name for name in tasks.ids if name in lacking][:3]))
        note = f"dropped {len(lacking)} of {len(tasks)} tasks without {' or '.join(whole)}: {named}"
        if len(lacking) == len(tasks):
            raise NothingLeftError(f"no task has all task columns. {note}.")
        tasks = tasks.select([i for i, name in enumerate(tasks.ids) if name not in lacking])
        tasks = replace(tasks, notes=(*tasks.notes, note))
    given = {name: [values[place[i]] for i in tasks.ids] for name, values in whole.items()}
    return tasks.with_task_x(given, table.rows.columns.task_x)


def check_targets(tasks: Tasks) -> None:
    """Whether predictions of these targets can be scored: the spread of squared errors has their fourth power."""
    for name, column in zip(tasks.columns.y, tasks.y.abs().unbind(1), strict=True):
        if len(column) and float(column.max()) > LARGEST:
            task = tasks.ids[int(tasks.task_of_row[column.argmax()])]
            raise DataError(
                f"column {name!r} is as large as {float(column.max()):.3g} (task {task!r}): squared errors would "
                f"overflow. Give it in other units, below {LARGEST:g}."
            )


def check_task_x(known: Sequence[Covariate], tasks: Tasks) -> None:
    """Whether tasks have the covariates that a model was learned with, encoded as it knows them."""
    given = tasks.columns.task_x if tasks.covariates is not None else ()
    if tuple(known) == tuple(given):
        return
    wanted, found = [one.name for one in known], [one.name for one in given]
    lacking, more = [n for n in wanted if n not in found], [n for n in found if n not in wanted]
    if lacking:
        said = f"the model was learned with the task columns {', '.join(wanted)}, and these lack {', '.join(lacking)}"
    elif more:
        said = f"the model knows nothing of the task column {', '.join(more)}"
    else:
        said = f"the task columns {', '.join(wanted)} are in another order, or have other levels, than the model's"
    raise DataError(
        f"{said}: give them as it knows them, with task_x={{name: value}} for one task, or with "
        "tasks.with_task_x({name: values}, gp.trained_on_.columns.task_x)."
    )
