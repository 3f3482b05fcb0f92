"""A curve that all tasks share and that is not known for sure: what past tasks leave open about it is in the kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.means import Mean
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.priors.kernels import DirectKernel, FeatureKernel, squared_distances
from metaprior.priors.networks import Remembered

JITTER = 1e-8
"""Of the variances at centres: two of them may nearly be one."""


class SharedCurve(nn.Module):
    """`b(x)` with `m(x) = b(x)ᵀ w`, `w ~ N(0, I)`: a Gaussian process, known by what it is at some centres.

    A level of its own, and a Matérn process of these lengthscales (one for each input) and this deviation around it.
    Beyond the range of the inputs it was made for, it keeps its value at the edge.
    """

    centres: Tensor
    lengths: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(
        self,
        centres: Float[Tensor, "q d"],
        lengths: Float[Tensor, " d"],
        deviation: float,
        level: float,
        lower: Float[Tensor, " d"],
        upper: Float[Tensor, " d"],
    ) -> None:
        super().__init__()
        self.deviation, self.level, self._last = deviation, level, Remembered()
        for name, value in {"centres": centres, "lengths": lengths, "lower": lower, "upper": upper}.items():
            self.register_buffer(name, value)
        K = matern_5(_distances(centres, centres, lengths))
        self.register_buffer("root", torch.linalg.cholesky(K + JITTER * torch.eye(len(K)).to(K)))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        return self._last.of(x, self._at)

    def _at(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        inside = x.clamp(self.lower, self.upper)
        K = matern_5(_distances(self.centres, inside.reshape(-1, x.shape[-1]), self.lengths))
        around = torch.linalg.solve_triangular(self.root, K, upper=False).mT.reshape(*x.shape[:-1], len(self.centres))  # type: ignore[arg-type]
        return torch.cat([torch.full_like(x[..., :1], self.level), self.deviation * around], -1)


class SharedMean(Mean):  # type: ignore[misc]
    """What past tasks say of the shared curve: the mean of its weights, a column for each output."""

    def __init__(self, curve: SharedCurve, weights: Float[Tensor, "q p"]) -> None:
        super().__init__()
        self.curve = curve
        self.register_buffer("weights", weights)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n p"]:
        return self.curve(x) @ self.weights  # type: ignore[no-any-return]


class HierarchicalKernel(FeatureKernel):
    """What is not known of a new task: the rest of the shared curve, its own level, and its own Matérn curve."""

    def __init__(
        self,
        curve: SharedCurve,
        left_open: Float[Tensor, "q r"],
        level: float,
        deviation: float,
        lengths: Float[Tensor, " d"],
    ) -> None:
        """left_open: a root of the covariance of the shared curve's weights, given the past tasks."""
        super().__init__()
        self.curve, self.level = curve, level
        self.register_buffer("left_open", left_open)
        self.register_buffer("lengths", lengths)
        self.base_kernel = _InnerProductAndCurve(left_open.shape[1] + 1, deviation)

    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        level = torch.full_like(x[..., :1], self.level)
        return torch.cat([self.curve(x) @ self.left_open, level, x / self.lengths], -1)


class _InnerProductAndCurve(DirectKernel):
    """`zᵀz'` of the first features, plus a Matérn kernel of the others."""

    def __init__(self, first: int, deviation: float) -> None:
        super().__init__()
        self.first, self.deviation = first, deviation

    def forward(self, z1: Tensor, z2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        one, two, k = z1[..., : self.first], z2[..., : self.first], self.first
        if diag:
            return (one * two).sum(-1) + self.deviation**2
        apart = squared_distances(z1[..., k:], z2[..., k:]).sqrt()
        return one @ two.mT + self.deviation**2 * matern_3(apart)


def _distances(
    x1: Float[Tensor, "n d"], x2: Float[Tensor, "k d"], lengths: Float[Tensor, " d"]
) -> Float[Tensor, "n k"]:
    return squared_distances(x1 / lengths, x2 / lengths).sqrt()


def matern_3(distance: Tensor) -> Tensor:
    """Matérn's kernel of once differentiable functions."""
    return _Matern.apply(distance, 3**0.5, 0.0)  # type: ignore[no-any-return, no-untyped-call]


def matern_5(distance: Tensor) -> Tensor:
    """Matérn's kernel of twice differentiable functions."""
    return _Matern.apply(distance, 5**0.5, 1 / 3)  # type: ignore[no-any-return, no-untyped-call]


class _Matern(torch.autograd.Function):
    """`k(t) = (1 + t + c t²) e⁻ᵗ` with `t = s |x − x'|`: c = 0 or ⅓; its slope is `t ((2c − 1) − c t) e⁻ᵗ`."""

    @staticmethod
    def forward(ctx: Any, distance: Tensor, scale: float, c: float) -> Tensor:
        t = scale * distance
        decay = torch.exp(-t)
        ctx.save_for_backward(t, decay)
        ctx.scale, ctx.c = scale, c
        return (c * t + 1.0).mul_(t).add_(1.0).mul_(decay)

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor, None, None]:
        t, decay = ctx.saved_tensors
        slope = (-ctx.c * t).add_(2 * ctx.c - 1.0).mul_(t).mul_(decay).mul_(ctx.scale)
        return along[0] * slope, None, None
