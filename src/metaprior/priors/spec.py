"""`PriorSpec`: what a prior is made of, as data that builds it and goes into its file; and the paper's four."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.options import divided, states
from metaprior.priors.kernels import make_kernel
from metaprior.priors.means import make_mean
from metaprior.priors.networks import NetworkOptions
from metaprior.priors.noise import DeepNoise, LearnedNoise
from metaprior.priors.prior import PARTS, Prior
from metaprior.priors.tails import Degrees
from metaprior.seeds import affine_seed, child_seed

CONFIGURATIONS = {
    "vanilla": ("zero", "rbf"),
    "learned kernel": ("zero", "deep"),
    "learned mean": ("deep", "rbf"),
    "learned both": ("deep", "deep"),
}
"""The paper's four priors: mean and kernel."""

DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64)}
"""Precisions as a file names them."""


@dataclass(frozen=True)
class PriorSpec:
    """Mean, kernel and noise, by name or as modules, and the sizes of what they are made of.

    mean: "zero", "constant", "linear", "deep", a GPyTorch mean, or a fixed callable. kernel: "rbf", "matern",
    "exponential", "deep", "eigenfunctions" (`functions` of them, learned), "eigenfunctions + deep", or a GPyTorch
    kernel. noise: None (learned above `noise_floor`), "deep" (it depends on the input), a fixed variance or a module.
    hidden, activation, gain: of the networks (see `Network`). features: of a deep kernel. degrees: of freedom to start
    with, for a Student-t process, whose tasks have amplitudes of their own. learn: the parts that meta-learning may
    change. network_dtype: of the networks, where it is not that of the covariance.
    """

    mean: str | Mean | Callable[[Tensor], Tensor] = "deep"
    kernel: str | Kernel = "deep"
    noise: nn.Module | float | str | None = None
    noise_floor: float = 1e-4
    hidden: tuple[int, ...] = (128, 64)
    activation: str = "sigmoid"
    gain: float | None = None
    features: int = 2
    functions: int = 16
    degrees: float | None = None
    learn: tuple[str, ...] = PARTS
    network_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "learn"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def build(
        self,
        *,
        d: int,
        p: int = 1,
        seed: int,
        like: Float[Tensor, "k d"] | None = None,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
    ) -> Prior:
        """The prior for `d` inputs and `p` outputs, at its start.

        like: points such as the networks will see, where these are not scaled to mean 0 and deviation 1. dtype: of the
        covariance. device: of the networks; on "meta" they have shapes and no numbers yet.
        """
        network: NetworkOptions = {
            "hidden": self.hidden,
            "activation": self.activation,
            "gain": self.gain,
            "dtype": self.network_dtype or dtype,
            "like": like,
            "device": device,
        }
        sizes = {"features": self.features, "functions": self.functions}
        prior = Prior(
            make_mean(self.mean, d=d, p=p, seed=affine_seed(seed, factor=2), **network),
            make_kernel(self.kernel, d=d, seed=affine_seed(seed, factor=2, offset=1), **sizes, **network),
            self._noise(d, child_seed(seed, 2), network),
            learn=self.learn,
            degrees=None if self.degrees is None else Degrees(self.degrees),
        )
        return prior if dtype == torch.float64 else prior.to(dtype)

    def rebuilt(self, tensors: Mapping[str, Tensor], *, d: int, p: int, dtype: torch.dtype = torch.float64) -> Prior:
        """The prior with these numbers, whose shapes are checked before anything is allocated on the word of a file."""
        prior = self.build(d=d, p=p, seed=0, dtype=dtype, device="meta")
        for name, value in prior.state_dict().items():
            found = tensors.get(name)
            if found is None or (found.shape, found.dtype) != (value.shape, value.dtype):
                wanted, seen = _seen(value), "missing" if found is None else _seen(found)
                raise DataError(
                    f"the model file does not fit together: {name} is {seen} instead of {wanted}. Fit the model again."
                )
        prior.load_state_dict(tensors, assign=True)
        return prior

    def described(self) -> dict[str, Any]:
        """As JSON has it. Parts that were given as code or as modules cannot be written down."""
        for part in ("mean", "kernel"):
            if not isinstance(getattr(self, part), str):
                raise OptionError(f"a {part} that was given as code cannot be saved: choose one by name.")
        if isinstance(self.noise, nn.Module):
            raise OptionError("a noise that was given as a module cannot be saved: give a number, or learn it.")
        dtype = self.network_dtype and str(self.network_dtype)
        return asdict(self) | {"hidden": list(self.hidden), "learn": list(self.learn), "network_dtype": dtype}

    @classmethod
    def from_description(cls, found: Mapping[str, Any]) -> Self:
        """What was described so; other entries are left aside."""
        own = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        return cls(**own | {"network_dtype": DTYPES.get(str(own.get("network_dtype")))})

    def sees_levels(self, d: int) -> bool:
        """Whether an input that never differs within a task matters, beside d others: a stationary kernel sees none."""
        if not isinstance(self.mean, str) or not isinstance(self.kernel, str) or self.noise == "deep":
            return True
        if type(make_mean(self.mean, d=d + 1, p=1, seed=0)) not in (ZeroMean, ConstantMean):
            return True
        kernel, d = make_kernel(self.kernel, d=d + 1, seed=0), d + 1
        x = torch.linspace(-1, 1, 4 * d, dtype=torch.float64).view(4, d)
        with torch.no_grad():
            here, elsewhere = (kernel(points).to_dense() for points in (x, x + torch.eye(d, dtype=torch.float64)[-1]))
        return not torch.allclose(here, elsewhere, atol=1e-5)

    def _noise(self, d: int, seed: int, network: NetworkOptions) -> nn.Module | float:
        if self.noise is None:
            return LearnedNoise(floor=self.noise_floor)
        if not isinstance(self.noise, str):
            return self.noise
        if self.noise != "deep":
            raise UnknownNameError("noise", self.noise, ("deep",))
        return DeepNoise(d, seed=seed, floor=self.noise_floor, **network)


@states(PriorSpec)
def make_prior(
    mean: str | Mean | Callable[[Tensor], Tensor],
    kernel: str | Kernel,
    *,
    d: int,
    p: int = 1,
    seed: int,
    like: Float[Tensor, "k d"] | None = None,
    **options: Any,
) -> Prior:
    """A prior from names or GPyTorch modules, for `d` inputs and `p` outputs. options: of `PriorSpec`.

    `make_prior(*CONFIGURATIONS["learned both"], d=1, seed=0)` is the paper's prior with deep mean and kernel.
    """
    (own,) = divided(options, PriorSpec, of="a prior")
    return PriorSpec(mean, kernel, **own).build(d=d, p=p, seed=seed, like=like)


def _seen(value: Tensor) -> str:
    return f"{tuple(value.shape)} of {value.dtype}"
