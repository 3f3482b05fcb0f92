"""Trying one method on one fold: what it said of tasks that it had not seen, and the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.errors import DataError
from metaprior.inference import (
    Calibration,
    Method,
    PossiblePosterior,
    next_below,
    normal_cdf,
    normal_log_cdf,
    normal_score,
)
from metaprior.splits import Contexts, Fold
from metaprior.tasks import Tasks

Found = TypeVar("Found")

Fitted = Callable[[Tasks, int], Method]
"""A method that has learned from these tasks, with this seed."""


def try_on(fitted: Fitted, tasks: Tasks, fold: Fold, seed: int, ask: Callable[[Method, Tasks], Found]) -> Found:
    """Learn from the tasks of a fold that are trained on, and ask about those that are judged by.

    It depends on nothing else and changes nothing, so folds can run side by side, or elsewhere.
    """
    return ask(fitted(tasks.select(fold.train), seed), tasks.select(fold.judge))


@dataclass(frozen=True, eq=False)
class Seen:
    """What one rung said of held-out values: a row for each, from every setting and fold."""

    density: Float[Tensor, " N"]  # log density of the value as it was recorded
    below: Float[Tensor, " N"]  # normal score Φ⁻¹(F) of all that is less than the value …
    upto: Float[Tensor, " N"]  # … and of the value itself: they differ where it has a probability of its own
    start: Float[Tensor, " N"]  # normal score where the step that was rounded to the value begins …
    end: Float[Tensor, " N"]  # … and where it ends: at the value itself if it was not rounded
    mean: Float[Tensor, " N"]
    evidence: Float[Tensor, " k"]  # of each context, as a whole

    def some(self, which: Bool[Tensor, " N"]) -> Seen:
        """What it said of some of the values; of contexts nothing is left out."""
        rows = {one.name: getattr(self, one.name)[which] for one in fields(self) if one.name != "evidence"}
        return Seen(**rows, evidence=self.evidence)

    def calibrated(self, calibration: Calibration) -> Seen:
        """The same with its distributions put right."""
        density = self.density + calibration.interval_gain(self.start, self.end)
        below, upto, start, end = (calibration.inward(getattr(self, name))[0] for name in SCORES)
        return Seen(density, below, upto, start, end, self.mean, self.evidence)

    @property
    def pit(self) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """The probabilities of less than each value and of the value or less."""
        return normal_cdf(self.below), normal_cdf(self.upto)


SCORES = ("below", "upto", "start", "end")
"""What is a normal score there."""


@dataclass(frozen=True, eq=False)
class Values:
    """The held-out values themselves: which task each is of, and its weight (tasks and settings count the same).

    Where tasks are in clusters, it is the cluster that counts: what tasks of one say is not independent.
    """

    task: Int[Tensor, " N"]
    weight: Float[Tensor, " N"]
    y: Float[Tensor, " N"]
    known: Int[Tensor, " k"]  # number of values in each context
    setting: Int[Tensor, " N"]  # which of the settings each value is from
    fold: Int[Tensor, " N"]  # which fold its task is held out in

    def some(self, which: Bool[Tensor, " N"]) -> Values:
        """Some of the values."""
        rows = {one.name: getattr(self, one.name)[which] for one in fields(self) if one.name != "known"}
        return Values(**rows, known=self.known)

    def per_task(self, values: Float[Tensor, " N"]) -> Float[Tensor, " m"]:
        """The weighted mean of each task that has values."""
        count = int(self.task.max()) + 1
        sums, weights = torch.zeros(2, count, dtype=torch.float64)
        sums.index_add_(0, self.task, self.weight * values)
        weights.index_add_(0, self.task, self.weight)
        found: Tensor = sums / weights
        return found[weights > 0]


def combined(seen: Mapping[str, Seen], weights: Mapping[str, float]) -> Seen:
    """What a mixture of methods with these weights has said."""
    parts = [seen[name] for name in weights]
    shares = torch.tensor(list(weights.values()), dtype=torch.float64)

    def together(name: str, log: Callable[[Tensor], Tensor] = lambda values: values) -> Tensor:
        return (torch.stack([log(getattr(part, name)) for part in parts], 1) + shares.log()).logsumexp(1)

    def score(name: str) -> Tensor:
        """Of the mixture's probability, from logarithms in both tails."""
        return normal_score(together(name, normal_log_cdf), together(name, lambda score: normal_log_cdf(-score)))

    mean = torch.stack([part.mean for part in parts], 1) @ shares
    below, upto, start, end = (score(name) for name in SCORES)
    return Seen(together("density"), below, upto, start, end, mean, together("evidence"))


class Question(NamedTuple):
    """Held-out tasks in every setting at once: of many small questions, asking takes longer than answering."""

    context: Tasks
    target: Tasks
    values: Values
    steps: Float[Tensor, " p"]  # in which each target was recorded; 0 where it was not rounded, and of whole numbers

    @staticmethod
    def of(
        tasks: Tasks,
        units: Int[Tensor, " m"],
        contexts: Contexts,
        steps: Float[Tensor, " p"],
        labels: Sequence[str],
        fold: int = 0,
    ) -> Question | None:
        """Of these tasks of a fold, each with the number of its unit among all; None where there is nothing to ask."""
        splits = contexts.where_possible(tasks)
        if not splits:
            return None
        unit = dict(zip(tasks.ids, units.tolist(), strict=True))
        context = Tasks.one_after_another([split.context for split in splits.values()])
        target = Tasks.one_after_another([split.target for split in splits.values()])
        settings = [labels.index(label) for label, split in splits.items() for _ in split.target.ids]
        owners, shares = [unit[name] for name in target.ids], 1 / target.sizes.double() / target.p
        owner, setting, share = (
            part[target.task_of_row].repeat_interleave(target.p)
            for part in (torch.tensor(owners), torch.tensor(settings), shares)
        )
        folds = torch.full_like(owner, fold)
        values = Values(owner, share, target.y.flatten(), context.sizes * context.p, setting, folds)
        whole = torch.tensor([one.whole for one in tasks.possible] or [False] * tasks.p)
        return Question(context, target, values, torch.where(whole, 0.0, steps))

    @property
    def value_ids(self) -> list[Hashable]:
        """The id of the task of each value."""
        counts = (self.target.sizes * self.target.p).tolist()
        return [name for name, count in zip(self.target.ids, counts, strict=True) for _ in range(count)]

    def answer(self, method: Method) -> Seen:
        """What a method says of the values."""
        conditional = method.condition(self.context)
        posterior, possible = conditional.at(self.target), self.target.possible
        posterior = PossiblePosterior.of(posterior, possible) if possible else posterior
        y = posterior.as_targets(self.target.y)
        density = posterior.log_recorded_density(y, self.steps)
        if not bool(density.isfinite().all()):
            raise DataError("a held-out value is impossible under it.")
        upto = posterior.normal_score(y)
        below = posterior.normal_score(next_below(y)) if possible else upto
        start, end, half = below, upto, self.steps.to(y) / 2
        if bool(half.any()):
            rounded = half > 0
            start = torch.where(rounded, posterior.normal_score(y - half), below)
            end = torch.where(rounded, posterior.normal_score(y + half), upto)
        evidence = torch.full((len(self.context),), torch.nan, dtype=torch.float64)
        if conditional.evidence is not None:
            evidence = conditional.evidence.total.detach()
        found = (density, below, upto, start, end, posterior.mean, evidence)
        return Seen(*(part.flatten().cpu() for part in found))


def joined(record: type[Any], parts: Sequence[Any]) -> Any:
    return record(*(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(record)))


def as_dict(values: Seen | Values | None) -> dict[str, Tensor]:
    return {} if values is None else {one.name: getattr(values, one.name) for one in fields(values)}
