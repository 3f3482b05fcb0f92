"""Which prior suits these tasks? All methods, cross-validated over tasks, and the choice itself scored as well."""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from metaprior.errors import DataError, MetapriorError, OptionError, UnknownNameError
from metaprior.inference import Method, WithinPossible
from metaprior.methods import make_method, named_methods
from metaprior.progress import progress_bar
from metaprior.scoring import Scores, Summary, joined_scores, paired_difference, scores_by_setting, summarise
from metaprior.selection.auto import Auto
from metaprior.selection.trying import try_on
from metaprior.splits import Contexts, Fold, LeftOut, k_folds, within
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
    left_out: tuple[LeftOut, ...] = ()  # tasks that are not scored, by setting

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

    def best_of(self, methods: Sequence[str]) -> str | None:
        """The method of the highest log density on the tasks that all of these were asked about, if there are any."""
        found = {name: self._by_task(name) for name in methods}
        common = set.intersection(*(set(values) for values in found.values()))
        return max(methods, key=lambda name: sum(found[name][task] for task in common)) if common else None

    def gains(self, method: str) -> dict[str, Summary]:
        """By how much a method is better than those that need no other tasks."""
        return {name: self.against(method, name) for name in self.simple if name != method}

    @property
    def best_simple(self) -> str | None:
        """The method of the highest log density among those that need no other tasks, if there are any."""
        return max(self.simple, key=lambda name: self.density(name).mean, default=None)

    @property
    def recommended(self) -> str:
        """The best of the methods that pay; the best simple method if none does: the one-standard-error rule."""
        simple = self.best_simple
        if simple is None:
            return self.best
        paying = [name for name in self.methods if name not in (CHOSEN, *self.simple) and self.pays(name)]
        return max(paying, key=lambda name: self.density(name).mean, default=simple)

    def pays(self, method: str, n_stderr: float = 1.0) -> bool:
        """Whether its log density is above that of the best simple method by more than this many standard errors."""
        if self.best_simple is None:
            return True
        gain = self.against(method, self.best_simple)
        return gain.mean > n_stderr * (gain.stderr or 0.0)

    def verdict(self) -> str:
        """One sentence that a person can act on."""
        best, tasks, recommended = self.best, self.density(self.best).tasks, self.recommended
        gains = self.gains(best)
        if not self.simple:
            return f"Of these methods {best} has the highest log density on these {tasks} tasks."
        if not all(math.isfinite(gain.mean) for gain in gains.values()):
            return (
                f"These {tasks} tasks cannot decide: some values are certain under {best} or a simple method, so "
                "log densities are infinite. Is the target constant?"
            )
        if recommended in self.simple:
            return (
                f"No learned prior pays on these {tasks} tasks: use {recommended}. The highest log density has "
                f"{best}" + (f", {_told(gains)} per point." if gains else ".")
            )
        honest = _told(self.gains(CHOSEN))
        if not self.pays(CHOSEN, n_stderr=2.0):
            gains = self.gains(recommended)
            return (
                f"{recommended} looks best on these {tasks} tasks, {_told(gains)} per point; but they are too few to "
                f"choose by: choosing without looking, by cross-validation, gains {honest}. Take it as a guess."
            )
        among = "" if recommended == best else f" among those that are a standard error ahead of {self.best_simple}"
        return (
            f"Use {recommended}: on these {tasks} tasks it has the highest log density{among}; choosing by "
            f"cross-validation gains {honest} per point (log density, ± one standard error)."
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


def _told(gains: dict[str, Summary]) -> str:
    return " and ".join(f"{gain.mean:+z.3f} ± {gain.stderr or 0.0:.3f} against {name}" for name, gain in gains.items())


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
    those of a choice that has not seen the tasks it is scored on. `auto` scores itself on tasks that it holds out: it
    is fitted once per fold. Where the tasks know what their targets can be, predictions stay within that.
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
            aside = within(fold, tasks, INNER, seed)
            for name in names:
                method = run.add(name, fold)
                advance(f"fold {k + 1}, {name}")
                if isinstance(method, Auto):
                    inner.take(name, method.held_out_densities_, aside)
                else:
                    inner.add(name, aside)
                advance(f"fold {k + 1}, {name}")
            if winner := inner.best([name for name in names if name not in run.skipped]):
                winners.append(winner)
                run.copy(winner)
    return run.found([*names, CHOSEN], winners, contexts.left_out(tasks))


class _Comparing:
    """Scores as they come in, fold by fold."""

    def __init__(self, tasks: Tasks, contexts: Contexts, seed: int) -> None:
        self.tasks, self.contexts, self.seed = tasks, contexts, seed
        self.steps = resolution(tasks)
        self.parts: dict[tuple[str, str], list[Scores]] = {}
        self.last: dict[str, dict[str, Scores]] = {}
        self.skipped: dict[str, str] = {}

    def add(self, name: str, fold: Fold) -> Method | None:
        """Fit a method on some tasks and score it on others; one that cannot be used is left out, with its reason.

        Returns:
            The fitted method; None where it is left out, or where none of the others can be split: they say nothing.
        """
        self.last.pop(name, None)
        if name in self.skipped or not self.contexts.where_possible(self.tasks.select(fold.judge)):
            return None
        try:
            method, found = try_on(partial(self._fitted, name), self.tasks, fold, self.seed, self._asked)
        except MetapriorError as error:
            self.skipped[name] = str(error)
            self.parts = {key: value for key, value in self.parts.items() if key[0] != name}
            return None
        self._keep(name, found)
        return method

    def take(self, name: str, found: Mapping[str, Scores], fold: Fold) -> None:
        """Keep what a method has said of a fold's tasks while it held them out itself."""
        ids = {self.tasks.ids[k] for k in fold.judge.tolist()}
        parts = {setting: _of_tasks(scores, ids) for setting, scores in found.items()}
        self._keep(name, {setting: scores for setting, scores in parts.items() if scores.ids})

    def best(self, names: Sequence[str]) -> str | None:
        """The method of the highest log density on the tasks that all of these have scores of, if there are any."""
        known = [name for name in names if any(key[0] == name for key in self.parts)]
        return self.found(names).best_of(known) if known else None

    def _fitted(self, name: str, tasks: Tasks, seed: int) -> Method:
        """A method by name that has learned from these tasks, to be asked from the contexts."""
        return make_method(name, tasks, seed, self.contexts).fit(tasks)

    def _asked(self, method: Method, tasks: Tasks) -> tuple[Method, dict[str, Scores]]:
        """The method and its scores on these tasks; its predictions are possible values of the targets."""
        within = WithinPossible(method, tasks.possible) if tasks.possible else method
        return method, scores_by_setting(within, tasks, self.contexts, self.steps)

    def _keep(self, name: str, found: dict[str, Scores]) -> None:
        self.last[name] = found
        for setting, scores in found.items():
            self.parts.setdefault((name, setting), []).append(scores)

    def copy(self, winner: str) -> None:
        """The last scores of a method are those of the choice as well."""
        for setting, scores in self.last.get(winner, {}).items():
            self.parts.setdefault((CHOSEN, setting), []).append(scores)

    def found(self, names: Iterable[str], winners: Sequence[str] = (), left_out: Sequence[LeftOut] = ()) -> Comparison:
        order = [*names, *(key[0] for key in self.parts)]
        if not self.parts:
            raise DataError("no method can be used on these tasks: " + "; ".join(self.skipped.values()))
        keys = sorted(self.parts, key=lambda key: order.index(key[0]))
        scores = {key: _joined(self.parts[key]) for key in keys}
        return Comparison(scores, tuple(winners), self.skipped, tuple(left_out))


def _of_tasks(scores: Scores, ids: Container[Hashable]) -> Scores:
    """The scores of some of the tasks."""
    places = [k for k, name in enumerate(scores.ids) if name in ids]
    return Scores(tuple(scores.ids[k] for k in places), {key: value[places] for key, value in scores.values.items()})


def _joined(parts: Sequence[Scores]) -> Scores:
    return joined_scores(parts, [key for key in parts[0].values if all(key in part.values for part in parts)])
