"""`metaprior predict` of shards: bucket by bucket, into a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from metaprior.bulk import Done, Engine, Question, predict_shards, together
from metaprior.cli.common import Screen
from metaprior.errors import OptionError, WorkerError
from metaprior.workers import cores, map_on_ray


def on_ray(address: str, workers: int) -> Engine:
    """Buckets mapped over a Ray cluster, all of whose machines see the same folders."""

    def engine(work: Callable[[int], Done], numbers: Sequence[int]) -> Iterator[Done]:
        if numbers:
            yield from map_on_ray(address, work, numbers, workers)

    return engine


def predict_buckets(
    question: Question,
    out: str,
    *,
    workers: int | None,
    ray: str | None,
    plot: Path | None,
    overwrite: bool,
    screen: Screen,
) -> None:
    """Predictions of every task of some shards; a run that was stopped goes on."""
    question.wanted.check()
    if plot is not None:
        raise OptionError("--plot draws a picture of each task of a table; of shards, draw those of a table of a few.")
    if question.at == "-":
        raise OptionError("--at -: of shards, give a file, which can be read more than once.")
    if out == "-" or Path(out).suffix in (".csv", ".parquet"):
        raise OptionError(f"--out {out}: predictions of shards are a folder of Parquet files; give its name.")
    count = cores() if workers is None else workers
    if count < 1:
        raise OptionError(f"--workers {count}: give 1 or more.")
    if ray is None and count > cores():
        screen.say(f"note: --workers {count}, but there are {cores()} cores: more processes than that gain nothing.")
    engine = together(count) if ray is None else on_ray(ray, count)
    try:
        found = predict_shards(question, out, engine, overwrite=overwrite, show=not screen.quiet)
    except WorkerError as error:
        raise WorkerError(f"{error} What is done is kept: the same command goes on from there.") from None
    screen.note(*found.notes)
    kept = f", {found.kept:,} of them by an earlier run" if found.kept else ""
    screen.say(f"{found.rows:,} predictions for {found.tasks:,} tasks written to {out} ({found.files:,} files{kept})")
