"""`auto`: climb the ladder, judge every rung on tasks it has not seen, and combine those that they speak for.

Held-out predictions decide three things: which rungs with which weights, how wide the bounds must be, and which new
tasks are so unlike the past ones that the prior should not be trusted with them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.devices import device_of
from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.files import State, check_numbers
from metaprior.inference import CalibratedConditional, Calibration, Conditional, KeptMethod, Posterior
from metaprior.learning import Checkpoint, fingerprint_of, going_on
from metaprior.methods import METHODS, All, Combination, Entry, add_methods, go_on, named_methods
from metaprior.progress import progress_bar
from metaprior.scoring import LEVELS, Scores, Summary, covers, summarise
from metaprior.selection.cross_fitting import CrossFitted, cross_fitted, fitted_ensemble
from metaprior.selection.trials import ALONE, Plan, Trials, cost_of
from metaprior.selection.trying import Seen, Values, combined
from metaprior.splits import Contexts, checked_contexts, default_contexts
from metaprior.tasks import Tasks, TrainedOn, check_targets

NEAREST = 50
"""Held-out contexts of the nearest sizes that a new one is compared with, at least."""


class Tried(NamedTuple):
    """A rung, its log density per held-out value with standard error over tasks, and how far it is from the best.

    A rung that was given up early was tried on some of the held-out tasks only.
    """

    name: str
    density: Summary
    behind: Summary
    mse: float
    seconds: float | None = None


def check_several(tasks: Tasks) -> None:
    """Whether a prior can be chosen at all."""
    if len(tasks) < 2:
        raise DataError(
            "there is one task only: what tasks have in common cannot be learned from it. Give two or more (is it the "
            "right column that names them?), or choose mean and kernel, such as constant and rbf, for a Gaussian "
            "process of this task alone."
        )


class Auto(KeptMethod):
    """The prior that suits the tasks, chosen on held-out ones.

    contexts: how it will be asked; by default from a few random points and from the first few.
    rungs: names of methods; by default all that suit the number of tasks. budget: seconds after which no more rungs are
    tried; the quick ones are in any case. thorough: all rungs on all tasks, however many there are: nothing is given up
    early, or ranked on a sample. device: "cpu", "cuda", or "auto" (a GPU where there is one): what gains from a GPU
    learns and answers there. After `fit`: `method_`, `chosen_` (rungs
    and weights), `tried_`, `why_`, `calibration_`, `coverage_` (of 90% intervals on held-out tasks, before and after),
    `held_out_densities_` (log density of each held-out task, by setting); `weighed_by_` names the tasks from which
    nothing was learned but weights and calibration, where there are many.
    """

    saved_as = "auto"
    fitted_as = "method_"
    method_: Any
    chosen_: dict[str, float]
    tried_: list[Tried]

    def __init__(
        self,
        *,
        contexts: Contexts | None = None,
        rungs: Sequence[str] = (),
        budget: float | None = None,
        thorough: bool = False,
        device: str = "cpu",
        seed: int = 0,
        progress: bool | str = True,
    ) -> None:
        known = named_methods(lambda one: one.rung)
        for name in rungs:
            if name not in known:
                raise UnknownNameError("rung", name, known)
        if budget is not None and not budget >= 0:
            raise OptionError(
                f"a budget of {budget:g} seconds: give 0 or more. With 0 the quick rungs alone are tried."
            )
        self.contexts, self.rungs = checked_contexts(contexts), tuple(rungs)
        self.budget, self.thorough, self.seed, self.progress = budget, thorough, seed, progress
        self.device = device

    def fit(self, tasks: Tasks, *, checkpoint: str | Path | None = None, keep: bool = False) -> Self:
        """Try every rung on held-out tasks, choose, recalibrate, and learn the choice from all tasks.

        checkpoint: a file in which the rungs that were tried are kept; where there is one, it goes on there. keep:
        leave it when all is learned.
        """
        check_several(tasks)
        check_targets(tasks)
        contexts, names = self.contexts or default_contexts(tasks, self.seed), self._names(tasks)
        plan = Plan.of(tasks, self.seed, self.thorough)
        device_of(self.device)  # one that is not there is told before anything is tried
        trials = Trials(plan, contexts, names, self.seed, self.budget, self.device)
        file = None if checkpoint is None else Checkpoint(Path(checkpoint), self._fingerprint(tasks, contexts))
        label = self.progress if isinstance(self.progress, str) else "choosing a prior"
        total = plan.rounds * sum(map(cost_of, names))
        with progress_bar(label, total, show=bool(self.progress), in_shares=True) as advance, going_on(file):
            trials.run(file, advance)
            self.left_out_ = trials.left_out
            seen = trials.complete()
            if not seen:
                raise DataError("no prior can be learned from these tasks: " + "; ".join(self.left_out_.values()))
            values = trials.known(trials.done)
            found = self._choose(seen, values, trials.labels)
            self.held_out_densities_ = _densities_by_task(found, values, trials)
            self.tried_ = _all_tried(trials, self.tried_)
            untried = [name for name in names if name not in trials.seen and name not in self.left_out_]
            self.left_out_ |= dict.fromkeys(untried, "not tried: the time was up")
            advance("learning the choice", 0)
            methods = [trials.fitted(name, tasks) for name in self.chosen_]
            self.weighed_by_ = [tasks.ids[k] for k in plan.waves[-1][0].judge.tolist()] if plan.growing else []
            self.method_ = Combination(methods, list(self.chosen_.values())) if len(methods) > 1 else methods[0]
            self.method_.to(self.device)
        if file is not None and not keep:
            file.remove()
        takes = any(method.trained_on_.columns.task_x for method in methods)
        self.trained_on_ = TrainedOn.of(tasks, task_x=takes)
        return self

    def condition(self, context: Tasks) -> AutoConditional:
        """The choice with what is known of some tasks."""
        self._check_fitted()
        return AutoConditional(self.method_.condition(context), self.calibration_, self.usual_)

    def to(self, device: str) -> Self:
        """Learn and answer there from now on."""
        super().to(device)
        self.device = device
        if hasattr(self, "method_"):
            self.method_.to(device)
        return self

    def plausibility(self, context: Tasks) -> Float[Tensor, " m"]:
        """How usual each context is: the share of held-out contexts of similar size that the prior found less likely.

        A task of the past's kind has any value from 0 to 1; one unlike all of them has nearly 0; without points, 1.
        """
        return self.condition(context).plausibility

    def _fingerprint(self, tasks: Tasks, contexts: Contexts) -> str:
        """Of everything that the rungs' scores depend on."""
        judged = [split.context for split in contexts(tasks).values()]
        return fingerprint_of([tasks, *judged], self._names(tasks), self.seed, self.thorough, tasks.possible)

    def _names(self, tasks: Tasks) -> list[str]:
        """The rungs to try; where tasks have covariates, what takes them in is tried without them first."""
        names = self.rungs or named_methods(lambda one: one.suits(tasks))
        if tasks.covariates is None:
            return list(names)
        return [name for rung in names for name in ([rung + ALONE] * METHODS[rung].takes_task_x + [rung])]

    def _choose(self, seen: dict[str, Seen], values: Values, labels: Sequence[str]) -> Seen:
        """Weights, recalibration and typical evidence from all held-out values; scores by cross-fitting.

        Returns:
            The cross-fitted predictions of the held-out values.
        """
        per_task = {name: float(values.per_task(found.density).mean()) for name, found in seen.items()}
        best = max(per_task, key=lambda name: per_task[name])
        self.tried_ = [_tried(name, found, seen[best], values) for name, found in seen.items()]
        self.chosen_, self.calibration_ = fitted_ensemble(seen, values, self.seed)
        chosen = combined(seen, self.chosen_)
        gained = values.per_task(chosen.density - seen[best].density)
        self.why_ = _because(self.chosen_, best, summarise(gained))
        some = (values.known > 0) & chosen.evidence.isfinite()
        self.usual_ = (chosen.evidence[some] / values.known[some], values.known[some])
        found = cross_fitted(seen, values, self.seed)
        self._score(found, values, labels)
        return found.recalibrated

    def _score(self, found: CrossFitted, values: Values, labels: Sequence[str]) -> None:
        """`coverage_` and `scores_`, of tasks without a say in the weights and the recalibration they are scored by."""
        covered = [values.per_task(covers(*one.pit, 90)) for one in (found.ensemble, found.recalibrated)]
        self.coverage_ = (float(covered[0].mean()), float(covered[1].mean()))
        self.scores_ = {
            label: _described(found.recalibrated.some(values.setting == k), values.some(values.setting == k))
            for k, label in enumerate(labels)
            if bool((values.setting == k).any())
        }

    def state(self) -> State:
        """The choice and its calibration, for a file."""
        self._check_fitted()
        told = {"seconds": None}  # the same choice is the same file, however long it took
        tried = [
            one._asdict() | {"density": list(one.density), "behind": list(one.behind)} | told for one in self.tried_
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
        return State(self.saved_as, structure, usual).with_parts({"method": self.method_.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again. Files of version 0.2.0 hold a second method, `fallback`, which is not read."""
        found, structure = cls(), state.structure
        figures = [figure for one in structure["tried"] for figure in (*one["density"], *one["behind"], one["mse"])]
        check_numbers([*structure["chosen"].values(), *structure["coverage"], *figures])
        found.method_ = state.method("method")
        found.usual_ = (state.tensor("usual.evidence"), state.tensor("usual.sizes"))
        found.chosen_, found.why_, found.left_out_ = dict(structure["chosen"]), structure["why"], structure["left_out"]
        found.calibration_ = Calibration(tuple(float(value) for value in structure["reach"]))
        before, after = structure["coverage"]
        found.coverage_ = (before, after)
        found.tried_ = [
            Tried(**one | {"density": Summary(*one["density"]), "behind": Summary(*one["behind"])})
            for one in structure["tried"]
        ]
        return found


add_methods(
    {
        "auto": Entry(
            lambda tasks, seed, asked: Auto(contexts=asked, seed=seed, progress=False),
            "#661100",
            compared=True,
            takes_task_x=True,
        )
    }
)


@go_on.register
def _(method: Auto, given: All, name: str) -> list[str]:
    """Those that it has chosen go on, each for itself; weights and calibration stay."""
    inner = method.method_
    members = inner.methods if isinstance(inner, Combination) else [inner]
    return [note for own, one in zip(method.chosen_, members, strict=True) for note in go_on(one, given, own)]


class AutoConditional(CalibratedConditional):
    """The choice with what is known of some tasks. usual: evidence per value and size of held-out contexts."""

    def __init__(
        self,
        conditional: Conditional[Posterior],
        calibration: Calibration,
        usual: tuple[Float[Tensor, " k"], Int[Tensor, " k"]],
    ) -> None:
        super().__init__(conditional, calibration)
        self.usual = usual

    @property
    def plausibility(self) -> Float[Tensor, " m"]:
        """How usual each context is: the share of held-out ones of similar size that the prior found less likely."""
        values = (self.context.sizes * self.context.p).to(self.device)
        found = torch.ones(len(values), dtype=torch.float64, device=values.device)
        some = torch.nonzero(values > 0)[:, 0]
        if len(some) and self.evidence is not None:
            surprise = self.evidence.total.detach()[some] / values[some]
            found[some] = _share_below(surprise, values[some], *self.usual)
        return found


def _tried(name: str, own: Seen, best: Seen, values: Values, seconds: float | None = None) -> Tried:
    """How a rung has done, beside the best on the same tasks."""
    density = values.per_task(own.density)
    behind = values.per_task(best.density) - density
    mse = float(values.per_task((own.mean - values.y).square()).mean())
    return Tried(name, summarise(density), summarise(behind), mse, seconds)


def _all_tried(trials: Trials, complete: Sequence[Tried]) -> list[Tried]:
    """Those that were given up as well, on the tasks that they were tried on."""
    best = max(complete, key=lambda one: one.density.mean).name
    found = []
    for name, parts in trials.seen.items():
        waves = min(len(parts), trials.done)
        own, other = trials.said(name, waves), trials.said(best, waves)
        found.append(_tried(name, own, other, trials.known(waves), trials.seconds[name]))
    return found


def _densities_by_task(found: Seen, values: Values, trials: Trials) -> dict[str, Scores]:
    """Log density of each held-out task, averaged over its values, by setting."""
    density, ids, scores = found.density, trials.task_ids(trials.done), {}
    for k, label in enumerate(trials.labels):
        by_task: dict[Hashable, list[float]] = {}
        for place in torch.nonzero(values.setting == k)[:, 0].tolist():
            by_task.setdefault(ids[place], []).append(float(density[place]))
        if by_task:
            means = torch.tensor([sum(some) / len(some) for some in by_task.values()], dtype=torch.float64)
            scores[label] = Scores(tuple(by_task), {"log_likelihood": means})
    return scores


def _described(seen: Seen, values: Values) -> dict[str, Any]:
    """How the choice predicted held-out tasks in one setting: what a page about the model shows."""
    inside = {str(level): float(values.per_task(covers(*seen.pit, level)).mean()) for level in LEVELS}
    return {
        "mse": summarise(values.per_task((seen.mean - values.y).square()))._asdict(),
        "log_likelihood": summarise(values.per_task(seen.density))._asdict(),
        "coverage_90": {"mean": inside["90"], "stderr": None},
        "coverage": inside,
    }


def _share_below(
    surprise: Float[Tensor, " m"], sizes: Int[Tensor, " m"], usual: Float[Tensor, " k"], known: Int[Tensor, " k"]
) -> Float[Tensor, " m"]:
    """For each context, the share of usual ones of the nearest sizes whose evidence per value is lower."""
    found, usual, known = torch.ones_like(surprise), usual.to(surprise), known.to(surprise.device)
    for size in sizes.unique().tolist() if len(usual) else ():
        near = (known.double() / size).log().abs()
        close = near <= near.sort().values[min(NEAREST, len(near)) - 1]
        here = sizes == size
        lower = (usual[close][None, :] < surprise[here][:, None]).sum(1)
        found[here] = (1 + lower).double() / (1 + int(close.sum()))
    return found


def _because(weights: Mapping[str, float], best: str, gain: Summary) -> str:
    """Why the candidates with these weights were chosen.

    Args:
        weights: of the candidates in the ensemble.
        best: the candidate of the highest log density.
        gain: the ensemble's log density per held-out value, less that of the best candidate.
    """
    if list(weights) == [best]:
        return f"{best} alone has the highest log density on held-out tasks, and no other candidate adds to it."
    difference = f"{gain.mean:+z.3f} ± {gain.stderr or math.nan:.3f} from that of the best candidate alone, {best}"
    reason = f"its log density per held-out value is {difference}"
    return (
        f"{reason}." if gain.mean >= 0 else f"{reason}: a tie within a standard error, and its squared error is lower."
    )
