"""`HyperPosterior`: not one prior but several that the tasks leave probable, for when the tasks are few."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any, Self

import torch

from metaprior.errors import OptionError
from metaprior.files import State
from metaprior.inference import KeptMethod, MixtureConditional
from metaprior.learning import TrainingSpec
from metaprior.methods.learned import LearnedPrior
from metaprior.options import states
from metaprior.priors import PriorSpec
from metaprior.progress import progress_bar
from metaprior.seeds import child_seed, generator_of
from metaprior.tasks import Tasks, TrainedOn

MEMBERS = 8

FEW_TASKS: dict[str, Any] = {"hidden": (32, 32), "activation": "tanh", "max_epochs": 60, "check_every": 10}
"""Small networks that start with waves as wide as the data, and an end before every task is learned by heart."""


class HyperPosterior(KeptMethod):
    """An ensemble that stands for `p(ψ | M)` (eq:hyper-posterior): its predictive is the mixture over the members.

    Members are drawn by randomised maximisation. Each is held by a hyper-prior around a start of its own, so that they
    differ where no task says anything. Its mean learns from tasks to which a draw of their own kernel is added, so that
    the means differ by as much as so few tasks leave open; and then its kernel from the tasks as they are around that
    mean, drawn with replacement, so that it holds what a mean learned from the same tasks would have taken away. A new
    task's context chooses between the members, by its evidence under each. options: of `LearnedPrior`.
    """

    saved_as = "hyper-posterior"
    fitted_as = "members_"

    @states(PriorSpec, TrainingSpec, leave_out=("anchored", "held_out", "learn"), defaults=FEW_TASKS)
    def __init__(
        self,
        mean: str = "deep",
        kernel: str = "rbf",
        *,
        members: int = MEMBERS,
        hyper_prior: float = 1.0,
        scale: bool = True,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        progress: bool | str = False,
        **options: Any,
    ) -> None:
        if members < 1 or members != int(members):
            raise OptionError(f"{members} members: a hyper-posterior has one or more.")
        known = set(inspect.signature(HyperPosterior).parameters)
        wrong = ", ".join(name for name in options if name not in known)
        if wrong:
            raise OptionError(f"{wrong}: no option of a hyper-posterior. There are {', '.join(sorted(known))}.")
        self.members, self.seed, self.progress = members, seed, progress
        self.options: dict[str, Any] = {"mean": mean, "kernel": kernel, "hyper_prior": hyper_prior}
        self.options |= {"scale": scale, "device": device, "dtype": dtype} | FEW_TASKS | options

    def fit(self, tasks: Tasks) -> Self:
        """Learn every member."""
        generator = generator_of(self.seed)
        self.members_: list[LearnedPrior] = []
        label = self.progress if isinstance(self.progress, str) else "hyper-posterior"
        with progress_bar(label, self.members, show=bool(self.progress)) as advance:
            for k in range(self.members):
                self.members_.append(self._drawn(tasks, child_seed(self.seed, k), generator))
                advance(f"member {k + 1}")
        self.trained_on_ = TrainedOn.of(tasks, task_x=bool(self.members_[0].task_x_))
        return self

    def _drawn(self, tasks: Tasks, seed: int, generator: torch.Generator) -> LearnedPrior:
        """One member."""
        options = self.options | {"anchored": True, "held_out": None, "seed": seed, "progress": False}
        first = LearnedPrior(**options).fit(tasks)
        mean = LearnedPrior(**options, learn=("mean",)).fit(_perturbed(first, tasks, child_seed(seed, 0)), start=first)
        again = torch.randint(len(tasks), (len(tasks),), generator=generator)
        return LearnedPrior(**options, learn=("kernel", "noise")).fit(tasks.select(again), start=mean)

    def condition(self, context: Tasks) -> MixtureConditional:
        """The mixture of the members, by how probable each finds the context."""
        self._check_fitted()
        alike = torch.full((len(self.members_),), -math.log(len(self.members_)), dtype=torch.float64)
        return MixtureConditional([member.condition(context) for member in self.members_], alike, by_evidence=True)

    def state(self) -> State:
        """Its members, for a file."""
        self._check_fitted()
        parts = {str(k): member.state() for k, member in enumerate(self.members_)}
        return State(self.saved_as, {"members": len(self.members_)}, {}).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        members = [state.method(str(k)) for k in range(int(state.structure["members"]))]
        own = {name: value for name, value in members[0].structure().items() if name not in ("anchored", "learn")}
        found = cls(members=len(members), **own)
        found.members_ = members
        return found


@torch.no_grad()
def _perturbed(prior: LearnedPrior, tasks: Tasks, seed: int) -> Tasks:
    """The tasks with a draw of their own covariance added to each."""
    before = prior.predict(Tasks.empty(tasks.ids, tasks.d, tasks.p), tasks)
    return replace(tasks, y=tasks.y + before.samples(1, seed)[0] - before.mean)
