"""What a method said of held-out values, and the values: all that a choice between methods is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.inference import Predictive


@dataclass(frozen=True, eq=False)
class Seen:
    """What one rung said of held-out values: a row for each, from every setting and fold."""

    log_density: Float[Tensor, " N"]
    cdf: Float[Tensor, " N"]
    mean: Float[Tensor, " N"]
    evidence: Float[Tensor, " k"]  # of each context, as a whole

    def some(self, which: Bool[Tensor, " N"]) -> Seen:
        """What it said of some of the values; of contexts nothing is left out."""
        return Seen(self.log_density[which], self.cdf[which], self.mean[which], self.evidence)


@dataclass(frozen=True, eq=False)
class Values:
    """The held-out values themselves: which task each is of, and its weight (tasks and settings count the same)."""

    task: Int[Tensor, " N"]
    weight: Float[Tensor, " N"]
    y: Float[Tensor, " N"]
    known: Int[Tensor, " k"]  # number of values in each context
    setting: Int[Tensor, " N"]  # which of the settings each value is from

    def some(self, which: Bool[Tensor, " N"]) -> Values:
        """Some of the values."""
        return Values(self.task[which], self.weight[which], self.y[which], self.known, self.setting[which])

    def per_task(self, values: Float[Tensor, " N"]) -> Float[Tensor, " m"]:
        """The weighted mean of each task that has values."""
        count = int(self.task.max()) + 1
        sums, weights = torch.zeros(2, count, dtype=torch.float64)
        sums.index_add_(0, self.task, self.weight * values)
        weights.index_add_(0, self.task, self.weight)
        found: Tensor = sums / weights
        return found[weights > 0]


def joined(kind: type[Any], parts: Sequence[Any]) -> Any:
    return kind(*(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(kind)))


def as_dict(values: Seen | Values | None) -> dict[str, Tensor]:
    return {} if values is None else {one.name: getattr(values, one.name) for one in fields(values)}


def as_dicts(seen: dict[str, Seen]) -> dict[str, dict[str, Tensor]]:
    return {name: as_dict(found) for name, found in seen.items()}


def recorded_density(
    posterior: Predictive, y: Float[Tensor, "N p"], steps: Float[Tensor, " p"]
) -> Float[Tensor, "N p"]:
    """Log density of values as they were recorded: the mean over the step that was rounded to each of them.

    A whole number that repeats has a density without bound under a prior that is sure of it: it would decide alone.
    """
    density = posterior.log_density(y)
    if not bool((steps > 0).any()):
        return density
    half = torch.where(steps > 0, steps, 1.0) / 2
    mass = posterior.cdf(y + half) - posterior.cdf(y - half)
    rounded = mass.clamp(min=1e-300).log() - (2 * half).log()
    return torch.where((steps > 0) & (mass > 1e-9), rounded, density)
