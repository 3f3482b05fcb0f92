"""Handlers that break the promise on purpose, in one of nine inputs: each has to be found there, and as what it is."""

from __future__ import annotations

import ctypes
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from campaign.hostile.contract import Family, Kind, Place
from campaign.hostile.watch import tried
from metaprior.errors import DataError
from metaprior.seeds import child_seed

BAD, COUNT = 4, 9
LIMIT = 1 << 28
"""Bytes; less than elsewhere, as it takes a while to fill 2 GB."""


def _raised() -> Any:
    raise KeyError("planted")


def _not_a_number() -> Any:
    return [1.0, float("nan")]


def _endless() -> Any:
    while True:
        time.sleep(0.05)


def _never_back() -> Any:
    """Where no signal that Python handles gets through."""
    ctypes.CDLL(None).sleep(3600)


def _large() -> Any:
    return float(np.ones((LIMIT + (1 << 26)) // 8).sum() > 0)


def _too_large() -> Any:
    """Memory that is not there, told in our words: what it has taken until then is seen all the same."""
    held = []
    try:
        while True:
            held.append(np.ones(1 << 22))
    except MemoryError:
        raise DataError("planted") from None


def _segfault() -> Any:
    return ctypes.string_at(0)


def _leaves() -> Any:
    sys.exit(0)


def _warned() -> Any:
    warnings.warn("planted", DeprecationWarning, stacklevel=1)
    return 0.0


PLANTED: dict[str, tuple[Callable[[], Any], Kind]] = {
    "another exception": (_raised, "exception"),
    "a NaN that comes out": (_not_a_number, "not finite"),
    "a loop without end": (_endless, "hang"),
    "a call that never comes back": (_never_back, "hang"),
    "more memory than there may be": (_large, "memory"),
    "all memory there is, refused in our words": (_too_large, "memory"),
    "a segmentation fault": (_segfault, "crash"),
    "an abort": (os.abort, "crash"),
    "a process that just ends": (_leaves, "crash"),
    "a library's own warning": (_warned, "warning"),
}


def found_planted(name: str) -> bool:
    """Whether the watcher finds it where it is, and nothing elsewhere; the other inputs are tried all the same."""
    bad, kind = PLANTED[name]
    seconds = 0.5 if kind == "hang" else 30.0

    def attempt(given: bytes, place: Place) -> Iterator[Any]:
        if int(given) == BAD:
            yield bad()
        if int(given) % 2:
            raise DataError("refused")
        yield 1.0

    known = {Random(child_seed(0, k)).getrandbits(64): k for k in range(COUNT)}

    def make(rng: Random, place: Place) -> bytes:
        return b"%d" % known[rng.getrandbits(64)]

    found = tried(Family("planted", "", COUNT, COUNT, make, attempt, seconds, LIMIT), 0, range(COUNT), Path())
    return found.tried == COUNT and [(number, one.kind) for number, one in found.found] == [(BAD, kind)]
