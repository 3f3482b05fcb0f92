"""What the experiments share: score a fitted method in every setting, and note how its training went."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

from metaprior.inference import Method
from metaprior.methods import FPCA, MAML, LearnedPrior, NeuralNetwork
from metaprior.paper.options import Options
from metaprior.paper.published import PUBLISHED
from metaprior.priors import NetworkOptions
from metaprior.progress import progress_bar
from metaprior.report import Results
from metaprior.scoring import evaluate
from metaprior.selection import Auto
from metaprior.splits import Contexts
from metaprior.tasks import ContextTarget, Tasks

EPISODES = 150_000
"""Tasks that MAML is trained on in all, with repetition."""

INITIALISATION = "uniform with variance gain² / fan_in, gain 4 before a sigmoid, moved to where the inputs lie"


def begin(experiment: str, settings: dict[str, Any], options: Options) -> Results:
    """Results to add rows to: the earlier ones, if their settings are the same, or none yet."""
    return Results(experiment, settings) if options.earlier is None else options.earlier.continued(experiment, settings)


def missing(results: Results, parts: Iterable[str], options: Options) -> Iterator[str]:
    """The parts that are not complete. Each is complete, and kept, as soon as the next one is asked for."""
    for part in parts:
        if part not in results.parts:
            yield part
            results.parts.append(part)
            options.keep(results)


def contexts_of(tasks: Tasks, sizes: Sequence[int], seed: int) -> dict[int, ContextTarget]:
    """Contexts of each size and what is left of the tasks, drawn once: all methods see the same."""
    return {n: tasks.context_target(n, seed + n) for n in sizes}


def score_contexts(
    results: Results,
    name: str,
    method: Method,
    contexts: Mapping[int, ContextTarget],
    *,
    only: Sequence[int] | None = None,
    progress: bool = False,
    beside_paper: bool = True,
) -> None:
    """A row for each number of random context points. only: on some of the tasks."""
    figures = PUBLISHED[results.experiment].get(name) if beside_paper else None
    with progress_bar(name, len(contexts), show=progress) as advance:
        for n, (context, target) in contexts.items():
            if only is not None:
                context, target = context.select(only), target.select(only)
            results.add(name, str(n), evaluate(method, context, target), figures)
            advance(f"ñ = {n}")


def fit_maml(
    training: Tasks,
    options: Options,
    held_out: Tasks | float,
    contexts: Contexts | None = None,
    *,
    label: str = "maml",
    **network: Unpack[NetworkOptions],
) -> MAML:
    """MAML as all experiments run it: so many tasks in all, however many passes that takes."""
    epochs = 2 if options.quick else min(max(round(EPISODES / len(training)), 1), 15)
    progress = label if options.progress else False
    maml = MAML(
        contexts=contexts, held_out=held_out, seed=options.seed, max_epochs=epochs, progress=progress, **network
    )
    return maml.fit(training)


def note_method(settings: dict[str, Any], name: str, method: Method, variable: str | None = None) -> None:
    """What a method chose, and how its training went; where there are several variables, for each of them."""
    if isinstance(method, (Auto, FPCA)):
        place, found = ("auto", choice_record(method)) if isinstance(method, Auto) else ("fpca", _components(method))
        settings[place] = found if variable is None else settings.get(place, {}) | {variable: found}
    elif isinstance(method, (NeuralNetwork, MAML)) or (isinstance(method, LearnedPrior) and method.spec.learn):
        settings["training"][name if variable is None else f"{name}, {variable}"] = _training(method)


def choice_record(auto: Auto) -> dict[str, Any]:
    """What `auto` tried and chose."""
    return {
        "chosen": {name: round(weight, 3) for name, weight in auto.chosen_.items()},
        "because": auto.why_,
        "held_out_log_density": {one.name: round(one.density.mean, 4) for one in auto.tried_},
        "held_out_coverage_90": [round(share, 4) for share in auto.coverage_],
        "reach": [round(value, 3) for value in auto.calibration_.reach],
        "left_out": auto.left_out_,
    }


def _components(fpca: FPCA) -> dict[str, Any]:
    """What functional PCA chose and found."""
    return {
        "basis_functions": fpca.basis_.size,
        "components": fpca.rank_,
        "explained": [round(share, 4) for share in fpca.explained_[:10].tolist()],
        "steps_of_em": len(fpca.evidence_) - 1,
        "tried": len(fpca.tried_),
    }


def _training(gp: LearnedPrior | NeuralNetwork | MAML) -> dict[str, Any]:
    """How a prior or a network was trained and how that went."""
    training = gp.training_
    chosen = (
        {"learning_rate": gp.training.rate, "patience": gp.training.patience} if isinstance(gp, LearnedPrior) else {}
    )
    return chosen | {
        "epochs": training.epochs,
        "best_epoch": training.best.epoch,
        "held_out_evidence_per_value": round(training.best.held_out_evidence, 6),
        "stopped": training.stopped,
        "skipped_updates": training.skipped,
        "seconds": round(training.seconds, 2),
    }


@contextmanager
def timed(results: Results, name: str) -> Iterator[None]:
    """Add the seconds this takes under a name."""
    start = time.perf_counter()
    yield
    results.seconds[name] = round(results.seconds.get(name, 0.0) + time.perf_counter() - start, 2)
