"""Ensemble weights by stacking: from what candidates predicted of held-out values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.arrays import product
from metaprior.scoring import Summary, summarise
from metaprior.selection.trying import Seen, Values

STEPS = tuple(k / 20 for k in range(21))
"""From the weights of the highest density to those of the least error."""

DRAWS, ROUGHLY = 25, 100
"""Draws of the tasks that weights are averaged over, and steps of EM that are enough for each."""

CLOSE = 1e-6
"""What weights may still move by at the end of EM."""

LEAST_WEIGHT = 0.03
"""A method of less weight in a combination is left out of it."""

MAX_DEFICIT = 1.0
"""Standard errors by which the log density of an ensemble may lie below that of the best alternative."""

ERROR_TOLERANCE = 0.02
"""Relative excess over the least squared error from which weights are moved towards those of the least error."""


def stacking_weights(
    log_density: Float[Tensor, "N k"], weight: Float[Tensor, "*b N"], steps: int = 1000
) -> Float[Tensor, "*b k"]:
    """The weights of a mixture of fixed densities under which held-out values are most probable, by EM.

    Where the values have been weighed in several ways, for each of these.
    """
    likely = (log_density - log_density.amax(1, keepdim=True)).exp().numpy()
    counts = (weight / weight.sum(-1, keepdim=True)).reshape(-1, len(likely)).numpy()
    share = np.full((len(counts), likely.shape[1]), 1 / likely.shape[1])
    for _ in range(steps):
        new = share * product(counts / product(share, likely.T), likely)
        if np.abs(new - share).max() < CLOSE:
            break
        share = new
    return torch.from_numpy(new).reshape(*weight.shape[:-1], -1)


def drawn_weights(log_density: Float[Tensor, "N k"], values: Values, seed: int) -> Float[Tensor, " k"]:
    """The mean of such weights over draws of the tasks (Rubin's Bayesian bootstrap, 1981).

    The weights of one set of tasks are those of a few methods that happened to do well on them. A method that other
    tasks of the same kind would have spoken for gets its share here; the fewer the tasks, the more of them do.
    """
    tasks, place = values.task.unique(return_inverse=True)
    shares = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(len(tasks)), DRAWS))
    return stacking_weights(log_density, values.weight * shares[:, place], ROUGHLY).mean(0)


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


def combined_weights(seen: Mapping[str, Seen], values: Values, seed: int) -> Float[Tensor, " k"]:
    """Ensemble weights with the highest log density of held-out values; squared error breaks ties.

    The weights start from those of the highest density. As long as their log density stays within one standard error of
    the best, they move towards the weights of the least squared error, until the error is within a standard error of
    the least, or within `ERROR_TOLERANCE` of it. Weights below `LEAST_WEIGHT` become 0. The best single candidate is
    taken instead of an ensemble whose log density is lower by more than one standard error, or lower at all with no
    less of an error.

    Args:
        seen: the held-out predictions of each candidate.
        values: the held-out values.
        seed: of the draws of tasks that the weights are averaged over.
    """
    density = densities(seen)
    alone = _best_alone(density, values)
    by_density, by_error = drawn_weights(density, values, seed), error_weights(seen, values)
    best = max((alone, by_density), key=lambda weights: float(_density_per_task(weights, density, values).mean()))
    means = _means(seen)
    least = values.per_task((means @ by_error - values.y).square())
    weights = by_density
    for step in STEPS:
        moved = (1 - step) * by_density + step * by_error
        if step > 0 and _is_less_probable(moved, best, density, values):
            break
        weights = moved
        more = summarise(values.per_task((means @ weights - values.y).square()) - least)
        if more.mean <= max(more.stderr or 0.0, ERROR_TOLERANCE * float(least.mean())):
            break
    weights = _pruned(weights)
    more = summarise(values.per_task((means @ weights - values.y).square() - (means @ alone - values.y).square()))
    lower = _lost_density(weights, alone, density, values).mean > 0
    worse = lower and more.mean >= 0
    return alone if worse or _is_less_probable(weights, alone, density, values) else weights


def _best_alone(density: Float[Tensor, "N k"], values: Values) -> Float[Tensor, " k"]:
    """All weight on the candidate of the highest log density."""
    alone = torch.zeros(density.shape[1], dtype=torch.float64)
    alone[torch.stack([values.per_task(column).mean() for column in density.unbind(1)]).argmax()] = 1.0
    return alone


def _density_per_task(
    weights: Float[Tensor, " k"], density: Float[Tensor, "N k"], values: Values
) -> Float[Tensor, " m"]:
    """Log density of an ensemble with these weights, for each task."""
    return values.per_task((density + weights.log()).logsumexp(1))


def _is_less_probable(
    weights: Float[Tensor, " k"], other: Float[Tensor, " k"], density: Float[Tensor, "N k"], values: Values
) -> bool:
    """Whether the log density under the weights is below that under others by more than `MAX_DEFICIT`."""
    lost = _lost_density(weights, other, density, values)
    return lost.stderr is not None and lost.mean > MAX_DEFICIT * lost.stderr


def _lost_density(
    weights: Float[Tensor, " k"], other: Float[Tensor, " k"], density: Float[Tensor, "N k"], values: Values
) -> Summary:
    """Log density per task under other weights, less that under these."""
    return summarise(_density_per_task(other, density, values) - _density_per_task(weights, density, values))


def _pruned(weights: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    kept = torch.where(weights >= LEAST_WEIGHT, weights, 0.0)
    return kept / kept.sum()


def error_weights(seen: Mapping[str, Seen], values: Values) -> Float[Tensor, " k"]:
    """The weights of the least squared error of held-out values."""
    return least_squares_weights(_means(seen), values.y, values.weight)


def _means(seen: Mapping[str, Seen]) -> Float[Tensor, "N k"]:
    return torch.stack([found.mean for found in seen.values()], 1)


def densities(seen: Mapping[str, Seen]) -> Float[Tensor, "N k"]:
    """The log density of each value under each method."""
    return torch.stack([found.density for found in seen.values()], 1)
