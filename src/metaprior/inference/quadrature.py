"""Quantiles of distributions whose cdf is known at some values, between these; and integrals over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

LAST_SCORES = (-37.0, 8.3)
"""Normal scores of the least and the greatest probability that are not 0 and 1."""

SAME = 2e-3
"""Two values whose scores and heights differ by less than this are no neighbours for a slope."""

STEP = 1e-9
"""An interval whose height rises by less than this for each unit of score is a step of the cdf."""

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


class PiecewiseLinear(NamedTuple):
    """A rising map of normal scores."""

    kinks: Float[Tensor, " j"]
    """Where it changes its slope, in order; there is next to nothing beyond the first and the last."""
    inward: Callable[[Tensor], tuple[Tensor, Tensor]]
    """Its value and its slope."""


def recalibrated_quadrature(
    values: Float[Tensor, "r k"], cdf: Float[Tensor, "r k"], recalibration: PiecewiseLinear
) -> Iterator[Quadrature]:
    """Quadrature of distributions, one in each row, whose normal scores are mapped piecewise linearly; part by part.

    `asinh` of a quantile is interpolated by a cubic of its normal score, whose slopes are those of parabolas: it is
    nearly straight, where tails are heavy too. No interval has a kink of the map inside.

    Args:
        values: of each distribution, in any order, in units of about its standard deviation.
        cdf: the probability below each of them.
        recalibration: the map; from its first kink to the last is integrated.
    """
    kinks, inward = recalibration
    heights, order = values.asinh().sort(1)
    scores, heights = with_kinks(normal_scores_between(cdf).gather(1, order), heights, kinks)
    slopes = slopes_of(scores, heights)
    right = inward(scores.clamp(float(kinks[0]), float(kinks[-1])))[0]
    steps = scores.diff(dim=1)
    # beyond the kinks nothing is integrated
    steps = torch.where((scores[:, 1:] <= kinks[-1]) & (scores[:, :-1] >= kinks[0]), steps, 0.0)
    low, high = ([each[:, place] for each in (scores, heights, slopes)] for place in (slice(-1), slice(1, None)))
    for share, weight in zip(SHARES, WEIGHTS, strict=True):
        yield Quadrature(
            cubic(share, low, high).sinh(),
            normal_measure(right[:, :-1], right.diff(dim=1), share, weight),
            normal_measure(scores[:, :-1], steps, share, weight),
        )


def normal_scores_between(cdf: Tensor) -> Tensor:
    """Normal scores of probabilities, also of 0 and 1."""
    found: Tensor = torch.special.ndtri(cdf).clamp(*LAST_SCORES)
    return found


def normal_measure(start: Tensor, step: Tensor, share: float, weight: float) -> Tensor:
    """What a standard normal variable gives to a node at a share of the way of each step."""
    found: Tensor = (start + share * step).square_().mul_(-0.5).exp_().mul_(step).mul_(weight * (2 * math.pi) ** -0.5)
    return found


def with_kinks(
    scores: Float[Tensor, "r k"], heights: Float[Tensor, "r k"], kinks: Float[Tensor, " j"]
) -> tuple[Float[Tensor, "r n"], Float[Tensor, "r n"]]:
    """Scores and heights together with interpolated heights at some further scores, in order."""
    at = kinks.expand(len(scores), -1).contiguous()
    right = torch.searchsorted(scores, at).clamp(1, scores.shape[1] - 1)
    both = (scores, heights, slopes_of(scores, heights))
    low, high = ([known.gather(1, place) for known in both] for place in (right - 1, right))
    width = high[0] - low[0]
    share = (at - low[0]) / torch.where(width > 0, width, 1.0)
    found = cubic(share.clamp(0.0, 1.0), low, high)
    scores, order = torch.cat([scores, at], 1).sort(1)
    return scores, torch.cat([heights, found], 1).gather(1, order).cummax(1).values


def slopes_of(scores: Float[Tensor, "r k"], heights: Float[Tensor, "r k"]) -> Float[Tensor, "r k"]:
    """The slope at each value of the parabola through it and its neighbours; what is nearly equal is none."""
    width, rise = scores.diff(dim=1), heights.diff(dim=1)
    same = (width < SAME) & (rise < SAME)
    if bool(same.any()):
        place = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
        first = torch.cat([place[:, :1], torch.where(same, 0, place[:, 1:])], 1).cummax(1).values
        last = torch.cat([torch.where(same, place[:, -1:], place[:, :-1]), place[:, -1:]], 1)
        last = last.flip(1).cummin(1).values.flip(1)
        low, high = (first - 1).clamp(min=0), (last + 1).clamp(max=scores.shape[1] - 1)
        before, after = scores - scores.gather(1, low), scores.gather(1, high) - scores
        fall, climb = heights - heights.gather(1, low), heights.gather(1, high) - heights
    else:
        (before, after), (fall, climb) = ((pad(each, (1, 0)), pad(each, (0, 1))) for each in (width, rise))
    left, right = fall / torch.where(before > 0, before, 1.0), climb / torch.where(after > 0, after, 1.0)
    both = before + after
    slope = (left * after + right * before) / torch.where(both > 0, both, 1.0)
    slope = torch.where((before <= ONE_SIDED * after) | (fall <= STEP * before), right, slope)
    return torch.where((after <= ONE_SIDED * before) | (climb <= STEP * after), left, slope)


def cubic(t: Tensor | float, low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
    """The height at a share t of the way between two known ones (score, height and slope); never outside them."""
    (z0, a0, s0), (z1, a1, s1) = low, high
    bend = (1 - t) * s0 - t * s1
    found: Tensor = a0 + t * t * (3 - 2 * t) * (a1 - a0) + t * (1 - t) * (z1 - z0) * bend
    return torch.minimum(torch.maximum(found, a0), a1)
