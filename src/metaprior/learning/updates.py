"""Three ways to the same optimum: the paper's Algorithm 1, Adam, and L-BFGS.

Each is an object whose `run` goes over the meta-tasks some number of times, updates the prior and returns the loss
per task. None ever keeps a step to where loss or gradient is not finite; `skipped` counts those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from metaprior.errors import NumericalError, OptionError
from metaprior.inference import summed_evidence
from metaprior.learning.objective import Objective
from metaprior.priors import Prior
from metaprior.tasks import Batch, Tasks, batches
from metaprior.tasks.batches import pad


class Updates(Protocol):
    """One way of minimising the objective."""

    skipped: int

    def run(self, epochs: int) -> float:
        """Some passes over the meta-tasks; the loss per task in the last of them."""


class _Stochastic:
    """Passes over the tasks in random order, one update per batch of them."""

    def __init__(
        self,
        prior: Prior,
        tasks: Tasks,
        optimizer: torch.optim.Optimizer,
        *,
        per_point: bool,
        seed: int,
    ) -> None:
        self.prior, self.tasks, self.per_point = prior, tasks, per_point
        self.optimizer, self.generator = optimizer, torch.Generator().manual_seed(seed)
        self.skipped = 0
        self.last_good: list[Tensor] | None = None

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        """The loss to step on, and how many tasks it is of, for each batch of one pass."""
        raise NotImplementedError

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

    def _update(self, loss: Callable[[], Tensor]) -> float | None:
        """One step. Where the step before led to no finite loss it is undone and the rate halved."""
        value = _guarded_loss(loss, self.optimizer)
        if value is None:
            self.skipped += 1
            value = self._retry(loss)
        if value is not None:
            self.last_good = [parameter.detach().clone() for parameter in self._parameters()]
            self.optimizer.step()
        return value

    @torch.no_grad()
    def _undo(self) -> None:
        assert self.last_good is not None
        for parameter, good in zip(self._parameters(), self.last_good, strict=True):
            parameter.copy_(good)

    def _retry(self, loss: Callable[[], Tensor]) -> float | None:
        if self.last_good is None:
            return None
        self._undo()
        value = _guarded_loss(loss, self.optimizer)
        if value is not None:  # it was the step, not these tasks
            for group in self.optimizer.param_groups:
                group["lr"] /= 2
        return value

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _shuffled(self) -> Tensor:
        return torch.randperm(len(self.tasks), generator=self.generator)


class Algorithm1(_Stochastic):
    """Algorithm 1 of the paper: `ψ ← ψ − η ∇L(Dᵢ; ψ)` for every meta-task in turn."""

    def __init__(self, prior: Prior, tasks: Tasks, *, rate: float, per_point: bool, seed: int) -> None:
        optimizer = torch.optim.SGD(prior.learned_parameters(), lr=rate)
        super().__init__(prior, tasks, optimizer, per_point=per_point, seed=seed)
        self.single = [pad(tasks, torch.tensor([i])).to(prior.device) for i in range(len(tasks))]

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        for i in self._shuffled().tolist():
            yield lambda one=self.single[i]: self._loss([one]), 1  # type: ignore[misc]

    def _loss(self, laid_out: list[Batch]) -> Tensor:
        return -summed_evidence(self.prior, laid_out, self.tasks.ids, per_point=self.per_point).total


class Adam(_Stochastic):
    """Adam on the loss per task of random batches of tasks, or of all tasks at once."""

    def __init__(
        self,
        prior: Prior,
        tasks: Tasks,
        *,
        rate: float,
        batch_size: int | None,
        per_point: bool,
        seed: int,
    ) -> None:
        optimizer = torch.optim.Adam(prior.learned_parameters(), lr=rate)
        super().__init__(prior, tasks, optimizer, per_point=per_point, seed=seed)
        self.batch_size = batch_size
        self.all = Objective(prior, tasks, per_point=per_point)

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        if self.batch_size is None:
            yield lambda: self.all() / len(self.tasks), len(self.tasks)
            return
        for chosen in self._shuffled().split(self.batch_size):
            part = self.tasks.select(chosen)
            laid_out = batches(part, self.prior.device)
            yield lambda part=part, laid_out=laid_out: self._loss(part, laid_out), len(part)  # type: ignore[misc]

    def _loss(self, part: Tasks, laid_out: list[Batch]) -> Tensor:
        total = summed_evidence(self.prior, laid_out, part.ids, per_point=self.per_point).total
        return -total / len(part)


class LBFGS:
    """L-BFGS with a strong-Wolfe line search on the loss per task of all tasks; one iteration is one epoch."""

    def __init__(self, prior: Prior, tasks: Tasks, *, rate: float, per_point: bool) -> None:
        self.objective, self.count = Objective(prior, tasks, per_point=per_point), len(tasks)
        self.optimizer = torch.optim.LBFGS(
            prior.learned_parameters(),
            lr=rate,
            history_size=20,
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )
        self.skipped = 0
        self.last = math.inf

    def run(self, epochs: int) -> float:
        best = math.inf
        self.optimizer.param_groups[0].update(max_iter=epochs, max_eval=25 * epochs)

        def closure() -> float:
            nonlocal best
            value = _guarded_loss(lambda: self.objective() / self.count, self.optimizer)
            if value is None:  # a wall that the line search backs away from
                self.skipped += 1
                for group in self.optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = torch.zeros_like(parameter)
                known = best if math.isfinite(best) else self.last
                return 1e6 * (1 + abs(known)) if math.isfinite(known) else 1e12
            best = min(best, value)
            return value

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self.last = best
        return best


def _guarded_loss(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> float | None:
    """The loss with its gradient in place, or None where either is not finite or cannot be computed."""
    optimizer.zero_grad()
    try:
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
    except NumericalError:
        return None
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    finite = torch.isfinite(value.detach()) & torch.stack([g.sum().isfinite() for g in gradients]).all()
    return float(value.detach()) if bool(finite) else None


RATES = {"algorithm1": 1e-3, "adam": 1e-2, "lbfgs": 1.0}
"""Each optimizer with its default learning rate η."""


def make_updates(
    optimizer: str,
    prior: Prior,
    tasks: Tasks,
    *,
    rate: float,
    batch_size: int | None,
    per_point: bool,
    seed: int,
) -> Updates:
    """The updates by name."""
    if batch_size is not None and (optimizer != "adam" or batch_size < 1):
        raise OptionError("a batch_size of 1 or more goes with optimizer='adam' only.")
    if optimizer == "algorithm1":
        return Algorithm1(prior, tasks, rate=rate, per_point=per_point, seed=seed)
    if optimizer == "adam":
        return Adam(prior, tasks, rate=rate, batch_size=batch_size, per_point=per_point, seed=seed)
    return LBFGS(prior, tasks, rate=rate, per_point=per_point)
