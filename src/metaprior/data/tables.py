"""Tables as files: text and typed ones by what they hold, `-` for the standard streams, embedded ones by name."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, ipc

from metaprior.data.databases import Query, read_query
from metaprior.data.embedded import EMBEDDED, load_digits
from metaprior.data.formats import Opener, opener_of, recognised
from metaprior.data.lines import chunks, keys_of, read_lines
from metaprior.data.text import Pick, any_like, delimiter_of, first_line, header_line, read_text, split_line
from metaprior.errors import DataError, MetapriorError, OptionError, OutputError
from metaprior.output import write_whole
from metaprior.tasks import ROW, Columns, Pattern, check_known, with_dates

FORMATS = (".csv", ".parquet")


def read_table(
    name: str | Query,
    columns: Columns,
    delimiter: str | None = None,
    *,
    optional: Collection[str] = (),
    wide: str | None = None,
) -> pa.Table:
    """The named columns of a file, of standard input (`-`), of an embedded table, or of what a database is asked.

    What names a task is text in a text file, whatever it looks like: 7 and 007 are two tasks. optional: columns that
    may be absent. wide: a pattern of the columns that hold targets, instead of those of x and y.
    """
    if name in EMBEDDED:
        return embedded_table(str(name))
    if wide is not None:
        columns, optional = columns._replace(x=(), y=()), (*optional, ROW)
    if isinstance(name, Query):
        pick = partial(_picked, columns=columns, name=str(name), optional=optional, wide=wide)
        return _checked(read_query(name, pick, columns.task), str(name), columns)
    said = "standard input" if name == "-" else name
    packed = Path(name).suffix.lower() == ".parquet"
    return _table(opener_of(name), said, columns, delimiter, optional, wide, packed=packed)


def read_content(
    content: bytes, said: str, columns: Columns, delimiter: str | None = None, *, optional: Collection[str] = ()
) -> pa.Table:
    """The named columns of a table that is in memory: text, Parquet or Feather. said: what errors call it."""
    return _table(partial(pa.BufferReader, content), said, columns, delimiter, optional, None, packed=False)


def _table(
    opener: Opener,
    said: str,
    columns: Columns,
    delimiter: str | None,
    optional: Collection[str],
    wide: str | None,
    *,
    packed: bool,
) -> pa.Table:
    """packed: whether a name says that it is no text."""
    pick = partial(_picked, columns=columns, name=said, optional=optional, wide=wide)
    try:
        open_, format_ = recognised(opener, said)
        if format_ == "text" and not packed:
            table = read_text(open_, said, columns, delimiter, pick)
        elif format_ == "lines":
            table = read_lines(open_, said, pick, whole=wide is not None)
            _check_numbers(table, said, columns)
        else:
            table = _typed(open_, said, pick, feather=format_ == "arrow")
    except OSError as error:
        raise DataError(f"{said} cannot be read: {error.strerror or error}.") from None
    return _checked(table, said, columns)


def _check_numbers(table: pa.Table, said: str, columns: Columns) -> None:
    """In JSON, true is no number: it would count as 1."""
    roles = columns.roles
    for field in table.schema:
        if pa.types.is_boolean(field.type) and not {"task", "task_x"}.intersection(roles.get(field.name, ())):
            raise DataError(f"{said}: column {field.name!r} holds true and false: write the numbers 1 and 0.")


def _picked(
    header: Sequence[str], columns: Columns, name: str, optional: Collection[str], wide: str | None
) -> dict[str, int]:
    """Where the columns stand that have a role, or a wide table's form."""
    wanted = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
    if wide is not None:
        wanted += dict.fromkeys(Pattern.of(wide).matching([one.strip() for one in header], wanted))
    return places(header, wanted, name, optional)


def _checked(table: pa.Table, said: str, columns: Columns) -> pa.Table:
    """A table that has rows, with dates among its inputs."""
    if table.num_rows == 0:
        raise DataError(f"{said} has no rows.")
    return with_dates(nw.from_native(table), columns.x).to_native()


def column_names(path: Path, delimiter: str | None = ",") -> list[str]:
    """What the columns of a file are called, in their order. delimiter: of text; None for the one that it has."""
    open_, format_ = recognised(opener_of(str(path)), str(path))
    if format_ == "text":
        line = header_line(open_, str(path))[0]
        return split_line(line, delimiter_of(line, (), delimiter))
    if format_ == "lines":
        return keys_of(next(chunks(open_, str(path))))
    with typed(str(path), feather=format_ == "arrow"), open_() as file:
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
    style = "needed" if any(any_like(column, '[",\r\n]') for column in texts) else "none"
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


def places(header: Sequence[str], wanted: Sequence[str], name: str, optional: Collection[str] = ()) -> dict[str, int]:
    """Where the named columns stand in a file; blanks around a name do not matter."""
    known: dict[str, list[int]] = {}
    for place, column in enumerate(header):
        known.setdefault(column.strip(), []).append(place)
    wanted = [one for one in wanted if one.strip() in known or one not in optional]
    twice = [one for one in wanted if len(known.get(one.strip(), ())) > 1]
    if twice:
        raise DataError(f"{name} has several columns called {twice[0]!r}: rename them.")
    check_known([one for one in wanted if one.strip() not in known], list(known), f"{name} has")
    return {one: known[one.strip()][0] for one in wanted}


def _typed(open_: Opener, name: str, pick: Pick, *, feather: bool) -> pa.Table:
    """The columns of a Parquet file, or of a Feather one (Arrow IPC), in the types that it gives them."""
    with typed(name, feather=feather), open_() as file, open_() as again:
        whole = ipc.open_file(file) if feather else pq.ParquetFile(file)
        header = (whole.schema if feather else whole.schema_arrow).names
        place = pick(header)
        chosen = [header[k] for k in place.values()]
        some = ipc.IpcReadOptions(included_fields=list(place.values()))
        table = ipc.open_file(again, options=some).read_all() if feather else whole.read(columns=chosen)
        table.validate(full=True)
        return table.select(chosen).rename_columns(list(place))


@contextmanager
def typed(name: str, *, feather: bool) -> Iterator[None]:
    """What Arrow says of a file that is none of its own, in our words.

    What is read is not looked at by Arrow: places of texts that are out of bounds would end the process later. Whoever
    reads within this asks for a full validation.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, MetapriorError):
            raise
        raise DataError(f"{name} is no {'Feather' if feather else 'Parquet'} table: {first_line(error)}") from None
