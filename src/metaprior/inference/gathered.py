"""One posterior made of several, each of which has some of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.inference.evidence import Evidence
from metaprior.inference.posterior import Nodes, Posterior, Weighed
from metaprior.seeds import child_seed
from metaprior.tasks import Tasks


@dataclass(frozen=True, eq=False)
class Gathered(Posterior):
    """Posteriors of sets of tasks; of a task that several have, the last one speaks.

    A task that is in none has zeros, for others to weigh by nothing.
    """

    points: Tasks
    parts: Sequence[tuple[Int[Tensor, " k"], Posterior]]

    @property
    def is_gaussian(self) -> bool:  # type: ignore[override]
        return all(part.is_gaussian for _, part in self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.points.x), self.parts[0][1].shape[1]

    @property
    def device(self) -> torch.device:
        return self.parts[0][1].device

    @property
    def jitter(self) -> float:  # type: ignore[override]
        return max((part.jitter for _, part in self.parts), default=0.0)

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
    def evidence(self) -> Evidence | None:  # type: ignore[override]
        """The evidence of each task's context, where every part has one."""
        total = torch.zeros(len(self.points), dtype=torch.float64, device=self.device)
        for which, part in self.parts:
            if part.evidence is None:
                return None
            total[which] = part.evidence.total.detach()
        return Evidence.of_total(total)

    def covariances(self) -> list[Float[Tensor, "p n n"]] | None:
        """Each task's full covariance at its points, for each output."""
        p = self.shape[1]
        none = torch.zeros(0, dtype=torch.float64, device=self.device)
        found = [none.new_zeros(p, n, n) for n in self.points.sizes.tolist()]
        for which, part in self.parts:
            said = part.covariances()
            if said is None:
                return None
            for i, C in zip(which.tolist(), said, strict=True):
                found[i] = C
        return found

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""
        return self._rows(lambda part, rows: part.cdf(y[..., rows, :]))

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self._rows(lambda part, rows: part.log_cdf(y[..., rows, :]))

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self._rows(lambda part, rows: part.log_sf(y[..., rows, :]))

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point."""
        return self._rows(lambda part, rows: part.log_interval_probability(lower[..., rows, :], upper[..., rows, :]))

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        return self._rows(lambda part, rows: part.inverse_cdf(u if u.shape[-2] == 1 else u[..., rows, :]))

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights that stand for the distribution; of a part with fewer, some have no weight."""
        every = [self.points.rows_of(which) for which, _ in self.parts]
        for step in zip_longest(*(part.nodes(rule) for _, part in self.parts)):
            most = max(len(said[0]) for said in step if said is not None)
            values, weights = torch.zeros(2, most, *self.shape, dtype=torch.float64, device=self.device)
            for rows, said in zip(every, step, strict=True):
                weights[:, rows] = 0.0  # the last part that has a task speaks
                if said is not None:
                    values[: len(said[0]), rows] = said[0]
                    weights[: len(said[0]), rows] = said[1].expand_as(said[0])
            yield values, weights

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        targets = self.as_targets(y)
        return self._rows(lambda part, rows: part.log_density(targets[rows]))

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value."""
        targets = self.as_targets(y)
        return self._rows(lambda part, rows: part.crps(targets[rows]))

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        targets = self.as_targets(y)
        found = torch.zeros(len(self.points), dtype=torch.float64, device=self.device)
        for which, part in self.parts:
            found[which] = part.joint_log_density(targets[self.points.rows_of(which)])
        return found

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together; each part has random numbers of its own."""
        seeds = iter(child_seed(seed, k) for k in range(len(self.parts)))
        return self._rows(lambda part, _: part.samples(count, next(seeds)))

    def _rows(self, ask: Callable[[Posterior, Tensor], Tensor]) -> Tensor:
        found: Tensor | None = None
        for which, part in self.parts:
            rows = self.points.rows_of(which)
            said = ask(part, rows)
            if found is None:
                found = said.new_zeros(*said.shape[:-2], len(self.points.x), said.shape[-1])
            found[..., rows, :] = said
        assert found is not None  # some task is in some part
        return found
