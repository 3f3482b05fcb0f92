"""Text tables block by block: what a column holds is settled by the first block, and what does not fit is told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from metaprior.data.formats import recognised
from metaprior.data.streams import Stream, cast, kept
from metaprior.data.tables import places
from metaprior.data.text import (
    as_numbers,
    check_utf8,
    is_longer,
    larger,
    layout_of,
    not_readable,
    plain_numbers,
    tidied,
)
from metaprior.errors import DataError, MetapriorError
from metaprior.tasks import Form, form_of

FIRST = 1 << 24
"""Bytes of text by which the columns are known."""


class Reading(NamedTuple):
    """How a column is read: what Arrow is asked for, what is kept, and what has to be done in between."""

    asked: Any
    kept: Any
    is_name: bool = False
    comma: bool = False
    form: Form | None = None


class TextStream(Stream):
    """A text file, packed by gzip or not. names: columns of which the text is kept as it is written."""

    def __init__(
        self, path: Path, columns: Sequence[str] | None, names: Collection[str], delimiter: str | None
    ) -> None:
        self.name, self.files, self.total = str(path), (path,), path.stat().st_size
        self.open_ = recognised(self._opened, self.name)[0]
        wanted = {*names, *(columns or ())}

        def pick(header: Sequence[str]) -> dict[str, int]:
            return places(header, columns or [*dict.fromkeys(one.strip() for one in header)], self.name)

        self.layout = layout_of(self.open_, self.name, wanted, delimiter, pick)
        self.readings = self._settled({name for name in names if name in self.layout.place})
        found = pa.schema([(name, reading.kept) for name, reading in self.readings.items()])
        self.schema = kept(found, self.name)

    def batches(self, skip: int = 0) -> Iterator[tuple[pa.Table, int]]:
        block = self.layout.block
        types = {name: reading.asked for name, reading in self.readings.items()}
        while True:
            stop = 0
            try:
                for batch in self._blocks(block, types):
                    start, stop = stop, stop + batch.num_rows
                    if stop > skip:
                        yield self._read(batch.slice(max(skip - start, 0)), max(skip, start)), self.raw.tell()
                        skip = stop
                return
            except MetapriorError:
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                if not is_longer(error, block):
                    raise self._told(error) from None
                block = larger(block)

    def _opened(self) -> pa.NativeFile:
        self.raw = pa.OSFile(self.name)
        return self.raw

    def _blocks(self, block: int, types: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """One thread, so that errors have their line; others work on what was read meanwhile."""
        options = self.layout.read_options(block)
        options.use_threads = False
        with self.open_() as file:
            yield from csv.open_csv(file, options, self.layout.parse_options, self.layout.convert_options(types))

    def _settled(self, names: Collection[str]) -> dict[str, Reading]:
        """How each column is read, from the first block."""
        block = FIRST
        while True:
            try:
                batch = next(self._blocks(block, dict.fromkeys(names, pa.string())), None)
                break
            except (pa.ArrowException, OSError, ValueError) as error:
                if not is_longer(error, block):
                    raise not_readable(error, self.name) from None
                block = larger(block)
        if batch is None or not batch.num_rows:
            raise DataError(f"{self.name} has no rows.")
        check_utf8(batch.schema, self.name)
        return {
            name: self._reading(column, name, is_name=name in names)
            for name, column in zip(self.layout.place, batch.columns, strict=True)
        }

    def _reading(self, column: Any, name: str, *, is_name: bool) -> Reading:
        dtype, text, comma = column.type, pa.string(), self.layout.decimal_comma
        if is_name:
            return Reading(text, text, is_name=True)
        if pa.types.is_string(dtype):
            column = tidied(column, name, self.layout, self.name, is_name=False)
            found = as_numbers(column, decimal_comma=comma).type
            form = form_of(column) if found == text and column.null_count < len(column) else None
            comma = comma and pa.types.is_floating(found)
            return Reading(text, found if form is None else form.kind, comma=comma, form=form)
        if pa.types.is_integer(dtype) or pa.types.is_null(dtype):  # fractions may follow
            return Reading(text if comma else pa.float64(), pa.float64(), comma=comma)
        return Reading(dtype, dtype)

    def _read(self, batch: pa.RecordBatch, row: int) -> pa.Table:
        columns = [
            self._column(column, name, reading, row)
            for column, (name, reading) in zip(batch.columns, self.readings.items(), strict=True)
        ]
        return cast(pa.table(columns, list(self.readings)), self.schema, self.name)

    def _column(self, column: Any, name: str, reading: Reading, row: int) -> Any:
        if not pa.types.is_string(column.type):
            return column
        column = tidied(column, name, self.layout, self.name, is_name=reading.is_name)
        if reading.form is not None:
            found = reading.form.read(column)
            if found.null_count == column.null_count:
                return found
            place = pc.and_not(found.is_null(), column.is_null()).index(True).as_py()
        elif reading.kept == reading.asked:
            return column
        else:
            plain = plain_numbers(column, comma=reading.comma)
            place = _first_misfit(plain, reading.kept)
            if place is None:
                return plain.cast(reading.kept)
        raise self._misfit(name, column[place].as_py(), 2 + self.layout.blank + row + place)

    def _told(self, error: Exception) -> DataError:
        """What parsing ended with; a value that is none of its column's is named with its place."""
        found = re.match(
            r"In CSV column #(\d+): Row #(\d+): CSV conversion error to \S+: invalid value '(.*)'",
            str(error),
            re.DOTALL,
        )
        if found is None:
            return not_readable(error, self.name)
        names = {k: name for name, k in self.layout.place.items()}
        return self._misfit(names[int(found[1])], found[3], int(found[2]))

    def _misfit(self, name: str, value: str, line: int) -> DataError:
        what = str(self.readings[name].kept)
        return DataError(
            f"{self.name}: column {name!r} is {value[:40]!r} in line {line:,}, which is no {_WORDS.get(what, what)} as "
            "the first block of the file has there. Put it right; or name the column with --text, to keep what is "
            "written."
        )


_WORDS = {"double": "number", "bool": "truth value", "date32[day]": "date"}


def _first_misfit(column: Any, dtype: Any) -> int | None:
    """Where the first text stands that is none of this type."""

    def fits(start: int, stop: int) -> bool:
        try:
            column.slice(start, stop - start).cast(dtype)
        except pa.ArrowInvalid:
            return False
        return True

    start, stop = 0, len(column)
    if fits(start, stop):
        return None
    while stop - start > 1:
        middle = (start + stop) // 2
        start, stop = (middle, stop) if fits(start, middle) else (start, middle)
    return start
