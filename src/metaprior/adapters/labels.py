"""Labels of groups, one for each row: given beside the inputs, or as one of their columns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import narwhals as nw
import numpy as np

from metaprior.errors import DataError


def labels_of(groups: Any, rows: int) -> list[Hashable]:
    """A label for each of so many rows: text, numbers, dates, whatever can be told apart."""
    labels = np.asarray(groups, dtype=object)
    if labels.ndim != 1:
        raise DataError(f"groups of shape {labels.shape}: give one label for each row.")
    if len(labels) != rows:
        raise DataError(f"groups has {len(labels)} labels for {rows} rows: give one for each.")
    missing = [k for k, label in enumerate(labels) if _is_missing(label)]
    if missing:
        raise DataError(
            f"{len(missing)} rows have no group (the first is row {missing[0]}): give each one, or leave them out."
        )
    found: list[Hashable] = labels.tolist()
    try:
        set(found)
    except TypeError as error:
        raise DataError(f"groups that cannot be told apart: {error}. Use text, numbers or dates.") from None
    return found


def groups_apart(X: Any, column: str | int) -> tuple[Any, Any]:
    """Inputs without the column that holds the groups, and that column. column: a name, or a position."""
    if hasattr(X, "columns"):
        frame = nw.from_native(X, eager_only=True)
        names = frame.columns
        if column not in names and isinstance(column, int) and -len(names) <= column < len(names):
            column = names[column]
        if column not in names:
            raise DataError(f"group={column!r}: X has no such column. There are {', '.join(map(str, names))}.")
        _check_more(column, len(names))
        return frame.drop(column).to_native(), frame[column].to_numpy()
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X has {array.ndim} dimensions; give rows × columns.")
    if not isinstance(column, int):
        raise DataError(f"group={column!r}: X is an array, so give the position of the column, or a data frame.")
    if not -array.shape[1] <= column < array.shape[1]:
        raise DataError(f"group={column}: X has {array.shape[1]} columns.")
    _check_more(column, array.shape[1])
    return np.delete(array, column, 1), array[:, column]


def _check_more(column: str | int, columns: int) -> None:
    if columns < 2:
        raise DataError(f"X has no column but the groups ({column!r}): give at least one input.")


def _is_missing(label: Any) -> bool:
    """None, NaN, NaT, pandas' NA: what is not equal to itself, or will not say."""
    try:
        return label is None or not bool(label == label)
    except TypeError:
        return True
