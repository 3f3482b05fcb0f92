"""How many basis functions and components curves call for: by the evidence of held-out ones, for tables together."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.learning import (
    NO_BASIS,
    NO_SCORES,
    NOT_FINITE,
    UNKNOWNS,
    Curves,
    Fit,
    Grids,
    Models,
    StackedCurves,
    check_rank,
    error_of,
    evidence_together,
    fit_together,
    starts,
)
from metaprior.priors import Basis
from metaprior.progress import Advance

RANKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256, 384)
PATIENCE = 2
"""Ranks without a better one before the search ends."""

ROUGHLY = 1e-4
"""Gain of evidence per value at which EM ends while sizes and ranks are compared."""

FEW_STEPS = 20
"""EM steps after which models are compared at the latest: on nine tables they chose as 500 did, or better."""

LITTLE = 100
"""Coefficients of components up to which models of several ranks are learned together, as if all had the highest."""

T = TypeVar("T")


class Tried(NamedTuple):
    """A size and rank with the evidence per value of held-out curves."""

    size: int
    rank: int
    held_out_evidence: float


@dataclass(eq=False)
class Search:
    """Sizes and ranks for one table, until the held-out evidence stops rising."""

    curves: Curves
    sizes: Sequence[int]
    basis: Callable[[int], Basis]
    rank: int | None
    floor: float
    tolerance: float
    given: bool  # the only size there is: what goes wrong with it is an error
    tried: list[Tried] = field(default_factory=list)
    done: int = 0
    over: bool = False

    @property
    def open(self) -> bool:
        """Whether there is a next size to try: not after one that was no better, or more than the curves determine."""
        return (
            not self.over
            and self.done < len(self.sizes)
            and (not self.tried or self.done - 1 <= self.sizes.index(best(self.tried).size))
        )

    def ranks(self, size: int) -> list[int]:
        """The numbers of components to try, smallest first: no more than the curves of any fold can show."""
        fewest = int((self.curves.learn @ self.curves.totals[:, 0]).min())
        most = min(size, fewest * self.curves.sources[0].p - 1)
        if self.rank is not None:
            return [self.rank] if self.rank <= most else []
        return [*(rank for rank in RANKS if rank < most), most]


class _Climb:
    """Rising ranks in one basis, until a few have brought nothing."""

    def __init__(self, search: Search, basis: Basis) -> None:
        self.search, self.basis, self.ranks = search, basis, search.ranks(basis.size)
        self.best, self.since_best, self.open = -math.inf, 0, bool(self.ranks)

    def beside(self) -> Hashable:
        """What climbs must have in common to go together."""
        curves = self.search.curves
        return _shape(curves, self.basis), len(curves.learn), self.search.rank, curves.device

    def take(self, rank: int, evidence: float) -> None:
        """What a rank has brought."""
        search = self.search
        search.tried.append(Tried(search.sizes[search.done], rank, evidence))
        self.since_best = 0 if evidence > self.best + search.tolerance else self.since_best + 1
        self.best = max(self.best, evidence)
        self.open = self.since_best < PATIENCE and rank != self.ranks[-1]

    def fail(self, failure: int) -> None:
        """A fold does not determine so many functions."""
        if self.search.given:
            raise error_of(failure)
        self.open, self.search.over = False, self.best == -math.inf


def best(tried: Sequence[Tried]) -> Tried:
    """The first of the best: with equal evidence, the smaller one."""
    return max(tried, key=lambda one: -math.inf if math.isnan(one.held_out_evidence) else one.held_out_evidence)


def choose(searches: Sequence[Search], advance: Advance) -> None:
    """Bring all searches to their end, those in bases of one size together."""
    while waiting := [search for search in searches if search.open]:
        climbs = [_Climb(search, search.basis(search.sizes[search.done])) for search in waiting]
        for group in _alike(climbs, _Climb.beside):
            (_on_grids if group[0].search.curves.one_grid else _by_em)(group)
        for search in waiting:
            search.done += 1
        advance(f"{waiting[0].sizes[waiting[0].done - 1]} basis functions")


def _on_grids(climbs: Sequence[_Climb]) -> None:
    curves = [climb.search.curves for climb in climbs]
    grids = Grids.of(curves, [climb.basis for climb in climbs], _floors(climb.search.floor for climb in climbs))
    ranks = sorted({rank for climb in climbs for rank in climb.ranks})
    values = grids.points * curves[0].sources[0].p * grids.judge.tasks.sum(1)
    found = grids.evidence(grids.judge, ranks).sum(1) / values[:, None]
    for climb, per_rank, failed in zip(climbs, found.tolist(), grids.failed.tolist(), strict=True):
        if failed:
            climb.fail(NO_BASIS)
        for rank, evidence in zip(ranks, per_rank, strict=True):
            if climb.open and rank in climb.ranks:
                climb.take(rank, evidence) if math.isfinite(evidence) else climb.fail(NOT_FINITE)


def _by_em(climbs: Sequence[_Climb]) -> None:
    device = climbs[0].search.curves.device
    stack = StackedCurves.of([climb.search.curves for climb in climbs], [climb.basis for climb in climbs]).to(device)
    q, p = stack.shape[4:]
    floor = _floors(climb.search.floor for climb in climbs).to(device)
    start = starts(stack, floor)
    for climb, failure in zip(climbs, start.failure.amax(1).tolist(), strict=True):
        if failure and climb.open:
            climb.fail(failure)
    models: dict[int, tuple[Tensor, Tensor]] = {}
    some, chosen = stack, list(range(len(climbs)))
    for rank in sorted({rank for climb in climbs for rank in climb.ranks}):
        going = [n for n, climb in enumerate(climbs) if climb.open and rank in climb.ranks]
        if not going or q * (p + rank) > UNKNOWNS:
            continue
        which = torch.tensor(going)
        if going != chosen:
            some, chosen = stack.tables(which), going
        smaller = Models(*map(torch.stack, zip(*(models[n] for n in going), strict=True))) if models else None
        began = start.tables(which).models(rank, smaller)
        learned = fit_together(some, began, floor=floor[which], tolerance=ROUGHLY, max_steps=FEW_STEPS)
        evidence = evidence_together(some.judging, learned.models)
        failures = torch.where(evidence.isfinite(), learned.failure, learned.failure.clamp(min=NO_SCORES)).amax(1)
        found = evidence.sum(1) / some.judge.values.sum(1)
        for k, (n, failure, value) in enumerate(zip(going, failures.tolist(), found.tolist(), strict=True)):
            models[n] = learned.models.coefficients[k], learned.models.noise[k]
            climbs[n].fail(failure) if failure else climbs[n].take(rank, value)


class Wanted(NamedTuple):
    """A model to be learned from all tasks of a table."""

    curves: Curves
    basis: Basis
    rank: int
    floor: float
    tolerance: float
    max_steps: int


def fit_all(wanted: Sequence[Wanted]) -> list[Fit]:
    """Models of given sizes and ranks, those of a size together; of much work, only those of a rank as well."""
    found: dict[int, Fit] = {}
    groups: dict[Hashable, list[int]] = {}
    for n, one in enumerate(wanted):
        check_rank(one.rank, one.basis.size, one.curves.sources[0].p, one_grid=one.curves.one_grid)
        rank = one.rank if one.basis.size * one.rank > LITTLE else 0
        alike = (_shape(one.curves, one.basis), one.curves.device, rank, one.tolerance, one.max_steps)
        groups.setdefault(alike, []).append(n)
    for group in groups.values():
        fitted = _on_their_grids if wanted[group[0]].curves.one_grid else _until_the_end
        found |= zip(group, fitted([wanted[n] for n in group]), strict=True)
    return [found[n] for n in range(len(wanted))]


def _on_their_grids(wanted: Sequence[Wanted]) -> list[Fit]:
    curves, bases, ranks, floor = _each(wanted)
    grids = Grids.of(curves, bases, floor)
    if bool(grids.failed.any()):
        raise error_of(NO_BASIS)
    evidence = grids.evidence(grids.learn, ranks)[:, 0].diagonal().tolist()
    return [Fit(grids.model(n, rank), (evidence[n],), True) for n, rank in enumerate(ranks)]


def _until_the_end(wanted: Sequence[Wanted]) -> list[Fit]:
    curves, bases, ranks, floor = _each(wanted)
    stack, p = StackedCurves.of(curves, bases).to(curves[0].device), curves[0].sources[0].p
    floor = floor.to(curves[0].device)
    start = starts(stack, floor)
    if bool(start.failure.any()):
        raise error_of(int(start.failure.max()))
    began = start.models(max(ranks))
    for n, rank in enumerate(ranks):
        began.coefficients[n, :, p + rank :] = 0.0  # a component of nothing stays nothing
    tolerance, max_steps = wanted[0].tolerance, wanted[0].max_steps
    learned = fit_together(stack, began, floor=floor, tolerance=tolerance, max_steps=max_steps)
    return [learned.fit(n, p, rank) for n, rank in enumerate(ranks)]


def _each(wanted: Sequence[Wanted]) -> tuple[list[Curves], list[Basis], list[int], Float[Tensor, " o"]]:
    floor = _floors(one.floor for one in wanted)
    return [one.curves for one in wanted], [one.basis for one in wanted], [one.rank for one in wanted], floor


def _shape(curves: Curves, basis: Basis) -> tuple[bool, int, int]:
    """What models must have in common to be learned together."""
    return curves.one_grid, basis.size, curves.sources[0].p


def _floors(floors: Iterable[float]) -> Float[Tensor, " o"]:
    return torch.tensor(list(floors), dtype=torch.float64)


def _alike(things: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Things that have the same key, together."""
    groups: dict[Hashable, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return list(groups.values())
