"""Point methods: they predict single values, and carry a Gaussian variance estimated on held-out meta-tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.errors import DataError
from metaprior.files import State
from metaprior.inference import Conditional, IndependentGaussians, KeptMethod
from metaprior.splits import Contexts, Doubling, checked_contexts, to_stop_by
from metaprior.tasks import ContextTarget, Tasks, TrainedOn

LEAST = 30
"""A variance is estimated from this many tasks with contexts of similar size, or more."""


class PointMethod(KeptMethod):
    """A method whose answer is one value per point.

    Its variance is the mean squared error on held-out meta-tasks, by context size. contexts: how those are split; by
    default into random contexts of 0, 1, 2, 4, 8 … points. Where contexts are not random (the first day of a patient),
    give the same split, for errors ahead are larger than errors in between. held_out: a fraction of the meta-tasks, or
    other tasks.
    """

    fitted_as = "variance_"

    def __init__(self, *, contexts: Contexts | None = None, held_out: float | Tasks = 0.1, seed: int = 0) -> None:
        self.contexts, self.held_out, self.seed = checked_contexts(contexts), held_out, seed

    def fit(self, tasks: Tasks) -> Self:
        """Learn from the meta-tasks, all but the held-out ones, and the variance from those."""
        training, held_out = to_stop_by(tasks, self.held_out, self.seed)
        self.learn(training, held_out)
        self.variance_ = VarianceBySize.of(self, self.asked(held_out))
        self.trained_on_ = TrainedOn.of(tasks)
        if isinstance(self.held_out, Tasks):  # what decided the variance has been seen too
            self.trained_on_ = self.trained_on_.and_of(held_out)
        return self

    def asked(self, tasks: Tasks) -> list[ContextTarget]:
        """The tasks split as they will be at prediction, in every way."""
        return list((self.contexts or Doubling(self.seed))(tasks).values())

    def condition(self, context: Tasks) -> PointConditional:
        """What the method makes of each context."""
        self._check_fitted()
        return PointConditional(self, context)

    def state(self) -> State:
        """What was learned and the variance by context size, for a file."""
        self._check_fitted()
        structure, tensors = self.learned()
        sizes = {"variance.sizes": self.variance_.sizes, "variance.values": self.variance_.variances}
        return State(self.saved_as, structure, tensors | sizes)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted method again."""
        method = cls.relearned(state)
        method.variance_ = VarianceBySize(state.tensor("variance.sizes"), state.tensor("variance.values"))
        if any(bool((part < 0).any()) for part in (method.variance_.sizes, method.variance_.variances)):
            raise ValueError("a size or a variance below 0")
        return method

    @abstractmethod
    def learned(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What the values need, as structure and tensors."""

    @classmethod
    @abstractmethod
    def relearned(cls, state: State) -> Self:
        """A method with what `learned` gave."""

    @abstractmethod
    def learn(self, training: Tasks, held_out: Tasks) -> None:
        """What the values need of the meta-tasks; the held-out ones may tell when to stop."""

    @abstractmethod
    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The predicted value at each point."""


class PointConditional(Conditional[IndependentGaussians]):
    """Contexts as a point method knows them: it looks at them whenever it is asked, for there is nothing to factor."""

    def __init__(self, method: PointMethod, context: Tasks) -> None:
        self.method, self.context = method, context

    def posterior(self, points: Tasks) -> IndependentGaussians:
        """Each value on its own, with the variance for a context of this size."""
        variance = self.method.variance_.at(self.context.sizes)[points.task_of_row]
        return IndependentGaussians(points, self.method.values(self.context, points), variance.sqrt())


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
            errors.append(target.summed(squares)[keep] / target.sizes[keep, None])
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
