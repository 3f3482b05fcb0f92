"""Sinusoid regression (Tab. S1): is a learned mean as good as the true one?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from metaprior.inference import Method, condition
from metaprior.methods import FPCA, LearnedPrior, RefittedRBF
from metaprior.paper.options import Options, derived_seeds
from metaprior.paper.published import REFITTED
from metaprior.paper.running import (
    INITIALISATION,
    begin,
    contexts_of,
    fit_maml,
    missing,
    note_method,
    score_contexts,
    timed,
)
from metaprior.priors import Prior
from metaprior.report import Results
from metaprior.tasks import Tasks

SETTINGS = (1, 5, 20)
MEANS = ("zero mean", "true mean", "learned mean")
HIDDEN = (64, 64)

PLAIN: dict[str, Callable[[Tasks, Options], Method]] = {
    "maml": lambda meta, options: fit_maml(meta, options, 0.1, hidden=HIDDEN),
    "fpca": lambda meta, options: FPCA(progress="fpca" if options.progress else False).fit(meta),
}
"""Methods that are not told the kernel, each fitted."""

METHODS = (*MEANS, *(name + REFITTED for name in MEANS), *PLAIN)
NOISE = 1e-6
PAPER_EPOCHS = 100
SGD_RATE = 3e-3
"""η of Algorithm 1: of 1e-8 … 3e-2 among the best by held-out evidence after five epochs, and the steadiest."""


def run(options: Options) -> Results:
    """The whole experiment: kernel and noise known, then the RBF refitted on each context."""
    chosen = options.chosen(METHODS)
    seeds = derived_seeds(options.seed, ["meta", "test", "contexts"])
    meta_count, test_count = (200, 50) if options.quick else (1_000, 200)
    meta, test = (draw_sinusoids(meta_count, seeds["meta"]), draw_sinusoids(test_count, seeds["test"]))
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "optimizer": options.learned_by,
        "meta_functions": meta_count,
        "test_functions": test_count,
        "hidden": list(HIDDEN),
        "activation": "sigmoid",
        "initialisation": INITIALISATION,
        "kernel": {"variance": 1.0, "lengthscale": 1.0, "noise_variance": NOISE},
        "training": {},
    }
    results = begin("sinusoid", settings, options)
    contexts = contexts_of(test, SETTINGS, seeds["contexts"])
    fitted: dict[str, LearnedPrior] = {}
    order = (*(name for mean in MEANS for name in (mean, mean + REFITTED)), *PLAIN)
    for name in missing(results, [name for name in order if name in chosen], options):
        mean = name.removesuffix(REFITTED)
        if mean in MEANS and mean not in fitted:  # the row and the refitted one share it
            with timed(results, mean):
                fitted[mean] = _with_mean(mean, options).fit(meta)
            if mean == "learned mean":
                note_method(results.settings, mean, fitted[mean])
                _draw_mean(results, fitted[mean])
        with timed(results, name):
            method: Method
            if name in PLAIN:
                method = PLAIN[name](meta, options)
            else:
                method = fitted[mean] if name == mean else RefittedRBF(fitted[mean].prior_)
            score_contexts(results, name, method, contexts, progress=options.progress and name != mean)
        if name in PLAIN:
            note_method(results.settings, name, method)
    results.curves |= {"x": _grid()[:, 0].numpy(), "samples": test.y.reshape(test_count, -1)[:12].numpy()}
    results.close()
    return results


def draw_sinusoids(count: int, seed: int) -> Tasks:
    """Functions from a GP with mean sin(x) and RBF covariance, at 50 points of [−5, 5]."""
    prior = Prior(_sine, _rbf(), NOISE, learn=())
    points = Tasks.from_inputs([_grid()])
    samples = condition(prior, Tasks.empty(points.ids, 1, 1)).at(points).samples(count, seed)
    return Tasks.from_pairs([(_grid(), y) for y in samples])


def _with_mean(name: str, options: Options) -> LearnedPrior:
    mean = {"zero mean": "zero", "true mean": _sine, "learned mean": "deep"}[name]
    sgd = options.learned_by == "algorithm1"
    epochs = PAPER_EPOCHS if sgd else None
    return LearnedPrior(
        mean,
        _rbf(),
        noise=NOISE,
        hidden=HIDDEN,
        learn=("mean",),
        scale=False,
        optimizer=options.learned_by,
        learning_rate=SGD_RATE if sgd else None,
        max_epochs=(2 if sgd else 60) if options.quick else epochs,
        patience=PAPER_EPOCHS if sgd else 5,
        seed=options.seed,
        progress=name if options.progress else False,
    )


def _draw_mean(results: Results, gp: LearnedPrior) -> None:
    with torch.no_grad():
        results.curves["learned mean"] = gp.prior_.at(_grid()).mean[:, 0].numpy()


def _rbf() -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = 1.0
    kernel.base_kernel.lengthscale = 1.0
    return kernel


def _sine(x: Tensor) -> Tensor:
    return x[..., 0].sin()


def _grid() -> Tensor:
    return torch.linspace(-5, 5, 50, dtype=torch.float64)[:, None]
