"""What a file is, by how it begins: tables that are read, and others that are told what to do with."""

from __future__ import annotations

import re
from typing import Literal

from metaprior.errors import DataError

Format = Literal["text", "gzip", "parquet", "arrow"]

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
