"""A long table, one row per observation, read into the rows of its tasks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError
from metaprior.notes import Note
from metaprior.tasks.arrow import arrow_of, as_frame
from metaprior.tasks.columns import Columns
from metaprior.tasks.covariates import Covariate
from metaprior.tasks.dates import DATES_READ, dates_of, misfits, readings
from metaprior.tasks.patterns import looks_wide
from metaprior.tasks.rows import Rows

DAYS = "days since 1970-01-01"
"""What dates among the inputs are counted in."""

SHOWN = 12
"""So many of a table's columns are named where one is missing."""

UTC = ("UTC", "Etc/UTC", "+00:00", "Z")
"""Names of the zone in which days are counted."""

Names = str | Sequence[str]
Array = np.ndarray[Any, Any]


class LongTable(NamedTuple):
    """What a long table says: its rows, which inputs are dates (in days), which times of day, and of each task."""

    rows: Rows
    dated: tuple[str, ...]
    clocks: tuple[str, ...]
    task_x: dict[str, list[Any]]  # in each column one value per task; None where it has none
    cluster: list[Any] | None = None  # the same of the column of clusters
    zones: tuple[Note, ...] = ()  # time zones that were dropped


def named_columns(
    task: Names | None, x: Names | None, y: Names | None, task_x: str | Sequence[str | Covariate] = ()
) -> Columns:
    """What the columns are called that a user names, by one name or several; none where nothing was given."""
    about = [one if isinstance(one, Covariate) else Covariate(one) for one in _several(task_x)]
    named = [() if names is None else _names(names) for names in (task, x, y)]
    return Columns(named[0], named[1], named[2], tuple(about))


def read_long(table: Any, columns: Columns, cluster: str | None = None) -> LongTable:
    """The tasks of a table in the order in which they first appear; a task's rows need not stand together."""
    frame, about = as_frame(table), columns.task_x
    _check_columns(frame, columns)
    if cluster is not None:
        check_known([cluster], frame.columns, "the table has")
    frame = with_dates(frame, columns.x)
    owner, ids = task_owners(frame, columns.task)
    pa.default_memory_pool().release_unused()  # naming the tasks takes more than the column has
    together = bool((owner[1:] >= owner[:-1]).all())
    order = np.arange(len(owner), dtype=np.int32) if together else np.argsort(owner, kind="stable")
    _check_numbers(frame, columns)
    x_values, y_values = (_numbers(frame, names, order) for names in (columns.x, columns.y))
    rows = Rows(x_values, y_values, owner if together else owner[order], ids, columns, order)
    whole = {one.name: _of_tasks(frame, one.name, owner, ids) for one in about}
    groups = None if cluster is None else _of_tasks(frame, cluster, owner, ids, "cluster")
    dated, clocks = (tuple(name for name in columns.x if holds(frame, name)) for holds in (holds_dates, holds_times))
    return LongTable(rows, dated, clocks, whole, groups, tuple(dropped_zones(frame, columns.x)))


def task_columns(frame: nw.DataFrame[Any], columns: Columns) -> dict[str, list[Any]]:
    """What the task columns of a table say of each task, in the order in which the tasks first appear."""
    owner, ids = task_owners(frame, columns.task)
    return {one.name: _of_tasks(frame, one.name, owner, ids) for one in columns.task_x}


def _several(names: str | Sequence[str | Covariate]) -> list[str | Covariate]:
    return [names] if isinstance(names, (str, Covariate)) else list(names)


def _of_tasks(frame: nw.DataFrame[Any], name: str, owner: Array, ids: Sequence[Any], role: str = "task") -> list[Any]:
    """The one value that each task has in a column, None where it has none; where it has two, that is an error."""
    array = arrow_of(frame, name)
    if array is None:
        raise DataError(f"{role} column {name!r} mixes kinds of values; give all of its values one type.")
    dtype = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (_is_date(dtype) or _is_numeric(dtype) or _is_text(dtype)):
        raise DataError(f"{role} column {name!r} holds {dtype}; use numbers, dates or text.")
    empty = array.is_null(nan_is_null=pa.types.is_floating(dtype)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~empty)
    some = array.take(pa.array(rows))
    said = f"{role} column {name!r} holds {dtype}; use numbers, dates or text."
    codes, values = _values(pa.array(_days(some)) if _is_date(dtype) else some, said)
    first = np.full(len(ids), -1)
    first[owner[rows][::-1]] = codes[::-1]  # of each task's first row that has a value
    differs = np.flatnonzero(codes != first[owner[rows]])
    if len(differs):
        task, tasks = owner[rows[differs[0]]], len(np.unique(owner[rows[differs]]))
        two = f"{values[first[task]]!r} and {values[codes[differs[0]]]!r}"
        raise DataError(
            f"{role} column {name!r} is not constant within {tasks} of {len(ids)} tasks (task {ids[task]!r} has "
            f"{two}): " + ("make it an input column (x)." if role == "task" else "a task belongs to one cluster.")
        )
    return [values[code] if code >= 0 else None for code in first.tolist()]


def task_ids(frame: nw.DataFrame[Any], names: tuple[str, ...]) -> list[Any]:
    """The ids of all tasks of a table, in the order in which they first appear."""
    return task_owners(frame, names)[1]


def _names(names: Names) -> tuple[str, ...]:
    # a name need not be text: only lists and tuples are several
    return tuple(names) if isinstance(names, (list, tuple)) else (names,)  # type: ignore[return-value]


def _check_columns(frame: nw.DataFrame[Any], columns: Columns) -> None:
    for role, names in zip(("task", "x", "y"), columns[:3], strict=True):
        if not names:
            raise DataError(f"no {role} column named.")
    check_known(list(columns.roles), frame.columns, "the table has")
    for name, roles in columns.roles.items():
        if len(roles) > 1:
            raise DataError(f"column {name!r} is named more than once, as {' and as '.join(roles)}: it has one role.")
    if len(frame) == 0:
        raise DataError("the table has no rows.")


def check_known(wanted: Sequence[str], columns: Sequence[str], what: str) -> None:
    """Whether a table has these columns; if not, an error says which it has, and which may have been meant."""
    known, said = {str(name): name for name in columns}, []
    for name in [name for name in wanted if name not in columns]:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
        said.append(f"{name!r}" + (f" (did you mean {known[near[0]]!r}?)" if near else ""))
    if said:
        more = f" and {len(known) - SHOWN:,} more" if len(known) > SHOWN else ""
        whose = "Its" if what.endswith("has") else "Their"
        wide = f" {advice}" if len(said) > 1 and (advice := looks_wide(columns)) else ""
        raise DataError(
            f"{what} no column {', '.join(said)}. {whose} columns: {', '.join([*known][:SHOWN])}{more}.{wide}"
        )


def task_owners(frame: nw.DataFrame[Any], names: tuple[str, ...]) -> tuple[Array, list[Any]]:
    """Each row's task as a position, and the tasks' ids: the column's value, or a tuple of several."""
    owner, ids = _codes(frame, names[0])
    if len(names) == 1:
        return owner, ids
    keys = [(value,) for value in ids]
    for name in names[1:]:
        codes, values = _codes(frame, name)
        owner, pairs = _encode(pa.array(owner.astype(np.int64) * len(values) + codes))
        keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in pairs]
    return owner, keys


def _codes(frame: nw.DataFrame[Any], name: str) -> tuple[Array, list[Any]]:
    array = arrow_of(frame, name)
    if array is None:
        raise DataError(f"task column {name!r} mixes kinds of values; give all of its values one type.")
    empty = array.is_null(nan_is_null=pa.types.is_floating(array.type))
    count = empty.true_count
    if count:
        row = empty.index(True).as_py()
        raise DataError(
            f"task column {name!r} is empty in {count} rows (the first is row {row}): give each row its task."
        )
    if any(test(array.type) for test in (pa.types.is_nested, pa.types.is_interval, pa.types.is_duration)):
        raise DataError(f"task column {name!r} holds {array.type}; use numbers or text to name tasks.")
    return _values(array, f"task column {name!r} holds {array.type}; use numbers or text to name tasks.")


def _values(array: Any, otherwise: str) -> tuple[Array, list[Any]]:
    """Values as codes, and what they stand for. otherwise: what is said where Python has none of the kind."""
    try:
        return _encode(array)
    except (pa.ArrowException, OverflowError, ValueError) as error:  # such as a date in the year 300,000
        raise DataError(f"{otherwise} ({str(error).splitlines()[0]})") from None


def _encode(array: Any) -> tuple[Array, list[Any]]:
    if pa.types.is_dictionary(array.type):  # categories may be unused or out of order: encode what is there
        array = array.cast(array.type.value_type)
    if pa.types.is_floating(array.type):
        array = pc.add(array.cast(pa.float64()), 0.0)  # there is one zero
    coded = array.dictionary_encode()
    codes, values = coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()
    if pa.types.is_temporal(array.type):  # several of Arrow's may be one of Python's
        places: dict[Any, int] = {}
        merged = np.array([places.setdefault(value, len(places)) for value in values], dtype=codes.dtype)
        codes, values = merged[codes], list(places)
    return codes, values


def _check_numbers(frame: nw.DataFrame[Any], columns: Columns) -> None:
    """Inputs hold numbers or dates, targets numbers; everything that is neither is said at once."""
    wrong = []
    for name in columns.x + columns.y:
        array = arrow_of(frame, name)
        dated = array is not None and name in columns.x and (_is_date(array.type) or pa.types.is_time(array.type))
        if array is None or not (dated or _is_numeric(array.type)):
            kinds = "numbers or dates" if name in columns.x else "numbers"
            wrong.append(f"column {name!r} must hold {kinds}, but {what_it_holds(frame, name, array)}")
    if wrong:
        raise DataError("; ".join(wrong) + ".")


def _numbers(frame: nw.DataFrame[Any], names: Sequence[str], order: Array) -> Float[Tensor, "N k"]:
    """The columns side by side, their rows in this order."""
    numbers = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        numbers[:, k] = in_numbers(arrow_of(frame, name))[order]  # type: ignore[index]
    return torch.from_numpy(numbers).add_(0.0)  # there is one zero; NumPy would warn of signalling NaN


def in_numbers(array: Any) -> Array | None:
    """A column as float64, dates and times of day in days, NaN where it is empty; None if it holds anything else."""
    if _is_date(array.type):
        return _days(array)
    if pa.types.is_time(array.type):
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False) / 86_400e6  # type: ignore[no-any-return]
    if not _is_numeric(array.type):
        return None
    integers = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
    return integers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def with_dates(frame: nw.DataFrame[Any], names: Sequence[str]) -> nw.DataFrame[Any]:
    """The same with dates for what is written as text in these columns, where it can be read in one way only."""
    for name in names:
        array = arrow_of(frame, name) if name in frame.columns else None
        found = dates_of(array) if array is not None and _is_text(array.type) else None
        if found is not None:
            native = nw.from_arrow(pa.table({"dates": found}), backend=nw.get_native_namespace(frame))
            frame = frame.with_columns(native.get_column("dates").alias(name))
    return frame


def dropped_zones(frame: nw.DataFrame[Any], names: Sequence[str]) -> list[Note]:
    """Notes on time zones that the days of these columns do not keep; UTC is kept."""
    found = []
    for name in names:
        array = arrow_of(frame, name)
        zone = array.type.tz if array is not None and pa.types.is_timestamp(array.type) else None
        if zone not in (None, *UTC):
            before = f"dropped the time zone {zone} of column {name!r} in "
            found.append(Note(len(frame), "rows: its moments count in UTC.", before=before))
    return found


def holds_dates(frame: nw.DataFrame[Any], name: str) -> bool:
    """Whether a column holds dates, with or without a time of day."""
    array = arrow_of(frame, name)
    return array is not None and _is_date(array.type)


def holds_times(frame: nw.DataFrame[Any], name: str) -> bool:
    """Whether a column holds times of day."""
    array = arrow_of(frame, name)
    return array is not None and bool(pa.types.is_time(array.type))


def _is_text(dtype: Any) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def _is_date(dtype: Any) -> bool:
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def _days(array: Any) -> Array:
    """Dates and times as days since 1970-01-01; missing ones are NaN."""
    return in_days(array.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))


def in_days(moments: Array) -> Array:
    """Moments in time as days since 1970-01-01."""
    days: Array = (moments - np.datetime64("1970-01-01", "us")) / np.timedelta64(1, "D")
    return days


def _is_numeric(dtype: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(dtype) for test in tests)


def what_it_holds(frame: nw.DataFrame[Any], name: str, array: Any) -> str:
    """What a column has instead of numbers, and what to do about it."""
    if array is not None and pa.types.is_dictionary(array.type):
        return "it holds categories; give each a number, or name it in task_x if it is constant within tasks"
    dtype = array.type if array is not None else frame.get_column(name).dtype
    values = frame.get_column(name).to_list() if array is None or _is_text(array.type) else []
    bad = [(row, value) for row, value in enumerate(values) if isinstance(value, str) and not _is_number(value)]
    if bad and len(bad) == len([value for value in values if value is not None]):
        return _what_text_holds(bad)
    if bad:
        return (
            f"{len(bad)} of its {len(values)} values are text ({_first(bad)}); put them right or leave those rows out"
        )
    if any(isinstance(value, str) for value in values):
        return "it holds numbers written as text; convert the column to a number type"
    return f"it holds {dtype}; convert it to numbers first"


def _what_text_holds(values: list[tuple[int, str]]) -> str:
    """What is wrong with a column in which all is text: each value with its row."""
    texts = [text for _, text in values]
    if len(readings(texts)) > 1:
        return f"its dates may have the day or the month first ({_first(values)}): write them as 2020-03-28"
    odd = [values[k] for k in misfits(texts)]
    if odd:
        return (
            f"{len(odd)} of its values are no dates as the others are ({_first(odd)}); put them right or leave them out"
        )
    return (
        f"it holds text ({_first(values)}): number the categories, or name it in task_x if it is constant within "
        f"tasks; dates are read that look like {DATES_READ}"
    )


def _first(values: Sequence[tuple[int, str]]) -> str:
    return ", ".join(f"row {row}: {value!r}" for row, value in values[:3])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
