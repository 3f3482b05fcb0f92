"""Several methods as one: the mixture of what they predict, with fixed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import OptionError
from metaprior.files import State
from metaprior.inference import Conditional, KeptMethod, Method, MixtureConditional, Posterior
from metaprior.methods.warped import Warped
from metaprior.tasks import Tasks, TrainedOn


class Combination(KeptMethod):
    """`Σ w_k p_k(y)` over several methods; the weights are given, or equal."""

    saved_as = "combination"

    def __init__(self, methods: Sequence[Method], weights: Sequence[float] | None = None) -> None:
        shares = torch.tensor([1.0] * len(methods) if weights is None else list(weights), dtype=torch.float64)
        if len(methods) == 0 or len(shares) != len(methods) or not bool((shares > 0).all()):
            raise OptionError("a combination takes one method or more, each with a weight above 0.")
        self.methods = list(methods)
        self.weights = (shares / shares.sum()).tolist()

    def fit(self, tasks: Tasks) -> Self:
        """Fit every method."""
        for method in self.methods:
            method.fit(tasks)
        takes = any(method.trained_on_.columns.task_x for method in self.methods)  # type: ignore[attr-defined]
        self.trained_on_ = TrainedOn.of(tasks, task_x=takes)
        return self

    def condition(self, context: Tasks) -> MixtureConditional:
        """Every method with what is known, as one mixture."""
        groups = self._groups()
        members = [_conditioned([self.methods[k] for k in some], self._shares(some), context) for some in groups]
        totals = torch.tensor([sum(self.weights[k] for k in some) for some in groups], dtype=torch.float64)
        return MixtureConditional(members, totals.log(), by_evidence=False)

    def to(self, device: str) -> Self:
        """Learn and answer there from now on."""
        for method in self.methods:
            if isinstance(method, KeptMethod):
                method.to(device)
        return super().to(device)

    def _groups(self) -> list[list[int]]:
        """The methods, those together that see the targets through the same warp: it is the same for their mixture."""
        groups: list[list[int]] = []
        for k, method in enumerate(self.methods):
            for some in groups if isinstance(method, Warped) else ():
                first = self.methods[some[0]]
                if isinstance(first, Warped) and first.warp_.is_like(method.warp_):  # type: ignore[attr-defined]
                    some.append(k)
                    break
            else:
                groups.append([k])
        return groups

    def _shares(self, some: Sequence[int]) -> Float[Tensor, " k"]:
        """Logarithms of their weights among each other."""
        return torch.tensor([self.weights[k] for k in some], dtype=torch.float64).log().log_softmax(0)

    def state(self) -> State:
        """Its methods and their weights, for a file."""
        parts = {str(k): method.state() for k, method in enumerate(self.methods)}  # type: ignore[attr-defined]
        return State(self.saved_as, {"weights": self.weights}, {}).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        weights = [float(weight) for weight in state.structure["weights"]]
        return cls([state.method(str(k)) for k in range(len(weights))], weights)


def _conditioned(methods: Sequence[Method], shares: Float[Tensor, " k"], context: Tasks) -> Conditional[Posterior]:
    """Methods that go together, with what is known: several are warped alike, and warped once."""
    first = methods[0]
    if len(methods) == 1 or not isinstance(first, Warped):
        return first.condition(context)
    inside = [one.method for one in methods if isinstance(one, Warped)]
    return first.around(
        context, lambda given: MixtureConditional([one.condition(given) for one in inside], shares, by_evidence=False)
    )
