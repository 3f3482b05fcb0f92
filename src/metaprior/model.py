"""`MetaGP`: the one object most users meet. Fit it on past tasks, condition it on a new one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, overload

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor, nn

from metaprior.errors import DataError, NotFittedError, OptionError
from metaprior.exports import to_botorch, to_gpytorch
from metaprior.files import Saved, State
from metaprior.frames import Wanted, predict_table
from metaprior.inference import UserConditional, UserPosterior, condition
from metaprior.learning import Check, OptimizerName, Training, Weighting, meta_train
from metaprior.priors import Prior, make_prior
from metaprior.scoring import Scores, score
from metaprior.tasks import Missing, Scaler, Tasks, TrainedOn, as_tasks

_DTYPES = {"torch.float32": torch.float32, "torch.float64": torch.float64, None: None}


class MetaGP(Saved):
    """A Gaussian process whose prior is meta-learned.

        gp = MetaGP(mean="deep", kernel="deep").fit(tasks)
        posterior = gp.condition(x, y).at(x_new)
        posterior.mean, posterior.interval(0.9)

    mean: "zero", "constant", "linear", "deep", a GPyTorch mean, or a fixed callable. kernel: "rbf", "matern", "deep",
    or a GPyTorch kernel. noise: None (learned above `noise_floor`) or a fixed variance. learn: which parts
    meta-learning may change. scale: bring x and y to mean 0 and deviation 1 first. A callable mean and a fixed noise
    are in the user's units; the noise floor and GPyTorch modules are in scaled ones. The rest goes to `meta_train`.

    gain: how rough the networks start; a smaller one (1 for a sigmoid) suits tasks of few points (see `Network`).
    device: "cpu", "cuda", or "auto" (a GPU where there is one). dtype: of the covariance; network_dtype: of the
    networks, default the same (float32 networks go under either).

    After `fit`: `prior_` (the learned prior), `scaler_`, `training_` (what happened), `trained_on_`.
    """

    kind = "metagp"
    prior_: Prior
    scaler_: Scaler
    training_: Training

    def __init__(
        self,
        mean: str | Mean | Callable[[Tensor], Tensor] = "deep",
        kernel: str | Kernel = "deep",
        *,
        noise: nn.Module | float | None = None,
        noise_floor: float = 1e-4,
        hidden: Sequence[int] = (128, 64),
        activation: str = "sigmoid",
        gain: float | None = None,
        features: int = 2,
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
        seed: int = 0,
        progress: bool | str = True,
    ) -> None:
        self.mean, self.kernel = mean, kernel
        self.noise, self.noise_floor = noise, noise_floor
        self.hidden, self.activation, self.gain, self.features = hidden, activation, gain, features
        self.learn, self.scale, self.device = learn, scale, device
        self.dtype, self.network_dtype = dtype, network_dtype
        self.optimizer, self.learning_rate, self.batch_size = optimizer, learning_rate, batch_size
        self.max_epochs, self.held_out = max_epochs, held_out
        self.check_every, self.patience = check_every, patience
        self.weighting, self.seed, self.progress = weighting, seed, progress

    def fit(
        self,
        tasks: Any,
        *,
        task: str | Sequence[str] | None = None,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        missing: Missing = "error",
        start: MetaGP | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Meta-learn the prior from past tasks: a `Tasks`, or a long table with the names of its columns.

        Given modules are copied, not changed. start: a fitted model to go on from, with its scaling. checkpoint: a
        file in which the training is kept while it runs; where there is one of the same training, it goes on there.
        """
        tasks = as_tasks(tasks, task=task, x=x, y=y, missing=missing)
        if self.dtype not in (torch.float32, torch.float64):
            raise OptionError(f"dtype {self.dtype}: the covariance is float64 or float32.")
        if start is not None:
            start._check_fitted()
            _check_same(start, tasks, self)
            scaler = start.scaler_
        else:
            scaler = Scaler.fit(tasks) if self.scale else Scaler.identity(tasks.d, tasks.p)
        scaled = scaler.scale(tasks)
        prior = self._make_prior(scaler, scaled.x, tasks.d, tasks.p)
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
            held_out=scaler.scale(held_out) if isinstance(held_out, Tasks) else held_out,
            check_every=self.check_every,
            patience=self.patience,
            weighting=self.weighting,
            progress=self.progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
        )
        self.prior_, self.scaler_ = prior, scaler
        self.trained_on_ = TrainedOn.of(tasks, getattr(start, "trained_on_", None))
        return self

    def condition(self, x: Any, y: Any) -> UserConditional:
        """The prior conditioned on one new task's points, of which there may be none; ask it with `.at(x_new)`."""
        self._check_fitted()
        if len(x) == len(y) == 0:
            return self.condition_tasks(Tasks.empty(["new task"], *self._columns()))
        return self.condition_tasks(Tasks.from_pairs([(x, y)], ["new task"]))

    def condition_tasks(self, context: Tasks) -> UserConditional:
        """The prior conditioned on the contexts of many tasks at once."""
        self._check_fitted()
        return UserConditional(condition(self.prior_, self.scaler_.scale(context)), self.scaler_)

    @overload
    def predict(self, context: Tasks, at: Any) -> UserPosterior: ...
    @overload
    def predict(self, context: Any, at: Any, **wanted: Any) -> Any: ...
    def predict(self, context: Any, at: Any, **wanted: Any) -> Any:
        """The posterior of many target tasks: at their own points (`Tasks`), or at one array of points for all.

        With a table as context, a table of the same kind comes back: task and input columns, then mean, sd, lower and
        upper. at: points, a second table, or "missing" (the rows without targets). wanted: level=0.9, latent=False,
        quantiles=(), samples=0, seed=0, missing="error".
        """
        if isinstance(context, Tasks):
            if wanted:
                raise OptionError(
                    f"{', '.join(wanted)} belong to tables; ask the posterior: gp.predict(tasks, at).interval(0.9)."
                )
            return self.condition_tasks(context).at(at)
        self._check_fitted()
        return predict_table(self, self.trained_on_.columns, context, at, Wanted(**wanted))

    def to_gpytorch(self, x: Any, y: Any) -> ExactGP:
        """The posterior of one task as a GPyTorch model in evaluation mode, in the user's units."""
        self._check_fitted()
        return to_gpytorch(self.prior_, self.scaler_, x, y)

    def to_botorch(self, x: Any, y: Any) -> Any:
        """The same as a BoTorch `SingleTaskGP`, for its acquisition functions."""
        self._check_fitted()
        return to_botorch(self.prior_, self.scaler_, x, y)

    def score(self, tasks: Tasks, context: int | Callable[[Tensor], Any], *, seed: int = 0) -> Scores:
        """How well tasks are predicted from `context` random points each, or from those where a predicate holds."""
        if callable(context):
            given, target = tasks.context_target(where=context)
        else:
            given, target = tasks.context_target(context, seed)
        return score(self.predict(given, target), target)

    def like_new(self, **options: Any) -> MetaGP:
        """A model of the same structure that has learned nothing yet."""
        names = ("mean", "kernel", "noise", "noise_floor", "hidden", "activation", "gain", "features", "learn", "scale")
        kinds = {"dtype": self.dtype, "network_dtype": self.network_dtype}
        return MetaGP(**({name: getattr(self, name) for name in names} | kinds | options))

    def state(self) -> State:
        """What was learned, for a file. Parts that were given as code or as modules cannot go into one."""
        self._check_fitted()
        for part, given in (("mean", self.mean), ("kernel", self.kernel)):
            if not isinstance(given, str):
                raise OptionError(f"a {part} that was given as code cannot be saved: choose one by name.")
        if isinstance(self.noise, nn.Module):
            raise OptionError("a noise that was given as a module cannot be saved: give a number, or learn it.")
        names = (
            "mean",
            "kernel",
            "noise",
            "noise_floor",
            "activation",
            "gain",
            "features",
            "scale",
            "optimizer",
            "seed",
        )
        d, p = self._columns()
        kinds = {"dtype": str(self.dtype), "network_dtype": self.network_dtype and str(self.network_dtype)}
        lists = {"hidden": list(self.hidden), "learn": list(self.learn)}
        structure = {name: getattr(self, name) for name in names} | lists | kinds | {"d": d, "p": p}
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
        d, p = options.pop("d"), options.pop("p")
        options |= {"dtype": _DTYPES[options["dtype"]], "network_dtype": _DTYPES[options["network_dtype"]]}
        gp = cls(**options)
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
        for part, given, outputs in (("mean", self.mean, p), ("kernel", self.kernel, self.features)):
            widths = [d, *self.hidden, outputs]
            if [len(self.scaler_.x_shift), len(self.scaler_.y_shift)] != [d, p]:
                raise DataError("the model file does not fit together: its columns and its scaling differ.")
            for k in range(len(widths) - 1) if given == "deep" else ():
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

    def _scaled_noise(self, scaler: Scaler) -> nn.Module | float | None:
        if self.noise is None or isinstance(self.noise, nn.Module):
            return copy.deepcopy(self.noise)
        scales = scaler.y_scale.unique()
        if len(scales) > 1:
            raise OptionError("the outputs share one noise, and theirs differ in scale: learn it, or use scale=False.")
        return float(self.noise / scales[0] ** 2)

    def _columns(self) -> tuple[int, int]:
        return len(self.scaler_.x_shift), len(self.scaler_.y_shift)

    def _check_fitted(self) -> None:
        if not hasattr(self, "prior_"):
            raise NotFittedError("this MetaGP has learned nothing yet: call fit(tasks) first.")


def _check_same(start: MetaGP, tasks: Tasks, gp: MetaGP) -> None:
    """Whether learning can go on: the same columns, and networks that read their weights in the same way."""
    known = start.trained_on_.columns
    if (known.x, known.y) != (tasks.columns.x, tasks.columns.y):
        raise DataError(
            f"the earlier model goes from {', '.join(known.x)} to {', '.join(known.y)}: give the same columns."
        )
    for name in ("mean", "kernel", "activation", "features", "noise_floor", "noise"):
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
