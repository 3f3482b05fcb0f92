"""What columns hold in short: moments of numbers and dates, levels of text, part by part and then together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from metaprior.tasks import in_numbers

LEVELS = 100
"""So many values of a text column are told, at most."""


@dataclass(frozen=True)
class Moments:
    """Of a column's finite numbers; dates are in days since 1970-01-01, times of day in days. missing: the others."""

    count: int
    missing: int
    mean: float | None
    variance: float | None
    min: float | None
    max: float | None

    def and_of(self, other: Moments) -> Moments:
        """Of both parts together."""
        if not self.count or not other.count:
            some = self if self.count else other
            return replace(some, missing=self.missing + other.missing)
        count = self.count + other.count
        mean, variance = self._joined(other, other.count / count)
        least, most = min(self.min, other.min), max(self.max, other.max)  # type: ignore[type-var]
        return Moments(count, self.missing + other.missing, mean, variance, least, most)

    def _joined(self, other: Moments, share: float) -> tuple[float | None, float | None]:
        """Mean and variance of a mixture in which the other has this share."""
        if self.mean is None or self.variance is None or other.mean is None or other.variance is None:
            return None, None
        apart = other.mean - self.mean
        spread = self.variance + (other.variance - self.variance) * share
        return _plain(self.mean + apart * share), _plain(spread + apart * apart * share * (1 - share))


def moments_of(array: Any) -> Moments | None:
    """Of a column; None if it holds neither numbers nor dates."""
    numbers = in_numbers(array)
    if numbers is None:
        return None
    finite = numbers[np.isfinite(numbers)]
    missing = len(numbers) - len(finite)
    if not len(finite):
        return Moments(0, missing, None, None, None, None)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = float(finite.mean()), float(finite.var())
    return Moments(len(finite), missing, _plain(mean), _plain(variance), float(finite.min()), float(finite.max()))


def _plain(value: float) -> float | None:
    """A number, or None where it is beyond all."""
    return value if isfinite(value) else None


def levels_of(array: Any) -> list[str] | None:
    """The values of a text column in order; None if there are too many."""
    found = array.unique().drop_null()
    return sorted(found.to_pylist()) if len(found) <= LEVELS else None


def joined_levels(parts: Iterable[list[str] | None]) -> list[str] | None:
    """The same of several parts together."""
    found: set[str] = set()
    for part in parts:
        if part is None:
            return None
        found.update(part)
    return sorted(found) if len(found) <= LEVELS else None


def is_text(dtype: Any) -> bool:
    """Whether a column has levels."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))
