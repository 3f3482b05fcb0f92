"""What the library says, held against what is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from mpmath import mp, mpf

from campaign.numerics import otherwise
from campaign.numerics.ahead import wanted_slopes
from campaign.numerics.asked import Answers, ask
from campaign.numerics.drawn import Group, lone
from campaign.numerics.exact import DIGITS
from campaign.numerics.wanted import Values, Wanted, summed
from metaprior import NumericalError
from metaprior.arrays import Array

SAID = 5
"""Misses that are told in words."""

SMALLEST = 4 * float(np.finfo(float).smallest_subnormal)
"""What every number may be off by: below 1e-308 float64 has fewer digits."""

ALONE = 6
"""Of a group with jitter, so many tasks are asked one by one."""

WELL, SMALL = 1e8, 1e-290
"""Condition number up to which nothing may be refused, and the variance from which on."""

OVERFLOWS = 300.0
"""Decades from which on sums of a few numbers may be beyond float64."""

Reference = Callable[[Group, int, float, float], Wanted]
"""What is known of a task, given the jitter that was told: of its context, and of its joint density."""


@dataclass
class Tally:
    """Of one kind of answer: how many, the worst error relative to its scale and to what is allowed, and misses."""

    count: int = 0
    error: float = 0.0
    share: float = 0.0
    misses: int = 0

    def add(self, other: Tally) -> None:
        self.count, self.misses = self.count + other.count, self.misses + other.misses
        self.error, self.share = max(self.error, other.error), max(self.share, other.share)


@dataclass
class Outcome:
    """Of many problems. counts: of what happened; said: the first misses in words."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        for name, tally in other.tallies.items():
            self._count(name, tally)
        self.counts.update(other.counts)
        self.said = (self.said + other.said)[:SAID]

    @property
    def misses(self) -> int:
        return sum(tally.misses for tally in self.tallies.values())

    def _count(self, name: str, tally: Tally) -> None:
        self.tallies.setdefault(name, Tally()).add(tally)

    def compare(self, name: str, found: Float[Array, " k"], values: Values, told: str) -> None:
        """Answers, each within its tolerance or not."""
        if values.tolerance >= 1:
            return
        errors = relative_errors(found, values)
        shares = errors / values.tolerance
        missed = ~(shares <= 1)
        self._count(name, Tally(len(errors), float(errors.max()), float(shares.max()), int(missed.sum())))
        if missed.any() and len(self.said) < SAID:
            k = int(np.argmax(missed))
            self.said.append(
                f"{name} is {float(found[k])!r}, exactly {mp.nstr(mpf(values.value[k]), 17)}: {shares[k]:.2g} times "
                f"what κ = {values.condition:.1e} allows ({told})"
            )

    def demand(self, name: str, holds: bool, told: str) -> None:
        """Something that is so or is not."""
        self._count(name, Tally(1, 0.0, 0.0, int(not holds)))
        if not holds:
            self.said = [*self.said, f"{name}: not so ({told})"][:SAID]


def relative_errors(found: Float[Array, " k"], values: Values) -> Float[Array, " k"]:
    """Errors relative to their scales. What is beyond float64 has to be infinite."""
    errors = np.full(len(found), math.inf)
    for k, (one, value, scale) in enumerate(zip(found.tolist(), values.value, values.scale, strict=True)):
        if math.isfinite(one):
            error = max(abs(value - one) - SMALLEST, 0)
            errors[k] = float(error / scale) if scale else (0.0 if error == 0 else math.inf)
        elif math.isinf(one) and abs(value) > np.finfo(float).max and (one > 0) == (value > 0):
            errors[k] = 0.0
    return errors


def judge(group: Group, reference: Reference, outcome: Outcome, slopes: bool = False) -> None:
    """Ask the library, and compare every answer."""
    count = len(group.context)
    try:
        answers = ask(group)
    except NumericalError as error:
        _refused(group, reference, outcome, str(error))
        return
    jittered = answers.most_jitter > 0
    if count > 1 and jittered:  # whose jitter it is, is known where a task is alone
        for k in range(min(count, ALONE)):
            judge(lone(group, k), reference, outcome)
        return
    outcome.counts.update({"problems": count, "with jitter": int(jittered)})
    both = max(answers.jitter["at()"], answers.joint_jitter)
    outcome.demand(
        "a posterior tells all of its jitter", answers.told_in_all == both, f"{group.told}: {answers.jitter}"
    )
    with mp.workdps(DIGITS):
        for jitter in sorted(set(answers.jitter.values())):  # at the edge, one way may need it and another not
            each = [reference(group, k, jitter, answers.joint_jitter) for k in range(count)]
            for k, wanted in enumerate(each):
                _judge_task(f"{group.told}, task {k}", k, jitter, wanted, answers, outcome)
            _judge_sums(group, jitter, each, answers, outcome)
        if answers.refused_slope:
            _judge_refused_slope(group, answers.refused_slope, outcome)
        elif slopes and not jittered:
            _judge_slopes(group, answers, outcome)


def _refused(group: Group, reference: Reference, outcome: Outcome, message: str) -> None:
    """An error has to name a task, and to have a reason."""
    outcome.counts.update({"problems": len(group.context), "refused": len(group.context)})
    outcome.demand("an error names the task", "task" in message, f"{group.told}: {message}")
    worst = max(reference(group, k, 0.0, 0.0).condition for k in range(len(group.context)))
    small = group.model.scale + group.model.noise < SMALL  # the inverse of such a matrix may overflow
    outcome.demand("an error has a reason", small or worst > WELL, f"{group.told}: κ = {worst:.1e}, {message}")


def _judge_task(told: str, k: int, jitter: float, wanted: Wanted, answers: Answers, outcome: Outcome) -> None:
    """The answers of all ways that told this jitter."""
    for name, rows in answers.by_task.items():
        found, (what, _, way) = rows[k], name.partition(" | ")
        if answers.jitter[way] != jitter:
            continue
        outcome.demand("nothing is NaN", not np.isnan(found).any(), f"{name}: {told}")
        if what == "complexity" and not jitter:
            slack = 1e-12 * (abs(wanted.least_complexity) + len(found))
            outcome.demand("jitter is told", bool(found[0] >= wanted.least_complexity - slack), f"{name}: {told}")
        if "variance" in name:
            own = found[:: math.isqrt(len(found)) + 1] if name.startswith("covariance") else found
            outcome.demand("no variance is negative", bool((own >= 0).all()), f"{name}: {told}")
        values = wanted.values.get(what)
        if values is not None:
            outcome.compare(name, found, values, told)
    outcome.counts["singular"] += int(not wanted.values)
    outcome.counts["no digit promised"] += int(bool(wanted.values) and 100 * wanted.condition * 2.0**-53 >= 1)


def _judge_sums(group: Group, jitter: float, each: Sequence[Wanted], answers: Answers, outcome: Outcome) -> None:
    for name, found in answers.summed.items():
        what, _, way = name.partition(" | ")
        if answers.jitter[way] != jitter:
            continue
        outcome.demand("nothing is NaN", not math.isnan(found), f"{name}: {group.told}")
        if all(one.values for one in each):
            values = summed([one.values[what] for one in each])
            outcome.compare(name, np.array([found]), values, group.told)


def _judge_refused_slope(group: Group, message: str, outcome: Outcome) -> None:
    """Something on the way to a slope has to be beyond float64: an entry of `A⁻¹`, `ααᵀ` or `A⁻¹SA⁻¹`."""
    outcome.counts["slopes refused"] += 1
    outcome.demand("an error names the task", "task" in message, f"{group.told}: {message}")
    most = max(otherwise.slope_decades(group, k) for k in range(len(group.context)))
    outcome.demand("an error has a reason", most > OVERFLOWS, f"{group.told}: 1e{most:.0f}, {message}")


def _judge_slopes(group: Group, answers: Answers, outcome: Outcome) -> None:
    """The gradient of the summed evidence."""
    names = {"scale": "kernel.raw_outputscale", "length": "kernel.base_kernel.raw_lengthscale", "noise": "noise.raw"}
    names |= {"level 0": "mean.raw_constant"}
    for what, values in wanted_slopes(group).items():
        if (name := names.get(what)) not in answers.slopes:
            continue
        raw, found = answers.slopes[name]
        # parameters are softplus of raw ones, in torch's form: the identity from 20 on
        chain = mpf(1) if what == "level 0" or raw > 20 else 1 / (1 + mp.exp(-mpf(raw)))
        scaled = Values(chain * values.value, chain * values.scale, values.condition)
        outcome.compare(f"slope along {what.split()[0]} | summed with gradient", np.array([found]), scaled, group.told)
