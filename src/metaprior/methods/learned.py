"""`LearnedPrior`: a prior of one structure, meta-learned from tasks in the user's units: the paper's method."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor, nn

from metaprior.errors import DataError, NotFittedError, OptionError
from metaprior.files import State
from metaprior.inference import KeptMethod, UserConditional, condition
from metaprior.learning import Check, Objective, OptimizerName, Training, Weighting, meta_train
from metaprior.priors import HyperPrior, Prior, make_prior
from metaprior.tasks import Covariate, Scaler, Tasks, TrainedOn, check_task_x

STRUCTURE = (
    "mean", "kernel", "noise", "noise_floor", "activation", "gain", "features", "functions", "degrees", "scale",
)  # fmt: skip
"""Options that say what a prior is made of, beside the widths of its networks and which parts are learned."""

LEARNING = ("optimizer", "weighting", "objective", "hyper_prior", "anchored")
"""Options that say by what it is learned."""

_DTYPES = {"torch.float32": torch.float32, "torch.float64": torch.float64, None: None}


class LearnedPrior(KeptMethod):
    """A Gaussian process whose prior is meta-learned.

    mean: "zero", "constant", "linear", "deep", a GPyTorch mean, or a fixed callable. kernel: "rbf", "matern",
    "exponential", "deep", "eigenfunctions" (`functions` of them, learned), "eigenfunctions + deep", or a GPyTorch
    kernel. noise: None (learned above `noise_floor`), "deep" (it depends on the input) or a fixed variance. degrees: of
    freedom to start with, for a Student-t process, whose tasks have amplitudes of their own. learn: which parts
    meta-learning may change. objective: "evidence" or "predictive". hyper_prior: the width of a Gaussian law of the
    parameters, for few tasks: 1 is the law that networks start from (see `HyperPrior`; anchored goes with it). scale:
    bring x and y to mean 0 and deviation 1 first. A callable mean and a fixed noise are in the user's units; the noise
    floor and GPyTorch modules are in scaled ones. The rest goes to `meta_train`.

    gain: how rough the networks start; a smaller one (1 for a sigmoid) suits tasks of few points (see `Network`).
    device: "cpu", "cuda", or "auto" (a GPU where there is one). dtype: of the covariance; network_dtype: of the
    networks, default the same (float32 networks go under either).

    After `fit`: `prior_` (the learned prior), `scaler_`, `training_` (what happened), `trained_on_`.
    """

    kind = "prior"
    prior_: Prior
    scaler_: Scaler
    training_: Training
    task_x_: tuple[Covariate, ...] = ()

    def __init__(
        self,
        mean: str | Mean | Callable[[Tensor], Tensor] = "deep",
        kernel: str | Kernel = "deep",
        *,
        noise: nn.Module | float | str | None = None,
        noise_floor: float = 1e-4,
        hidden: Sequence[int] = (128, 64),
        activation: str = "sigmoid",
        gain: float | None = None,
        features: int = 2,
        functions: int = 16,
        degrees: float | None = None,
        learn: Iterable[str] = ("mean", "kernel", "noise"),
        scale: bool = True,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        network_dtype: torch.dtype | None = None,
        optimizer: OptimizerName = "lbfgs",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        held_out: float | Tasks | None = 0.1,
        check_every: int | None = None,
        patience: int = 5,
        weighting: Weighting = "task",
        objective: Objective = "evidence",
        hyper_prior: float | None = None,
        anchored: bool = False,
        seed: int = 0,
        progress: bool | str = True,
    ) -> None:
        self.mean, self.kernel = mean, kernel
        self.noise, self.noise_floor = noise, noise_floor
        self.hidden, self.activation, self.gain, self.features = hidden, activation, gain, features
        self.functions, self.degrees = functions, degrees
        self.learn, self.scale, self.device = learn, scale, device
        self.dtype, self.network_dtype = dtype, network_dtype
        self.optimizer, self.learning_rate, self.batch_size = optimizer, learning_rate, batch_size
        self.max_epochs, self.held_out = max_epochs, held_out
        self.check_every, self.patience = check_every, patience
        self.weighting, self.seed, self.progress = weighting, seed, progress
        self.objective, self.hyper_prior, self.anchored = objective, hyper_prior, anchored

    def fit(self, tasks: Tasks, *, start: LearnedPrior | None = None, checkpoint: str | Path | None = None) -> Self:
        """Meta-learn the prior from past tasks.

        Given modules are copied, not changed. start: a fitted prior to go on from, with its scaling. checkpoint: a
        file in which the training is kept while it runs; where there is one of the same training, it goes on there.
        """
        if self.dtype not in (torch.float32, torch.float64):
            raise OptionError(f"dtype {self.dtype}: the covariance is float64 or float32.")
        self.task_x_ = tasks.columns.task_x if tasks.covariates is not None and self._takes_task_x() else ()
        wide = self._widened(tasks)
        if start is not None:
            start._check_fitted()
            _check_same(start, tasks, self)
            scaler = start.scaler_
        else:
            scaler = Scaler.fit(wide) if self.scale else Scaler.identity(wide.d, wide.p)
        scaled = scaler.scale(wide)
        prior = self._make_prior(scaler, scaled.x, wide.d, wide.p)
        hyper_prior = None
        if self.hyper_prior is not None:
            hyper_prior = HyperPrior(prior, width=self.hyper_prior, anchored=self.anchored)
        if start is not None:
            _start_from(prior, start.prior_)
        held_out = self.held_out
        self.training_ = meta_train(
            prior,
            scaled,
            seed=self.seed,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            held_out=scaler.scale(self._widened(held_out)) if isinstance(held_out, Tasks) else held_out,
            check_every=self.check_every,
            patience=self.patience,
            weighting=self.weighting,
            objective=self.objective,
            hyper_prior=hyper_prior,
            progress=self.progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
        )
        self.prior_, self.scaler_ = prior, scaler
        earlier = None if start is None else start.trained_on_
        self.trained_on_ = TrainedOn.of(tasks, earlier, task_x=bool(self.task_x_))
        if isinstance(held_out, Tasks):  # what decided when to stop has been seen too
            self.trained_on_ = self.trained_on_.and_of(held_out)
        return self

    def condition(self, context: Tasks) -> UserConditional:
        """The prior conditioned on the contexts of many tasks at once."""
        self._check_fitted()
        given = self.scaler_.scale(self._widened(context))
        covariates = context.covariates if self.task_x_ else None
        return UserConditional(condition(self.prior_, given), self.scaler_, context, covariates)

    def _takes_task_x(self) -> bool:
        """Whether it can use covariates: they never differ within a task, so a stationary kernel does not see them."""
        deep = (self.mean not in ("zero", "constant"), self.noise == "deep", not isinstance(self.kernel, str))
        return any(deep) or self.kernel not in ("rbf", "matern", "exponential")

    def _widened(self, tasks: Tasks) -> Tasks:
        """The tasks' points with what this prior takes in of each task as a whole."""
        if not self.task_x_:
            return tasks
        check_task_x(self.task_x_, tasks)
        return tasks.widened(tasks.covariates)

    def structure(self) -> dict[str, Any]:
        """The options that say what it is made of and how it learns: with them, another of its kind can be made."""
        names = (*STRUCTURE, *LEARNING, "hidden", "learn", "dtype", "network_dtype")
        return {name: getattr(self, name) for name in names}

    def state(self) -> State:
        """What was learned, for a file. Parts that were given as code or as modules cannot go into one."""
        self._check_fitted()
        for part, given in (("mean", self.mean), ("kernel", self.kernel)):
            if not isinstance(given, str):
                raise OptionError(f"a {part} that was given as code cannot be saved: choose one by name.")
        if isinstance(self.noise, nn.Module):
            raise OptionError("a noise that was given as a module cannot be saved: give a number, or learn it.")
        d, p = self._columns()
        kinds = {"dtype": str(self.dtype), "network_dtype": self.network_dtype and str(self.network_dtype)}
        lists = {"hidden": list(self.hidden), "learn": list(self.learn)}
        structure = {name: getattr(self, name) for name in (*STRUCTURE, *LEARNING, "seed")} | lists | kinds
        structure |= {"d": d, "p": p, "task_x": [[one.name, list(one.levels or ())] for one in self.task_x_]}
        tensors = {f"prior.{name}": value for name, value in self.prior_.state_dict().items()}
        curve = torch.tensor(
            [[c.epoch, c.loss_per_task, c.held_out_evidence, c.seconds] for c in self.training_.checks]
        )
        about = {"training": {"stopped": self.training_.stopped, "skipped": self.training_.skipped}}
        return State(self.kind, structure, tensors | self.scaler_.as_tensors() | {"training": curve}, about)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted model again."""
        options = dict(state.structure)
        d, p, about = options.pop("d"), options.pop("p"), options.pop("task_x", [])
        options |= {"dtype": _DTYPES[options["dtype"]], "network_dtype": _DTYPES[options["network_dtype"]]}
        gp = cls(**options)
        gp.task_x_ = tuple(Covariate(name, tuple(levels)) for name, levels in about)
        gp.scaler_ = Scaler.from_tensors(state.tensors)
        gp._check_networks(state, d, p)
        gp.prior_ = gp._make_prior(gp.scaler_, None, d, p)
        known = {
            name.removeprefix("prior."): value for name, value in state.tensors.items() if name.startswith("prior.")
        }
        gp.prior_.load_state_dict(known)
        checks = [Check(int(row[0]), *row[1:]) for row in state.tensor("training").tolist()]
        training = state.about.get("training", {})
        best = max(checks, key=lambda check: check.held_out_evidence)
        gp.training_ = Training(tuple(checks), best, training.get("stopped", ""), training.get("skipped", 0), ())
        return gp

    def _check_networks(self, state: State, d: int, p: int) -> None:
        """The widths that the file states are those of its tensors: nothing is allocated on its word alone."""
        if [len(self.scaler_.x_shift), len(self.scaler_.y_shift)] != [d, p]:
            raise DataError("the model file does not fit together: its columns and its scaling differ.")
        networks = {
            "mean": p if self.mean == "deep" else 0,
            "kernel": {"deep": self.features, "rbf": 0, "matern": 0, "exponential": 0}.get(
                str(self.kernel), self.functions
            ),
            "kernel.rest": self.features if self.kernel == "eigenfunctions + deep" else 0,
            "noise": 1 if self.noise == "deep" else 0,
        }
        for part, outputs in networks.items():
            widths = [d, *self.hidden, outputs]
            for k in range(len(widths) - 1) if outputs else ():
                state.tensor(f"prior.{part}.network.layers.{2 * k}.weight", (widths[k + 1], widths[k]))

    def _make_prior(self, scaler: Scaler, like: Tensor | None, d: int, p: int) -> Prior:
        prior = make_prior(
            self._scaled_mean(scaler),
            copy.deepcopy(self.kernel),
            d=d,
            p=p,
            noise=self._scaled_noise(scaler),
            noise_floor=self.noise_floor,
            hidden=self.hidden,
            activation=self.activation,
            gain=self.gain,
            features=self.features,
            functions=self.functions,
            degrees=self.degrees,
            learn=self.learn,
            seed=self.seed,
            dtype=self.network_dtype or self.dtype,
            like=like,
        )
        if self.dtype != torch.float64:
            prior.to(self.dtype)
        return prior.to(_device(self.device))

    def _scaled_mean(self, scaler: Scaler) -> str | Mean | Callable[[Tensor], Tensor]:
        if isinstance(self.mean, (str, nn.Module)):
            return copy.deepcopy(self.mean)
        given = self.mean

        def scaled(x: Tensor) -> Tensor:
            values = given(x * scaler.x_scale.to(x) + scaler.x_shift.to(x))
            values = values[..., None] if values.ndim == x.ndim - 1 else values
            return (values - scaler.y_shift.to(x)) / scaler.y_scale.to(x)

        return scaled

    def _scaled_noise(self, scaler: Scaler) -> nn.Module | float | str | None:
        if self.noise is None or isinstance(self.noise, (str, nn.Module)):
            return copy.deepcopy(self.noise)
        scales = scaler.y_scale.unique()
        if len(scales) > 1:
            raise OptionError("the outputs share one noise, and theirs differ in scale: learn it, or use scale=False.")
        return float(self.noise / scales[0] ** 2)

    def _columns(self) -> tuple[int, int]:
        return len(self.scaler_.x_shift), len(self.scaler_.y_shift)

    def _check_fitted(self) -> None:
        if not hasattr(self, "prior_"):
            raise NotFittedError("this LearnedPrior has learned nothing yet: call fit(tasks) first.")


def _check_same(start: LearnedPrior, tasks: Tasks, gp: LearnedPrior) -> None:
    """Whether learning can go on: the same columns, and networks that read their weights in the same way."""
    known = start.trained_on_.columns
    if start.task_x_ or gp.task_x_:
        check_task_x(start.task_x_, tasks)
    if (known.x, known.y) != (tasks.columns.x, tasks.columns.y):
        raise DataError(
            f"the earlier model goes from {', '.join(known.x)} to {', '.join(known.y)}: give the same columns."
        )
    for name in STRUCTURE:
        if getattr(start, name) != getattr(gp, name):
            raise DataError(f"the earlier model has {name}={getattr(start, name)!r}: give the same options.")


def _start_from(prior: Prior, earlier: Prior) -> None:
    """Take over what an earlier prior of the same structure has learned."""
    try:
        prior.load_state_dict(earlier.state_dict())
    except RuntimeError as error:
        raise DataError(f"the earlier model has another structure: give the same options. ({error})") from None


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError("device 'cuda': no GPU is available here; use 'cpu' or 'auto'.")
    if name not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r}: use 'cpu', 'cuda' or 'auto'.")
    return torch.device(name)
