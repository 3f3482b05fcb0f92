"""The kinds of priors that can be drawn from, each fitted on a few tasks: what it then believes is taken for the truth.

Fitting gives every kind parameters that nobody has chosen, in units of their own: inputs from 0 to 10, targets around
20 and −300. How good the fit is does not matter here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from metaprior import Tasks
from metaprior.inference import KeptMethod
from metaprior.methods import FPCA, HyperPosterior, LearnedPrior, Mixture, Warped
from metaprior.seeds import child_seed

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Numbers of inputs and outputs."""

WIDTH = 10.0
"""Inputs of the tasks to fit on lie between 0 and this; those to draw at reach a little beyond."""

PAST = 40

BRIEF: dict[str, Any] = {"max_epochs": 15, "check_every": 5, "held_out": None, "progress": False}

Make = Callable[[int, int, int], KeptMethod]
"""A method for d inputs and p outputs, with a seed."""


def _learned(mean: str, kernel: str, **options: Any) -> Make:
    return lambda d, p, seed: LearnedPrior(mean, kernel, seed=seed, **BRIEF | options)


def _learned_both(d: int, p: int, seed: int) -> LearnedPrior:
    """With noise that depends on the input where there are two."""
    noise = "deep" if d == 2 else None
    return LearnedPrior("deep", "deep", hidden=(12, 6), activation="tanh", noise=noise, seed=seed, **BRIEF)


def _eigenfunctions(d: int, p: int, seed: int) -> LearnedPrior:
    """Alone (a kernel of low rank) for one output, with a deep kernel beside it for two."""
    kernel = "eigenfunctions" if p == 1 else "eigenfunctions + deep"
    return LearnedPrior("deep", kernel, hidden=(12,), activation="tanh", functions=4, seed=seed, **BRIEF)


def _warped(d: int, p: int, seed: int) -> Warped:
    return Warped(_learned("constant", "matern")(d, p, seed), WARPS[d, p], seed=seed)


WARPS = {(1, 1): "yeo-johnson", (1, 2): "box-cox", (2, 1): "log", (2, 2): "yeo-johnson"}

KINDS: dict[str, Make] = {
    "vanilla": _learned("zero", "rbf"),
    "learned both": _learned_both,
    "eigenfunctions": _eigenfunctions,
    "functional PCA": lambda d, p, seed: FPCA(size=6 if d == 1 else 3, rank=3, max_steps=20, seed=seed),
    "mixture": lambda d, p, seed: Mixture(3, rank=2, size=5 if d == 1 else 2, seed=seed),
    "Student-t": _learned("constant", "matern", degrees=4.0),
    "warped": _warped,
    "hyper-posterior": lambda d, p, seed: HyperPosterior(members=4, hidden=(8,), max_epochs=10, seed=seed),
}


@lru_cache(maxsize=len(KINDS) * len(SHAPES))
def fitted(kind: str, d: int, p: int, seed: int) -> KeptMethod:
    """A method of this kind, fitted."""
    own = child_seed(seed, list(KINDS).index(kind), d, p)
    return KINDS[kind](d, p, own).fit(past(d, p, own, positive=kind == "warped"))


def past(d: int, p: int, seed: int, *, positive: bool = False) -> Tasks:
    """A few tasks of three kinds, with levels of their own; skewed where they are to be positive."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(PAST):
        x = rng.uniform(0, WIDTH, (rng.integers(5, 13), d))
        wave = np.sin(x.sum(1) / 2 + 2 * rng.integers(3)) + rng.normal() * 0.7
        values = wave[:, None] + rng.normal(0, 0.2, (len(x), p))
        values = np.exp(0.4 * values) if positive else values
        pairs.append((x, values * UNITS[:p] + (0 if positive else LEVELS[:p])))
    return Tasks.from_pairs(pairs)


UNITS, LEVELS = np.array([5.0, 80.0]), np.array([20.0, -300.0])
