"""`LearnedPrior`: a prior of one structure, meta-learned from tasks in the user's units: the paper's method."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor, nn

from metaprior.devices import device_of
from metaprior.errors import DataError, OptionError
from metaprior.files import State
from metaprior.inference import KeptMethod, UserConditional, condition_many
from metaprior.learning import Check, Going, Training, TrainingSpec, learn_over_parts, meta_train, meta_train_many
from metaprior.options import divided, names_of_options, states
from metaprior.priors import DTYPES, HyperPrior, Prior, PriorSpec
from metaprior.tasks import Covariate, Parts, Scaler, Tasks, TrainedOn, check_task_x

SAME = tuple(name for name in names_of_options(PriorSpec) if name not in ("hidden", "learn", "network_dtype"))
"""What a prior that goes on learning has in common with its start; shapes decide on the rest."""

KEPT = ("optimizer", "weighting", "objective", "hyper_prior", "anchored")
"""How it was learned, as far as a file says it."""


class Begun(NamedTuple):
    """A prior that is about to learn."""

    prior: Prior
    scaler: Scaler
    tasks: Tasks
    how: TrainingSpec
    trained_on: TrainedOn


class LearnedPrior(KeptMethod):
    """A Gaussian process whose prior is meta-learned.

    options: those of `PriorSpec` (what the prior is made of) and of `TrainingSpec` (how it is learned), which it keeps
    as `spec` and `training`. scale: bring x and y to mean 0 and deviation 1 first. A callable mean and a fixed noise
    are in the user's units; the noise floor and GPyTorch modules are in scaled ones. device: "cpu", "cuda", or "auto"
    (a GPU where there is one). dtype: of the covariance; float32 networks go under either.

    After `fit`: `prior_` (the learned prior), `scaler_`, `training_` (what happened), `trained_on_`.
    """

    saved_as = "prior"
    fitted_as = "prior_"
    prior_: Prior
    scaler_: Scaler
    training_: Training
    task_x_: tuple[Covariate, ...] = ()

    @states(PriorSpec, TrainingSpec)
    def __init__(
        self,
        mean: str | Mean | Callable[[Tensor], Tensor] = "deep",
        kernel: str | Kernel = "deep",
        *,
        scale: bool = True,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        progress: bool | str = True,
        **options: Any,
    ) -> None:
        spec, training = divided(options, PriorSpec, TrainingSpec, of="a prior")
        self.spec, self.training = PriorSpec(mean, kernel, **spec), TrainingSpec(**training)
        if isinstance(self.training.hyper_prior, HyperPrior):
            raise OptionError("hyper_prior: give its width. A HyperPrior is of one prior, for meta_train.")
        self.scale, self.device, self.dtype, self.seed, self.progress = scale, device, dtype, seed, progress

    def fit(
        self,
        tasks: Tasks,
        *,
        start: LearnedPrior | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
    ) -> Self:
        """Meta-learn the prior from past tasks.

        Given modules are copied, not changed. start: a fitted prior to go on from, with its scaling. checkpoint: a
        file in which the training is kept while it runs; where there is one of the same training, it goes on there.
        keep: leave it when all is learned.
        """
        begun = self.begin(tasks, start)
        kept = None if checkpoint is None else Path(checkpoint)
        options: dict[str, Any] = {"seed": self.seed, "progress": self.progress, "checkpoint": kept, "keep": keep}
        self.end(begun, meta_train(begun.prior, begun.tasks, begun.how, **options))
        return self

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """Fit several, as one training where they are alike."""
        begun = [one.begin(own) for one, own in zip(methods, tasks, strict=True)]
        seeds = [one.seed for one in methods]
        trainings = meta_train_many(
            [one.prior for one in begun], [one.tasks for one in begun], [one.how for one in begun], seeds
        )
        for one, ready, training in zip(methods, begun, trainings, strict=True):
            one.end(ready, training)

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """Fit from where it has come with some of the tasks, if it is of the same structure."""
        try:
            begun = self.begin(tasks, earlier)
        except DataError:
            return super().fit_from(earlier, tasks)
        begun = begun._replace(trained_on=TrainedOn.of(tasks, task_x=bool(self.task_x_)))
        (training,) = meta_train_many([begun.prior], [begun.tasks], [begun.how], [self.seed])
        self.end(begun, training)
        return self

    def fit_on(self, parts: Parts, judge: Tasks, going: Going, name: str) -> None:
        """Go on from what a sample has taught, with all tasks, part by part. judge: tasks to stop by."""
        self._check_fitted()
        if len(judge) == 0:
            raise DataError("learning part by part needs tasks to stop by: hold out some of the sample (held_out=0.1).")

        def scaled(tasks: Tasks) -> Tasks:
            return self.scaler_.scale(self._widened(tasks))

        how, options = self.training, {"name": name, "seed": self.seed}
        self.training_ = learn_over_parts(self.prior_, parts.changed(scaled), scaled(judge), how, going, **options)  # type: ignore[arg-type]

    def begin(self, tasks: Tasks, start: LearnedPrior | None = None) -> Begun:
        """The prior at its start and the tasks as it will see them."""
        if self.dtype not in DTYPES.values():
            raise OptionError(f"dtype {self.dtype}: the covariance is float64 or float32.")
        self.task_x_ = tasks.columns.task_x if tasks.covariates is not None and self.spec.sees_levels(tasks.d) else ()
        wide = self._widened(tasks)
        if start is not None:
            start._check_fitted()
            _check_same(start, tasks, self)
            scaler = start.scaler_
        else:
            scaler = Scaler.fit(wide) if self.scale else Scaler.identity(wide.d, wide.p)
        scaled = scaler.scale(wide)
        spec = self._in_scaled_units(scaler)
        prior = spec.build(d=wide.d, p=wide.p, seed=self.seed, like=scaled.x, dtype=self.dtype)
        device = device_of(self.device)
        prior = prior if device == prior.like.device else prior.to(device)
        how = replace(self.training, hyper_prior=self.training.believed(prior))  # around its own start, not the given
        if start is not None:
            _start_from(prior, start.prior_)
        if isinstance(how.held_out, Tasks):
            how = replace(how, held_out=scaler.scale(self._widened(how.held_out)))
        trained_on = TrainedOn.of(tasks, None if start is None else start.trained_on_, task_x=bool(self.task_x_))
        if isinstance(self.training.held_out, Tasks):  # what decides when to stop is seen too
            trained_on = trained_on.and_of(self.training.held_out)
        return Begun(prior, scaler, scaled, how, trained_on)

    def end(self, begun: Begun, training: Training) -> None:
        """Take over what was learned."""
        self.prior_, self.scaler_, self.training_ = begun.prior, begun.scaler, training
        self.trained_on_ = begun.trained_on

    def condition(self, context: Tasks) -> UserConditional:
        """The prior conditioned on the contexts of many tasks at once."""
        return self.condition_many([self], context)[0]

    @staticmethod
    def condition_many(methods: Sequence[LearnedPrior], context: Tasks) -> list[UserConditional]:
        """Several that see tasks in the same units: the contexts are laid out once."""
        first = methods[0]
        first._check_fitted()
        given, covariates = first.scaler_.scale(first._widened(context)), context.covariates if first.task_x_ else None
        found = condition_many([one.prior_ for one in methods], given)
        return [UserConditional(each, first.scaler_, context, covariates) for each in found]

    def to(self, device: str) -> Self:
        """Learn and answer there from now on."""
        self.device, onto = device, device_of(device)
        if hasattr(self, "prior_"):
            self.prior_ = self.prior_.to(onto)
        return self

    def _widened(self, tasks: Tasks) -> Tasks:
        """The tasks' points with what this prior takes in of each task as a whole."""
        if not self.task_x_:
            return tasks
        check_task_x(self.task_x_, tasks)
        return tasks.widened(tasks.covariates)

    def structure(self) -> dict[str, Any]:
        """The options that say what it is made of and how it learns: with them, another like it can be made."""
        own = {name: getattr(self.spec, name) for name in names_of_options(PriorSpec)}
        how = {name: getattr(self.training, name) for name in KEPT}
        return own | how | {"scale": self.scale, "dtype": self.dtype}

    def state(self) -> State:
        """What was learned, for a file. Parts that were given as code or as modules cannot go into one."""
        self._check_fitted()
        known = {"d": len(self.scaler_.x_shift), "p": len(self.scaler_.y_shift), "seed": self.seed}
        about = [[one.name, list(one.levels or ())] for one in self.task_x_]
        structure = self.structure() | self.spec.described() | known | {"dtype": str(self.dtype), "task_x": about}
        tensors = {f"prior.{name}": value for name, value in self.prior_.state_dict().items()}
        # not how long it took: the same training is the same file
        checks = [[c.epoch, c.loss_per_task, c.held_out_evidence] for c in self.training_.checks]
        curve = torch.tensor(checks, dtype=torch.float32)
        told = {"training": {"stopped": self.training_.stopped, "skipped": self.training_.skipped}}
        return State(self.saved_as, structure, tensors | self.scaler_.as_tensors() | {"training": curve}, told)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted model again."""
        found = state.structure
        how = {name: found[name] for name in (*KEPT, "scale", "seed")}
        gp = cls(dtype=DTYPES[found["dtype"]], **how)
        gp.spec, gp.scaler_ = PriorSpec.from_description(found), Scaler.from_tensors(state.tensors)
        gp.task_x_ = tuple(Covariate(name, tuple(levels)) for name, levels in found.get("task_x", []))
        d, p = len(gp.scaler_.x_shift), len(gp.scaler_.y_shift)
        if [d, p] != [found["d"], found["p"]]:
            raise DataError("the model file does not fit together: its columns and its scaling differ.")
        gp.prior_ = gp._in_scaled_units(gp.scaler_).rebuilt(state.part("prior."), d=d, p=p, dtype=gp.dtype)
        checks = [Check(int(row[0]), row[1], row[2], math.nan) for row in state.tensor("training").tolist()]
        training = state.about.get("training", {})
        best = max(checks, key=lambda check: check.held_out_evidence)
        gp.training_ = Training(tuple(checks), best, training.get("stopped", ""), training.get("skipped", 0), ())
        return gp

    def _in_scaled_units(self, scaler: Scaler) -> PriorSpec:
        """What is built: with copies of given modules, and with mean and noise as the scaled tasks have them."""
        kernel = copy.deepcopy(self.spec.kernel)
        return replace(self.spec, mean=self._scaled_mean(scaler), kernel=kernel, noise=self._scaled_noise(scaler))

    def _scaled_mean(self, scaler: Scaler) -> str | Mean | Callable[[Tensor], Tensor]:
        given = self.spec.mean
        if isinstance(given, (str, nn.Module)):
            return copy.deepcopy(given)

        def scaled(x: Tensor) -> Tensor:
            values = given(x * scaler.x_scale.to(x) + scaler.x_shift.to(x))
            values = values[..., None] if values.ndim == x.ndim - 1 else values
            return (values - scaler.y_shift.to(x)) / scaler.y_scale.to(x)

        return scaled

    def _scaled_noise(self, scaler: Scaler) -> nn.Module | float | str | None:
        noise = self.spec.noise
        if noise is None or isinstance(noise, (str, nn.Module)):
            return copy.deepcopy(noise)
        scales = scaler.y_scale.unique()
        if len(scales) > 1:
            raise OptionError("the outputs share one noise, and theirs differ in scale: learn it, or use scale=False.")
        return float(noise / scales[0] ** 2)


def _check_same(start: LearnedPrior, tasks: Tasks, gp: LearnedPrior) -> None:
    """Whether learning can go on: the same columns, and networks that read their weights in the same way."""
    known = start.trained_on_.columns
    if start.task_x_ or gp.task_x_:
        check_task_x(start.task_x_, tasks)
    if (known.x, known.y) != (tasks.columns.x, tasks.columns.y):
        raise DataError(
            f"the earlier model goes from {', '.join(known.x)} to {', '.join(known.y)}: give the same columns."
        )
    known_options, own = start.structure(), gp.structure()
    for name in (*SAME, "scale"):
        if known_options[name] != own[name]:
            raise DataError(f"the earlier model has {name}={known_options[name]!r}: give the same options.")


def _start_from(prior: Prior, earlier: Prior) -> None:
    """Take over what an earlier prior of the same structure has learned."""
    try:
        prior.load_state_dict(earlier.state_dict())
    except RuntimeError as error:
        raise DataError(f"the earlier model has another structure: give the same options. ({error})") from None
