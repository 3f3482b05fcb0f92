"""Inputs tried in a process of their own, so that one that kills or hangs it is seen, and named."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import torch

from campaign.hostile.contract import Family, Outcome, Place, judged
from metaprior.seeds import child_seed

ROOM = 1 << 30
"""Bytes of a folder that all processes together may fill."""

RESERVED = 1 << 30
"""Bytes that allocators reserve and need not use."""


@dataclass
class Tally:
    """What a number of inputs came to. found: what broke the contract, with the input's number."""

    tried: int = 0
    done: int = 0
    refused: int = 0
    seconds: float = 0.0  # of the processor
    slowest: float = 0.0
    places: set[str] = field(default_factory=set)
    found: list[tuple[int, Outcome]] = field(default_factory=list)

    def add(self, number: int, outcome: Outcome, seconds: float) -> None:
        self.tried += 1
        self.slowest = max(self.slowest, seconds)
        if outcome.kind == "done":
            self.done += 1
        elif outcome.kind == "refused":
            self.refused += 1
            self.places.add(outcome.where)
        else:
            self.found.append((number, outcome))

    def and_of(self, other: Tally) -> Tally:
        """Of both together."""
        return Tally(
            *(self.tried + other.tried, self.done + other.done, self.refused + other.refused),
            *(self.seconds + other.seconds, max(self.slowest, other.slowest)),
            *(self.places | other.places, self.found + other.found),
        )


def input_of(family: Family, seed: int, number: int, place: Place) -> bytes:
    """The input of this number."""
    return family.make(Random(child_seed(seed, number)), place)


def tried(family: Family, seed: int, numbers: range, home: Path, *, twice: bool = True) -> Tally:
    """What the inputs of these numbers came to, in processes of which the next goes on where one has died.

    twice: one that took too long is tried once more by itself, as the machine may have been busy with something else.
    """
    tally, begun, left = Tally(), _cpu(), numbers
    while left:
        last = left.start - 1
        for last, outcome, took in _in_child(family, seed, left, home):
            if outcome.kind == "hang" and twice:
                tally = tally.and_of(tried(family, seed, range(last, last + 1), home, twice=False))
            else:
                tally.add(last, outcome, took)
        left = range(last + 1, left.stop)
    if twice:
        tally.seconds = _cpu() - begun
    return tally


def _cpu() -> float:
    """Seconds that the processes begun here have computed for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _in_child(family: Family, seed: int, numbers: range, home: Path) -> Iterator[tuple[int, Outcome, float]]:
    """The outcomes as they come; the last is of the input at which the process ended, where it ended too soon."""
    scratch = Path(tempfile.mkdtemp(prefix="hostile-", dir=_quick_folder()))
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of ours hold nothing that a child needs
        child = os.fork()
    if child == 0:
        _as_child(family, seed, numbers, Place(home, scratch), theirs)
    os.close(theirs)
    number = numbers.start
    try:
        for line, took in _lines(ours, family.seconds):
            outcome = (
                Outcome("hang", f"longer than {family.seconds:g} s") if line is None else Outcome(*json.loads(line))
            )
            if outcome.kind == "hang":
                os.kill(child, signal.SIGUSR1)  # it says where it is
                time.sleep(0.2)
                outcome = outcome._replace(where=_told(scratch))
            yield number, outcome, took
            number += 1
            if outcome.kind in ("hang", "memory"):
                break
        else:
            if number < numbers.stop:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                child = 0
                yield number, Outcome("crash", f"the process ended with {status}", _told(scratch)), 0.0
    finally:
        os.close(ours)
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shutil.rmtree(scratch, ignore_errors=True)


def _quick_folder() -> str | None:
    """Memory as a folder, where there is enough of it."""
    quick = "/dev/shm"
    return quick if os.path.isdir(quick) and shutil.disk_usage(quick).free > ROOM else None


def _lines(pipe: int, seconds: float) -> Iterator[tuple[bytes | None, float]]:
    """The lines that come through a pipe, each with the seconds that it took; None for one that does not come."""
    rest, since = b"", time.perf_counter()
    while True:
        ready, _, _ = select.select([pipe], [], [], seconds)
        if not ready:
            yield None, seconds
            return
        block = os.read(pipe, 1 << 16)
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        now = time.perf_counter()
        for line in lines:
            yield line, (now - since) / len(lines)
        since = now


def _as_child(family: Family, seed: int, numbers: range, place: Place, pipe: int) -> None:
    """Try one input after another, and never return."""
    try:
        _prepare(place.scratch, family.memory)
        for number in numbers:
            given = input_of(family, seed, number, place)
            outcome = judged(family, given, place)
            os.write(pipe, json.dumps(outcome).encode() + b"\n")
            if outcome.kind == "memory":  # what it has taken would hide what the next one takes
                break
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(70)


def _prepare(scratch: Path, memory: int) -> None:
    """A process that says nothing, leaves traces of how it died in a file, and cannot take all memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with whoever watches
    said = os.open(scratch / "said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
    faulthandler.enable(said)
    faulthandler.register(signal.SIGUSR1, said)
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    if (now := _data_bytes()) is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (now + 2 * memory + RESERVED, resource.RLIM_INFINITY))


def _data_bytes() -> int | None:
    """What the process has of its own, as its limit counts it; None where that cannot be seen."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), None)


def _told(scratch: Path) -> str:
    """What a process has said on its way out, in short."""
    try:
        lines = (scratch / "said").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    own = [line.strip() for line in lines if "metaprior" in line]
    return " | ".join([*lines[-1:], *own[:2]])[:300] if lines else ""


def one(family: Family, given: bytes, home: Path) -> Outcome:
    """What a single input comes to."""
    return all_of(family, [given], home)[0]


def all_of(family: Family, inputs: Sequence[bytes], home: Path) -> list[Outcome]:
    """What some inputs come to, such as those of a corpus."""
    known = {Random(child_seed(0, k)).getrandbits(64): given for k, given in enumerate(inputs)}
    found = dict.fromkeys(range(len(inputs)), Outcome("done"))

    def make(rng: Random, place: Place) -> bytes:
        return known[rng.getrandbits(64)]

    left = range(len(inputs))
    while left:
        for number, outcome, _ in _in_child(family._replace(make=make), 0, left, home):
            found[number] = outcome
            left = range(number + 1, left.stop)
    return list(found.values())
