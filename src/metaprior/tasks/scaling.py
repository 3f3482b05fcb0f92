"""`Scaler`: brings x and y to mean 0 and standard deviation 1, by the meta-tasks alone, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError
from metaprior.tasks.tasks import Tasks


@dataclass(frozen=True, eq=False)
class Scaler:
    """`x ↦ (x − x_shift) / x_scale` and the same for y, one shift and scale per column."""

    x_shift: Float[Tensor, " d"]
    x_scale: Float[Tensor, " d"]
    y_shift: Float[Tensor, " p"]
    y_scale: Float[Tensor, " p"]

    @staticmethod
    def fit(meta_tasks: Tasks) -> Scaler:
        """The scaler under which all points of the meta-tasks together have mean 0 and deviation 1."""
        return Scaler(*_shift_and_scale(meta_tasks.x), *_shift_and_scale(meta_tasks.y))

    @staticmethod
    def of_targets(meta_tasks: Tasks) -> Scaler:
        """The same for y alone: x stays as it is."""
        identity = Scaler.identity(meta_tasks.d, meta_tasks.p)
        return Scaler(identity.x_shift, identity.x_scale, *_shift_and_scale(meta_tasks.y))

    @staticmethod
    def identity(d: int, p: int) -> Scaler:
        """The scaler that changes nothing."""
        zeros, ones = (partial(make, dtype=torch.float64) for make in (torch.zeros, torch.ones))
        return Scaler(zeros(d), ones(d), zeros(p), ones(p))

    def as_tensors(self) -> dict[str, Tensor]:
        """Its four vectors by name, for a file."""
        return {f"scaler.{name}": getattr(self, name) for name in ("x_shift", "x_scale", "y_shift", "y_scale")}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> Scaler:
        """What `as_tensors` gave."""
        found = Scaler(*(tensors[f"scaler.{name}"] for name in ("x_shift", "x_scale", "y_shift", "y_scale")))
        for shift, scale in ((found.x_shift, found.x_scale), (found.y_shift, found.y_scale)):
            if shift.ndim != 1 or shift.shape != scale.shape or not bool((scale > 0).all() and shift.isfinite().all()):
                raise DataError("the model file does not fit together: it cannot be scaled by. Fit the model again.")
        return found

    def scale(self, tasks: Tasks) -> Tasks:
        """The tasks in scaled units; points without targets (`p = 0`) stay without."""
        for what, found, known in (("input", tasks.d, len(self.x_shift)), ("target", tasks.p, len(self.y_shift))):
            if found != known and (what, found) != ("target", 0):
                raise DataError(f"{found} {what} columns, but the prior was learned on {known}: give the same columns.")
        x, y = tasks.x, tasks.y
        if _changes(self.x_shift, self.x_scale):  # else nothing is copied
            x = (x - self.x_shift) / self.x_scale
        if tasks.p and _changes(self.y_shift, self.y_scale):
            y = (y - self.y_shift) / self.y_scale
        return tasks if x is tasks.x and y is tasks.y else replace(tasks, x=x, y=y)

    def scale_y(self, y: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return (y - self.y_shift.to(y)) / self.y_scale.to(y)

    def unscale_mean(self, mean: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """Means, quantiles and samples of y in the user's units."""
        return mean * self.y_scale.to(mean) + self.y_shift.to(mean)

    def unscale_sd(self, sd: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        return sd * self.y_scale.to(sd)

    def unscale_log_density(self, log_density: Float[Tensor, "*n p"]) -> Float[Tensor, "*n p"]:
        """Log densities of single values of y: the Jacobian of the scaling is `1 / y_scale`."""
        return log_density - self.y_scale.log().to(log_density)

    def log_jacobian(self, tasks: Tasks) -> Float[Tensor, " m"]:
        """What to add to each task's joint log density (or evidence) to have it in the user's units."""
        return -tasks.sizes * self.y_scale.log().sum()


def _changes(shift: Float[Tensor, " k"], scale: Float[Tensor, " k"]) -> bool:
    return not bool((shift == 0).all() and (scale == 1).all())


def _shift_and_scale(values: Float[Tensor, "N k"]) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    shift = values.mean(0)
    largest = (values - shift).abs().amax(0)
    unit = torch.where(largest > 0, largest, 1.0)  # squares of very large or small values would overflow
    deviation = unit * ((values - shift) / unit).square().mean(0).sqrt()
    if not bool(torch.isfinite(deviation).all()):
        raise DataError("values too large to be scaled (their differences overflow): use other units.")
    # A column that is constant up to rounding has no deviation to scale by: its own magnitude serves.
    constant = deviation <= 1e-12 * shift.abs()
    magnitude = torch.where(shift == 0, torch.ones_like(shift), shift.abs())
    return shift, torch.where(constant | (deviation == 0), magnitude, deviation)
