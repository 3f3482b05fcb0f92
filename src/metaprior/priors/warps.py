"""Warps: monotone transforms of the target, learned with a prior, for skewed and positive values."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from metaprior.errors import DataError, UnknownNameError
from metaprior.tasks import Tasks

TINY = 1e-4
"""An exponent below this is zero: the logarithm."""


class Warp(nn.Module, ABC):
    """`t = g(y)`, rising, in each target column. unit: the magnitude of each column, so that parameters have none.

    lower and upper: how far y may lie, the whole range of the past values beyond them on either side. A bent tail would
    otherwise reach to where nothing was ever seen, and take the mean with it.
    """

    kind: str
    unit: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, unit: Float[Tensor, " p"], lower: Float[Tensor, " p"], upper: Float[Tensor, " p"]) -> None:
        super().__init__()
        self.register_buffer("unit", unit)
        self.register_buffer("lower", lower)
        self.register_buffer("upper", upper)

    def back(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g⁻¹(t)`, no farther than y may lie."""
        return self.inverse(t).clamp(self.lower, self.upper)

    @abstractmethod
    def forward(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g(y)`."""

    @abstractmethod
    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g⁻¹(t)`."""

    @abstractmethod
    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`log g'(y)`: what a log density gains on the way back to y."""

    def allowed(self, y: Float[Tensor, "*n p"]) -> Bool[Tensor, "*n p"]:
        """Where it is defined."""
        return torch.ones_like(y, dtype=torch.bool)

    def check(self, tasks: Tasks) -> None:
        """The values must be such as it takes; which are not is said by column, task and value."""
        bad = torch.nonzero(~self.allowed(tasks.y))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            task = int(tasks.task_of_row[row])
            raise DataError(
                f"the warp {self.kind!r} takes values above 0 only, and {len(bad)} of column "
                f"{tasks.columns.y[column]!r} are not (the first is {float(tasks.y[row, column]):g}, row "
                f"{row - int(tasks.offsets[task])} of task {tasks.ids[task]!r}): use the warp 'yeo-johnson', or add a "
                "constant."
            )


class IdentityWarp(Warp):
    """`g(y) = y`."""

    kind = "identity"

    def forward(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return y

    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return t

    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.zeros_like(y)


class LogWarp(Warp):
    """`g(y) = log(y / unit)`, for values above 0."""

    kind = "log"

    def forward(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (y / self.unit).log()

    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return self.unit * t.exp()

    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return -y.log()

    def allowed(self, y: Float[Tensor, "*n p"]) -> Bool[Tensor, "*n p"]:
        return y > 0


class BoxCox(Warp):
    """`g(y) = ((y / unit)^λ − 1) / λ` with a learned λ from 0 (the logarithm) to 2, for values above 0."""

    kind = "box-cox"

    def __init__(self, unit: Float[Tensor, " p"], lower: Float[Tensor, " p"], upper: Float[Tensor, " p"]) -> None:
        super().__init__(unit, lower, upper)
        self.raw = nn.Parameter(torch.zeros_like(unit))

    @property
    def power(self) -> Float[Tensor, " p"]:
        """λ: 1 at the start, which bends nothing."""
        return 2 * torch.sigmoid(self.raw)

    def forward(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return _power((y / self.unit).log(), self.power)

    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return self.unit * _log_root(t, self.power).exp()

    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (self.power - 1) * (y / self.unit).log() - self.unit.log()

    def allowed(self, y: Float[Tensor, "*n p"]) -> Bool[Tensor, "*n p"]:
        return y > 0


class YeoJohnson(Warp):
    """Box and Cox's of `1 + y / unit` above 0, mirrored below (Yeo and Johnson 2000); λ and the unit are learned."""

    kind = "yeo-johnson"

    def __init__(self, unit: Float[Tensor, " p"], lower: Float[Tensor, " p"], upper: Float[Tensor, " p"]) -> None:
        super().__init__(unit, lower, upper)
        self.raw, self.zoom = nn.Parameter(torch.zeros_like(unit)), nn.Parameter(torch.zeros_like(unit))

    @property
    def power(self) -> Float[Tensor, " p"]:
        """λ: 1 at the start, which bends nothing."""
        return 2 * torch.sigmoid(self.raw)

    def forward(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        t = _power(self._log(y), self._powers(y))
        return torch.where(y >= 0, t, -t)

    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return t.sign() * self._unit * _log_root(t.abs(), self._powers(t)).expm1()

    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (self._powers(y) - 1) * self._log(y) - self._unit.log()

    @property
    def _unit(self) -> Float[Tensor, " p"]:
        return self.unit * (4 * torch.tanh(self.zoom)).exp()

    def _powers(self, sign: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.where(sign >= 0, self.power, 2 - self.power)

    def _log(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.log1p(torch.where(y >= 0, y, -y) / self._unit)


WARPS: dict[str, type[Warp]] = {kind.kind: kind for kind in (IdentityWarp, LogWarp, BoxCox, YeoJohnson)}


def make_warp(kind: str, y: Float[Tensor, "N p"]) -> Warp:
    """A warp by name, in the magnitude of these values."""
    if kind not in WARPS:
        raise UnknownNameError("warp", kind, WARPS)
    middles = [column[column > 0].median() if bool((column > 0).any()) else 1.0 for column in y.abs().unbind(1)]
    lowest, highest = y.amin(0), y.amax(0)
    span = highest - lowest
    return WARPS[kind](torch.tensor(middles, dtype=torch.float64), lowest - span, highest + span)


def _power(log: Tensor, power: Tensor) -> Tensor:
    """`(e^{λ l} − 1) / λ`, and l at λ = 0."""
    safe = torch.where(power > TINY, power, 1.0)
    return torch.where(power > TINY, torch.expm1(safe * log) / safe, log)


def _log_root(t: Tensor, power: Tensor) -> Tensor:
    """l with `_power(l, λ) = t`; where there is none (far below zero), −∞."""
    safe = torch.where(power > TINY, power, 1.0)
    inside = (safe * t).clamp(min=-1.0)
    return torch.where(power > TINY, torch.log1p(inside) / safe, t)
