"""What the experiments share: score a fitted method in every setting, and note how its training went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaprior.experiments.published import PUBLISHED
from metaprior.experiments.results import Results
from metaprior.inference import Method
from metaprior.learning import RATES
from metaprior.model import MetaGP
from metaprior.progress import progress_bar
from metaprior.scoring import score
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
    progress: bool = False,
) -> None:
    """A row for each number of random context points; all methods see the same contexts."""
    figures = PUBLISHED[results.experiment].get(name)
    with progress_bar(name, len(sizes), show=progress) as advance:
        for n in sizes:
            context, target = test.context_target(n, seed + n)
            results.add(name, str(n), score(method.predict(context, target), target), figures)
            advance(f"ñ = {n}")


def training_record(gp: MetaGP) -> dict[str, Any]:
    """How a prior was trained and how that went, for the settings."""
    training = gp.training_
    return {
        "learning_rate": RATES[gp.optimizer] if gp.learning_rate is None else gp.learning_rate,
        "patience": gp.patience,
        "epochs": training.epochs,
        "best_epoch": training.best.epoch,
        "held_out_evidence_per_value": round(training.best.held_out_evidence, 6),
        "stopped": training.stopped,
        "skipped_updates": training.skipped,
        "seconds": round(training.seconds, 2),
    }


@contextmanager
def timed(results: Results, name: str) -> Iterator[None]:
    """Note the seconds this takes under a name."""
    start = time.perf_counter()
    yield
    results.seconds[name] = round(time.perf_counter() - start, 2)
