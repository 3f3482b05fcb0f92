"""`HyperPosterior`: not one prior but several that the tasks leave probable, for when the tasks are few."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import torch

from metaprior.errors import OptionError
from metaprior.files import State
from metaprior.inference import KeptMethod, MixtureConditional, at_inputs, covariance_matrix, factor
from metaprior.learning import TrainingSpec, meta_train_many
from metaprior.methods.learned import Begun, LearnedPrior
from metaprior.options import states
from metaprior.priors import HyperPrior, Prior, PriorSpec
from metaprior.progress import progress_bar
from metaprior.seeds import child_seed, generator_of
from metaprior.tasks import Tasks, TrainedOn, padded

MEMBERS = 5

FEW_TASKS: dict[str, Any] = {"hidden": (32, 32), "activation": "tanh", "max_epochs": 60, "check_every": 5}
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
    members_: list[LearnedPrior]

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
        label = self.progress if isinstance(self.progress, str) else "hyper-posterior"
        with progress_bar(label, len(STAGES), show=bool(self.progress)) as advance:
            self._fit_many([self], [tasks], advance)
        return self

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """All members of all of them in three trainings."""
        cls._fit_many(methods, tasks, lambda said: None)

    @classmethod
    def _fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks], advance: Callable[[str], None]) -> None:
        members = [
            (one._member(child_seed(one.seed, k)), own)
            for one, own in zip(methods, tasks, strict=True)
            for k in range(one.members)
        ]
        begun = [member.begin(own) for member, own in members]
        seeds, priors = [member.seed for member, _ in members], [one.prior for one in begun]
        scaled = [one.tasks for one in begun]
        laws = [[_law(one, stage.learn) for one in begun] for stage in STAGES]  # all around the start
        for stage, own_laws in zip(STAGES, laws, strict=True):
            for prior in priors:
                prior.let_learn(stage.learn)
            given = [stage.tasks(*each) for each in zip(priors, scaled, seeds, strict=True)]
            how = [replace(one.how, hyper_prior=law) for one, law in zip(begun, own_laws, strict=True)]
            trainings = meta_train_many(priors, given, how, seeds)
            advance(stage.said)
        for (member, _), ready, training in zip(members, begun, trainings, strict=True):
            member.end(ready, training)
        learned = [member for member, _ in members]
        for one, own in zip(methods, tasks, strict=True):
            one.members_, learned = learned[: one.members], learned[one.members :]
            one.trained_on_ = TrainedOn.of(own, task_x=bool(one.members_[0].task_x_))

    def _member(self, seed: int) -> LearnedPrior:
        learn = STAGES[-1].learn
        return LearnedPrior(**self.options, anchored=True, held_out=None, seed=seed, progress=False, learn=learn)

    def condition(self, context: Tasks) -> MixtureConditional:
        """The mixture of the members, by how probable each finds the context."""
        self._check_fitted()
        alike = torch.full((len(self.members_),), -math.log(len(self.members_)), dtype=torch.float64)
        return MixtureConditional(LearnedPrior.condition_many(self.members_, context), alike, by_evidence=True)

    def to(self, device: str) -> Self:
        """Learn and answer there from now on."""
        super().to(device)
        self.options["device"] = device
        for member in getattr(self, "members_", ()):
            member.to(device)
        return self

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


def _law(begun: Begun, learn: Sequence[str]) -> HyperPrior:
    """What is believed of the parameters that a stage learns."""
    begun.prior.let_learn(learn)
    assert begun.how.hyper_prior is not None
    width = begun.how.hyper_prior.width if isinstance(begun.how.hyper_prior, HyperPrior) else begun.how.hyper_prior
    return HyperPrior(begun.prior, width=width, anchored=True)


def _as_they_are(prior: Prior, tasks: Tasks, seed: int) -> Tasks:
    return tasks


def _again(prior: Prior, tasks: Tasks, seed: int) -> Tasks:
    """As many of the tasks, drawn with replacement."""
    generator = generator_of(child_seed(seed, 1))
    return tasks.select(torch.randint(len(tasks), (len(tasks),), generator=generator))


@torch.no_grad()
def _perturbed(prior: Prior, tasks: Tasks, seed: int) -> Tasks:
    """The tasks with a draw of their own covariance added to each."""
    draw = torch.randn(tasks.y.shape, generator=generator_of(child_seed(seed, 0)), dtype=torch.float64)
    y = tasks.y.clone()
    for batch in padded(tasks):
        own = batch.to(prior.like)
        names = [tasks.ids[i] for i in batch.tasks.tolist()]
        L = factor(covariance_matrix(prior, at_inputs(prior, own), own.mask), names).L
        rows = tasks.offsets[batch.tasks][:, None] + torch.arange(batch.mask.shape[1])
        added = L.to(draw) @ torch.where(batch.mask[..., None], draw[rows.clamp(max=len(y) - 1)], 0.0)
        y[rows[batch.mask]] += added[batch.mask]
    return replace(tasks, y=y)


class _Stage(NamedTuple):
    """What is learned, from which tasks, and how to say it."""

    learn: tuple[str, ...]
    tasks: Callable[[Prior, Tasks, int], Tasks]
    said: str


STAGES = (
    _Stage(("mean", "kernel", "noise"), _as_they_are, "mean and kernel"),
    _Stage(("mean",), _perturbed, "means of perturbed tasks"),
    _Stage(("kernel", "noise"), _again, "kernels around them"),
)
"""One after the other."""
