"""Where to measure next, as a table: a long table goes in, the same kind of table comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import torch

from metaprior.frames.asked import asked_of, check_known_values
from metaprior.frames.tables import notes_on, strange_of
from metaprior.frames.written import as_table, identities, named_apart
from metaprior.inference import Suggestion
from metaprior.learning import threads_for
from metaprior.notes import told
from metaprior.progress import progress_bar
from metaprior.tasks import Columns, Missing, Tasks, TrainedOn, as_frame, check_targets, with_dates

BOUGHT = ("sd_before", "sd_after")
"""Of each target, before and after a measurement."""

NEW = "new task"
"""What a task is called of which nothing is known, not even its name."""


class Measuring(NamedTuple):
    """What is asked: how many points of each task, about which (None: all where it may be measured)."""

    points: int = 1
    about: Any = None
    seed: int = 0  # of draws, where a posterior has no closed covariance
    missing: Missing = "error"  # what to do about context rows with missing values


class Suggested(NamedTuple):
    """A table of suggestions, what a reader of it should know, and what it was made of, task by task."""

    table: Any
    notes: tuple[str, ...]
    context: Tasks
    points: Tasks
    suggestions: list[Suggestion]


def suggest_table(
    method: Any, columns: Columns, table: Any, at: Any, asked: Measuring, *, progress: bool = False
) -> Suggested:
    """Condition on each task's rows of a table, and say where to measure it next.

    at: where it may be measured: a second table's rows, one array of x for all tasks, or "missing": the rows whose
    targets are empty.
    """
    frame = with_dates(as_frame(table), columns.x)
    trained_on = method.trained_on_
    context, points, notes, *_ = asked_of(frame, columns, at, asked.missing)
    check_known_values(frame, columns, trained_on.possible)
    for known in (context, points) if len(context.x) else (points,):
        trained_on.check_inputs(known)
    check_targets(context)
    found, strange = suggest_tasks(method, context, points, asked, progress=progress)
    chosen = Tasks.from_inputs([one.x for one in found], points.ids)
    order = np.concatenate([np.arange(1, len(one.x) + 1) for one in found])
    before = identities(chosen, columns.task) | {named_apart("order", columns): order}
    after = {named_apart(name, columns): values for name, values in _bought(found, columns.y).items()}
    written = as_table(frame, columns.x, chosen.x, before, after)
    notes += notes_on(trained_on, context, points, strange, ": so may be what is suggested for them.")
    return Suggested(written.to_native(), tuple(told(notes)), context, points, found)


def suggest_tasks(
    method: Any, context: Tasks, points: Tasks, asked: Measuring, *, progress: bool = False
) -> tuple[list[Suggestion], list[Any]]:
    """Where to measure each of some tasks next, and which of them are unlike the past ones.

    One after another: what is suggested for a task does not depend on the others, nor on their order.
    """
    found, strange = [], []
    with progress_bar("choosing points", len(points), show=progress) as advance:
        for i in range(len(points)):
            where = points[i].x
            with threads_for(len(where) ** 2):
                conditional = method.condition(context.select([i]))
                found.append(conditional.suggest(where, asked.points, about=asked.about, seed=asked.seed))
                strange += strange_of(conditional, points.select([i]))
            advance()
    return found, strange


def new_task(trained_on: TrainedOn, at: Any, given: Mapping[str, Any]) -> pa.Table:
    """A task of which nothing is known but `given`, its covariates, as a table to ask at "missing": no target is there.

    at: where it may be measured, `[n, d]`.
    """
    columns, x = trained_on.columns, torch.as_tensor(np.asarray(at, dtype=float))
    kinds = dict.fromkeys(trained_on.dated, pa.timestamp("us")) | dict.fromkeys(trained_on.clocks, pa.time64("us"))
    inputs = pa.schema([(name, kinds.get(name, pa.float64())) for name in columns.x]).empty_table()
    names = {name: [NEW] * len(x) for name in columns.task}
    about = {name: [value] * len(x) for name, value in given.items()}
    nothing = {name: np.full(len(x), np.nan) for name in columns.y}
    return as_table(nw.from_native(inputs, eager_only=True), columns.x, x, names, about | nothing).to_native()


def suggested_header(columns: Columns) -> list[str]:
    """The header of a table of suggestions."""
    names = (*([""] if len(columns.y) == 1 else [f"{y}_" for y in columns.y]),)
    bought = [*(first + name for first in names for name in BOUGHT), "gain"]
    order, *rest = (named_apart(name, columns) for name in ("order", *bought))
    return [*columns.task, order, *columns.x, *rest]


def _bought(found: Sequence[Suggestion], targets: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """What each point is expected to buy: of each target the deviation before and after it, and the share taken."""
    columns = {}
    for k, y in enumerate(targets):
        first = "" if len(targets) == 1 else f"{y}_"
        for name, part in zip(BOUGHT, (slice(None, -1), slice(1, None)), strict=True):
            columns[first + name] = torch.cat([one.sd[part, k] for one in found]).numpy()
    columns["gain"] = torch.cat([one.gain for one in found]).numpy()
    return {name: values + 0.0 for name, values in columns.items()}  # there is one zero
