"""`Shards`: tasks in a folder of buckets, read bucket by bucket, and checked."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from metaprior.data.hashing import hashes
from metaprior.data.manifest import Manifest
from metaprior.data.moments import LEVELS
from metaprior.errors import DataError
from metaprior.tasks import (
    Columns,
    Covariate,
    Missing,
    NothingLeftError,
    Parts,
    Support,
    Tasks,
    check_known,
    task_columns,
    task_ids,
)

AGAIN = "Put back what was there, or make the shards again with `metaprior shard`."


class Options(NamedTuple):
    """How the tasks of a bucket are read, as `Tasks.from_table` and `Tasks.with_possible` take it."""

    cluster: str | None = None
    support: Support | None = None
    integer: bool | Sequence[str] = False
    missing: Missing = "error"


class Shards(Parts):
    """Tasks in a folder that `metaprior shard` has made: `Shards.open("shards", x="hour", y="pulse")`.

    Each bucket is a part. It is checked when it is first read, and when its file has changed since: size, checksum,
    columns, counts, and whether all of its tasks belong there. Clusters have the same numbers in all parts.
    """

    def __init__(self, folder: Path, manifest: Manifest, columns: Columns, options: Options) -> None:
        self.folder, self.manifest, self.columns, self.options = folder, manifest, columns, options
        self.count, self.tasks, self.rows = len(manifest.buckets), manifest.tasks, manifest.rows
        known = [manifest.task, manifest.schema, manifest.buckets, columns, options]
        self.fingerprint = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()
        self._checked: dict[int, tuple[int, int]] = {}  # size and time of the files that were found right

    @staticmethod
    def open(
        folder: str | Path,
        *,
        x: str | Sequence[str],
        y: str | Sequence[str],
        task: str | Sequence[str] | None = None,
        task_x: str | Sequence[str | Covariate] = (),
        cluster: str | None = None,
        support: Support | None = None,
        integer: bool | Sequence[str] = False,
        missing: Missing = "error",
    ) -> Shards:
        """The tasks of a folder, by the names of their columns; the task columns are those that it was made by."""
        manifest = Manifest.read(folder)
        if task is not None and _names(task) != manifest.task:
            raise DataError(
                f"{folder} was made by the task column {', '.join(manifest.task)}, not {', '.join(_names(task))}: "
                "leave it out, or make shards by the other."
            )
        known = [name for name, _ in manifest.schema]
        about = [task_x] if isinstance(task_x, str) else list(task_x)
        named = [one if isinstance(one, str) else one.name for one in about]
        check_known([*_names(x), *_names(y), *named, *_names(cluster or ())], known, f"{folder} has")
        columns = Columns(manifest.task, _names(x), _names(y), tuple(_covariate(one, manifest) for one in about))
        found = Shards(Path(folder), manifest, columns, Options(cluster, support, integer, missing))
        found._check_files()
        return found

    def table(self, k: int) -> pa.Table:
        """The rows of a bucket, task by task: the columns that were named."""
        path = self.folder / self.manifest.buckets[k].file
        try:
            found = path.stat()
            if self._checked.get(k) != (found.st_size, found.st_mtime_ns):
                self._check(k, path)
                self._checked[k] = found.st_size, found.st_mtime_ns
            with pq.ParquetFile(path) as file:
                table = file.read(columns=list(self._wanted)).select(list(self._wanted))
                table.validate(full=True)
                return table
        except FileNotFoundError:
            raise DataError(f"{path} is missing. {AGAIN}") from None
        except (OSError, pa.ArrowException, UnicodeError) as error:
            raise DataError(f"{path} cannot be read: {error}. {AGAIN}") from None

    def part(self, k: int) -> Tasks:
        """The tasks of a bucket, in the order of their ids."""
        table = self.table(k)
        try:
            return self._tasks(table)
        except DataError as error:
            raise DataError(f"{self.folder / self.manifest.buckets[k].file}: {error}") from None

    def sample(self, most: int) -> Tasks:
        """So many tasks of the first buckets at most, by the hash of their ids; all tasks if there are no more."""
        tables: list[pa.Table] = []
        wanted, seen = float(most), 0
        for k, bucket in enumerate(self.manifest.buckets):
            tables.append(self.table(k))
            seen += bucket.tasks
            if seen >= wanted or k + 1 == self.count:
                table = pa.concat_tables(tables)
                found = self._tasks(table)
                if len(found) >= most:
                    break
                wanted = seen * most / max(len(found), 1)  # some were dropped
        if len(found) > most:
            found = found.select(self._first(found, table, most))
        if found.clusters is not None:
            found.with_clusters(found.clusters.tolist())  # are they enough to hold some out?
        return found

    def _first(self, tasks: Tasks, table: pa.Table, most: int) -> np.ndarray[Any, Any]:
        """Where those stand that come first by bucket and hash, which say nothing about a task."""
        row_hashes = hashes([table[name] for name in self.columns.task], self.columns.task)
        of_tasks = dict(
            zip(task_ids(nw.from_native(table), self.columns.task), row_hashes[_starts(row_hashes)], strict=True)
        )
        found = np.array([of_tasks[name] for name in tasks.ids])
        return np.sort(np.lexsort((found, found % np.uint64(self.count)))[:most])

    def _tasks(self, table: pa.Table) -> Tasks:
        try:
            names = self.columns._asdict()
            found = Tasks.from_table(table, **names, missing=self.options.missing) if len(table) else self._none()
        except NothingLeftError:
            found = self._none()
        if self.options.cluster is not None:
            found = replace(found, clusters=self._clusters(found, table, self.options.cluster))
        return found.with_possible(self.options.support, self.options.integer)

    def _none(self) -> Tasks:
        """No tasks, of these columns."""
        columns = self.columns
        found = replace(Tasks.empty([""], len(columns.x), len(columns.y)).select([]), columns=columns)
        width = sum(one.width for one in columns.task_x)
        return replace(found, covariates=torch.zeros(0, width, dtype=torch.float64)) if columns.task_x else found

    def _clusters(self, tasks: Tasks, table: pa.Table, name: str) -> torch.Tensor:
        """A number for each task's cluster, which follows from what the cluster is called alone."""
        if not len(tasks):
            return torch.zeros(0, dtype=torch.int64)
        frame = nw.from_native(table)
        called = task_columns(frame, self.columns._replace(task_x=(Covariate(name),)))[name]
        of_task = dict(zip(task_ids(frame, self.columns.task), called, strict=True))
        labels = pa.array([of_task[one] for one in tasks.ids])
        if labels.null_count:
            lacking = tasks.ids[labels.is_null().index(True).as_py()]
            raise DataError(f"task {lacking!r} has no cluster (column {name!r}): give every task one.")
        return torch.from_numpy((hashes([labels], [name]) >> np.uint64(1)).view(np.int64))

    @property
    def _wanted(self) -> list[str]:
        columns, cluster = self.columns, self.options.cluster
        named = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
        return list(dict.fromkeys(named if cluster is None else [*named, cluster]))

    def _check_files(self) -> None:
        """Whether all buckets are there, of the right size: before anything is learned from some."""
        for bucket in self.manifest.buckets:
            path = self.folder / bucket.file
            if not path.is_file():
                raise DataError(f"{path} is missing. {AGAIN}")
            _agree(path, "bytes", path.stat().st_size, bucket.bytes)

    def _check(self, k: int, path: Path) -> None:
        """Whether a bucket is what the manifest says, and holds no task of another."""
        bucket, task = self.manifest.buckets[k], self.manifest.task
        content = path.read_bytes()
        _agree(path, "bytes", len(content), bucket.bytes)
        _agree(path, "the checksum", f"{zlib.crc32(content):08x}", bucket.crc32)
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            schema = tuple((one.name, str(one.type)) for one in file.schema_arrow)
            _agree(path, "the columns", schema, self.manifest.schema)
            table = file.read(columns=list(task)).select(list(task))
        found = hashes(table.columns, task)
        starts = _starts(found)
        _agree(path, "rows", len(found), bucket.rows)
        _agree(path, "tasks", len(starts), bucket.tasks)
        elsewhere = np.flatnonzero(found[starts] % np.uint64(self.count) != k)
        if len(elsewhere):
            row = starts[elsewhere[0]]
            names = tuple(column[row].as_py() for column in table.columns)
            home = self.manifest.buckets[int(found[row] % np.uint64(self.count))].file
            raise DataError(
                f"{path} holds the task {names if len(names) > 1 else names[0]!r}, which belongs to {home}: a task is "
                f"in one bucket only. {AGAIN}"
            )


def _starts(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where tasks begin, of rows that stand task by task."""
    return np.flatnonzero(np.append(True, found[1:] != found[:-1])[: len(found)])


def _agree(path: Path, what: str, found: Any, said: Any) -> None:
    if found != said:
        raise DataError(f"{path} was altered: {what} {found}, and in the manifest {said}. {AGAIN}")


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _covariate(one: str | Covariate, manifest: Manifest) -> Covariate:
    """A task column with the levels that it has in all buckets, so that each is encoded alike."""
    if isinstance(one, Covariate) and one.levels is not None:
        return one
    name = one if isinstance(one, str) else one.name
    levels = manifest.levels.get(name, [])
    if levels is None:
        raise DataError(f"task column {name!r} has more than {LEVELS} levels: too many to tell tasks apart by.")
    return Covariate(name, tuple(levels))
