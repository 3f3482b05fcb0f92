"""Tables as files: text and typed ones by what they hold, `-` for the standard streams, embedded ones by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from csv import Error, reader
from functools import partial
from importlib import resources
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv, ipc

from metaprior.data.embedded import EMBEDDED, load_digits
from metaprior.data.formats import Format, format_of
from metaprior.errors import DataError, OptionError, OutputError
from metaprior.output import write_whole
from metaprior.tasks import Columns, check_known, with_dates

FORMATS = (".csv", ".parquet")

HEAD = 65_536
"""Bytes by which a file is known."""

BLOCK = 1 << 20
"""Bytes of text that are read at a time; more where a line is longer."""

NO_VALUE = csv.ConvertOptions().null_values
"""What stands for a missing number: nothing, NA, NaN, null and the like."""

DELIMITERS = ",\t;|"

Opener = Callable[[], pa.NativeFile]
Pick = Callable[[Sequence[str]], dict[str, int]]
"""From the columns that a file has, where those stand that were asked for."""


def read_table(
    name: str, columns: Columns, delimiter: str | None = None, *, optional: Collection[str] = ()
) -> pa.Table:
    """The named columns of a file, of standard input (`-`), or of an embedded table.

    What names a task is text in a text file, whatever it looks like: 7 and 007 are two tasks. optional: columns that
    may be absent.
    """
    if name in EMBEDDED:
        return embedded_table(name)
    said = "standard input" if name == "-" else name
    return _table(_opener(name), said, columns, delimiter, optional, packed=Path(name).suffix.lower() == ".parquet")


def read_content(
    content: bytes, said: str, columns: Columns, delimiter: str | None = None, *, optional: Collection[str] = ()
) -> pa.Table:
    """The named columns of a table that is in memory: text, Parquet or Feather. said: what errors call it."""
    return _table(partial(pa.BufferReader, content), said, columns, delimiter, optional, packed=False)


def _table(
    opener: Opener, said: str, columns: Columns, delimiter: str | None, optional: Collection[str], *, packed: bool
) -> pa.Table:
    """packed: whether a name says that it is no text."""
    pick = partial(_places, columns=columns, name=said, optional=optional)
    try:
        open_, format_ = _known(opener, said)
        if format_ == "text" and not packed:
            table = _text(open_, said, columns, delimiter, pick)
        else:
            table = _typed(open_, said, pick, feather=format_ == "arrow")
    except OSError as error:
        raise DataError(f"{said} cannot be read: {error.strerror or error}.") from None
    if table.num_rows == 0:
        raise DataError(f"{said} has no rows.")
    return with_dates(nw.from_native(table), columns.x).to_native()


def column_names(path: Path) -> list[str]:
    """What the columns of a file are called, in their order."""
    open_, format_ = _known(_opener(str(path)), str(path))
    if format_ == "text":
        return _split(_header(open_, str(path))[0], ",")
    with open_() as file:
        found = ipc.open_file(file).schema if format_ == "arrow" else pq.ParquetFile(file).schema_arrow
        return list(found.names)


def write_table(table: pa.Table, name: str) -> None:
    """A table to a file by its extension, or as CSV to standard output (`-`)."""
    if name == "-":
        _write_csv(table, sys.stdout.buffer)
        sys.stdout.flush()
        return
    path = Path(name)
    check_output(name)
    write_whole(path, partial(pq.write_table if path.suffix.lower() == ".parquet" else _write_csv, table))


def written(table: pa.Table, format_: str) -> bytes:
    """A table as the content of a file: csv or parquet."""
    sink = pa.BufferOutputStream()
    (pq.write_table if format_ == "parquet" else _write_csv)(table, sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _write_csv(table: pa.Table, where: Any) -> None:
    """Columns as they came: text in quotes only where some of it needs them, times of day in whole seconds."""
    for k, column in enumerate(table.columns):
        if pa.types.is_time(column.type):
            with suppress(pa.ArrowInvalid):
                table = table.set_column(k, table.field(k).name, column.cast(pa.time32("s")))
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    style = "needed" if any(_any(column, '[",\r\n]') for column in texts) else "none"
    csv.write_csv(table, where, csv.WriteOptions(quoting_style=style))


def check_output(name: str) -> None:
    """Whether a table could be written there, before any work is done."""
    path = Path(name)
    if name != "-" and path.suffix.lower() not in FORMATS:
        raise OptionError(f"{name}: a table is written as one of {', '.join(FORMATS)}, or to - as CSV.")
    if name != "-" and not path.parent.is_dir():
        raise OutputError(f"there is no folder {path.parent} to write {path.name} to.")


def embedded_table(name: str) -> pa.Table:
    """A table that comes with the package."""
    if name == "elnino":
        with (resources.files("metaprior.data") / "files" / "elnino.csv").open("rb") as file:
            return csv.read_csv(file)
    images, labels = load_digits()
    count, height, width = images.shape
    row, column = np.divmod(np.tile(np.arange(height * width), count), width)
    columns = {
        "image": np.repeat(np.arange(count), height * width),
        "label": np.repeat(labels.numpy(), height * width),
        "row": row,
        "column": column,
        "grey": images.flatten().numpy(),
    }
    return pa.table(columns)


def _opener(name: str) -> Opener:
    """What opens a file from its beginning, as often as it is needed; a pipe, which can be read once, is kept."""
    path = Path(name)
    if name == "-":
        return partial(pa.BufferReader, sys.stdin.buffer.read())
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a table.")
    if not path.exists():
        raise DataError(f"there is no file {path}, nor an embedded table of that name ({', '.join(EMBEDDED)}).")
    return partial(pa.OSFile, name) if path.is_file() else partial(pa.BufferReader, path.read_bytes())


def _known(open_: Opener, name: str) -> tuple[Opener, Format]:
    """What a file holds, and what opens it so that it can be read: one packed by gzip is unpacked on the way."""
    with open_() as file:
        format_ = format_of(file.read(HEAD), name)
    if format_ != "gzip":
        return open_, format_

    def unpacked() -> pa.NativeFile:
        return pa.CompressedInputStream(open_(), "gzip")

    with unpacked() as file:
        format_ = format_of(file.read(HEAD), name)
    if format_ != "text":
        raise DataError(f"{name} is {format_} packed by gzip: unpack it with gunzip.")
    return unpacked, format_


def _places(header: Sequence[str], columns: Columns, name: str, optional: Collection[str]) -> dict[str, int]:
    """Where the named columns stand in a file; blanks around a name do not matter."""
    known: dict[str, list[int]] = {}
    for place, column in enumerate(header):
        known.setdefault(column.strip(), []).append(place)
    wanted = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
    wanted = [one for one in wanted if one.strip() in known or one not in optional]
    twice = [one for one in wanted if len(known.get(one.strip(), ())) > 1]
    if twice:
        raise DataError(f"{name} has several columns called {twice[0]!r}: rename them.")
    check_known([one for one in wanted if one.strip() not in known], list(known), f"{name} has")
    return {one: known[one.strip()][0] for one in wanted}


def _typed(open_: Opener, name: str, pick: Pick, *, feather: bool) -> pa.Table:
    """The columns of a Parquet file, or of a Feather one (Arrow IPC), in the types that it gives them."""
    try:
        with open_() as file, open_() as again:
            whole = ipc.open_file(file) if feather else pq.ParquetFile(file)
            header = (whole.schema if feather else whole.schema_arrow).names
            place = pick(header)
            chosen = [header[k] for k in place.values()]
            some = ipc.IpcReadOptions(included_fields=list(place.values()))
            table = ipc.open_file(again, options=some).read_all() if feather else whole.read(columns=chosen)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} is no {'Feather' if feather else 'Parquet'} table: {_first_line(error)}") from None
    return table.select(chosen).rename_columns(list(place))


def _text(open_: Opener, name: str, columns: Columns, delimiter: str | None, pick: Pick) -> pa.Table:
    """The columns of a text file, with a task's names as they are written."""
    line, blank = _header(open_, name)
    sign = _delimiter(line, columns, delimiter)
    header = _split(line, sign)
    place = pick(header)
    names = {*columns.task, *(one.name for one in columns.task_x)}
    convert = csv.ConvertOptions(
        include_columns=[header[k] for k in place.values()],
        column_types={header[k]: pa.string() for one, k in place.items() if one in names},
    )
    table = _parsed(open_, name, blank, csv.ParseOptions(delimiter=sign, newlines_in_values=True), convert)
    known = {*columns.task, *(one.name for one in columns.task_x if one.levels)}  # to be text
    found = {}
    for column, (one, k) in zip(table.columns, place.items(), strict=True):
        if pa.types.is_string(column.type):
            column = pc.utf8_trim_whitespace(column) if header[k] != one else column  # blanks around all of its fields
            column = _without(column, [""] if one in names else NO_VALUE)
            _check_quotes(column, one, name)
            column = column if one in known else _as_numbers(column, decimal_comma=sign in ";\t")
        found[one] = column
    return pa.table(found)


def _check_quotes(column: Any, title: str, name: str) -> None:
    """A quote that is never closed makes one value of many lines, which would be lost without a word."""
    if _any(column, r"[\r\n]"):
        first = next(text for text in column.to_pylist() if text and re.search(r"[\r\n]", text)).splitlines()[0]
        raise DataError(
            f"{name}: column {title!r} has a value of several lines, beginning with {first[:40]!r}. Is a quote not "
            "closed there? Put it right, or take the line breaks out."
        )


def _parsed(open_: Opener, name: str, skip: int, parse: csv.ParseOptions, convert: csv.ConvertOptions) -> pa.Table:
    """Read block by block: the text is never in memory as a whole."""
    block = BLOCK
    while True:
        try:
            with open_() as file:
                table = csv.read_csv(file, csv.ReadOptions(block_size=block, skip_rows=skip), parse, convert)
            pa.default_memory_pool().release_unused()  # what parsing took is twice the table
        except (pa.ArrowException, OSError, ValueError) as error:
            if "straddling" in str(error) and block < 1 << 29:  # a line that is longer than a block
                block *= 8
                continue
            if "UTF8" in str(error):
                raise _not_utf8(name) from None
            raise DataError(f"{name} cannot be read as a table: {_first_line(error)}") from None
        if any(pa.types.is_binary(field.type) for field in table.schema):  # what Arrow makes of text it cannot decode
            raise _not_utf8(name)
        return table


def _header(open_: Opener, name: str) -> tuple[str, int]:
    """The first line that is not blank, and how many are before it."""
    with open_() as file, TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
        blank, line = next(((k, line.rstrip("\r\n")) for k, line in enumerate(text) if line.strip()), (0, ""))
    if not line.isascii() and any("\udc80" <= sign <= "\udcff" for sign in line):
        raise _not_utf8(name)
    return line, blank


def _not_utf8(name: str) -> DataError:
    return DataError(f"{name} is no UTF-8 text: save it as UTF-8, or convert it with iconv.")


def _delimiter(line: str, columns: Columns, given: str | None) -> str:
    """The sign between columns: the one given, or that with which the first line has most of the named columns."""
    if given is None:
        wanted = {*columns.task, *columns.x, *columns.y}

        def fits(sign: str) -> tuple[int, int]:
            header = [name.strip() for name in _split(line, sign)]
            return len(wanted.intersection(header)), len(header)

        return max(DELIMITERS, key=fits)
    sign = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(sign) != 1 or sign in '"\r\n':
        raise OptionError(f"--delimiter {given!r}: give one sign, such as ';', or 'tab'.")
    return sign


def _split(line: str, sign: str) -> list[str]:
    try:
        return next(reader([line], delimiter=sign), [])
    except Error:  # with another sign it may be one field, longer than the module reads
        return [line]


def _without(column: Any, words: Sequence[str]) -> Any:
    """A column of text in which these words are missing values."""
    return pc.if_else(pc.is_in(column, value_set=pa.array(words)), pa.scalar(None, column.type), column)


def _as_numbers(column: Any, *, decimal_comma: bool) -> Any:
    """Text as numbers, truth values or dates where all of it can be read so; 007 stays the name that it is."""
    plain = _without(pc.utf8_trim_whitespace(column), NO_VALUE)
    if plain.null_count == len(plain) or _any(plain, r"^[+-]?0\d"):
        return column
    if decimal_comma and not _any(plain, r"\."):
        plain = pc.replace_substring(plain, ",", ".")
    for dtype in (pa.float64(), pa.bool_(), pa.timestamp("us")):
        try:
            return plain.cast(dtype)
        except pa.ArrowInvalid:
            continue
    return column


def _any(column: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _first_line(error: Any) -> str:
    return str(error).split("\n", 1)[0]
