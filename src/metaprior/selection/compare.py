"""Which prior suits these tasks? All methods, cross-validated over tasks, and the choice itself scored as well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from metaprior.errors import DataError, MetapriorError, OptionError, UnknownNameError
from metaprior.inference import Method
from metaprior.methods import make_method, named_methods
from metaprior.progress import progress_bar
from metaprior.scoring import Scores, Summary, joined_scores, paired_difference, scores_by_setting, summarise
from metaprior.selection.trying import try_on
from metaprior.splits import Contexts, Fold, k_folds, within
from metaprior.tasks import Tasks, resolution

FOLDS = 5
INNER = 0.25
"""Of the tasks outside a fold, set aside to choose by."""

CHOSEN = "the choice"
"""The row of what would have been chosen without looking: by inner folds, scored on outer ones."""

BY = "log_likelihood"


@dataclass(frozen=True)
class Comparison:
    """Scores of every method on tasks that it had not seen, by setting; and which one to use."""

    scores: dict[tuple[str, str], Scores]
    winners: tuple[str, ...]  # of each outer fold, by its inner ones
    skipped: dict[str, str] = field(default_factory=dict)  # methods that cannot be used here, and why

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.scores))

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(setting for _, setting in self.scores))

    def density(self, method: str) -> Summary:
        """Log density per point, averaged over the settings of each task."""
        found = self._by_task(method)
        return summarise(torch.tensor(list(found.values()), dtype=torch.float64), self._clusters(list(found)))

    def against(self, method: str, other: str) -> Summary:
        """By how much a method's log density is better than another's, on the same tasks."""
        first, second = self._by_task(method), self._by_task(other)
        common = [name for name in first if name in second]
        values = [torch.tensor([part[name] for name in common], dtype=torch.float64) for part in (first, second)]
        return paired_difference(values[0], values[1], self._clusters(common))

    @property
    def simple(self) -> list[str]:
        """Those that need no other tasks: a learned prior has to beat them."""
        return [name for name in self.methods if name in named_methods(lambda one: one.alone)]

    @property
    def best(self) -> str:
        """The method of the highest log density over all folds."""
        return max((name for name in self.methods if name != CHOSEN), key=lambda name: self.density(name).mean)

    def gains(self, method: str) -> dict[str, Summary]:
        """By how much a method is better than those that need no other tasks."""
        return {name: self.against(method, name) for name in self.simple if name != method}

    @property
    def recommended(self) -> str:
        """The best method, or the best simple one where no learned prior is seen to pay."""
        simple = self.simple
        if not simple or _pays(self.gains(self.best)):
            return self.best
        return max(simple, key=lambda name: self.density(name).mean)

    def verdict(self) -> str:
        """One sentence that a person can act on."""
        best, tasks = self.best, self.density(self.best).tasks
        gains = self.gains(best)
        if not self.simple:
            return f"Of these methods {best} has the highest log density on these {tasks} tasks."
        if not all(math.isfinite(gain.mean) for gain in gains.values()):
            return (
                f"These {tasks} tasks cannot decide: some values are certain under {best} or a simple method, so "
                "log densities are infinite. Is the target constant?"
            )
        if best in self.simple or not _pays(gains):
            return (
                f"No learned prior pays on these {tasks} tasks: use {self.recommended}. The highest log density has "
                f"{best}" + (f", {_told(gains)} per point." if gains else ".")
            )
        honest = self.gains(CHOSEN)
        if not _pays(honest):
            return (
                f"{best} looks best on these {tasks} tasks, {_told(gains)} per point; but they are too few to choose "
                f"by: choosing without looking, by cross-validation, gains {_told(honest)}. Take it as a guess."
            )
        return (
            f"Use {best}: on these {tasks} tasks it has the highest log density; choosing by cross-validation gains "
            f"{_told(honest)} per point (log density, ± one standard error)."
        )

    def _clusters(self, tasks: Sequence[object]) -> Int[Tensor, " m"] | None:
        """The clusters of these tasks, where they have some."""
        known: dict[object, int] = {}
        for scores in self.scores.values():
            if scores.clusters is None:
                return None
            known |= zip(scores.ids, scores.clusters.tolist(), strict=True)
        return torch.tensor([known[task] for task in tasks])

    def _by_task(self, method: str) -> dict[object, float]:
        found: dict[object, list[float]] = {}
        for (name, _), scores in self.scores.items():
            if name == method:
                for task, value in zip(scores.ids, scores.values[BY].tolist(), strict=True):
                    found.setdefault(task, []).append(value)
        return {task: sum(values) / len(values) for task, values in found.items()}


def _pays(gains: dict[str, Summary]) -> bool:
    """Whether each gain is above two standard errors."""
    return bool(gains) and all(gain.mean > 2 * (gain.stderr or 0.0) for gain in gains.values())


def _told(gains: dict[str, Summary]) -> str:
    return " and ".join(f"{gain.mean:+.3f} ± {gain.stderr or 0.0:.3f} against {name}" for name, gain in gains.items())


def compare(
    tasks: Tasks,
    contexts: Contexts,
    *,
    methods: Sequence[str] = (),
    folds: int = FOLDS,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Fit every method without each fold of the tasks and score it there: values that were rounded, as recorded.

    What would have been chosen is decided within the other folds, on a quarter of them set aside, so its scores are
    those of a choice that has not seen the tasks it is scored on.
    """
    names = list(dict.fromkeys(methods)) or list(named_methods(lambda one: one.compared))
    for name in names:
        if name not in (known := named_methods(lambda one: one.make is not None)):
            raise UnknownNameError("method", name, known)
    if len(tasks) < 4:
        raise DataError(f"{len(tasks)} tasks are too few to compare methods on: give 4 or more.")
    if folds < 2:
        raise OptionError(
            f"{folds} folds: give 2 or more, so that there are tasks to learn from and tasks to score on."
        )
    contexts(tasks)  # whether they can be split so at all
    run = _Comparing(tasks, contexts, seed)
    parts = k_folds(tasks, folds, seed)
    winners = []
    with progress_bar("comparing", 2 * len(names) * len(parts), show=progress) as advance:
        for k, fold in enumerate(parts):
            inner = _Comparing(tasks, contexts, seed)
            for name in names:
                inner.add(name, within(fold, tasks, INNER, seed))
                advance(f"fold {k + 1}, {name}")
                run.add(name, fold)
                advance(f"fold {k + 1}, {name}")
            if winner := inner.best([name for name in names if name not in run.skipped]):
                winners.append(winner)
                run.copy(winner)
    return run.found([*names, CHOSEN], winners)


def _fitted(name: str, contexts: Contexts, tasks: Tasks, seed: int) -> Method:
    """A method by name that has learned from these tasks, to be asked from such contexts."""
    return make_method(name, tasks, seed, contexts).fit(tasks)


class _Comparing:
    """Scores as they come in, fold by fold."""

    def __init__(self, tasks: Tasks, contexts: Contexts, seed: int) -> None:
        self.tasks, self.contexts, self.seed = tasks, contexts, seed
        self.ask = partial(scores_by_setting, contexts=contexts, steps=resolution(tasks))
        self.parts: dict[tuple[str, str], list[Scores]] = {}
        self.last: dict[str, dict[str, Scores]] = {}
        self.skipped: dict[str, str] = {}

    def add(self, name: str, fold: Fold) -> None:
        """Fit a method on some tasks and score it on others; one that cannot be used is left out, with its reason."""
        if name in self.skipped:
            return
        self.last.pop(name, None)
        if not self.contexts.where_possible(self.tasks.select(fold.judge)):
            return  # none of these tasks can be split so: they say nothing
        try:
            found = try_on(partial(_fitted, name, self.contexts), self.tasks, fold, self.seed, self.ask)
        except MetapriorError as error:
            self.skipped[name] = str(error)
            self.parts = {key: value for key, value in self.parts.items() if key[0] != name}
            return
        self.last[name] = found
        for setting, scores in found.items():
            self.parts.setdefault((name, setting), []).append(scores)

    def best(self, names: Sequence[str]) -> str | None:
        """Of these methods the one of the highest log density, if any has one."""
        known = [name for name in names if any(key[0] == name for key in self.parts)]
        found = self.found(names) if known else None
        return max(known, key=lambda name: found.density(name).mean) if found else None

    def copy(self, winner: str) -> None:
        """The last scores of a method are those of the choice as well."""
        for setting, scores in self.last.get(winner, {}).items():
            self.parts.setdefault((CHOSEN, setting), []).append(scores)

    def found(self, names: Iterable[str], winners: Sequence[str] = ()) -> Comparison:
        order = [*names, *(key[0] for key in self.parts)]
        if not self.parts:
            raise DataError("no method can be used on these tasks: " + "; ".join(self.skipped.values()))
        keys = sorted(self.parts, key=lambda key: order.index(key[0]))
        return Comparison({key: _joined(self.parts[key]) for key in keys}, tuple(winners), self.skipped)


def _joined(parts: Sequence[Scores]) -> Scores:
    return joined_scores(parts, [key for key in parts[0].values if all(key in part.values for part in parts)])
