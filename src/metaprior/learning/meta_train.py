"""`meta_train`: learn a prior from meta-tasks until the evidence of held-out ones stops improving."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from metaprior.errors import DataError, NumericalError, OptionError, UnknownNameError
from metaprior.learning.checkpoints import Checkpoint, fingerprint_of
from metaprior.learning.objective import (
    OBJECTIVES,
    HeldOut,
    Loss,
    Objective,
    Weighting,
    evidence_loss,
    predictive_loss,
    with_hyper_prior,
)
from metaprior.learning.threads import threads_for
from metaprior.learning.updates import RATES, Updates, make_updates
from metaprior.priors import HyperPrior, Prior
from metaprior.progress import progress_bar
from metaprior.splits import to_stop_by
from metaprior.tasks import Tasks

OptimizerName = Literal["algorithm1", "adam", "lbfgs"]

EPOCHS = {"algorithm1": 100, "adam": 2000, "lbfgs": 3000}
"""Each optimizer with the most epochs it takes by default."""


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


def meta_train(
    prior: Prior,
    tasks: Tasks,
    *,
    seed: int,
    optimizer: OptimizerName = "lbfgs",
    learning_rate: float | None = None,
    batch_size: int | None = None,
    max_epochs: int | None = None,
    held_out: float | Tasks | None = 0.1,
    check_every: int | None = None,
    patience: int = 5,
    tolerance: float = 1e-6,
    weighting: Weighting = "task",
    objective: Objective = "evidence",
    hyper_prior: HyperPrior | None = None,
    progress: bool | str = True,
    checkpoint: Path | None = None,
) -> Training:
    """Learn the prior's parameters ψ in place, by the summed evidence of the meta-tasks.

    optimizer: "algorithm1" (the paper's SGD, one update per meta-task), "adam" (all tasks at once, or random batches
    of `batch_size`), or "lbfgs" (all tasks at once). held_out: a fraction of the tasks, other tasks, or None to judge
    by the training tasks themselves. weighting: "task" is the paper's plain sum; "point" divides each task's loss by
    its size first, so that long tasks do not outweigh short ones. objective: "evidence", or "predictive" (the density
    of random targets given random contexts). hyper_prior: `p(ψ)`, with which ψ is learned by its posterior density
    (MAP, eq:hyper-posterior); where no tasks are held out, it is judged by that too.

    Convergence: every `check_every` epochs the evidence per value of the held-out tasks is taken; learning stops when
    it has not risen by more than `tolerance` in `patience` checks, and the parameters of the best check are kept.

    checkpoint: a file that the state of learning is kept in while it goes on. Where there is one, learning goes on
    from it and ends as if it had never stopped; it is removed at the end.
    """
    if optimizer not in RATES:
        raise UnknownNameError("optimizer", optimizer, RATES)
    rate = RATES[optimizer] if learning_rate is None else learning_rate
    full_batch = optimizer == "lbfgs" or (optimizer == "adam" and batch_size is None)
    every = (20 if full_batch else 1) if check_every is None else check_every
    most = EPOCHS[optimizer] if max_epochs is None else max_epochs
    if rate <= 0 or every < 1 or most < 1 or patience < 1:
        raise OptionError("learning_rate, check_every, max_epochs and patience must be above 0.")
    training, judge = _hold_out(tasks, held_out, seed)
    loss = _loss(prior, training, objective, weighting, full_batch, seed)
    if hyper_prior is not None:
        loss = with_hyper_prior(loss, hyper_prior, len(training))
    own = loss if judge is training else _loss(prior, judge, objective, weighting, full_batch, seed + 1)
    judged = HeldOut(prior, judge, weighting, loss=own)
    if not prior.learned_parameters():
        return _nothing_to_learn(judged)
    updates = make_updates(optimizer, prior, training, loss, rate=rate, batch_size=batch_size, seed=seed)
    label = progress if isinstance(progress, str) else "meta-learning"
    kept = None
    if checkpoint is not None:
        start = tuple(value.cpu().numpy().tobytes() for value in prior.state_dict().values())
        decides: tuple[object, ...] = (
            start,
            optimizer,
            rate,
            batch_size,
            every,
            most,
            patience,
            tolerance,
            weighting,
            seed,
            objective,
        )
        if hyper_prior is not None:
            decides += (tuple(part.cpu().numpy().tobytes() for part in hyper_prior.centres), hyper_prior.width)
        kept = Checkpoint(checkpoint, fingerprint_of([training, judge], *decides))
    return train(
        prior,
        updates,
        judged.evidence,
        max_epochs=most,
        check_every=every,
        patience=patience,
        tolerance=tolerance,
        held_out=judge.ids if judge is not training else (),
        progress=label if progress else False,
        checkpoint=kept,
    )


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
) -> Training:
    """Update a module's parameters until the judge (evidence per value of held-out tasks) sees no more rise."""
    bar = progress_bar(progress or "", math.ceil(max_epochs / check_every), show=bool(progress))
    with threads_for(updates.entries), bar as advance:
        run = _Run(module, updates, judge, patience, tolerance)
        if checkpoint is not None and (kept := checkpoint.read()) is not None:
            run.restore(kept)
            advance("resumed", amount=math.ceil(run.epoch / check_every))
        while run.stopped is None:
            run.advance(min(check_every, max_epochs - run.epoch), max_epochs)
            advance(f"held-out evidence {run.best.held_out_evidence:.4f} per value")
            if checkpoint is not None and checkpoint.due():
                checkpoint.write(run.kept())
    if checkpoint is not None:
        checkpoint.remove()
    module.load_state_dict(run.parameters)
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
            "updates": self.updates.kept(),
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """What `kept` gave."""
        self.module.load_state_dict(kept["module"])
        self.parameters, self.reference, self.without_rise = kept["best"], kept["reference"], kept["without_rise"]
        self.checks = [Check(*row) for row in kept["checks"]]
        self.best, self.epoch = self.checks[kept["best_check"]], self.checks[-1].epoch
        self.start = time.perf_counter() - self.checks[-1].seconds
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


def _loss(prior: Prior, tasks: Tasks, objective: Objective, weighting: Weighting, full_batch: bool, seed: int) -> Loss:
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    if objective == "evidence":
        return evidence_loss(prior, weighting)
    if not full_batch or weighting != "task":
        raise OptionError(
            "objective='predictive' takes all tasks at once, each as it is: use optimizer='lbfgs' or 'adam' without "
            "batch_size, and weighting='task'."
        )
    return predictive_loss(prior, tasks, seed)


def _hold_out(tasks: Tasks, held_out: float | Tasks | None, seed: int) -> tuple[Tasks, Tasks]:
    if len(tasks) == 0 or bool((tasks.sizes == 0).any()):
        raise DataError("every meta-task needs at least one point.")
    return to_stop_by(tasks, held_out, seed)


def _nothing_to_learn(judged: HeldOut) -> Training:
    check = Check(0, math.nan, judged.evidence(), 0.0)
    return Training((check,), check, "the prior has no parameters to learn", 0, ())
