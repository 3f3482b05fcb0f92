"""Predictions as tables: a long table goes in, the same kind of table comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import torch
from torch import Tensor

from metaprior.errors import DataError, NumericalError, OptionError
from metaprior.inference import Gathered, Posterior
from metaprior.tasks import (
    Columns,
    Missing,
    Tasks,
    as_written,
    check_known,
    check_targets,
    holds_dates,
    holds_times,
    task_columns,
    task_ids,
    with_dates,
)

Array = np.ndarray[Any, Any]

IMPLAUSIBLE = 0.02
"""A context that fewer than so many of the past ones were as unlikely as is not of their kind."""

MOMENTS = ("mean", "sd", "lower", "upper")
"""What every table of predictions has, in this order, after the task and input columns."""

MOST_DRAWN = 200_000_000
"""Values of all draws together: they have to fit in memory."""

MOST_COLUMNS = 100_000
"""Draws of a table, each of which is a column."""

SLICE = 100_000
"""Rows of tasks that are predicted at once, known and asked ones: what is made of them stays in memory."""

ENTRIES = 100
"""Of the covariance of known points with all: what takes as much memory as one row more."""

MOST_TOGETHER = 5_000
"""Points of one task that draws are taken at together: their covariance has the square of that."""


class Wanted(NamedTuple):
    """What a prediction's table holds beside the mean and its deviation."""

    level: float = 0.9
    latent: bool = False
    quantiles: tuple[float, ...] = ()
    samples: int = 0
    seed: int = 0
    missing: Missing = "error"  # what to do about context rows with missing values
    fallback: bool = False  # tasks unlike the past ones: from their own points alone

    def check(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"level {self.level}: give a number between 0 and 1, such as 0.9.")
        if any(not 0 < q < 1 for q in self.quantiles):
            raise OptionError(f"quantiles {self.quantiles}: give numbers between 0 and 1.")
        if len({f"{q:g}" for q in self.quantiles}) < len(self.quantiles):
            raise OptionError(f"quantiles {self.quantiles}: some are the same in their first six digits.")
        if self.samples < 0:
            raise OptionError(f"{self.samples} samples: give 0 or more.")


class Predicted(NamedTuple):
    """A table of predictions, what a reader of it should know, and the points that it is of."""

    table: Any
    notes: tuple[str, ...]
    points: Tasks


def predict_table(
    method: Any,
    columns: Columns,
    table: Any,
    at: Any,
    wanted: Wanted,
    between: Callable[[Tasks, Tasks], None] = lambda context, points: None,
) -> Predicted:
    """Condition on each task's rows of a table, and predict.

    at: a second table's rows, one array of x for all tasks, or "missing": the rows whose targets are empty. between:
    called before each slice of the work with what is known of all tasks and what is asked: what it raises ends it.
    """
    wanted.check()
    try:
        frame = with_dates(nw.from_native(table, eager_only=True), columns.x)
    except TypeError:
        raise DataError(f"a table is a pandas, polars or Arrow one, not {type(table).__name__}.") from None
    context, points, notes = _tasks(frame, columns, at, wanted.missing)
    for known in (context, points) if len(context.x) else (points,):
        method.trained_on_.check_inputs(known)
    check_targets(context)
    _check_size(points, len(columns.y), wanted.samples)
    if columns.task_x:
        notes = (*notes, *method.trained_on_.unlike(context))
    parts, strange = [], list[Any]()
    for some in _slices(context, points, whole=wanted.samples > 0):
        between(context, points)
        given, asked = (context, points) if some is None else (context.select(some), points.select(some))
        conditional = method.condition(given)
        usual = conditional.plausibility
        unlike = torch.nonzero(usual < IMPLAUSIBLE)[:, 0] if usual is not None else torch.zeros(0, dtype=torch.int64)
        strange += [asked.ids[i] for i in unlike.tolist()]
        for piece in [asked] if some is None else _pieces(asked, len(given.x)):
            between(context, points)
            part = _one_slice(method, conditional, given, piece, unlike, columns, wanted)
            parts.append(part if usual is None else part | {"plausibility": usual[piece.task_of_row].numpy()})
    if strange:
        notes = (*notes, _unlike(strange, len(points), columns, wanted.fallback))
    found = {
        named_apart(name, columns): values if len(parts) == 1 else np.concatenate([part[name] for part in parts])
        for name, values in parts[0].items()
    }
    inputs = {name: _as_given(frame, name, points.x[:, k].numpy()) for k, name in enumerate(columns.x)}
    names = _identities(points, columns.task) | inputs
    written = nw.from_dict(names | found, backend=nw.get_native_namespace(frame))
    blank = int((context.sizes == 0).sum())
    if blank:
        notes = (*notes, f"{blank:,} of {len(points):,} tasks have no known rows: they get the prior.")
    return Predicted(_as_dates(written, frame, columns.x).to_native(), notes, points)


def named_apart(name: str, columns: Columns) -> str:
    """What a column of a prediction is called: where a task or input column has that name, it is `…_predicted`."""
    while name in (*columns.task, *columns.x):
        name += "_predicted"
    return name


def header_of(columns: Columns) -> list[str]:
    """How the header of a table of predictions begins."""
    first = "" if len(columns.y) == 1 else f"{columns.y[0]}_"
    return [*columns.task, *columns.x, *(named_apart(first + name, columns) for name in MOMENTS)]


def _slices(context: Tasks, points: Tasks, *, whole: bool) -> list[Tensor | None]:
    """The tasks, some at a time: as many as fit in memory together, and one that is too large for that by itself.

    whole: all at once, as draws are taken.
    """
    all_ = context.sizes + points.sizes
    rows = all_ + context.sizes * all_ // ENTRIES
    number = (rows.cumsum(0) - 1) // SLICE
    if whole or len(rows) == 0 or int(number[-1]) == 0:
        return [None]
    begins = torch.ones(len(rows), dtype=torch.int64)
    large = rows > SLICE
    begins[1:] = (number[1:] != number[:-1]) | large[1:] | large[:-1]
    return list(torch.arange(len(rows)).tensor_split(torch.nonzero(begins)[1:, 0]))


def _pieces(points: Tasks, known: int) -> list[Tasks]:
    """The points of a task by itself, some at a time; tasks that are together are small enough as they are."""
    most = max(SLICE * ENTRIES // (ENTRIES + known), 1)
    if len(points) > 1 or len(points.x) <= most:
        return [points]
    return [
        replace(points, x=x, y=y, offsets=torch.tensor([0, len(x)]))
        for x, y in zip(points.x.split(most), points.y.split(most), strict=True)
    ]


def _one_slice(
    method: Any, conditional: Any, context: Tasks, points: Tasks, strange: Tensor, columns: Columns, wanted: Wanted
) -> dict[str, Array]:
    """What is predicted of some tasks. strange: which of them are unlike the past ones."""
    posterior = conditional.at(points)
    if len(strange) and wanted.fallback:
        alone = method.fallback_.predict(context.select(strange), points.select(strange))
        posterior = Gathered(points, [(torch.arange(len(points)), posterior), (strange, alone)])
    found = predicted_columns(posterior, columns.y, wanted)
    _check_finite(found, points)
    return found


def _unlike(strange: Sequence[Any], tasks: int, columns: Columns, fallback: bool) -> str:
    """A word on tasks that are unlike the past ones."""
    names = ", ".join(map(str, strange[:3])) + (", …" if len(strange) > 3 else "")
    said = f"{len(strange):,} of {tasks:,} tasks are unlike those the prior was learned from ({names})"
    if fallback:
        return f"{said}: they are predicted from their own points alone."
    column = named_apart("plausibility", columns)
    return f"{said}: see the column {column}, or ask for a fallback to their own points alone."


def _check_size(points: Tasks, targets: int, samples: int) -> None:
    """Draws of whole functions take a covariance of all of a task's points, and are all in memory."""
    values = max(len(points.x) * targets, 1)
    possible = min(MOST_DRAWN // values, MOST_COLUMNS)
    if samples > possible:
        raise OptionError(f"{samples:,} samples are too many for {values:,} points: give at most {possible:,}.")
    largest = int(points.sizes.max()) if len(points) else 0
    if samples and largest > MOST_TOGETHER:
        raise OptionError(
            f"samples at {largest:,} points of a task are too many to draw together: ask at {MOST_TOGETHER:,}."
        )


def _check_finite(found: dict[str, Array], points: Tasks) -> None:
    """Known values that are too far from all past ones overflow: the task is told."""
    bad = np.logical_or.reduce([~np.isfinite(values) for values in found.values()])
    if bad.any():
        task = points.ids[int(points.task_of_row[int(bad.argmax())])]
        raise NumericalError(
            f"task {task!r} cannot be predicted: its values are too large beside those that the model was trained on. "
            "Are they in the same units?"
        )


def predicted_columns(posterior: Posterior, targets: Sequence[str], wanted: Wanted) -> dict[str, Array]:
    """mean, sd, lower and upper, then quantiles and samples; with the target's name before where there are several."""
    about = posterior.function if wanted.latent else posterior
    lower, upper = about.interval(wanted.level)
    found = dict(zip(MOMENTS, (about.mean, about.sd, lower, upper), strict=True))
    if wanted.quantiles:
        values = about.quantiles(list(wanted.quantiles))
        found |= {f"q{q:g}": value for q, value in zip(wanted.quantiles, values, strict=True)}
    if wanted.samples:
        drawn = about.samples(wanted.samples, wanted.seed)
        found |= {f"sample_{k + 1}": value for k, value in enumerate(drawn)}
    if len(targets) == 1:
        return {name: value[:, 0].numpy() for name, value in found.items()}
    return {f"{y}_{name}": value[:, k].numpy() for k, y in enumerate(targets) for name, value in found.items()}


def _tasks(
    frame: nw.DataFrame[Any], columns: Columns, at: Any, missing: Missing
) -> tuple[Tasks, Tasks, tuple[str, ...]]:
    """Contexts, and where to predict: the same tasks in the same order; and what was left out."""
    about = tuple(one.name for one in columns.task_x)
    tables = [frame]
    if _is_table(at):  # the points may say what a task is as a whole
        tables.append(with_dates(nw.from_native(at, eager_only=True), columns.x))
    lacking = [name for name in about if not any(name in table.columns for table in tables)]
    check_known((*columns.task, *columns.x, *columns.y, *lacking), frame.columns, "the table has")
    curves = columns._replace(task_x=())
    if isinstance(at, str):
        if at != "missing":
            raise OptionError(f"at {at!r}: give points, a table, or 'missing'.")
        context, points, notes = _missing(frame, curves, missing)
    else:
        given, notes = _known(frame, curves, missing)
        if _is_table(at):
            points = _points(tables[-1], curves, missing, "the points")
            notes = (*notes, *points.notes)
        else:
            ids = task_ids(frame, columns.task)
            points = Tasks.empty(ids, len(columns.x), 0).at_points(np.asarray(at, dtype=float))
            dated, clocks = (
                tuple(name for name in columns.x if holds(frame, name)) for holds in (holds_dates, holds_times)
            )
            points = replace(points, columns=curves, dated=dated, clocks=clocks)
        context, points = _together(given, points)
    if about:
        points = points.with_task_x(_of_each(tables, columns, points), columns.task_x)
        context = replace(context, columns=columns, covariates=points.covariates)
    return context, points, notes


def _of_each(tables: Sequence[nw.DataFrame[Any]], columns: Columns, points: Tasks) -> dict[str, list[Any]]:
    """What the tables say of each task as a whole, in any of its rows; None where they say nothing."""
    found: dict[str, list[Any]] = {one.name: [None] * len(points) for one in columns.task_x}
    for table in tables:
        has = columns._replace(task_x=tuple(one for one in columns.task_x if one.name in table.columns))
        places = _places(task_ids(table, columns.task), points.ids) if has.task_x else ()
        for name, values in task_columns(table, has).items() if has.task_x else ():
            for i, place in enumerate(places):
                earlier, value = found[name][i], None if place is None else values[place]
                if None not in (earlier, value) and as_written(earlier) != as_written(value):
                    raise DataError(
                        f"task {points.ids[i]!r} has {name} {earlier!r} in its known rows and {value!r} in the points."
                    )
                found[name][i] = value if earlier is None else earlier
    return found


def _known(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> tuple[Tasks | None, tuple[str, ...]]:
    """What is known of the tasks; None where that is nothing."""
    rows = np.ones(len(frame), dtype=bool)
    if missing == "drop":
        for name in (*columns.x, *columns.y):
            rows &= ~_empty(frame, name)
        if not rows.any():
            return None, (f"dropped all {len(frame):,} rows of the table: none is complete.",)
    found = Tasks.from_table(frame.to_native(), **columns._asdict(), missing=missing)
    return found, tuple(note for note in found.notes if note.startswith("dropped"))


def _missing(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> tuple[Tasks, Tasks, tuple[str, ...]]:
    empty = np.zeros(len(frame), dtype=bool)
    for name in columns.y:
        empty |= _empty(frame, name)
    if not empty.any():
        raise DataError(f"no row has an empty {' or '.join(map(repr, columns.y))}: there is nothing to predict.")
    points = _points(frame, columns, missing, "the table", empty)
    notes = points.notes
    if len(columns.y) > 1:
        partly = empty & ~np.logical_and.reduce([_empty(frame, name) for name in columns.y])
        if partly.any():
            notes = (*notes, f"{int(partly.sum()):,} rows have some targets but not all: those are not known rows.")
    given = None
    if not empty.all():
        given, said = _known(frame.filter((~empty).tolist()), columns, missing)
        notes = (*notes, *said)
    return *_together(given, points), notes


def _empty(frame: nw.DataFrame[Any], name: str) -> Array:
    """Which rows have no value in a column."""
    column = frame[name]
    nan = column.is_nan() if column.dtype.is_float() else column.is_null()
    found: Array = (column.is_null() | nan.fill_null(True)).to_numpy().astype(bool)
    return found


def _points(
    frame: nw.DataFrame[Any], columns: Columns, missing: Missing, what: str, rows: Array | None = None
) -> Tasks:
    """Rows to predict at: tasks without targets. Those without an input are an error, or left out and noted."""
    check_known((*columns.task, *columns.x), frame.columns, f"{what} have")
    wanted = np.ones(len(frame), dtype=bool) if rows is None else rows
    lacking = wanted & np.logical_or.reduce([_empty(frame, name) for name in columns.x])
    notes: tuple[str, ...] = ()
    if lacking.any():
        first = ", ".join(str(row) for row in np.flatnonzero(lacking)[:3])
        said = f"{int(lacking.sum())} rows to predict have no {' or no '.join(map(repr, columns.x))} (row {first})"
        if missing == "error":
            raise DataError(f"{said}. Put them right, or leave those rows out with missing='drop'.")
        notes, wanted = (f"dropped {said}",), wanted & ~lacking
        if not wanted.any():
            raise DataError(f"{said}: nothing is left to predict at.")
    some = frame.filter(wanted.tolist()).select(*columns.task, *columns.x)
    target = "y" + "_" * max(len(str(name)) for name in some.columns)  # a name that no column has
    stand_in = some.with_columns(nw.lit(0.0).alias(target))
    found = Tasks.from_table(stand_in.to_native(), task=columns.task, x=columns.x, y=target)
    return replace(found, y=found.y[:, :0], columns=columns, notes=notes)


def _together(context: Tasks | None, points: Tasks) -> tuple[Tasks, Tasks]:
    """The tasks that are to be predicted, each with its context; one without any keeps the prior."""
    p = len(points.columns.y) if context is None else context.p
    empty = Tasks.empty(points.ids, points.d, p)
    if context is None:
        return empty, points
    at = _places(context.ids, points.ids)
    known = [i for i in at if i is not None]
    if not known:
        return empty, points
    pairs = context.select(known)
    sizes = torch.tensor([0 if i is None else int(context.sizes[i]) for i in at])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return replace(pairs, offsets=offsets, ids=points.ids, notes=()), points


def _places(ids: Sequence[Any], wanted: Sequence[Any]) -> list[int | None]:
    """Where the wanted tasks are among these: the very ids, else those that are written alike.

    One table may hold 2011 as a number and the other as text; where both are text, "2011" and "2011.0" are two tasks.
    """
    parts = (part for name in (*ids, *wanted) for part in (name if isinstance(name, tuple) else (name,)))
    alike = {} if all(isinstance(part, str) for part in parts) else {_written(name): i for i, name in enumerate(ids)}
    place = alike | {name: i for i, name in enumerate(ids)}
    return [place.get(name, alike.get(_written(name))) for name in wanted]


def _written(name: Any) -> Any:
    return tuple(map(as_written, name)) if isinstance(name, tuple) else as_written(name)


def _identities(points: Tasks, names: Sequence[str]) -> dict[str, Array]:
    """The task columns, a value for each row."""
    owner = points.task_of_row.numpy()
    if len(names) == 1:
        return {names[0]: _column(list(points.ids))[owner]}
    return {name: _column([row[k] for row in points.ids])[owner] for k, name in enumerate(names)}  # type: ignore[index]


def _as_given(frame: nw.DataFrame[Any], name: str, values: Array) -> Any:
    """Inputs as the table has them: days are moments again, and parts of a day times of day."""
    clocks = holds_times(frame, name) and bool(((values >= 0) & (values < 1)).all())
    if not (clocks or holds_dates(frame, name)):
        return values
    moments: Array = np.datetime64("1970-01-01", "us") + (values * 86_400e6).round().astype("timedelta64[us]")
    return [moment.time() for moment in moments.tolist()] if clocks else moments


def _as_dates(written: nw.DataFrame[Any], frame: nw.DataFrame[Any], names: Sequence[str]) -> nw.DataFrame[Any]:
    """Moments in the kind of column that the table has: whole days as dates, others in its time zone."""
    for name in names:
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
    return found if found.dtype.kind in "biufU" else np.asarray(values, dtype=object)


def _is_table(at: Any) -> bool:
    return hasattr(at, "columns") or hasattr(at, "column_names")
