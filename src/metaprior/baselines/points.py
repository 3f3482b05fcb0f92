"""Point methods: they predict single values, and carry a Gaussian variance estimated on held-out meta-tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.errors import DataError, NotFittedError
from metaprior.files import Saved, State
from metaprior.inference import IndependentGaussians
from metaprior.tasks import ContextTarget, Tasks, TrainedOn

Contexts = Callable[[Tasks], Iterable[ContextTarget]]
"""How tasks are split into contexts and targets, in one or several ways: as they will be at prediction."""

LEAST = 30
"""A variance is estimated from this many tasks with contexts of similar size, or more."""


class PointMethod(Saved):
    """A method whose answer is one value per point.

    Its variance is the mean squared error on held-out meta-tasks, by context size. contexts: how those are split; by
    default into random contexts of 0, 1, 2, 4, 8 … points. Where contexts are not random (the first day of a patient),
    give the same split, for errors ahead are larger than errors in between. held_out: a fraction of the meta-tasks, or
    other tasks.
    """

    def __init__(self, *, contexts: Contexts | None = None, held_out: float | Tasks = 0.1, seed: int = 0) -> None:
        self.contexts, self.held_out, self.seed = contexts, held_out, seed

    def fit(self, tasks: Tasks) -> Self:
        """Learn from the meta-tasks, all but the held-out ones, and the variance from those."""
        if isinstance(self.held_out, Tasks):
            held_out, training = self.held_out, tasks
        else:
            held_out, training = tasks.split(self.held_out, self.seed)
        self.learn(training, held_out)
        contexts = self.contexts or (lambda given: random_contexts(given, self.seed))
        self.variance_ = VarianceBySize.of(self, contexts(held_out))
        self.trained_on_ = TrainedOn.of(tasks)
        return self

    def predict(self, context: Tasks, at: Tasks) -> IndependentGaussians:
        """Each value on its own, with the variance for a context of this size."""
        self._check_fitted()
        if at.ids != context.ids:
            raise DataError("points and context must hold the same tasks in the same order.")
        variance = self.variance_.at(context.sizes)[at.task_of_row]
        return IndependentGaussians(at, self.values(context, at), variance)

    def state(self) -> State:
        """What was learned and the variance by context size, for a file."""
        self._check_fitted()
        structure, tensors = self.learned()
        sizes = {"variance.sizes": self.variance_.sizes, "variance.values": self.variance_.variances}
        return State(self.kind, structure, tensors | sizes)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted method again."""
        method = cls.relearned(state)
        method.variance_ = VarianceBySize(state.tensor("variance.sizes"), state.tensor("variance.values"))
        return method

    @abstractmethod
    def learned(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What the values need, as structure and tensors."""

    @classmethod
    @abstractmethod
    def relearned(cls, state: State) -> Self:
        """A method with what `learned` gave."""

    def _check_fitted(self) -> None:
        if not hasattr(self, "variance_"):
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit(tasks) first.")

    @abstractmethod
    def learn(self, training: Tasks, held_out: Tasks) -> None:
        """What the values need of the meta-tasks; the held-out ones may tell when to stop."""

    @abstractmethod
    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The predicted value at each point."""


@dataclass(frozen=True, eq=False)
class VarianceBySize:
    """Variances at some context sizes, interpolated in the logarithm of the size and constant beyond."""

    sizes: Float[Tensor, " k"]
    variances: Float[Tensor, "k p"]

    @staticmethod
    def of(method: PointMethod, splits: Iterable[ContextTarget]) -> VarianceBySize:
        """The mean squared error of each task that has points to predict, averaged over similar context sizes."""
        sizes, errors = [], []
        for context, target in splits:
            squares = (method.values(context, target) - target.y).square()
            keep = target.sizes > 0
            sums = torch.zeros(len(target), target.p, dtype=torch.float64).index_add_(0, target.task_of_row, squares)
            errors.append(sums[keep] / target.sizes[keep, None])
            sizes.append(context.sizes[keep])
        if sum(map(len, sizes)) == 0:
            raise DataError("no held-out meta-task has a point to predict: the variance needs some. Give more tasks.")
        return VarianceBySize._averaged(torch.cat(sizes), torch.cat(errors))

    @staticmethod
    def _averaged(sizes: Int[Tensor, " k"], errors: Float[Tensor, "k p"]) -> VarianceBySize:
        order = sizes.argsort(stable=True)
        ends = sizes[order].diff().nonzero()[:, 0] + 1  # a size is never torn in two
        kept = [0]
        for end in ends.tolist():
            if end - kept[-1] >= LEAST and len(order) - end >= LEAST:
                kept.append(end)
        groups = [order[start:stop] for start, stop in zip(kept, [*kept[1:], len(order)], strict=True)]
        means = torch.stack([sizes[group].double().mean() for group in groups])
        return VarianceBySize(means, torch.stack([errors[group].mean(0) for group in groups]))

    def at(self, sizes: Int[Tensor, " m"]) -> Float[Tensor, "m p"]:
        """The variance for a context of each of these sizes."""
        where, known = np.log1p(sizes.numpy()), np.log1p(self.sizes.numpy())
        columns = [np.interp(where, known, column.numpy()) for column in self.variances.unbind(1)]
        return torch.from_numpy(np.stack(columns, axis=1))


def random_contexts(tasks: Tasks, seed: int) -> Iterable[ContextTarget]:
    """The tasks split at random into contexts of 0, 1, 2, 4, 8 … points, as far as some have more."""
    size = 0
    while bool((tasks.sizes > size).any()):
        yield tasks.select(tasks.sizes > size).context_target(size, seed + size)
        size = max(2 * size, 1)
