"""Wide tables, one row per task: their cells as a long table, one row per observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from metaprior.errors import DataError
from metaprior.tasks.arrow import arrow_of, as_frame
from metaprior.tasks.columns import Columns
from metaprior.tasks.patterns import Pattern
from metaprior.tasks.tables import check_known, in_numbers, task_owners, what_it_holds

ROW, VALUE = "row", "value"
"""What tasks that have no name are called by, and the targets of a wide table."""

Array = np.ndarray[Any, Any]


def wide_columns(wide: str, columns: Columns) -> Columns:
    """The names of the long table's columns: where they were not given, the input's is that of the pattern."""
    pattern = Pattern.of(wide)
    x, y = columns.x or (pattern.stem,), columns.y or (VALUE,)
    if len(x) > 1 or len(y) > 1:
        raise DataError(
            f"wide={wide!r} has one input, the number in the columns' names, and one target: name one each."
        )
    found = columns._replace(task=columns.task or (ROW,), x=x, y=y)
    for name, roles in found.roles.items():
        if len(roles) > 1:
            raise DataError(
                f"wide={wide!r}: {name!r} would be the name of {' and of '.join(roles)}; give one of them another. "
                f"Without a name, x (the input) is {pattern.stem!r} after the pattern, y (the target) {VALUE!r}, and "
                f"task {ROW!r}."
            )
    return found


def long_table(table: Any, wide: str, columns: Columns, more: Sequence[str] = (), *, empty: bool = False) -> Any:
    """A table with a row for each cell that has a value, task by task, of the kind that came in.

    columns: of the long table, as `wide_columns` names them; `row` counts the rows where no column is called so, and
    what is known of the tasks is kept where it is there. more: further columns to keep. empty: all cells
    without a value stay too; else one of each task that has no other does.
    """
    frame = as_frame(table)
    if columns.task == (ROW,) and ROW not in frame.columns:
        frame = frame.with_row_index(ROW).with_columns(nw.col(ROW).cast(nw.Int64))
    check_known([*columns.task, *more], frame.columns, "the table has")
    about = [one.name for one in columns.task_x if one.name in frame.columns]
    kept = list(dict.fromkeys([*columns.task, *about, *more]))
    if len(frame) == 0:
        raise DataError("the table has no rows.")
    _check_rows(frame, columns.task)
    names, x = Pattern.of(wide).places(frame.columns, kept)
    values = _values(frame, names)
    has = ~np.isnan(values)
    has[~has.any(1), 0] = True
    row, column = np.nonzero(has | empty)
    found = {str(name): _column(frame, name).take(pa.array(row)) for name in kept}
    found |= {columns.x[0]: x.take(pa.array(column)), columns.y[0]: pa.array(values[row, column], from_pandas=True)}
    long = nw.from_arrow(pa.table(found), backend=nw.get_native_namespace(frame))
    return long.rename({str(name): name for name in kept if not isinstance(name, str)}).to_native()


def _check_rows(frame: nw.DataFrame[Any], names: tuple[str, ...]) -> None:
    """A task has one row, or it would be two curves as one."""
    owner, ids = task_owners(frame, names)
    counts = np.bincount(owner)
    several = np.flatnonzero(counts > 1)
    if len(several):
        raise DataError(
            f"{len(several)} of {len(ids)} tasks have several rows (the first is {ids[several[0]]!r} with "
            f"{counts[several[0]]}), and a wide table has one for each: name the columns that tell them apart, several "
            "if need be."
        )


def _values(frame: nw.DataFrame[Any], names: Sequence[str]) -> Array:
    """The cells, rows × columns, NaN where there is none; whatever is no number is told, all at once."""
    arrays = {name: arrow_of(frame, name) for name in names}
    found = {name: None if _is_moment(array) else in_numbers(array) for name, array in arrays.items()}
    wrong = [
        f"column {name!r} must hold numbers, but {what_it_holds(frame, name, arrays[name])}"
        for name, values in found.items()
        if values is None
    ]
    for name, values in found.items():
        rows = np.flatnonzero(np.isinf(0.0 if values is None else values))
        if len(rows):
            wrong.append(f"column {name!r} is infinite in {len(rows)} rows (the first is row {rows[0]})")
    if wrong:
        raise DataError("; ".join(wrong) + ".")
    return np.stack(list(found.values()), 1)  # type: ignore[arg-type]


def _is_moment(array: Any) -> bool:
    """Whether a column holds dates, which are no targets, or nothing of one type."""
    return array is None or bool(pa.types.is_temporal(array.type))


def _column(frame: nw.DataFrame[Any], name: str) -> Any:
    array = arrow_of(frame, name)
    if array is None:
        raise DataError(f"task column {name!r} mixes kinds of values; give all of its values one type.")
    return array
