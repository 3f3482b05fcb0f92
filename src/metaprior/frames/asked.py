"""What is known of each task of a table, and where it is to be predicted: rows of tables as `Tasks`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import torch

from metaprior.errors import DataError, OptionError
from metaprior.notes import Note, added
from metaprior.tasks import (
    Columns,
    Missing,
    NothingLeftError,
    Possible,
    Tasks,
    arrow_of,
    as_frame,
    as_written,
    check_known,
    check_possible,
    dropped_zones,
    holds_dates,
    holds_times,
    in_numbers,
    is_table,
    offsets_of,
    task_columns,
    task_ids,
    task_owners,
    with_dates,
)

Array = np.ndarray[Any, Any]


class Asked(NamedTuple):
    """Contexts, and where to predict: the same tasks in the same order; and what was left out.

    Points stand task by task. rows: the position of each in the table whose rows are predicted; None for an array.
    index: of these rows, in the table's order, where it is a pandas table.
    """

    context: Tasks
    points: Tasks
    notes: list[Note]
    rows: Array | None = None
    index: Any = None


class NothingAskedError(DataError):
    """A table with no row to predict."""

    def __init__(self, said: str, notes: Sequence[Note] = ()) -> None:
        super().__init__(said)
        self.notes = notes


def check_at(at: Any) -> None:
    if isinstance(at, str) and at != "missing":
        raise OptionError(f"at {at!r}: give points, a table, or 'missing'.")


def asked_of(frame: nw.DataFrame[Any], columns: Columns, at: Any, missing: Missing, *, gaps: bool = False) -> Asked:
    """What is asked of a table: at a second table's rows, one array of x for all tasks, or "missing".

    gaps: rows without targets are no mistake, they name their task and nothing else.
    """
    check_at(at)
    about = tuple(one.name for one in columns.task_x)
    tables = [frame]
    if is_table(at):  # the points may say what a task is as a whole
        tables.append(with_dates(as_frame(at), columns.x))
    lacking = [name for name in about if not any(name in table.columns for table in tables)]
    check_known((*columns.task, *columns.x, *columns.y, *lacking), frame.columns, "the table has")
    curves = columns._replace(task_x=())
    if isinstance(at, str):
        context, points, notes, rows, _ = _missing(frame, curves, missing)
    else:
        known = frame.filter((~_lacking(frame, curves)).tolist()) if gaps else frame
        given, notes = _known(known, curves, missing) if len(known) else (None, [])
        if is_table(at):
            points, said, rows = points_of(tables[-1], curves, missing, "the points")
            notes += said
        else:
            points, rows = _everywhere(frame, curves, at), None
        context = _contexts(given, points)
    if about:
        points = points.with_task_x(_of_each(tables, columns, points), columns.task_x)
        context = replace(context, columns=columns, covariates=points.covariates)
    notes += added(note for table in tables for note in dropped_zones(table, columns.x))
    index = None if gaps and isinstance(at, str) else nw.maybe_get_index(tables[-1])
    return Asked(context, points, notes, rows, None if rows is None or index is None else index[np.sort(rows)])


def check_known_values(
    frame: nw.DataFrame[Any], columns: Columns, possible: Sequence[Possible], *, gaps: bool = False
) -> None:
    """Check that the known values of a table are possible. gaps: of a wide table, whose points have no rows."""
    if not possible:
        return
    arrays = [arrow_of(frame, name) for name in columns.y]
    found = [None if array is None else in_numbers(array) for array in arrays]
    values = [np.full(len(frame), np.nan) if one is None else one for one in found]  # not numbers: nothing is known
    owner, ids = task_owners(frame, columns.task)

    def where(row: int) -> str:
        place = f"{columns.x[0]} {frame[columns.x[0]][row]}" if gaps else f"row {row}"
        return f"{place} of task {ids[owner[row]]!r}"

    check_possible(columns.y, possible, torch.from_numpy(np.stack(values, 1)), where)


def _everywhere(frame: nw.DataFrame[Any], columns: Columns, at: Any) -> Tasks:
    """All tasks of a table at one array of points."""
    ids = task_ids(frame, columns.task)
    points = Tasks.empty(ids, len(columns.x), 0).at_points(np.asarray(at, dtype=float))
    dated, clocks = (tuple(name for name in columns.x if holds(frame, name)) for holds in (holds_dates, holds_times))
    return replace(points, columns=columns, dated=dated, clocks=clocks)


def _of_each(tables: Sequence[nw.DataFrame[Any]], columns: Columns, points: Tasks) -> dict[str, list[Any]]:
    """What the tables say of each task as a whole, in any of its rows; None where they say nothing."""
    found: dict[str, list[Any]] = {one.name: [None] * len(points) for one in columns.task_x}
    for table in tables:
        has = columns._replace(task_x=tuple(one for one in columns.task_x if one.name in table.columns))
        places = Places(task_ids(table, columns.task)).of(points.ids) if has.task_x else ()
        for name, values in task_columns(table, has).items() if has.task_x else ():
            for i, place in enumerate(places):
                earlier, value = found[name][i], None if place is None else values[place]
                if None not in (earlier, value) and as_written(earlier) != as_written(value):
                    raise DataError(
                        f"task {points.ids[i]!r} has {name} {earlier!r} in its known rows and {value!r} in the points."
                    )
                found[name][i] = value if earlier is None else earlier
    return found


def _known(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> tuple[Tasks | None, list[Note]]:
    """What is known of the tasks; None where that is nothing."""
    left_out = Note(0, "rows with NaN or infinity.", len(frame), before="dropped ")
    try:
        found = Tasks.from_table(frame.to_native(), **columns._asdict(), missing=missing)
    except NothingLeftError:
        said = f"dropped all {len(frame):,} rows of the table: none is complete."
        return None, [left_out._replace(number=len(frame), alone=said)]
    dropped = [note for note in found.notes if re.match(r"dropped \d", note)]
    if not dropped:
        return found, [left_out]
    notes = [left_out._replace(number=len(frame) - len(found.x), alone=dropped[0])]
    gone = len(task_ids(frame, columns.task)) - len(found)
    return found, notes + [Note(gone, "tasks with no usable row.", before="dropped ", alone=one) for one in dropped[1:]]


def _missing(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> Asked:
    empty = _lacking(frame, columns)
    if not empty.any():
        raise NothingAskedError(
            f"no row has an empty {' or '.join(map(repr, columns.y))}: there is nothing to predict."
        )
    points, notes, rows = points_of(frame, columns, missing, "the table", empty)
    if len(columns.y) > 1:
        partly = empty & ~np.logical_and.reduce([_empty(frame, name) for name in columns.y])
        notes.append(Note(int(partly.sum()), "rows have some targets but not all: those are not known rows."))
    given = None
    if not empty.all():
        given, said = _known(frame.filter((~empty).tolist()), columns, missing)
        notes += said
    return Asked(_contexts(given, points), points, notes, rows)


def _lacking(frame: nw.DataFrame[Any], columns: Columns) -> Array:
    """Which rows lack a target."""
    found: Array = np.logical_or.reduce([_empty(frame, name) for name in columns.y])
    return found


def _empty(frame: nw.DataFrame[Any], name: str) -> Array:
    """Which rows have no value in a column."""
    column = frame[name]
    nan = column.is_nan() if column.dtype.is_float() else column.is_null()
    found: Array = (column.is_null() | nan.fill_null(True)).to_numpy().astype(bool)
    return found


def points_of(
    frame: nw.DataFrame[Any], columns: Columns, missing: Missing, what: str, rows: Array | None = None
) -> tuple[Tasks, list[Note], Array]:
    """Rows to predict at, as tasks without targets, and the position of each in the table.

    Rows without an input are an error, or left out and noted.
    """
    check_known((*columns.task, *columns.x), frame.columns, f"{what} have")
    wanted = np.ones(len(frame), dtype=bool) if rows is None else rows
    lacking = wanted & np.logical_or.reduce([_empty(frame, name) for name in columns.x])
    inputs = " or no ".join(map(repr, columns.x))
    note = Note(int(lacking.sum()), f"rows to predict, which have no {inputs}.", int(wanted.sum()), before="dropped ")
    if note.number:
        first = ", ".join(str(row) for row in np.flatnonzero(lacking)[:3])
        said = f"{note.number} rows to predict have no {inputs} (row {first})"
        if missing == "error":
            raise DataError(f"{said}. Put them right, or leave those rows out with missing='drop'.")
        note, wanted = note._replace(alone=f"dropped {said}"), wanted & ~lacking
        if not wanted.any():
            raise NothingAskedError(f"{said}: nothing is left to predict at.", [note])
    some = frame.filter(wanted.tolist()).select(*columns.task, *columns.x)
    target = "y" + "_" * max(len(str(name)) for name in some.columns)  # a name that no column has
    numbered = some.with_row_index(target)  # the targets are the numbers of the rows, which tasks bring together
    found = Tasks.from_table(numbered.to_native(), task=columns.task, x=columns.x, y=target)
    places = np.flatnonzero(wanted)[found.y[:, 0].long().numpy()]
    return replace(found, y=found.y[:, :0], columns=columns, notes=()), [note], places


def _contexts(context: Tasks | None, points: Tasks) -> Tasks:
    """What is known of the tasks that are to be predicted; one without anything keeps the prior."""
    p = len(points.columns.y) if context is None else context.p
    if context is not None and context.ids == points.ids:
        return replace(context, ids=points.ids, notes=())
    at = [] if context is None else Places(context.ids).of(points.ids)
    known = [i for i in at if i is not None]
    if context is None or not known:
        return Tasks.empty(points.ids, points.d, p)
    has = torch.tensor([i is not None for i in at])
    sizes = torch.zeros(len(at), dtype=torch.int64)
    sizes[has] = context.sizes[known]
    return replace(context.select(known), offsets=offsets_of(sizes), ids=points.ids, notes=())


class Places:
    """Where tasks are among these: the very ids, else those that are written alike.

    One table may hold 2011 as a number and the other as text; where both are text, "2011" and "2011.0" are two tasks.
    """

    def __init__(self, ids: Sequence[Any]) -> None:
        self.ids, self.exact = ids, {name: i for i, name in enumerate(ids)}
        self.text = _all_text(ids)

    @cached_property
    def alike(self) -> dict[Any, int]:
        return {_written(name): i for i, name in enumerate(self.ids)}

    def of(self, wanted: Sequence[Any]) -> list[int | None]:
        """The position of each of these; None for one that is not there."""
        found = [self.exact.get(name) for name in wanted]
        if None not in found or (self.text and _all_text(wanted)):
            return found
        return [self._alike(name) if place is None else place for name, place in zip(wanted, found, strict=True)]

    def _alike(self, name: Any) -> int | None:
        return self.alike.get(name, self.alike.get(_written(name)))


def _all_text(ids: Sequence[Any]) -> bool:
    return all(isinstance(part, str) for name in ids for part in _parts(name))


def _parts(name: Any) -> Iterator[Any]:
    yield from name if isinstance(name, tuple) else (name,)


def _written(name: Any) -> Any:
    return tuple(map(as_written, name)) if isinstance(name, tuple) else as_written(name)
