"""Where a big table comes from: a file of any format, a folder of Parquet files, or the package itself."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaprior.data.blocks import TextStream
from metaprior.data.embedded import EMBEDDED
from metaprior.data.formats import HEAD, opener_of, recognised
from metaprior.data.line_stream import LineStream
from metaprior.data.streams import InMemory, Stream, TypedFiles
from metaprior.data.tables import embedded_table
from metaprior.errors import DataError
from metaprior.tasks import check_known


def open_stream(
    source: str, task: Sequence[str], columns: Sequence[str] | None, text: Sequence[str], delimiter: str | None
) -> Stream:
    """A table to be read batch by batch. columns: those to read, and the task's; text: those whose text is kept."""
    if columns is not None:
        columns = list(dict.fromkeys([*task, *columns]))
    stream = _opened(source, columns, [*task, *text], delimiter)
    check_known([*task, *text], stream.schema.names, f"{stream.name} has")
    return stream


def _opened(source: str, columns: Sequence[str] | None, names: Sequence[str], delimiter: str | None) -> Stream:
    path = Path(source)
    if source in EMBEDDED:
        return InMemory(embedded_table(source), source, columns)
    if path.is_dir():
        files = sorted(one for one in path.glob("*.parquet") if one.is_file() and not one.name.startswith((".", "_")))
        if not files:
            raise DataError(f"the folder {source} has no Parquet files (*.parquet): give a table, or a folder of some.")
        return TypedFiles(files, source, columns)
    if source == "-" or (path.exists() and not path.is_file()):
        raise DataError(f"{source}: what is read once only cannot be gone on with; give a file.")
    try:
        format_ = recognised(opener_of(source), source)[1]
        if format_ == "lines":
            return LineStream(path, columns, names)
        text = format_ == "text" and path.suffix.lower() != ".parquet"
        return TextStream(path, columns, names, delimiter) if text else TypedFiles([path], source, columns)
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}.") from None


def described(stream: Stream) -> list[dict[str, Any]]:
    """By what a source is known again: its files, their sizes, first and last bytes, and when they were written."""
    return [_described(path) for path in stream.files] or [{"file": stream.name}]


def _described(path: Path) -> dict[str, Any]:
    try:
        found = path.stat()
        with path.open("rb") as file:
            ends = file.read(HEAD)
            file.seek(max(found.st_size - HEAD, 0))
            ends += file.read(HEAD)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    return {
        "file": path.name,
        "bytes": found.st_size,
        "crc32_of_ends": f"{zlib.crc32(ends):08x}",
        "modified": found.st_mtime_ns,
    }
