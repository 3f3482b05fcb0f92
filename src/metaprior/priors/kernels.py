"""Kernels. Any `gpytorch.kernels.Kernel` is one; these add deep ones, low-rank ones on a basis, and some by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Unpack

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import OptionError, UnknownNameError
from metaprior.priors.bases import Basis
from metaprior.priors.networks import MadeFor, Network, NetworkOptions
from metaprior.seeds import child_seed


class FeatureKernel(Kernel, ABC):  # type: ignore[misc]
    """A base kernel on what is made of each point by itself: `features` are all that it sees of it."""

    has_lengthscale = False
    base_kernel: Kernel

    @abstractmethod
    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """What is made of each point."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        return self.base_kernel(self.features(x1), self.features(x2), diag=diag, **options)  # type: ignore[no-any-return]


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
        self.base_kernel = base if base is not None else ScaleKernel(RBFKernel()).double()

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
            base = ScaleKernel(MaternKernel(nu=0.5)).double()
            base.outputscale = 0.1
            self.rest = DeepKernel(inputs, rest, seed=child_seed(seed, 1), base=base, **network)
            self.base_kernel = _InnerProductAnd(functions, base)

    def features(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """`φ(x)`, followed by where the deep kernel puts the point."""
        functions: Tensor = self.network(x) / math.sqrt(self.network.outputs)
        return functions if self.rest is None else torch.cat([functions, self.rest.features(x)], -1)


class InnerProduct(Kernel):  # type: ignore[misc]
    """`k(z, z') = zᵀ z'`."""

    has_lengthscale = False

    def forward(self, z1: Tensor, z2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        return (z1 * z2).sum(-1) if diag else z1 @ z2.mT


class _InnerProductAnd(Kernel):  # type: ignore[misc]
    """`zᵀz'` of the first features, plus another kernel of the others."""

    has_lengthscale = False

    def __init__(self, first: int, other: Kernel) -> None:
        super().__init__()
        self.first, self.inner, self.other = first, InnerProduct(), other

    def forward(self, z1: Tensor, z2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        k = self.first
        inner: Tensor = self.inner.forward(z1[..., :k], z2[..., :k], diag=diag)
        rest: Tensor = self.other.forward(z1[..., k:].contiguous(), z2[..., k:].contiguous(), diag=diag, **options)
        return inner + rest


KernelMaker = Callable[[MadeFor], Kernel]

KERNELS: dict[str, KernelMaker] = {
    "rbf": lambda made_for: ScaleKernel(RBFKernel()),
    "matern": lambda made_for: ScaleKernel(MaternKernel(nu=2.5)),
    "exponential": lambda made_for: ScaleKernel(MaternKernel(nu=0.5)),
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
    matrix: Tensor = _on_features(kernel)(z1, z2).to_dense()
    return matrix


def kernel_diagonal(kernel: Kernel, z: Float[Tensor, "*n q"]) -> Float[Tensor, "*n"]:
    """Variances at points given by their features."""
    values: Tensor = _on_features(kernel)(z, diag=True)
    return values


def _on_features(kernel: Kernel) -> Kernel:
    return kernel.base_kernel if isinstance(kernel, FeatureKernel) else kernel
