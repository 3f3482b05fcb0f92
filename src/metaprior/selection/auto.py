"""`auto`: climb the ladder, judge every rung on tasks it has not seen, and take the simplest that is as good as any.

Held-out predictions decide three things: which rung (or which combination of rungs), how wide its bounds must be, and
which new tasks are so unlike the past ones that the prior should not be trusted with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.baselines import GPPerTask
from metaprior.errors import DataError, MetapriorError, UnknownNameError
from metaprior.files import Saved, State
from metaprior.inference import CalibratedPosterior, Calibration
from metaprior.inference.calibrated import normal_scores
from metaprior.learning.checkpoints import Checkpoint, fingerprint_of
from metaprior.methods import Combination
from metaprior.progress import progress_bar
from metaprior.scoring import LEVELS, Summary, summarise
from metaprior.seeds import generator_of
from metaprior.selection.held_out import Seen, Values, as_dict, as_dicts, joined, recorded_density
from metaprior.selection.ladder import ALONE, LADDER, TAKES_TASK_X, rungs_for
from metaprior.selection.splits import ContextsBySetting, default_sizes, first_sizes, random_sizes
from metaprior.selection.stacking import combined_weights, cross_fitted
from metaprior.tasks import ContextTarget, Tasks, TrainedOn
from metaprior.tasks.rounding import resolution

FOLDS = 5
ENOUGH = 400
"""From so many tasks on, one part held out says enough."""

SHARE = 0.25
"""Of the tasks, held out where there are enough."""

NEAREST = 50
"""Held-out contexts of the nearest sizes that a new one is compared with, at least."""

SIMPLER = 1.05
"""Times the squared error of the best rung: what a simpler one may have that is taken in its place."""

NEAR = 0.2
"""Log density per value that a simpler rung may be behind at most, however wide the standard error of few tasks is."""

ENOUGH_TO_COMBINE = 10
"""Tasks below which the weights of a combination cannot be told."""

LEAST_WEIGHT = 0.03
"""A rung of less weight in a combination is left out of it."""


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
        folds, names = self._folds(tasks), self._names(tasks)
        file = None if checkpoint is None else Checkpoint(Path(checkpoint), self._fingerprint(tasks))
        seen, values, self.left_out_, self._labels = _resumed(file)
        label = self.progress if isinstance(self.progress, str) else "choosing a prior"
        with progress_bar(label, len(names) + 1, show=bool(self.progress)) as advance:
            for name in names:
                if name not in seen and name not in self.left_out_:
                    try:
                        seen[name], values = self._try(name, tasks, folds)
                    except MetapriorError as error:
                        self.left_out_[name] = str(error)
                    if file is not None:
                        file.write(
                            {
                                "seen": as_dicts(seen),
                                "values": as_dict(values),
                                "left_out": self.left_out_,
                                "labels": self._labels,
                            }
                        )
                advance(name)
            if values is None:
                raise DataError("no prior can be learned from these tasks: " + "; ".join(self.left_out_.values()))
            self._choose(seen, values)
            methods = [self._fitted(name, tasks) for name in self.chosen_]
            self.method_ = Combination(methods, list(self.chosen_.values())) if len(methods) > 1 else methods[0]
            advance("learning the choice")
        if file is not None:
            file.remove()
        self.fallback_ = GPPerTask().fit(tasks)
        takes = any(method.trained_on_.columns.task_x for method in methods)
        self.trained_on_ = TrainedOn.of(tasks, task_x=takes)
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

    def _fingerprint(self, tasks: Tasks) -> str:
        """Of everything that the rungs' scores depend on."""
        folds = self._folds(tasks)
        judged = [split.context for _, held in folds for *_, split in self._splits(tasks.select(held))]
        return fingerprint_of([tasks, *judged], self._names(tasks), self.seed)

    def _names(self, tasks: Tasks) -> list[str]:
        """The rungs to try; where tasks have covariates, what takes them in is tried without them first."""
        names = list(self.rungs) or rungs_for(tasks)
        if tasks.covariates is None:
            return names
        return [name for rung in names for name in ([rung + ALONE, rung] if rung in TAKES_TASK_X else [rung])]

    def _fitted(self, name: str, tasks: Tasks) -> Any:
        given = tasks.without_task_x() if name.endswith(ALONE) else tasks
        return LADDER[name.removesuffix(ALONE)](given, self.seed).fit(given)

    def _try(self, name: str, tasks: Tasks, folds: list[tuple[Tasks, Tensor]]) -> tuple[Seen, Values]:
        steps, labels = resolution(tasks), self._labels
        parts: list[Seen] = []
        rows: list[Values] = []
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
        return joined(Seen, parts), joined(Values, rows)

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
        near = [one for one in self.tried_ if one.behind.mean <= min(one.behind.stderr or 0.0, NEAR)]
        simplest = next(one for one in near if one.name == best or one.mse <= most)
        self.chosen_, self.why_ = {simplest.name: 1.0}, _because(simplest.name, best, simplest)
        stacked = self._stack(seen, values)
        enough = len(per_task[best]) >= ENOUGH_TO_COMBINE
        together = cross_fitted(seen, values, self.seed) if enough else None
        gain = summarise(together - per_task[simplest.name]) if together is not None else Summary(0.0, None, 0)
        if len(stacked) > 1 and gain.stderr is not None and gain.mean > gain.stderr:
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
            part = values.some(here)
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
        weights = combined_weights(seen, values).tolist()
        kept = {name: weight for name, weight in zip(seen, weights, strict=True) if weight >= LEAST_WEIGHT}
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
    for size in sizes.unique().tolist() if len(usual) else ():
        near = (known.double() / size).log().abs()
        close = near <= near.sort().values[min(NEAREST, len(near)) - 1]
        here = sizes == size
        lower = (usual[close][None, :] < surprise[here][:, None]).sum(1)
        found[here] = (1 + lower).double() / (1 + int(close.sum()))
    return found


def _resumed(file: Checkpoint | None) -> tuple[dict[str, Seen], Values | None, dict[str, str], dict[str, int]]:
    """What an earlier run has tried."""
    kept = None if file is None else file.read()
    if kept is None:
        return {}, None, {}, {}
    seen = {name: Seen(**found) for name, found in kept["seen"].items()}
    return seen, Values(**kept["values"]) if kept["values"] else None, dict(kept["left_out"]), dict(kept["labels"])


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
