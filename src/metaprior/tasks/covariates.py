"""Task covariates: what is known of a task as a whole (age, diet, type), as numbers that a prior can take in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError


class Covariate(NamedTuple):
    """A column that is constant within a task: a number (no levels), or text with the levels that past tasks had.

    levels is None while no task has been seen.
    """

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """How many numbers it takes: one, or one for each level."""
        return len(self.levels or ()) or 1

    def encoded(self, values: Sequence[Any], ids: Sequence[Hashable]) -> Float[Tensor, "m w"]:
        """Each task's value as numbers; one that this covariate cannot have is told with its task."""
        known = self.levels or ()
        place = {level: k for k, level in enumerate(known)}
        found = torch.zeros(len(values), self.width, dtype=torch.float64)
        for i, value in enumerate(values):
            if value is None or value != value:  # NaN
                raise DataError(
                    f"task column {self.name!r} is empty for task {ids[i]!r}: give each task its value, or leave the "
                    "column out."
                )
            if known and not isinstance(value, str):
                value = next((text for text in _texts(value) if text in place), value)  # "10" read as a number
            if known and isinstance(value, str):
                if value not in place:
                    raise DataError(
                        f"task column {self.name!r} is {value!r} for task {ids[i]!r}, which no past task had; known "
                        f"are {', '.join(map(repr, known))}. Leave such tasks out, or learn with some of them."
                    )
                found[i, place[value]] = 1.0
            elif known or isinstance(value, str):
                kinds = ("text", "no text") if known else ("a number", "text")
                raise DataError(
                    f"task column {self.name!r} is {kinds[0]} for other tasks, and {kinds[1]} ({value!r}) for task "
                    f"{ids[i]!r}."
                )
            else:
                found[i, 0] = _number(value, self.name, ids[i])
        if not bool(found.isfinite().all()):
            bad = int(torch.nonzero(~found.isfinite())[0, 0])
            raise DataError(f"task column {self.name!r} is not a finite number for task {ids[bad]!r}.")
        return found


def covariate_of(name: str, values: Sequence[Any]) -> Covariate:
    """What a column of these values is: a number, or text with its levels in order."""
    if any(isinstance(value, str) for value in values):
        return Covariate(name, tuple(sorted({value for value in values if isinstance(value, str)})))
    return Covariate(name, ())


def encode(
    columns: Mapping[str, Sequence[Any]], ids: Sequence[Hashable], known: Sequence[Covariate] = ()
) -> tuple[tuple[Covariate, ...], Float[Tensor, "m c"]]:
    """Covariates of some tasks, one value per task in each column; known: as earlier tasks had them."""
    described = {one.name: one for one in known if one.levels is not None}
    if not columns:
        raise DataError("no task column given: with_task_x takes {name: values}, a value for each task.")
    found, parts = [], []
    for name, values in columns.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise DataError(f"task column {name!r} is {values!r}: give a list with one value for each task.")
        if len(values) != len(ids):
            raise DataError(f"task column {name!r} has {len(values)} values for {len(ids)} tasks: give one for each.")
        plain = [_plain(value) for value in values]
        found.append(described.get(name) or covariate_of(name, plain))
        parts.append(found[-1].encoded(plain, ids))
    return tuple(found), torch.cat(parts, 1)


def _number(value: Any, name: str, task: Hashable) -> float:
    """A number, or a date as days since 1970."""
    try:
        if isinstance(value, (date, np.datetime64)):
            moment = np.array(value, dtype="datetime64[us]")
            return float((moment - np.datetime64("1970-01-01", "us")) / np.timedelta64(1, "D"))
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"task column {name!r} is {value!r} for task {task!r}: use numbers, dates or text.") from None


def _texts(value: Any) -> tuple[str, ...]:
    """What a number or a truth value may have been written as."""
    if isinstance(value, bool):
        return (str(value), str(value).lower(), str(value).upper())
    whole = isinstance(value, float) and value.is_integer()
    return (str(int(value)), str(value)) if whole else (str(value),)


def _plain(value: Any) -> Any:
    """A value of an array as Python has it."""
    single = isinstance(value, np.generic) or (isinstance(value, Tensor) and value.numel() == 1)
    return value.item() if single and not isinstance(value, np.datetime64) else value
