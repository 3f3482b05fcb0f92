"""The columns of predictions: what they are called, and values as the table that was given has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError
from metaprior.tasks import Columns, Tasks, holds_dates, holds_times

Array = np.ndarray[Any, Any]

LAST = 106_751_991.0
"""Days from 1970 that microseconds, in 64 bits, can count."""

MOMENTS = ("mean", "sd", "lower", "upper")
"""What every table of predictions has, in this order, after the task and input columns."""


def named_apart(name: str, columns: Columns) -> str:
    """What a column of a prediction is called: where a task or input column has that name, it is `…_predicted`."""
    while name in (*columns.task, *columns.x):
        name += "_predicted"
    return name


def header_of(columns: Columns) -> list[str]:
    """How the header of a table of predictions begins."""
    first = "" if len(columns.y) == 1 else f"{columns.y[0]}_"
    return [*columns.task, *columns.x, *(named_apart(first + name, columns) for name in MOMENTS)]


def identities(points: Tasks, names: Sequence[str]) -> dict[str, Array]:
    """The task columns, a value for each row."""
    owner = points.task_of_row.numpy()
    if len(names) == 1:
        return {names[0]: _column(list(points.ids))[owner]}
    return {name: _column([row[k] for row in points.ids])[owner] for k, name in enumerate(names)}  # type: ignore[index]


def as_table(
    frame: nw.DataFrame[Any], names: Sequence[str], x: Float[Tensor, "N d"], before: Mapping[str, Any], after: Any
) -> nw.DataFrame[Any]:
    """Inputs of these names as the table has them, between other columns, as a table of its kind."""
    inputs = {name: _as_given(frame, name, x[:, k].numpy()) for k, name in enumerate(names)}
    written = nw.from_dict(before | inputs | after, backend=nw.get_native_namespace(frame))  # type: ignore[operator]
    return _as_dates(written, frame, names)


def with_index(written: nw.DataFrame[Any], index: Any) -> nw.DataFrame[Any]:
    """The same with this index, if it is a pandas table. index: of the rows that were asked about, or None."""
    if index is None or nw.maybe_get_index(written) is None:
        return written
    native = written.to_native()
    native.index = index
    return nw.from_native(native, eager_only=True)


def _as_given(frame: nw.DataFrame[Any], name: str, values: Array) -> Any:
    """Inputs as the table has them: days are moments again, and parts of a day times of day."""
    clocks = holds_times(frame, name) and bool(((values >= 0) & (values < 1)).all())
    if not (clocks or holds_dates(frame, name)):
        return values
    if float(np.abs(values).max(initial=0.0)) >= LAST:
        raise DataError(
            f"column {name!r}: {np.abs(values).max():g} days from 1970 lead to no date that can be written."
        )
    moments: Array = np.datetime64("1970-01-01", "us") + (values * 86_400e6).round().astype("timedelta64[us]")
    return [moment.time() for moment in moments.tolist()] if clocks else moments


def _as_dates(written: nw.DataFrame[Any], frame: nw.DataFrame[Any], names: Sequence[str]) -> nw.DataFrame[Any]:
    """Moments in the kind of column that the table has: whole days as dates, others in its time zone."""
    for name in names:
        if not holds_dates(frame, name):
            continue
        dtype, column = frame.schema[name], nw.col(name)
        if dtype == nw.Date and _whole(written[name], "d"):
            written = written.with_columns(column.cast(nw.Date))
        elif isinstance(dtype, nw.Datetime):
            zoned = (
                column.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone) if dtype.time_zone else column
            )
            exact = dtype.time_unit == "ns" or _whole(written[name], dtype.time_unit)
            written = written.with_columns(zoned.cast(dtype) if exact else zoned)
    return written


def _whole(moments: nw.Series[Any], unit: str) -> bool:
    """Whether all of them are whole days, seconds, …"""
    return bool((moments.dt.truncate(f"1{unit}") == moments).all())


def _column(values: list[Any]) -> Array:
    found = np.asarray(values)
    if found.dtype.kind == "f" and isinstance(values[0], int):  # some beyond 2**63: as floats they would be rounded
        return np.asarray(values, dtype=np.uint64)
    return found if found.dtype.kind in "biufU" else np.asarray(values, dtype=object)
