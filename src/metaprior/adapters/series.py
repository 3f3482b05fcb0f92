"""Time series of sktime's pandas formats as tasks: which series a row is of, and what its time is as a number."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from metaprior.errors import DataError, OptionError
from metaprior.extras import needs
from metaprior.tasks import Columns, Tasks, offsets_of

with needs("metaprior.adapters.sktime", "sktime"):
    import pandas as pd

Array = np.ndarray[Any, Any]

Align = Literal["start", "index"]
"""Whether time is counted from each series' own start, or is what its index says."""

ALONE = "the series"
"""What one series by itself is called."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Some series, one after another.

    frame: one row per series and time, the time as the last level of its index; a column for each variable.
    names: of the series, in the order in which they come. owner: the series that each row is of.
    """

    frame: pd.DataFrame
    align: Align
    names: tuple[Hashable, ...]
    owner: Int[Array, " N"]

    @staticmethod
    def of(frame: pd.DataFrame, align: Align) -> Panel:
        """Of a frame of one series or, with further levels in the index, of many."""
        if align not in ("start", "index"):
            raise OptionError(f"align={align!r}: give 'start' (time since a series' start) or 'index' (as it is).")
        if not len(frame):
            raise DataError("no rows: of a series of which nothing is known yet, give the start with a missing value.")
        if frame.index.nlevels == 1:
            return Panel(frame, align, (ALONE,), np.zeros(len(frame), dtype=np.int64))
        owner, names = pd.factorize(frame.index.droplevel(-1))
        order = np.argsort(owner, kind="stable")
        return Panel(frame.iloc[order], align, tuple(names), owner[order])

    @cached_property
    def index(self) -> pd.Index:
        """The time of each row, as it came."""
        return self.frame.index.get_level_values(-1)

    @property
    def dated(self) -> bool:
        """Whether times are dates or periods; else they are whole numbers."""
        return not pd.api.types.is_numeric_dtype(self.index.dtype)

    @cached_property
    def starts(self) -> Float[Array, " m"]:
        """What is subtracted from the times of each series."""
        starts = np.full(len(self.names), np.inf)
        np.minimum.at(starts, self.owner, as_numbers(self.index))
        return starts if self.align == "start" else np.zeros_like(starts)

    def tasks(self, column: int) -> Tasks:
        """The values of one variable that are there, each series a task: one without any has no points."""
        values = self.frame.iloc[:, column].to_numpy(dtype=np.float64, na_value=np.nan)
        name = self.frame.columns[column]
        if np.isinf(values).any():
            row = int(np.isinf(values).argmax())
            raise DataError(
                f"infinity in column {name!r} at {self.index[row]} of {self.names[self.owner[row]]!r}: "
                "leave the value out, or give a missing one."
            )
        known = ~np.isnan(values)
        owner, x = self.owner[known], (as_numbers(self.index) - self.starts[self.owner])[known]
        sizes = torch.from_numpy(np.bincount(owner, minlength=len(self.names)))
        y = torch.from_numpy(values[known])
        columns = Columns(("series",), ("time",), (str(name),))
        return Tasks(torch.from_numpy(x)[:, None], y[:, None], offsets_of(sizes), self.names, columns)

    def ahead(self, horizon: Any, cutoff: pd.Index) -> tuple[pd.Index, Tasks]:
        """Where a horizon asks: the index of the forecast, and for each series the points, without targets.

        horizon: sktime's, relative to the cutoff of a single series, or to the end of each of many.
        """
        self._check_steps(horizon)
        times = [horizon.to_absolute_index(cutoff)] if self.frame.index.nlevels == 1 else self._after_each(horizon)
        points = [as_numbers(some) - start for some, start in zip(times, self.starts, strict=True)]
        return self._labels(times), Tasks.from_inputs(points, self.names)

    def _after_each(self, horizon: Any) -> list[pd.Index]:
        last = np.zeros(len(self.names), dtype=np.int64)
        last[self.owner] = np.arange(len(self.owner))
        _, first, which = np.unique(as_numbers(self.index)[last], return_index=True, return_inverse=True)
        asked = [horizon.to_absolute_index(self.index[last[[k]]]) for k in first]  # many end at the same time
        return [asked[k] for k in which]

    def _check_steps(self, horizon: Any) -> None:
        counted = horizon.is_relative and pd.api.types.is_integer_dtype(horizon.to_pandas().dtype)
        if self.dated and counted and horizon.freq is None:
            raise DataError(
                "the times have no regular step, so a horizon of 1, 2, … steps has no length: give the times to "
                "forecast, fh=pd.DatetimeIndex([...]), or ForecastingHorizon([pd.Timedelta(days=1)], is_relative=True)."
            )

    def _labels(self, times: list[pd.Index]) -> pd.Index:
        if self.frame.index.nlevels == 1:
            return times[0]
        series = pd.Index(self.names).repeat([len(some) for some in times])
        levels = [series.get_level_values(k) for k in range(series.nlevels)]
        return pd.MultiIndex.from_arrays([*levels, times[0].append(times[1:])], names=self.frame.index.names)


def check_sorted(y: Any) -> None:
    """Whether the times of each series rise, where y is of pandas; anything else is for sktime to check."""
    if not isinstance(y, pd.Series | pd.DataFrame):
        return
    times = y.index.get_level_values(-1)
    if not (isinstance(times, pd.DatetimeIndex | pd.PeriodIndex) or pd.api.types.is_integer_dtype(times.dtype)):
        return
    owner = np.zeros(len(y)) if y.index.nlevels == 1 else pd.factorize(y.index.droplevel(-1))[0]
    order = np.argsort(owner, kind="stable")
    falls = (np.diff(as_numbers(times)[order]) < 0) & (np.diff(owner[order]) == 0)
    if falls.any():
        first, second = order[falls.argmax()], order[falls.argmax() + 1]
        raise DataError(
            f"the times of a series must rise, but {y.index[second]} comes after {y.index[first]}: "
            "sort it with y.sort_index()."
        )


def as_numbers(index: pd.Index) -> Float[Array, " n"]:
    """Times as numbers: dates and the starts of periods in days since 1970, whole numbers as they are."""
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if isinstance(index, pd.DatetimeIndex):
        since = index.tz_convert(None) if index.tz is not None else index
        index = (since - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return np.asarray(index, dtype=np.float64)
