"""`TrainingSpec`: how a prior is learned, as data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from metaprior.errors import OptionError, UnknownNameError
from metaprior.learning.objective import OBJECTIVES, Objective, Weighting
from metaprior.learning.updates import RATES
from metaprior.priors import HyperPrior, Prior
from metaprior.tasks import Tasks

OptimizerName = Literal["algorithm1", "adam", "lbfgs"]

EPOCHS = {"algorithm1": 100, "adam": 2000, "lbfgs": 3000}
"""Each optimizer with the most epochs it takes by default."""


@dataclass(frozen=True)
class TrainingSpec:
    """The objective, the way to its optimum, and when to stop.

    optimizer: "algorithm1" (the paper's SGD, one update per meta-task), "adam" (all tasks at once, or random batches
    of `batch_size`), or "lbfgs" (all tasks at once). held_out: tasks to stop by: a fraction of them, others, or None
    for the training tasks themselves. weighting: "task" is the paper's plain sum; "point" divides each task's loss by
    its size first, so that long tasks do not outweigh short ones. objective: "evidence", or "predictive" (the density
    of random targets given random contexts). hyper_prior: `p(ψ)`, with which ψ is learned by its posterior density
    (MAP, eq:hyper-posterior), as a `HyperPrior` or its width: 1 is the law that networks start from; anchored goes with
    a width. Where no tasks are held out, learning is judged by that too.

    Every `check_every` epochs the evidence per value of the held-out tasks is taken; learning stops when it has not
    risen by more than `tolerance` in `patience` checks, or after `max_epochs`; the parameters of the best check stay.
    """

    optimizer: OptimizerName = "lbfgs"
    learning_rate: float | None = None
    batch_size: int | None = None
    max_epochs: int | None = None
    held_out: float | Tasks | None = 0.1
    check_every: int | None = None
    patience: int = 5
    tolerance: float = 1e-6
    weighting: Weighting = "task"
    objective: Objective = "evidence"
    hyper_prior: HyperPrior | float | None = None
    anchored: bool = False

    def check(self) -> None:
        """Whether these options go together."""
        if self.optimizer not in RATES:
            raise UnknownNameError("optimizer", self.optimizer, RATES)
        if self.rate <= 0 or self.every < 1 or self.most < 1 or self.patience < 1:
            raise OptionError("learning_rate, check_every, max_epochs and patience must be above 0.")
        if self.batch_size is not None and (self.optimizer != "adam" or self.batch_size < 1):
            raise OptionError("a batch_size of 1 or more goes with optimizer='adam' only.")
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)
        if self.objective != "evidence" and not (self.full_batch and self.weighting == "task"):
            raise OptionError(
                "objective='predictive' takes all tasks at once, each as it is: use optimizer='lbfgs' or 'adam' "
                "without batch_size, and weighting='task'."
            )

    @property
    def full_batch(self) -> bool:
        """Whether every update sees all tasks."""
        return self.optimizer == "lbfgs" or (self.optimizer == "adam" and self.batch_size is None)

    @property
    def rate(self) -> float:
        """The learning rate η."""
        return RATES[self.optimizer] if self.learning_rate is None else self.learning_rate

    @property
    def every(self) -> int:
        """Epochs between two checks."""
        return (20 if self.full_batch else 1) if self.check_every is None else self.check_every

    @property
    def most(self) -> int:
        """The most epochs."""
        return EPOCHS[self.optimizer] if self.max_epochs is None else self.max_epochs

    def believed(self, prior: Prior) -> HyperPrior | None:
        """The law of the prior's parameters, around where they are now."""
        if self.hyper_prior is None or isinstance(self.hyper_prior, HyperPrior):
            return self.hyper_prior
        return HyperPrior(prior, width=self.hyper_prior, anchored=self.anchored)

    def decides(self) -> tuple[object, ...]:
        """What the result of a training depends on, but for tasks and law: those have fingerprints of their own."""
        shown = [self.rate, self.every, self.most]
        left_out = ("held_out", "hyper_prior", "learning_rate", "check_every", "max_epochs")
        return (*shown, *(getattr(self, one.name) for one in fields(self) if one.name not in left_out))
