"""What is promised for any input whatever: success, or a `MetapriorError` in our words."""

from __future__ import annotations

import resource
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np

from metaprior.errors import MetapriorError, MetapriorWarning

SECONDS = 10.0
"""Longer than this is a hang."""

MEMORY = 2 << 30
"""Bytes by which one input may let a process grow."""

Kind = Literal["done", "refused", "exception", "warning", "not finite", "memory", "hang", "crash"]
KEPT: tuple[Kind, ...] = ("done", "refused")
"""The contract; everything else breaks it."""


class Place(NamedTuple):
    """Folders: of the files that inputs are made from, and one to write to."""

    home: Path
    scratch: Path

    def file(self, content: bytes, name: str) -> Path:
        """A file with this content."""
        path = self.scratch / name
        path.write_bytes(content)
        return path


class Family(NamedTuple):
    """Inputs of one sort. full: how many in the full campaign; block: how many a process tries one after the other.

    make: a mutated input, as bytes from which alone it follows. attempt: what the project does with it, giving the
    numbers that come out; refusals are errors that it raises. seconds: after which it hangs. memory: bytes
    by which one of them may let a process grow.
    """

    name: str
    what: str
    full: int
    block: int
    make: Callable[[Random, Place], bytes]
    attempt: Callable[[bytes, Place], Iterable[Any]]
    seconds: float = SECONDS
    memory: int = MEMORY


class Outcome(NamedTuple):
    """How an input ended: its kind, what was said, and the place in the package that said so."""

    kind: Kind
    said: str = ""
    where: str = ""


def judged(family: Family, given: bytes, place: Place) -> Outcome:
    """Try one input, in this process: what would kill or hang it is for a watcher outside."""
    before = grown()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outcome = _tried(family.attempt, given, place)
    foreign = [one for one in said if not issubclass(one.category, MetapriorWarning)]
    if outcome.kind in KEPT and foreign:
        first = foreign[0]
        text = f"{first.category.__name__}: {str(first.message)[:200]}"
        outcome = Outcome("warning", text, f"{Path(first.filename).name}:{first.lineno}")
    if outcome.kind in KEPT and grown() - before > family.memory:
        outcome = Outcome("memory", f"{(grown() - before) / 2**30:.1f} GB")
    return outcome


def _tried(attempt: Callable[[bytes, Place], Iterable[Any]], given: bytes, place: Place) -> Outcome:
    try:
        for k, numbers in enumerate(attempt(given, place)):
            if not np.isfinite(np.asarray(numbers, dtype=float)).all():
                return Outcome("not finite", f"number {k} of what came out: {str(numbers)[:200]}")
    except MetapriorError as error:
        return Outcome("refused", str(error)[:300], place_of(error.__traceback__))
    except Exception as error:
        kind: Kind = "memory" if isinstance(error, MemoryError) else "exception"
        return Outcome(kind, f"{type(error).__name__}: {str(error)[:300]}", place_of(error.__traceback__))
    return Outcome("done")


def place_of(traceback: TracebackType | None) -> str:
    """The innermost line of the package on the way of an error."""
    found = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if "/metaprior/" in file:
            found = f"{file.rpartition('/metaprior/')[2]}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def grown() -> int:
    """The most memory that this process has had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
