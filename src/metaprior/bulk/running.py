"""All buckets of shards predicted, by any engine; a run that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from metaprior.bulk.bucket import Done, Question, forget, predict_bucket, ready
from metaprior.bulk.folder import Folder
from metaprior.errors import DataError, OutputError
from metaprior.learning import one_thread
from metaprior.notes import Note, told
from metaprior.output import same_file
from metaprior.progress import progress_bar
from metaprior.workers import in_processes

Engine = Callable[[Callable[[int], Done], Sequence[int]], Iterable[Done]]
"""Does a piece of work for each of some numbers, in any order: `alone`, `together(8)`, or one of another library."""


NOT_PREDICTED = "tasks of the points are not predicted: they have no rows in the table, or no point that can be used."


class Outcome(NamedTuple):
    """What was predicted, and what a reader should know."""

    tasks: int
    rows: int
    files: int
    kept: int  # files that an earlier run had made
    notes: list[str]


def predict_shards(
    question: Question, out: str, engine: Engine, *, overwrite: bool = False, show: bool = True
) -> Outcome:
    """Predict every bucket that is not done yet, and write each as one file of the folder."""
    if same_file(out, question.shards):
        raise OutputError(f"{out} is what this command reads: choose another --out.")
    here = ready(question)
    folder = Folder(Path(out), here.made_of, here.fingerprint, here.shards.count)
    points = here.stream.where.tasks
    del here  # a table of points may be large, and workers have their own
    done = folder.begin(overwrite)
    kept = len(done)
    left = [k for k in range(folder.buckets) if k not in done]
    try:
        with progress_bar("predicting", folder.buckets, show=show) as advance:
            advance(amount=kept)
            for one in engine(partial(predict_bucket, question, out), left):
                if one.made_of != folder.fingerprint:
                    raise DataError("the model, the shards or the points were changed while they were read.")
                done[one.bucket] = one
                advance()
    finally:
        folder.tidy()
    tasks, rows, notes = folder.finish([done[k] for k in range(folder.buckets)])
    left_out = Note(max(points - tasks, 0), NOT_PREDICTED, points)
    return Outcome(tasks, rows, folder.buckets, kept, [*notes, *told([left_out])])


def alone(work: Callable[[int], Done], numbers: Sequence[int]) -> Iterator[Done]:
    """In this process, one bucket after another, on one thread: so that others come to the same bytes."""
    with one_thread():
        yield from map(work, numbers)


def together(workers: int) -> Engine:
    """So many processes of one thread each."""

    def engine(work: Callable[[int], Done], numbers: Sequence[int]) -> Iterator[Done]:
        forget()
        for _, found in in_processes(work, numbers, workers=workers, what="bucket"):
            yield found

    return alone if workers == 1 else engine
