"""Predictions as tables: a long table goes in, the same kind of table comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import torch
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.inference import Method
from metaprior.tasks import Columns, Missing, Tasks
from metaprior.tasks.tables import holds_dates

Array = np.ndarray[Any, Any]


class Wanted(NamedTuple):
    """What a prediction's table holds beside the mean and its deviation."""

    level: float = 0.9
    latent: bool = False
    quantiles: tuple[float, ...] = ()
    samples: int = 0
    seed: int = 0
    missing: Missing = "error"  # what to do about context rows with missing values

    def check(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"level {self.level}: give a number between 0 and 1, such as 0.9.")
        if any(not 0 < q < 1 for q in self.quantiles):
            raise OptionError(f"quantiles {self.quantiles}: give numbers between 0 and 1.")
        if self.samples < 0:
            raise OptionError(f"{self.samples} samples: give 0 or more.")


def predict_table(method: Method, columns: Columns, table: Any, at: Any, wanted: Wanted) -> Any:
    """Condition on each task's rows of a table, and predict.

    at: a second table's rows, one array of x for all tasks, or "missing": the rows whose targets are empty.
    """
    wanted.check()
    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError:
        raise DataError(f"a table is a pandas, polars or Arrow one, not {type(table).__name__}.") from None
    taken = [name for name in (*columns.task, *columns.x) if name in ("mean", "sd", "lower", "upper")]
    if taken and len(columns.y) == 1:
        raise DataError(f"the column {taken[0]!r} would be overwritten by the prediction's: rename it.")
    context, points = _tasks(frame, columns, at, wanted.missing)
    posterior = method.predict(context, points)
    found = predicted_columns(posterior, columns.y, wanted)
    inputs = {name: _as_given(frame, name, points.x[:, k].numpy()) for k, name in enumerate(columns.x)}
    names = _identities(points, columns.task) | inputs
    return nw.from_dict(names | found, backend=nw.get_native_namespace(frame)).to_native()


def predicted_columns(posterior: Any, targets: Sequence[str], wanted: Wanted) -> dict[str, Array]:
    """mean, sd, lower and upper, then quantiles and samples; with the target's name before where there are several."""
    about = posterior.function if wanted.latent else posterior
    lower, upper = about.interval(wanted.level)
    found: dict[str, Tensor] = {"mean": about.mean, "sd": about.sd, "lower": lower, "upper": upper}
    if wanted.quantiles:
        values = about.quantiles(list(wanted.quantiles))
        found |= {f"q{q:g}": value for q, value in zip(wanted.quantiles, values, strict=True)}
    if wanted.samples:
        drawn = about.samples(wanted.samples, wanted.seed)
        found |= {f"sample_{k + 1}": value for k, value in enumerate(drawn)}
    if len(targets) == 1:
        return {name: value[:, 0].numpy() for name, value in found.items()}
    return {f"{y}_{name}": value[:, k].numpy() for k, y in enumerate(targets) for name, value in found.items()}


def _tasks(frame: nw.DataFrame[Any], columns: Columns, at: Any, missing: Missing) -> tuple[Tasks, Tasks]:
    """Contexts, and where to predict: the same tasks in the same order."""
    if isinstance(at, str):
        if at != "missing":
            raise OptionError(f"at {at!r}: give points, a table, or 'missing'.")
        return _missing(frame, columns, missing)
    if _is_table(at):
        given = _known(frame, columns, missing)
        ahead = _points(nw.from_native(at, eager_only=True), columns)
        return _together(given, ahead)
    given = _known(frame, columns, missing)
    return given, Tasks.from_inputs([torch.as_tensor(np.asarray(at, dtype=float))] * len(given), given.ids)


def _known(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> Tasks:
    return Tasks.from_table(frame.to_native(), task=columns.task, x=columns.x, y=columns.y, missing=missing)


def _missing(frame: nw.DataFrame[Any], columns: Columns, missing: Missing) -> tuple[Tasks, Tasks]:
    absent = [name for name in (*columns.task, *columns.x, *columns.y) if name not in frame.columns]
    if absent:
        raise DataError(f"the table has no column {absent[0]!r}. Its columns: {', '.join(frame.columns)}.")
    empty = np.zeros(len(frame), dtype=bool)
    for name in columns.y:
        column = frame[name]
        nan = column.is_nan() if column.dtype.is_float() else column.is_null()
        empty |= (column.is_null() | nan.fill_null(True)).to_numpy().astype(bool)
    if not empty.any():
        raise DataError(f"no row has an empty {' or '.join(map(repr, columns.y))}: there is nothing to predict.")
    points = _points(frame.filter(empty.tolist()), columns)
    if empty.all():
        return Tasks.empty(points.ids, len(columns.x), len(columns.y)), points
    known = _known(frame.filter((~empty).tolist()), columns, missing)
    return _together(known, points)


def _points(frame: nw.DataFrame[Any], columns: Columns) -> Tasks:
    """Rows to predict at: tasks without targets."""
    absent = [name for name in (*columns.task, *columns.x) if name not in frame.columns]
    if absent:
        raise DataError(
            f"the points have no column {absent[0]!r}. Their columns: {', '.join(map(str, frame.columns))}."
        )
    stand_in = frame.select(*columns.task, *columns.x).with_columns(nw.lit(0.0).alias("__y"))
    found = Tasks.from_table(stand_in.to_native(), task=columns.task, x=columns.x, y="__y")
    return Tasks(found.x, found.y[:, :0], found.offsets, found.ids, columns, found.notes)


def _together(context: Tasks, points: Tasks) -> tuple[Tasks, Tasks]:
    """The tasks that are to be predicted, each with its context; one without any keeps the prior."""
    place = {name: i for i, name in enumerate(context.ids)}
    known = [name for name in points.ids if name in place]
    pairs = context.select([place[name] for name in known]) if known else None
    if pairs is not None and len(known) == len(points):
        return pairs, points
    empty = Tasks.empty(points.ids, context.d, context.p)
    if pairs is None:
        return empty, points
    have = set(known)
    sizes = torch.tensor([int(context.sizes[place[name]]) if name in have else 0 for name in points.ids])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return Tasks(pairs.x, pairs.y, offsets, points.ids, context.columns), points


def _identities(points: Tasks, names: Sequence[str]) -> dict[str, Array]:
    """The task columns, a value for each row."""
    owner = points.task_of_row.numpy()
    if len(names) == 1:
        return {names[0]: _column(list(points.ids))[owner]}
    return {name: _column([row[k] for row in points.ids])[owner] for k, name in enumerate(names)}  # type: ignore[index]


def _as_given(frame: nw.DataFrame[Any], name: str, values: Array) -> Array:
    """Inputs as the table has them: days are dates again."""
    if not holds_dates(frame, name):
        return values
    moments: Array = np.datetime64("1970-01-01", "us") + (values * 86_400e6).round().astype("timedelta64[us]")
    return moments


def _column(values: list[Any]) -> Array:
    found = np.asarray(values)
    return found if found.dtype.kind in "biufU" else np.asarray(values, dtype=object)


def _is_table(at: Any) -> bool:
    return hasattr(at, "columns") or hasattr(at, "column_names")
