"""The one file in a zip archive, unpacked as it is read."""

from __future__ import annotations

import zlib
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import pyarrow as pa

from metaprior.errors import DataError

SPREADSHEET = "save it as CSV (File > Save As > CSV UTF-8)"
"""What to do with one."""

SHOWN = 5
_BROKEN = (BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error)


def member_of(file: Any, name: str) -> pa.NativeFile:
    """The file in an archive, to be read in pieces; an archive of several, or of what is no table, is told."""
    try:
        archive = ZipFile(file)
        info = _only(archive, name)
        return pa.PythonFile(_Member(archive.open(info)), mode="r")
    except _BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{name} is a damaged zip archive: {error}.") from None


def _only(archive: ZipFile, name: str) -> ZipInfo:
    found = [info for info in archive.infolist() if not _is_aside(info.filename)]
    names = [info.filename for info in found]
    if any(one.startswith("xl/") for one in names) or {"mimetype", "content.xml"} <= set(names):
        raise DataError(f"{name} is a spreadsheet, such as Excel writes: {SPREADSHEET}.")
    if len(found) != 1:
        what = f"{len(found)} files ({', '.join(names[:SHOWN])}{', …' * (len(found) > SHOWN)})" if found else "nothing"
        raise DataError(f"{name} is a zip archive of {what}: unpack it, and give the table.")
    (info,) = found
    if info.flag_bits & 1:
        raise DataError(f"{name}: {info.filename} is locked by a password: unpack it first.")
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # others may stand for any number of times their size
        raise DataError(f"{name}: {info.filename} is packed in a way that is not read: unpack it first.")
    return info


def _is_aside(filename: str) -> bool:
    """A folder, or what a Mac puts beside files."""
    return filename.endswith("/") or filename.startswith("__MACOSX/") or filename.rpartition("/")[2] == ".DS_Store"


class _Member:
    """A file in an archive, whose errors are those of reading."""

    def __init__(self, file: Any) -> None:
        self.file, self.closed = file, False

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self.file.read(size)
        except _BROKEN as error:
            raise OSError(f"damaged zip archive: {error}") from None
        return found

    def close(self) -> None:
        self.file.close()
        self.closed = True
