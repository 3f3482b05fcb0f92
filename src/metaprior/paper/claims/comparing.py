"""Differences between methods with their standard errors: from our tasks, and from the paper's printed tables.

A table is asked for linear combinations of its cells. Ours are paired: taken task by task, over the tasks that all
cells have. A printed table has only means and standard errors, so its cells count as independent, each with the
variance of its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metaprior.errors import DataError
from metaprior.paper.published import LAST_PLACE, PUBLISHED
from metaprior.scoring import METRICS

ERRORS = 2.0
"""How many standard errors make a difference."""

Cell = tuple[str, str]
"""Method and setting."""
Weights = Mapping[Cell, float]


class MissingRowError(DataError):
    """The table does not have a row that a rule needs, or not on two tasks in common."""


class Estimate(NamedTuple):
    """A mean and its standard error; an infinite mean has none, and a difference of two infinities is NaN."""

    mean: float
    stderr: float

    @property
    def above(self) -> bool:
        """More than two standard errors above zero."""
        return self.mean > ERRORS * self.stderr

    @property
    def not_below(self) -> bool:
        """Not more than two standard errors below zero."""
        return self.mean >= -ERRORS * self.stderr

    def said(self, more: str, less: str) -> str:
        """The size, with the first word where it is positive and the second where it is negative."""
        if math.isnan(self.mean):
            return "cannot be told (infinite values)"
        word = more if self.mean >= 0 else less
        if math.isinf(self.mean):
            return f"{word} by ∞"
        size = self.stderr or abs(self.mean)
        digits = min(max(1 - math.floor(math.log10(size)), 0), 6) if 0 < size < math.inf else 2  # two of the error's
        return f"{word} by {abs(self.mean):.{digits}f} ± {self.stderr:.{digits}f}"


class Table(Protocol):
    """What a rule can ask: the weighted sum of some methods' means in some settings, in one metric."""

    def combine(self, metric: str, weights: Weights) -> Estimate:
        """A MissingRowError where the table cannot tell."""
        ...


class TaskTable:
    """An experiment's own values, task by task."""

    def __init__(self, tables: list[pa.Table], metrics: Iterable[str]) -> None:
        self._values: dict[tuple[str, Cell], np.ndarray[Any, Any]] = {}
        if not tables:
            return
        table = pa.concat_tables(tables)
        table = table.filter(pc.is_in(table["metric"], pa.array(list(metrics), pa.string())))
        names = table["task"].combine_chunks().dictionary_encode()
        table = table.append_column("position", names.indices)
        cells = table.group_by(["method", "setting", "metric"], use_threads=False)
        columns = cells.aggregate([("position", "list"), ("value", "list")])
        for row in range(columns.num_rows):
            method, setting, metric = (columns[name][row].as_py() for name in ("method", "setting", "metric"))
            values = np.full(len(names.dictionary), np.nan)  # NaN where a task is missing
            at, found = (columns[f"{name}_list"][row].values for name in ("position", "value"))
            values[at.to_numpy()] = found.to_numpy(zero_copy_only=False)
            self._values[metric, (method, setting)] = values

    def combine(self, metric: str, weights: Weights) -> Estimate:
        """Paired: the combination of each task that all these cells have."""
        weights = {cell: weight for cell, weight in weights.items() if weight}
        for cell in weights:
            if (metric, cell) not in self._values:
                raise MissingRowError(f"no row for {cell[0]!r}, {cell[1]!r}, {metric!r}.")
        columns = np.stack([self._values[metric, cell] for cell in weights])
        common = ~np.isnan(columns).any(0)
        if common.sum() < 2:
            raise MissingRowError(f"fewer than two tasks in common: {list(weights)}, {metric!r}.")
        with np.errstate(invalid="ignore", over="ignore"):  # ∞ − ∞
            values = np.array(list(weights.values())) @ columns[:, common]
            mean, stderr = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(common.sum())
        return Estimate(mean, stderr if math.isfinite(mean) else 0.0)


class PaperTable:
    """The paper's printed table of an experiment."""

    def __init__(self, experiment: str) -> None:
        self._figures, self._last_place = PUBLISHED[experiment], LAST_PLACE[experiment]

    def combine(self, metric: str, weights: Weights) -> Estimate:
        """Unpaired: every figure is independent of the others, and rounded."""
        mean = variance = 0.0
        for (method, setting), weight in weights.items():
            if (setting, metric) not in self._figures.get(method, {}):
                raise MissingRowError(f"the paper has no figure for {method!r}, {setting!r}, {metric!r}.")
            figure, stderr = self._figures[method][setting, metric]
            mean += weight * figure
            variance += weight**2 * (stderr**2 + self._last_place[metric] ** 2 / 12)
        return Estimate(mean, math.sqrt(variance))


def advantage(table: Table, metric: str, setting: str, first: str, second: str) -> Estimate:
    """By how much the first method is better than the second."""
    cost = METRICS[metric].cost
    sign = -1.0 if cost is not None and cost(2.0) > cost(1.0) else 1.0
    return table.combine(metric, {(first, setting): sign, (second, setting): -sign})
