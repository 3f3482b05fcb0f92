"""What the experiments share: score a fitted method in every setting, and note how its training went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaprior.experiments.published import PUBLISHED
from metaprior.experiments.results import Results
from metaprior.inference import Method
from metaprior.learning import Training
from metaprior.scoring import score
from metaprior.tasks import Tasks


def score_contexts(
    results: Results,
    name: str,
    method: Method,
    test: Tasks,
    sizes: tuple[int, ...],
    seed: int,
    published: str | None = None,
) -> None:
    """A row for each number of random context points; all methods see the same contexts."""
    figures = PUBLISHED[results.experiment].get(published or name)
    for n in sizes:
        context, target = test.context_target(n, seed + n)
        results.add(name, str(n), score(method.predict(context, target), target), figures)


def training_record(training: Training) -> dict[str, Any]:
    """How a training went, for the settings."""
    return {
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
