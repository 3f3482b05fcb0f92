"""Kernels. Any `gpytorch.kernels.Kernel` is one; these add the deep kernel and kernels by name."""

from __future__ import annotations

from typing import Any, Unpack

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import UnknownNameError
from metaprior.priors.networks import Network, NetworkOptions

KERNELS = ("rbf", "matern", "deep")


class DeepKernel(Kernel):  # type: ignore[misc]
    """A network to `features` dimensions, then a base kernel on them (default: scaled RBF, as in the paper)."""

    has_lengthscale = False

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
        """Where the network puts each point: all that the base kernel sees of it."""
        return self.network(x)  # type: ignore[no-any-return]

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        return self.base_kernel(self.features(x1), self.features(x2), diag=diag, **options)  # type: ignore[no-any-return]


def make_kernel(kind: str | Kernel, *, d: int, features: int, seed: int, **network: Unpack[NetworkOptions]) -> Kernel:
    """A kernel by name, or a GPyTorch kernel as it is."""
    if isinstance(kind, Kernel):
        return kind
    if kind == "rbf":
        return ScaleKernel(RBFKernel()).double()
    if kind == "matern":
        return ScaleKernel(MaternKernel(nu=2.5)).double()
    if kind == "deep":
        return DeepKernel(d, features, seed=seed, **network)
    raise UnknownNameError("kernel", kind, KERNELS)


def kernel_features(kernel: Kernel, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
    """What the kernel needs of each point on its own; for most kernels the point itself."""
    return kernel.features(x) if isinstance(kernel, DeepKernel) else x


def kernel_matrix(kernel: Kernel, z1: Float[Tensor, "*n1 q"], z2: Float[Tensor, "*n2 q"]) -> Float[Tensor, "*n1 n2"]:
    """Covariances between points given by their features."""
    matrix: Tensor = _on_features(kernel)(z1, z2).to_dense()
    return matrix


def kernel_diagonal(kernel: Kernel, z: Float[Tensor, "*n q"]) -> Float[Tensor, "*n"]:
    """Variances at points given by their features."""
    values: Tensor = _on_features(kernel)(z, diag=True)
    return values


def _on_features(kernel: Kernel) -> Kernel:
    return kernel.base_kernel if isinstance(kernel, DeepKernel) else kernel
