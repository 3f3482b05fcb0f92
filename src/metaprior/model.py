"""`MetaGP`: the one object most users meet. Fit it on past tasks, condition it on a new one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor, nn

from metaprior.errors import NotFittedError, OptionError
from metaprior.inference import UserConditional, UserPosterior, condition
from metaprior.learning import OptimizerName, Training, Weighting, meta_train
from metaprior.priors import Prior, make_prior
from metaprior.scoring import Scores, score
from metaprior.tasks import Scaler, Tasks


class MetaGP:
    """A Gaussian process whose prior is meta-learned.

        gp = MetaGP(mean="deep", kernel="deep").fit(tasks)
        posterior = gp.condition(x, y).at(x_new)
        posterior.mean, posterior.interval(0.9)

    mean: "zero", "constant", "linear", "deep", a GPyTorch mean, or a fixed callable. kernel: "rbf", "matern", "deep",
    or a GPyTorch kernel. noise: None (learned above `noise_floor`) or a fixed variance. learn: which parts
    meta-learning may change. scale: bring x and y to mean 0 and deviation 1 first. A callable mean and a fixed noise
    are in the user's units; the noise floor and GPyTorch modules are in scaled ones. The rest goes to `meta_train`.

    gain: how rough the networks start; a smaller one (1 for a sigmoid) suits tasks of few points (see `Network`).
    dtype: of the covariance; network_dtype: of the networks, default the same (float32 networks go under either).

    After `fit`: `prior_` (the learned prior), `scaler_`, `training_` (what happened).
    """

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
        self.learn, self.scale, self.dtype, self.network_dtype = learn, scale, dtype, network_dtype
        self.optimizer, self.learning_rate, self.batch_size = optimizer, learning_rate, batch_size
        self.max_epochs, self.held_out = max_epochs, held_out
        self.check_every, self.patience = check_every, patience
        self.weighting, self.seed, self.progress = weighting, seed, progress

    def fit(self, tasks: Tasks) -> Self:
        """Meta-learn the prior from past tasks; the given modules are copied, not changed."""
        if self.dtype not in (torch.float32, torch.float64):
            raise OptionError(f"dtype {self.dtype}: the covariance is float64 or float32.")
        scaler = Scaler.fit(tasks) if self.scale else Scaler.identity(tasks.d, tasks.p)
        scaled = scaler.scale(tasks)
        prior = make_prior(
            self._scaled_mean(scaler),
            copy.deepcopy(self.kernel),
            d=tasks.d,
            p=tasks.p,
            noise=self._scaled_noise(scaler),
            noise_floor=self.noise_floor,
            hidden=self.hidden,
            activation=self.activation,
            gain=self.gain,
            features=self.features,
            learn=self.learn,
            seed=self.seed,
            dtype=self.network_dtype or self.dtype,
            like=scaled.x,
        )
        if self.dtype != torch.float64:
            prior.to(self.dtype)
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
        )
        self.prior_, self.scaler_ = prior, scaler
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

    def predict(self, context: Tasks, at: Any) -> UserPosterior:
        """The posterior of many target tasks: at their own points (`Tasks`), or at one array of points for all."""
        return self.condition_tasks(context).at(at)

    def score(self, tasks: Tasks, context: int | Callable[[Tensor], Any], *, seed: int = 0) -> Scores:
        """How well tasks are predicted from `context` random points each, or from those where a predicate holds."""
        if callable(context):
            given, target = tasks.context_target(where=context)
        else:
            given, target = tasks.context_target(context, seed)
        return score(self.predict(given, target), target)

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
