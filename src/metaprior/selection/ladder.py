"""The ladder that `auto` climbs: priors from simple to rich, each ready to learn from some tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaprior.baselines import FPCA, GPPerTask
from metaprior.methods import HyperPosterior, LearnedPrior, Mixture, Warped
from metaprior.splits import spare
from metaprior.tasks import Tasks

Rung = Callable[[Tasks, int], Any]
"""A method that is about to learn from these tasks, with this seed."""

MANY = 400
"""From so many tasks on, patients of few points are the rule: each counts the same, however often it was measured."""


def _prior(mean: str, kernel: str, **options: Any) -> Rung:
    def make(tasks: Tasks, seed: int) -> LearnedPrior:
        many = len(tasks) >= MANY
        chosen: dict[str, Any] = {"max_epochs": 200, "check_every": 5, "patience": 8 if many else 4}
        chosen |= {"weighting": "point" if many else "task"} | options
        return LearnedPrior(mean, kernel, held_out=spare(len(tasks)), seed=seed, progress=False, **chosen)

    return make


def _fpca(tasks: Tasks, seed: int) -> FPCA:
    return FPCA(held_out=0.1 if len(tasks) >= MANY else None, seed=seed)


_DEEP = {"gain": 1.0, "features": 4}
"""Smooth starts, and enough features for a task's level, slow drift and quick changes."""

LADDER: dict[str, Rung] = {
    "gp per task": lambda tasks, seed: GPPerTask(),
    "shared gp": _prior("constant", "matern"),
    "mean and last value": _prior("deep", "exponential", hidden=(32,), gain=1.0),
    "fpca": _fpca,
    "warped fpca": lambda tasks, seed: Warped(_fpca(tasks, seed), seed=seed),
    "mixture": lambda tasks, seed: Mixture(seed=seed),
    "warped mixture": lambda tasks, seed: Warped(Mixture(seed=seed), seed=seed),
    "hyper-posterior": lambda tasks, seed: HyperPosterior(seed=seed),
    "learned both": _prior("deep", "deep", **_DEEP),
    "student": _prior("deep", "deep", degrees=5.0, **_DEEP),
    "warped": lambda tasks, seed: Warped(_prior("deep", "deep", **_DEEP)(tasks, seed), seed=seed),
    "warped student": lambda tasks, seed: Warped(_prior("deep", "deep", degrees=5.0, **_DEEP)(tasks, seed), seed=seed),
    "eigenfunctions": _prior("deep", "eigenfunctions + deep", functions=16),
}
"""By name, the simplest first."""

TAKES_TASK_X = (
    "mean and last value", "hyper-posterior", "learned both", "student", "warped", "warped student", "eigenfunctions",
)  # fmt: skip
"""What has a mean or kernel that can use what is known of a task as a whole; the others model curves alone."""

ALONE = ", curves alone"
"""After the name of one of those, where it is to leave that aside."""

FEW, FOR_MANY = 100, ("mixture", "warped mixture", "learned both", "student", "warped")
"""With fewer tasks than this, kinds cannot be told apart, and deep priors come in their most general forms only."""

VERY_FEW, FOR_FEW = 50, ("hyper-posterior",)
"""With so many tasks or more, one prior is known well enough."""


def rungs_for(tasks: Tasks) -> list[str]:
    """The rungs worth trying on so many tasks."""
    few, very_few = len(tasks) < FEW, len(tasks) < VERY_FEW
    return [name for name in LADDER if not (few and name in FOR_MANY) and (very_few or name not in FOR_FEW)]
