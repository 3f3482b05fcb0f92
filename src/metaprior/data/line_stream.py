"""JSON lines batch by batch: what a column holds is settled by the first lines, and what does not fit is told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from metaprior.data.formats import recognised
from metaprior.data.lines import Row, chunks, columns_of, keys_of, mixed
from metaprior.data.streams import Stream, cast, kept
from metaprior.data.tables import places
from metaprior.errors import DataError


class LineStream(Stream):
    """A file of JSON lines, packed or not. names: columns whose values stay as they are."""

    def __init__(self, path: Path, columns: Sequence[str] | None, names: Collection[str]) -> None:
        self.name, self.files, self.total = str(path), (path,), path.stat().st_size
        self.open_ = recognised(self._opened, self.name)[0]
        self.everything = columns is None
        first = next(chunks(self.open_, self.name))
        header = keys_of(first)
        self.place = {one: header[k] for one, k in places(header, columns or header, self.name).items()}
        types = [(one.name, _settled(one.type, is_name=one.name in names)) for one in self._columns(first).schema]
        self.schema = kept(pa.schema(types), self.name)

    def batches(self, skip: int = 0) -> Iterator[tuple[pa.Table, int]]:
        stop = 0
        for rows in chunks(self.open_, self.name):
            start, stop = stop, stop + len(rows)
            if stop > skip:
                table = self._fitting(self._columns(rows[max(skip - start, 0) :]))
                yield table, self.total if self.raw.closed else self.raw.tell()

    def _opened(self) -> pa.NativeFile:
        self.raw = pa.OSFile(self.name)
        return self.raw

    def _fitting(self, table: pa.Table) -> pa.Table:
        """A table in the types that are kept: fractions for whole numbers, but no number for text."""
        for found, known in zip(table.schema.types, self.schema.types, strict=True):
            if found != known and not pa.types.is_null(found) and not (_is_number(found) and _is_number(known)):
                raise mixed(self.open_, self.name, self.place, f"{found} comes after {known}.")
        return cast(table, self.schema, self.name)

    def _columns(self, rows: list[Row]) -> pa.Table:
        more = [key for key in keys_of(rows) if key not in self.place.values()] if self.everything else []
        if more:
            raise DataError(
                f"{self.name} has a column {more[0]!r} that its first lines lack: name the columns to keep with "
                "--columns."
            )
        return columns_of(rows, self.place, self.open_, self.name)


def _is_number(dtype: Any) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))


def _settled(dtype: Any, *, is_name: bool) -> Any:
    """The type of a column of which the first values have this one: fractions may follow whole numbers."""
    if is_name:
        return pa.string() if pa.types.is_null(dtype) else dtype
    return pa.float64() if pa.types.is_integer(dtype) or pa.types.is_null(dtype) else dtype
