"""One bucket of shards predicted, and written as one Parquet file: the unit of work of any engine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metaprior.data import EMBEDDED, Manifest, Shards, read_table
from metaprior.errors import DataError, NumericalError
from metaprior.frames import Stream, Wanted
from metaprior.model import load
from metaprior.notes import Note
from metaprior.output import write_whole
from metaprior.points import points_at
from metaprior.tasks import TrainedOn, task_owners

KEY = b"metaprior"
"""Under which a file says what it is of."""

PIECE = 1_000_000
"""Rows, known and asked ones, that are predicted and written at a time: a bucket may have any number of them."""


class Question(NamedTuple):
    """What is asked of which tasks: small, and the same wherever it is answered."""

    model: str
    shards: str
    at: str  # points, the name of a table, or "missing"
    wanted: Wanted = Wanted()
    delimiter: str | None = None  # of that table


class Done(NamedTuple):
    """What became of a bucket."""

    bucket: int
    made_of: str  # the fingerprint of everything that its predictions follow from
    tasks: int
    rows: int
    notes: list[Note]


class Ready(NamedTuple):
    """What a process needs to answer, read once."""

    shards: Shards
    stream: Stream
    made_of: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.made_of, sort_keys=True).encode()).hexdigest()


def ready(question: Question) -> Ready:
    """Everything that a question needs, read once; whatever is wrong with it is told here."""
    files = (question.model, os.path.join(question.shards, "manifest.json"), question.at)
    stamps = [os.stat(name) for name in files if os.path.isfile(name)]
    return _ready(question, tuple((one.st_mtime_ns, one.st_size) for one in stamps))


@lru_cache(maxsize=1)
def _ready(question: Question, stamps: tuple[tuple[int, int], ...]) -> Ready:
    """The same while its files are."""
    gp = load(question.model)
    trained = gp.trained_on_
    columns, known = trained.columns, [name for name, _ in Manifest.read(question.shards).schema]
    about = [one for one in columns.task_x if one.name in known]  # else the points have them
    shards = Shards.open(question.shards, task=columns.task, x=columns.x, y=columns.y, task_x=about)
    at = where_of(question.at, trained, question.delimiter)
    _check_asked(at, shards)
    stream = Stream(gp, at, question.wanted)
    is_file = question.at not in EMBEDDED and os.path.isfile(question.at)
    made_of = {
        "model": _sha256(question.model),
        "shards": shards.fingerprint,
        "at": f"a table, sha256 {_sha256(question.at)}" if is_file else question.at,
        **question.wanted._asdict(),
        **{name: version(name) for name in ("metaprior", "torch", "pyarrow")},
    }
    return Ready(shards, stream, made_of)


def forget() -> None:
    """Let go of what was read."""
    _ready.cache_clear()
    pa.default_memory_pool().release_unused()


def where_of(at: str, trained_on: TrainedOn, delimiter: str | None) -> Any:
    """Where to predict: a second table, `missing`, or points."""
    columns = trained_on.columns
    if at == "missing":
        return at
    if at == "-" or at in EMBEDDED or (os.path.exists(at) and not os.path.isdir(at)):
        optional = [one.name for one in columns.task_x]
        return read_table(at, columns._replace(y=()), delimiter, optional=optional)
    return points_at(at, columns.x, trained_on.dated)


def _check_asked(at: Any, shards: Shards) -> None:
    """Whether any row lacks a target, where those are asked; of a column that is no number nobody knows yet."""
    counts = [shards.manifest.moments.get(name) for name in shards.columns.y]
    if isinstance(at, str) and all(one is not None and not one.missing for one in counts):
        named = " or ".join(map(repr, shards.columns.y))
        raise DataError(f"{shards.folder}: no row has an empty {named}: there is nothing to predict.")


def predict_bucket(question: Question, out: str, k: int) -> Done:
    """Predict the tasks of a bucket, and write them to the folder as one file, whole or not at all."""
    here = ready(question)
    shards, stream, table = here.shards, here.stream.afresh(), here.shards.table(k)

    def done() -> Done:
        return Done(k, here.fingerprint, stream.tasks, stream.rows, stream.notes)

    def write(path: Path) -> None:
        pieces = _pieces(table, shards.columns.task, stream.where.each)
        batches = (batch for piece in pieces for batch in stream.predicted(piece))
        first = next(batches)
        repeated = [*shards.columns.task, *shards.columns.x]
        with pq.ParquetWriter(path, stream.schema, use_dictionary=repeated) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
            writer.add_key_value_metadata({KEY: json.dumps(done())})

    try:
        write_whole(part_file(out, k), write)
    except (DataError, NumericalError) as error:
        raise type(error)(f"{shards.folder / shards.manifest.buckets[k].file}: {error}") from error
    return done()


def part_file(out: str | Path, k: int) -> Path:
    return Path(out) / f"part-{k:05d}.parquet"


def done_before(out: str | Path, k: int) -> Done | None:
    """What became of a bucket, if its file is there and whole."""
    try:
        found = Done(*json.loads(pq.read_metadata(part_file(out, k)).metadata[KEY]))
        return found._replace(notes=[_note(one) for one in found.notes])
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return None


def _note(said: Sequence[Any]) -> Note:
    note = Note(*said)
    return note._replace(names=tuple(note.names))


def _pieces(table: pa.Table, task: tuple[str, ...], each: int) -> Iterator[pa.Table]:
    """The table, whose rows stand task by task, in pieces of whole tasks; each: points that each task is asked at."""
    if table.num_rows * (1 + each) <= PIECE:
        yield table
        return
    owner, _ = task_owners(nw.from_native(table, eager_only=True), task)
    sizes = np.bincount(owner)
    number = (np.cumsum(sizes + each) - 1) // PIECE
    ends = np.cumsum(sizes)[np.append(number[1:] != number[:-1], True)]
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield table.slice(start, end - start)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
