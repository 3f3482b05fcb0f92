"""Tables that are read batch by batch, in the order of their rows: files of any format, folders of Parquet files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from metaprior.data.formats import opener_of, recognised
from metaprior.data.tables import places
from metaprior.data.text import first_line
from metaprior.errors import DataError

ROWS = 1 << 16
"""Of a batch, at most."""


class Stream(ABC):
    """A table, batch by batch. name: what errors call it."""

    name: str
    files: tuple[Path, ...]
    schema: pa.Schema
    total: int  # to read: rows, or bytes of text

    @abstractmethod
    def batches(self, skip: int = 0) -> Iterator[tuple[pa.Table, int]]:
        """The rows after the first `skip`, and how much of the total is read with them."""


class InMemory(Stream):
    """A table that is there already."""

    def __init__(self, table: pa.Table, name: str, columns: Sequence[str] | None) -> None:
        self.name, self.files, self.total = name, (), table.num_rows
        place = places(table.schema.names, columns or table.schema.names, name)
        table = table.select(list(place.values()))
        self.schema = kept(table.schema, name)
        self.table = cast(table, self.schema, name)

    def batches(self, skip: int = 0) -> Iterator[tuple[pa.Table, int]]:
        for start in range(skip, self.total, ROWS):
            yield self.table.slice(start, ROWS), min(start + ROWS, self.total)


class TypedFiles(Stream):
    """Parquet files, or one Feather file: what comes first says what the columns are called, and in which order."""

    def __init__(self, files: Sequence[Path], name: str, columns: Sequence[str] | None) -> None:
        self.files, self.name = tuple(files), name
        self.parts = [_TypedFile(path) for path in files]
        first = self.parts[0].schema.names
        names = list(columns) if columns else list(dict.fromkeys(one.strip() for one in first))
        for part in self.parts:
            part.choose(names, everything=not columns)
        self.schema = kept(_joined(self.parts), name)
        self.total = sum(part.rows for part in self.parts)

    def batches(self, skip: int = 0) -> Iterator[tuple[pa.Table, int]]:
        done = 0
        for part in self.parts:
            within = max(skip - done, 0)
            if within < part.rows:
                for table in part.tables(within):
                    within += table.num_rows
                    yield cast(table, self.schema, part.said), done + within
            done += part.rows


class _TypedFile:
    """One of them: its columns by their places, and the rows of its parts."""

    def __init__(self, path: Path) -> None:
        self.said = str(path)
        open_, format_ = recognised(opener_of(self.said), self.said)
        if format_ in ("text", "lines"):
            raise DataError(f"{path} is no Parquet table: give a folder of Parquet files alone, or a text file itself.")
        self.feather = format_ == "arrow"
        self.open_ = partial(pa.memory_map, self.said) if self.feather else open_
        with self._reading(), self.open_() as file:
            if self.feather:
                self.schema = ipc.open_file(file).schema
                counting = ipc.open_file(file, options=ipc.IpcReadOptions(included_fields=[0]))
                self.sizes = [counting.get_batch(k).num_rows for k in range(counting.num_record_batches)]
            else:
                whole = pq.ParquetFile(file)
                self.schema = whole.schema_arrow
                self.sizes = [whole.metadata.row_group(k).num_rows for k in range(whole.num_row_groups)]
        self.rows = sum(self.sizes)

    def choose(self, names: Sequence[str], *, everything: bool) -> None:
        """The columns to read. everything: whether the file may have no others."""
        place = places(self.schema.names, names, self.said)
        more = [one for k, one in enumerate(self.schema.names) if k not in place.values()]
        if more and everything:
            raise DataError(
                f"{self.said} has a column {more[0]!r} that the files before it lack: name the columns to keep with "
                "--columns."
            )
        self.names, self.places = list(names), list(place.values())
        chosen = [self.schema.field(k) for k in self.places]
        self.chosen = pa.schema([(name, _plain(field.type)) for name, field in zip(names, chosen, strict=True)])

    def tables(self, skip: int) -> Iterator[pa.Table]:
        """The rows after the first `skip`; row groups before them are not read."""
        first = 0
        while self.sizes[first] <= skip:
            skip -= self.sizes[first]
            first += 1
        with self._reading():
            for batch in self._batches(first):
                for start in range(min(skip, batch.num_rows), batch.num_rows, ROWS):
                    yield pa.Table.from_batches([batch.slice(start, ROWS)]).rename_columns(self.names)
                skip = max(skip - batch.num_rows, 0)

    def _batches(self, first: int) -> Iterator[pa.RecordBatch]:
        with self.open_() as file:
            if self.feather:
                found = ipc.open_file(file)
                for k in range(first, len(self.sizes)):
                    batch = found.get_batch(k).select(self.places)
                    batch.validate(full=True)
                    yield batch
                return
            wanted = [self.schema.names[k] for k in self.places]
            whole = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)  # or all that was read is kept
            for batch in whole.iter_batches(ROWS, row_groups=range(first, len(self.sizes)), columns=wanted):
                batch = batch.select(wanted)
                batch.validate(full=True)
                yield batch

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError) as error:
            kind = "Feather" if self.feather else "Parquet"
            raise DataError(f"{self.said} cannot be read as a {kind} table: {first_line(error)}") from None


def _plain(dtype: Any) -> Any:
    """The type of values that are kept in some other way than one after another."""
    if pa.types.is_dictionary(dtype) or pa.types.is_run_end_encoded(dtype):
        return _plain(dtype.value_type)
    return {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(dtype), dtype)


def _joined(parts: Sequence[_TypedFile]) -> pa.Schema:
    """The types that hold the columns of all files."""
    found = parts[0].chosen
    for part in parts[1:]:
        for name in found.names:
            one, other = found.field(name), part.chosen.field(name)
            try:
                pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive")
            except pa.ArrowException:
                raise DataError(
                    f"column {name!r} holds {other.type} in {part.said} and {one.type} in the files before it: give "
                    "it one type."
                ) from None
        found = pa.unify_schemas([found, part.chosen], promote_options="permissive")
    return found


def kept(schema: pa.Schema, name: str) -> pa.Schema:
    """What comes back of some columns from a Parquet file."""
    found = []
    for field in schema:
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(pa.schema([field]).empty_table(), sink)
        except (pa.ArrowException, OSError):
            raise DataError(
                f"{name}: column {field.name!r} holds {field.type}, which Parquet cannot keep: leave it out, by naming "
                "the others with --columns."
            ) from None
        found.append((field.name, pq.read_schema(pa.BufferReader(sink.getvalue())).field(0).type))
    return pa.schema(found)


def cast(table: pa.Table | pa.RecordBatch, schema: pa.Schema, said: str) -> pa.Table:
    """A table in the types that are kept."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise DataError(f"{said}: column {field.name!r} does not fit into {field.type}: {error}.") from None
    return pa.table(columns, schema=schema)
