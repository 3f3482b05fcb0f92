"""Ranks, ties and losses: what the results of several methods on the same cells say.

A cell is a table with a context. A method without a score there (it failed, or a prediction was of no use) ranks last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from small_tables.protocol import CONTEXTS, METRICS, Array
from small_tables.running import result_file

SIGN = {"log_density": 1, "error": -1}
"""Whether more is better."""


class Cell(NamedTuple):
    """A table with a context: each method's values by metric, a value for each task, where it has them."""

    table: str
    context: str
    found: dict[str, dict[str, Array]]

    def mean(self, method: str, metric: str) -> float:
        return float(self.found[method][metric].mean()) if method in self.found else math.nan

    def ahead(self, one: str, other: str, metric: str) -> tuple[float, float]:
        """By how much one is better than the other, with the standard error over tasks."""
        difference = SIGN[metric] * (self.found[one][metric] - self.found[other][metric])
        stderr = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
        return float(difference.mean()), float(stderr)

    def best(self, methods: Iterable[str], metric: str) -> str | None:
        return max(
            (method for method in methods if method in self.found),
            key=lambda method: SIGN[metric] * self.mean(method, metric),
            default=None,
        )

    def tied(self, method: str, best: str, metric: str) -> bool:
        """Is it the best, or within two standard errors of it?"""
        if method not in self.found or method == best:
            return method == best
        behind, stderr = self.ahead(best, method, metric)
        return behind <= 2 * stderr


class Row(NamedTuple):
    """A method over all cells. Means are over the cells that every method has a score for."""

    method: str
    rank: float
    tied: int
    means: dict[str, float]
    fit: float
    predict: float
    failed: int


class Loss(NamedTuple):
    cell: Cell
    to: str
    behind: float
    stderr: float


class Results:
    """Of the methods on the tables that all of them have been run on."""

    def __init__(self, out: Path, methods: Sequence[str], tables: Sequence[str]) -> None:
        files = {table: {method: result_file(out, method, table) for method in methods} for table in tables}
        self.methods = list(methods)
        self.tables = [table for table, of in files.items() if all(path.exists() for path in of.values())]
        read = {table: {m: json.loads(path.read_text()) for m, path in files[table].items()} for table in self.tables}
        self.seconds = {m: [read[table][m].get("seconds", {}) for table in self.tables] for m in methods}
        cells = (_cell(table, context, read[table]) for table in self.tables for context in CONTEXTS)
        self.cells = [cell for cell in cells if cell.found]
        self.failures = [
            (method, table, why)
            for method in methods
            for table in self.tables
            for why in _failures(read[table][method])
        ]

    def rows(self) -> list[Row]:
        """By mean rank."""
        ranked = np.array([ranks([cell.mean(m, "log_density") for m in self.methods]) for cell in self.cells])
        bests = [(cell, cell.best(self.methods, "log_density")) for cell in self.cells]
        present = [method for method in self.methods if any(method in cell.found for cell in self.cells)]
        shared = [cell for cell in self.cells if all(method in cell.found for method in present)]
        found = []
        for k, method in enumerate(self.methods):
            means = {m: float(np.mean([cell.mean(method, m) for cell in shared] or [math.nan])) for m in METRICS}
            fit, predict = (sum(one.get(what, 0.0) for one in self.seconds[method]) for what in ("fit", "predict"))
            tied = sum(best is not None and cell.tied(method, best, "log_density") for cell, best in bests)
            failed = sum(method not in cell.found for cell in self.cells)
            found.append(Row(method, float(ranked[:, k].mean()), tied, means, fit, predict, failed))
        return sorted(found, key=lambda row: row.rank)

    def losses(self, method: str, metric: str) -> list[Loss]:
        """Where the best of the others is ahead by more than two standard errors; the largest first."""
        found = []
        for cell in self.cells:
            best = cell.best([other for other in self.methods if other != method], metric)
            if best is not None and method in cell.found:
                behind, stderr = cell.ahead(best, method, metric)
                if behind > 2 * stderr:
                    found.append(Loss(cell, best, behind, stderr))
        return sorted(found, key=lambda loss: -loss.behind)

    def by_table(self, table: str, method: str) -> float:
        """Mean log density over contexts."""
        cells = [cell for cell in self.cells if cell.table == table]
        return float(np.mean([cell.mean(method, "log_density") for cell in cells] or [math.nan]))


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the highest, the mean of their places for equal ones, last for NaN."""
    known = np.nan_to_num(np.array(values, float), nan=-np.inf)
    return [float(1 + np.sum(known > one) + (np.sum(known == one) - 1) / 2) for one in known]


def _failures(read: dict[str, Any]) -> list[str]:
    unusable = {context: one["log_density"].count(None) for context, one in read.get("cells", {}).items()}
    told = [f"predictions of no use for {count} tasks, {context}" for context, count in unusable.items() if count]
    return [read["failed"], *told] if "failed" in read else told


def _cell(table: str, context: str, read: dict[str, dict[str, Any]]) -> Cell:
    """Without those that failed, or have a prediction of no use."""
    of = {method: found.get("cells", {}).get(context) for method, found in read.items()}
    usable = {m: one for m, one in of.items() if one and not any(None in one[metric] for metric in METRICS)}
    return Cell(table, context, {m: {metric: np.array(one[metric]) for metric in METRICS} for m, one in usable.items()})
