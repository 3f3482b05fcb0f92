"""Warps: monotone transforms of the target, learned with a prior, for skewed and positive values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.errors import DataError, UnknownNameError
from metaprior.tasks import Tasks

NOTHING = 1e-30
"""A power below this is the logarithm in every digit: where products with it could vanish, it is taken for 0."""


class Warp(ABC):
    """`t = g(y)`, rising, in each target column. unit: the magnitude of each column, so that parameters have none.

    lower and upper: the range of the past values. Beyond it a warp goes on straight, with the slope that it has there:
    a bent tail would reach to where nothing was ever seen, and take the mean with it. One of positive values keeps its
    own shape down to 0. learned: what bends it, zeros at the start.
    """

    name: ClassVar[str]
    learns: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        unit: Float[Tensor, "#n p"],
        lower: Float[Tensor, "#n p"],
        upper: Float[Tensor, "#n p"],
        **learned: Float[Tensor, "#n p"],
    ) -> None:
        self.unit, self.lower, self.upper = unit, lower, upper
        self.learned = learned or {name: torch.zeros_like(unit) for name in self.learns}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What it is made of, by name: with them the same can be made again."""
        return {"unit": self.unit, "lower": self.lower, "upper": self.upper} | self.learned

    def is_like(self, other: Warp) -> bool:
        """Whether both make the same of every value."""
        own, others = self.tensors, other.tensors
        return type(self) is type(other) and all(torch.equal(own[name], others[name]) for name in own)

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        if self.unit.device == device:
            return self
        return type(self)(**{name: value.to(device) for name, value in self.tensors.items()})

    def bent_by(self, *learned: Float[Tensor, "#n p"]) -> Self:
        """The same, bent in this way: what it learns, in order."""
        return type(self)(self.unit, self.lower, self.upper, **dict(zip(self.learns, learned, strict=True)))

    def within(self, lower: Float[Tensor, " p"], upper: Float[Tensor, " p"]) -> Self:
        """The same, bent within another range of values."""
        return type(self)(self.unit, lower, upper, **self.learned)

    def __call__(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g(y)`."""
        low, high = self._ends
        t = self.bent(_between(y, low and low.y, high and high.y))
        if high is not None:
            t = t + torch.relu(y - high.y) * high.slope
        if low is not None:
            t = t - torch.relu(low.y - y) * low.slope
        return t

    def inverse(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g⁻¹(t)`."""
        low, high = self._ends
        y = self._unbent(_between(t, low and low.t, high and high.t))
        if high is not None:
            y = y + torch.relu(t - high.t) / high.slope
        if low is not None:
            y = y - torch.relu(low.t - t) / low.slope
        return y

    def log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`log g'(y)`: what a log density gains on the way back to y."""
        return self.bent_log_slope(_between(y, *self.bent_range()))

    def bent_range(self) -> tuple[Float[Tensor, "#n p"] | None, Float[Tensor, "#n p"] | None]:
        """Where it is bent; None: it has its own shape as far as y goes on that side."""
        return self.lower, self.upper

    @cached_property
    def _ends(self) -> tuple[_End | None, _End | None]:
        """Where it begins to go on straight."""
        low, high = (
            None if y is None else _End(y, self.bent(y), self.bent_log_slope(y).exp()) for y in self.bent_range()
        )
        return low, high

    @abstractmethod
    def bent(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`g(y)` within the range."""

    @abstractmethod
    def _unbent(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """The y within the range that has `g(y) = t`."""

    @abstractmethod
    def bent_log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """`log g'(y)` within the range."""

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
                f"the warp {self.name!r} takes values above 0 only, and {len(bad)} of column "
                f"{tasks.columns.y[column]!r} are not (the first is {float(tasks.y[row, column]):g}, row "
                f"{row - int(tasks.offsets[task])} of task {tasks.ids[task]!r}): use the warp 'yeo-johnson', or add a "
                "constant."
            )


class _End(NamedTuple):
    """An end of the range: y, `g(y)` and `g'(y)` there."""

    y: Tensor
    t: Tensor
    slope: Tensor


class IdentityWarp(Warp):
    """`g(y) = y`."""

    name = "identity"

    def bent_range(self) -> tuple[None, None]:
        return None, None  # straight everywhere

    def bent(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return y

    def _unbent(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return t

    def bent_log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.zeros_like(y)


class _Positive(Warp, ABC):
    """For values above 0, towards which it keeps its own shape."""

    def bent_range(self) -> tuple[Float[Tensor, "#n p"] | None, Float[Tensor, "#n p"]]:
        return None, self.upper

    def allowed(self, y: Float[Tensor, "*n p"]) -> Bool[Tensor, "*n p"]:
        return y > 0


class LogWarp(_Positive):
    """`g(y) = log(y / unit)`, for values above 0."""

    name = "log"

    def bent(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (y / self.unit).log()

    def _unbent(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return self.unit * t.exp()

    def bent_log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return -y.log()


class LogLinearWarp(LogWarp):
    """The logarithm down to a tenth of the least past value, and a straight line below.

    It is learned from values above 0. A new task may have a value of 0 or less, as below a detection limit.
    """

    name = "log-linear"

    def bent_range(self) -> tuple[Float[Tensor, "#n p"], Float[Tensor, "#n p"]]:
        return self.lower / 10, self.upper

    def allowed(self, y: Float[Tensor, "*n p"]) -> Bool[Tensor, "*n p"]:
        return (self.lower > 0).expand_as(y)


class BoxCox(_Positive):
    """`g(y) = ((y / unit)^λ − 1) / λ` with a learned λ from 0 (the logarithm) to 2, for values above 0.

    It reaches down to `g(0) = −1/λ`: whatever lies below comes back as 0.
    """

    name = "box-cox"
    learns = ("raw",)

    @cached_property
    def power(self) -> Float[Tensor, "#n p"]:
        """λ: 1 at the start, which bends nothing."""
        return 2 * torch.sigmoid(self.learned["raw"])

    def bent(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return _power((y / self.unit).log(), self.power)

    def _unbent(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return self.unit * _log_root(t, self.power).exp()

    def bent_log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.xlogy(self.power - 1, y / self.unit) - self.unit.log()


class YeoJohnson(Warp):
    """Box and Cox's of `1 + y / unit` above 0, mirrored below (Yeo and Johnson 2000); λ and the unit are learned."""

    name = "yeo-johnson"
    learns = ("raw", "zoom")

    @cached_property
    def power(self) -> Float[Tensor, "#n p"]:
        """λ: 1 at the start, which bends nothing."""
        return 2 * torch.sigmoid(self.learned["raw"])

    def bent(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        t = _power(self._log(y), self._powers(y))
        return torch.where(y >= 0, t, -t)

    def _unbent(self, t: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return t.sign() * self.zoomed * _log_root(t.abs(), self._powers(t)).expm1()

    def bent_log_slope(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (self._powers(y) - 1) * self._log(y) - self.zoomed.log()

    @cached_property
    def zoomed(self) -> Float[Tensor, "#n p"]:
        return self.unit * (4 * torch.tanh(self.learned["zoom"])).exp()

    def _powers(self, sign: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.where(sign >= 0, self.power, 2 - self.power)

    def _log(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return torch.log1p(torch.where(y >= 0, y, -y) / self.zoomed)


WARPS: dict[str, type[Warp]] = {one.name: one for one in (IdentityWarp, LogWarp, LogLinearWarp, BoxCox, YeoJohnson)}


def make_warp(name: str, y: Float[Tensor, "N p"]) -> Warp:
    """A warp by name, in the magnitude of these values and bent within their range."""
    if name not in WARPS:
        raise UnknownNameError("warp", name, WARPS)
    middles = [column[column > 0].median() if bool((column > 0).any()) else 1.0 for column in y.abs().unbind(1)]
    return WARPS[name](torch.tensor(middles, dtype=torch.float64), y.amin(0), y.amax(0))


def _between(values: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """Values cut off at the bounds that there are."""
    return values if low is None and high is None else values.clamp(low, high)


def _power(log: Tensor, power: Tensor) -> Tensor:
    """`(e^{λ l} − 1) / λ`, and l at λ = 0."""
    safe = torch.where(power > NOTHING, power, 1.0)
    return torch.where(power > NOTHING, torch.expm1(safe * log) / safe, log)


def _log_root(t: Tensor, power: Tensor) -> Tensor:
    """l with `_power(l, λ) = t`; where there is none (far below zero), −∞."""
    safe = torch.where(power > NOTHING, power, 1.0)
    inside = (safe * t).clamp(min=-1.0)
    return torch.where(power > NOTHING, torch.log1p(inside) / safe, t)
