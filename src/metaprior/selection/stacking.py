"""Weights for a combination of methods, from what they said of held-out values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.scoring import summarise
from metaprior.seeds import generator_of
from metaprior.selection.trying import Seen, Values

STEPS = tuple(k / 20 for k in range(21))
"""From the weights of the highest density to those of the least error."""

LEAST_WEIGHT = 0.03
"""A method of less weight in a combination is left out of it."""

TOLERATED = 0.02
"""Of the least squared error: how much more a combination may have in any case."""


def stacking_weights(log_density: Float[Tensor, "N k"], weight: Float[Tensor, " N"]) -> Float[Tensor, " k"]:
    """The weights of a mixture of fixed densities under which held-out values are most probable, by EM."""
    likely = (log_density - log_density.amax(1, keepdim=True)).exp().numpy()
    share, weights = np.full(likely.shape[1], 1 / likely.shape[1]), (weight / weight.sum()).numpy()
    for _ in range(1000):
        new = share * (likely.T @ (weights / (likely @ share)))
        if np.abs(new - share).max() < 1e-6:
            break
        share = new
    return torch.from_numpy(new)


def least_squares_weights(
    means: Float[Tensor, "N k"], y: Float[Tensor, " N"], weight: Float[Tensor, " N"]
) -> Float[Tensor, " k"]:
    """The weights, none negative and 1 together, of the combined mean with the least squared error."""
    residuals = (weight / weight.sum()).sqrt()[:, None] * (means - y[:, None])
    small = torch.linalg.qr(residuals / residuals.abs().max().clamp(min=1e-300), mode="r")[1]
    # of all multiples v of w, `|Rv|² + (1ᵀv − 1)²` is least at `|Rw|² / (1 + |Rw|²)`: it ranks w as its error does
    rows = torch.cat([small, torch.ones_like(small[:1])])
    found = _without_negatives(rows.mT @ rows, rows[-1])
    return found / found.sum()


def _without_negatives(A: Float[Tensor, "k k"], b: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """The least `wᵀAw − 2bᵀw` with no weight below 0, by Lawson and Hanson's active sets.

    SciPy has it too (`tests/test_auto.py` compares), in a module that takes a third of a second to import.
    """
    w, free = torch.zeros_like(b), torch.zeros_like(b, dtype=torch.bool)
    for _ in range(3 * len(b)):
        slope = torch.where(free, -torch.inf, b - A @ w)
        if float(slope.max()) <= 1e-10 * float(b.abs().max()):
            break
        free[slope.argmax()] = True
        while True:
            aim = torch.zeros_like(w)
            aim[free] = torch.linalg.lstsq(A[free][:, free], b[free], driver="gelsd").solution
            low = free & (aim <= 0)
            if not bool(low.any()):
                break
            w = w + (aim - w) * float((w[low] / (w[low] - aim[low])).min())
            free &= w > 1e-14
            w = torch.where(free, w, 0.0)
        w = aim
    return w


def combined_weights(seen: Mapping[str, Seen], values: Values) -> Float[Tensor, " k"]:
    """Weights under which held-out values are most probable, moved towards those of the least squared error.

    A combination is asked for its mean too. So they move until its error is within two standard errors of the least,
    or so little above it that nobody would mind; where a few tasks decide the error, it says little, and they stay.
    A method of little weight has none in the end: what is judged is what would be kept.
    """
    by_density = stacking_weights(_matrix(seen, values), values.weight)
    means = torch.stack([found.mean for found in seen.values()], 1)
    by_error = least_squares_weights(means, values.y, values.weight)
    least = values.per_task((means @ by_error - values.y).square())
    for step in STEPS:
        weights = (1 - step) * by_density + step * by_error
        more = summarise(values.per_task((means @ weights - values.y).square()) - least)
        if more.mean <= max(2 * (more.stderr or 0.0), TOLERATED * float(least.mean())):
            return _pruned(weights)
    return _pruned(by_error)


def _pruned(weights: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    kept = torch.where(weights >= LEAST_WEIGHT, weights, 0.0)
    return kept / kept.sum()


def cross_fitted(seen: Mapping[str, Seen], values: Values, seed: int) -> Float[Tensor, " m"] | None:
    """What a combination would have scored on tasks that its weights were not learned from; None with one method."""
    tasks = values.task.unique()
    if len(seen) < 2 or len(tasks) < 2:
        return None
    first = tasks[torch.randperm(len(tasks), generator=generator_of(seed + 1))[: len(tasks) // 2]]
    in_first, found = torch.isin(values.task, first), torch.empty_like(values.y)
    for learn in (in_first, ~in_first):
        some = {name: one.some(learn) for name, one in seen.items()}
        shares = combined_weights(some, values.some(learn))
        found[~learn] = torch.logsumexp(_matrix(seen, values)[~learn] + shares.log(), 1)
    return values.per_task(found)


def _matrix(seen: Mapping[str, Seen], values: Values) -> Float[Tensor, "N k"]:
    return torch.stack([values.density(found) for found in seen.values()], 1)
