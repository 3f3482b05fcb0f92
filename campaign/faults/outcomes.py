"""What a job leaves behind, and whether each file of it is whole."""

from __future__ import annotations

import hashlib
import io
import json
import re
import xml.etree.ElementTree
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from metaprior import MetapriorError
from metaprior.files import read_state

TORN = "torn"
UNFINISHED = "unfinished"
"""A record that says itself that not everything is there yet."""

CLOCKS = ("seconds", "peak_memory_mb", "files")
"""What of results.json differs from run to run, or follows from what does."""


def content(folder: Path) -> dict[str, str]:
    """Each file of a folder in short: two that are alike hold the same, whatever the clock said meanwhile.

    What is hidden, and what `shard` has in hand, is nobody's outcome.
    """
    return {name: _in_short(path) for name, path in files_of(folder).items() if not _in_hand(name)}


def files_of(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _in_hand(name: str) -> bool:
    parts = Path(name).parts
    return any(part.startswith(".") for part in parts) or "partial" in parts or name.endswith((".part", ".checkpoint"))


def litter(folder: Path) -> list[str]:
    """What runs that were killed have left, and nobody looks at: a file that was being written, a try of a folder."""
    named = re.compile(r"\.\d+\..+|\.metaprior-\d+|\.tmp\w+")
    return [name for name in files_of(folder) if named.fullmatch(Path(name).name)]


def _in_short(path: Path) -> str:
    data = path.read_bytes()
    try:
        found = _read(path, data)
    except (MetapriorError, ValueError, KeyError, OSError, SyntaxError, pa.ArrowException, zipfile.BadZipFile) as error:
        return f"{TORN}: {error}"
    return found if isinstance(found, str) else hashlib.sha256(found).hexdigest()


def _read(path: Path, data: bytes) -> bytes | str:
    """What a file says, if it is whole; without what clocks say, and pictures without how they were drawn."""
    match path.suffix:
        case ".json":
            return _json(json.loads(data))
        case ".parquet":
            pq.read_table(io.BytesIO(data))
        case ".npz":
            with np.load(io.BytesIO(data)) as arrays:
                return b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
        case ".png":
            return _ends(data, b"IEND\xaeB`\x82")
        case ".svg":
            xml.etree.ElementTree.fromstring(data)
            return "a picture"
        case ".html":
            return _ends(data.rstrip(), b"</html>")
        case "" | ".metaprior" if path.name in ("m", "model.metaprior"):
            read_state(path)
    return data


def _json(found: dict[str, Any]) -> bytes | str:
    if found.get("complete") is False:
        return UNFINISHED
    kept = {key: value for key, value in found.items() if key not in CLOCKS}
    text = json.dumps(kept, sort_keys=True)
    return re.sub(r'"seconds": [\d.e-]+', "", text).encode()


def same_numbers(one: Path, other: Path) -> bool:
    """Whether two files are tables with the same names and texts, and numbers that agree to twelve digits."""
    read = {".csv": csv.read_csv, ".parquet": pq.read_table}.get(one.suffix)
    if read is None or not other.exists():
        return False
    found, wanted = read(one), read(other)
    return found.schema == wanted.schema and all(map(_alike, found.columns, wanted.columns))


def _alike(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(one.type) and len(one) == len(other):
        return bool(np.allclose(one.to_numpy(), other.to_numpy(), rtol=1e-12, atol=1e-12, equal_nan=True))
    return bool(one.equals(other))


def _ends(data: bytes, end: bytes) -> str:
    if not data.endswith(end):
        raise ValueError("its end is missing")
    return "whole"
