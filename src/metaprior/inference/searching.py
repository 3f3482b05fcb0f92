"""Where a rising function has given values, for many of them at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

STEPS = 100
"""At most: halving alone would need 60 for the last digit."""

CLOSE = 1e-10
"""Of two normal scores: as near as makes no difference."""

LEAST, MOST = 1e-300, 1 - 2**-53
"""Probabilities beyond these have no normal score."""


def rising_root(
    cdf: Callable[[Tensor], Tensor], u: Float[Tensor, "*n"], lower: Float[Tensor, "*n"], upper: Float[Tensor, "*n"]
) -> Float[Tensor, "*n"]:
    """x with `cdf(x) = u`, between values that it lies between, by Chandrupatla's method (1997).

    Normal scores are compared, not probabilities: between them a cdf is nearly straight, so that inverse quadratic
    interpolation needs a few steps, and halving is there for the rest.
    """

    def gap(x: Tensor) -> Tensor:
        found: Tensor = torch.special.ndtri(cdf(x).clamp(LEAST, MOST)) - wanted
        return found

    wanted = torch.special.ndtri(u.clamp(LEAST, MOST))
    a, b = lower.clone(), upper.clone()
    fa, fb = gap(a), gap(b)
    share = (fa / (fa - fb)).nan_to_num(0.5, 0.5, 0.5).clamp(0.02, 0.98)  # as if it were straight: it nearly is
    best = torch.where(fa.abs() < fb.abs(), a, b)
    for _ in range(STEPS):
        x = a + share * (b - a)
        fx = gap(x)
        same = fx.sign() == fa.sign()  # the newest is a, the other end of the bracket b, what went before c
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        best = torch.where(fa.abs() < fb.abs(), a, b)
        width = (b - a).abs()
        least = 4 * torch.finfo(a.dtype).eps * best.abs() + torch.finfo(a.dtype).tiny
        if bool(((width <= least) | (fa.abs() <= CLOSE)).all()):
            break
        share = _next(a, b, c, fa, fb, fc).clamp(min=0.0, max=1.0)
        edge = (0.5 * least / torch.where(width > 0, width, 1.0)).clamp(max=0.5)
        share = torch.maximum(torch.minimum(share, 1 - edge), edge)
        share = torch.where(fa.abs() <= CLOSE, 0.0, share)  # what is found stays, while others are looked for
    return best


def _next(a: Tensor, b: Tensor, c: Tensor, fa: Tensor, fb: Tensor, fc: Tensor) -> Tensor:
    """The share of the way from a to b: by inverse quadratic interpolation where that can be trusted, else half."""
    across, rise = (a - b) / (c - b), (fa - fb) / (fc - fb)
    trusted = (rise.square() < across) & ((1 - rise).square() < 1 - across)
    share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    return torch.where(trusted & share.isfinite(), share, 0.5)
