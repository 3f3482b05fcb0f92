"""What a file is, by how it begins: tables that are opened, and others that are told what to do with."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from metaprior.data.embedded import EMBEDDED
from metaprior.data.zipped import SPREADSHEET, member_of
from metaprior.errors import DataError

Format = Literal["text", "lines", "gzip", "zip", "parquet", "arrow"]
Opener = Callable[[], pa.NativeFile]

HEAD = 65_536
"""Bytes by which a file is known."""

_READ: dict[Format, bytes] = {
    "gzip": rb"\x1f\x8b",
    "zip": rb"PK(\x03\x04|\x05\x06)",
    "parquet": rb"PAR1[^\t\r\n -~]",
    "arrow": rb"ARROW1\0",
}

_UNPACKED_BY = {"gzip": "gunzip", "zip": "unzip"}
_UNPACK = "unpack it first, or pack it with gzip"
_QUERY = "ask it for a table: --sql 'select * from TABLE' --db FILE"
_OTHERS = (
    (rb"\xd0\xcf\x11\xe0", "an old Excel workbook", SPREADSHEET),
    (rb"BZh[1-9]1AY&SY", "packed by bzip2", _UNPACK),
    (rb"\xfd7zXZ\0", "packed by xz", _UNPACK),
    (rb"\x28\xb5\x2f\xfd", "packed by zstd", _UNPACK),
    (rb"SQLite format 3\0", "an SQLite database", _QUERY),
    (rb".{8}DUCK", "a DuckDB database", _QUERY),
    (rb"\x80[\x02-\x05]", "a Python pickle", "read it in Python and write it with to_csv or to_parquet"),
    (rb"\x89HDF", "an HDF5 file", "read it in Python and write it with to_csv or to_parquet"),
    (rb"FEA1", "a Feather file of version 1", "write it anew as Feather (version 2) or Parquet"),
    (rb"\xff\xff\xff\xff", "a stream of Arrow tables", "write it as a Feather or Parquet file"),
    (rb"\xff\xfe|\xfe\xff|[^\n]{0,200}\0", "UTF-16 text, or no text", "save it as UTF-8 text"),
    (rb"\s*[\[{]\s*[\"\d\[{}]", "JSON", "write one object in each line, or a table: pandas.read_json, then to_csv"),
)  # fmt: skip


def format_of(head: bytes, name: str) -> Format:
    """What a file is that begins so; one that is no table, or none that is read, is an error with the way out."""
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise DataError(f"{name} is empty.")
    for found, start in _READ.items():
        if re.match(start, head):
            return found
    if _is_lines(head):
        return "lines"
    for start, what, advice in _OTHERS:
        if re.match(start, head, re.DOTALL):
            raise DataError(f"{name} is {what}: {advice}.")
    return "text"


def _is_lines(head: bytes) -> bool:
    """Whether a file begins with a line that is an object of JSON, or with one that is longer than what is seen."""
    line, end, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if not re.match(rb"\{\s*[\"}]", line):
        return False
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return not end and len(head) >= HEAD


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
    """What a file holds, and what opens it so that it can be read: one that is packed is unpacked on the way."""
    with open_() as file:
        format_ = format_of(file.read(HEAD), name)
    if format_ not in ("gzip", "zip"):
        return open_, format_

    def unpacked() -> pa.NativeFile:
        return pa.CompressedInputStream(open_(), "gzip") if format_ == "gzip" else member_of(open_(), name)

    with unpacked() as file:
        inside = format_of(file.read(HEAD), name)
    if inside not in ("text", "lines"):
        raise DataError(f"{name} is {inside} packed by {format_}: unpack it with {_UNPACKED_BY[format_]}.")
    return unpacked, inside
