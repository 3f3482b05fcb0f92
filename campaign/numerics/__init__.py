"""Numbers: random problems against mpmath and against float64 by another route, and errors planted to be found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from campaign.numerics import ahead, otherwise
from campaign.numerics.drawn import STATIONARY, Size, draw
from campaign.numerics.judged import Outcome, Tally, judge
from campaign.numerics.limits import judge_limits
from campaign.numerics.planted import IN_TAILS, PLANTED, find, find_in_tails, groups_to_plant_in
from campaign.numerics.tails import judge_tails
from campaign.numerics.units import judge_units
from campaign.parts import Check, Effort, Section, Table

SMALL, LARGER = Size(6, 3, 5), Size(40, 10, 40)
AT_ONCE = 10
"""Groups of problems that a process takes at a time."""

HOW = """\
A problem is a context and points to predict at, under a prior of random structure: every named kernel and mean, low
rank, Student-t, one to twenty inputs, one or two outputs; units of x and y from 1e-150 to 1e150; inputs anywhere, on a
grid, repeated, 1e-15 apart, at 1e9 ± 1, or in two heaps far apart; noise from 0 up; targets that are noise, a curve,
constant, 0, or 1e9 ± 1. Each is asked by every way that the library has: evidence with and without gradient, summed
over tasks that share inputs or do not, conditioned on, stacked. The tolerance is max(1e-12, 100 κ 2⁻⁵³), κ being the
condition number of K + σ²I (for a joint density, of context and points together), computed in mpmath with 60 digits.
What networks and bases say of a point is taken as they say it, and parameters as float64 has them.

An error is relative to what enters, so that cancellation is judged fairly: the data fit to itself (and to `|α|` times
the parts that the mean is summed from, where it is linear), the complexity to `½ p Σ (|log λ| + 1)` over the
eigenvalues, the evidence to the sum of its terms' sizes, a mean to the prior's mean and the lesser of `|k*| |α|` and
`|A⁻¹k*| |y − m|`, a variance or covariance to the prior's deviations, a slope to `½ (|α|² + |A⁻¹|) |dA|`, a joint
density to both evidences that it is the difference of. Where jitter was told, the exact answer is that of the matrix
with it; where none was told, log|A| may not be above that of A + 100 · 2⁻⁵³ |A|, as it would be with jitter. Where κ is
above 1e14 no digit is promised, but NaN and negative variances are misses there too. An error instead of an answer has
to name the task, and κ has to be above 1e8; instead of a slope, an entry of `A⁻¹`, `ααᵀ` or of the scatter's part has
to be near the end of float64. The other route in float64 takes eigenvalues and -vectors in NumPy.
Distributions at single points are compared with mpmath by their own mean and deviation, at probabilities from 1e-300
to 1 − 2⁻⁵³. Not asked here: GPyTorch's own kernels, float32, and what runs on a GPU alone."""


def run(effort: Effort) -> Section:
    """The section of the report."""
    exact = _all(effort, partial(_problems, effort, 0), 360, "problems against mpmath")
    other = _all(effort, partial(_problems, effort, 1), 600, "problems against another route")
    tails = _all(effort, partial(_some, effort, 2, judge_tails), 150, "distributions")
    units = _all(effort, partial(_some, effort, 3, judge_units), 40, "models in extreme units")
    limits = _all(effort, partial(_some, effort, 4, judge_limits), 300, "extreme problems")
    found = _planted(effort)
    outcomes = {"mpmath": exact, "float64": other, "distributions": tails, "MetaGP": units, "extremes": limits}
    said = [f"Against {name}: {one}." for name, outcome in outcomes.items() for one in outcome.said]
    tables = [_table(f"Against {name}", outcome) for name, outcome in list(outcomes.items())[:4]]
    counts: dict[str, float] = {
        "problems against mpmath": exact.counts["problems"],
        "against float64 by another route": other.counts["problems"],
        "distributions": tails.counts["distributions"],
        "models in extreme units": units.counts["models"],
        "extreme problems": limits.counts["extreme problems"],
    }
    checks, notes = [*_checks(outcomes), _found(found)], [*_notes(outcomes), *said]
    return Section("Numbers", HOW, checks, [*tables, _planted_table(found)], notes, counts)


def _all(effort: Effort, work: Callable[[int], Outcome], count: int, what: str) -> Outcome:
    found = Outcome()
    for _, part in sorted(effort.each(work, effort.of(count), what), key=lambda pair: pair[0]):
        found.add(part)
    return found


def _problems(effort: Effort, which: int, k: int) -> Outcome:
    """Some groups of problems: small ones against mpmath (0), larger ones against another route (1)."""
    found = Outcome()
    size, reference = ((SMALL, ahead.wanted), (LARGER, otherwise.wanted))[which]
    for place in range(AT_ONCE):
        sloped = which == 0 and place % 3 == 0  # gradients have formulas of their own for these
        kernels = {"kernels": STATIONARY} if sloped else {}
        judge(draw(effort.seed_of(which, k, place), size, **kernels), reference, found, sloped)
    return found


def _some(effort: Effort, which: int, judge_one: Callable[[int, Outcome], None], k: int) -> Outcome:
    found = Outcome()
    for place in range(AT_ONCE):
        judge_one(effort.seed_of(which, k, place), found)
    return found


def _planted(effort: Effort) -> dict[str, tuple[Outcome, Outcome | None]]:
    """By what was planted: what is found against mpmath, and by the other route."""
    count = effort.of(20, 5)
    groups = groups_to_plant_in(lambda k: effort.seed_of(5, k), count, SMALL)
    found: dict[str, tuple[Outcome, Outcome | None]] = {
        name: (find(name, groups, ahead.wanted), find(name, groups, otherwise.wanted)) for name in PLANTED
    }
    return found | {IN_TAILS: (find_in_tails(count), None)}


def _checks(outcomes: dict[str, Outcome]) -> list[Check]:
    def misses(kind: str, *names: str) -> Check:
        some = [outcomes[name].tallies.get(kind, Tally()) for name in names]
        count, missed = sum(one.count for one in some), sum(one.misses for one in some)
        looked = count > 0 or "error" in kind  # where nothing was refused, there is no error to look at
        return Check(kind, missed == 0 and looked, f"{missed} misses in {count:,} looks")

    within = []
    for name, outcome in outcomes.items():
        compared = [tally for kind, tally in outcome.tallies.items() if " | " in kind]
        if compared:
            worst, missed = max(tally.share for tally in compared), sum(tally.misses for tally in compared)
            count = sum(tally.count for tally in compared)
            because = f"{missed} misses in {count:,} numbers; the worst error is {worst:.2g} of what is allowed"
            within.append(Check(f"within tolerance: {name}", missed == 0, because))
    both, extremes = ("mpmath", "float64"), ("extremes",)
    return [
        *within,
        misses("nothing is NaN", *both),
        misses("no variance is negative", *both),
        misses("jitter is told", *both),
        misses("a posterior tells all of its jitter", *both),
        _refusals(outcomes),
        misses("nothing is NaN, however extreme", *extremes),
        misses("no variance is negative, however extreme", *extremes),
        misses("an extreme problem's error says why", *extremes),
    ]


def _refusals(outcomes: dict[str, Outcome]) -> Check:
    some = [outcomes[name] for name in ("mpmath", "float64")]
    names = ("an error names the task", "an error has a reason")
    missed = sum(one.tallies[name].misses for one in some for name in names if name in one.tallies)
    refused, slopes = (sum(one.counts[name] for one in some) for name in ("refused", "slopes refused"))
    because = f"{refused} problems and the slopes of {slopes} groups of them refused, {missed} without"
    return Check("an error names the task and has a reason", missed == 0, because)


def _found(found: dict[str, tuple[Outcome, Outcome | None]]) -> Check:
    missed = [name for name, some in found.items() if not all(one.misses for one in some if one is not None)]
    because = "each of them, by each reference" if not missed else f"not found: {'; '.join(missed)}"
    return Check(f"{len(found)} planted errors are found", not missed, because)


def _table(title: str, outcome: Outcome) -> Table:
    rows = []
    for kind, tally in sorted(outcome.tallies.items()):
        if " | " in kind:
            what, _, way = kind.partition(" | ")
            rows.append((what, way, tally.count, tally.share, tally.misses))
    return Table(title, ("what", "by", "numbers", "worst error, of what is allowed", "misses"), tuple(rows))


def _planted_table(found: dict[str, tuple[Outcome, Outcome | None]]) -> Table:
    rows = [(name, one.misses, None if two is None else two.misses) for name, (one, two) in found.items()]
    return Table("Planted errors", ("planted", "misses against mpmath", "by the other route"), tuple(rows))


def _notes(outcomes: dict[str, Outcome]) -> list[str]:
    found = []
    for name in ("mpmath", "float64"):
        counts = outcomes[name].counts
        found.append(
            f"Against {name}: {counts['with jitter']:,} problems needed jitter, {counts['singular']:,} had a singular "
            f"matrix that was factored without, {counts['no digit promised']:,} one with κ above 1e14, "
            f"{counts['refused']:,} were refused."
        )
    refused = outcomes["extremes"].counts["extreme problems refused"]
    return [*found, f"Of the extreme problems {refused:,} were refused."]
