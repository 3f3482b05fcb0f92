"""Which bucket a task is in: a hash of its id that is the same on every machine, and in every version of anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from metaprior.errors import DataError

HASH = "splitmix64 of 8-byte words"
"""What a manifest calls this function."""

Words = np.ndarray[Any, np.dtype[np.uint64]]


def hashes(columns: Sequence[Any], names: Sequence[str]) -> Words:
    """A number of 64 bits for each row of the columns that name its task; none of them is empty.

    Whole numbers, truth values, dates and times are one word, their value; fractions are the bits of a double; text is
    its length in bytes and then its UTF-8 bytes, 8 to a little-endian word, the last filled up by zeros. Words go
    through SplitMix64 one after another, column after column, each added to what the ones before gave by exclusive or.
    """
    found = np.zeros(len(columns[0]), np.uint64)
    for column, name in zip(columns, names, strict=True):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        found = _with_text(found, array) if _is_bytes(array.type) else _mixed(found ^ _word(array, name))
    return found


def _mixed(state: Words) -> Words:
    """A step of SplitMix64, in place."""
    state += np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def _word(array: Any, name: str) -> Words:
    """Values of a fixed size, each as one word."""
    dtype, types = array.type, pa.types
    if types.is_floating(dtype):
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # there is one zero
        return values.view(np.uint64)  # type: ignore[no-any-return]
    if types.is_boolean(dtype):
        array = array.cast(pa.int8())
    elif types.is_date32(dtype) or types.is_time32(dtype):
        array = array.cast(pa.int32())
    elif not (types.is_integer(dtype) or types.is_date64(dtype) or types.is_time64(dtype) or types.is_timestamp(dtype)):
        raise DataError(f"task column {name!r} holds {dtype}; use numbers or text to name tasks.")
    return array.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).view(np.uint64)  # type: ignore[no-any-return]


def _is_bytes(dtype: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(dtype) for test in tests)


def _with_text(found: Words, array: Any) -> Words:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, places, content = array.buffers()
    kind = np.dtype("<i8" if large else "<i4")
    offsets = np.frombuffer(places, kind, len(array) + 1, array.offset * kind.itemsize).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    text = np.zeros(end - begin + 8, np.uint8)
    if end > begin:
        text[:-8] = np.frombuffer(content, np.uint8, end - begin, begin)
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))  # those that begin at each byte
    start, left = offsets[:-1] - begin, np.diff(offsets)
    found = _mixed(found ^ left.view(np.uint64))
    rows = np.flatnonzero(left > 0)
    start, left = start[rows], left[rows]
    while len(rows):
        beyond = np.maximum(8 - left, 0).view(np.uint64)  # bytes of a word that are the next text's
        word = words[start] & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (beyond << np.uint64(3)))
        found[rows] = _mixed(found[rows] ^ word)
        more = left > 8
        rows, start, left = rows[more], start[more] + 8, left[more] - 8
    return found
