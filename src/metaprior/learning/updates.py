"""Three ways to the same optimum: the paper's Algorithm 1, Adam, and L-BFGS.

Each is an object whose `run` goes over the meta-tasks some number of times, updates the prior and returns the loss
per task. None ever keeps a step to where loss or gradient is not finite; `skipped` counts those, and `trouble` says
what the last one was.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from metaprior.errors import NumericalError
from metaprior.inference import trusting
from metaprior.learning.objective import Loss
from metaprior.learning.recording import Recorded, recorded
from metaprior.learning.threads import entries_of
from metaprior.priors import Prior
from metaprior.seeds import generator_of
from metaprior.tasks import Batch, Tasks, batches, pad


class Updates(Protocol):
    """One way of minimising the objective."""

    skipped: int
    trouble: str
    entries: int  # covariance entries of one update

    def run(self, epochs: int) -> float:
        """Some passes over the meta-tasks; the loss per task in the last of them, NaN if none was finite."""

    def kept(self) -> dict[str, Any]:
        """Everything that later passes depend on, but for the parameters themselves."""

    def restored(self, kept: dict[str, Any]) -> None:
        """Go on from what `kept` gave."""


class _Guarded:
    """What all three share: a loss with its gradient, or nothing where either is not finite."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.skipped, self.trouble = optimizer, 0, ""

    def evaluate(self, loss: Callable[[], Tensor]) -> float | None:
        """The loss with its gradient in place, or None where either is not finite or cannot be computed.

        On a GPU the result alone is looked at. Where it is not finite, all is computed once more with a look at every
        step: jitter where it is needed, or the task that is at fault.
        """
        if self.parameters()[0].is_cuda:
            with trusting():
                found = self._evaluated(loss)
            if found is not None:
                return found
        return self._evaluated(loss.objective if isinstance(loss, Recorded) else loss)

    def _evaluated(self, loss: Callable[[], Tensor]) -> float | None:
        self.optimizer.zero_grad()
        try:
            value = loss()
            if not isinstance(loss, Recorded):  # which has its slopes in place
                value.backward()  # type: ignore[no-untyped-call]
        except NumericalError as error:
            self.trouble = str(error)
            return None
        finite = [p.grad.sum().isfinite() for p in self.parameters() if p.grad is not None]
        if bool(torch.stack([value.isfinite(), *finite]).all()):
            return float(value.detach())
        self.trouble = "the loss or its gradient is not finite."
        return None

    def kept(self) -> dict[str, Any]:
        state = self.optimizer.state_dict()
        groups = [{key: value for key, value in group.items() if key != "params"} for group in state["param_groups"]]
        return {"optimizer": state["state"], "groups": groups, "skipped": self.skipped, "trouble": self.trouble}

    def restored(self, kept: dict[str, Any]) -> None:
        state = self.optimizer.state_dict()
        groups = [own | known for own, known in zip(state["param_groups"], kept["groups"], strict=True)]
        self.optimizer.load_state_dict({"state": kept["optimizer"], "param_groups": groups})
        self.skipped, self.trouble = kept["skipped"], kept["trouble"]

    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def snapshot(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters()]

    @torch.no_grad()
    def restore(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.parameters(), values, strict=True):
            parameter.copy_(value)


class Stochastic(_Guarded, ABC):
    """Passes over the tasks in random order, one update per batch of them."""

    def __init__(self, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        super().__init__(optimizer)
        self.generator = generator
        self.last_good: list[Tensor] | None = None

    @abstractmethod
    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        """The loss per task to step on, and how many tasks it is of, for each batch of one pass."""

    def run(self, epochs: int) -> float:
        last = math.nan
        for _ in range(epochs):
            total, seen = 0.0, 0
            for loss, count in self.losses():
                value = self._update(loss)
                if value is not None:
                    total, seen = total + value * count, seen + count
            last = total / seen if seen else last
        return last

    def kept(self) -> dict[str, Any]:
        more = {"generator": self.generator.get_state(), "last_good": self.last_good}
        return super().kept() | more

    def restored(self, kept: dict[str, Any]) -> None:
        super().restored(kept)
        self.generator.set_state(kept["generator"])
        self.last_good = kept["last_good"]

    def _update(self, loss: Callable[[], Tensor]) -> float | None:
        value = self.evaluate(loss)
        if value is None:
            self.skipped += 1
            value = self._retry(loss)
        if value is not None:
            self.last_good = self.snapshot()
            self.optimizer.step()
        return value

    def _retry(self, loss: Callable[[], Tensor]) -> float | None:
        """Undo the last step. If the loss is finite there, that step was too long; if not, these tasks are at fault."""
        if self.last_good is None:
            return None
        here = self.snapshot()
        self.restore(self.last_good)
        value = self.evaluate(loss)
        if value is None:
            self.restore(here)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] /= 2
        return value


class Algorithm1(Stochastic):
    """Algorithm 1 of the paper: `ψ ← ψ − η ∇L(Dᵢ; ψ)` for every meta-task in turn."""

    def __init__(self, prior: Prior, tasks: Tasks, loss: Loss, *, rate: float, seed: int) -> None:
        super().__init__(torch.optim.SGD(prior.learned_parameters(), lr=rate), generator_of(seed))
        self.loss, self.tasks = loss, tasks
        self.single = [pad(tasks, torch.tensor([i])).to(prior.like) for i in range(len(tasks))]
        self.entries = max(entries_of([one]) for one in self.single)

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        for i in torch.randperm(len(self.tasks), generator=self.generator).tolist():
            yield partial(self.loss, [self.single[i]], self.tasks.ids), 1


class Adam(Stochastic):
    """Adam on the loss per task of random batches of tasks, or of all tasks at once."""

    def __init__(
        self, prior: Prior, tasks: Tasks, loss: Loss, *, rate: float, batch_size: int | None, seed: int
    ) -> None:
        super().__init__(torch.optim.Adam(prior.learned_parameters(), lr=rate), generator_of(seed))
        self.loss, self.tasks = loss, tasks
        self.like, self.batch_size = prior.like, batch_size
        self.all = batches(tasks, prior.like) if batch_size is None else []
        self.entries = entries_of(self.all) if batch_size is None else batch_size * int(tasks.sizes.max()) ** 2

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        if self.batch_size is None:
            yield partial(self._per_task, self.all, self.tasks), len(self.tasks)
            return
        for chosen in torch.randperm(len(self.tasks), generator=self.generator).split(self.batch_size):
            part = self.tasks.select(chosen)
            yield partial(self._per_task, batches(part, self.like), part), len(part)

    def _per_task(self, laid_out: Sequence[Batch], part: Tasks) -> Tensor:
        return self.loss(laid_out, part.ids) / len(part)


class LBFGS(_Guarded):
    """L-BFGS with a strong-Wolfe line search on one objective; one iteration is one epoch."""

    def __init__(
        self, parameters: Sequence[Tensor], objective: Callable[[], Tensor], *, rate: float = 1.0, entries: int = 0
    ) -> None:
        optimizer = torch.optim.LBFGS(
            parameters,
            lr=rate,
            history_size=20,
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )
        super().__init__(optimizer)
        self.objective, self.entries, self.known = recorded(objective, self.parameters()), entries, math.nan

    def run(self, epochs: int) -> float:
        self.optimizer.param_groups[0].update(max_iter=epochs, max_eval=25 * epochs)
        self.optimizer.step(self._closure)  # type: ignore[arg-type]
        return self.known

    def kept(self) -> dict[str, Any]:
        return super().kept() | {"known": self.known}

    def restored(self, kept: dict[str, Any]) -> None:
        super().restored(kept)
        self.known = kept["known"]

    def _closure(self) -> float:
        value = self.evaluate(self.objective)
        if value is not None:
            self.known = value if math.isnan(self.known) else min(value, self.known)
            return value
        self.skipped += 1
        for parameter in self.parameters():
            parameter.grad = torch.zeros_like(parameter)
        # a wall, high but finite, that the line search backs away from
        return 1e12 if math.isnan(self.known) else 1e6 * (1 + abs(self.known))


RATES = {"algorithm1": 1e-3, "adam": 1e-2, "lbfgs": 1.0}
"""Each optimizer with its default learning rate η."""


def make_updates(
    optimizer: str, prior: Prior, tasks: Tasks, loss: Loss, *, rate: float, batch_size: int | None, seed: int
) -> Updates:
    """The updates by name."""
    if optimizer == "algorithm1":
        return Algorithm1(prior, tasks, loss, rate=rate, seed=seed)
    if optimizer == "adam":
        return Adam(prior, tasks, loss, rate=rate, batch_size=batch_size, seed=seed)
    laid_out = batches(tasks, prior.like)
    return LBFGS(
        prior.learned_parameters(),
        lambda: loss(laid_out, tasks.ids) / len(tasks),
        rate=rate,
        entries=entries_of(laid_out),
    )
