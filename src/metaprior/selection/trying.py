"""Trying one method on one fold: what it said of tasks that it had not seen, and the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.errors import DataError
from metaprior.inference import Calibration, Method, normal_scores
from metaprior.scoring import rounded_density
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

    density: Float[Tensor, " N"]  # log density
    cdf: Float[Tensor, " N"]
    below: Float[Tensor, " N"]  # cdf where the step that was rounded to the value begins, and where it ends …
    above: Float[Tensor, " N"]  # … which is at the value itself if it was not rounded
    mean: Float[Tensor, " N"]
    evidence: Float[Tensor, " k"]  # of each context, as a whole

    def some(self, which: Bool[Tensor, " N"]) -> Seen:
        """What it said of some of the values; of contexts nothing is left out."""
        rows = {one.name: getattr(self, one.name)[which] for one in fields(self) if one.name != "evidence"}
        return Seen(**rows, evidence=self.evidence)

    def calibrated(self, calibration: Calibration) -> Seen:
        """The same with its distributions put right."""
        cdf, below, above = (calibration.probability(part) for part in (self.cdf, self.below, self.above))
        gain = calibration.gain(normal_scores(self.cdf))
        return Seen(self.density + gain, cdf, below, above, self.mean, self.evidence)


@dataclass(frozen=True, eq=False)
class Values:
    """The held-out values themselves: which task each is of, and its weight (tasks and settings count the same).

    Where tasks are in clusters, it is the cluster that counts: what tasks of one say is not independent.
    """

    task: Int[Tensor, " N"]
    weight: Float[Tensor, " N"]
    y: Float[Tensor, " N"]
    step: Float[Tensor, " N"]  # in which it was recorded; 0 if it was not rounded
    known: Int[Tensor, " k"]  # number of values in each context
    setting: Int[Tensor, " N"]  # which of the settings each value is from
    fold: Int[Tensor, " N"]  # which fold its task is held out in

    def some(self, which: Bool[Tensor, " N"]) -> Values:
        """Some of the values."""
        rows = {one.name: getattr(self, one.name)[which] for one in fields(self) if one.name != "known"}
        return Values(**rows, known=self.known)

    def density(self, seen: Seen) -> Float[Tensor, " N"]:
        """Log density of the values as they were recorded: the one number that methods are ranked by."""
        return rounded_density(seen.density, seen.below, seen.above, self.step)

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

    def mixed(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in parts], 1) @ shares

    def together(name: str) -> Tensor:
        return (torch.stack([getattr(part, name) for part in parts], 1) + shares.log()).logsumexp(1)

    return Seen(together("density"), mixed("cdf"), mixed("below"), mixed("above"), mixed("mean"), together("evidence"))


class Question(NamedTuple):
    """Held-out tasks in every setting at once: of many small questions, asking takes longer than answering."""

    context: Tasks
    target: Tasks
    values: Values

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
        y, step = target.y.flatten(), steps.expand_as(target.y).flatten()
        folds = torch.full_like(owner, fold)
        return Question(context, target, Values(owner, share, y, step, context.sizes * context.p, setting, folds))

    @property
    def value_ids(self) -> list[Hashable]:
        """The id of the task of each value."""
        counts = (self.target.sizes * self.target.p).tolist()
        return [name for name, count in zip(self.target.ids, counts, strict=True) for _ in range(count)]

    def answer(self, method: Method) -> Seen:
        """What a method says of the values."""
        conditional = method.condition(self.context)
        posterior = conditional.at(self.target)
        y = posterior.as_targets(self.target.y)
        density, cdf, mean = posterior.log_density(y), posterior.cdf(y), posterior.mean
        if not bool(density.isfinite().all()):
            raise DataError("a held-out value is impossible under it.")
        half = self.values.step.view_as(y).to(y) / 2
        below, above = (posterior.cdf(y - half), posterior.cdf(y + half)) if bool(half.any()) else (cdf, cdf)
        if self.target.possible:  # what lies beyond an end is recorded as the end
            ends = [(one.lower, one.upper) for one in self.target.possible]
            lower, upper = torch.tensor(ends, dtype=torch.float64).to(y).unbind(1)
            below, above = torch.where(y - half < lower, 0.0, below), torch.where(y + half > upper, 1.0, above)
        evidence = torch.full((len(self.context),), torch.nan, dtype=torch.float64)
        if conditional.evidence is not None:
            evidence = conditional.evidence.total.detach()
        return Seen(*(part.flatten().cpu() for part in (density, cdf, below, above, mean, evidence)))


def joined(record: type[Any], parts: Sequence[Any]) -> Any:
    return record(*(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(record)))


def as_dict(values: Seen | Values | None) -> dict[str, Tensor]:
    return {} if values is None else {one.name: getattr(values, one.name) for one in fields(values)}
