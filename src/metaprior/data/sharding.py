"""A table of any size into shards: buckets of whole tasks by a hash of the task, in one pass and bounded memory.

Rows are read in chunks, each sorted by bucket and kept as one file; then the pieces of a bucket are put together and
sorted by task. Whatever is whole is not made again by a run that goes on.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from metaprior.data.hashing import hashes
from metaprior.data.manifest import Bucket, Manifest, versions
from metaprior.data.moments import Moments, is_text, joined_levels, levels_of, moments_of
from metaprior.data.sources import described, open_stream
from metaprior.data.streams import Stream
from metaprior.data.workplace import Workplace, plan_of, without_times
from metaprior.errors import DataError, OptionError, OutputError
from metaprior.output import same_file
from metaprior.progress import progress_bar

MOST_BUCKETS = 1 << 16

CHUNK_ROWS, CHUNK_BYTES = 1 << 20, 1 << 26
"""Of what is sorted at a time, at most; a bucket is sorted as a whole."""

WORKERS = min(os.cpu_count() or 1, 4)

Array = np.ndarray[Any, Any]


def shard(
    source: str | Path,
    out: str | Path,
    *,
    task: str | Sequence[str],
    buckets: int = 256,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    delimiter: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Write a table as shards into the folder `out`, and return it; a run that was stopped goes on where it was.

    source: a CSV, TSV, Parquet or Feather file (also .gz), a folder of Parquet files (in the order of their names), or
    an embedded table. task: what names a task. columns: those to keep (default all). text: of a text file, columns of
    which the text is kept as it is written, as that of the task columns is.
    """
    names = [task] if isinstance(task, str) else list(task)
    if not 1 <= buckets <= MOST_BUCKETS:
        raise OptionError(f"buckets={buckets}: give 1 to {MOST_BUCKETS:,}.")
    if same_file(source, out):
        raise OutputError(f"{out} is what is read, and would be lost: choose another --out.")
    stream = open_stream(str(source), names, columns, text, delimiter)
    schema = [(field.name, str(field.type)) for field in stream.schema]
    place = Workplace(Path(out), plan_of(described(stream), names, schema, buckets, versions()))
    if not place.take(overwrite=overwrite):
        try:
            _Sharding(stream, place, names, buckets, progress).run()
        except OutputError as error:
            raise OutputError(
                f"{error} What is done is kept: put that right, and run the same command again."
            ) from None
        except DataError:
            place.give_up()
            raise
    return place.folder


class _Sharding:
    """What has to be done, and what is done of it."""

    def __init__(self, stream: Stream, place: Workplace, names: list[str], buckets: int, show: bool) -> None:
        self.stream, self.place, self.names, self.buckets, self.show = stream, place, names, buckets, show

    def run(self) -> None:
        chunks = self._read()
        with ThreadPoolExecutor(WORKERS) as pool:
            groups = self._groups(chunks)
            done = self.buckets - sum(stop - first for first, stop in groups)
            with progress_bar("sorting", self.buckets, show=self.show) as advance:
                advance(amount=done)
                for finished in _in_turn(pool, (partial(self._sort, chunks, *group) for group in groups)):
                    advance(amount=finished)
        self.place.finish(self._manifest())

    def _read(self) -> list[Path]:
        """The table as chunks, each sorted by bucket."""
        everything = self.place.partial / "read.json"
        done = self.place.read_json(everything)
        if done is None:
            done = self._read_rest()
            if described(self.stream) != self.place.plan["source"]:
                raise DataError(f"{self.stream.name} was changed while it was read: run the same command again.")
            self.place.write_json(everything, done)
        return [self.place.chunk(k) for k in range(done)]

    def _read_rest(self) -> int:
        first, row = self._kept()

        def tables() -> Iterator[Any]:
            start, read = row, 0
            for k, (table, now) in enumerate(_chunks(self.stream.batches(row)), first):
                yield partial(self._write_chunk, k, table, start, now - read)
                start, read = start + table.num_rows, now

        chunks = first
        with (
            ThreadPoolExecutor(WORKERS) as pool,
            progress_bar("reading", self.stream.total, show=self.show, in_shares=True) as advance,
        ):
            for read in _in_turn(pool, tables()):
                chunks += 1
                advance(amount=read)
        if not chunks:
            raise DataError(f"{self.stream.name} has no rows.")
        return chunks

    def _kept(self) -> tuple[int, int]:
        """How many chunks there are from the first on, and of how many rows; what comes after a gap is removed."""
        rows = 0
        for k in count():
            try:
                rows += len(_buckets_in(self.place.chunk(k)))
            except (OSError, pa.ArrowException):
                break
        for path in self.place.partial.glob("chunk-*.arrow"):
            if path.name >= self.place.chunk(k).name:
                path.unlink()
        return k, rows

    def _write_chunk(self, k: int, table: pa.Table, row: int, read: int) -> int:
        for name in self.names:
            _check_ids(table[name], name, self.stream.name, row)
            if pa.types.is_floating(table[name].type):
                table = table.set_column(table.column_names.index(name), name, pc.add(table[name], 0.0))  # no -0.0
        keys = [table[name] for name in self.names]
        bucket = (hashes(keys, self.names) % np.uint64(self.buckets)).astype(np.uint16)
        order = np.argsort(bucket, kind="stable")
        table = table.take(pa.array(order)).append_column("", pa.array(bucket[order]))
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        self.place.write(self.place.chunk(k), sink.getvalue())
        return read

    def _groups(self, chunks: Sequence[Path]) -> list[tuple[int, int]]:
        """Buckets that are to be made, from one to another, as many as fit into memory together."""
        rows = np.zeros(self.buckets, np.int64)
        for path in chunks:
            rows += np.bincount(_buckets_in(path), minlength=self.buckets)
        size = sum(path.stat().st_size for path in chunks) / rows.sum()  # bytes of a row
        most = min(CHUNK_ROWS, CHUNK_BYTES / size)
        found: list[tuple[int, int]] = []
        held = 0
        for k in range(self.buckets):
            if self._is_done(k):
                continue
            held += int(rows[k])
            if found and found[-1][1] == k and held <= most:
                found[-1] = found[-1][0], k + 1
            else:
                found.append((k, k + 1))
                held = int(rows[k])
        return found

    def _is_done(self, k: int) -> bool:
        note, path = self.place.read_json(self.place.note(k)), self.place.bucket(k)
        return note is not None and path.is_file() and path.stat().st_size == note["bucket"]["bytes"]

    def _sort(self, chunks: Sequence[Path], first: int, stop: int) -> int:
        """Put some buckets together and write them; how many they are."""
        pieces: list[list[pa.Table]] = [[self.stream.schema.empty_table()] for _ in range(first, stop)]
        for path in chunks:
            with pa.memory_map(str(path)) as file:
                table = ipc.open_file(file).read_all()
                edges = np.searchsorted(table.columns[-1].to_numpy(), np.arange(first, stop + 1))
                rows = _copied(table.slice(edges[0], edges[-1] - edges[0]).select(range(len(self.stream.schema))))
            for own, start, end in zip(pieces, edges[:-1], edges[1:], strict=True):
                own.append(rows.slice(start - edges[0], end - start))
        for k, own in enumerate(pieces, first):
            self._write_bucket(k, pa.concat_tables(own))
        return stop - first

    def _write_bucket(self, k: int, table: pa.Table) -> None:
        order, sizes = _by_task([table[name] for name in self.names])
        table = table.take(pa.array(order)).combine_chunks()
        sink = pa.BufferOutputStream()
        repeated = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
        pq.write_table(table, sink, use_dictionary=repeated)
        content = sink.getvalue()
        path, crc = self.place.bucket(k), f"{zlib.crc32(content):08x}"
        span = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
        bucket = Bucket(path.name, len(sizes), len(table), *span, content.size, crc)
        self.place.write(path, content)
        self.place.write_json(self.place.note(k), {"bucket": bucket._asdict(), **_in_short(table, self.names)})

    def _manifest(self) -> Manifest:
        notes = [self.place.read_json(self.place.note(k)) for k in range(self.buckets)]
        moments = {name: Moments(**one) for name, one in notes[0]["moments"].items()}
        for note in notes[1:]:
            moments = {name: one.and_of(Moments(**note["moments"][name])) for name, one in moments.items()}
        levels = {name: joined_levels(note["levels"][name] for note in notes) for name in notes[0]["levels"]}
        plan = self.place.plan
        return Manifest(
            tuple(self.names),
            tuple((name, dtype) for name, dtype in plan["schema"]),
            tuple(Bucket(**note["bucket"]) for note in notes),
            moments,
            levels,
            without_times(plan["source"]),
            plan["versions"],
        )


def _in_turn(pool: ThreadPoolExecutor, work: Iterable[Any]) -> Iterator[Any]:
    """What each of some functions gives, in their order; only one more of them is begun than there are workers."""
    pending: deque[Future[Any]] = deque()
    for one in work:
        pending.append(pool.submit(one))
        if len(pending) > WORKERS:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _chunks(batches: Iterable[tuple[pa.Table, int]]) -> Iterator[tuple[pa.Table, int]]:
    """Batches put together, until they are many rows or bytes."""
    held: list[pa.Table] = []
    read = 0
    for batch, read in batches:
        held.append(batch)
        if sum(map(len, held)) >= CHUNK_ROWS or sum(one.nbytes for one in held) >= CHUNK_BYTES:
            yield pa.concat_tables(held).combine_chunks(), read
            held = []
    if held:
        yield pa.concat_tables(held).combine_chunks(), read


def _copied(table: pa.Table) -> pa.Table:
    """The same rows without the file that they are mapped from, of which far more counts as memory than they take."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return ipc.open_stream(sink.getvalue()).read_all()


def _buckets_in(chunk: Path) -> Array:
    """The bucket of each row of a chunk; they never fall."""
    with pa.memory_map(str(chunk)) as file:
        return ipc.open_file(file).read_all().columns[-1].to_numpy()  # type: ignore[no-any-return]


def _check_ids(column: Any, name: str, said: str, row: int) -> None:
    empty = column.is_null(nan_is_null=pa.types.is_floating(column.type))
    first = empty.index(True).as_py()
    if first >= 0:
        lacking = int(np.count_nonzero(empty.to_numpy()))
        raise DataError(
            f"{said}: task column {name!r} is empty in row {row + first + 1:,}, the first of {lacking:,} among "
            f"{len(column):,} rows: give each row its task."
        )


def _by_task(columns: Sequence[Any]) -> tuple[Array, Array]:
    """The order in which rows stand task by task, those of a task as they came; and the tasks' sizes."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        coded = column.combine_chunks().dictionary_encode()
        rank = np.argsort(pc.sort_indices(coded.dictionary).to_numpy())
        both = key * len(rank) + rank[coded.indices.to_numpy()]
        key = np.unique(both, return_inverse=True)[1]
    small = key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key  # these are sorted in linear time
    return np.argsort(small, kind="stable"), np.bincount(key)


def _in_short(table: pa.Table, names: Sequence[str]) -> dict[str, Any]:
    """Moments of the numbers and dates of a bucket, and levels of its text."""
    found = {field.name: moments_of(table[field.name].combine_chunks()) for field in table.schema}
    texts = [field.name for field in table.schema if is_text(field.type) and field.name not in names]
    return {
        "moments": {name: asdict(one) for name, one in found.items() if one is not None},
        "levels": {name: levels_of(table[name]) for name in texts},
    }
