"""Values that were rounded when they were recorded: whole numbers, scores, tenths of a degree."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.tasks.tasks import Tasks

REPEATED = 5
"""Values that occur so often each, on average, were rounded."""


def resolution(tasks: Tasks) -> Float[Tensor, " p"]:
    """The step in which each target was recorded: the least gap between its values, where these repeat; else 0."""
    found = []
    for column in tasks.y.unbind(1):
        distinct = column.unique()
        found.append(float(distinct.diff().min()) if _rounded(distinct, column) else 0.0)
    return torch.tensor(found, dtype=torch.float64)


def rounding_variance(tasks: Tasks) -> float:
    """What rounding alone adds to the noise, of the target where it is least: a twelfth of the mean squared gap.

    A prior that is sure of a value to more digits than were recorded knows too much.
    """
    found = []
    for column in tasks.y.unbind(1):
        distinct, counts = column.unique(return_counts=True)
        if not _rounded(distinct, column):
            return 0.0
        gaps = distinct.diff()
        around = (torch.cat([gaps[:1], gaps]) + torch.cat([gaps, gaps[-1:]])) / 2  # of each value to its neighbours
        found.append(float((counts * around.square()).sum() / counts.sum() / 12))
    return min(found)


def _rounded(distinct: Float[Tensor, " k"], column: Float[Tensor, " N"]) -> bool:
    return len(distinct) > 1 and REPEATED * len(distinct) <= len(column)
