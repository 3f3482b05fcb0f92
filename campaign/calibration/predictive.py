"""Combinations and recalibrated posteriors are of no one prior: their targets are drawn from the predictive itself.

By a way of our own where there is one: a member by its weight, then its Gaussian or Student-t from mean and covariances
by NumPy's factor, the warp's own inverse, the recalibrating map by interpolation, rounding and cutting. Of a
recalibrated combination, whose quantiles take a search, by its own `samples`, which its cdf and density then have to
agree with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch

from campaign.calibration.asking import Asked, asked_of
from campaign.calibration.kinds import BRIEF, past
from campaign.calibration.own import Array, unwarped
from metaprior.inference import (
    CalibratedConditional,
    CalibratedPosterior,
    Calibration,
    Method,
    MixturePosterior,
    PossiblePosterior,
    Posterior,
    StudentPosterior,
    WarpedPosterior,
    WithinPossible,
)
from metaprior.methods import FPCA, Combination, LearnedPrior, Warped
from metaprior.seeds import child_seed
from metaprior.tasks import Possible, Tasks

REACH = (0.55, 1.45, 2.05, 2.75)
"""How far intervals are made to reach: less in the middle, more further out."""

POSSIBLE = (Possible(lower=14.0, whole=True), Possible(upper=-280.0))
"""What the targets can be, where that is limited: whole numbers from 14 on, and anything up to −280."""

PREDICTIVES = ("combination", "recalibrated prior", "recalibrated combination", "possible values")


class Recalibrated(Method):
    """A method whose posteriors are put right, by so much."""

    def __init__(self, method: Method, calibration: Calibration) -> None:
        self.method, self.calibration = method, calibration

    def fit(self, tasks: Tasks) -> Self:
        self.method.fit(tasks)
        return self

    def condition(self, context: Tasks) -> CalibratedConditional:
        return CalibratedConditional(self.method.condition(context), self.calibration)


@lru_cache(maxsize=16)
def predicting(name: str, d: int, p: int, seed: int) -> tuple[Method, LearnedPrior]:
    """The method, and a prior from which what it is conditioned on is drawn."""
    own = child_seed(seed, 100, d, p)
    tasks = past(d, p, own)
    prior = LearnedPrior("constant", "matern", seed=own, **BRIEF).fit(tasks)
    calibration = Calibration(REACH)
    if name == "recalibrated prior":
        return Recalibrated(prior, calibration), prior
    if name == "possible values":
        return WithinPossible(prior, POSSIBLE[:p]), prior
    heavy = LearnedPrior("zero", "rbf", degrees=4.0, seed=own, **BRIEF)
    warped = Warped(LearnedPrior("constant", "exponential", seed=own, **BRIEF), seed=own)
    rest = [heavy.fit(tasks), warped.fit(tasks), FPCA(size=4 if d == 1 else 2, rank=2, max_steps=10).fit(tasks)]
    both = Combination([prior, *rest], [0.4, 0.2, 0.2, 0.2])
    return Recalibrated(both, calibration) if name == "recalibrated combination" else both, prior


def asked_of_predictive(
    method: Method, prior: LearnedPrior, shape: tuple[int, int], count: int, seed: int, *, on_grid: bool
) -> Asked:
    """Contexts from a prior, and at each task's other points targets from what the method says of them."""
    context, target = asked_of(prior, shape, count, seed, on_grid=on_grid)
    posterior = method.condition(context).at(target)
    y = predicted(posterior, np.random.default_rng(child_seed(seed, 2)), child_seed(seed, 3))
    return Asked(context, replace(target, y=torch.from_numpy(y)))


def predicted(posterior: Posterior, rng: np.random.Generator, seed: int) -> Array:
    """One draw of all points, each task's together."""
    if isinstance(posterior, MixturePosterior):
        every = np.stack([predicted(one, rng, seed) for one in posterior.components])
        shares = posterior.weights.numpy()
        kind = np.array([rng.choice(len(every), p=own / own.sum()) for own in shares])
        found: Array = every[kind[posterior.points.task_of_row.numpy()], np.arange(every.shape[1])]
        return found
    if isinstance(posterior, WarpedPosterior):
        return unwarped(posterior.warp, predicted(posterior.warped, rng, seed))
    if isinstance(posterior, CalibratedPosterior):
        if not posterior.posterior.is_gaussian:
            return posterior.samples(1, seed)[0].numpy()
        middle, sd = posterior.posterior.mean.numpy(), posterior.posterior.sd.numpy()
        z = (predicted(posterior.posterior, rng, seed) - middle) / sd
        right, own = (np.concatenate([[0.0], part.numpy()]) for part in posterior.calibration.knots())
        return np.asarray(middle + sd * np.sign(z) * np.interp(np.abs(z), right, own))
    if isinstance(posterior, PossiblePosterior):
        y, whole = predicted(posterior.posterior, rng, seed), posterior.whole.numpy()
        return np.where(whole, np.floor(y + 0.5), y).clip(posterior.lower.numpy(), posterior.upper.numpy())
    return _elliptical(posterior, rng)


def _elliptical(posterior: Posterior, rng: np.random.Generator) -> Array:
    inner, covariances = getattr(posterior, "scaled", posterior), posterior.covariances()
    assert covariances is not None
    scale = np.ones(len(posterior.points))
    if isinstance(inner, StudentPosterior):
        freedom = inner.degrees.numpy()
        scale = np.sqrt((freedom - 2) / rng.chisquare(freedom))
    gaps = [
        own * (np.linalg.cholesky(C.numpy()) @ rng.normal(size=(*C.shape[:2], 1)))[..., 0].T
        for own, C in zip(scale, covariances, strict=True)
    ]
    found: Array = posterior.mean.numpy() + np.concatenate(gaps)
    return found
