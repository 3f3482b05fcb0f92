"""Kernels. Any `gpytorch.kernels.Kernel` is one; these add deep ones, low-rank ones on a basis, and some by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Unpack

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from metaprior.errors import NumericalError, OptionError, UnknownNameError
from metaprior.priors.bases import Basis
from metaprior.priors.networks import MadeFor, Network, NetworkOptions
from metaprior.seeds import child_seed

Shape = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A stationary kernel as a function of the squared distance in lengthscales: its value and its derivative."""

NEAR = 1e-12
"""Squared distance below which two points are one: an exponential kernel has no slope there."""

FEW_COLUMNS = 16
"""Up to so many, distances are taken from differences; of more, from products, which cost less …"""

NEIGHBOURS = 0.05
"""… but for pairs whose squared distance is below this share of their squared lengths: products lose its digits."""

FAR = 1e8
"""Squared distance in lengthscales from which on every kernel is 0 in float64: ∞ times that would be NaN."""


def _rbf(squares: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.exp(squares * -0.5)
    return value, value * -0.5


def _matern(squares: Tensor) -> tuple[Tensor, Tensor]:
    distance = (5.0 * squares).sqrt_()
    decay = torch.exp(-distance)
    slope = (distance + 1.0).mul_(decay)
    return slope + (5.0 / 3.0) * squares * decay, slope.mul_(-5.0 / 6.0)


def _exponential(squares: Tensor) -> tuple[Tensor, Tensor]:
    distance = squares.sqrt()
    value = torch.exp(-distance)
    return value, torch.where(squares > NEAR, value / distance.mul_(-2.0), 0.0)


SHAPES: dict[str, Shape] = {"rbf": _rbf, "matern": _matern, "exponential": _exponential}
"""Stationary kernels by name."""


def shape_name(kernel: Kernel) -> str | None:
    """What a kernel is called, if it is `s k(|z − z'| / l)` with one of these."""
    found = stationary(kernel)
    return next((name for name, shape in SHAPES.items() if shape is found), None)


def stationary(kernel: Kernel) -> Shape | None:
    """The formula of `s k(|z − z'| / l)`, if that is what a kernel is: one of ours on all columns, with one l."""
    if not isinstance(kernel, ScaleKernel) or not (_plain(kernel) and _plain(kernel.base_kernel)):
        return None
    base = kernel.base_kernel
    if type(kernel.raw_outputscale_constraint) is not Positive:
        return None
    if not base.has_lengthscale or type(base.raw_lengthscale_constraint) is not Positive:
        return None
    if type(base) is RBFKernel:
        return SHAPES["rbf"]
    return (
        {0.5: SHAPES["exponential"], 2.5: SHAPES["matern"]}.get(float(base.nu)) if type(base) is MaternKernel else None
    )


def _plain(kernel: Kernel) -> bool:
    """Whether it sees all columns with one lengthscale and is one kernel, not several."""
    return kernel.active_dims is None and kernel.ard_num_dims is None and not kernel._batch_shape


def squared_distances(z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"]) -> Float[Tensor, "*n1 n2"]:
    """`|z − z'|²` between points."""
    if z1.shape[-1] == 1:
        return (z1 - z2.mT).square_()
    if z1.shape[-1] <= FEW_COLUMNS and z1.is_cuda:  # its `cdist` takes ten times as long as the differences
        first, *others = zip(z1.split(1, -1), z2.split(1, -1), strict=True)
        squares: Tensor = (first[0] - first[1].mT).square_()
        for one, two in others:
            squares += (one - two.mT).square_()
        return squares
    if z1.shape[-1] <= FEW_COLUMNS:
        return torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist").square_()
    return _by_products(z1, z2)


def _by_products(z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"]) -> Float[Tensor, "*n1 n2"]:
    first, second = z1 - z1[..., :1, :], z2 - z1[..., :1, :]
    lengths = first.square().sum(-1)[..., :, None] + second.square().sum(-1)[..., None, :]
    squares = (first @ second.mT).mul_(-2.0).add_(lengths).clamp_(min=0.0)
    if not squares.is_cuda:  # there, looking for them would wait for all that was asked for before
        near = (~(squares > NEIGHBOURS * lengths)).nonzero(as_tuple=True)  # also where products overflow
        *batch, _, _ = squares.shape
        first, second = z1.expand(*batch, -1, -1)[near[:-1]], z2.expand(*batch, -1, -1)[*near[:-2], near[-1]]
        squares[near] = (first - second).square().sum(-1)
    return squares


class FeatureKernel(Kernel, ABC):  # type: ignore[misc]
    """A base kernel on what is made of each point by itself: `features` are all that it sees of it."""

    has_lengthscale = False
    base_kernel: Kernel

    @property
    def batch_shape(self) -> torch.Size:
        """That of its base kernel. (GPyTorch asks torch to broadcast it, and torch imports sympy for that.)"""
        return self.base_kernel.batch_shape  # type: ignore[no-any-return]

    @abstractmethod
    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """What is made of each point."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        return self.base_kernel(self.features(x1), self.features(x2), diag=diag, **options)  # type: ignore[no-any-return]


class Scaled(ScaleKernel):  # type: ignore[misc]
    """GPyTorch's `ScaleKernel` in float64, of one kernel."""

    def __init__(self, base_kernel: Kernel) -> None:
        super().__init__(base_kernel)
        for values in (*self.parameters(), *self.buffers()):
            values.data = values.data.double()  # what `double()` does, without all that torch imports for it

    @property
    def batch_shape(self) -> torch.Size:
        """That of its base kernel."""
        return self.base_kernel.batch_shape  # type: ignore[no-any-return]


class DeepKernel(FeatureKernel):
    """A network to `features` dimensions, then a base kernel on them (default: scaled RBF, as in the paper)."""

    def __init__(
        self,
        inputs: int,
        features: int = 2,
        *,
        seed: int,
        base: Kernel | None = None,
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__()
        self.network = Network(inputs, features, seed=seed, **network)
        self.base_kernel = base if base is not None else Scaled(RBFKernel())

    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """Where the network puts each point."""
        return self.network(x)  # type: ignore[no-any-return]


class BasisKernel(FeatureKernel):
    """`k(x, x') = b(x)ᵀ W Wᵀ b(x')` for a basis b and loadings W of some rank; by default W = I."""

    def __init__(self, basis: Basis, loadings: Float[Tensor, "q r"] | None = None) -> None:
        super().__init__()
        self.basis, self.base_kernel = basis, InnerProduct()
        self.loadings = nn.Parameter(torch.eye(basis.size, dtype=torch.float64) if loadings is None else loadings)

    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n r"]:
        """`Wᵀ b(x)`."""
        return self.basis(x) @ self.loadings  # type: ignore[no-any-return]


class EigenfunctionKernel(FeatureKernel):
    """`k(x, x') = φ(x)ᵀ φ(x')` with a learned network φ: functional PCA whose basis functions are learned.

    Unlike a stationary kernel on learned features it may be negative: the two sides of a step are anti-correlated.
    rest: features of a deep exponential kernel beside it, for what φ leaves over; 0 for none.
    """

    def __init__(
        self, inputs: int, functions: int = 16, rest: int = 0, *, seed: int, **network: Unpack[NetworkOptions]
    ) -> None:
        super().__init__()
        if functions < 1 or rest < 0:
            raise OptionError(f"{functions} eigenfunctions: give 1 or more.")
        self.network = Network(inputs, functions, seed=seed, **network)
        self.base_kernel = InnerProduct()
        self.rest: DeepKernel | None = None
        if rest:
            base = Scaled(MaternKernel(nu=0.5))
            base.outputscale = torch.tensor(0.1, dtype=torch.float64)
            self.rest = DeepKernel(inputs, rest, seed=child_seed(seed, 1), base=base, **network)
            self.base_kernel = _InnerProductAnd(functions, base)

    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """`φ(x)`, followed by where the deep kernel puts the point."""
        functions: Tensor = self.network(x) / math.sqrt(self.network.outputs)
        return functions if self.rest is None else torch.cat([functions, self.rest.features(x)], -1)


class DirectKernel(Kernel):  # type: ignore[misc]
    """A kernel whose `forward` is all there is to it: it needs none of GPyTorch's lazy tensors."""

    has_lengthscale = False


class InnerProduct(DirectKernel):
    """`k(z, z') = zᵀ z'`."""

    def forward(self, z1: Tensor, z2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        return (z1 * z2).sum(-1) if diag else z1 @ z2.mT


class _InnerProductAnd(Kernel):  # type: ignore[misc]
    """`zᵀz'` of the first features, plus another kernel of the others."""

    has_lengthscale = False

    def __init__(self, first: int, other: Kernel) -> None:
        super().__init__()
        self.first, self.inner, self.other = first, InnerProduct(), other

    @property
    def batch_shape(self) -> torch.Size:
        """That of the other kernel."""
        return self.other.batch_shape  # type: ignore[no-any-return]

    def forward(self, z1: Tensor, z2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        k = self.first
        inner: Tensor = self.inner.forward(z1[..., :k], z2[..., :k], diag=diag)
        rest: Tensor = self.other.forward(z1[..., k:].contiguous(), z2[..., k:].contiguous(), diag=diag, **options)
        return inner + rest


KernelMaker = Callable[[MadeFor], Kernel]

KERNELS: dict[str, KernelMaker] = {
    "rbf": lambda made_for: Scaled(RBFKernel()),
    "matern": lambda made_for: Scaled(MaternKernel(nu=2.5)),
    "exponential": lambda made_for: Scaled(MaternKernel(nu=0.5)),
    "deep": lambda made_for: DeepKernel(made_for.d, made_for.features, seed=made_for.seed, **made_for.network),
    "eigenfunctions": lambda made_for: _eigenfunctions(made_for, 0),
    "eigenfunctions + deep": lambda made_for: _eigenfunctions(made_for, made_for.features),
}
"""Kernels by name, each with how it is made. One that is added here can be asked for, saved and loaded by its name."""


def _eigenfunctions(made_for: MadeFor, rest: int) -> EigenfunctionKernel:
    return EigenfunctionKernel(made_for.d, made_for.functions, rest, seed=made_for.seed, **made_for.network)


def make_kernel(
    given: str | Kernel, *, d: int, features: int = 2, functions: int = 16, seed: int, **network: Unpack[NetworkOptions]
) -> Kernel:
    """A kernel by name, or a GPyTorch kernel as it is. features: of a deep kernel; functions: eigenfunctions."""
    if isinstance(given, Kernel):
        return given
    if given not in KERNELS:
        raise UnknownNameError("kernel", given, KERNELS)
    return KERNELS[given](MadeFor(d, 1, seed, network, features, functions))


def kernel_features(kernel: Kernel, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
    """What the kernel needs of each point on its own; for most kernels the point itself."""
    return kernel.features(x) if isinstance(kernel, FeatureKernel) else x


def kernel_matrix(kernel: Kernel, z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"]) -> Float[Tensor, "*n1 n2"]:
    """Covariances between points given by their features."""
    on = _on_features(kernel)
    if isinstance(on, DirectKernel):
        return on.forward(z1, z2)  # type: ignore[no-any-return]
    if _has_formula(on):
        return _by_formula(on, z1, z2)
    matrix: Tensor = on(z1, z2).to_dense()
    return matrix


def kernel_diagonal(kernel: Kernel, z: Float[Tensor, "*n q"]) -> Float[Tensor, "*n"]:
    """Variances at points given by their features."""
    on = _on_features(kernel)
    if isinstance(on, DirectKernel):
        return on.forward(z, z, diag=True)  # type: ignore[no-any-return]
    if _has_formula(on):
        return _diagonal_by_formula(on, z)
    values: Tensor = on(z, diag=True)
    return values


def _has_formula(kernel: Kernel) -> bool:
    """Whether it is computed here: GPyTorch takes a millisecond of Python for it, and traces every step for slopes."""
    return stationary(kernel.other if isinstance(kernel, _InnerProductAnd) else kernel) is not None


def _by_formula(kernel: Kernel, z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"]) -> Float[Tensor, "*n1 n2"]:
    if isinstance(kernel, _InnerProductAnd):
        k = kernel.first
        rest = z1[..., k:]
        return _by_formula(kernel.other, rest, rest if z2 is z1 else z2[..., k:]) + z1[..., :k] @ z2[..., :k].mT
    shape, length, scale = stationary(kernel), kernel.base_kernel.lengthscale.reshape(()), kernel.outputscale
    assert shape is not None
    if not torch.is_grad_enabled():
        near, far, times = _in_units(z1, None if z2 is z1 else z2, length)[:3]
        return shape(squares_in_lengthscales(near, far, times))[0].mul_(scale)
    return scale * _Stationary.apply(z1, None if z2 is z1 else z2, length, shape)  # type: ignore[no-untyped-call, no-any-return]


def squares_in_lengthscales(
    z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"], times: Float[Tensor, "*b"] | float
) -> Float[Tensor, "*n1 n2"]:
    """`t |z − z'|²` between points, as far as it matters."""
    return squared_distances(z1, z2).mul_(times).clamp_(max=FAR)


def _in_units(
    z1: Tensor, z2: Tensor | None, length: Float[Tensor, ""]
) -> tuple[Tensor, Tensor, Tensor | float, Tensor | float]:
    """Points over u, the power of two below the lengthscale l; then `(u / l)²`, and u itself.

    To divide by u rounds nothing, so that points close together, far from 0, keep their distance.
    """
    unit: Tensor | float
    own: Tensor | float
    if length.is_cuda:  # a look at the number would wait for all that was asked for before
        own, unit = length, torch.ldexp(torch.ones_like(length), torch.frexp(length)[1] - 1)
    else:
        own = length.item()
        if own == 0:
            raise NumericalError(
                "the lengthscale has vanished: to this kernel all points are unlike each other. Learn with more tasks, "
                "or another kernel."
            )
        unit = math.ldexp(0.5, math.frexp(own)[1])
    near = z1 / unit
    return near, near if z2 is None else z2 / unit, (unit / own) ** 2, unit


class _Stationary(torch.autograd.Function):
    """`k(|z − z'| / l)` between points, or among some, with its slopes written out.

    With `W = G ∘ k'(s)`, for a weight G of each value and `s = |z − z'|² / l²`: the slope along z is
    `2 (W1 ∘ z − W z') / l²`, along l it is `−2 / l` times the sum of `W ∘ s`.
    """

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, length: Tensor, shape: Shape) -> Tensor:
        near, far, times, unit = _in_units(z1, z2, length)
        squares = squares_in_lengthscales(near, far, times)
        value, slope = shape(squares)
        ctx.along_z = 2 * times / unit
        ctx.save_for_backward(near, None if z2 is None else far, length, slope, squares)
        return value

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        near, far, length, slope, squares = ctx.saved_tensors
        W, first, second, of_length = along[0] * slope, None, None, None
        if ctx.needs_input_grad[2]:
            of_length = torch.dot(W.reshape(-1), squares.reshape(-1)) * (-2 / length)
        if ctx.needs_input_grad[0] and far is None:
            W = (W + W.mT).mul_(ctx.along_z)
            first = W.sum(-1, keepdim=True) * near - W @ near
        elif ctx.needs_input_grad[0]:
            first = ctx.along_z * (W.sum(-1, keepdim=True) * near - W @ far)
        if ctx.needs_input_grad[1]:
            second = ctx.along_z * (W.sum(-2)[..., None] * far - W.mT @ near)
        return _like(first, near), _like(second, far), of_length, None


def _like(slope: Tensor | None, z: Tensor) -> Tensor | None:
    """A slope along points that were the same for several batches is the sum of theirs."""
    return None if slope is None else slope.sum_to_size(z.shape)


def _diagonal_by_formula(kernel: Kernel, z: Float[Tensor, "*n q"]) -> Float[Tensor, "*n"]:
    if isinstance(kernel, _InnerProductAnd):
        return z[..., : kernel.first].square().sum(-1) + kernel.other.outputscale  # type: ignore[no-any-return]
    return kernel.outputscale.expand(z.shape[:-1])  # type: ignore[no-any-return]


def _on_features(kernel: Kernel) -> Kernel:
    return kernel.base_kernel if isinstance(kernel, FeatureKernel) else kernel
