"""A learned prior, conditioned on one task, as a GPyTorch or BoTorch model in the user's units."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.extras import needs
from metaprior.priors import FixedNoise, LearnedNoise, Prior, kernel_features, kernel_matrix, mean_values
from metaprior.tasks import Scaler, Tasks


class UnitsMean(Mean):  # type: ignore[misc]
    """The prior's mean for points in the user's units; several outputs are a batch, `[p, n]`."""

    def __init__(self, prior: Prior, scaler: Scaler) -> None:
        super().__init__()
        self.mean, self.scaler = prior.mean, scaler

    def forward(self, x: Tensor) -> Tensor:
        values = mean_values(self.mean, (x - self.scaler.x_shift.to(x)) / self.scaler.x_scale.to(x))
        values = values * self.scaler.y_scale.to(x) + self.scaler.y_shift.to(x)
        if values.shape[-1] == 1:
            return values[..., 0]
        # x comes with the batch of outputs in front: each takes its own column
        return values.diagonal(dim1=-3, dim2=-1).mT if x.ndim > 2 else values.mT


class UnitsKernel(Kernel):  # type: ignore[misc]
    """The prior's kernel for points in the user's units."""

    has_lengthscale = False

    def __init__(self, prior: Prior, scaler: Scaler) -> None:
        p = len(scaler.y_shift)
        super().__init__(batch_shape=torch.Size([p] if p > 1 else []))
        self.kernel, self.scaler = prior.kernel, scaler

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        z1, z2 = (
            kernel_features(self.kernel, (x - self.scaler.x_shift.to(x)) / self.scaler.x_scale.to(x)) for x in (x1, x2)
        )
        variance = self.scaler.y_scale.to(x1).square()
        variance = variance[0] if len(variance) == 1 else variance[:, None, None]
        K = kernel_matrix(self.kernel, z1, z2) * variance
        return K.diagonal(dim1=-2, dim2=-1) if diag else K


class TaskGP(ExactGP):  # type: ignore[misc]
    """A GPyTorch model of one task, given its points."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: GaussianLikelihood, mean: Mean, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def to_gpytorch(prior: Prior, scaler: Scaler, x: Any, y: Any) -> ExactGP:
    """An `ExactGP` in evaluation mode; of several outputs, a batch of them."""
    prior, points = copy.deepcopy(prior).cpu(), _points(scaler, x, y)  # the model's own: it may be changed
    p = points.p
    inputs, targets = (points.x, points.y[:, 0]) if p == 1 else (points.x.expand(p, -1, -1), points.y.mT)
    likelihood = _likelihood(prior, scaler)
    model = TaskGP(inputs, targets, likelihood, UnitsMean(prior, scaler), UnitsKernel(prior, scaler)).double()
    return model.eval().requires_grad_(False)


def to_botorch(prior: Prior, scaler: Scaler, x: Any, y: Any) -> Any:
    """A `SingleTaskGP` without transforms of its own; several outputs as it has them."""
    with needs("to_botorch", "botorch"):
        from botorch.models import SingleTaskGP
    prior, points = copy.deepcopy(prior).cpu().double(), _points(scaler, x, y)
    model = SingleTaskGP(
        points.x,
        points.y,
        likelihood=_likelihood(prior, scaler),
        mean_module=UnitsMean(prior, scaler),
        covar_module=UnitsKernel(prior, scaler),
        outcome_transform=None,
        input_transform=None,
    )
    return model.eval().requires_grad_(False)


def _points(scaler: Scaler, x: Any, y: Any) -> Tasks:
    points = Tasks.from_pairs([(x, y)])
    if len(points.x) == 0:
        raise DataError("a GPyTorch model needs at least one point.")
    scaler.scale(points)  # the columns must be those of the model
    return points


def _likelihood(prior: Prior, scaler: Scaler) -> GaussianLikelihood:
    if not isinstance(prior.noise, (LearnedNoise, FixedNoise)):
        raise OptionError("only one noise variance for all points can go into a GPyTorch likelihood.")
    noise = prior.noise(torch.zeros(1, len(scaler.x_shift)).to(prior.like)).detach().double()
    variance = noise * scaler.y_scale.square()
    shape = torch.Size([len(variance)] if len(variance) > 1 else [])
    likelihood = GaussianLikelihood(batch_shape=shape).double()
    likelihood.noise_covar.register_constraint("raw_noise", GreaterThan(1e-12))
    likelihood.noise = variance if len(variance) == 1 else variance[:, None]
    return likelihood
