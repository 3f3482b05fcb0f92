"""The continuous ranked probability score of distributions that are known by their cdf."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

EVENLY, AGAIN, TIMES = 24, 32, 2
"""Values at which a cdf is asked: so many at equal distances, then, so many times, where it rises by equal steps."""

ENDS = 4.5
"""Normal score beyond which there is nothing to score."""


def integrated_crps(
    cdf: Callable[[Float[Tensor, "N p"]], Float[Tensor, "N p"]],
    y: Float[Tensor, "N p"],
    lower: Float[Tensor, "N p"],
    upper: Float[Tensor, "N p"],
) -> Float[Tensor, "N p"]:
    """`∫ (F(t) − 1[t ≥ y])² dt`, with F straight between values that it is asked at. lower, upper: all lies between.

    Where F rises steeply it is asked again, more closely: a narrow component hides between two values at first.
    """
    low, high = torch.minimum(lower, y), torch.maximum(upper, y)
    shares = torch.linspace(0.0, 1.0, EVENLY, dtype=y.dtype).tolist()
    t = torch.stack([*(low + share * (high - low) for share in shares), y])
    F = torch.stack([cdf(each) for each in t])
    levels = (torch.arange(AGAIN, dtype=y.dtype, device=y.device) + 0.5) / AGAIN
    for _ in range(TIMES):
        t, F = _in_order(t, F)
        more = _where(levels, t, F)
        t, F = torch.cat([t, more]), torch.cat([F, torch.stack([cdf(each) for each in more])])
    t, F = _in_order(t, F)
    above = torch.where(t[:-1] >= y, 1.0, 0.0)  # of the pieces between: y is one of their ends
    a, b = F[:-1] - above, F[1:] - above
    return (t.diff(dim=0) * (a.square() + a * b + b.square())).sum(0) / 3


def _in_order(t: Float[Tensor, "k N p"], F: Float[Tensor, "k N p"]) -> tuple[Tensor, Tensor]:
    """Values from the least on, and a cdf that does not fall."""
    ordered, order = t.sort(0)
    return ordered, F.gather(0, order).cummax(0).values


def _where(levels: Float[Tensor, " j"], t: Float[Tensor, "k N p"], F: Float[Tensor, "k N p"]) -> Float[Tensor, "j N p"]:
    """The values at which F, straight between those that are known, has these levels."""
    rising = F.movedim(0, -1).contiguous()
    wanted = levels.expand(*rising.shape[:-1], -1).contiguous()
    right = torch.searchsorted(rising, wanted).clamp(1, len(F) - 1).movedim(-1, 0)
    t0, t1, F0, F1 = t.gather(0, right - 1), t.gather(0, right), F.gather(0, right - 1), F.gather(0, right)
    share = (levels[:, None, None] - F0) / torch.where(F1 > F0, F1 - F0, 1.0)
    return t0 + share.clamp(0.0, 1.0) * (t1 - t0)
