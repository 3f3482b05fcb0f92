"""Learned priors: how far off are their 90% intervals with few and with many tasks, before and after recalibration?

The truth is known: tasks are drawn from a prior. `auto` learns from some of them, with all its rungs or with one alone;
what it has learned is asked as it is, and as it puts itself right by held-out tasks.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from campaign.calibration.kinds import WIDTH, fitted
from campaign.calibration.own import Array, drawn
from campaign.parts import Cell, Check, Effort, Section, Table
from metaprior import Tasks
from metaprior.inference import Method
from metaprior.seeds import child_seed
from metaprior.selection import Auto
from metaprior.splits import RandomSizes

LEVEL = 0.9

MANY = {5: 60, 20: 60, 100: 30, 1000: 20}
"""Past tasks to learn from, and draws of them in the full campaign."""

REACHED = 2000
"""Of the full campaign, numbers of tasks up to this times the share are tried; the least in any case."""

RUNGS = {"all": (), "shared gp": ("shared gp",), "fpca": ("fpca",), "learned both": ("learned both",)}
"""What `auto` may choose from."""

KNOWN = (1, 3, 8)
"""Random points of a task that are known, in turn."""

POINTS, NEW = 15, 300
"""Points of each task, and new tasks that are asked about."""


class Covered(NamedTuple):
    """The share of new values inside the 90% interval, before and after."""

    before: float
    after: float


class Draw(NamedTuple):
    """One draw of so many past tasks."""

    rungs: str
    tasks: int
    number: int


def coverage(effort: Effort) -> Section:
    """Coverage by rungs and numbers of tasks."""
    sizes = [m for m in MANY if m <= max(REACHED * effort.share, min(MANY))]
    draws = [Draw(name, m, k) for m in reversed(sizes) for name in RUNGS for k in range(effort.of(MANY[m], 2))]
    found: dict[tuple[str, int], list[Covered]] = {}
    for k, covered in effort.each(partial(_one, draws, effort.seed), len(draws), "coverage"):
        found.setdefault((draws[k].rungs, draws[k].tasks), []).append(covered)
    keys = [(name, m) for name in RUNGS for m in sizes]
    rows = tuple(_row(*key, np.array(found[key])) for key in keys)
    columns = ("auto's rungs", "past tasks", "draws", "before", "after", "off, before", "off, after")
    title = f"Coverage of the {LEVEL:.0%} interval of learned priors, before and after recalibration"
    checks = [_check(m, np.array([one for name in RUNGS for one in found[name, m]])) for m in sizes if m >= 100]
    return Section("", "", checks, [Table(title, columns, rows)], [NOTE], {"priors learned": len(draws)})


NOTE = (
    f"Learned priors: tasks of {POINTS} points from a prior with deep mean and kernel; {', '.join(map(str, KNOWN))} "
    f"random points are known of each of {NEW} new tasks; ± is the standard error over draws of the past tasks; *off* "
    f"is the mean of |coverage − {LEVEL}| over draws."
)

NEAR = 0.02
"""How far off intervals may be on average, where there are a hundred past tasks or more."""


def _check(m: int, found: Array) -> Check:
    off = np.abs(found - LEVEL).mean(0)
    text = f"learned from {m:,} tasks, {LEVEL:.0%} intervals are off by {NEAR} at most after recalibration"
    return Check(text, bool(off[1] <= NEAR), f"by {off[1]:.3f} on average ({off[0]:.3f} before), {len(found)} priors")


def _row(name: str, m: int, found: Array) -> tuple[Cell, ...]:
    error = found.std(0, ddof=1) / math.sqrt(len(found))
    shown = [f"{mean:.3f} ± {one:.3f}" for mean, one in zip(found.mean(0), error, strict=True)]
    return (name, m, len(found), *shown, *(f"{off:.3f}" for off in np.abs(found - LEVEL).mean(0)))


def _one(draws: list[Draw], seed: int, number: int) -> Covered:
    rungs, m, k = draws[number]
    truth, own = fitted("learned both", 1, 1, seed), child_seed(seed, 3, m, k)  # the same tasks for all rungs
    rng = np.random.default_rng(own)
    contexts = RandomSizes(KNOWN, own % 2**31)
    auto = Auto(contexts=contexts, rungs=RUNGS[rungs], seed=own % 2**31, progress=False).fit(_tasks(truth, m, rng))
    new = _tasks(truth, NEW, rng)
    return Covered(*(float(np.mean([_inside(method, new, contexts)])) for method in (auto.method_, auto)))


def _tasks(truth: Method, count: int, rng: np.random.Generator) -> Tasks:
    x = rng.uniform(0, WIDTH, (count, POINTS, 1))
    return Tasks.from_pairs(list(zip(x, drawn(truth, x, rng), strict=True)))


def _inside(method: Method, tasks: Tasks, contexts: RandomSizes) -> list[float]:
    """The share inside, by number of known points."""
    found = []
    for context, target in contexts(tasks).values():
        cdf = method.condition(context).at(target).cdf(target.y)
        found.append(float((2 * (cdf - 0.5).abs() <= LEVEL).double().mean()))
    return found
