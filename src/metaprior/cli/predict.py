"""`metaprior predict`: a model and a table to a table of predictions, and pictures of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metaprior.bulk import where_of
from metaprior.cli.common import Screen, picture_names
from metaprior.cli.given import Given, files_read
from metaprior.data import check_output, column_names, write_table
from metaprior.errors import MetapriorError, OptionError
from metaprior.frames import Wanted, header_of, predict_table
from metaprior.model import load
from metaprior.output import check_file, check_folder, prepare_folder
from metaprior.report import drawn_before, task_figure, write_figure
from metaprior.tasks import Columns

OURS = re.compile(r"(.+_)?(mean|sd|lower|upper|q[\d.e-]+|sample_\d+|plausibility)(_predicted)*")
"""What the further columns of predictions are called."""


def predict_model(
    model: str,
    given: Given,
    at: str,
    out: str,
    wanted: Wanted,
    *,
    delimiter: str | None,
    plot: Path | None,
    overwrite: bool,
    screen: Screen,
    device: str = "cpu",
) -> None:
    """Predictions of every task of a table, as a table."""
    wanted.check()
    check_output(out)
    method = load(model, device)
    columns = method.trained_on_.columns
    reads = [*files_read(model, at), *given.files]
    if out != "-":
        check_file(Path(out), reads, ours=partial(_is_prediction, columns=columns), overwrite=overwrite)
    if plot is not None:
        if len(columns.x) != 1 or len(columns.y) != 1:
            raise OptionError("--plot draws one target over one input column.")
        prepare_folder(plot, "--plot")
    optional = [one.name for one in columns.task_x]  # the points may have them
    known = given.as_long(given.read(columns, delimiter, optional, quiet=screen.quiet), columns)
    where = where_of(at, method.trained_on_, delimiter)
    found, notes, _ = predict_table(method, columns, known, where, wanted, gaps=given.wide is not None)
    screen.note(*notes)
    write_table(found, out)
    if out != "-":
        tasks = len(_positions(found, columns.task))
        screen.say(f"{found.num_rows:,} predictions for {tasks:,} tasks written to {out}")
    if plot is not None:
        count = _plot_tasks(found, known, columns, wanted.level, plot, reads, overwrite)
        screen.say(f"pictures of {count} tasks are in {plot}")


def _is_prediction(path: Path, columns: Columns) -> bool:
    """Whether a file is a table of predictions by a model of these columns, and nothing beside."""
    header = header_of(columns)
    try:
        found = column_names(path)
    except MetapriorError:
        return False
    return found[: len(header)] == header and all(OURS.fullmatch(name) for name in found[len(header) :])


def _plot_tasks(
    found: pa.Table, given: pa.Table, columns: Columns, level: float, folder: Path, reads: list[str], overwrite: bool
) -> int:
    """A picture of each task; how many there are."""
    (x,), (y,) = columns.x, columns.y
    mean, _, lower, upper = header_of(columns)[-4:]
    drawn = {"x": x, "mean": mean, "lower": lower, "upper": upper}
    arrays = {name: _drawn(found[column]) for name, column in drawn.items()}
    known = {name: _drawn(given[name]) for name in (x, y)}
    rows_of, known_of = _positions(found, columns.task), _positions(given, columns.task)
    pictures = picture_names(rows_of)
    check_folder(folder, pictures.values(), reads, ours=drawn_before, overwrite=overwrite, option="--plot")
    for task, rows in rows_of.items():
        order = rows[np.argsort(arrays["x"][rows])]
        seen = known_of.get(task, np.zeros(0, dtype=int))
        curves = {name: values[order] for name, values in arrays.items()}
        curves |= {"context x": known[x][seen], "context y": known[y][seen]}
        figure = task_figure(curves, " ".join(map(str, task)), (x, y), level)
        write_figure(figure, folder / pictures[task], 110)
    return len(rows_of)


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
