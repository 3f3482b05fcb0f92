"""What the library says of a group of problems, by each of the ways that it has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from campaign.numerics.drawn import Group
from metaprior import NumericalError, condition, evidence
from metaprior.arrays import Array
from metaprior.inference import Evidence, StackedTasks, StudentPosterior, stacked_evidence, summed_evidence
from metaprior.priors import stacked
from metaprior.tasks import batches

TERMS = ("data fit", "complexity", "normaliser", "evidence")


@dataclass
class Answers:
    """Numbers by what they are and by which way, "mean | at()", one row for each task; and the jitter that was told."""

    by_task: dict[str, list[Array]] = field(default_factory=dict)
    summed: dict[str, float] = field(default_factory=dict)
    slopes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of the summed evidence along each parameter that is one number: where it is, and the slope."""
    refused_slope: str = ""
    """The error in place of these slopes."""
    jitter: dict[str, float] = field(default_factory=dict)
    """Of contexts, as each way tells it."""
    joint_jitter: float = 0.0
    told_in_all: float = 0.0
    """What the posterior tells in the end, of both."""

    @property
    def most_jitter(self) -> float:
        return max(*self.jitter.values(), self.joint_jitter)


def ask(group: Group) -> Answers:
    """By every way."""
    found = Answers()
    _evidence(group, found)
    _posterior(group, found)
    _stacked(group, found)
    return found


def _evidence(group: Group, found: Answers) -> None:
    with torch.no_grad():
        plain = evidence(group.prior, group.context)
        laid_out = batches(group.context, group.prior.like)
        total = summed_evidence(group.prior, laid_out, group.context.ids)
    _keep(found, plain, "evidence()")
    group.prior.zero_grad()
    traced = evidence(group.prior, group.context)
    _keep(found, traced, "evidence() with gradient")
    traced_sum = summed_evidence(group.prior, laid_out, group.context.ids)
    for name, value in {"summed": total, "summed with gradient": traced_sum}.items():
        found.summed |= {f"{term} | {name}": float(part) for term, part in zip(TERMS, _terms(value), strict=True)}
        found.jitter[name] = value.jitter
    if traced_sum.total.requires_grad:
        try:
            traced_sum.total.backward()  # type: ignore[no-untyped-call]
        except NumericalError as error:
            found.refused_slope = str(error)
            return
        for name, own in group.prior.named_parameters():
            if own.grad is not None and own.numel() == 1:
                found.slopes[name] = float(own.detach()), float(own.grad)


def _terms(value: Evidence) -> list[Tensor]:
    return [part.detach() for part in (*value.terms, value.total)]


def _keep(found: Answers, value: Evidence, way: str) -> None:
    for term, part in zip(TERMS, _terms(value), strict=True):
        found.by_task[f"{term} | {way}"] = [np.array([float(one)]) for one in part]
    found.jitter[way] = value.jitter


def _posterior(group: Group, found: Answers) -> None:
    conditional = condition(group.prior, group.context)
    _keep(found, conditional.evidence, "condition()")
    posterior = conditional.at(group.points)
    found.jitter["at()"] = posterior.jitter
    sizes = group.points.sizes.tolist()
    mean, variance = posterior.mean, posterior.sd.square()
    bare = posterior.function.sd.square()
    rows = {"mean | at()": mean, "variance | at()": variance[:, 0], "function variance | at()": bare[:, 0]}
    for name, values in rows.items():
        found.by_task[name] = [part.flatten().numpy() for part in values.split(sizes)]
    covariances = posterior.covariances()
    found.by_task["covariance | at()"] = [C[0].flatten().numpy() for C in covariances]
    joint = posterior.joint_log_density(group.points.y)
    found.by_task["joint density | at()"] = [np.array([float(one)]) for one in joint]
    needed = posterior.gaussian.needed if isinstance(posterior, StudentPosterior) else posterior.needed
    found.joint_jitter = max(needed, default=0.0)
    found.told_in_all = posterior.jitter


def _stacked(group: Group, found: Answers) -> None:
    stack = stacked([group.prior])
    if stack is None:
        return
    for whole, sloped in ((False, False), (False, True), (True, True)):
        if group.model.degrees is not None and not whole:
            continue
        laid_out = StackedTasks.of([group.context], whole=whole)
        said = stacked_evidence(stack, stack.start, laid_out, sloped=sloped)
        way = f"stacked{', each' if whole else ''}{' with slopes' if sloped else ''}"
        found.summed[f"evidence | {way}"] = float(said.total[0])
        found.jitter[way] = float(said.jitter[0])
