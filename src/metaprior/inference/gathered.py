"""One posterior made of several, each of which has some of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.inference.evidence import Evidence
from metaprior.inference.marginals import Marginals
from metaprior.inference.method import Predictive
from metaprior.tasks import Tasks


@dataclass(frozen=True, eq=False)
class Gathered(Marginals):
    """Posteriors of disjoint sets of tasks. A task that is in none has zeros, for others to weigh by nothing."""

    points: Tasks
    parts: Sequence[tuple[Int[Tensor, " k"], Predictive]]

    @property
    def is_gaussian(self) -> bool:  # type: ignore[override]
        return all(getattr(part, "is_gaussian", False) for _, part in self.parts)

    @property
    def function(self) -> Gathered:
        """The same for the function: without observation noise."""
        return Gathered(self.points, [(which, part.function) for which, part in self.parts])

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self._rows(lambda part, _: part.mean)

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self._rows(lambda part, _: part.sd)

    @property
    def evidence(self) -> Evidence:
        """The evidence of each task's context."""
        total = self._tasks(lambda part, _: part.evidence.total.detach())  # type: ignore[attr-defined]
        zero = torch.zeros_like(total)
        return Evidence(total, zero, zero)

    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self._rows(lambda part, rows: part.cdf(y[..., rows, :]))

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        return self._rows(lambda part, _: part.quantiles(probabilities))

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        targets = torch.as_tensor(y, dtype=torch.float64).reshape(len(self.points.x), -1)
        return self._rows(lambda part, rows: part.log_density(targets[rows]))

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        targets = torch.as_tensor(y, dtype=torch.float64).reshape(len(self.points.x), -1)
        return self._rows(lambda part, rows: part.crps(targets[rows]))

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        targets = torch.as_tensor(y, dtype=torch.float64).reshape(len(self.points.x), -1)
        return self._tasks(lambda part, rows: part.joint_log_density(targets[rows]))

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together."""
        return self._rows(lambda part, _: part.samples(count, seed))

    def _rows(self, ask: Callable[[Predictive, Tensor], Tensor]) -> Tensor:
        found: Tensor | None = None
        for which, part in self.parts:
            rows = rows_of(self.points, which)
            said = ask(part, rows)
            if found is None:
                found = said.new_zeros(*said.shape[:-2], len(self.points.x), said.shape[-1])
            found[..., rows, :] = said
        assert found is not None  # some task is in some part
        return found

    def _tasks(self, ask: Callable[[Predictive, Tensor], Tensor]) -> Float[Tensor, " m"]:
        found = torch.zeros(len(self.points), dtype=torch.float64)
        for which, part in self.parts:
            found[which] = ask(part, rows_of(self.points, which))
        return found


def rows_of(tasks: Tasks, which: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """The rows of some tasks, task by task."""
    sizes = tasks.sizes[which]
    starts = tasks.offsets[:-1][which]
    first = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)[:-1]])
    return torch.arange(int(sizes.sum())) + (starts - first).repeat_interleave(sizes)
