"""`Prior`: mean, kernel and noise joined, and which of them is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from jaxtyping import Float, Int
from torch import Tensor, nn

from metaprior.errors import UnknownNameError
from metaprior.priors.kernels import kernel_diagonal, kernel_features, kernel_matrix
from metaprior.priors.means import FixedMean, mean_values
from metaprior.priors.networks import Network
from metaprior.priors.noise import FixedNoise
from metaprior.priors.tails import Degrees

PARTS = ("mean", "kernel", "noise")

LAYING_OUT = 10
"""Covariances that take as long as laying out the features of a point."""


@dataclass(frozen=True, eq=False)
class AtPoints:
    """What a prior says of each point on its own; covariances follow from the features.

    Where `which` is given, points are some of a few distinct ones: features are kept once for each of those, and laid
    out point by point only where that is asked for.
    """

    mean: Float[Tensor, "*n p"]
    noise: Float[Tensor, "*n"]
    distinct: Float[Tensor, "u q"]
    which: Int[Tensor, "*n"] | None = None

    @cached_property
    def features(self) -> Float[Tensor, "*n q"]:
        """The features of each point."""
        return self.distinct if self.which is None else _rows(self.distinct, self.which)

    def gather(self, index: Int[Tensor, "*m"]) -> AtPoints:
        """The same at points chosen by position, of which it keeps a note."""
        return AtPoints(_rows(self.mean, index), _rows(self.noise, index), self.features, index)

    def laid_out(self, shape: Sequence[int]) -> AtPoints:
        """The same points, in this shape."""
        parts = (self.mean, self.noise, self.features)
        return AtPoints(*(part.reshape(*shape, *part.shape[1:]) for part in parts))

    def of_tasks(self, which: Int[Tensor, " k"]) -> AtPoints:
        """The same for some of the tasks."""
        if self.which is None:
            return AtPoints(self.mean[which], self.noise[which], self.distinct[which])
        return AtPoints(self.mean[which], self.noise[which], self.distinct, self.which[which])

    def trimmed(self, n: int) -> AtPoints:
        """The first n points of each task."""
        mean, noise = self.mean[:, :n], self.noise[:, :n]
        if self.which is None:
            return AtPoints(mean, noise, self.distinct[:, :n])
        return AtPoints(mean, noise, self.distinct, self.which[:, :n])


def _rows(values: Tensor, index: Int[Tensor, "*m"]) -> Tensor:
    chosen = values.index_select(0, index.reshape(-1))
    return chosen.reshape(*index.shape, *values.shape[1:])


class Prior(nn.Module):
    """`GP(m_φ, k_θ)` with noise variance σ² (eq:gp_prior).

    Its covariance algebra is float64; `prior.float()` makes it float32, and networks may be float32 by themselves.

    mean: a GPyTorch mean or a fixed callable. kernel: a GPyTorch kernel. noise: `LearnedNoise`, `FixedNoise` or
    a number (fixed). learn: which of "mean", "kernel", "noise" may change in meta-learning; the rest is frozen.
    degrees: of freedom, which make it a Student-t process; they are learned where the noise is.
    """

    def __init__(
        self,
        mean: Mean | Callable[[Tensor], Tensor],
        kernel: Kernel,
        noise: nn.Module | float,
        *,
        learn: Iterable[str],
        degrees: Degrees | None = None,
    ) -> None:
        super().__init__()
        self.mean = mean if isinstance(mean, nn.Module) else FixedMean(mean)
        self.kernel = kernel
        self.noise = noise if isinstance(noise, nn.Module) else FixedNoise(noise)
        self.degrees = degrees
        for part in PARTS:
            _in_float64(getattr(self, part))
        self.let_learn(learn)
        self.fits: set[tuple[int, int]] = set()  # numbers of inputs and outputs that it was found to have

    def let_learn(self, learn: Iterable[str]) -> None:
        """Which of "mean", "kernel", "noise" may change from now on."""
        self.learn = tuple(learn)
        for part in self.learn:
            if part not in PARTS:
                raise UnknownNameError("part of a prior", part, PARTS)
        for part in PARTS:
            getattr(self, part).requires_grad_(part in self.learn)
        if self.degrees is not None:
            self.degrees.requires_grad_("noise" in self.learn)

    def at(self, x: Float[Tensor, "*n d"]) -> AtPoints:
        """Everything that is computed point by point: networks run here and nowhere else."""
        return AtPoints(mean_values(self.mean, x), self.noise(x), kernel_features(self.kernel, x))

    def covariance(self, z1: AtPoints, z2: AtPoints) -> Float[Tensor, "*n1 n2"]:
        """`k_θ` between two sets of points; where they are few distinct ones, computed once per distinct pair."""
        if z1.which is not None and z2.which is not None and self._pairs_repeat(z1, z2):
            values = kernel_matrix(self.kernel, z1.distinct, z2.distinct)
            return values.take(z1.which[..., :, None] * values.shape[-1] + z2.which[..., None, :])
        return kernel_matrix(self.kernel, z1.features, z2.features)

    def _pairs_repeat(self, z1: AtPoints, z2: AtPoints) -> bool:
        """Whether there are so few distinct pairs that looking them up is cheaper; gradients go the plain way."""
        assert z1.which is not None
        assert z2.which is not None
        distinct, all_pairs = len(z1.distinct) * len(z2.distinct), z1.which.numel() * z2.which.shape[-1]
        laid_out = LAYING_OUT * (z1.which.numel() + z2.which.numel())
        return 2 * distinct <= all_pairs + laid_out and not torch.is_grad_enabled() and not self.kernel.batch_shape

    def variance(self, z: AtPoints) -> Float[Tensor, "*n"]:
        """`k_θ(x, x)` at each point."""
        if z.which is None or self.kernel.batch_shape:
            return kernel_diagonal(self.kernel, z.features)
        return _rows(kernel_diagonal(self.kernel, z.distinct), z.which)

    @property
    def has_own_means(self) -> bool:
        """Whether each of several tasks has a mean of its own (GPyTorch's batch shape)."""
        return bool(getattr(self.mean, "batch_shape", ()))

    @property
    def differs_by_task(self) -> bool:
        """Whether mean or kernel have a batch shape: parameters of their own for each of several tasks."""
        return self.has_own_means or bool(self.kernel.batch_shape)

    def of_tasks(self, which: Int[Tensor, " k"]) -> Prior:
        """Where it differs by task: the prior of some of them."""
        if not self.differs_by_task:
            return self
        mean = self.mean[which] if self.has_own_means else self.mean  # type: ignore[index]
        kernel = self.kernel[which] if self.kernel.batch_shape else self.kernel
        return Prior(mean, kernel, self.noise, learn=self.learn, degrees=self.degrees)

    def learned_parameters(self) -> list[nn.Parameter]:
        """The parameters that meta-learning may change (ψ)."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    @property
    def like(self) -> Tensor:
        """A tensor on the device and in the precision of the covariance algebra: `x.to(prior.like)`."""
        own = next(chain(self.noise.parameters(), self.noise.buffers(), self.kernel.parameters()), None)
        return torch.zeros((), dtype=torch.float64) if own is None else own.detach()


def _in_float64(part: nn.Module) -> None:
    """Parameters in float64, as the covariance algebra is; networks keep the precision they were made with."""
    networks = {id(p) for module in part.modules() if isinstance(module, Network) for p in module.parameters()}
    for values in (*part.parameters(), *part.buffers()):
        if id(values) not in networks and values.is_floating_point():
            values.data = values.data.double()
