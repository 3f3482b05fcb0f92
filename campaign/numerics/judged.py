"""What the library says, held against what is exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from mpmath import mp, mpf

from campaign.numerics.ahead import Posterior, context_task, gradient
from campaign.numerics.asked import Answers, ask
from campaign.numerics.drawn import Group, Points, lone
from campaign.numerics.exact import DIGITS, Expected, Task
from metaprior import NumericalError
from metaprior.arrays import Array

SAID = 5
"""Misses that are told in words."""


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
            self.tallies.setdefault(name, Tally()).add(tally)
        self.counts.update(other.counts)
        self.said += other.said[: SAID - len(self.said)]

    @property
    def misses(self) -> int:
        return sum(tally.misses for tally in self.tallies.values())

    def compare(self, name: str, found: float, expected: Expected, told: str) -> None:
        """One answer, within its tolerance or not."""
        tolerance = expected.tolerance
        error = _relative(found, expected)
        share = error / tolerance
        tally = Tally(1, error if tolerance < 1 else 0.0, share, int(not share <= 1))
        if tally.misses:
            self.said.append(f"{name} is {found!r}, exactly {mp.nstr(expected.value, 17)}: {share:.2g} times what κ = "
                             f"{float(expected.condition):.1e} allows ({told})")  # fmt: skip
            self.said = self.said[:SAID]
        self.tallies.setdefault(name, Tally()).add(tally)

    def demand(self, name: str, holds: bool, told: str) -> None:
        """Something that is so or is not."""
        self.tallies.setdefault(name, Tally()).add(Tally(1, 0.0, 0.0, int(not holds)))
        if not holds:
            self.said = [*self.said, f"{name}: not so ({told})"][:SAID]


def _relative(found: float, expected: Expected) -> float:
    """An error relative to its scale. What is beyond float64 has to be infinite."""
    if math.isnan(found):
        return math.inf
    if math.isinf(found):
        beyond = abs(expected.value) > mpf(np.finfo(float).max)
        return 0.0 if beyond and (found > 0) == (expected.value > 0) else math.inf
    error = abs(mpf(found) - expected.value)
    return float(error / expected.scale) if expected.scale else (0.0 if not error else math.inf)


def judge(group: Group, outcome: Outcome, gradients: bool = False) -> None:
    """Ask the library, and compare every answer."""
    with mp.workdps(DIGITS):
        try:
            answers = ask(group)
        except NumericalError as error:
            _refused(group, outcome, str(error))
            return
        jittered = max(answers.told) > 0 or answers.joint_jitter > 0
        if len(group.context) > 1 and jittered:  # whose jitter it is, is known where a task is alone
            for k in range(len(group.context)):
                judge(lone(group, k), outcome)
            return
        outcome.counts["problems"] += len(group.context)
        outcome.counts["with jitter"] += int(jittered)
        outcome.demand("every way tells the same jitter", len(answers.told) == 1, f"{group.told}: {answers.told}")
        tasks = [context_task(group.model, *group.of(group.context, k), answers.jitter) for k in range(len(group.context))]
        for k, task in enumerate(tasks):
            _judge_task(group, k, task, answers, outcome)
        _judge_sums(group, tasks, answers, outcome)
        if gradients and not any(task.hopeless for task in tasks):
            _judge_gradient(group, tasks, outcome)


def _refused(group: Group, outcome: Outcome, message: str) -> None:
    """An error has to name a task, and to have a reason."""
    outcome.counts["problems"] += len(group.context)
    outcome.counts["refused"] += len(group.context)
    outcome.demand("an error names the task", "task" in message, f"{group.told}: {message}")
    worst = max(context_task(group.model, *group.of(group.context, k), 0.0).solved.condition for k in range(len(group.context)))
    outcome.demand("an error has a reason", worst > 1e8, f"{group.told}: κ = {float(worst):.1e}, {message}")


def _judge_task(group: Group, k: int, task: Task, answers: Answers, outcome: Outcome) -> None:
    told = f"{group.told}, task {k}"
    for name, rows in answers.by_task.items():
        outcome.demand(f"no NaN: {name}", not np.isnan(rows[k]).any(), told)
        if "variance" in name and "covariance" not in name:
            outcome.demand(f"not negative: {name}", bool((rows[k] >= 0).all()), told)
        if name.startswith("covariance"):
            n = math.isqrt(rows[k].size)
            outcome.demand(f"not negative: diagonal of {name}", bool((rows[k][:: n + 1] >= 0).all()), told)
        if name.startswith("complexity") and not answers.jitter:
            least = -task.p * task.solved.most_logdet() / 2
            slack = 1e-12 * (abs(least) + task.n)
            outcome.demand(f"jitter is told: {name}", bool(rows[k][0] >= least - slack), told)
    if task.hopeless:
        outcome.counts["singular"] += 1
        return
    outcome.counts["no digit promised"] += int(100 * task.solved.condition * 2.0**-53 >= 1)
    expected = _expected(group, k, task, answers.joint_jitter)
    for name, rows in answers.by_task.items():
        wanted = expected.get(name.split(" | ")[0])
        for found, one in zip(rows[k].tolist(), wanted or [], strict=wanted is not None):
            outcome.compare(name, found, one, told)


def _expected(group: Group, k: int, task: Task, joint_jitter: float) -> dict[str, list[Expected]]:
    (at, y_at), (_, y) = group.of(group.points, k), group.of(group.context, k)
    posterior = Posterior(task, at)
    of_function, n = posterior.covariance(), len(y_at)
    variance = posterior.variance()
    covariance = list(of_function)
    covariance[:: n + 1] = variance
    found = {name: [value] for name, value in task.evidence().items()} | {
        "mean": posterior.mean(),
        "variance": variance,
        "function variance": of_function[:: n + 1],
        "covariance": covariance,
    }
    joint = posterior.joint(y, y_at, joint_jitter)
    return found if joint is None else found | {"joint density": [joint]}


def _judge_sums(group: Group, tasks: Sequence[Task], answers: Answers, outcome: Outcome) -> None:
    for name, found in answers.summed.items():
        outcome.demand(f"no NaN: {name}", not math.isnan(found), group.told)
    if any(task.hopeless for task in tasks):
        return
    each = [task.evidence() for task in tasks]
    for name, found in answers.summed.items():
        outcome.compare(name, found, _summed([one[name.split(" | ")[0]] for one in each]), group.told)


def _summed(parts: Sequence[Expected]) -> Expected:
    value, scale = mp.fsum(one.value for one in parts), mp.fsum(one.scale for one in parts)
    return Expected(value, scale, max(one.condition for one in parts))


def _judge_gradient(group: Group, tasks: Sequence[Task], outcome: Outcome) -> None:
    """The gradient of the summed evidence, which asking has left in the prior."""
    each = [gradient(task) for task in tasks]
    known = dict(group.prior.named_parameters())
    names = {"scale": "kernel.raw_outputscale", "length": "kernel.base_kernel.raw_lengthscale", "noise": "noise.raw"}
    names |= {"level 0": "mean.raw_constant"}
    for what, name in names.items():
        value = known.get(name)
        if value is None or value.grad is None:
            continue
        # GPyTorch's and our parameters are softplus of raw ones, in torch's form: the identity from 20 on
        raw = mpf(float(value.detach()))
        chain = mpf(1) if what == "level 0" or raw > 20 else 1 / (1 + mp.exp(-raw))
        whole = _summed([one[what] for one in each])
        scaled = Expected(chain * whole.value, chain * whole.scale, whole.condition)
        outcome.compare(f"slope along {what.split()[0]} | summed with gradient", float(value.grad), scaled, group.told)


__all__ = ["Array", "Outcome", "Points", "Tally", "judge"]
