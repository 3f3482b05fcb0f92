"""`auto`: climb the ladder, judge every rung on tasks it has not seen, and take the simplest that is as good as any.

Held-out predictions decide three things: which rung (or which combination of rungs), how wide its bounds must be, and
which new tasks are so unlike the past ones that the prior should not be trusted with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.baselines import GPPerTask
from metaprior.errors import DataError, MetapriorError, UnknownNameError
from metaprior.files import Saved, State
from metaprior.inference import CalibratedPosterior, Calibration, Predictive
from metaprior.inference.calibrated import normal_scores
from metaprior.learning.checkpoints import Checkpoint, fingerprint_of
from metaprior.methods import Combination
from metaprior.progress import progress_bar
from metaprior.scoring import LEVELS, Summary, summarise
from metaprior.seeds import generator_of
from metaprior.selection.ladder import LADDER, rungs_for
from metaprior.selection.splits import ContextsBySetting, default_sizes, first_sizes, random_sizes
from metaprior.tasks import ContextTarget, Tasks, TrainedOn

FOLDS = 5
ENOUGH = 400
"""From so many tasks on, one part held out says enough, and nothing is fitted twice."""

SHARE = 0.25
"""Of the tasks, held out where there are enough."""

REPEATED = 5
"""Values that occur so often each, on average, were rounded."""

NEAREST = 50
"""Held-out contexts of the nearest sizes that a new one is compared with, at least."""

SIMPLER = 1.05
"""Times the squared error of the best rung: what a simpler one may have that is taken in its place."""

LEAST_WEIGHT = 0.03
"""A rung of less weight in a combination is left out of it."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What one rung said of held-out values: a row for each, from every setting and fold."""

    log_density: Float[Tensor, " N"]
    cdf: Float[Tensor, " N"]
    mean: Float[Tensor, " N"]
    evidence: Float[Tensor, " k"]  # of each context, as a whole


@dataclass(frozen=True, eq=False)
class Values:
    """The held-out values themselves: which task each is of, and its weight (tasks and settings count the same)."""

    task: Int[Tensor, " N"]
    weight: Float[Tensor, " N"]
    y: Float[Tensor, " N"]
    known: Int[Tensor, " k"]  # number of values in each context
    setting: Int[Tensor, " N"]  # which of the settings each value is from

    def per_task(self, values: Float[Tensor, " N"]) -> Float[Tensor, " m"]:
        """The weighted mean of each task that has values."""
        count = int(self.task.max()) + 1
        sums, weights = torch.zeros(2, count, dtype=torch.float64)
        sums.index_add_(0, self.task, self.weight * values)
        weights.index_add_(0, self.task, self.weight)
        found: Tensor = sums / weights
        return found[weights > 0]


class Tried(NamedTuple):
    """A rung, its log density per held-out value with standard error over tasks, and how far it is from the best."""

    name: str
    density: Summary
    behind: Summary
    mse: float


class Auto(Saved):
    """The prior that suits the tasks, chosen on held-out ones.

    contexts: how it will be asked; by default from a few random points and, with one input, from the first few too.
    rungs: names of the ladder; by default all that suit the number of tasks. After `fit`: `method_`, `chosen_` (rungs
    and weights), `tried_`, `why_`, `calibration_`, `coverage_` (of 90% intervals on held-out tasks, before and after).
    """

    kind = "auto"
    method_: Any

    def __init__(
        self,
        *,
        contexts: ContextsBySetting | None = None,
        rungs: Sequence[str] = (),
        seed: int = 0,
        progress: bool | str = True,
    ) -> None:
        for name in rungs:
            if name not in LADDER:
                raise UnknownNameError("rung", name, LADDER)
        self.contexts, self.rungs, self.seed, self.progress = contexts, tuple(rungs), seed, progress

    def fit(self, tasks: Tasks, *, checkpoint: str | Path | None = None) -> Self:
        """Try every rung on held-out tasks, choose, recalibrate, and learn the choice from all tasks.

        checkpoint: a file in which the rungs that were tried are kept; where there is one, it goes on there.
        """
        folds, names = self._folds(tasks), list(self.rungs) or rungs_for(tasks)
        file = None if checkpoint is None else Checkpoint(Path(checkpoint), fingerprint_of([tasks], names, self.seed))
        seen, values, self.left_out_, self._labels = _resumed(file)
        kept: dict[str, Any] = {}
        label = self.progress if isinstance(self.progress, str) else "choosing a prior"
        with progress_bar(label, len(names) + 1, show=bool(self.progress)) as advance:
            for name in names:
                if name not in seen and name not in self.left_out_:
                    try:
                        seen[name], values, kept[name] = self._try(name, tasks, folds)
                    except MetapriorError as error:
                        self.left_out_[name] = str(error)
                    if file is not None:
                        file.write(
                            {
                                "seen": _as_dicts(seen),
                                "values": _as_dict(values),
                                "left_out": self.left_out_,
                                "labels": self._labels,
                            }
                        )
                advance(name)
            if values is None:
                raise DataError("no prior can be learned from these tasks: " + "; ".join(self.left_out_.values()))
            self._choose(seen, values)
            training = tasks if len(folds) > 1 else folds[0][0]
            methods = [kept.get(name) or self._fitted(name, training) for name in self.chosen_]
            self.method_ = Combination(methods, list(self.chosen_.values())) if len(methods) > 1 else methods[0]
            advance("learning from all tasks")
        if file is not None:
            file.remove()
        self.fallback_ = GPPerTask().fit(tasks)
        self.trained_on_ = TrainedOn.of(tasks)
        return self

    def plausibility(self, context: Tasks) -> Float[Tensor, " m"]:
        """How usual each context is: the share of held-out contexts of similar size that the prior found less likely.

        A task of the past's kind has any value from 0 to 1; one unlike all of them has nearly 0; without points, 1.
        """
        found = torch.ones(len(context), dtype=torch.float64)
        some = torch.nonzero(context.sizes > 0)[:, 0]
        if len(some):
            given = context.select(some)
            surprise = _evidence(self.method_, given) / (given.sizes * given.p)
            found[some] = _share_below(surprise, given.sizes * given.p, *self.usual_)
        return found

    def predict(self, context: Tasks, at: Tasks) -> CalibratedPosterior:
        """The posterior of each target task, given its context."""
        return CalibratedPosterior(self.method_.predict(context, at), self.calibration_)

    def _folds(self, tasks: Tasks) -> list[tuple[Tasks, Tensor]]:
        """Tasks to learn from, and which ones to judge by."""
        if len(tasks) < 2:
            raise DataError("one task says nothing about others: give two or more, or choose mean and kernel.")
        order = torch.randperm(len(tasks), generator=generator_of(self.seed))
        if len(tasks) >= ENOUGH:
            held, rest = order.tensor_split([round(SHARE * len(tasks))])
            return [(tasks.select(rest.sort().values), held.sort().values)]
        parts = order.tensor_split(min(FOLDS, len(tasks)))
        return [
            (tasks.select(torch.cat([other for other in parts if other is not part]).sort().values), part.sort().values)
            for part in parts
        ]

    def _fitted(self, name: str, tasks: Tasks) -> Any:
        return LADDER[name](tasks, self.seed).fit(tasks)

    def _try(self, name: str, tasks: Tasks, folds: list[tuple[Tasks, Tensor]]) -> tuple[Seen, Values, Any]:
        steps, labels = resolution(tasks), self._labels
        parts: list[Seen] = []
        rows: list[Values] = []
        method = None
        for training, judge in folds:
            method = self._fitted(name, training)
            for label, which, (context, target) in self._splits(tasks.select(judge)):
                posterior = method.predict(context, target)
                density = recorded_density(posterior, target.y, steps)
                if not bool(density.isfinite().all()):
                    raise DataError("a held-out value is impossible under it.")
                said = (density, posterior.cdf(target.y), posterior.mean, _evidence(method, context))
                parts.append(Seen(*(part.flatten() for part in said)))
                owner = judge[which][target.task_of_row].repeat_interleave(target.p)
                share = (1 / target.sizes.double() / target.p)[target.task_of_row].repeat_interleave(target.p)
                place = labels.setdefault(label, len(labels))
                setting = torch.full_like(owner, place)
                rows.append(Values(owner, share, target.y.flatten(), context.sizes * context.p, setting))
        if not parts:
            raise DataError("no held-out task has points to predict.")
        return _joined(Seen, parts), _joined(Values, rows), method if len(folds) == 1 else None

    def _splits(self, tasks: Tasks) -> Iterator[tuple[str, Tensor, ContextTarget]]:
        """Contexts and targets under the name of their setting, with the positions of their tasks."""
        place = {name: i for i, name in enumerate(tasks.ids)}
        for contexts in self._settings(tasks):
            try:
                found = contexts(tasks)
            except DataError:
                continue  # none of these tasks can be split so: they say nothing
            for label, split in found.items():
                yield label, torch.tensor([place[name] for name in split.target.ids]), split

    def _settings(self, tasks: Tasks) -> list[ContextsBySetting]:
        if self.contexts is not None:
            return [self.contexts]
        if int(tasks.sizes.max()) < 2:
            return [random_sizes([0], self.seed)]
        sizes = default_sizes(tasks)
        ahead = [first_sizes(sizes)] if tasks.d == 1 else []
        return [random_sizes(sizes, self.seed), *ahead]

    def _choose(self, seen: dict[str, Seen], values: Values) -> None:
        per_task = {name: values.per_task(found.log_density) for name, found in seen.items()}
        best = max(per_task, key=lambda name: float(per_task[name].mean()))
        self.tried_ = [
            Tried(
                name,
                summarise(found),
                summarise(per_task[best] - found),
                float(values.per_task((seen[name].mean - values.y).square()).mean()),
            )
            for name, found in per_task.items()
        ]
        most = SIMPLER * next(one.mse for one in self.tried_ if one.name == best)
        near = [one for one in self.tried_ if one.behind.mean <= (one.behind.stderr or 0.0)]
        simplest = next(one for one in near if one.name == best or one.mse <= most)
        self.chosen_, self.why_ = {simplest.name: 1.0}, _because(simplest.name, best, simplest)
        stacked = self._stack(seen, values)
        together = _cross_fitted(seen, values, self.seed)
        gain = summarise(together - per_task[simplest.name]) if together is not None else Summary(0.0, None, 0)
        if len(stacked) > 1 and gain.stderr is not None and gain.mean > 2 * gain.stderr:
            self.chosen_ = stacked
            self.why_ = (
                f"a combination gains {gain.mean:.3f} ± {gain.stderr:.3f} of log density per value over "
                f"{simplest.name} alone, with weights from other held-out tasks than those it is judged on."
            )
        cdf = sum(weight * seen[name].cdf for name, weight in self.chosen_.items())
        assert isinstance(cdf, Tensor)
        self.calibration_ = Calibration.of(cdf, values.weight, int(values.task.unique().numel()))
        before, after = (values.per_task(_inside(cdf, one)) for one in (Calibration.identity(), self.calibration_))
        self.coverage_ = (float(before.mean()), float(after.mean()))
        self.scores_ = self._scores(seen, values, cdf)
        evidences = torch.stack([math.log(weight) + seen[name].evidence for name, weight in self.chosen_.items()])
        some = values.known > 0
        self.usual_ = (evidences.logsumexp(0)[some] / values.known[some], values.known[some])

    def _scores(self, seen: dict[str, Seen], values: Values, cdf: Float[Tensor, " N"]) -> dict[str, Any]:
        """How the choice predicted held-out tasks, by setting: what a page about the model shows."""
        mean = sum(weight * seen[name].mean for name, weight in self.chosen_.items())
        density = torch.stack([math.log(weight) + seen[name].log_density for name, weight in self.chosen_.items()])
        off_centre = 2 * (torch.special.ndtr(self.calibration_.inward(normal_scores(cdf))[0]) - 0.5).abs()
        found = {}
        for label, place in self._labels.items():
            here = values.setting == place
            part = Values(values.task[here], values.weight[here], values.y[here], values.known, values.setting[here])
            error = summarise(part.per_task((mean - values.y).square()[here]))
            told = {
                "mse": error._asdict(),
                "log_likelihood": summarise(part.per_task(density.logsumexp(0)[here]))._asdict(),
            }
            inside = {
                str(level): float(part.per_task((off_centre[here] <= level / 100).double()).mean()) for level in LEVELS
            }
            found[label] = told | {"coverage_90": {"mean": inside["90"], "stderr": None}, "coverage": inside}
        return found

    def _stack(self, seen: dict[str, Seen], values: Values) -> dict[str, float]:
        """Weights under which held-out values are most probable, moved towards those of the least squared error.

        As far as needed for an error within one standard error of the least: a combination is asked for its mean too.
        """
        by_density = stacking_weights(_matrix(seen), values.weight)
        means = torch.stack([found.mean for found in seen.values()], 1)
        by_error = least_squares_weights(means, values.y, values.weight)
        least = values.per_task((means @ by_error - values.y).square())
        for step in torch.linspace(0, 1, 21, dtype=torch.float64).tolist():
            weights = (1 - step) * by_density + step * by_error
            more = summarise(values.per_task((means @ weights - values.y).square()) - least)
            if more.mean <= (more.stderr or 0.0):
                break
        kept = {name: weight for name, weight in zip(seen, weights.tolist(), strict=True) if weight >= LEAST_WEIGHT}
        total = sum(kept.values())
        return {name: weight / total for name, weight in kept.items()}

    def state(self) -> State:
        """The choice and its calibration, for a file."""
        tried = [
            {"name": one.name, "density": list(one.density), "behind": list(one.behind), "mse": one.mse}
            for one in self.tried_
        ]
        structure = {
            "chosen": self.chosen_,
            "why": self.why_,
            "reach": list(self.calibration_.reach),
            "coverage": list(self.coverage_),
            "tried": tried,
            "left_out": self.left_out_,
        }
        usual = {"usual.evidence": self.usual_[0], "usual.sizes": self.usual_[1]}
        parts = {"method": self.method_.state(), "fallback": self.fallback_.state()}
        return State(self.kind, structure, usual).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        found, structure = cls(), state.structure
        found.method_, found.fallback_ = state.method("method"), state.method("fallback")
        found.usual_ = (state.tensor("usual.evidence"), state.tensor("usual.sizes"))
        found.chosen_, found.why_, found.left_out_ = dict(structure["chosen"]), structure["why"], structure["left_out"]
        found.calibration_ = Calibration(tuple(float(value) for value in structure["reach"]))
        found.coverage_ = tuple(structure["coverage"])  # type: ignore[assignment]
        found.tried_ = [
            Tried(one["name"], Summary(*one["density"]), Summary(*one["behind"]), one["mse"])
            for one in structure["tried"]
        ]
        return found


def resolution(tasks: Tasks) -> Float[Tensor, " p"]:
    """The step in which each target was recorded: the least gap between its values, where these repeat; else 0."""
    found = []
    for column in tasks.y.unbind(1):
        distinct = column.unique()
        repeats = len(distinct) > 1 and REPEATED * len(distinct) <= len(column)
        found.append(float(distinct.diff().min()) if repeats else 0.0)
    return torch.tensor(found, dtype=torch.float64)


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


@torch.no_grad()
def _evidence(method: Any, context: Tasks) -> Float[Tensor, " m"]:
    """The log density of each context as a whole, before anything of its task is known."""
    blank = Tasks.empty(context.ids, context.d, context.p)
    found: Tensor = method.predict(blank, context).joint_log_density(context.y)
    return found


def _share_below(
    surprise: Float[Tensor, " m"], sizes: Int[Tensor, " m"], usual: Float[Tensor, " k"], known: Int[Tensor, " k"]
) -> Float[Tensor, " m"]:
    """For each context, the share of usual ones of the nearest sizes whose evidence per value is lower."""
    found = torch.ones(len(surprise), dtype=torch.float64)
    for size in sizes.unique().tolist():
        near = (known.double() / size).log().abs()
        close = near <= near.sort().values[min(NEAREST, len(near)) - 1]
        here = sizes == size
        lower = (usual[close][None, :] < surprise[here][:, None]).sum(1)
        found[here] = (1 + lower).double() / (1 + int(close.sum()))
    return found


def _joined(kind: type[Any], parts: Sequence[Any]) -> Any:
    return kind(*(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(kind)))


def _as_dict(values: Seen | Values | None) -> dict[str, Tensor]:
    return {} if values is None else {one.name: getattr(values, one.name) for one in fields(values)}


def _as_dicts(seen: dict[str, Seen]) -> dict[str, dict[str, Tensor]]:
    return {name: _as_dict(found) for name, found in seen.items()}


def _resumed(file: Checkpoint | None) -> tuple[dict[str, Seen], Values | None, dict[str, str], dict[str, int]]:
    """What an earlier run has tried."""
    kept = None if file is None else file.read()
    if kept is None:
        return {}, None, {}, {}
    seen = {name: Seen(**found) for name, found in kept["seen"].items()}
    return seen, Values(**kept["values"]) if kept["values"] else None, dict(kept["left_out"]), dict(kept["labels"])


def stacking_weights(log_density: Float[Tensor, "N k"], weight: Float[Tensor, " N"]) -> Float[Tensor, " k"]:
    """The weights of a mixture of fixed densities under which held-out values are most probable, by EM."""
    k = log_density.shape[1]
    shares = torch.full((k,), 1 / k, dtype=torch.float64)
    for _ in range(1000):
        responsible = torch.softmax(log_density + shares.log(), 1)
        new = (weight[:, None] * responsible).sum(0) / weight.sum()
        if float((new - shares).abs().max()) < 1e-6:
            return new
        shares = new.clamp(min=1e-300)
    return shares


def least_squares_weights(
    means: Float[Tensor, "N k"], y: Float[Tensor, " N"], weight: Float[Tensor, " N"]
) -> Float[Tensor, " k"]:
    """The weights, none negative and 1 together, of the combined mean with the least squared error.

    By multiplicative updates (exponentiated gradient): each step lowers what has more error than the rest.
    """
    share = (weight / weight.sum())[:, None]
    residuals = means - y[:, None]
    gram = residuals.mT @ (share * residuals)  # the error of weights w is wᵀ gram w
    shares = torch.full((means.shape[1],), 1 / means.shape[1], dtype=torch.float64)
    rate = 0.5 / float(gram.diagonal().max().clamp(min=1e-300))
    for _ in range(2000):
        slope = 2 * gram @ shares
        shares = torch.softmax(shares.clamp(min=1e-300).log() - rate * (slope - slope.min()), 0)
    return shares


def _cross_fitted(seen: dict[str, Seen], values: Values, seed: int) -> Float[Tensor, " m"] | None:
    """What a combination would have scored on tasks that its weights were not learned from."""
    if len(seen) < 2:
        return None
    density, tasks = _matrix(seen), values.task.unique()
    first = tasks[torch.randperm(len(tasks), generator=generator_of(seed + 1))[: len(tasks) // 2]]
    in_first = torch.isin(values.task, first)
    if not bool(in_first.any()) or bool(in_first.all()):
        return None
    found = torch.empty_like(values.y)
    for learn, judge in ((in_first, ~in_first), (~in_first, in_first)):
        shares = stacking_weights(density[learn], values.weight[learn])
        found[judge] = torch.logsumexp(density[judge] + shares.log(), 1)
    return values.per_task(found)


def _matrix(seen: dict[str, Seen]) -> Float[Tensor, "N k"]:
    return torch.stack([found.log_density for found in seen.values()], 1)


def _inside(cdf: Float[Tensor, " N"], calibration: Calibration) -> Float[Tensor, " N"]:
    """Whether each value lies in its 90% interval."""
    score = calibration.inward(normal_scores(cdf))[0].abs()
    return (score <= float(torch.special.ndtri(torch.tensor(0.95, dtype=torch.float64)))).double()


def _because(name: str, best: str, one: Tried) -> str:
    if name == best:
        return f"{name} has the highest log density on held-out tasks, and nothing simpler comes near."
    return (
        f"{name} is the simplest within one standard error of the best, {best}, on held-out tasks (behind by "
        f"{one.behind.mean:.3f} ± {one.behind.stderr or math.nan:.3f} of log density per value)."
    )
