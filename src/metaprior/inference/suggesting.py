"""Where to measure a task next: the points that are expected to leave least open about its curve.

What a measurement takes from the variance of the curve elsewhere is that of the best linear predictor, `c²/(v + σ²)`:
of a Gaussian exactly what conditioning on it will show, whatever is measured. Of any other posterior it is the mean,
over what may be measured, of what a linear predictor leaves; conditioning may see more in it, and leaves less then.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.errors import DataError, OptionError
from metaprior.inference.factor import factor
from metaprior.inference.posterior import Around, Posterior
from metaprior.tasks import Tasks

DRAWS = 4_000
"""From which correlations are taken, where they have no closed form."""

MOST = 2_000
"""Points of one task: their covariance has the square of that."""

SWEEPS = 20
"""Times that every point may be moved: a few are enough."""

SAME = 1e-12
"""Of the largest input: two points that are not farther apart are one."""

CERTAIN = 1e-12
"""Of the largest variance: the least noise, so that two measurements of one thing are no division by zero."""


@dataclass(frozen=True, eq=False, repr=False)
class Suggestion:
    """Where to measure one task, and what that is expected to buy.

    sd is the root mean square, over the points that are asked about, of the deviation of the curve itself: now, and
    after each measurement. gain is the share of it that each takes away (of several outputs: of their variances' mean,
    each in its own units). curve is the posterior of the function now, at all points; left is the share of its
    deviation that is expected to be left at each of them when all is measured.
    """

    x: Float[Tensor, "k d"]
    sd: Float[Tensor, "k+1 p"]
    gain: Float[Tensor, " k"]
    curve: Posterior
    left: Float[Tensor, "n p"]

    def __repr__(self) -> str:
        first, last = (", ".join(f"{value:.4g}" for value in self.sd[k].tolist()) for k in (0, -1))
        return f"Suggestion(x={self.x.tolist()}, sd {first} → {last})"


class Places(NamedTuple):
    """Points of one task: those where it may be measured, and those that are asked about."""

    x: Float[Tensor, "n d"]
    candidate: Bool[Tensor, " n"]
    target: Bool[Tensor, " n"]


def places_of(context: Tasks, at: Float[Tensor, "a d"], about: Float[Tensor, "b d"] | None, count: int) -> Places:
    """The points at which one task may be measured next, each once and none that is known; and what is asked about.

    That is the whole of them, or the points `about`, which are then none to measure at.
    """
    if count < 1:
        raise OptionError(f"{count} points: give 1 or more.")
    given = len(at) + (0 if about is None else len(about))
    if given > MOST:
        raise OptionError(f"{given:,} points of a task are too many to choose among: give {MOST:,}, a larger step.")
    rest = at[~_among(at, context.x) & ~_repeated(at)]
    if about is not None:
        about = about[~_repeated(about)]
        rest = rest[~_among(rest, about)]
    if len(rest) < count:
        known = f", {len(context.x)} are known" if len(context.x) else ""
        raise DataError(
            f"task {context.ids[0]!r} has {len(rest)} points left to measure at ({len(at)} are given{known}): {count} "
            "are wanted. Give more places, or ask for fewer points."
        )
    x = rest if about is None else torch.cat([rest, about])
    candidate = torch.arange(len(x)) < len(rest)
    return Places(x, candidate, candidate if about is None else ~candidate)


def suggestion(posterior: Posterior, places: Places, count: int, seed: int) -> Suggestion:
    """The points of one task to measure next, chosen together and ordered by what they add.

    posterior: at the places, for a new observation. seed: of draws, where correlations have no closed form.
    """
    function = posterior.function
    deviations, of_values = function.sd.cpu(), posterior.sd.cpu()  # one task is little work, wherever it was computed
    unit = deviations.amax(0)
    unit = torch.where(unit > 0, unit, 1.0)  # squares of very small values would vanish
    sd, noisy = (deviations / unit).mT, (of_values / unit).mT
    F = _correlation(function, seed).cpu() * sd[:, :, None] * sd[:, None, :]
    noise = (noisy.square() - sd.square()).clamp(min=CERTAIN)
    candidates, targets = (torch.nonzero(part)[:, 0] for part in (places.candidate, places.target))
    curve = _Curve(F, noise, candidates, targets, posterior.points.ids[0])
    chosen = curve.chosen(count)
    after = torch.stack([curve.variance(chosen[:k]) for k in range(count + 1)])  # [k + 1, p, n]
    at_targets = after[..., places.target].mean(-1)
    share = (at_targets / torch.where(at_targets[0] > 0, at_targets[0], 1.0)).mean(1)
    left = (after[-1] / torch.where(after[0] > 0, after[0], 1.0)).sqrt().mT
    gain = 1 - (share[1:] / torch.where(share[:-1] > 0, share[:-1], 1.0)).sqrt()
    return Suggestion(places.x[chosen], at_targets.sqrt() * unit, gain, function, left)


@dataclass(frozen=True, eq=False)
class _Curve:
    """The values of one curve at some points, and the noise of a measurement at each of them."""

    F: Float[Tensor, "p n n"]
    noise: Float[Tensor, "p n"]
    candidates: Int[Tensor, " c"]
    targets: Int[Tensor, " t"]
    name: Hashable

    def chosen(self, count: int) -> list[int]:
        """One after another; then each is moved to where the set as a whole gains most, until none does."""
        places: list[int] = []
        for _ in range(count):
            places.append(int(self._taken(places).argmax()))
        for _ in range(SWEEPS):
            before = list(places)
            for k, place in enumerate(before):
                taken = self._taken([*places[:k], *places[k + 1 :]])
                best = int(taken.argmax())
                places[k] = best if float(taken[best]) > (1 + 1e-9) * float(taken[place]) else place
            if places == before:
                break
        return self._ordered(places)

    def variance(self, measured: Sequence[int]) -> Float[Tensor, "p n"]:
        """Of the curve at all points, once some are measured."""
        found: Tensor = self.F.diagonal(dim1=-2, dim2=-1) - self._half(measured).square().sum(1)
        return found.clamp(min=0.0)

    def _ordered(self, places: Sequence[int]) -> list[int]:
        """First what takes most on its own, then what adds most to that."""
        left, found = list(places), list[int]()
        while left:
            taken = self._taken(found)
            found.append(max(left, key=lambda place: float(taken[place])))
            left.remove(found[-1])
        return found

    def _taken(self, measured: Sequence[int]) -> Float[Tensor, " n"]:
        """What share of the targets' variance a point more would take away; −1 where none may be measured."""
        half, C, T = self._half(measured), self.candidates, self.targets
        cross = self.F[:, T][:, :, C] - half[:, :, T].mT @ half[:, :, C]
        spread = self.variance(measured)[:, C] + self.noise[:, C]
        whole = self.F.diagonal(dim1=-2, dim2=-1)[:, T].sum(1, keepdim=True)
        share = cross.square().sum(1) / spread / torch.where(whole > 0, whole, 1.0)
        found = torch.full((self.F.shape[-1],), -1.0, dtype=torch.float64)
        found[C] = share.mean(0)
        found[list(measured)] = -1.0
        return found

    def _half(self, measured: Sequence[int]) -> Float[Tensor, "p k n"]:
        """`L⁻¹ F[S, :]` with `L Lᵀ = F[S, S] + σ²I`."""
        S = list(measured)
        A = self.F[:, S][:, :, S] + torch.diag_embed(self.noise[:, S])
        L = factor(A, [self.name] * len(A)).L
        found: Tensor = torch.linalg.solve_triangular(L, self.F[:, S], upper=False)
        return found


def _correlation(posterior: Posterior, seed: int) -> Float[Tensor, "p n n"]:
    """Of one task's values at its points; where they are moved one by one, what ties them to each other stays."""
    found = posterior.covariances()
    if found is None and isinstance(posterior, Around):
        return _correlation(posterior.posterior, seed)
    if found is None:
        C = torch.stack([torch.cov(drawn.mT) for drawn in posterior.samples(DRAWS, seed).unbind(2)])
    else:
        C = found[0]
    C = C.reshape(-1, *posterior.points.sizes.tolist() * 2)  # of one point, torch.cov is a number
    sd = C.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    sd = torch.where(sd > 0, sd, 1.0)
    R = C / sd[:, :, None] / sd[:, None, :]
    R.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return R


def _among(x: Float[Tensor, "n d"], others: Float[Tensor, "k d"]) -> Bool[Tensor, " n"]:
    """Which points are among others, but for rounding."""
    return _alike(x, others).any(1)


def _repeated(x: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
    """Which points have come before."""
    return _alike(x, x).tril(-1).any(1)


def _alike(x: Float[Tensor, "n d"], others: Float[Tensor, "k d"]) -> Bool[Tensor, "n k"]:
    reach = SAME * torch.cat([x, others]).abs().amax(0)
    found = torch.ones(len(x), len(others), dtype=torch.bool)
    for own, other, step in zip(x.unbind(1), others.unbind(1), reach, strict=True):
        found &= (own[:, None] - other).abs() <= step
    return found
