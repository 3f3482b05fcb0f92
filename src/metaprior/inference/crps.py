"""The continuous ranked probability score of distributions that are known by their cdf."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from metaprior.inference.normal import normal_cdf
from metaprior.inference.quadrature import (
    SHARES,
    WEIGHTS,
    PiecewiseLinear,
    cubic,
    normal_measure,
    normal_scores_between,
    slopes_of,
    with_kinks,
)

QUARTILE = 0.6744897501960817
"""Normal score of the upper quartile."""

BESIDE = 2.0**-45
"""Relative distance of a value beside a step: what is left of it when units were changed."""

VALUES_AT_ONCE = 200_000
"""Values that are integrated together: what is made of them stays in the cache …"""

ON_GPU = 250
"""… which a GPU does not need: there so many times as many."""


def integrated_crps(
    cdf: Callable[[Float[Tensor, "k N p"]], Float[Tensor, "k N p"]],
    y: Float[Tensor, "N p"],
    edges: Float[Tensor, "k N p"],
    recalibration: PiecewiseLinear | None = None,
) -> Float[Tensor, "N p"]:
    """`∫ (F(t) − 1[t ≥ y])² dt`, which is `2 ∫ (1[t ≥ y] − F(t)) (t − y) dF(t)`, over interpolated quantiles.

    Args:
        cdf: F, at several values of each distribution.
        y: the value of each.
        edges: values of each, in any order, between which F is smooth, and beyond which there is next to nothing. A
            value that is there more than once may have a probability of its own.
        recalibration: what the normal scores of F are mapped by.
    """
    t = torch.cat([edges, y[None]]).sort(0).values
    again = t[1:] == t[:-1]  # the first and the last of equal values move to either side of a step
    first, last = (pad(again, (0, 0, 0, 0, *where)) for where in ((0, 1), (1, 0)))
    t = t + (last.to(t) - first.to(t)) * (BESIDE * t.abs() + torch.finfo(t.dtype).tiny)
    at_once = VALUES_AT_ONCE * (ON_GPU if t.is_cuda else 1)
    F = torch.cat([cdf(some) for some in t.split(max(at_once // max(y.numel(), 1), 1))])
    rows = max(at_once // len(t), 1)
    parts = zip(*(each.flatten(1).mT.split(rows) for each in (t, F, y[None])), strict=True)
    return torch.cat([_scores(values, below, own, recalibration) for values, below, own in parts]).view_as(y)


def _scores(
    t: Float[Tensor, "r k"], F: Float[Tensor, "r k"], y: Float[Tensor, "r 1"], recalibration: PiecewiseLinear | None
) -> Float[Tensor, " r"]:
    """The score in each row, from rising values and the probabilities below them."""
    z = normal_scores_between(F).cummax(1).values
    places = torch.tensor([-QUARTILE, 0.0, QUARTILE], dtype=z.dtype, device=z.device).expand(len(z), -1).contiguous()
    low, middle, high = t.gather(1, torch.searchsorted(z, places).clamp(max=z.shape[1] - 1)).split(1, 1)
    unit = torch.where(high > low, (high - low) / 2, 1.0)
    heights, place = ((t - middle) / unit).asinh(), ((y - middle) / unit).asinh()
    if recalibration is None:
        right = z
    else:
        z, heights = with_kinks(z, heights, recalibration.kinks)
        right = recalibration.inward(z)[0]
    known = (z, heights, slopes_of(z, heights))
    start, end = ([each[:, at] for each in known] for at in (slice(-1), slice(1, None)))
    above, step = start[1] >= place, right.diff(dim=1)
    low, high = (normal_cdf(torch.where(above, -each, each)) for each in (right[:, :-1], right[:, 1:]))
    total, moment = torch.zeros(2, *step.shape, dtype=t.dtype, device=t.device)
    for share, weight in zip(SHARES, WEIGHTS, strict=True):
        score, value = right[:, :-1] + share * step, middle + unit * cubic(share, start, end).sinh()
        own = normal_measure(right[:, :-1], step, share, weight) * normal_cdf(torch.where(above, -score, score))
        total, moment = total + own, moment + own * (value - y)
    # all weights of an interval are known, also over a step
    found: Tensor = (low - high) * (low + high) * moment / torch.where(total > 0, total, 1.0)
    return found.sum(1)
