"""`metaprior predict`: a model and a table to a table of predictions, and pictures of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metaprior.cli.common import Screen, number_or_date, warn_range
from metaprior.data import check_output, read_table, write_table
from metaprior.errors import OptionError
from metaprior.frames import Wanted, predict_table
from metaprior.model import load
from metaprior.output import prepare_folder, write_whole
from metaprior.report import task_figure
from metaprior.tasks import Columns, Tasks

LONGEST = 60
"""Letters of a task's name in the name of its picture."""


def predict_model(
    model: str,
    table: str,
    at: str,
    out: str,
    wanted: Wanted,
    *,
    delimiter: str | None,
    plot: Path | None,
    screen: Screen,
) -> None:
    """Predictions of every task of a table, as a table."""
    wanted.check()
    check_output(out)
    method = load(model)
    columns = method.trained_on_.columns
    if plot is not None:
        if len(columns.x) != 1 or len(columns.y) != 1:
            raise OptionError("--plot draws one target over one input column.")
        prepare_folder(plot, "--plot")
    given = read_table(table, columns, delimiter)
    where = _where(at, columns, delimiter)
    found, notes = predict_table(method, columns, given, where, wanted)
    for note in notes:
        screen.say(f"note: {note}")
    warn_range(method.trained_on_, _inputs(found, columns), screen)
    write_table(found, out)
    if out != "-":
        tasks = len(_positions(found, columns.task))
        screen.say(f"{found.num_rows:,} predictions for {tasks:,} tasks written to {out}")
    if plot is not None:
        _plot_tasks(found, given, columns, wanted.level, plot, screen)


def _where(at: str, columns: Columns, delimiter: str | None) -> Any:
    """Where to predict: `start:stop:step` with its end, a second table, or `missing`."""
    if at == "missing":
        return at
    if ":" not in at or Path(at).exists():
        return read_table(at, columns, delimiter, points=True)
    parts = at.split(":")
    if len(parts) != 3:
        raise OptionError(f"--at {at}: give START:STOP:STEP in numbers or dates, a table, or 'missing'.")
    start, stop, step = (number_or_date(part, f"--at {at}", "START:STOP:STEP") for part in parts)
    if len(columns.x) != 1:
        raise OptionError(f"--at {at}: a range is of one input column; the model has {len(columns.x)}. Give a table.")
    if not (0 < step < math.inf and start <= stop and math.isfinite(stop - start)):
        raise OptionError(f"--at {at}: give a step above 0 and a stop that is not before the start.")
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > 1_000_000:
        raise OptionError(f"--at {at}: {count:,} points for each task are too many; give a larger step.")
    return start + step * np.arange(count)


def _inputs(found: pa.Table, columns: Columns) -> Tasks:
    """The points of a table of predictions."""
    names = {"task": columns.task, "x": columns.x, "y": found.column_names[len(columns.task) + len(columns.x)]}
    return Tasks.from_table(found, **names)


def _plot_tasks(found: pa.Table, given: pa.Table, columns: Columns, level: float, folder: Path, screen: Screen) -> None:
    (x,), (y,) = columns.x, columns.y
    arrays = {name: _drawn(found[name]) for name in (x, "mean", "lower", "upper")}
    known = {name: _drawn(given[name]) for name in (x, y)}
    rows_of, known_of = _positions(found, columns.task), _positions(given, columns.task)
    pictures: set[str] = set()
    for task, rows in rows_of.items():
        order = rows[np.argsort(arrays[x][rows])]
        seen = known_of.get(task, np.zeros(0, dtype=int))
        curves = {"x": arrays[x][order], "context x": known[x][seen], "context y": known[y][seen]}
        curves |= {name: arrays[name][order] for name in ("mean", "lower", "upper")}
        label = " ".join(map(str, task))
        figure = task_figure(curves, label, (x, y), level)
        safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in label)[:LONGEST]
        while safe.lower() in pictures:  # "a/b" and "a b" are two tasks
            safe += "_"
        pictures.add(safe.lower())
        write_whole(folder / f"{safe}.png", partial(figure.savefig, format="png", dpi=110))
    screen.say(f"pictures of {len(rows_of)} tasks are in {folder}")


def _drawn(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """A column as numbers or moments; a time of day is one of the day from which days are counted."""
    if pa.types.is_time(column.type):
        column = column.cast(pa.time64("us")).cast(pa.int64()).cast(pa.timestamp("us"))
    found: np.ndarray[Any, Any] = column.to_numpy()
    return found


def _positions(table: pa.Table, names: Sequence[str]) -> dict[tuple[Any, ...], np.ndarray[Any, Any]]:
    """The rows of each task."""
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, task in enumerate(zip(*(table[name].to_pylist() for name in names), strict=True)):
        rows.setdefault(task, []).append(row)
    return {task: np.array(found) for task, found in rows.items()}
