"""Few meta-tasks: how many does a learned prior need, and what a hyper-prior and a hyper-posterior do about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from metaprior.inference import Method
from metaprior.methods import FEW_TASKS, LearnedPrior, make_method
from metaprior.paper.experiments.sinusoid import draw_sinusoids
from metaprior.paper.options import Options
from metaprior.paper.running import begin, choice_record, missing, timed
from metaprior.progress import progress_bar
from metaprior.report import Results
from metaprior.scoring import Scores, evaluate
from metaprior.seeds import child_seed
from metaprior.selection import Auto
from metaprior.splits import spare
from metaprior.tasks import Tasks

COUNTS = (2, 5, 10, 20, 50, 100, 300, 1_000)
SIZES = (1, 5, 20)
CONTEXT, FEW = 5, 5
"""Context points of the curve over m, and the m of which all contexts are shown."""

DRAWS, FUNCTIONS = 10, 20
"""Draws of meta-tasks, each with new functions of its own to predict: what a few tasks teach depends on which they are,
so the draws are what standard errors are over."""


def _vanilla(tasks: Tasks, seed: int) -> Method:
    return LearnedPrior("zero", "rbf", held_out=None, seed=seed, progress=False)


def _map(tasks: Tasks, seed: int) -> Method:
    options = FEW_TASKS | {"max_epochs": 300, "seed": seed, "progress": False}
    return LearnedPrior("deep", "rbf", hyper_prior=1.0, held_out=None, **options)


def _learned(kernel: str, tasks: Tasks, seed: int) -> Method:
    network = {name: FEW_TASKS[name] for name in ("hidden", "activation")}
    stop: dict[str, Any] = {"held_out": spare(len(tasks)), "check_every": 5, "max_epochs": 300}
    return LearnedPrior("deep", kernel, **network, **stop, seed=seed, progress=False)


METHODS: dict[str, Callable[[Tasks, int], Method]] = {
    "vanilla": _vanilla,
    "shared gp": partial(make_method, "shared gp"),
    "learned mean": partial(_learned, "rbf"),
    "learned both": partial(_learned, "deep"),
    "map": _map,
    "hyper-posterior": partial(make_method, "hyper-posterior"),
    "fpca": partial(make_method, "fpca"),
    "auto": partial(make_method, "auto"),
}
"""The rows, each with what is about to learn from some tasks."""


def run(options: Options) -> Results:
    """Every method on growing sets of sinusoids, draw by draw."""
    chosen = options.chosen(tuple(METHODS))
    counts, draws = ((2, 5), 2) if options.quick else (COUNTS, DRAWS)
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "context": CONTEXT,
        "draws": draws,
        "test_functions_of_each_draw": FUNCTIONS,
        "network": {name: FEW_TASKS[name] for name in ("hidden", "activation")},
        "auto": {},
    }
    results = begin("few", settings, options)
    parts = {f"{name}, m = {m}": (name, m) for name in chosen for m in counts}
    left = len(parts.keys() - results.parts)
    with progress_bar("few tasks", left * draws, show=options.progress) as advance:
        for part in missing(results, parts, options):
            name, m = parts[part]
            found = []
            with timed(results, name):
                for draw in range(draws):
                    found.append(one_draw(name, m, draw, options.seed))
                    advance(part)
            add_draws(results, name, m, found)
    results.close()
    return results


class Drawn(NamedTuple):
    """What a method scored in one draw, by the number of context points, and what `auto` chose."""

    scores: dict[int, Scores]
    chosen: dict[str, float] | None


def one_draw(name: str, m: int, draw: int, seed: int) -> Drawn:
    """A method on m tasks of a draw. It depends on its arguments alone, so draws can run side by side, or elsewhere."""
    own, test = child_seed(seed, draw), draw_sinusoids(FUNCTIONS, child_seed(seed, draw, 1))
    tasks = draw_sinusoids(m, child_seed(seed, draw, 2, m))
    method = METHODS[name](tasks, own).fit(tasks)
    sizes = SIZES if m == FEW else (CONTEXT,)
    scores = {n: evaluate(method, *test.context_target(n, child_seed(seed, draw, 3, n))) for n in sizes}
    return Drawn(scores, choice_record(method)["chosen"] if isinstance(method, Auto) else None)


def add_draws(results: Results, name: str, m: int, found: list[Drawn]) -> None:
    """The rows of a method with m tasks: a value for each draw, averaged over its functions."""
    for n in found[0].scores:
        parts = [one.scores[n].values for one in found]
        shared = [metric for metric in parts[0] if all(metric in part for part in parts)]
        values = {metric: torch.stack([part[metric].mean() for part in parts]) for metric in shared}
        scores = Scores(tuple(f"draw {k + 1}" for k in range(len(found))), values)
        if n == CONTEXT:
            results.add(name, f"m = {m}", scores)
        if m == FEW:
            results.add(name, f"ñ = {n}", scores)
    if found[0].chosen is not None:
        results.settings["auto"][str(m)] = [one.chosen for one in found]
