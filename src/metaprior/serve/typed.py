"""Tables that say themselves what type each column has: Arrow streams and Parquet files, as strangers write them."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc, types

from metaprior.errors import DataError
from metaprior.serve.refusals import Refusal
from metaprior.tasks import Columns, check_known, with_dates

UNPACKED = 1_000_000_000
"""Bytes of a table when nothing of it is packed any more: beyond that it is a trap."""

NAMES = (
    types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean, types.is_date,
    types.is_timestamp, types.is_time,
)  # fmt: skip
"""What tasks can be named by."""


def check_rows(count: int, most: int) -> None:
    """Whether a table is short enough."""
    if count > most:
        raise Refusal(413, "too large", f"{count:,} rows: {most:,} are the most (--max-rows).", "body")


def check_parquet(body: bytes, columns: Columns, most: int) -> None:
    """Whether a Parquet file is one, and is not much larger than it looks."""
    named = {*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)}
    try:
        about = pq.ParquetFile(pa.BufferReader(body))
        check_rows(about.metadata.num_rows, most)
        _check_size(sum(about.metadata.row_group(k).total_byte_size for k in range(about.metadata.num_row_groups)))
        fields = [field for field in about.schema_arrow if field.name.strip() in named]
        for field in fields:
            _check_flat(field.name, field.type)
        texts = [field.name for field in fields if _is_text(field.type)]
        if texts:  # a text that is said once and meant a million times
            said = pq.ParquetFile(pa.BufferReader(body), read_dictionary=texts).read(columns=texts)
            _check_size(sum(_length(column) for column in said.columns))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise DataError(f"the body is no Parquet table: {_first_line(error)}") from None


def stream_table(body: bytes, columns: Columns, optional: Collection[str], most: int) -> pa.Table:
    """The named columns of an Arrow stream."""
    named = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
    try:
        with ipc.open_stream(pa.BufferReader(body)) as stream:
            names = stream.schema.names
        check_known([name for name in named if name not in optional], names, "the body has")
        twice = [name for name in named if names.count(name) > 1]
        if twice:
            raise DataError(f"the body has several columns called {twice[0]!r}: rename them.")
        _check_messages(body)
        wanted = ipc.IpcReadOptions(included_fields=[names.index(name) for name in named if name in names])
        batches, rows = [], 0
        with ipc.open_stream(pa.BufferReader(body), options=wanted) as stream:
            for batch in stream:
                rows += batch.num_rows
                check_rows(rows, most)
                batches.append(batch)
            table = pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"the body is no stream of Arrow tables: {_first_line(error)}") from None
    if rows == 0:
        raise DataError("the body has no rows.")
    return with_dates(nw.from_native(plain(table, columns)), columns.x).to_native()


def plain(table: pa.Table, columns: Columns) -> pa.Table:
    """The same with a plain value in each row: categories as what they stand for, and dates that there are."""
    found = {}
    for name in table.column_names:
        column = _unpacked(table[name], name)
        if name in columns.task and not any(test(column.type) for test in NAMES):
            raise DataError(f"column {name!r} names tasks: give text, numbers or dates, not {column.type}.")
        if types.is_temporal(column.type):
            try:
                pc.min_max(column).as_py()
                column = column.cast(pa.time64("us"), safe=False) if column.type == pa.time64("ns") else column
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise DataError(f"column {name!r} has no date or time that there is: {_first_line(error)}") from None
        found[name] = column
    return pa.table(found)


def _check_flat(name: str, kind: Any) -> None:
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        raise DataError(f"column {name!r} holds {kind}: give one plain value in each row.")


def _unpacked(column: Any, name: str) -> Any:
    """A column that holds what it says, with categories and views into a text as what they stand for."""
    kind = column.type
    _check_flat(name, kind)
    try:
        _check_size(_length(column))
        column.validate(full=True)
        if types.is_dictionary(kind):
            return column.cast(kind.value_type)
        return column.cast(pa.large_string()) if types.is_string_view(kind) else column
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"column {name!r} cannot be read: {_first_line(error)}") from None


def _length(column: Any) -> int:
    """Bytes of a column's texts, each as often as it is meant."""
    total = 0
    for chunk in column.chunks:
        if types.is_dictionary(chunk.type):
            words = chunk.dictionary
            lengths = pc.binary_length(words) if _is_text(words.type) else pa.array(np.full(len(words), 8))
            total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
        elif types.is_string_view(chunk.type):  # 16 bytes for each, of which the first four are its length
            lengths = np.frombuffer(chunk.buffers()[1], np.uint32)[::4]
            total += int(lengths[chunk.offset : chunk.offset + len(chunk)].sum(dtype=np.int64))
    return total


def _is_text(kind: Any) -> bool:
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def _check_size(size: int) -> None:
    if size > UNPACKED:
        raise Refusal(413, "too large", f"the table takes {size:,} bytes unpacked: {UNPACKED:,} are the most.", "body")


def _check_messages(body: bytes) -> None:
    """Buffers that are packed may be of any size: they are not unpacked."""
    reader = ipc.MessageReader.open_stream(pa.BufferReader(body))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type in ("record batch", "dictionary") and _is_packed(message):
            raise DataError("the body has packed buffers: write the Arrow stream without compression.")


def _is_packed(message: Any) -> bool:
    """Whether a message's record batch says how its buffers are packed; its head is a flatbuffer."""
    head = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int | None:
        vtable = table - struct.unpack_from("<i", head, table)[0]
        (size,) = struct.unpack_from("<H", head, vtable)
        place = 4 + 2 * number
        (offset,) = struct.unpack_from("<H", head, vtable + place) if place < size else (0,)
        return table + offset if offset else None

    def followed(place: int | None) -> int:
        if place is None:
            raise DataError("the body is no stream of Arrow tables: a message is empty.")
        return int(place + struct.unpack_from("<I", head, place)[0])

    batch = followed(field(followed(0), 2))  # Message.header
    if message.type == "dictionary":
        batch = followed(field(batch, 1))  # DictionaryBatch.data
    return field(batch, 3) is not None  # RecordBatch.compression


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
