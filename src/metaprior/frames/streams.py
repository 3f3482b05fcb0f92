"""Predictions of a table that comes batch by batch: what every engine calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import torch

from metaprior.errors import DataError, NumericalError
from metaprior.frames.asked import NothingAskedError, Places, check_at
from metaprior.frames.tables import Wanted, one_slice, predict_counted
from metaprior.frames.written import as_table
from metaprior.notes import Note, added, told
from metaprior.seeds import child_seed
from metaprior.tasks import (
    Columns,
    Tasks,
    TrainedOn,
    as_frame,
    check_known,
    in_numbers,
    is_table,
    task_ids,
    task_owners,
    with_dates,
)

Array = np.ndarray[Any, Any]


def predict_batches(stream: Stream, batches: Iterable[Any], say: Callable[[list[str]], None]) -> Iterator[Any]:
    """Arrow batches of predictions for Arrow batches of whole tasks; what is to be known of all is said at the end."""
    for number, batch in enumerate(batches, 1):
        try:
            found = stream.predicted(batch)
        except (DataError, NumericalError) as error:
            raise type(error)(f"batch {number}: {error}") from error
        yield from found
    say(told(stream.notes))


class Stream:
    """Predicts batches of one table, each of which holds whole tasks, and knows what it has seen.

    All that comes out has one schema, that of the first batch: types follow from its columns and from where is asked,
    never from values.
    """

    def __init__(self, method: Any, at: Any, wanted: Wanted) -> None:
        wanted.check()
        check_at(at)
        self.method, self.wanted = method, wanted
        self.columns: Columns = method.trained_on_.columns
        self.where = _Where(at, self.columns)
        self.given: dict[str, Any] = {}  # types of the first batch
        self.schema: Any = None
        self._begin()

    def _begin(self) -> None:
        self.seen, self.notes = _Seen(), list[Note]()
        self.tasks = self.rows = 0  # that were predicted

    def afresh(self) -> Stream:
        """The same as if nothing had come yet, but for the schema."""
        found = copy(self)
        found._begin()
        return found

    def predicted(self, batch: Any) -> list[Any]:
        """The predictions of one batch, as batches of the one schema; without rows where nothing is asked."""
        table = self._checked(batch)
        found = self._answer(table).cast(self.schema).to_batches() if table.num_rows else []
        return found or [pa.RecordBatch.from_pylist([], self.schema)]

    def _checked(self, batch: Any) -> Any:
        """The columns of a batch that the model knows, in the types of the first one."""
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise DataError(f"a batch is an Arrow record batch or table, not {type(batch).__name__}.")
        columns, names = self.columns, batch.schema.names
        check_known((*columns.task, *columns.x, *columns.y), names, "the batch has")
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        about = [one.name for one in columns.task_x if one.name in names]
        table = table.select([*columns.task, *columns.x, *columns.y, *about])
        types = {name: _plain(table.schema.field(name).type) for name in (*columns.task, *columns.x)}
        if self.schema is None:
            self.given, self.schema = types, _schema(self.method, types, self.where, self.wanted)
        for name, found in types.items():
            if found != self.given[name] and not pa.types.is_null(found):
                raise DataError(
                    f"column {name!r} holds {found}, and {self.given[name]} in the first batch: give all batches one "
                    "schema."
                )
        return table

    def _answer(self, table: Any) -> Any:
        ids = task_ids(nw.from_native(table, eager_only=True), self.columns.task)
        key = self.seen.add(ids)
        wanted, at = self.wanted, self.where.of(ids)
        if wanted.samples:  # tasks of two batches have nothing random in common
            wanted = wanted._replace(seed=child_seed(wanted.seed, key))
        try:
            if at is None:
                raise NothingAskedError("no point is of a task of this batch.")
            found, notes, points = predict_counted(self.method, self.columns, table, at, wanted)
        except NothingAskedError as nothing:
            self.notes = added([*self.notes, *nothing.notes])
            return self.schema.empty_table()
        self.notes = added([*self.notes, *notes])
        self.tasks, self.rows = self.tasks + len(points), self.rows + len(points.x)
        return found


class _Where:
    """Where each batch is asked: at points, at "missing" targets, or at those rows of a table that are of its tasks."""

    def __init__(self, at: Any, columns: Columns) -> None:
        self.at, self.places, self.x = at, None, torch.zeros(1, len(columns.x), dtype=torch.float64)
        self.each = self.tasks = 0  # points that every task is asked at; tasks of a table of points
        if is_table(at):
            frame = _needed(at, columns)
            owner, ids = task_owners(frame, columns.task)
            self.places, self.tasks, self.at = Places(ids), len(ids), frame.to_arrow()
            self.x = _moments(self.at, columns.x)
            self.order = np.argsort(owner, kind="stable").astype(np.int32 if len(owner) < 2**31 else np.int64)
            self.bounds = np.cumsum([0, *np.bincount(owner)])
        elif not isinstance(at, str):
            self.x = Tasks.empty(["any"], len(columns.x), 0).at_points(np.asarray(at, dtype=float)).x
            self.each = len(self.x)

    def of(self, ids: Sequence[Any]) -> Any:
        """Where these tasks are asked; None for nowhere."""
        if self.places is None:
            return self.at
        some = [place for place in self.places.of(ids) if place is not None]
        rows = [self.order[self.bounds[place] : self.bounds[place + 1]] for place in some]
        return self.at.take(pa.array(np.sort(np.concatenate(rows)))) if rows else None


def _needed(at: Any, columns: Columns) -> nw.DataFrame[Any]:
    """The columns of a table of points that are needed, with dates read."""
    frame = as_frame(at)
    check_known((*columns.task, *columns.x), frame.columns, "the points have")
    about = [one.name for one in columns.task_x if one.name in frame.columns]
    frame = with_dates(frame.select(*columns.task, *columns.x, *about), columns.x)
    for name in frame.columns:
        try:
            frame[name].to_arrow()
        except (pa.ArrowException, TypeError):
            raise DataError(
                f"column {name!r} of the points mixes kinds of values; give all of them one type."
            ) from None
    return frame


def _moments(table: Any, names: Sequence[str]) -> torch.Tensor:
    """The inputs of points, where they are dates or times of day: whether all are whole ones says what comes out."""
    columns = [table[name].combine_chunks() for name in names]
    found = [in_numbers(one) if pa.types.is_temporal(one.type) else None for one in columns]
    count = max(1 if one is None else len(one) for one in found)
    x = torch.from_numpy(np.stack([np.zeros(count) if one is None else one for one in found], 1))
    return x[torch.isfinite(x).all(1)]


class _Seen:
    """The tasks that have come, as hashes of 8 bytes, in sorted runs of which each is twice as long as the next."""

    def __init__(self) -> None:
        self.runs: list[Array] = []

    def add(self, ids: Sequence[Any]) -> int:
        """Tasks that come now, as a number; one that came before is an error."""
        digests = b"".join(hashlib.blake2b(repr(name).encode(), digest_size=8).digest() for name in ids)
        hashes = np.frombuffer(digests, dtype=np.uint64)
        for run in self.runs:
            place = np.searchsorted(run, hashes).clip(max=len(run) - 1)
            again = np.flatnonzero(run[place] == hashes)
            if len(again):
                raise DataError(
                    f"task {ids[again[0]]!r} was in an earlier batch as well: a batch holds whole tasks. Bring the "
                    "rows of a task together first, such as by sorting or grouping by it."
                )
        new = np.sort(hashes)
        while self.runs and len(self.runs[-1]) < 2 * len(new):
            new = np.sort(np.concatenate([self.runs.pop(), new]))
        self.runs.append(new)
        return int.from_bytes(hashlib.blake2b(digests, digest_size=7).digest())


def _schema(method: Any, given: dict[str, Any], where: _Where, wanted: Wanted) -> Any:
    """What predictions of such columns at such points look like."""
    trained: TrainedOn = method.trained_on_
    columns = trained.columns
    types = {name: _of_text(given[name], name, trained) for name in columns.x}
    frame = nw.from_native(pa.schema(types.items()).empty_table(), eager_only=True)
    inputs = as_table(frame, columns.x, where.x, {}, {}).to_native().schema
    numbers = [pa.field(name, pa.float64()) for name in _predicted_names(method, trained, wanted)]
    names = given if where.places is None else {name: where.at.schema.field(name).type for name in columns.task}
    return pa.schema([*((name, _id_type(_plain(names[name]))) for name in columns.task), *inputs, *numbers])


def _predicted_names(method: Any, trained: TrainedOn, wanted: Wanted) -> list[str]:
    """The columns that are predicted: those of a task of which nothing is known."""
    context = Tasks.empty(["any"], len(trained.columns.x), len(trained.columns.y))
    if trained.columns.task_x:
        about = torch.tensor([trained.task_x.typical], dtype=torch.float64)
        context = replace(context, columns=trained.columns, covariates=about)
    points = context.at_points(torch.tensor([[low for low, _ in trained.x_range]], dtype=torch.float64))
    points = replace(points, covariates=context.covariates)
    return list(one_slice(method.condition(context), points, trained.columns, wanted))


def _plain(dtype: Any) -> Any:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _of_text(dtype: Any, name: str, trained: TrainedOn) -> Any:
    """The type of an input: what is written as text comes out as moments, or as times of day."""
    if not (pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
        return dtype
    return pa.time64("us") if name in trained.clocks else pa.timestamp("us") if name in trained.dated else dtype


def _id_type(dtype: Any) -> Any:
    """The type in which names of tasks come out."""
    kinds = pa.types
    if kinds.is_integer(dtype):
        return dtype if kinds.is_uint64(dtype) else pa.int64()
    if kinds.is_floating(dtype):
        return pa.float64()
    if kinds.is_timestamp(dtype):
        return pa.timestamp("us", dtype.tz)
    if kinds.is_date(dtype):
        return pa.date32()
    if kinds.is_time(dtype):
        return pa.time64("us")
    return pa.string() if kinds.is_large_string(dtype) or kinds.is_string_view(dtype) else dtype
