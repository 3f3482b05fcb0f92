"""What the experiments share: score a fitted method in every setting, and note how its training went."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from metaprior.baselines import NeuralNetwork
from metaprior.experiments.published import PUBLISHED
from metaprior.experiments.results import Results
from metaprior.inference import Method
from metaprior.learning import RATES
from metaprior.model import MetaGP
from metaprior.progress import progress_bar
from metaprior.scoring import evaluate
from metaprior.tasks import Tasks

INITIALISATION = "uniform with variance gain² / fan_in, gain 4 before a sigmoid, moved to where the inputs lie"


def score_contexts(
    results: Results,
    name: str,
    method: Method,
    test: Tasks,
    sizes: tuple[int, ...],
    seed: int,
    *,
    only: Sequence[int] | None = None,
    progress: bool = False,
    beside_paper: bool = True,
) -> None:
    """A row for each number of random context points; all methods see the same contexts. only: on some of the tasks."""
    figures = PUBLISHED[results.experiment].get(name) if beside_paper else None
    with progress_bar(name, len(sizes), show=progress) as advance:
        for n in sizes:
            context, target = test.context_target(n, seed + n)
            if only is not None:
                context, target = context.select(only), target.select(only)
            results.add(name, str(n), evaluate(method, context, target), figures)
            advance(f"ñ = {n}")


def training_record(gp: MetaGP | NeuralNetwork) -> dict[str, Any]:
    """How a prior or a network was trained and how that went, for the settings."""
    training = gp.training_
    chosen: dict[str, Any] = {}
    if isinstance(gp, MetaGP):
        rate = RATES[gp.optimizer] if gp.learning_rate is None else gp.learning_rate
        chosen = {"learning_rate": rate, "patience": gp.patience}
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
