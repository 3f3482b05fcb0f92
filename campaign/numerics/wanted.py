"""What an answer has to be, and how near to it: the form that both references have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from metaprior.arrays import Array

ROUNDING = 2.0**-53
LEAST = 1e-12


class Values(NamedTuple):
    """Numbers (float64, or exact ones), what their errors are relative to, and the condition number of their matrix."""

    value: Shaped[Array, " k"]
    scale: Shaped[Array, " k"]
    condition: float

    @property
    def tolerance(self) -> float:
        """`max(1e-12, 100 κ 2⁻⁵³)`."""
        return max(LEAST, 100 * ROUNDING * self.condition)


class Wanted(NamedTuple):
    """Of one task: all answers by name (none where its matrix is singular), its condition number, and a bound.

    least_complexity: what the complexity is at least, however the matrix was rounded; with jitter it would be less.
    """

    values: dict[str, Values]
    condition: float
    least_complexity: float


def summed(parts: Sequence[Values]) -> Values:
    """Of sums."""
    value, scale = (np.sum(some, axis=0) for some in ([one.value for one in parts], [one.scale for one in parts]))
    return Values(value, scale, max(part.condition for part in parts))
