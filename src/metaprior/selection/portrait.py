"""A fitted method in arrays: what a page of pictures about it draws."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from metaprior.errors import DataError
from metaprior.inference import WithinPossible
from metaprior.methods import GPPerTask, PointMethod
from metaprior.scoring import LEVELS, Scores, scores_by_setting
from metaprior.selection.auto import Auto
from metaprior.splits import Contexts
from metaprior.tasks import Tasks, TrainedOn

POINTS, DRAWS, FUNCTIONS = 121, 12, 4
LEVEL = 0.9
"""Probability of the band around the mean."""

MANY = 2_000
"""Draws that a covariance is taken from where there is no other way."""

Curves = dict[str, np.ndarray[Any, Any]]


def held_out_scores(method: Any, judge: Tasks, contexts: Contexts) -> dict[str, Any]:
    """How a method predicts tasks to judge by, by setting; refused where any decided on what it has learned."""
    if seen := method.trained_on_.seen(judge.ids):
        raise DataError(f"task {seen[0]!r} was trained on, or decided when to stop: a score on it would be too good.")
    found = scores_by_setting(method, judge, contexts)
    return {setting: described_scores(scores) for setting, scores in found.items()}


def described_scores(scores: Scores) -> dict[str, Any]:
    """Mean and standard error of the metrics, and coverage at every level; null where a number is infinite."""
    metrics: dict[str, Any] = {}
    for metric in scores.metrics:
        mean, stderr, count = scores.summary(metric)
        metrics[metric] = {"mean": _finite(mean), "stderr": _finite(stderr), "tasks": count}
    coverage = {str(level): float(scores.values[f"coverage_{level}"].mean()) for level in LEVELS}
    return metrics | {"coverage": coverage}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@torch.no_grad()
def portrait(method: Any, trained_on: TrainedOn) -> Curves:
    """Prior mean, band and draws, covariance, eigenfunctions (for one input column), and how learning went."""
    curves: Curves = {}
    learned = method.method_ if isinstance(method, Auto) else method
    if len(trained_on.columns.x) == 1 and not isinstance(learned, (PointMethod, GPPerTask)):
        possible = trained_on.possible
        curves |= _prior(WithinPossible(learned, possible) if possible else learned, *trained_on.x_range[0], trained_on)
    training = getattr(learned, "training_", None)
    if training is not None:
        curves["epochs"] = np.array([check.epoch for check in training.checks])
        curves["held-out evidence"] = np.array([check.held_out_evidence for check in training.checks])
    return curves


def _prior(method: Any, low: float, high: float, trained_on: TrainedOn) -> Curves:
    """What the method expects of a new task, before it is seen: of its first target; with covariates, on average."""
    x = torch.linspace(low, high, POINTS, dtype=torch.float64)[:, None]
    p, typical = len(trained_on.columns.y), trained_on.task_x.typical
    about = torch.tensor([typical], dtype=torch.float64) if typical else None
    points = replace(Tasks.from_inputs([x]), covariates=about, columns=trained_on.columns)
    posterior = method.predict(Tasks.empty(points.ids, 1, p), points).function
    draws = posterior.samples(DRAWS, 0)[:, :, 0]
    covariances = posterior.covariances()
    # where there is no closed form (a warp): from many draws
    K = posterior.samples(MANY, 1)[:, :, 0].mT.cov() if covariances is None else covariances[0][0]
    values, vectors = torch.linalg.eigh(K)
    vectors = vectors * torch.where(vectors.sum(0) < 0, -1.0, 1.0)
    sd = K.diagonal().clamp(min=1e-300).sqrt()
    lower, upper = posterior.interval(LEVEL)
    return {
        "x": x[:, 0].numpy(),
        "mean": posterior.mean[:, 0].numpy(),
        "lower": lower[:, 0].numpy(),
        "upper": upper[:, 0].numpy(),
        "draws": draws.numpy(),
        "covariance": K.numpy(),
        "correlation": (K / sd[:, None] / sd).numpy(),
        "eigenvalues": values.flip(0)[:FUNCTIONS].clamp(min=0.0).numpy(),
        "eigenfunctions": vectors.flip(1)[:, :FUNCTIONS].mT.numpy(),
    }
