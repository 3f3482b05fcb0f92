"""Are the probabilities right? Simulation-based calibration of every kind of prior that can be drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from campaign.calibration.asking import AHEAD, DRAWS, KNOWN, asked_of, uniforms
from campaign.calibration.band import LEVELS, OUTSIDE, Counts, Judged
from campaign.calibration.kinds import KINDS, SHAPES, fitted
from campaign.calibration.learned import coverage
from campaign.calibration.planted import ERRORS
from campaign.calibration.planted import SHAPE as PLANTED_SHAPE
from campaign.calibration.predictive import PREDICTIVES, asked_of_predictive, predicting
from campaign.parts import Check, Effort, Section, Table
from metaprior.seeds import child_seed

TASKS, PREDICTED, PLANTED = 100_000, 100_000, 100_000
"""Of each kind of prior, of each kind of predictive, and for each planted error."""

LEAST, FEW, BLOCK = 200, 1_000, 5_000
"""Tasks of each at any effort, those that are not divided, and those that are asked about together at most."""

CLOSE = 5e-3
"""What the cdf and the integrated density may differ by: the rule that integrates is not exact."""

Found = dict[str, Counts]


class Block(NamedTuple):
    """Some tasks of one kind, with d inputs and p outputs."""

    name: str
    shape: tuple[int, int]
    number: int
    tasks: int

    @property
    def on_grid(self) -> bool:
        """Every fourth block has all its tasks at the same points."""
        return self.number % 4 == 3


def run(effort: Effort) -> Section:
    """Kinds of priors, predictives, planted errors, and learned priors."""
    found, gaps = _of_all(effort)
    looks = sum(map(len, found.values()))
    judged = {name: {what: one.judged(looks) for what, one in parts.items()} for name, parts in found.items()}
    planted = {name: counts.judged(looks) for name, counts in _planted(effort).items()}
    learned = coverage(effort)
    checks = [_inside(judged, looks), _agree(gaps), *(_seen(*pair) for pair in planted.items()), *learned.checks]
    tables = [_kinds(judged), _errors(planted), *learned.tables]
    counts = {"tasks drawn": sum(next(iter(parts.values())).total for parts in found.values()), **learned.counts}
    return Section(TITLE, HOW, checks, tables, [NO_FORM, *learned.notes], counts)


TITLE = "Are the probabilities right?"

HOW = (
    f"Tasks are drawn from a prior and conditioned on in part ({KNOWN[0]} to {KNOWN[1]} points), with one and two "
    "inputs and outputs, a quarter of them at common points. Where the other "
    f"{AHEAD[0]} to {AHEAD[1]} points then lie under the posterior must be uniform between 0 and 1: one further value, "
    "by the cdf; a random projection of all other values together, by means and covariances; the same by its rank "
    f"among {DRAWS} joint draws; and the further value once more, by the integral of the density. The draws are made "
    "by NumPy from the fitted parameters (`campaign/calibration/own.py`), not by the library's own code. Of "
    "combinations and recalibrated posteriors, which are of no one prior, the targets are drawn from the predictive "
    f"itself. The band: shares below {len(LEVELS)} levels, each against the exact limits of the binomial distribution "
    f"at a probability of {OUTSIDE:.0%} divided by the number of all limits, so that where everything is right, all "
    f"kinds together are inside with {1 - OUTSIDE:.0%} or more."
)

NO_FORM = (
    "A projection has no known form where targets are warped, combined, recalibrated or limited: there its rank among "
    "joint draws is looked at alone. Whole numbers have no density; their probabilities are compared with the cdf's "
    "steps."
)


def _blocks(names: Mapping[str, int]) -> list[Block]:
    """The work, divided. names: how many tasks of each."""
    found = []
    for name, total in names.items():
        each = math.ceil(total / len(SHAPES))
        parts = 4 * math.ceil(each / (4 * BLOCK)) if each > FEW else 1
        found += [Block(name, shape, number, math.ceil(each / parts)) for shape in SHAPES for number in range(parts)]
    return found


def _of_all(effort: Effort) -> tuple[dict[str, Found], dict[str, float]]:
    """Counts of each statistic of each kind, and how far cdf and density were apart."""
    names = dict.fromkeys(KINDS, effort.of(TASKS, LEAST)) | dict.fromkeys(PREDICTIVES, effort.of(PREDICTED, LEAST))
    blocks, total, gaps = _blocks(names), dict[str, Found](), dict[str, float]()
    for k, (found, gap) in effort.each(partial(_one, blocks, effort.seed), len(blocks), "calibration"):
        name = blocks[k].name
        gaps[name] = max(gap, gaps.get(name, 0.0))
        _add(total.setdefault(name, {}), found)
    return {name: total[name] for name in names}, gaps


def _one(blocks: list[Block], seed: int, number: int) -> tuple[Found, float]:
    name, shape, _, count = block = blocks[number]
    own = child_seed(seed, 1, number)
    if name in KINDS:
        method = fitted(name, *shape, seed)
        asked = asked_of(method, shape, count, own, on_grid=block.on_grid)
    else:
        method, prior = predicting(name, *shape, seed)  # type: ignore[assignment]
        asked = asked_of_predictive(method, prior, shape, count, own, on_grid=block.on_grid)
    found = uniforms(method, asked, own)
    gap = float(found.pop("gap").max())
    return {what: Counts.of(values) for what, values in found.items()}, gap


def _planted(effort: Effort) -> dict[str, Counts]:
    """For each error, what finds it. Errors of one kind of prior are planted in the same tasks, each by itself."""
    blocks = []
    for kind in dict.fromkeys(error.kind for error in ERRORS.values()):
        count = effort.of(PLANTED, max(error.needed for error in ERRORS.values() if error.kind == kind))
        parts = math.ceil(count / BLOCK)
        blocks += [Block(kind, PLANTED_SHAPE, number, math.ceil(count / parts)) for number in range(parts)]
    total: Found = {}
    for _, found in effort.each(partial(_one_planted, blocks, effort.seed), len(blocks), "planted errors"):
        _add(total, found)
    return {name: total[name] for name in ERRORS}


def _one_planted(blocks: list[Block], seed: int, number: int) -> Found:
    kind, shape, _, count = blocks[number]
    method, own = fitted(kind, *shape, seed), child_seed(seed, 2, number)
    asked = asked_of(method, shape, count, own, on_grid=False)
    errors = {name: error for name, error in ERRORS.items() if error.kind == kind}
    return {
        name: Counts.of(uniforms(method, asked, own, error.plant, [error.found_by])[error.found_by])
        for name, error in errors.items()
    }


def _add(total: Found, found: Found) -> None:
    for what, counts in found.items():
        total[what] = total[what] + counts if what in total else counts


def _inside(judged: dict[str, dict[str, Judged]], looks: int) -> Check:
    every = {f"{name}, {what}": one for name, parts in judged.items() for what, one in parts.items()}
    outside, worst = (
        [name for name, one in every.items() if not one.inside],
        max(every, key=lambda one: every[one].used),
    )
    text = f"all {looks} statistics of {len(judged)} kinds are inside the common {1 - OUTSIDE:.0%} band"
    because = f"the most that any uses of the room up to the limit is {every[worst].used:.0%} ({worst})"
    return Check(text, not outside, because + (f"; outside: {', '.join(outside)}" if outside else ""))


def _agree(gaps: dict[str, float]) -> Check:
    name = max(gaps, key=lambda one: gaps[one])
    text = f"the cdf is the integral of the density, within {CLOSE:g}, for every task"
    return Check(text, gaps[name] <= CLOSE, f"the largest difference is {gaps[name]:.1g} ({name})")


def _seen(name: str, judged: Judged) -> Check:
    limits = f"{judged.limits[0]:.2%} to {judged.limits[1]:.2%}"
    because = (
        f"{judged.share:.2%} of {judged.total:,} lie below the level {judged.level:.0%}, where {limits} are allowed"
    )
    return Check(f"planted error found: {name}", not judged.inside, because)


def _kinds(judged: dict[str, dict[str, Judged]]) -> Table:
    """How much of the room between what is expected and the band each statistic uses."""
    names = ("value", "projection", "rank", "density")
    rows = []
    for name, parts in judged.items():
        used = [f"{parts[what].used:.0%}" if what in parts else None for what in names]
        rows.append((name, next(iter(parts.values())).total, *used))
    columns = ("kind", "tasks", "a further value", "a projection of the rest", "its rank among draws", "by the density")
    return Table("How much of the room up to the band is used (above 100% is outside)", columns, tuple(rows))


def _errors(planted: dict[str, Judged]) -> Table:
    """What found each. The room that is used grows with the square root of the number of tasks."""
    rows = []
    for name, one in planted.items():
        place, needed = f"{one.limits[0]:.4f} to {one.limits[1]:.4f}", math.ceil(one.total / one.used**2)
        cells = (ERRORS[name].kind, ERRORS[name].found_by, one.total, one.level, f"{one.share:.4f}", place)
        rows.append((name, *cells, f"{one.used:.0%}", f"{needed:,}"))
    place_of = ("level", "share below", "the band there")
    columns = ("planted error", "in", "found by", "tasks", *place_of, "room used", "tasks that would do, about")
    return Table("Planted errors", columns, tuple(rows))
