"""`metaprior suggest`: where to measure each task of a table next, as a table, and pictures of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metaprior.bulk import where_of
from metaprior.cli.common import Screen, picture_names
from metaprior.cli.given import files_read, split_names
from metaprior.data import check_output, column_names, read_table, write_table
from metaprior.errors import MetapriorError, OptionError
from metaprior.frames import Measuring, Suggested, new_task, suggest_table, suggested_header
from metaprior.inference import Suggestion
from metaprior.model import MetaGP, load
from metaprior.output import check_file, check_folder, prepare_folder
from metaprior.points import points_at
from metaprior.report import drawn_before, suggestion_figure, write_figure
from metaprior.tasks import Columns, Task, TrainedOn

SAID = 5
"""Tasks of which a sentence is said each; of more, one of all."""


def suggest_points(
    model: str,
    table: str | None,
    at: str,
    about: str | None,
    given: str | None,
    out: str,
    asked: Measuring,
    *,
    level: float,
    delimiter: str | None,
    plot: Path | None,
    overwrite: bool,
    screen: Screen,
) -> None:
    """Where to measure the tasks of a table next, or a new one of which nothing is known."""
    _check_asked(asked.points, level)
    check_output(out)
    method = load(model)
    columns, reads = method.trained_on_.columns, files_read(model, at, *([] if table is None else [table]))
    if out != "-":
        check_file(Path(out), reads, ours=lambda path: _is_suggestion(path, columns), overwrite=overwrite)
    if plot is not None:
        if len(columns.x) != 1 or len(columns.y) != 1:
            raise OptionError("--plot draws one target over one input column.")
        prepare_folder(plot, "--plot")
    if about is not None:
        asked = asked._replace(about=_asked_about(about, method.trained_on_))
    known, where = _read(method, table, at, given, delimiter)
    found = suggest_table(method, columns, known, where, asked, progress=not screen.quiet)
    screen.note(*found.notes)
    write_table(found.table, out)
    _say(found, columns, about, out, screen)
    if plot is not None:
        _plot(found, method.trained_on_, level, plot, reads, overwrite)
        screen.say(f"pictures of {len(found.suggestions)} tasks are in {plot}")


def _check_asked(points: int, level: float) -> None:
    if points < 1:
        raise OptionError(f"--points {points}: give 1 or more.")
    if not 0 < level < 1:
        raise OptionError(f"--level {level}: give a number between 0 and 1, such as 0.9.")


def _asked_about(about: str, trained_on: TrainedOn) -> Any:
    try:
        return points_at(about, trained_on.columns.x, trained_on.dated)
    except OptionError as error:
        raise OptionError(str(error).replace("--at", "--about", 1)) from None


def _read(method: MetaGP, table: str | None, at: str, given: str | None, delimiter: str | None) -> tuple[Any, Any]:
    """What is known of the tasks, and where they may be measured."""
    trained_on = method.trained_on_
    columns, about = trained_on.columns, [one.name for one in trained_on.columns.task_x]
    if table is not None:
        if given is not None:
            raise OptionError("--given says what is known of a new task as a whole: a table has columns for that.")
        return read_table(table, columns, delimiter, optional=about), where_of(at, trained_on, delimiter)
    if at == "missing":
        raise OptionError("--at missing: rows without targets are those of a table. Give it, or points.")
    where = where_of(at, trained_on, delimiter)
    if isinstance(where, pa.Table):
        if given is not None:
            raise OptionError("--given says what is known of a new task as a whole: the points have columns for that.")
        for name in columns.y:
            where = where.append_column(name, pa.nulls(where.num_rows, pa.float64()))
        return where, "missing"
    return new_task(trained_on, where, _given(given, columns)), "missing"


def _given(text: str | None, columns: Columns) -> dict[str, Any]:
    """`diet=rich,age=61`: what is known of a task as a whole, text or a number as past tasks had it."""
    found: dict[str, Any] = {}
    kinds = {one.name: one for one in columns.task_x}
    for part in split_names(text) if text is not None else ():
        name, named, value = (word.strip() for word in part.partition("="))
        if not named or name not in kinds:
            known = f"of {', '.join(kinds)}" if kinds else "and the model has no task columns"
            raise OptionError(f"--given {text}: give NAME=VALUE, {known}.")
        try:
            found[name] = value if kinds[name].levels else float(value)
        except ValueError:
            raise OptionError(f"--given {text}: {name} is a number.") from None
    lacking = [name for name in kinds if name not in found]
    if lacking:
        raise OptionError(
            f"the model was learned with the task columns {', '.join(kinds)}: say what a new task has with "
            f"--given {','.join(f'{name}=…' for name in kinds)} ({', '.join(lacking)} is lacking)."
        )
    return found


def _is_suggestion(path: Path, columns: Columns) -> bool:
    """Whether a file is a table of suggestions by a model of these columns, and nothing beside."""
    try:
        return column_names(path) == suggested_header(columns)
    except MetapriorError:
        return False


def _say(found: Suggested, columns: Columns, about: str | None, out: str, screen: Screen) -> None:
    """What was found, in words."""
    what = f"at {about}" if about is not None else "over these places"
    if len(found.suggestions) <= SAID:
        places = iter(zip(*(found.table[name].to_pylist() for name in columns.x), strict=True))
        for task, one in zip(found.points.ids, found.suggestions, strict=True):
            where = [" ".join(map(_written, next(places))) for _ in one.x]
            screen.say(f"{_name(task)}: measure at {', '.join(where)}: {_bought(one, columns.y)} {what}")
    else:
        left = [1 - float((1 - one.gain).prod()) for one in found.suggestions]
        screen.say(f"the curves' deviation {what} is expected to fall by {np.mean(left):.0%} on average")
    if out != "-":
        screen.say(f"{found.table.num_rows:,} points for {len(found.suggestions):,} tasks written to {out}")


def _bought(one: Suggestion, targets: Sequence[str]) -> str:
    """What all points together are expected to buy."""
    parts = []
    for name, before, after in zip(targets, one.sd[0].tolist(), one.sd[-1].tolist(), strict=True):
        less = f" ({1 - after / before:.0%} less)" if before > 0 else ""
        parts.append(f"the deviation of {name} is expected to be {after:.3g}, not {before:.3g}{less},")
    return " ".join(parts)


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _name(task: Any) -> str:
    return " ".join(map(str, task)) if isinstance(task, tuple) else str(task)


def _plot(
    found: Suggested, trained_on: TrainedOn, level: float, folder: Path, reads: list[str], overwrite: bool
) -> None:
    (x,), (y,) = trained_on.columns.x, trained_on.columns.y
    moments = x in (*trained_on.dated, *trained_on.clocks)
    tasks = [task if isinstance(task, tuple) else (task,) for task in found.points.ids]
    pictures = picture_names(tasks)
    check_folder(folder, pictures.values(), reads, ours=drawn_before, overwrite=overwrite, option="--plot")
    for task, one, known in zip(tasks, found.suggestions, found.context, strict=True):
        figure = suggestion_figure(_curves(one, known, level, moments), _name(task), (x, y), level)
        write_figure(figure, folder / pictures[task], 110)


def _curves(one: Suggestion, known: Task, level: float, moments: bool) -> dict[str, np.ndarray[Any, Any]]:
    """What a picture is drawn of. The band then has the form of the band now, as narrow as is expected."""
    order = one.curve.points.x[:, 0].argsort()
    x, mean, left = one.curve.points.x[order, 0], one.curve.mean[order, 0], one.left[order, 0]
    lower, upper = (bound[order, 0] for bound in one.curve.interval(level))
    then = {"lower then": mean - left * (mean - lower), "upper then": mean + left * (upper - mean)}
    places = {"x": x, "chosen x": one.x[:, 0], "context x": known.x[:, 0]}
    heights = {"mean": mean, "lower": lower, "upper": upper, **then, "context y": known.y[:, 0]}
    drawn = {name: values.numpy() for name, values in (heights | places).items()}
    drawn["chosen y"] = drawn["mean"][np.searchsorted(drawn["x"], drawn["chosen x"])]
    if moments:
        day = np.datetime64("1970-01-01", "us")
        drawn |= {name: day + (drawn[name] * 86_400e6).round().astype("timedelta64[us]") for name in places}
    return drawn
