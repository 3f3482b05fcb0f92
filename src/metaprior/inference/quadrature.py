"""Expectations under a recalibrated distribution whose cdf is known at some values, from quantiles between these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LAST_SCORES = (-37.0, 8.3)
"""Normal scores of the least and the greatest probability that are not 0 and 1."""

ONE_SIDED = 1e-3
"""Where one of two neighbouring intervals is narrower than the other by this factor, the wider one has the slope."""

SHARES, WEIGHTS = (0.5 - 0.15**0.5, 0.5, 0.5 + 0.15**0.5), (5 / 18, 8 / 18, 5 / 18)
"""Gauss and Legendre's rule of three nodes between 0 and 1."""


class Quadrature(NamedTuple):
    """Values at which expectations are sums, with their weights."""

    values: Float[Tensor, "r j"]
    weights: Float[Tensor, "r j"]
    plain_weights: Float[Tensor, "r j"]
    """Those of the distribution before it was recalibrated."""


def recalibrated_quadrature(
    values: Float[Tensor, "r k"],
    cdf: Float[Tensor, "r k"],
    kinks: Float[Tensor, " j"],
    inward: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Iterator[Quadrature]:
    """Quadrature of distributions, one in each row, whose normal scores are mapped piecewise linearly; part by part.

    `asinh` of a quantile is interpolated by a cubic of its normal score, whose slopes are those of parabolas: it is
    nearly straight, where tails are heavy too. No interval has a kink of the map inside.

    Args:
        values: of each distribution, in any order, in units of about its standard deviation.
        cdf: the probability below each of them.
        kinks: rising normal scores at which the map changes its slope; from the first to the last is integrated.
        inward: the map, with its slope.
    """
    heights, order = values.asinh().sort(1)
    scores = torch.special.ndtri(cdf).clamp(*LAST_SCORES).gather(1, order)
    at_kinks = kinks.expand(len(values), -1).contiguous()
    known = _interpolated(scores, heights, at_kinks)
    scores, order = torch.cat([scores, at_kinks], 1).sort(1)
    heights = torch.cat([heights, known], 1).gather(1, order).cummax(1).values
    slopes = _slopes(scores, heights)
    right = inward(scores.clamp(float(kinks[0]), float(kinks[-1])))[0]
    steps = scores.diff(dim=1)
    # beyond the kinks nothing is integrated
    steps = torch.where((scores[:, 1:] <= kinks[-1]) & (scores[:, :-1] >= kinks[0]), steps, 0.0)
    low, high = ([each[:, place] for each in (scores, heights, slopes)] for place in (slice(-1), slice(1, None)))
    for share, weight in zip(SHARES, WEIGHTS, strict=True):
        yield Quadrature(
            _cubic(share, low, high).sinh(),
            _normal_measure(right[:, :-1], right.diff(dim=1), share, weight),
            _normal_measure(scores[:, :-1], steps, share, weight),
        )


def _normal_measure(start: Tensor, step: Tensor, share: float, weight: float) -> Tensor:
    """What a standard normal variable gives to a node at a share of the way of each step."""
    found: Tensor = (start + share * step).square_().mul_(-0.5).exp_().mul_(step).mul_(weight * (2 * math.pi) ** -0.5)
    return found


def _interpolated(scores: Float[Tensor, "r k"], heights: Float[Tensor, "r k"], at: Float[Tensor, "r j"]) -> Tensor:
    """Heights at these scores."""
    right = torch.searchsorted(scores, at).clamp(1, scores.shape[1] - 1)
    both = (scores, heights, _slopes(scores, heights))
    low, high = ([known.gather(1, place) for known in both] for place in (right - 1, right))
    width = high[0] - low[0]
    share = (at - low[0]) / torch.where(width > 0, width, 1.0)
    return _cubic(share.clamp(0.0, 1.0), low, high)


def _slopes(scores: Float[Tensor, "r k"], heights: Float[Tensor, "r k"]) -> Float[Tensor, "r k"]:
    """The slope at each value of the parabola through it and its neighbours."""
    width = scores.diff(dim=1)
    slope = heights.diff(dim=1) / torch.where(width > 0, width, 1.0)
    before, after = width[:, :-1], width[:, 1:]
    both = before + after
    inside = (slope[:, :-1] * after + slope[:, 1:] * before) / torch.where(both > 0, both, 1.0)
    inside = torch.where(before < ONE_SIDED * after, slope[:, 1:], inside)
    inside = torch.where(after < ONE_SIDED * before, slope[:, :-1], inside)
    return torch.cat([slope[:, :1], inside, slope[:, -1:]], 1)


def _cubic(t: Tensor | float, low: list[Tensor], high: list[Tensor]) -> Tensor:
    """The height at a share t of the way between two known ones; never outside them."""
    (z0, a0, s0), (z1, a1, s1) = low, high
    bend = (1 - t) * s0 - t * s1
    found: Tensor = a0 + t * t * (3 - 2 * t) * (a1 - a0) + t * (1 - t) * (z1 - z0) * bend
    return torch.minimum(torch.maximum(found, a0), a1)
