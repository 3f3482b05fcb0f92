"""What `auto` loses against an oracle that knows the tasks' law, and whether a simple rung ever beats it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

from campaign.known import KNOWN, POINTS, Array, Known
from campaign.parts import Cell, Check, Effort, Section, Table
from metaprior import Tasks
from metaprior.errors import MetapriorError
from metaprior.inference import Method
from metaprior.methods import make_method
from metaprior.seeds import child_seed
from metaprior.selection import Auto
from metaprior.splits import default_contexts
from metaprior.tasks import ContextTarget

SIMPLE = ("context mean", "last value", "gp per task", "shared gp")

MANY = {2: 40, 5: 40, 20: 30, 100: 16, 1000: 16}
"""Past tasks, and draws of them in the full campaign."""

LEAST = 3
"""Draws at any effort."""

REACHED = 2000
"""Numbers of past tasks up to this times the share of the full campaign are tried, the least in any case."""

NEW = 200
"""Tasks that each is asked about."""

LEVEL, ENOUGH, NEAR = 0.9, 20, 0.03
"""The interval whose coverage is looked at; with so many past tasks or more it may be so far off on average."""

ORACLE, CHOICE = "oracle", "auto"


class Draw(NamedTuple):
    """One draw of past and of new tasks of a kind."""

    kind: str
    tasks: int
    number: int


class Outcome(NamedTuple):
    """Log density per new value, by method; and how much of them the interval of the choice held."""

    density: dict[str, float]
    coverage: float


def run(effort: Effort) -> Section:
    """Every kind with every number of past tasks."""
    sizes = [m for m in MANY if m <= max(REACHED * effort.share, min(MANY))]
    draws = [Draw(kind, m, k) for m in reversed(sizes) for kind in KNOWN for k in range(effort.of(MANY[m], LEAST))]
    found: dict[tuple[str, int], list[Outcome]] = {(kind, m): [] for kind in KNOWN for m in sizes}
    for k, outcome in effort.each(partial(_one, draws, effort.seed), len(draws), "choice"):
        found[draws[k].kind, draws[k].tasks].append(outcome)
    checks = [_never_worse(found), _near(found), *_covered(found)]
    left_out = [m for m in MANY if m not in sizes]
    notes = (
        [f"Not tried at this share of the campaign: {', '.join(map(str, left_out))} past tasks."] if left_out else []
    )
    return Section("The choice", HOW, checks, [_losses(found), _gains(found)], notes, {"choices": float(len(draws))})


HOW = (
    f"Tasks of {POINTS} points are drawn from five known laws, whose exact predictions (the oracle) are written out in "
    f"NumPy (`campaign/known.py`). `auto` learns from m of them and is asked about {NEW} new ones, from a few random "
    "points and from the first few, as it expects. Figures are log densities per new value, in nats, with standard "
    "errors over draws of past and new tasks."
)


def _one(draws: Sequence[Draw], seed: int, number: int) -> Outcome:
    kind, m, k = draws[number]
    own = child_seed(seed, list(KNOWN).index(kind), m, k)
    rng, law, short = np.random.default_rng(own), KNOWN[kind], own % 2**31
    past, new = _tasks(law, m, rng), _tasks(law, NEW, rng)
    contexts = default_contexts(past, short)
    splits = list(contexts(new).values())
    auto = Auto(seed=short, progress=False).fit(past)
    density, coverage = _asked(auto, splits)
    found = {ORACLE: _oracle(law, splits), CHOICE: density}
    for name in SIMPLE:
        try:
            found[name] = _asked(make_method(name, past, short, contexts).fit(past), splits)[0]
        except MetapriorError:  # too few tasks for it
            continue
    return Outcome(found, coverage)


def _tasks(law: Known, count: int, rng: np.random.Generator) -> Tasks:
    return Tasks.from_pairs(list(zip(*law.drawn(count, rng), strict=True)))


def _asked(method: Method, splits: Sequence[ContextTarget]) -> tuple[float, float]:
    """Log density per value and coverage, averaged over settings."""
    densities, inside = [], []
    for context, target in splits:
        posterior = method.condition(context).at(target)
        densities.append(float(posterior.log_density(target.y).mean()))
        inside.append(float((2 * (posterior.cdf(target.y) - 0.5).abs() <= LEVEL).double().mean()))
    return float(np.mean(densities)), float(np.mean(inside))


def _oracle(law: Known, splits: Sequence[ContextTarget]) -> float:
    found = []
    for split in splits:
        x, y, at, values = (part.numpy().reshape(NEW, -1) for own in split for part in (own.x, own.y))
        found.append(float(law.says(x, y, at, values).log_density.mean()))
    return float(np.mean(found))


Found = Mapping[tuple[str, int], Sequence[Outcome]]


def _gaps(outcomes: Sequence[Outcome], first: str, second: str) -> Array:
    """What the first has more than the second, draw by draw."""
    return np.array([one.density[first] - one.density[second] for one in outcomes if first in one.density])


def _summary(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _beyond_noise(values: Array, looks: int) -> float:
    """What a mean is surely above: two standard errors, as one of so many (Student's t for the number of draws)."""
    mean, error = _summary(values)
    return mean - float(stats.t.isf(stats.norm.sf(2.0) / looks, len(values) - 1)) * error


def _never_worse(found: Found) -> Check:
    every = {(*key, name): _gaps(own, name, CHOICE) for key, own in found.items() for name in SIMPLE}
    compared = {key: gaps for key, gaps in every.items() if len(gaps) > 1}
    worse = [
        f"{name} by {{:.3f}} ± {{:.3f}} ({kind}, m = {m})".format(*_summary(gaps))
        for (kind, m, name), gaps in compared.items()
        if _beyond_noise(gaps, len(compared)) > 0
    ]
    best = max(compared, key=lambda key: compared[key].mean())
    said = "the most that one is ahead is {:.3f} ± {:.3f}".format(*_summary(compared[best]))
    text = f"no simple rung is better than `auto` beyond noise, in {len(compared)} comparisons"
    return Check(text, not worse, "; ".join(worse) or f"{said} ({best[2]}; {best[0]}, m = {best[1]})")


def _near(found: Found) -> Check:
    """The more tasks, the less there is left to lose."""
    gaps = {key: _gaps(own, ORACLE, CHOICE) for key, own in found.items()}
    wrong = [f"{kind}, m = {m}" for (kind, m), own in gaps.items() if _beyond_noise(own, len(gaps)) > ALLOWED[m]]
    most = max(m for _, m in found)
    worst = max((key for key in gaps if key[1] == most), key=lambda key: gaps[key].mean())
    allowed = ", ".join(f"{ALLOWED[m]:g} (m = {m})" for m in sorted({m for _, m in found}))
    text = f"`auto` loses {allowed} nats per value or less against the oracle, beyond noise, for every kind"
    because = f"{{:.3f}} ± {{:.3f}} with m = {most} where it is most ({worst[0]})".format(*_summary(gaps[worst]))
    return Check(text, not wrong, because + (f"; more with {'; '.join(wrong)}" if wrong else ""))


ALLOWED = {2: 1.5, 5: 1.2, 20: 0.6, 100: 0.3, 1000: 0.03}
"""What `auto` may lose, by number of past tasks: where a kind needs a rung that takes 100 tasks, most below that."""


def _covered(found: Found) -> list[Check]:
    """Whether intervals hold, where there are past tasks enough to tell how far they must reach."""
    every = {key: np.array([one.coverage for one in own]) for key, own in found.items() if key[1] >= ENOUGH}
    if not every:
        return []
    off = {key: abs(float(own.mean()) - LEVEL) for key, own in every.items()}
    wrong = [
        key
        for key, own in every.items()
        if _beyond_noise(np.sign(own.mean() - LEVEL) * (own - LEVEL), len(every)) > NEAR
    ]
    kind, m = worst = max(off, key=lambda key: off[key])
    text = f"from {ENOUGH} past tasks on, {LEVEL:.0%} intervals are off by {NEAR} at most beyond noise, for every kind"
    return [Check(text, not wrong, f"by {off[worst]:.3f} where it is most ({kind}, m = {m})")]


def _losses(found: Found) -> Table:
    rows = []
    for (kind, m), own in found.items():
        mean, error = _summary(_gaps(own, ORACLE, CHOICE))
        oracle, coverage = (np.mean([one.density[ORACLE] for one in own]), np.array([one.coverage for one in own]))
        covered = f"{coverage.mean():.3f} ± {_summary(coverage)[1]:.3f}"
        rows.append((kind, m, len(own), f"{oracle:.3f}", f"{mean:.3f} ± {error:.3f}", covered))
    columns = ("tasks", "m", "draws", "oracle's log density", "lost by auto", f"coverage of its {LEVEL:.0%} interval")
    return Table("What `auto` loses against the oracle", columns, tuple(rows))


def _gains(found: Found) -> Table:
    rows = []
    for (kind, m), own in found.items():
        cells: list[Cell] = [kind, m]
        for name in SIMPLE:
            gaps = _gaps(own, name, CHOICE)
            cells.append("{:+.3f} ± {:.3f}".format(*_summary(-gaps)) if len(gaps) > 1 else None)
        rows.append(tuple(cells))
    return Table("What `auto` gains over the simple rungs", ("tasks", "m", *SIMPLE), tuple(rows))
