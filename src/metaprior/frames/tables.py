"""Predictions of a table: a long table goes in, the same kind of table comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from metaprior.devices import device_of, rows_at_once
from metaprior.errors import DeviceMemoryError, NumericalError, OptionError
from metaprior.frames.asked import asked_of, check_known_values
from metaprior.frames.written import MOMENTS, as_table, identities, named_apart, with_index
from metaprior.inference import Posterior
from metaprior.notes import Note, first_names, told
from metaprior.options import check_removed
from metaprior.tasks import Columns, Missing, Tasks, TrainedOn, as_frame, check_targets, duplicate_rows, with_dates

Array = np.ndarray[Any, Any]

IMPLAUSIBLE = 0.02
"""A context that fewer than so many of the past ones were as unlikely as is not of their kind."""

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


Found = TypeVar("Found")


class Wanted(NamedTuple):
    """What a prediction's table holds beside the mean and its deviation."""

    level: float = 0.9
    latent: bool = False
    quantiles: tuple[float, ...] = ()
    samples: int = 0
    seed: int = 0
    missing: Missing = "error"  # what to do about context rows with missing values

    @staticmethod
    def of(options: Mapping[str, Any]) -> Wanted:
        """From options by name; a name that is none of them is an `OptionError`."""
        check_removed(options)
        unknown = [name for name in options if name not in Wanted._fields]
        if unknown:
            raise OptionError(f"no option {unknown[0]!r}: there are {', '.join(Wanted._fields)}.")
        return Wanted(**options)

    def check(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"level {self.level}: give a number between 0 and 1, such as 0.9.")
        if any(not 0 < q < 1 for q in self.quantiles):
            raise OptionError(f"quantiles {self.quantiles}: give numbers between 0 and 1.")
        if len({f"{q:g}" for q in self.quantiles}) < len(self.quantiles):
            raise OptionError(f"quantiles {self.quantiles}: some are the same in their first six digits.")
        if self.samples < 0:
            raise OptionError(f"{self.samples} samples: give 0 or more.")
        if self.samples > MOST_COLUMNS:
            raise OptionError(
                f"{self.samples:,} samples are too many: each is a column. Give at most {MOST_COLUMNS:,}."
            )


class Predicted(NamedTuple):
    """A table of predictions, what a reader of it should know, and the points that it is of."""

    table: Any
    notes: tuple[str, ...]
    points: Tasks


class Counted(NamedTuple):
    """The same with notes that can be added to others."""

    table: Any
    notes: list[Note]
    points: Tasks


def predict_table(
    method: Any,
    columns: Columns,
    table: Any,
    at: Any,
    wanted: Wanted,
    between: Callable[[Tasks, Tasks], None] = lambda context, points: None,
    *,
    gaps: bool = False,
) -> Predicted:
    """Condition on each task's rows of a table, and predict.

    at: a second table's rows, one array of x for all tasks, or "missing": the rows whose targets are empty. Rows of a
    table come back in its order and with its index; of an array, task by task. between: called before each slice of the
    work with what is known of all tasks and what is asked: what it raises ends it. gaps: rows without targets are no
    mistake, as in a wide table, whose cells have no index.
    """
    found = predict_counted(method, columns, table, at, wanted, between, gaps=gaps)
    return Predicted(found.table, tuple(told(found.notes)), found.points)


def predict_counted(
    method: Any,
    columns: Columns,
    table: Any,
    at: Any,
    wanted: Wanted,
    between: Callable[[Tasks, Tasks], None] = lambda context, points: None,
    *,
    gaps: bool = False,
) -> Counted:
    """The same, with notes that can be added to those of other tables."""
    wanted.check()
    frame = with_dates(as_frame(table), columns.x)
    trained_on = method.trained_on_
    context, points, notes, rows, index = asked_of(frame, columns, at, wanted.missing, gaps=gaps)
    check_known_values(frame, columns, trained_on.possible, gaps=gaps)
    for known in (context, points) if len(context.x) else (points,):
        trained_on.check_inputs(known)
    check_targets(context)
    _check_size(points, len(columns.y), wanted.samples)
    given, halved = in_slices(
        method,
        context,
        points,
        lambda conditional, piece: (one_slice(conditional, piece, columns, wanted), strange_of(conditional, piece)),
        whole=wanted.samples > 0,
        between=partial(between, context, points),
    )
    parts = [part for part, _ in given]
    strange = list(dict.fromkeys(name for _, some in given for name in some))  # a task may be in several pieces
    notes += notes_on(trained_on, context, points, strange, f": see the column {named_apart('plausibility', columns)}.")
    notes.append(Note(halved, "times the memory was too small: fewer tasks were predicted at once."))
    values_of = {
        name: values if len(parts) == 1 else np.concatenate([part[name] for part in parts])
        for name, values in parts[0].items()
    }
    x, before = points.x, identities(points, columns.task)
    if rows is not None:
        order = np.argsort(rows)
        x = x[torch.from_numpy(order)]
        before, values_of = ({name: one[order] for name, one in part.items()} for part in (before, values_of))
    written = with_index(as_table(frame, columns.x, x, before, values_of), index)
    return Counted(written.to_native(), notes, points)


def in_slices(
    method: Any,
    context: Tasks,
    points: Tasks,
    ask: Callable[[Any, Tasks], Found],
    *,
    whole: bool = False,
    between: Callable[[], None] = lambda: None,
) -> tuple[list[Found], int]:
    """What the method, conditioned on as many tasks at a time as fit in memory, is asked about their points, in order.

    And how many times the memory of a GPU was too small, so that fewer were taken. whole: all at once, as draws are
    taken. between: called before each part of the work.
    """
    at_once = rows_at_once(SLICE, device_of(getattr(method, "device", "cpu")))
    slices, found, halved = _slices(context, points, at_once, whole=whole), list[Found](), 0
    while slices:
        between()
        some = slices.pop(0)
        given, asked = (context, points) if some is None else (context.select(some), points.select(some))
        try:
            conditional, own = method.condition(given), list[Found]()
            for piece in [asked] if whole else _pieces(asked, len(given.x)):
                between()
                own.append(ask(conditional, piece))
        except DeviceMemoryError:
            if len(asked) < 2 or whole:
                raise
            slices[:0] = (torch.arange(len(asked)) if some is None else some).tensor_split(2)
            halved += 1
        else:
            found += own
    return found, halved


def _slices(context: Tasks, points: Tasks, at_once: int, *, whole: bool) -> list[Tensor | None]:
    """The tasks, some at a time: as many as fit in memory together, and one that is too large for that by itself.

    whole: all at once, as draws are taken.
    """
    both = context.sizes + points.sizes
    rows = both + context.sizes * both // ENTRIES
    number = (rows.cumsum(0) - 1) // at_once
    if whole or len(rows) == 0 or int(number[-1]) == 0:
        return [None]
    begins = torch.ones(len(rows), dtype=torch.int64)
    large = rows > at_once
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


def strange_of(conditional: Any, points: Tasks) -> list[Any]:
    """Those of some tasks that are unlike the past ones, where the method can tell."""
    usual = conditional.plausibility
    return [] if usual is None else [points.ids[i] for i in torch.nonzero(usual < IMPLAUSIBLE)[:, 0].tolist()]


def one_slice(conditional: Any, points: Tasks, columns: Columns, wanted: Wanted) -> dict[str, Array]:
    """The columns that are predicted of some tasks.

    conditional: the method with what is known of them.
    """
    posterior, usual = conditional.at(points), conditional.plausibility
    found = predicted_columns(posterior, columns.y, wanted)
    _check_finite(found, points)
    if usual is not None:
        found["plausibility"] = usual[points.task_of_row].numpy()
    return {named_apart(name, columns): values for name, values in found.items()}


def notes_on(trained_on: TrainedOn, context: Tasks, points: Tasks, strange: Sequence[Any], then: str) -> list[Note]:
    """What a reader of predictions should know, whoever asks.

    Args:
        trained_on: what the model was trained on.
        context: what is known of each task.
        points: where the tasks are predicted.
        strange: the tasks that are unlike the past ones.
        then: the end of the note on these.
    """
    tasks = len(points)
    return [
        duplicate_rows(context),
        *trained_on.outside(points, context),
        Note(len(strange), "tasks are unlike those the prior was learned from", tasks, first_names(strange), then),
        Note(int((context.sizes == 0).sum()), "tasks have no known rows: they get the prior.", tasks),
    ]


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
    found = {name: value + 0.0 for name, value in found.items()}  # there is one zero
    if len(targets) == 1:
        return {name: value[:, 0].numpy() for name, value in found.items()}
    return {f"{y}_{name}": value[:, k].numpy() for k, y in enumerate(targets) for name, value in found.items()}
