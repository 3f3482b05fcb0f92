"""Bases of functions, orthonormal in L² over their domain: what functional PCA writes curves in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.priors.networks import Remembered

BASES = ("spline", "polynomial", "fourier")


class Basis(nn.Module, ABC):
    """`b(x) = [b₁(x) … b_q(x)]` with `∫ bᵢ bⱼ = [i = j]` over a box. Beyond it, each keeps its value at the edge."""

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: Sequence[float], upper: Sequence[float], size: int) -> None:
        super().__init__()
        if size < 1:
            raise OptionError(f"a basis of {size} functions: give 1 or more.")
        for low, high in zip(lower, upper, strict=True):
            if not -math.inf < low < high < math.inf:
                raise OptionError(f"a basis from {low} to {high}: the domain needs a beginning before its end.")
        self.size, self._last = size, Remembered()
        self.register_buffer("lower", torch.tensor(lower, dtype=torch.float64))
        self.register_buffer("upper", torch.tensor(upper, dtype=torch.float64))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        if x.shape[-1] != len(self.lower):
            raise DataError(f"points with {x.shape[-1]} inputs, but the basis is of {len(self.lower)}.")
        return self._last.of(x, lambda x: self.inside(x.clamp(self.lower, self.upper)))

    @abstractmethod
    def inside(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        """The functions at points of the domain."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What makes it, as JSON has it: `described_basis` makes it again."""

    def constant(self) -> Float[Tensor, " q"]:
        """What 1 is in it; of one input. By default its first function is a constant."""
        return (self.upper - self.lower).sqrt() * torch.eye(self.size, dtype=torch.float64)[0]

    def _range(self) -> dict[str, float]:
        return {"lower": float(self.lower[0]), "upper": float(self.upper[0])}


class SplineBasis(Basis):
    """B-splines between a first and a last knot, with these interior knots, orthonormalised."""

    knots: Tensor
    whitening: Tensor

    def __init__(self, lower: float, upper: float, knots: Sequence[float] = (), degree: int = 3) -> None:
        if degree < 0:
            raise OptionError(f"splines of degree {degree}: give 0 or more.")
        interior = sorted(float(knot) for knot in knots)
        if interior and not lower < interior[0] <= interior[-1] < upper:
            raise OptionError(
                f"interior knots from {interior[0]:g} to {interior[-1]:g} leave the domain from {lower:g} to "
                f"{upper:g}: give knots inside it."
            )
        super().__init__([lower], [upper], len(interior) + degree + 1)
        self.degree = degree
        ends = degree + 1
        self.register_buffer("knots", torch.tensor([lower] * ends + interior + [upper] * ends, dtype=torch.float64))
        self.register_buffer("whitening", self._whitening())

    def inside(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n q"]:
        return self._plain(x[..., 0]) @ self.whitening

    def described(self) -> dict[str, Any]:
        ends = self.degree + 1
        knots = self.knots[ends : len(self.knots) - ends].tolist()
        return {"kind": "spline", **self._range(), "knots": knots, "degree": self.degree}

    def constant(self) -> Float[Tensor, " q"]:
        """B-splines sum to 1."""
        ones = torch.ones(self.size, 1, dtype=torch.float64)
        found: Tensor = torch.linalg.solve_triangular(self.whitening, ones, upper=True)
        return found[:, 0]

    def _plain(self, x: Float[Tensor, "*n"]) -> Float[Tensor, "*n q"]:
        """B-splines by the recursion of Cox and de Boor."""
        t, x = self.knots, x[..., None]
        last = len(t) - self.degree - 2  # the last interval that is not empty holds its right end too
        before_end = torch.arange(len(t) - 1, device=t.device) >= last
        values = ((t[:-1] <= x) & ((x < t[1:]) | (before_end & (x <= t[1:]) & (t[:-1] < t[1:])))).to(x)
        for k in range(1, self.degree + 1):
            rising = _ratio(x - t[: -k - 1], t[k:-1] - t[: -k - 1])
            falling = _ratio(t[k + 1 :] - x, t[k + 1 :] - t[1:-k])
            values = rising * values[..., :-1] + falling * values[..., 1:]
        return values

    def _whitening(self) -> Float[Tensor, "q q"]:
        """`L⁻ᵀ` of the splines' Gram matrix, whose integrals a Gauss–Legendre rule takes exactly."""
        nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(self.degree + 1))
        ends = self.knots.unique()
        middle, half = (ends[1:] + ends[:-1])[:, None] / 2, (ends[1:] - ends[:-1])[:, None] / 2
        values = self._plain((middle + half * nodes).flatten())
        gram = values.mT @ ((half * weights).flatten()[:, None] * values)
        L, info = torch.linalg.cholesky_ex(gram)
        if int(info):
            raise OptionError("these knots lie so close that splines on them cannot be told apart: give fewer.")
        eye = torch.eye(len(L), dtype=L.dtype)
        inverse: Tensor = torch.linalg.solve_triangular(L, eye, upper=False)
        return inverse.mT.contiguous()


class PolynomialBasis(Basis):
    """Legendre polynomials of degree 0, 1, …, scaled to the domain."""

    def __init__(self, lower: float, upper: float, size: int) -> None:
        super().__init__([lower], [upper], size)

    def inside(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n q"]:
        width = self.upper - self.lower
        t = (2 * (x - self.lower) / width - 1)[..., 0]
        values = [torch.ones_like(t), t]
        for k in range(1, self.size - 1):  # Bonnet's recursion
            values.append(((2 * k + 1) * t * values[k] - k * values[k - 1]) / (k + 1))
        norms = ((2 * torch.arange(self.size).to(t) + 1) / width).sqrt()
        return torch.stack(values[: self.size], -1) * norms

    def described(self) -> dict[str, Any]:
        return {"kind": "polynomial", **self._range(), "size": self.size}


class FourierBasis(Basis):
    """A constant, then sine and cosine of one, two, … periods over the domain."""

    def __init__(self, lower: float, upper: float, size: int) -> None:
        super().__init__([lower], [upper], size)

    def inside(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n q"]:
        width = self.upper - self.lower
        angle = 2 * math.pi * (x - self.lower) / width * torch.arange(1, self.size // 2 + 1).to(x)
        waves = torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., : self.size - 1]
        return torch.cat([torch.ones_like(x), math.sqrt(2) * waves], -1) / width.sqrt()

    def described(self) -> dict[str, Any]:
        return {"kind": "fourier", **self._range(), "size": self.size}


class TensorBasis(Basis):
    """All products of a basis of the first input with one of the second."""

    def __init__(self, first: Basis, second: Basis) -> None:
        lower = torch.cat([first.lower, second.lower]).tolist()
        upper = torch.cat([first.upper, second.upper]).tolist()
        super().__init__(lower, upper, first.size * second.size)
        self.first, self.second = first, second

    def inside(self, x: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n q"]:
        one, two = self.first.inside(x[..., :1]), self.second.inside(x[..., 1:])
        return (one[..., :, None] * two[..., None, :]).flatten(-2)

    def described(self) -> dict[str, Any]:
        return {"kind": "tensor", "first": self.first.described(), "second": self.second.described()}


class AdditiveBasis(Basis):
    """A constant, and of each input the functions that have nothing of it: sums of curves of one input each."""

    def __init__(self, parts: Sequence[Basis]) -> None:
        lower, upper = (torch.cat([getattr(part, end) for part in parts]) for end in ("lower", "upper"))
        super().__init__(lower.tolist(), upper.tolist(), 1 + sum(part.size - 1 for part in parts))
        self.parts = list(parts)
        widths = upper - lower
        self.level = float(widths.prod().rsqrt())
        self.rotations = [
            _orthogonal_to(part.constant()) * (self.level * float(width.sqrt()))
            for part, width in zip(parts, widths, strict=True)
        ]

    def inside(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n q"]:
        found = [torch.full_like(x[..., :1], self.level)]
        for k, (part, rotation) in enumerate(zip(self.parts, self.rotations, strict=True)):
            found.append(part.inside(x[..., k : k + 1]) @ rotation.to(x))
        return torch.cat(found, -1)

    def described(self) -> dict[str, Any]:
        return {"kind": "additive", "parts": [part.described() for part in self.parts]}


def described_basis(found: dict[str, Any]) -> Basis:
    """The basis that was described so. It allocates nothing that grows with a number in the description."""
    options = dict(found)
    name = options.pop("kind")
    if name == "tensor":
        return TensorBasis(described_basis(options["first"]), described_basis(options["second"]))
    if name == "additive":
        return AdditiveBasis([described_basis(part) for part in options["parts"]])
    bases: dict[str, type[Basis]] = {"spline": SplineBasis, "polynomial": PolynomialBasis, "fourier": FourierBasis}
    if name not in bases:
        raise UnknownNameError("basis", name, bases)
    if options.get("degree", 0) > 20:
        raise OptionError(f"splines of degree {options['degree']} are none that a file would hold.")
    return bases[name](**options)


def make_basis(
    given: str | Basis, x: Float[Tensor, "N d"], size: int, *, knots: Sequence[float] | None = None, degree: int = 3
) -> Basis:
    """A basis by name over the range of these inputs, with `size` functions of each; or a given one, as it is.

    Of two inputs it has their products, of more their sums; an input of fewer distinct values has that many functions.
    Splines of fewer functions than `degree + 1` have a lower degree. Interior knots follow the inputs; given ones
    decide on the number of functions.
    """
    if isinstance(given, Basis):
        return given
    if given not in BASES:
        raise UnknownNameError("basis", given, BASES)
    if knots is not None and (given != "spline" or x.shape[1] != 1):
        raise OptionError("knots belong to a spline basis of one input.")
    if x.shape[1] == 1:
        return _one_input(given, x[:, 0], size, knots, degree)
    parts = [_one_input(given, column, min(size, len(column.unique())), None, degree) for column in x.unbind(1)]
    return TensorBasis(*parts) if len(parts) == 2 else AdditiveBasis(parts)


def _one_input(name: str, x: Float[Tensor, " N"], size: int, knots: Sequence[float] | None, degree: int) -> Basis:
    distinct = x.unique()
    if len(distinct) < 2:
        raise DataError("all inputs are the same point: a basis needs a range of them.")
    lower, upper = float(distinct[0]), float(distinct[-1])
    if knots is not None:
        return _supported(SplineBasis(lower, upper, knots, degree), distinct)
    if size > len(distinct):
        raise DataError(
            f"a basis of {size} functions, but only {len(distinct)} distinct inputs: give at most {len(distinct)}."
        )
    if name == "polynomial":
        return PolynomialBasis(lower, upper, size)
    if name == "fourier":
        return _supported(FourierBasis(lower, upper, size), distinct)
    degree = min(degree, size - 1)
    return SplineBasis(lower, upper, _knots(distinct, size, degree), degree)


def _orthogonal_to(direction: Float[Tensor, " q"]) -> Float[Tensor, "q r"]:
    """Orthonormal columns beside a direction, by Householder's reflection: the same on any machine."""
    unit = direction / direction.norm()
    mirror = unit.clone()
    mirror[0] += 1.0 if unit[0] >= 0 else -1.0
    mirror = mirror / mirror.norm()
    reflection: Tensor = torch.eye(len(unit), dtype=unit.dtype) - 2 * mirror[:, None] * mirror
    return reflection[:, 1:]


def _supported(basis: Basis, distinct: Float[Tensor, " u"]) -> Basis:
    """The basis, if the inputs can tell all its functions apart."""
    rank = int(torch.linalg.matrix_rank(basis(distinct[:, None])))
    if rank < basis.size:
        raise DataError(
            f"the inputs can tell only {rank} of the {basis.size} functions of the basis apart: give fewer knots or "
            "functions, where the inputs lie."
        )
    return basis


def _knots(distinct: Float[Tensor, " u"], size: int, degree: int) -> list[float]:
    """Averages of neighbouring inputs: with as many functions as inputs, splines pass through any values there."""
    if degree == 0:
        return torch.quantile(distinct, torch.linspace(0, 1, size + 1, dtype=torch.float64)[1:-1]).tolist()
    sites = torch.quantile(distinct, torch.linspace(0, 1, size, dtype=torch.float64))
    return [float(sites[j + 1 : j + 1 + degree].mean()) for j in range(size - degree - 1)]


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    """0 where the bottom is: the recursion's convention."""
    return torch.where(bottom > 0, top / torch.where(bottom > 0, bottom, 1.0), 0.0)
