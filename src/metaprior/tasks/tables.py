"""From a long table, one row per observation, to `Tasks`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from metaprior.errors import DataError
from metaprior.tasks._checks import Missing, check_missing_option
from metaprior.tasks.tasks import Columns, Tasks, assemble

Names = str | Sequence[str]


def tasks_from_table(table: Any, *, task: Names, x: Names, y: Names, missing: Missing) -> Tasks:
    """Tasks in the order in which they first appear; a task's rows need not stand together."""
    check_missing_option(missing)
    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError:
        raise DataError(
            f"a table is a pandas, polars or Arrow one, not {type(table).__name__}; for arrays use Tasks.from_pairs."
        ) from None
    columns = Columns(_names(task), _names(x), _names(y))
    _check_columns(frame, columns)
    owner, ids = _owners(frame, columns.task)
    order = np.argsort(owner, kind="stable")
    values = [_numbers(frame, column)[order] for column in columns.x + columns.y]
    matrix = torch.from_numpy(np.stack(values, axis=1))
    d = len(columns.x)
    return assemble(matrix[:, :d], matrix[:, d:], owner[order], ids, columns, order, missing)


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_columns(frame: nw.DataFrame[Any], columns: Columns) -> None:
    for role, names in zip(("task", "x", "y"), columns, strict=True):
        if not names:
            raise DataError(f"no {role} column named.")
    wanted = columns.task + columns.x + columns.y
    unknown = [name for name in wanted if name not in frame.columns]
    if unknown:
        said = []
        for name in unknown:
            near = difflib.get_close_matches(name, frame.columns, n=1, cutoff=0.4)
            said.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
        raise DataError(f"the table has no column {', '.join(said)}. Its columns: {', '.join(frame.columns)}.")
    twice = sorted({name for name in wanted if wanted.count(name) > 1})
    if twice:
        raise DataError(f"column {twice[0]!r} is named more than once among task, x and y.")
    if len(frame) == 0:
        raise DataError("the table has no rows.")


def _owners(frame: nw.DataFrame[Any], names: tuple[str, ...]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Each row's task as a position, and the tasks' ids: the column's value, or a tuple of several."""
    coded = [_codes(frame, name) for name in names]
    codes, levels = coded[0]
    if len(names) == 1:
        return codes, levels
    for others, more in coded[1:]:
        codes = codes * len(more) + others
    codes, keys = _encode(pa.array(codes))
    first = np.full(len(keys), len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    return codes, [tuple(level[code[i]] for code, level in coded) for i in first]


def _codes(frame: nw.DataFrame[Any], name: str) -> tuple[np.ndarray[Any, Any], list[Any]]:
    array = _arrow(frame, name)
    empty = pc.is_null(array, nan_is_null=True)
    count = pc.sum(empty).as_py() or 0
    if count:
        row = pc.index(empty, True).as_py()
        raise DataError(
            f"task column {name!r} is empty in {count} rows (the first is row {row}): give each row its task."
        )
    return _encode(array)


def _encode(array: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    if pa.types.is_dictionary(array.type):  # categories may be unused or out of order: encode what is there
        coded = array.cast(array.type.value_type).dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist()


def _numbers(frame: nw.DataFrame[Any], name: str) -> np.ndarray[Any, Any]:
    array = _arrow(frame, name)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        numbers = array.cast(pa.float64()) if not pa.types.is_boolean(kind) else array.cast(pa.int8())
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_decimal(kind):
        return np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    raise DataError(f"column {name!r} must hold numbers, but {_what_it_holds(array)}.")


def _what_it_holds(array: Any) -> str:
    texts = array.to_pylist()
    if not all(text is None or isinstance(text, str) for text in texts):
        return f"it holds {array.type}; convert it to numbers first"
    bad = [(i, text) for i, text in enumerate(texts) if text is not None and not _is_number(text)]
    if not bad:
        return "it holds numbers written as text; convert the column to a number type"
    first = ", ".join(f"row {i}: {text!r}" for i, text in bad[:3])
    return f"{len(bad)} of its {len(texts)} values are text ({first}); put them right or leave those rows out"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arrow(frame: nw.DataFrame[Any], name: str) -> Any:
    array = frame[name].to_arrow()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
