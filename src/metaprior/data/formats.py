"""What a file is, by how it begins: tables that are opened, and others that are told what to do with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from metaprior.data.embedded import EMBEDDED
from metaprior.errors import DataError

Format = Literal["text", "gzip", "parquet", "arrow"]
Opener = Callable[[], pa.NativeFile]

HEAD = 65_536
"""Bytes by which a file is known."""

_READ: dict[Format, bytes] = {"gzip": rb"\x1f\x8b", "parquet": rb"PAR1[^\t\r\n -~]", "arrow": rb"ARROW1\0"}

_SPREADSHEET = "save it as CSV (File > Save As > CSV UTF-8)"
_UNPACK = "unpack it first, or pack it with gzip"
_OTHERS = (
    (rb"PK\x03\x04.*(xl/|opendocument.spreadsheet)", "a spreadsheet, such as Excel writes", _SPREADSHEET),
    (rb"\xd0\xcf\x11\xe0", "an old Excel workbook", _SPREADSHEET),
    (rb"PK\x03\x04", "a zip archive", "unpack it, and give the table that is in it"),
    (rb"BZh[1-9]1AY&SY", "packed by bzip2", _UNPACK),
    (rb"\xfd7zXZ\0", "packed by xz", _UNPACK),
    (rb"\x28\xb5\x2f\xfd", "packed by zstd", _UNPACK),
    (rb"SQLite format 3\0", "an SQLite database", "export the table: sqlite3 -header -csv FILE 'select * from TABLE'"),
    (rb"\x80[\x02-\x05]", "a Python pickle", "read it in Python and write it with to_csv or to_parquet"),
    (rb"\x89HDF", "an HDF5 file", "read it in Python and write it with to_csv or to_parquet"),
    (rb"FEA1", "a Feather file of version 1", "write it anew as Feather (version 2) or Parquet"),
    (rb"\xff\xff\xff\xff", "a stream of Arrow tables", "write it as a Feather or Parquet file"),
    (rb"\xff\xfe|\xfe\xff|[^\n]{0,200}\0", "UTF-16 text, or no text", "save it as UTF-8 text"),
    (rb"\s*[\[{]\s*[\"\d\[{}]", "JSON", "write it as a table: pandas.read_json (lines=True for lines), then to_csv"),
)  # fmt: skip


def format_of(head: bytes, name: str) -> Format:
    """What a file is that begins so; one that is no table, or none that is read, is an error with the way out."""
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise DataError(f"{name} is empty.")
    for found, start in _READ.items():
        if re.match(start, head):
            return found
    for start, what, advice in _OTHERS:
        if re.match(start, head, re.DOTALL):
            raise DataError(f"{name} is {what}: {advice}.")
    return "text"


def opener_of(name: str) -> Opener:
    """What opens a file from its beginning, as often as it is needed; a pipe, which can be read once, is kept."""
    path = Path(name)
    if name == "-":
        return partial(pa.BufferReader, sys.stdin.buffer.read())
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a table.")
    if not path.exists():
        raise DataError(f"there is no file {path}, nor an embedded table of that name ({', '.join(EMBEDDED)}).")
    return partial(pa.OSFile, name) if path.is_file() else partial(pa.BufferReader, path.read_bytes())


def recognised(open_: Opener, name: str) -> tuple[Opener, Format]:
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
