"""Tables of tasks laid out so that models of all of them learn together: `learning/together.py`.

A task enters as columns `(a, h)`, one for each output: `h = Bᵀy`, and a says which output it is. Tasks of the same
inputs share a design, their Gram matrix `G = BᵀB`; models of one table share columns and differ in their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.learning.designs import designed
from metaprior.priors import Basis
from metaprior.tasks import CHUNK, Padded, Tasks, on_one_grid, padded, same_inputs

CPU = torch.device("cpu")

FACTOR = 8
"""Columns that cost as much as one more design."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Tasks in parts, and models by the parts that each of them learns from and is judged by."""

    sources: tuple[Tasks, ...]
    parts: tuple[Int[Tensor, " m"], ...]  # of each task
    learn: Float[Tensor, "i P"]
    judge: Float[Tensor, "i P"]
    device: torch.device = CPU  # where models of them are learned

    def on(self, device: torch.device) -> Curves:
        """The same, to be learned from on a device."""
        return replace(self, device=device)

    @staticmethod
    def whole(tasks: Tasks) -> Curves:
        """One model that learns from everything."""
        one = torch.ones(1, 1, dtype=torch.float64)
        return Curves((tasks,), (torch.zeros(len(tasks), dtype=torch.int64),), one, one)

    @staticmethod
    def judged_by(training: Tasks, judge: Tasks) -> Curves:
        """One model that learns from some tasks and is judged by others."""
        parts = (torch.zeros(len(training), dtype=torch.int64), torch.ones(len(judge), dtype=torch.int64))
        learn, own = torch.eye(2, dtype=torch.float64).split(1)
        return Curves((training, judge), parts, learn, own)

    @staticmethod
    def in_folds(tasks: Tasks, folds: Int[Tensor, " m"]) -> Curves:
        """A model for each fold (their numbers begin with 0): it is judged by the fold and learns from the rest."""
        judge = torch.eye(int(folds.max()) + 1, dtype=torch.float64)
        return Curves((tasks,), (folds,), 1.0 - judge, judge)

    @cached_property
    def one_grid(self) -> bool:
        """Whether all tasks have the same inputs in the same order."""
        first, *others = self.sources
        n = int(first.sizes[0])
        return on_one_grid(first) and all(
            bool((other.sizes == n).all())
            and all(bool((x == first.x[:n]).all()) for x in other.x.view(len(other), n, other.d).split(CHUNK))
            for other in others
        )

    @cached_property
    def sizes(self) -> Float[Tensor, " m"]:
        """Number of points of each task."""
        return torch.cat([source.sizes for source in self.sources]).double()

    @cached_property
    def totals(self) -> Float[Tensor, "P 3"]:
        """Number of tasks, number of values and `Σ yᵀy` of each part."""
        squares = torch.cat([source.summed(source.y.square().sum(1)) for source in self.sources])
        each = torch.stack([torch.ones_like(squares), self.sizes * self.sources[0].p, squares], 1)
        return each.new_zeros(self.learn.shape[1], 3).index_add_(0, torch.cat(self.parts), each)

    @cached_property
    def designs(self) -> tuple[Int[Tensor, " m"], Int[Tensor, " g"]]:
        """The design of each task (those of a source that have the same inputs have the same), and a task of each."""
        numbers, before = [], 0
        for source in self.sources:
            numbers.append(same_inputs(source) + before)
            before = int(numbers[-1].max()) + 1
        design = torch.cat(numbers)
        some = torch.empty(before, dtype=torch.int64)
        some[design] = torch.arange(len(design))
        return design, some

    @cached_property
    def laid_out(self) -> tuple[list[Padded], Int[Tensor, " m"]]:
        """The tasks of all sources in batches, and where each task stands in these."""
        batches, where, before = [], [], 0
        for source in self.sources:
            own = padded(source)
            batches += own
            where.append(torch.cat([batch.tasks for batch in own]).argsort() + before)
            before += len(source)
        return batches, torch.cat(where)


class Weights(NamedTuple):
    """How much each column counts for each model, and what follows of that."""

    columns: Float[Tensor, "o i k t"]
    designs: Float[Tensor, "o i k"]  # tasks of each
    tasks: Float[Tensor, "o i"]
    values: Float[Tensor, "o i"]
    squares: Float[Tensor, "o i"]  # Σ yᵀy


@dataclass(frozen=True, eq=False)
class StackedCurves:
    """o tables of i models each: k designs of t columns, padded with designs and columns of no weight."""

    gram: Float[Tensor, "o k q*q"]
    gram_rows: Float[Tensor, "o q k*q"]  # the same numbers in the order in which products with coefficients take them
    points: Float[Tensor, "o k"]
    outputs: Float[Tensor, "o 1 k p t"]
    projected: Float[Tensor, "o q k*t"]
    learn: Weights
    judge: Weights

    @staticmethod
    @torch.no_grad()
    def of(curves: Sequence[Curves], bases: Sequence[Basis]) -> StackedCurves:
        """Tables that have equally many models and outputs, in bases of one size."""
        tables = [_Columns.of(own, basis) for own, basis in zip(curves, bases, strict=True)]
        t = _width(torch.cat([table.of_design for table in tables]))
        placed = [table.places(t) for table in tables]
        o, i, k = len(tables), len(curves[0].learn), max(len(which) for _, which, _ in placed)
        q, p = tables[0].gram.shape[1], len(tables[0].values) - tables[0].gram.shape[1]
        values = torch.zeros(o, p + q, k * t, dtype=torch.float64)
        gram, points = values.new_zeros(o, k, q, q), values.new_zeros(o, k)
        columns, count, totals = values.new_zeros(2, o, i, k * t), values.new_zeros(2, o, i, k), []
        for n, (own, table, (at, which, first)) in enumerate(zip(curves, tables, placed, strict=True)):
            values[n, :, at] = table.values
            gram[n, : len(which)], points[n, : len(which)] = table.gram[which], table.points[which]
            weights = torch.stack([own.learn, own.judge])
            columns[:, n, :, at] = weights[..., table.part]
            count[:, n, :, first] = weights @ table.count.mT
            totals.append(weights @ table.totals)
        each = torch.stack(totals, 1).unbind(-1)  # tasks, values and squares [2, o, i]
        learn, judge = (
            Weights(columns[j].view(o, i, k, t), count[j], each[0][j], each[1][j], each[2][j]) for j in (0, 1)
        )
        outputs = values[:, :p].view(o, p, k, t).transpose(1, 2).contiguous()[:, None]
        rows = gram.transpose(1, 2).reshape(o, q, k * q)
        return StackedCurves(gram.view(o, k, q * q), rows, points, outputs, values[:, p:].contiguous(), learn, judge)

    @property
    def shape(self) -> tuple[int, int, int, int, int, int]:
        """Numbers of tables, models, designs, columns of a design, basis functions and outputs."""
        o, i, k, t = self.learn.columns.shape
        return o, i, k, t, self.projected.shape[1], self.outputs.shape[3]

    def to(self, device: torch.device) -> StackedCurves:
        """The same on a device."""
        learn, judge = (Weights(*(part.to(device) for part in each)) for each in (self.learn, self.judge))
        shared = ("gram", "gram_rows", "points", "outputs", "projected")
        moved = {name: getattr(self, name).to(device) for name in shared}
        return StackedCurves(**moved, learn=learn, judge=judge)

    @property
    def judging(self) -> StackedCurves:
        """The same with the tasks that models are judged by in place of those that they learn from."""
        return replace(self, learn=self.judge)

    def tables(self, which: Int[Tensor, " n"]) -> StackedCurves:
        """Some of the tables."""
        learn, judge = (Weights(*(part[which] for part in each)) for each in (self.learn, self.judge))
        return self._of(which, learn, judge)

    def models(self, start: int, stop: int) -> StackedCurves:
        """Some models of each table."""
        learn, judge = (Weights(*(part[:, start:stop] for part in each)) for each in (self.learn, self.judge))
        return replace(self, learn=learn, judge=judge)

    def single(self, which: Int[Tensor, " n"]) -> StackedCurves:
        """Some of all models, each as a table of its own."""
        learn, judge = (
            Weights(*(part.flatten(0, 1)[which][:, None] for part in each)) for each in (self.learn, self.judge)
        )
        return self._of(which // self.shape[1], learn, judge)

    def _of(self, which: Int[Tensor, " n"], learn: Weights, judge: Weights) -> StackedCurves:
        gram, rows, points = self.gram[which], self.gram_rows[which], self.points[which]
        return StackedCurves(gram, rows, points, self.outputs[which], self.projected[which], learn, judge)


@dataclass(frozen=True, eq=False)
class _Columns:
    """One table in a basis, its columns in the order of their designs."""

    values: Float[Tensor, "p+q n"]
    design: Int[Tensor, " n"]
    part: Int[Tensor, " n"]
    gram: Float[Tensor, "g q q"]
    points: Float[Tensor, " g"]
    count: Float[Tensor, "g P"]  # tasks
    totals: Float[Tensor, "P 3"]  # tasks, values and Σ yᵀy

    @staticmethod
    def of(curves: Curves, basis: Basis) -> _Columns:
        laid_out, where = curves.laid_out
        gram, projected = (torch.cat(part) for part in zip(*(designed(basis, one) for one in laid_out), strict=True))
        projected, design, some = projected[where], *curves.designs
        gram = gram[where[some]]
        part, parts = torch.cat(curves.parts), curves.learn.shape[1]
        m, q, p = projected.shape
        cell = design * parts + part
        count = cell.bincount(minlength=len(gram) * parts).view(-1, parts).double()
        outputs = torch.eye(p, dtype=torch.float64).repeat(1, m)
        values = torch.cat([outputs, projected.permute(1, 0, 2).reshape(q, m * p)])
        values, cell = _compressed(values, cell.repeat_interleave(p))
        order = cell.argsort(stable=True)
        cell, points = cell[order], curves.sizes[some]
        return _Columns(values[:, order], cell // parts, cell % parts, gram, points, count, curves.totals)

    @cached_property
    def of_design(self) -> Int[Tensor, " g"]:
        """How many columns each design has."""
        return self.design.bincount(minlength=len(self.gram))

    def places(self, t: int) -> tuple[Int[Tensor, " n"], Int[Tensor, " k"], Int[Tensor, " g"]]:
        """Where each column stands if a design has t of them; a larger one is there several times.

        Then which design each of these is, and where the first of each stands.
        """
        pieces = -(-self.of_design // t)
        first = pieces.cumsum(0) - pieces
        within = torch.arange(len(self.design)) - (self.of_design.cumsum(0) - self.of_design)[self.design]
        return first[self.design] * t + within, torch.arange(len(pieces)).repeat_interleave(pieces), first


def _compressed(values: Float[Tensor, "s n"], cell: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
    """The same sums of products over the columns of each cell, with no more than 2s columns in any."""
    heavy = torch.nonzero(cell.bincount() > 2 * len(values))[:, 0]
    if not len(heavy):
        return values, cell
    light = ~torch.isin(cell, heavy)
    roots = [torch.linalg.qr(values[:, cell == one].mT, mode="r").R.mT for one in heavy]
    cells = [cell[light], heavy.repeat_interleave(len(values))]
    return torch.cat([values[:, light], *roots], 1), torch.cat(cells)


def _width(columns: Int[Tensor, " g"]) -> int:
    """How many columns a design is to have, for the least work."""
    sizes: list[int] = columns.tolist()
    widths = [1 << j for j in range(max(sizes).bit_length() + 1)]
    return min(widths, key=lambda t: sum(-(-size // t) for size in sizes) * (FACTOR + t))
