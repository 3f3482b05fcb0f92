"""What anyone would try first: the last value carried forward, and the mean of the context."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError
from metaprior.files import State
from metaprior.methods.points import PointMethod
from metaprior.tasks import Tasks


class _FromContext(PointMethod):
    """Values from the context alone; where there is none, the mean of the meta-tasks."""

    def learn(self, training: Tasks, held_out: Tasks) -> None:
        self.prior_mean_ = training.y.mean(0)

    def learned(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {}, {"prior_mean": self.prior_mean_}

    @classmethod
    def relearned(cls, state: State) -> Self:
        method = cls()
        method.prior_mean_ = state.tensor("prior_mean")
        return method

    def _where_known(self, context: Tasks, at: Tasks, values: Float[Tensor, "N p"]) -> Float[Tensor, "N p"]:
        known = (context.sizes > 0)[at.task_of_row]
        return torch.where(known[:, None], values, self.prior_mean_)


class LastValue(_FromContext):
    """The value last seen at or before each point; before the first one, the first. For one input column (time)."""

    saved_as = "last value"

    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The last value of each point's task."""
        if context.d != 1:
            raise DataError(f"{context.d} input columns have no order: the last value needs one (time).")
        if len(context.x) == 0:
            return self.prior_mean_.expand(len(at.x), -1)
        keys, wanted = _ranks(context, at)
        order = np.argsort(keys, kind="stable")  # points at the same time stay in their order: the last one counts
        before = np.searchsorted(keys[order], wanted, side="right") - 1
        first, last = context.offsets[:-1][at.task_of_row], context.offsets[1:][at.task_of_row] - 1
        row = torch.from_numpy(before).clamp(min=first, max=last).clamp(min=0)
        return self._where_known(context, at, context.y[torch.from_numpy(order)[row]])


class ContextMean(_FromContext):
    """The mean of each task's context."""

    saved_as = "context mean"

    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The mean of each point's task."""
        return self._where_known(
            context, at, (context.summed(context.y) / context.sizes.clamp(min=1)[:, None])[at.task_of_row]
        )


def _ranks(context: Tasks, at: Tasks) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """One whole number for each point of both, ordered by task and then by x."""
    x = torch.cat([context.x[:, 0], at.x[:, 0]])
    distinct, rank = x.unique(return_inverse=True)
    key = torch.cat([context.task_of_row, at.task_of_row]) * len(distinct) + rank
    return key[: len(context.x)].numpy(), key[len(context.x) :].numpy()
