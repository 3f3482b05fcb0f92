"""What a user would want to know of tasks before they are learned from or conditioned on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metaprior.notes import Note, first_names, told
from metaprior.tasks.possible import Possible, suggested_values
from metaprior.tasks.tasks import Tasks


def duplicate_rows(tasks: Tasks) -> Note:
    """A note on rows with the inputs and targets of an earlier row of their task."""
    owner = tasks.task_of_row.numpy()
    columns = [owner, *tasks.x.numpy().T, *tasks.y.numpy().T]
    keys = np.zeros(len(owner), dtype=np.uint64)
    for column in columns:
        bits = (column + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        keys = (keys ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    order = np.argsort(keys, kind="stable")
    places = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    first, again = order[places], order[places + 1]
    again = again[np.logical_and.reduce([column[first] == column[again] for column in columns])]
    names = list(dict.fromkeys(tasks.ids[k] for k in np.sort(owner[again])))
    then = ": each counts as another measurement. Drop them if they are copies."
    return Note(len(again), "rows repeat an earlier row of their task", len(owner), first_names(names), then)


def oddities(tasks: Tasks) -> Iterator[str]:
    """Notes on tasks that a table has given: columns without variation, duplicate rows."""
    for names, values in ((tasks.columns.x, tasks.x), (tasks.columns.y, tasks.y)):
        for name, column in zip(names, values.unbind(1), strict=True):
            if len(column) > 1 and bool((column == column[0]).all()):
                yield f"column {name!r} is {float(column[0]):g} in every row."
    yield from told([duplicate_rows(tasks)])


def support_hints(tasks: Tasks) -> Iterator[str]:
    """Notes on targets that look as if they could not have every value, with the options that say so."""
    several = len(tasks.columns.y) > 1
    found = [suggested_values(values) for values in tasks.y.unbind(1)]
    if several and not all(one.whole for one in found):  # the option is for all targets
        found = [one._replace(whole=False) for one in found]
    for name, one in zip(tasks.columns.y, found, strict=True):
        if one != Possible() and not tasks.possible:
            yield (
                f"all values of column {name!r} are {one}. If it can have no others, add "
                f"{one.options(name if several else None)}: predictions then keep to them."
            )


def oddities_of_past(tasks: Tasks) -> Iterator[str]:
    """Notes on tasks of a table that are to be learned from."""
    if len(tasks) == 1:
        yield "there is one task only: what tasks have in common cannot be learned from it."
    for one in tasks.columns.task_x:
        if one.levels and 2 * len(one.levels) > len(tasks):
            yield (
                f"column {one.name!r} has {len(one.levels)} levels for {len(tasks)} tasks: a new task's will hardly be "
                "among them."
            )
    yield from oddities(tasks)
