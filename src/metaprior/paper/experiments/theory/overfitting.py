"""On the risk of overfitting: the evidence has a price for a flexible kernel, and none for a flexible mean."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference import Method, Posterior, condition
from metaprior.learning import evidence_loss, make_updates
from metaprior.methods import LearnedPrior, MeanFitOnTarget
from metaprior.paper.experiments.step import draw_steps
from metaprior.paper.options import Options, derived_seeds
from metaprior.paper.running import contexts_of
from metaprior.priors import Prior, make_mean
from metaprior.report import Results
from metaprior.scoring import Scores, evaluate, score
from metaprior.seeds import affine_seed, child_seed
from metaprior.tasks import ContextTarget, Tasks

STEPS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 400)
CONTEXT = 5
"""Context points of the targets that are watched, and those predicted while the number of meta-tasks is varied."""

SIZES = (1, 2, 5, 10, 20, 40)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 300, 1_000, 3_000, 10_000)
DRAWS, FUNCTIONS = 10, 20
"""Draws of m meta-tasks, which standard errors are over, and the functions that each is asked for."""

HIDDEN = (128, 64)
FLOOR = 1e-2
"""The noise floor that the step experiment chooses on held-out functions."""


def run(results: Results, options: Options) -> None:
    """On step functions: while a mean is fitted, as contexts grow, and as meta-tasks grow in number."""
    seeds = derived_seeds(options.seed, ["meta", "test", "contexts", "draws"])
    results.curves = {name: curve for name, curve in results.curves.items() if not name.startswith("overfitting ")}
    meta = draw_steps(300 if options.quick else max(COUNTS), seeds["meta"])
    test = draw_steps(20 if options.quick else 200, seeds["test"])
    vanilla = _learned("zero", options).fit(meta)
    own = MeanFitOnTarget(vanilla.prior_, seed=options.seed, hidden=HIDDEN).fit(meta)
    results.settings["overfitting"] = {
        "meta_functions": len(meta),
        "test_functions": len(test),
        "hidden": list(HIDDEN),
        "noise_floor": FLOOR,
        "context": CONTEXT,
        "draws_of_each_number_of_meta_tasks": _draws(options),
        "test_functions_of_each_draw": FUNCTIONS,
    }
    watched = test.context_target(CONTEXT, seeds["contexts"])
    steps = tuple(step for step in STEPS if not options.quick or step <= 50)
    _watch_fitting(results, vanilla.prior_, watched, steps, options)
    _watch_learning(results, vanilla.prior_, meta, watched, steps, options)
    sizes = SIZES[:3] if options.quick else SIZES
    learned = _learned("deep", options).fit(meta)
    methods: dict[str, Method] = {"mean fit on target": own, "vanilla": vanilla, "learned mean": learned}
    for n, (context, target) in contexts_of(test, sizes, seeds["contexts"]).items():
        for name, method in methods.items():
            found = evaluate(method, context, target)
            results.add(name, f"ñ = {n}", Scores(found.ids, {"mse": found.values["mse"]}))
    _vary_meta_tasks(results, [count for count in COUNTS if count <= len(meta)], seeds["draws"], options)


def _watch_fitting(
    results: Results, vanilla: Prior, watched: ContextTarget, steps: tuple[int, ...], options: Options
) -> None:
    """A network for each target, fitted to its own context by Adam for so many steps."""
    for step in steps:
        method = MeanFitOnTarget(vanilla, max_steps=step, tolerance=0.0, seed=options.seed, hidden=HIDDEN)
        _note(results, "mean fit on target", step, method.fit(watched.context).predict(*watched), watched.target)


def _watch_learning(
    results: Results, vanilla: Prior, meta: Tasks, watched: ContextTarget, steps: tuple[int, ...], options: Options
) -> None:
    """One network for all, learned from the meta-tasks by Adam, looked at from the targets."""
    mean = make_mean("deep", d=1, p=1, seed=affine_seed(options.seed, factor=2), hidden=HIDDEN, like=meta.x)
    prior = Prior(mean, vanilla.kernel, vanilla.noise, learn=["mean"])
    loss = evidence_loss(prior, "task")
    updates = make_updates("adam", prior, meta, loss, rate=1e-2, batch_size=None, seed=options.seed)
    done = 0
    for step in steps:
        updates.run(step - done)
        done = step
        _note(results, "learned mean", step, condition(prior, watched.context).at(watched.target), watched.target)


def _note(results: Results, name: str, step: int, posterior: Posterior, target: Tasks) -> None:
    """The three terms of the contexts' evidence per value, and the error on the targets."""
    found = score(posterior, target)
    assert posterior.evidence is not None  # a prior has one
    terms = dict(zip(("data_fit", "complexity", "normaliser"), posterior.evidence.terms, strict=True))
    values = {term: (value / CONTEXT).detach() for term, value in terms.items()}
    results.add(name, f"steps = {step}", Scores(found.ids, {"mse": found.values["mse"], **values}))
    for term, value in {**values, "mse": found.values["mse"]}.items():
        key = f"overfitting {name} {term}"
        earlier = results.curves.get(key, np.zeros(0))
        results.curves[key] = np.append(earlier, float(value.mean()))
    results.curves["overfitting steps"] = np.unique(np.append(results.curves.get("overfitting steps", []), step))


def _vary_meta_tasks(results: Results, counts: list[int], seed: int, options: Options) -> None:
    """What is learned from m meta-tasks, in several draws of them, each with new functions of its own to predict."""
    draws = range(_draws(options))
    splits = [draw_steps(FUNCTIONS, child_seed(seed, k)).context_target(CONTEXT, child_seed(seed, k, 0)) for k in draws]
    for count in counts:
        found: dict[str, list[Float[Tensor, ""]]] = {"vanilla": [], "learned mean": []}
        for k in draws:
            some = draw_steps(count, child_seed(seed, k, 1, count))
            for name, mean in (("vanilla", "zero"), ("learned mean", "deep")):
                scores = evaluate(_learned(mean, options, count).fit(some), *splits[k])
                found[name].append(scores.values["mse"].mean())
        for name, values in found.items():
            ids = tuple(f"draw {k + 1}" for k in draws)
            results.add(name, f"m = {count}", Scores(ids, {"mse": torch.stack(values)}))


def _learned(mean: str, options: Options, count: int | None = None) -> LearnedPrior:
    """A prior with an RBF kernel. With very few meta-tasks none can be spared to stop by."""
    return LearnedPrior(
        mean,
        "rbf",
        hidden=HIDDEN,
        noise_floor=FLOOR,
        scale=False,
        held_out=None if count is not None and count < 5 else 0.1,
        max_epochs=20 if options.quick else 300,
        seed=options.seed,
        progress=False,
    )


def _draws(options: Options) -> int:
    return 2 if options.quick else DRAWS
