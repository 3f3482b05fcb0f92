"""How a statement about methods is judged: the same rules for our results and for the paper's own tables.

*Better* means by more than two standard errors, *not worse* that it is not worse by more than two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from metaprior.paper.claims.comparing import Estimate, MissingRowError, Table, Weights, advantage

SHORT = 3
"""How many findings are told one by one when they are as stated."""


class Finding(NamedTuple):
    """What was seen in one place, and whether it is as stated. margin: in standard errors, to tell the closest."""

    where: str
    holds: bool
    said: str
    margin: float


class Verdict(NamedTuple):
    """Whether a statement holds, and the numbers that decided."""

    holds: bool
    because: str


class Rule(Protocol):
    """What a statement says about a table."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those it looks at."""
        ...

    def findings(self, table: Table) -> list[Finding]:
        """What it finds, place by place."""
        ...


def verdict(rule: Rule, table: Table) -> Verdict | None:
    """A statement holds where every finding is as stated. None where the table lacks a row."""
    try:
        findings = rule.findings(table)
    except MissingRowError:
        return None
    failing = [finding for finding in findings if not finding.holds]
    stated = [finding for finding in findings if finding.holds]
    parts = [f"{finding.where}: {finding.said}" for finding in (failing + stated if len(stated) <= SHORT else failing)]
    if len(stated) > SHORT:
        closest = min(stated, key=lambda finding: finding.margin)
        count = f"the other {len(stated)} as stated" if failing else f"all {len(stated)} comparisons as stated"
        parts.append(f"{count}, the closest ({closest.where}): {closest.said}")
    return Verdict(not failing, "; ".join(parts))


@dataclass(frozen=True)
class Compared:
    """A method is better than each of the others in every setting and metric.

    worse: it is worse than each. ties: a tie will do, if against each of the others there is a cell that is none.
    only_ties: not even that is asked for; it is nowhere contrary.
    """

    method: str
    others: tuple[str, ...]
    metrics: tuple[str, ...]
    settings: tuple[str, ...]
    worse: bool = False
    ties: bool = False
    only_ties: bool = False

    def findings(self, table: Table) -> list[Finding]:
        return [finding for other in self.others for finding in self._against(table, other)]

    def _against(self, table: Table, other: str) -> list[Finding]:
        words = ("worse", "better") if self.worse else ("better", "worse")
        places, wanted = [], []
        for metric in self.metrics:
            for setting in self.settings:
                first, second = (other, self.method) if self.worse else (self.method, other)
                wanted.append(advantage(table, metric, setting, first, second))
                places.append(self._place(metric, setting, other))
        return _findings(places, wanted, words, self.ties or self.only_ties, clear=not self.only_ties)

    def _place(self, metric: str, setting: str, other: str) -> str:
        parts = [_setting(setting)]
        if len(self.metrics) > 1:
            parts.append("MSE" if metric == "mse" else "likelihood")
        if len(self.others) > 1:
            parts.append(f"against {other}")
        return ", ".join(parts)


@dataclass(frozen=True)
class MovesMore:
    """Learning one thing changes a metric more than learning another: nowhere less, and somewhere more.

    A change is the absolute difference from the base method.
    """

    method: str
    other: str
    base: str
    metrics: tuple[str, ...]
    settings: tuple[str, ...]

    def findings(self, table: Table) -> list[Finding]:
        (metric,) = self.metrics
        more = []
        for setting in self.settings:
            first, second = (_gap(table, metric, setting, name, self.base) for name in (self.method, self.other))
            more.append(table.combine(metric, _minus(first, second)))
        return _findings([_setting(s) for s in self.settings], more, ("more", "less"), ties=True)


@dataclass(frozen=True)
class GapNarrows:
    """The absolute difference of two methods nowhere grows from one setting to the next, and shrinks on the whole."""

    method: str
    other: str
    metrics: tuple[str, ...]
    settings: tuple[str, ...]

    def findings(self, table: Table) -> list[Finding]:
        (metric,) = self.metrics
        gaps = {s: _gap(table, metric, s, self.method, self.other) for s in self.settings}
        words = ("narrower", "wider")
        found = []
        for before, after in zip(self.settings, self.settings[1:], strict=False):
            change = table.combine(metric, _minus(gaps[before], gaps[after]))
            found.append(_finding(_step(before, after), change, change.not_below, words))
        first, last = self.settings[0], self.settings[-1]
        whole = table.combine(metric, _minus(gaps[first], gaps[last]))
        return [_finding(_step(first, last), whole, whole.above, words), *found]


@dataclass(frozen=True)
class Comparable:
    """In every setting a method is not worse than the ideal, or goes this share of the way there from the base."""

    method: str
    ideal: str
    base: str
    metrics: tuple[str, ...]
    settings: tuple[str, ...]
    share: float = 0.9

    def findings(self, table: Table) -> list[Finding]:
        (metric,) = self.metrics
        found = []
        for setting in self.settings:
            beside = advantage(table, metric, setting, self.method, self.ideal)
            way = advantage(table, metric, setting, self.ideal, self.base).mean
            gone = advantage(table, metric, setting, self.method, self.base).mean
            share = gone / way if way > 0 else math.nan
            finding = _finding(_setting(setting), beside, beside.not_below or share >= self.share, ("better", "worse"))
            told = f", {share:.0%} of the way from {self.base}" if math.isfinite(share) else ""
            found.append(finding._replace(said=finding.said + told))
        return found


@dataclass(frozen=True)
class Within:
    """A metric of some methods is at most, or at least, a limit in every setting."""

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    settings: tuple[str, ...]
    at_most: float = math.inf
    at_least: float = -math.inf

    def findings(self, table: Table) -> list[Finding]:
        found = []
        for metric in self.metrics:
            for method in self.methods:
                for setting in self.settings:
                    mean = table.combine(metric, {(method, setting): 1.0}).mean
                    margin = min(self.at_most - mean, mean - self.at_least)
                    place = ", ".join([method] * (len(self.methods) > 1) + [_setting(setting)])
                    found.append(Finding(place, margin >= 0, "exactly 0" if mean == 0 else f"{mean:.2g}", margin))
        return found


@dataclass(frozen=True)
class Changes:
    """From the first setting to the last a method's metric rises, falls or stays as it is."""

    method: str
    metrics: tuple[str, ...]
    settings: tuple[str, str]
    to: Literal["rise", "fall", "stay"]

    def findings(self, table: Table) -> list[Finding]:
        (metric,), (first, last) = self.metrics, self.settings
        change = table.combine(metric, {(self.method, last): 1.0, (self.method, first): -1.0})
        place = _step(first, last)
        if self.to == "stay":
            return [Finding(place, abs(change.mean) <= 1e-9, f"a change of {change.mean:.1g}", 0.0)]
        rise = change if self.to == "rise" else Estimate(-change.mean, change.stderr)
        words = ("more", "less") if self.to == "rise" else ("less", "more")
        return [_finding(place, rise, rise.above, words)]


def _gap(table: Table, metric: str, setting: str, first: str, second: str) -> Weights:
    """The difference of two methods, turned so that it is positive."""
    found = table.combine(metric, {(first, setting): 1.0, (second, setting): -1.0})
    sign = math.copysign(1.0, found.mean)
    return {(first, setting): sign, (second, setting): -sign}


def _minus(first: Weights, second: Weights) -> Weights:
    return {cell: first.get(cell, 0.0) - second.get(cell, 0.0) for cell in (*first, *second)}


def _findings(
    places: list[str], found: list[Estimate], words: tuple[str, str], ties: bool, clear: bool = True
) -> list[Finding]:
    """One per place. Where ties will do, but one has to be clear and all are ties, the widest is not as stated."""
    holds = [estimate.not_below if ties else estimate.above for estimate in found]
    if ties and clear and all(holds) and not any(estimate.above for estimate in found):
        holds[max(range(len(found)), key=lambda k: _margin(found[k]))] = False
    return [_finding(*cell, words) for cell in zip(places, found, holds, strict=True)]


def _finding(where: str, estimate: Estimate, holds: bool, words: tuple[str, str]) -> Finding:
    return Finding(where, holds, estimate.said(*words), _margin(estimate))


def _margin(estimate: Estimate) -> float:
    return estimate.mean / estimate.stderr if estimate.stderr else math.copysign(math.inf, estimate.mean)


def _setting(setting: str) -> str:
    return f"ñ = {setting}" if setting.isdigit() else setting


def _step(before: str, after: str) -> str:
    return f"{_setting(before)} to {after.rpartition(' = ')[2]}"
