"""Tasks drawn from a prior and conditioned on in part: where the rest lies are probabilities that must be uniform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor

from campaign.calibration.kinds import WIDTH
from campaign.calibration.own import Array, drawn
from metaprior import Tasks
from metaprior.inference import Method, MixturePosterior, PossiblePosterior, Posterior, StudentPosterior
from metaprior.seeds import child_seed

KNOWN, AHEAD = (1, 20), (2, 8)
"""Points of a task that are conditioned on, and points that are predicted; each from the first to the last number."""

BEYOND = 0.5
"""How far inputs reach beyond those that were fitted on."""

DRAWS = 99
"""Joint draws that a projection is ranked among."""

UPWARD = (0.5, 0.75, 0.9, 0.95, 0.985, float(special.ndtr(3.0)))
"""Quantiles from which, and between which, a density is integrated; and as far below the median …"""

NODES = 10
"""… by Gauss and Legendre's rule of so many nodes in each panel."""

STATISTICS = ("value", "projection", "rank", "density")
"""What is looked at: a further value by the cdf, a projection of the others by means and covariances, the same by its
rank among joint draws, and a further value by the integral of the density."""

Plant = Callable[[Posterior], Posterior]
"""An error that is planted: the posterior as it would be with it."""


class Asked(NamedTuple):
    """Tasks in two parts: what is known, and what is ahead."""

    context: Tasks
    target: Tasks


def asked_of(method: Method, shape: tuple[int, int], count: int, seed: int, *, on_grid: bool) -> Asked:
    """Tasks drawn from a method's prior: each at points of its own, or all at the same."""
    rng, pairs = np.random.default_rng(seed), []
    known, ahead = rng.integers(*KNOWN, count, endpoint=True), rng.integers(*AHEAD, count, endpoint=True)
    if on_grid:
        known[:], ahead[:] = known[0], ahead[0]
    for n in np.unique(known + ahead).tolist():
        who = np.flatnonzero(known + ahead == n)
        x = rng.uniform(-BEYOND, WIDTH + BEYOND, (1 if on_grid else len(who), n, shape[0]))
        x = np.broadcast_to(x, (len(who), n, shape[0]))
        pairs += list(zip(who.tolist(), x, drawn(method, x, rng), strict=True))
    some = [(x, y, int(known[k])) for k, x, y in sorted(pairs, key=lambda one: one[0])]
    some = [one for one in some if _possible(one[1][: one[2]])]
    context, target = ([(x[part(n)], y[part(n)]) for x, y, n in some] for part in (_first, _rest))
    return Asked(Tasks.from_pairs(context), Tasks.from_pairs(target))


def _first(n: int) -> slice:
    return slice(None, n)


def _rest(n: int) -> slice:
    return slice(n, None)


def _possible(y: Array) -> bool:
    """What Box and Cox's warp has at 0 is a value that may be drawn, but not one that it can be conditioned on.

    Contexts may be chosen by what they are: what follows from them is right for each.
    """
    return bool((y != 0).all())


def uniforms(
    method: Method, asked: Asked, seed: int, plant: Plant | None = None, only: Sequence[str] = STATISTICS
) -> dict[str, Array]:
    """What must be uniform between 0 and 1, by name; and `gap`, which must be 0: what cdf and density disagree by."""
    rng, conditional, target = np.random.default_rng(child_seed(seed, 0)), method.condition(asked.context), asked.target
    posterior: Posterior = conditional.at(target)
    posterior = posterior if plant is None else plant(posterior)
    y, first = target.y, target.offsets[:-1]
    output = torch.from_numpy(rng.integers(target.p, size=len(target)))
    here = Here.of(posterior, y, first, output)
    found = {"value": here.spread(here.cdf, rng)}
    along = torch.from_numpy(1 + rng.normal(size=y.shape)) / y.std(0)  # more often a sum than a difference
    along[first, output] = 0.0  # the rest of the values, together
    if "projection" in only and (projection := _projected(posterior, along, y)) is not None:
        found["projection"] = projection
    if "rank" in only:
        found["rank"] = _ranked(posterior, along, y, rng, child_seed(seed, 1))
    if isinstance(posterior, PossiblePosterior):  # a whole number has a probability and no density
        mass = posterior.log_density(y).exp()[first, output].numpy()
        found["gap"] = np.where(posterior.whole.numpy()[output], np.abs(mass - (here.cdf - here.before)), 0.0)
    elif "density" in only:
        density = _integrated(conditional, posterior, target, output, plant)
        found |= {"density": here.spread(density, rng), "gap": np.abs(density - here.cdf)}
    return found


class Here(NamedTuple):
    """Of the first value of each task, the probability up to it and before it."""

    cdf: Array
    before: Array

    def spread(self, cdf: Array, rng: np.random.Generator) -> Array:
        """Where a value has a probability of its own, any part of that is as likely."""
        return cdf - rng.random(len(cdf)) * (self.cdf - self.before)

    @staticmethod
    def of(posterior: Posterior, y: Tensor, row: Tensor, column: Tensor) -> Here:
        before = torch.nextafter(y, torch.full_like(y, -torch.inf))
        return Here(*(posterior.cdf(values)[row, column].numpy() for values in (y, before)))


def _projected(posterior: Posterior, along: Tensor, y: Tensor) -> Array | None:
    """The probability below `aᵀy` of each task, from means and covariances, where its form is known."""
    if isinstance(posterior, MixturePosterior):
        parts, weights = [_projected(one, along, y) for one in posterior.components], posterior.weights.numpy()
        known = [np.where(weights[:, c] > 0, part, 0.0) for c, part in enumerate(parts) if part is not None]
        return (weights.T * known).sum(0) if len(known) == len(parts) else None
    covariances = posterior.covariances()
    if covariances is None:
        return None
    points = posterior.points
    weights_of = along.split(points.sizes.tolist())
    variance = torch.stack([torch.einsum("np,pnk,kp->", a, C, a) for a, C in zip(weights_of, covariances, strict=True)])
    z = (points.summed((along * (y - posterior.mean)).sum(1)) / variance.clamp(min=1e-300).sqrt()).numpy()
    inner = getattr(posterior, "scaled", posterior)
    if isinstance(inner, StudentPosterior):
        freedom = inner.degrees.numpy()
        return np.asarray(special.stdtr(freedom, z * np.sqrt(freedom / (freedom - 2))))
    return np.asarray(special.ndtr(z))


def _ranked(posterior: Posterior, along: Tensor, y: Tensor, rng: np.random.Generator, seed: int) -> Array:
    """The place of `aᵀy` among that of joint draws: each of the places is as likely, and any part of it."""
    points, own = posterior.points, posterior.points.summed((along * y).sum(1))
    theirs = torch.stack([points.summed((along * draw).sum(1)) for draw in posterior.samples(DRAWS, seed)])
    less, equal = ((theirs < own).sum(0).numpy(), (theirs == own).sum(0).numpy())
    places: Array = (less + rng.random(len(own)) * (equal + 1)) / (DRAWS + 1)
    return places


def _integrated(conditional: Any, posterior: Posterior, target: Tasks, output: Tensor, plant: Plant | None) -> Array:
    """½ and the integral of the density from the median to the first value of each task.

    Panels end at quantiles: what recalibration makes of a density jumps at some of them.
    """
    rows, every = target.offsets[:-1], torch.arange(len(target))
    y, quantiles = target.y[rows, output], posterior.quantiles((*UPWARD, *(1 - u for u in UPWARD)))[:, rows, output]
    up, down = quantiles.split(len(UPWARD))
    edges = torch.cat([torch.where(y >= up[0], torch.minimum(up, y), torch.maximum(down, y)), y[None]])
    places, shares = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(NODES))
    steps = edges.diff(dim=0).mT[:, :, None]
    values = (edges[:-1].mT[:, :, None] + steps * (places + 1) / 2).flatten(1)  # [m, k]
    k = values.shape[1]
    at = replace(target, x=target.x[rows].repeat_interleave(k, 0), y=values.reshape(-1, 1).repeat(1, target.p))
    at = replace(at, offsets=torch.arange(len(target) + 1) * k)
    there = conditional.at(at)
    density = (there if plant is None else plant(there)).log_density(at.y).exp()
    found: Array = (
        0.5 + (density.view(len(target), k, -1)[every, :, output] * (steps * shares / 2).flatten(1)).sum(1)
    ).numpy()
    return found
