"""Several methods as one: the mixture of what they predict, with fixed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch

from metaprior.errors import OptionError
from metaprior.files import State
from metaprior.inference import KeptMethod, Method, MixtureConditional
from metaprior.tasks import Tasks, TrainedOn


class Combination(KeptMethod):
    """`Σ w_k p_k(y)` over several methods; the weights are given, or equal."""

    saved_as = "combination"

    def __init__(self, methods: Sequence[Method], weights: Sequence[float] | None = None) -> None:
        shares = torch.ones(len(methods)) if weights is None else torch.tensor(list(weights))
        if len(methods) == 0 or len(shares) != len(methods) or not bool((shares > 0).all()):
            raise OptionError("a combination takes one method or more, each with a weight above 0.")
        self.methods = list(methods)
        self.weights = (shares.double() / shares.double().sum()).tolist()

    def fit(self, tasks: Tasks) -> Self:
        """Fit every method."""
        for method in self.methods:
            method.fit(tasks)
        takes = any(method.trained_on_.columns.task_x for method in self.methods)  # type: ignore[attr-defined]
        self.trained_on_ = TrainedOn.of(tasks, task_x=takes)
        return self

    def condition(self, context: Tasks) -> MixtureConditional:
        """Every method with what is known, as one mixture."""
        shares = torch.tensor(self.weights, dtype=torch.float64).log()
        return MixtureConditional([method.condition(context) for method in self.methods], shares, by_evidence=False)

    def state(self) -> State:
        """Its methods and their weights, for a file."""
        parts = {str(k): method.state() for k, method in enumerate(self.methods)}  # type: ignore[attr-defined]
        return State(self.saved_as, {"weights": self.weights}, {}).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        weights = [float(weight) for weight in state.structure["weights"]]
        return cls([state.method(str(k)) for k in range(len(weights))], weights)
