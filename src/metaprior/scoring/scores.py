"""How good predictions are: per task first, then over tasks with standard errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.devices import within_memory
from metaprior.errors import DataError, DeviceMemoryError, UnknownNameError
from metaprior.inference import Method, Posterior, posterior_of
from metaprior.tasks import Tasks

SLICE = 400_000_000
"""Covariance entries, over all their points, of the tasks that are predicted at a time: 3 GB in float64 at most."""

LEVELS = tuple(range(10, 100, 10))
"""The central intervals, in per cent, whose coverage is measured."""


NO_ATOM = 1e-12
"""A value that has less probability than this has none of its own."""


class Metric(NamedTuple):
    """What is measured of predictions, and how it is told."""

    title: str
    cost: Callable[[float], float] | None = None  # the lower, the better; None where there is no best
    of: Callable[[Posterior, Tasks, Tensor | None], Tensor | None] | None = None  # of each task; None: made elsewhere
    small: bool = False  # its order of magnitude matters, down to exactly 0


class Summary(NamedTuple):
    """A mean over tasks with its standard error (None where it has none)."""

    mean: float
    stderr: float | None
    tasks: int


@dataclass(frozen=True, eq=False)
class Scores:
    """Each metric's value for each task that has points to predict. clusters: of the tasks, where they have some."""

    ids: tuple[Hashable, ...]
    values: dict[str, Float[Tensor, " m"]]
    clusters: Int[Tensor, " m"] | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """What can be summarised: the metrics per task, with the shares of all levels drawn into one number."""
        pit = {f"pit_{level}" for level in LEVELS}
        hidden = pit | {f"coverage_{level}" for level in LEVELS if level != 90}
        shown = tuple(name for name in self.values if name not in hidden)
        return (*shown, "calibration_error") if pit <= set(self.values) else shown

    def summary(self, metric: str) -> Summary:
        """Mean over tasks and standard error.

        `calibration_error` is the mean over the levels of |share − level|, with the share of each central interval in
        the probability integral transform (see `pit_share`) averaged over tasks: it is a property of all tasks together
        and has no standard error. For continuous targets the shares are coverages.
        """
        if metric not in self.metrics:
            raise UnknownNameError("metric", metric, self.metrics)
        if metric == "calibration_error":
            gaps = [abs(float(self.values[f"pit_{level}"].mean()) - level / 100) for level in LEVELS]
            return Summary(sum(gaps) / len(gaps), None, len(self.ids))
        return summarise(self.values[metric], self.clusters)

    def __repr__(self) -> str:
        lines = [f"Scores of {len(self.ids)} tasks"]
        for metric in self.metrics:
            mean, stderr, _ = self.summary(metric)
            lines.append(f"  {metric:<22} {mean:z9.4f}" + ("" if stderr is None else f" ± {stderr:.4f}"))
        return "\n".join(lines)


def score(posterior: Posterior, target: Tasks, steps: Float[Tensor, " p"] | None = None) -> Scores:
    """All metrics of a posterior at the target's points (`METRICS`), averaged over each task's points.

    With steps, the log likelihood is of each value as it was recorded (see `Posterior.log_recorded_density`). The
    evidence is the context's, where the method has one. coverage_10 to coverage_90 are the shares of values within the
    bounds of nine central intervals, pit_10 to pit_90 what the calibration error is made of.
    """
    if len(target.x) == 0:
        raise DataError("no point is left to score: the contexts hold them all.")
    if posterior.points.ids != target.ids or not torch.equal(posterior.points.offsets, target.offsets):
        raise DataError("the posterior is at other points than the target's: score the tasks that were predicted.")
    keep = target.sizes > 0
    found = {name: metric.of(posterior, target, steps) for name, metric in METRICS.items() if metric.of is not None}
    values = {name: value.cpu() for name, value in found.items() if value is not None}
    pit = posterior.pit_interval(target.y)
    for name, of in (("coverage", covers), ("pit", pit_share)):
        values |= {f"{name}_{level}": _per_task(of(*pit, level), target) for level in LEVELS}
    ids = tuple(name for name, kept in zip(target.ids, keep.tolist(), strict=True) if kept)
    return Scores(ids, values, None if target.clusters is None else target.clusters[keep])


def evaluate(method: Method, context: Tasks, target: Tasks, steps: Float[Tensor, " p"] | None = None) -> Scores:
    """All metrics of a fitted method on these tasks, predicted a slice at a time: memory does not grow with them."""
    largest = int((context.sizes + target.sizes).max()) if len(context) else 1
    count = max(SLICE // max(largest, 1) ** 2, 1)
    parts, slices = [], list(torch.arange(len(context)).split(count))
    while slices:
        which = slices.pop(0)
        given, wanted = context.select(which), target.select(which)
        if len(wanted.x) == 0:
            continue
        try:
            with within_memory(f"scoring {len(wanted):,} tasks", "Score fewer at a time, or use device='cpu'."):
                parts.append(score(posterior_of(method, given, wanted), wanted, steps))
        except DeviceMemoryError:
            if len(which) < 2:
                raise
            slices[:0] = which.tensor_split(2)
    if not parts:
        raise DataError("no point is left to score: the contexts hold them all.")
    return joined_scores(parts, tuple(parts[0].values))


def joined_scores(parts: Sequence[Scores], metrics: Sequence[str]) -> Scores:
    """Scores of several sets of tasks as those of all of them."""
    ids, groups = tuple(name for part in parts for name in part.ids), [part.clusters for part in parts]
    clusters = None if groups[0] is None else torch.cat(groups)  # type: ignore[arg-type]
    return Scores(ids, {key: torch.cat([part.values[key] for part in parts]) for key in metrics}, clusters)


def covers(below: Float[Tensor, "*n"], upto: Float[Tensor, "*n"], level: float) -> Float[Tensor, "*n"]:
    """1 for a value within the bounds of its central interval, which are included; 0 for others.

    A whole number, or an end of the support, has a probability of its own. It is the lower bound from where the
    probability up to it is `(1 − level) / 2`, and the upper one as long as that of less than it is below the other.

    Args:
        below: the probability of less than each value.
        upto: the probability of each value or less.
        level: of the interval, in per cent.
    """
    return ((upto >= (1 - level / 100) / 2) & (below <= (1 + level / 100) / 2)).double()


def pit_share(below: Float[Tensor, "*n"], upto: Float[Tensor, "*n"], level: float) -> Float[Tensor, "*n"]:
    """The share of a central interval in the probability integral transform of each value.

    The transform of a value with a probability of its own is spread evenly over it (Czado, Gneiting and Held 2009): for
    a forecast that is right, the mean share is the level, where the bounds of whole numbers cover more.

    Args:
        below: the probability of less than each value.
        upto: the probability of each value or less.
        level: of the interval, in per cent.
    """
    low, high, width = (1 - level / 100) / 2, (1 + level / 100) / 2, upto - below
    inside = upto.clamp(max=high) - below.clamp(min=low)
    return torch.where(width > NO_ATOM, (inside / width).clamp(0.0, 1.0), covers(below, upto, level))


def summarise(values: Float[Tensor, " m"], clusters: Int[Tensor, " m"] | None = None) -> Summary:
    """Mean and standard error over tasks. clusters: what tasks of one say is not independent, so they count once."""
    count = len(values)
    if clusters is None:
        stderr = float(values.std()) / math.sqrt(count) if count > 1 else None
        return Summary(float(values.mean()), stderr, count)
    groups, place = clusters.unique(return_inverse=True)
    sums = torch.zeros(len(groups), dtype=torch.float64).index_add_(0, place, (values - values.mean()).double())
    spread = len(groups) / max(len(groups) - 1, 1) * float(sums.square().sum())
    return Summary(float(values.mean()), math.sqrt(spread) / count if len(groups) > 1 else None, count)


def paired_difference(
    first: Float[Tensor, " m"], second: Float[Tensor, " m"], clusters: Int[Tensor, " m"] | None = None
) -> Summary:
    """Mean and standard error of the difference between two methods on the same tasks."""
    if first.shape != second.shape:
        raise DataError(f"{len(first)} and {len(second)} tasks cannot be paired; score the same tasks.")
    return summarise(first - second, clusters)


def _per_task(values: Float[Tensor, "N p"], target: Tasks) -> Float[Tensor, " m"]:
    keep = target.sizes > 0
    return target.summed(values.mean(1).cpu())[keep] / target.sizes[keep]


def _joint(posterior: Posterior, target: Tasks, steps: Tensor | None) -> Tensor:
    keep = target.sizes > 0
    return posterior.joint_log_density(target.y).cpu()[keep] / (target.sizes[keep] * target.p)


def _evidence(posterior: Posterior, target: Tasks, steps: Tensor | None) -> Tensor | None:
    return None if posterior.evidence is None else posterior.evidence.total.detach().cpu()[target.sizes > 0]


METRICS: dict[str, Metric] = {
    "mse": Metric(
        "Mean squared error (lower is better)",
        operator.pos,
        lambda posterior, target, steps: _per_task((posterior.mean.cpu() - target.y).square(), target),
    ),
    "joint_log_likelihood": Metric(
        "Joint log likelihood of a task's test points, per point (higher is better)", operator.neg, _joint
    ),
    "log_likelihood": Metric(
        "Log likelihood of each test point (higher is better)",
        operator.neg,
        lambda posterior, target, steps: _per_task(posterior.log_recorded_density(target.y, steps), target),
    ),
    "evidence": Metric("Evidence of the context (higher is better)", operator.neg, _evidence),
    "crps": Metric(
        "Continuous ranked probability score, in the target's units (lower is better)",
        operator.pos,
        lambda posterior, target, steps: _per_task(posterior.crps(target.y), target),
    ),
    # 0.89 and 0.91 are equally good, whatever their last bits
    "coverage_90": Metric("Coverage of the 90% interval (0.9 is best)", lambda share: round(abs(share - 0.9), 9)),
    "calibration_error": Metric("Calibration error (lower is better)", operator.pos),
}
"""By name, in the order of the tables."""
