"""Few meta-tasks: how many does a learned prior need, and what a hyper-prior and a hyper-posterior do about it."""

from __future__ import annotations

from typing import Any

import torch

from metaprior.baselines import FPCA
from metaprior.experiments.options import Options, derived_seeds
from metaprior.experiments.results import Results
from metaprior.experiments.running import choice_record, timed
from metaprior.experiments.sinusoid import draw_sinusoids
from metaprior.inference import Method
from metaprior.methods import FEW_TASKS, HyperPosterior, LearnedPrior
from metaprior.progress import progress_bar
from metaprior.scoring import Scores, evaluate
from metaprior.selection import Auto, make_method
from metaprior.splits import spare
from metaprior.tasks import ContextTarget, Tasks

METHODS = ("vanilla", "shared gp", "learned mean", "learned both", "map", "hyper-posterior", "fpca", "auto")
COUNTS = (2, 5, 10, 20, 50, 100, 300, 1_000)
SIZES = (1, 5, 20)
CONTEXT, FEW = 5, 5
"""Context points of the curve over m, and the m of which all contexts are shown."""

DRAWS = 4
"""Sets of meta-tasks, where there are 20 of them or fewer: what a few tasks teach depends on which they are."""


def run(options: Options) -> Results:
    """Every method on growing sets of sinusoids, each asked for the same new functions."""
    chosen = options.chosen(METHODS)
    seeds = derived_seeds(options.seed, ["test", "contexts", *(f"draw {k}" for k in range(DRAWS))])
    counts, draws, tests = ((2, 5), 1, 20) if options.quick else (COUNTS, DRAWS, 200)
    test = draw_sinusoids(tests, seeds["test"])
    contexts = {n: test.context_target(n, seeds["contexts"] + n) for n in SIZES}
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "test_functions": tests,
        "context": CONTEXT,
        "draws": {str(m): _draws(m, draws) for m in counts},
        "network": {name: FEW_TASKS[name] for name in ("hidden", "activation")},
        "auto": {},
    }
    results = Results("few", settings)
    with progress_bar("few tasks", len(chosen) * len(counts), show=options.progress) as advance:
        for name in chosen:
            for m in counts:
                with timed(results, name):
                    found = [
                        _scored(name, draw_sinusoids(m, seeds[f"draw {k}"] + m), contexts, m, options.seed, settings)
                        for k in range(_draws(m, draws))
                    ]
                for n in found[0]:
                    scores = _averaged([one[n] for one in found])
                    if n == CONTEXT:
                        results.add(name, f"m = {m}", scores)
                    if m == FEW:
                        results.add(name, f"ñ = {n}", scores)
                advance(f"{name}, m = {m}")
    results.close()
    return results


def _draws(m: int, most: int) -> int:
    return most if m <= 20 else 1


def _scored(
    name: str, tasks: Tasks, contexts: dict[int, ContextTarget], m: int, seed: int, settings: dict[str, Any]
) -> dict[int, Scores]:
    method = _method(name, tasks, seed).fit(tasks)
    if isinstance(method, Auto):
        settings["auto"].setdefault(str(m), []).append(choice_record(method)["chosen"])
    return {n: evaluate(method, *split) for n, split in contexts.items() if m == FEW or n == CONTEXT}


def _method(name: str, tasks: Tasks, seed: int) -> Method:
    given: dict[str, Any] = {"seed": seed, "progress": False}
    if name == "hyper-posterior":
        return HyperPosterior(seed=seed)
    if name == "fpca":
        return FPCA(seed=seed)
    if name == "auto":
        return Auto(**given)
    if name == "vanilla":
        return LearnedPrior("zero", "rbf", held_out=None, **given)
    if name == "shared gp":
        return make_method(name, tasks, seed)
    if name == "map":
        return LearnedPrior("deep", "rbf", hyper_prior=1.0, held_out=None, **FEW_TASKS | given | {"max_epochs": 300})
    network = {"hidden": FEW_TASKS["hidden"], "activation": FEW_TASKS["activation"], "max_epochs": 300}
    kernel = {"learned mean": "rbf", "learned both": "deep"}[name]
    return LearnedPrior("deep", kernel, held_out=spare(len(tasks)), check_every=5, **network, **given)


def _averaged(found: list[Scores]) -> Scores:
    """Each task's scores, averaged over the sets of meta-tasks: tasks differ more than what was learned from them."""
    if len(found) == 1:
        return found[0]
    values = {name: torch.stack([one.values[name] for one in found]).mean(0) for name in found[0].values}
    return Scores(found[0].ids, values)
