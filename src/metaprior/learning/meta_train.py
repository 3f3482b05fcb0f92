"""`meta_train`: learn a prior from meta-tasks until the evidence of held-out ones stops improving."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from torch import nn

from metaprior.arrays import Array
from metaprior.devices import within_memory
from metaprior.errors import DataError, NumericalError
from metaprior.inference import Covariances, StackedTasks, check_fits, stacked_evidence
from metaprior.learning.checkpoints import Checkpoint, fingerprint_of, going_on
from metaprior.learning.lbfgs import Ended, learn_together
from metaprior.learning.objective import HeldOut, Loss, evidence_loss, predictive_loss, with_hyper_prior
from metaprior.learning.on_gpu import PriorOnGPU
from metaprior.learning.spec import TrainingSpec
from metaprior.learning.threads import threads_for
from metaprior.learning.updates import Updates, make_updates
from metaprior.options import divided, states
from metaprior.priors import HyperPrior, Prior, Stack, stacked, structure_of
from metaprior.progress import progress_bar
from metaprior.seeds import affine_seed
from metaprior.splits import to_stop_by
from metaprior.tasks import Tasks

FEWER = "Learn from some at a time (optimizer='adam', batch_size=256), in dtype=torch.float32, or use device='cpu'."
"""What to do where the memory of a GPU is too small."""


@dataclass(frozen=True)
class Check:
    """How things stood at one look at the held-out tasks."""

    epoch: int
    loss_per_task: float
    held_out_evidence: float
    seconds: float


@dataclass(frozen=True)
class Training:
    """What happened in meta-learning. The prior holds the parameters of the best check."""

    checks: tuple[Check, ...]
    best: Check
    stopped: str
    skipped: int
    held_out: tuple[object, ...]

    @property
    def seconds(self) -> float:
        return self.checks[-1].seconds

    @property
    def epochs(self) -> int:
        return self.checks[-1].epoch


@states(TrainingSpec)
def meta_train(
    prior: Prior,
    tasks: Tasks,
    how: TrainingSpec | None = None,
    *,
    seed: int,
    progress: bool | str = True,
    checkpoint: Path | None = None,
    keep: bool = False,
    **options: Any,
) -> Training:
    """Learn the prior's parameters ψ in place, by the summed evidence of the meta-tasks.

    how: a `TrainingSpec`; or its fields as options. checkpoint: a file that the state of learning is kept in while it
    goes on. Where there is one, learning goes on from it and ends as if it had never stopped; it is removed at the end,
    but for keep=True.
    """
    how = replace(how or TrainingSpec(), **divided(options, TrainingSpec, of="meta_train")[0])
    how.check()
    training, judge = _hold_out(tasks, how.held_out, seed)
    loss, hyper_prior = _loss(prior, training, how, seed), how.believed(prior)
    if hyper_prior is not None:
        loss = with_hyper_prior(loss, hyper_prior, len(training))
    own = loss if judge is training else _loss(prior, judge, how, affine_seed(seed, offset=1))
    judged = HeldOut(prior, judge, how.weighting, loss=own)
    if not prior.learned_parameters():
        return _nothing_to_learn(judged)
    with within_memory(f"learning from {len(tasks):,} tasks", FEWER):
        updates = make_updates(
            how.optimizer, prior, training, loss, rate=how.rate, batch_size=how.batch_size, seed=seed
        )
    kept = None
    if checkpoint is not None:
        decides = (_start(prior, hyper_prior), *how.decides(), seed)
        kept = Checkpoint(checkpoint, fingerprint_of([training, judge], *decides))
    label = progress if isinstance(progress, str) else "meta-learning"
    with within_memory(f"learning from {len(tasks):,} tasks", FEWER):
        return train(
            prior,
            updates,
            judged.evidence,
            max_epochs=how.most,
            check_every=how.every,
            patience=how.patience,
            tolerance=how.tolerance,
            held_out=judge.ids if judge is not training else (),
            progress=label if progress else False,
            checkpoint=kept,
            keep=keep,
        )


def meta_train_many(
    priors: Sequence[Prior], tasks: Sequence[Tasks], how: Sequence[TrainingSpec], seeds: Sequence[int]
) -> list[Training]:
    """`meta_train` for several priors, each on tasks of its own: as one training where they are alike.

    That is, priors of one structure and one way of learning, by L-BFGS on the evidence. There an epoch is one
    evaluation of the loss, and steps are found by backtracking.
    """
    for one in how:
        one.check()
    found: dict[int, Training] = {}
    for alike in _alike(priors, how):
        own = [[values[k] for k in alike] for values in (priors, tasks, how, seeds)]
        found |= zip(alike, _as_one(*own), strict=True)  # type: ignore[arg-type]
    return [found[k] for k in range(len(priors))]


def _alike(priors: Sequence[Prior], how: Sequence[TrainingSpec]) -> list[list[int]]:
    """The places of priors that may be learned together."""
    groups: dict[object, list[int]] = {}
    for k, (prior, one) in enumerate(zip(priors, how, strict=True)):
        key = (structure_of(prior), prior.learn, one.decides(), one.held_out is None, one.hyper_prior is None)
        groups.setdefault(key, []).append(k)
    return list(groups.values())


def _as_one(
    priors: Sequence[Prior], tasks: Sequence[Tasks], how: Sequence[TrainingSpec], seeds: Sequence[int]
) -> list[Training]:
    first, each = how[0], list(zip(priors, tasks, how, seeds, strict=True))
    usual = first.optimizer == "lbfgs" and first.objective == "evidence" and first.learning_rate is None
    if usual and priors[0].like.is_cuda and priors[0].learned_parameters():
        return [_on_gpu(*one) for one in each]
    together = stacked(priors) if usual else None
    if together is None or not together.moves.any():
        return [meta_train(prior, own, one, seed=seed, progress=False) for prior, own, one, seed in each]
    split = [_hold_out(own, one.held_out, seed) for _, own, one, seed in each]
    for some in split[0]:
        check_fits(priors[0], some)
    laws = [one.believed(prior) for one, prior in zip(how, priors, strict=True)]
    problems = _laid_out(together, split, first, [law for law in laws if law is not None])
    return _learned(problems, first, [judge for _, judge in split])


def _on_gpu(prior: Prior, tasks: Tasks, how: TrainingSpec, seed: int) -> Training:
    """One by one: there, numbers cost and not calls."""
    training, judge = _hold_out(tasks, how.held_out, seed)
    with within_memory(f"learning from {len(tasks):,} tasks at once", FEWER):
        own = PriorOnGPU(prior, training, None if how.held_out is None else judge, how, how.believed(prior))
        return _learned(own, how, [judge])[0]


def _learned(problems: StackedPriors | PriorOnGPU, how: TrainingSpec, judges: Sequence[Tasks]) -> list[Training]:
    with threads_for(problems.entries):
        found = learn_together(
            problems,
            problems.start,
            problems.moves,
            max_epochs=how.most,
            check_every=how.every,
            patience=how.patience,
            tolerance=how.tolerance,
        )
    problems.write(np.stack([one.values for one in found]))
    return [
        _training(one, judge.ids if how.held_out is not None else ()) for one, judge in zip(found, judges, strict=True)
    ]


def _laid_out(
    together: Stack, split: Sequence[tuple[Tasks, Tasks]], how: TrainingSpec, laws: Sequence[HyperPrior]
) -> StackedPriors:
    layout = {"whole": together.first.degrees is not None, "per_point": how.weighting == "point"}
    judge = None if how.held_out is None else StackedTasks.of([judge for _, judge in split], **layout)
    return StackedPriors(together, StackedTasks.of([training for training, _ in split], **layout), judge, laws)


def _training(found: Ended, held_out: Sequence[object]) -> Training:
    checks = tuple(Check(*look) for look in found.looks)
    best = checks[found.looks.index(found.best)]
    if best.epoch == 0 and not any(math.isfinite(check.loss_per_task) for check in checks):
        raise NumericalError("nothing could be learned: no update was finite.")
    return Training(checks, best, found.stopped, found.skipped, tuple(held_out))


class StackedPriors:
    """The summed evidence of several priors' tasks as `Problems`."""

    def __init__(
        self, stack: Stack, training: StackedTasks, judge: StackedTasks | None, laws: Sequence[HyperPrior]
    ) -> None:
        self.stack, self.training, self.judge, self.laws = stack, training, judge, list(laws)
        self.law = stack.law(self.laws) if self.laws else None
        self.known: list[Covariances] | None = [] if stack.mean_alone else None

    @property
    def entries(self) -> int:
        return self.training.entries

    @property
    def start(self) -> Float[Array, "B P"]:
        """Where they stand."""
        return self.stack.start

    @property
    def moves(self) -> Bool[Array, " P"]:
        """Which parameters learn."""
        return self.stack.moves

    def write(self, values: Float[Array, "B P"]) -> None:
        """What was learned, into the priors."""
        self.stack.write(values)

    def loss(self, values: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
        """The negative evidence (and log density of the parameters) per task, and its slopes."""
        total, slopes, *_ = stacked_evidence(self.stack, values, self.training, sloped=True, known=self.known)
        assert slopes is not None
        if self.law is not None:
            believed, along = self.law(values)
            total, slopes = total + believed, slopes + along
        return -total / self.training.tasks, -slopes / self.training.tasks[:, None]

    def judged(self, values: Float[Array, "B P"], loss: Float[Array, " B"]) -> Float[Array, " B"]:
        """The evidence per value of the tasks to stop by."""
        by = self.training if self.judge is None else self.judge
        total = -loss * by.tasks if self.judge is None else stacked_evidence(self.stack, values, by).total
        found: Array = total / by.values
        return found

    def select(self, which: Sequence[int]) -> StackedPriors:
        """Some of them."""
        judge = None if self.judge is None else self.judge.select(which)
        laws = [self.laws[k] for k in which] if self.laws else []
        return StackedPriors(self.stack.select(which), self.training.select(which), judge, laws)


def _start(prior: Prior, hyper_prior: HyperPrior | None) -> tuple[object, ...]:
    """Where learning starts, and the law that holds it."""
    start = (repr(prior), prior.learn, *(value.cpu().numpy().tobytes() for value in prior.state_dict().values()))
    if hyper_prior is None:
        return start
    return (*start, *(part.cpu().numpy().tobytes() for part in hyper_prior.centres), hyper_prior.width)


def train(
    module: nn.Module,
    updates: Updates,
    judge: Callable[[], float],
    *,
    max_epochs: int,
    check_every: int = 20,
    patience: int = 5,
    tolerance: float = 1e-6,
    held_out: Sequence[object] = (),
    progress: str | Literal[False] = False,
    checkpoint: Checkpoint | None = None,
    keep: bool = False,
) -> Training:
    """Update a module's parameters until the judge (evidence per value of held-out tasks) sees no more rise."""
    bar = progress_bar(progress or "", math.ceil(max_epochs / check_every), show=bool(progress))
    with threads_for(updates.entries), bar as advance, going_on(checkpoint):
        run = _Run(module, updates, judge, patience, tolerance)
        if checkpoint is not None and (kept := checkpoint.read()) is not None:
            run.restore(kept)
            advance("resumed", amount=math.ceil(run.epoch / check_every))
        while run.stopped is None:
            run.advance(min(check_every, max_epochs - run.epoch), max_epochs)
            advance(f"held-out evidence {run.best.held_out_evidence:.4f} per value")
            if checkpoint is not None and checkpoint.due():
                checkpoint.write(run.kept())
        module.load_state_dict(run.parameters)
    if checkpoint is not None and not keep:
        checkpoint.remove()
    assert run.stopped is not None
    return Training(tuple(run.checks), run.best, run.stopped, updates.skipped, tuple(held_out))


class _Run:
    """The state of one training: where it is, what was best, whether it is over."""

    def __init__(
        self, module: nn.Module, updates: Updates, judge: Callable[[], float], patience: int, tolerance: float
    ) -> None:
        self.module, self.updates, self.judge = module, updates, judge
        self.patience, self.tolerance = patience, tolerance
        self.start, self.epoch = time.perf_counter(), 0
        self.stopped: str | None = None
        self.best = Check(0, math.nan, judge(), 0.0)
        self.checks = [self.best]
        self.parameters = copy.deepcopy(module.state_dict())
        self.reference, self.without_rise = self.best.held_out_evidence, 0

    def advance(self, epochs: int, most: int) -> None:
        """Some epochs, a check, and the rule that ends it."""
        loss = self.updates.run(epochs)
        self.epoch += epochs
        self._check(loss)
        if not math.isfinite(loss):
            if self.best.epoch == 0:
                raise NumericalError(f"nothing could be learned: no update was finite. {self.updates.trouble}")
            self.stopped = f"stuck: no update was finite any more. {self.updates.trouble}"
        elif self.without_rise >= self.patience:
            self.stopped = f"converged: no rise above {self.tolerance} in {self.patience} checks"
        elif self.epoch >= most:
            self.stopped = f"reached {most} epochs"

    def kept(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on."""
        checks = [[check.epoch, check.loss_per_task, check.held_out_evidence, check.seconds] for check in self.checks]
        return {
            "module": self.module.state_dict(),
            "best": self.parameters,
            "checks": checks,
            "best_check": self.checks.index(self.best),
            "reference": self.reference,
            "without_rise": self.without_rise,
            "stopped": self.stopped,
            "updates": self.updates.kept(),
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """What `kept` gave."""
        self.module.load_state_dict(kept["module"])
        if not all(bool(kept["best"][name].isfinite().all()) for name, _ in self.module.named_parameters()):
            raise ValueError("a parameter that is no number")
        self.parameters, self.reference, self.without_rise = kept["best"], kept["reference"], kept["without_rise"]
        self.checks = [Check(*row) for row in kept["checks"]]
        self.best, self.epoch = self.checks[kept["best_check"]], self.checks[-1].epoch
        self.start, self.stopped = time.perf_counter() - self.checks[-1].seconds, kept.get("stopped")
        self.updates.restored(kept["updates"])

    def _check(self, loss: float) -> None:
        try:
            held_out = self.judge()
        except NumericalError:
            held_out = -math.inf
        check = Check(self.epoch, loss, held_out, time.perf_counter() - self.start)
        self.checks.append(check)
        if held_out > self.best.held_out_evidence:
            self.best, self.parameters = check, copy.deepcopy(self.module.state_dict())
        if held_out > self.reference + self.tolerance:
            self.reference, self.without_rise = held_out, 0
        else:
            self.without_rise += 1


def _loss(prior: Prior, tasks: Tasks, how: TrainingSpec, seed: int) -> Loss:
    return evidence_loss(prior, how.weighting) if how.objective == "evidence" else predictive_loss(prior, tasks, seed)


def _hold_out(tasks: Tasks, held_out: float | Tasks | None, seed: int) -> tuple[Tasks, Tasks]:
    if len(tasks) == 0 or bool((tasks.sizes == 0).any()):
        raise DataError("every meta-task needs at least one point.")
    return to_stop_by(tasks, held_out, seed)


def _nothing_to_learn(judged: HeldOut) -> Training:
    check = Check(0, math.nan, judged.evidence(), 0.0)
    return Training((check,), check, "the prior has no parameters to learn", 0, ())
