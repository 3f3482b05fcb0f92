"""Trying rungs on tasks that they have not seen: together where they are small, and no longer than it matters."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.errors import DataError, MetapriorError
from metaprior.inference import KeptMethod
from metaprior.learning import Checkpoint, threads_for
from metaprior.methods import METHODS, Warped, learned_warps, make_method
from metaprior.priors import Warp
from metaprior.scoring import Summary, summarise
from metaprior.selection.stacking import densities, drawn_weights, error_weights
from metaprior.selection.trying import Question, Seen, Values, as_dict, joined
from metaprior.splits import Contexts, Fold, k_folds, one_fold
from metaprior.tasks import Tasks, resolution

RANKED = 600
"""Tasks that rungs are ranked on, where there are more: those that may have a share learn from the others as well."""

WEIGHED = 800
"""Tasks that are set aside there, a fifth of them at most, to tell the shares."""

FOLDS, FEWER, MANY = 5, 4, 100
"""Parts that tasks are held out in, one after the other, and from how many tasks on there are fewer parts."""

SMALL = 1_500
"""Rows of fewer tasks than that, with which all folds, and all tasks together, are learned at once: there it is calls
that cost, not numbers."""

ENTRIES = 30
"""Matrix entries for each row, roughly: of fewer than a second thread is worth."""

GAINS = 5_000
"""Rows of tasks from which on learning gains from a GPU: with fewer, its calls cost more than numbers elsewhere."""

JUDGED, ENOUGH = 80, 240
"""Held-out tasks that say enough: fewer, if the rungs that are left differ by more than their standard error."""

LEAST = 10
"""Held-out tasks without which no rung is given up."""

HOPELESS = 0.1
"""Log density per value that a rung is surely behind when it is given up, unless its error is the least."""

CANDIDATE, OF_ERROR = 0.01, 0.1
"""Shares in the combinations of the highest density and of the least error from which a rung goes on from some tasks to
all of them. Small ones count: what hardly ever matters in a combination may be all that it has in the tails."""

MATTERS = 0.02
"""Log density per value below which it does not matter which of two rungs is better."""

ALONE = ", curves alone"
"""After the name of a method that could use what is known of a task as a whole, where it is to leave that aside."""


class Plan(NamedTuple):
    """How rungs are tried: on which tasks, held out in which folds, wave by wave."""

    tasks: Tasks
    waves: tuple[tuple[Fold, ...], ...]
    whole: bool  # whether all tasks are learned from on the way
    racing: bool  # whether rungs are given up, and waves left out
    growing: bool = False  # whether the second wave goes on where the first has ended, with all the other tasks

    @staticmethod
    def of(tasks: Tasks, seed: int, thorough: bool) -> Plan:
        """For these tasks. thorough: every rung on every fold of all tasks, however long that takes."""
        if len(tasks) > RANKED and not thorough:
            last = one_fold(tasks, min(0.2, WEIGHED / len(tasks)), seed)
            some = last.train[_first(tasks.select(last.train), RANKED, seed)]
            first = one_fold(tasks.select(some), 1 / FEWER, seed)
            ranked = Fold(some[first.train], some[first.judge])
            return Plan(tasks, ((ranked,), (last,)), whole=False, racing=True, growing=True)
        folds = tuple(k_folds(tasks, FEWER if len(tasks) >= MANY else FOLDS, seed))
        small = len(tasks.x) <= SMALL and len(tasks) < MANY
        waves = (folds,) if small else tuple((fold,) for fold in folds)
        return Plan(tasks, waves, small, not thorough)

    @property
    def rounds(self) -> int:
        """How many times all rungs are gone through at most, learning the choice from all tasks included."""
        if self.growing:
            return 2
        judged, needed = 0, 0
        for wave in self.waves:
            if judged < ENOUGH or not self.racing:
                judged, needed = judged + sum(len(fold.judge) for fold in wave), needed + 1
        return needed + (not self.whole)


@dataclass(eq=False)
class Trials:
    """What each rung said of held-out tasks, a part for each wave; how long it took; what went wrong.

    budget: seconds after which no rung is tried any more, but for the quick ones where nothing has been tried before.
    device: where they learn.
    """

    plan: Plan
    contexts: Contexts
    names: Sequence[str]
    seed: int = 0
    budget: float | None = None
    device: str = "cpu"
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    values: list[Values] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    learned: dict[str, KeptMethod] = field(default_factory=dict)
    started: dict[str, KeptMethod] = field(default_factory=dict)  # what has learned from a fold

    def __post_init__(self) -> None:
        self.labels = list(self.contexts(self.plan.tasks))
        self.began, self.resumed = time.perf_counter(), False
        self._warps: dict[tuple[str, int], list[Warp]] = {}  # what rungs have in common: their warps, by wave …
        self._asked: dict[int, list[Question | None]] = {}  # … and what they are asked
        self._going: dict[tuple[str, ...], list[str]] = {}  # of so many, those that may have a share

    def run(self, file: Checkpoint | None, advance: Callable[[str, int], None]) -> None:
        """Try the rungs, wave by wave, as long as it can matter; what is known already is not tried again."""
        self._resume(file)
        for wave in range(len(self.plan.waves)):
            running = self.running(wave)
            for name in self.names:
                if name in running and len(self.seen.get(name, ())) <= wave and self._in_time(name, wave):
                    with threads_for(ENTRIES * len(self.plan.tasks.x)):
                        self._try(name, wave)
                    if file is not None:
                        file.write(self._kept())
                advance(name, cost_of(name))
            if self.plan.racing and self._decided(wave):
                break

    @property
    def done(self) -> int:
        """Waves that the rungs which are left have in common; of those that a budget cut short, as many as one has."""
        counts = [len(self.seen.get(name, ())) for name in self.running(len(self.values) - 1)]
        return min((count for count in counts if count), default=0)

    def running(self, wave: int) -> list[str]:
        """The rungs that are up for a wave: neither failed nor given up before it."""
        left = [name for name in self.names if name not in self.left_out]
        if not self.plan.racing:
            return left
        if self.plan.growing and wave:
            return self._candidates(left)
        for before in range(1, wave + 1):
            left = self._worth_it(left, before)
        return left

    def complete(self) -> dict[str, Seen]:
        """What the rungs that are left said of all held-out tasks of the waves that are done.

        None is given up by the last of these: weights are all that is decided by it, and they are cross-fitted.
        """
        done = self.done
        left = [name for name in self.running(max(done - 1, 0)) if len(self.seen.get(name, ())) >= done > 0]
        return {name: self.said(name, done) for name in left}

    def known(self, waves: int) -> Values:
        """The held-out values of the first so many waves; of growing ones, of the last of these."""
        found: Values = joined(Values, self.values[waves - 1 : waves] if self.plan.growing else self.values[:waves])
        return found

    def task_ids(self, waves: int) -> list[Hashable]:
        """The id of the task of each of these values."""
        questions = [
            one
            for wave in range(waves - 1 if self.plan.growing else 0, waves)
            for one in self._questions(wave)
            if one is not None
        ]
        return [name for one in questions for name in one.value_ids]

    def said(self, name: str, waves: int) -> Seen:
        """What a rung said of these."""
        parts = self.seen[name]
        found: Seen = joined(Seen, parts[waves - 1 : waves] if self.plan.growing else parts[:waves])
        return found

    def fitted(self, name: str, tasks: Tasks) -> KeptMethod:
        """A rung that has learned from all tasks."""
        self._learn_again(name)
        if name not in self.learned and name in self.started:
            self.learned[name] = self._went_on(name, tasks)
        elif name not in self.learned:
            (self.learned[name],) = self._fit(name, [tasks], wave=-1)
        return self.learned[name]

    def _went_on(self, name: str, tasks: Tasks) -> KeptMethod:
        """A rung that has learned from some of these tasks, with all of them."""
        given = tasks.without_task_x() if name.endswith(ALONE) else tasks
        return self._made(name, given).fit_from(self.started[name], given)

    def _made(self, name: str, tasks: Tasks) -> KeptMethod:
        """A rung that is about to learn from these tasks, on a GPU where it gains from that."""
        made = make_method(name.removesuffix(ALONE), tasks, self.seed)
        return made.to(self.device) if len(tasks.x) >= GAINS else made

    def _in_time(self, name: str, wave: int) -> bool:
        """Whether there is time to try a rung: for the first wave of the quick ones always, if nothing is known yet."""
        if self.budget is None or time.perf_counter() - self.began < self.budget:
            return True
        return METHODS[name.removesuffix(ALONE)].quick and wave == 0 and not self.resumed

    def _try(self, name: str, wave: int) -> None:
        """What a rung says of tasks that are held out, having learned from the others."""
        began = time.perf_counter()
        try:
            if self.plan.growing:
                self._learn_again(name)
            methods = self._learned(name, wave)
            asked = zip(self._questions(wave), methods, strict=False)  # the last one may have learned from all tasks
            parts = [question.answer(method) for question, method in asked if question is not None]
            if not parts:
                raise DataError("no held-out task has points to predict.")
        except MetapriorError as error:
            self.left_out[name] = str(error)
            return
        self.seen.setdefault(name, []).append(joined(Seen, parts))
        if len(self.values) <= wave:
            self.values.append(joined(Values, [one.values for one in self._questions(wave) if one is not None]))
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def _learned(self, name: str, wave: int) -> list[KeptMethod]:
        """A rung that has learned from the folds of a wave, and maybe from all tasks; what is needed later is kept."""
        tasks = self.plan.tasks
        given = [tasks.select(fold.train) for fold in self.plan.waves[wave]]
        if self.plan.growing and name in self.started:
            methods = [self._went_on(name, *given)]
        else:
            methods = self._fit(name, [*given, *([tasks] if self.plan.whole else [])], wave)
        if self.plan.whole or (self.plan.growing and wave):
            self.learned[name] = methods[-1]
        elif wave == 0:
            self.started[name] = methods[0]
        return methods

    def _learn_again(self, name: str) -> None:
        """What an earlier run has learned of a rung, where it has kept the scores alone: in the same steps, so that
        the choice ends with the same bits."""
        if name in self.learned or name in self.started:
            return
        done = len(self.seen.get(name, ()))
        with threads_for(ENTRIES * len(self.plan.tasks.x)):
            for wave in range(done if self.plan.growing else min(done, 1)):
                self._learned(name, wave)

    def _questions(self, wave: int) -> list[Question | None]:
        """What the rungs of a wave are asked, fold by fold."""
        if wave not in self._asked:
            tasks, steps = self.plan.tasks, resolution(self.plan.tasks)
            before = sum(map(len, self.plan.waves[:wave]))
            self._asked[wave] = [
                Question.of(tasks.select(fold.judge), tasks.units[fold.judge], self.contexts, steps, self.labels, k)
                for k, fold in enumerate(self.plan.waves[wave], before)
            ]
        return self._asked[wave]

    def _fit(self, name: str, tasks: Sequence[Tasks], wave: int) -> list[KeptMethod]:
        """A rung that has learned from each of several sets of tasks."""
        given = [own.without_task_x() for own in tasks] if name.endswith(ALONE) else list(tasks)
        methods = [self._made(name, own) for own in given]
        first = methods[0]
        if isinstance(first, Warped):
            warps = self._warps.get((first.warp, wave)) or learned_warps(first.warp, given, [self.seed] * len(given))
            self._warps[first.warp, wave] = warps
            Warped.fit_many(methods, given, warps)  # type: ignore[arg-type]
        else:
            type(first).fit_many(methods, given)
        return methods

    def _candidates(self, names: Sequence[str]) -> list[str]:
        """Of these rungs, those that the first wave gives a share in a combination, of density or of error."""
        tried = [name for name in names if self.seen.get(name)]
        if len(tried) < 2:
            return list(names)
        if tuple(tried) not in self._going:
            values, said = self.known(1), {name: self.said(name, 1) for name in tried}
            by_density, by_error = (drawn_weights(densities(said), values, self.seed), error_weights(said, values))
            hopeful = torch.tensor([name in self._worth_it(tried, 1) for name in tried])
            going = (by_density >= CANDIDATE) | (by_error >= OF_ERROR) & hopeful
            self._going[tuple(tried)] = [name for name, goes in zip(tried, going.tolist(), strict=True) if goes]
        return self._going[tuple(tried)]

    def _worth_it(self, names: Sequence[str], waves: int) -> list[str]:
        """Of these rungs, those that the first waves leave a chance."""
        tried = [name for name in names if len(self.seen.get(name, ())) >= waves]
        if not tried:
            return list(names)
        values = self.known(waves)
        scores = {name: self._scores(name, waves, values) for name in tried}
        best = max(tried, key=lambda name: float(scores[name][0].mean()))
        if len(scores[best][0]) < LEAST:
            return list(names)
        least = min(float(error.mean()) for _, error in scores.values())
        left = []
        for name in names:
            if name in scores:
                behind = summarise(scores[best][0] - scores[name][0])
                surely = behind.mean - 2 * (behind.stderr or 0.0)
                if surely > HOPELESS and scores[name][1].mean() > least:
                    continue
            left.append(name)
        return left

    def _decided(self, wave: int) -> bool:
        """Whether more held-out tasks would hardly change the choice."""
        if self.plan.growing:
            return False
        names = [name for name in self.running(wave + 1) if len(self.seen.get(name, ())) > wave]
        if not names:
            return True
        values = self.known(wave + 1)
        scores = {name: self._scores(name, wave + 1, values)[0] for name in names}
        best = max(names, key=lambda name: float(scores[name].mean()))
        if len(scores[best]) < JUDGED:
            return False  # how far bounds must reach is told by them too
        if len(scores[best]) >= ENOUGH:
            return True
        return not any(_open(summarise(scores[best] - scores[name])) for name in names if name != best)

    def _scores(self, name: str, waves: int, values: Values) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Log density and squared error of each task."""
        seen = self.said(name, waves)
        return values.per_task(seen.density), values.per_task((seen.mean - values.y).square())

    def _kept(self) -> dict[str, Any]:
        return {
            "seen": {name: [as_dict(part) for part in parts] for name, parts in self.seen.items()},
            "values": [as_dict(part) for part in self.values],
            "left_out": self.left_out,
            "seconds": self.seconds,
        }

    def _resume(self, file: Checkpoint | None) -> None:
        """What an earlier run has tried."""
        kept = None if file is None else file.read()
        if kept is not None:
            self.seen = {name: [Seen(**part) for part in parts] for name, parts in kept["seen"].items()}
            self.values = [Values(**part) for part in kept["values"]]
            self.left_out, self.seconds = dict(kept["left_out"]), dict(kept["seconds"])
            for one in (part for parts in self.seen.values() for part in parts):
                if any(bool(score.isnan().any()) for score in (one.below, one.upto, one.start, one.end)):
                    raise ValueError("a normal score that is none")
            self.resumed = bool(self.seen)


def _first(tasks: Tasks, most: int, seed: int) -> Int[Tensor, " k"]:
    """Positions of so many random tasks; of clusters as many as begin within that number."""
    order = tasks.shuffled(seed)
    counts = torch.bincount(tasks.units)[order]
    return tasks.of_units(order[counts.cumsum(0) - counts < most])


def _open(behind: Summary) -> bool:
    """Whether a rung may be as good as the best, or not, and it matters."""
    return MATTERS < behind.mean < (behind.stderr or 0.0)


def cost_of(name: str) -> int:
    """How long a rung takes, beside others."""
    return METHODS[name.removesuffix(ALONE)].cost
