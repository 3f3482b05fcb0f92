"""Tables as files: CSV and Parquet by extension, `-` for the standard streams, embedded ones by name."""

from __future__ import annotations

import sys
from csv import reader
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from metaprior.data.embedded import EMBEDDED, load_digits
from metaprior.errors import DataError, OptionError, OutputError
from metaprior.output import write_whole

FORMATS = (".csv", ".parquet")

HEAD = 65_536
"""Bytes of a CSV file in which its first line ends."""


def read_table(name: str, delimiter: str | None = None) -> pa.Table:
    """A table from a file, from standard input (`-`), or an embedded one by name."""
    if name in EMBEDDED:
        return embedded_table(name)
    if name == "-":
        return _csv(pa.BufferReader(sys.stdin.buffer.read()), "standard input", delimiter)
    path = Path(name)
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a table, one of {', '.join(FORMATS)}.")
    if not path.exists():
        raise DataError(f"there is no file {path}, nor an embedded table of that name ({', '.join(EMBEDDED)}).")
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    try:
        if not path.is_file():  # a pipe cannot be read twice
            return _csv(pa.BufferReader(path.read_bytes()), str(path), delimiter)
        with pa.OSFile(str(path)) as file:
            return _csv(file, str(path), delimiter)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def write_table(table: pa.Table, name: str) -> None:
    """A table to a file by its extension, or as CSV to standard output (`-`)."""
    if name == "-":
        csv.write_csv(table, sys.stdout.buffer)
        sys.stdout.flush()
        return
    path = Path(name)
    check_output(name)
    if path.suffix.lower() == ".parquet":
        write_whole(path, lambda part: pq.write_table(table, part))
    else:
        write_whole(path, lambda part: csv.write_csv(table, part))


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


def _parquet(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no Parquet table: {_first_line(error)}") from None
    return _checked(table, str(path))


def _csv(source: pa.NativeFile, name: str, delimiter: str | None) -> pa.Table:
    """Read block by block: the text is never in memory as a whole."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise OptionError(f"--delimiter {delimiter!r}: give one sign, such as ';', or 'tab'.")
    start = source.read(HEAD)
    source.seek(0)
    if not start.strip():
        raise DataError(f"{name} is empty.")
    try:
        options = csv.ParseOptions(delimiter=delimiter or ",")
        # an empty task column is missing, not a task called ""; numbers with leading zeros are names
        convert = csv.ConvertOptions(
            strings_can_be_null=True, column_types=_names_like_numbers(start, delimiter or ",")
        )
        table = csv.read_csv(source, parse_options=options, convert_options=convert)
        pa.default_memory_pool().release_unused()  # what parsing took is twice the table
        first_line = start.split(b"\n", 1)[0].decode("utf-8")
    except (pa.ArrowException, OSError, ValueError) as error:
        if "UTF8" in str(error) or isinstance(error, UnicodeDecodeError):
            raise DataError(f"{name} is no UTF-8 text: save it as UTF-8, or convert it with iconv.") from None
        hint = _hint(start.split(b"\n", 1)[0].decode("utf-8", "replace"), delimiter)
        raise DataError(f"{name} cannot be read as a table: {_first_line(error)}{hint}") from None
    if any(pa.types.is_binary(field.type) for field in table.schema):  # what Arrow makes of text it cannot decode
        raise DataError(f"{name} is no UTF-8 text: save it as UTF-8, or convert it with iconv.")
    if table.num_columns == 1 and (hint := _hint(first_line, delimiter)):
        raise DataError(f"{name} has one column, {table.column_names[0]!r}.{hint}")
    return _checked(table, name)


def _names_like_numbers(start: bytes, delimiter: str) -> dict[str, pa.DataType]:
    """Columns in whose first rows a whole number begins with 0, as in 007: they are read as text."""
    lines = start.decode("utf-8", "ignore").splitlines()
    rows = list(reader(lines[:-1] if len(start) == HEAD else lines, delimiter=delimiter))
    found = {}
    for k, name in enumerate(rows[0] if rows else ()):
        values = [row[k] for row in rows[1:] if k < len(row) and row[k]]
        if all(value.isdigit() for value in values) and any(len(value) > 1 and value[0] == "0" for value in values):
            found[name] = pa.string()
    return found


def _hint(line: str, delimiter: str | None) -> str:
    """Which delimiter the first line seems to have, if it is another one."""
    for sign, said in ((";", "';'"), ("\t", "$'\\t'"), ("|", "'|'"), (",", "','")):
        if sign != (delimiter or ",") and sign in line:
            return f" Its first line has {said}: try --delimiter {said}."
    return ""


def _checked(table: pa.Table, name: str) -> pa.Table:
    twice = [column for column in table.column_names if table.column_names.count(column) > 1]
    if twice:
        raise DataError(f"{name} has several columns called {twice[0]!r}: rename them.")
    if table.num_rows == 0:
        raise DataError(f"{name} has no rows.")
    return table


def _first_line(error: Any) -> str:
    return str(error).split("\n", 1)[0]
