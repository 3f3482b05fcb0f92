"""Errors put into the library on purpose, each of which the same judgement has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from campaign.numerics.drawn import Group, Size, draw
from campaign.numerics.judged import Outcome, Reference, judge
from campaign.numerics.tails import judge_tails
from metaprior.inference.evidence import evidence_terms
from metaprior.inference.factor import Factor, attempt, factor
from metaprior.priors.kernels import squares_in_lengthscales

INFERENCE = "metaprior.inference"


def _slightly_off(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    fit, complexity, normaliser = evidence_terms(*given)
    return fit, complexity * (1 + 1e-9), normaliser


def _in_float32(*given: Any) -> Tensor:
    return squares_in_lengthscales(*given).float().double()


def _silent(*given: Any) -> Factor:
    L, jitter = factor(*given)
    return Factor(L, torch.zeros_like(jitter))


def _silent_attempt(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    L, jitter, failed = attempt(*given)
    return L, torch.zeros_like(jitter), failed


PLANTED: dict[str, dict[str, Any]] = {
    "the complexity 1e-9 of itself too large": {
        f"{INFERENCE}.evidence.evidence_terms": _slightly_off,
        f"{INFERENCE}.gaussian_process.evidence_terms": _slightly_off,
    },
    "distances through float32": {"metaprior.priors.kernels.squares_in_lengthscales": _in_float32},
    "½ log 2π left out": {f"{INFERENCE}.evidence.LOG_2PI": 0.0},
    "jitter that is not told": {
        f"{INFERENCE}.evidence.factor": _silent,
        f"{INFERENCE}.gaussian_process.factor": _silent,
        f"{INFERENCE}.low_rank.factor": _silent,
        f"{INFERENCE}.stack.attempt": _silent_attempt,
    },
}
"""What is wrong, and what takes the place of what."""

IN_TAILS = "the normal distribution by ½ (1 + erf)"


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The library with an error in it."""
    with ExitStack() as stack:
        for place, instead in PLANTED[name].items():
            module, _, attribute = place.rpartition(".")
            stack.enter_context(patch(f"{module}.{attribute}", instead))
        yield


def find(name: str, groups: list[Group], reference: Reference) -> Outcome:
    """What judging some problems finds, with the error planted."""
    found = Outcome()
    with planted(name):
        for group in groups:
            judge(group, reference, found)
    return found


def find_in_tails(count: int) -> Outcome:
    """The same for the distributions at single points."""
    found = Outcome()
    with patch(f"{INFERENCE}.gaussian.normal_cdf", torch.special.ndtr):
        for seed in range(count):
            judge_tails(seed, found)
    return found


def groups_to_plant_in(seed_of: Callable[[int], int], count: int, size: Size) -> list[Group]:
    """Some problems, and as many that need jitter."""
    plain, singular, k = list[Group](), list[Group](), 0
    while len(singular) < count:
        group = draw(seed_of(k), size)
        if "noise none" in group.told and ("all one" in group.told or "in pairs" in group.told):
            singular.append(group)
        elif len(plain) < count:
            plain.append(group)
        k += 1
    return plain + singular
