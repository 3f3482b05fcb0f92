"""What makes arrays unusable as tasks, said with the task that it was seen in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, OptionError

Missing = Literal["error", "drop"]

MISSING: tuple[Missing, ...] = ("error", "drop")


class NothingLeftError(DataError):
    """Of some tasks, each lacks something."""


def check_missing_option(missing: str) -> None:
    if missing not in MISSING:
        raise OptionError(f"missing={missing!r} is not an option; use one of {', '.join(MISSING)}.")


def as_matrix(values: object, what: str) -> Float[Tensor, "n k"]:
    """A float64 matrix of its own (a copy) from an array, a tensor or a list; a vector becomes one column."""
    try:
        if isinstance(values, Tensor):
            matrix = values.detach().to("cpu", torch.float64, copy=True)
        else:
            array = np.asarray(values)
            if array.dtype.kind not in "fiub" and array.size:
                raise TypeError(f"it holds {array.dtype}")
            matrix = torch.from_numpy(np.array(np.ma.filled(np.ma.array(values, dtype=np.float64), np.nan)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not an array of numbers: {error}.") from None
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise DataError(f"{what} has {matrix.ndim} dimensions; give points × columns (or a vector).")
    matrix += 0.0  # there is one zero
    return matrix


def names_of(ids: Sequence[Hashable] | None, count: int) -> list[Hashable]:
    """One id for each of so many tasks: those given, no two of them the same, or 0, 1, 2, …"""
    if ids is None:
        return list(range(count))
    names = list(ids)
    if len(names) != count:
        raise DataError(f"{count} tasks but {len(names)} ids; give one id per task.")
    try:
        counts = Counter(names)
    except TypeError as error:
        raise DataError(f"ids that cannot name tasks: {error}. Use numbers, text or tuples of them.") from None
    twice = [name for name, times in counts.items() if times > 1]
    if twice:
        first = ", ".join(f"{name!r} ({counts[name]} times)" for name in twice[:3])
        more = " and others" if len(twice) > 3 else ""
        raise DataError(
            f"several tasks have the same id: {first}{more}. Give each task an id of its own, or join the points of "
            "those that are one task."
        )
    return names


def check_shapes(ids: Sequence[Hashable], xs: Sequence[Tensor], ys: Sequence[Tensor]) -> None:
    """Each task has as many rows of x as of y, and at least one; all have the same columns."""
    if not xs:
        raise DataError("no tasks: give at least one (x, y) pair.")
    for name, x, y in zip(ids, xs, ys, strict=True):
        if len(x) != len(y):
            raise DataError(f"task {name!r}: x has {len(x)} rows and y has {len(y)}; they must match.")
        if len(x) == 0:
            raise DataError(f"task {name!r} has no rows; leave it out.")
        for what, one, first in (("x", x, xs[0]), ("y", y, ys[0])):
            if one.shape[1] != first.shape[1]:
                raise DataError(
                    f"task {name!r}: {what} has {one.shape[1]} columns, but task {ids[0]!r} has "
                    f"{first.shape[1]}; all tasks share the same columns."
                )
