"""Numbers of any size at all, up to the ends of float64: an answer may be infinite, but not NaN, or it is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from campaign.numerics.asked import ask
from campaign.numerics.drawn import STATIONARY, Group, Size, draw
from campaign.numerics.judged import Outcome
from metaprior import Tasks
from metaprior.errors import MetapriorError
from metaprior.priors import FixedNoise

LARGEST = 300


def judge_limits(seed: int, outcome: Outcome) -> None:
    """A group of problems whose numbers have nothing to do with each other."""
    group = _extreme(seed)
    outcome.counts["extreme problems"] += len(group.context)
    try:
        answers = ask(group)
    except MetapriorError as error:
        outcome.counts["extreme problems refused"] += len(group.context)
        outcome.demand("an extreme problem's error says why", "task" in str(error), f"{group.told}: {error}")
        return
    for name, rows in answers.by_task.items():
        found = np.concatenate(rows)
        outcome.demand("nothing is NaN, however extreme", not np.isnan(found).any(), f"{name}: {group.told}")
        if "variance |" in name:
            own = np.concatenate([_own(name, row) for row in rows])
            outcome.demand("no variance is negative, however extreme", bool((own >= 0).all()), f"{name}: {group.told}")
    for name, value in answers.summed.items():
        if "stacked" in name:  # of a stack it is said to be NaN where it cannot be computed
            continue
        outcome.demand("nothing is NaN, however extreme", not np.isnan(value), f"{name}: {group.told}")


def _own(name: str, row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return row[:: int(np.sqrt(len(row))) + 1] if name.startswith("covariance") else row


def _extreme(seed: int) -> Group:
    rng = np.random.default_rng(seed)
    group = draw(seed, Size(5, 3, 5), STATIONARY)

    def anything(shape: tuple[int, ...]) -> torch.Tensor:
        wide = LARGEST if rng.integers(2) else 20
        return torch.from_numpy(rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-wide, wide, shape))

    def moved(tasks: Tasks) -> Tasks:
        x = anything(tuple(tasks.x.shape)) if rng.integers(2) else tasks.x
        return replace(tasks, x=x, y=anything(tuple(tasks.y.shape)) if rng.integers(2) else tasks.y)

    with torch.no_grad():
        group.prior.kernel.outputscale = anything((1,)).abs()[0]
        group.prior.kernel.base_kernel.lengthscale = anything((1,)).abs()[0]
    if rng.integers(2):
        group.prior.noise = FixedNoise(float(anything((1,)).abs()))
    return replace(group, context=moved(group.context), points=moved(group.points), told=f"extreme seed {seed}")
