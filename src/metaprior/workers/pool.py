"""Work divided among processes of one thread each. One that dies is named, with what it was doing."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import torch

from metaprior.errors import DataError, MetapriorError, NumericalError, OptionError, OutputError, WorkerError

Found = TypeVar("Found")

KINDS = (DataError, NumericalError, OptionError, OutputError, MetapriorError)
"""What can go wrong in a worker, and is told as if it had been here."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    work: Callable[[int], Found], numbers: Sequence[int], *, workers: int, what: str
) -> Iterator[tuple[int, Found]]:
    """What the work gives for each of some numbers, as it comes. what: a number stands for, in words.

    The work is sent to the workers once, so that it has to be something that can be pickled.
    """
    left, crew = deque(numbers), list[_Worker]()
    try:
        crew += [_Worker(k + 1, work, what) for k in range(min(workers, len(left)))]
        for worker in crew:
            worker.give(left)
        while busy := [worker for worker in crew if worker.doing is not None]:
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe in ready:
                    number, found = worker.take()
                    worker.give(left)
                    yield number, found
    finally:
        for worker in crew:
            worker.end()


def _context(work: Any) -> Any:
    """Processes that know nothing of this one; where it can be, copies of one that has imported what they need."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([getattr(work, "func", work).__module__])
    return context


class _Failure(NamedTuple):
    """What went wrong in a worker: the kind of error, if a user can put it right, and what was said."""

    kind: type[MetapriorError] | None
    said: str


class _Worker:
    """A process that is given one number at a time."""

    def __init__(self, name: int, work: Callable[[int], Any], what: str) -> None:
        context = _context(work)
        self.pipe, theirs = context.Pipe()
        self.name, self.what, self.doing = name, what, None
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()  # theirs alone, so that its end is seen here

    doing: int | None

    def give(self, left: deque[int]) -> None:
        self.doing = left.popleft() if left else None
        with contextlib.suppress(OSError):  # one that is dead: whoever takes its answer will see
            self.pipe.send(self.doing)

    def take(self) -> tuple[int, Any]:
        number = self.doing
        assert number is not None
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerError(f"{self._said()} died ({self._how()}).") from None
        if isinstance(found, _Failure):
            if found.kind is not None:
                raise found.kind(found.said)
            raise RuntimeError(f"{self._said()} failed:\n{found.said}")
        return number, found

    def _said(self) -> str:
        return f"worker {self.name} (process {self.process.pid}), at {self.what} {self.doing},"

    def _how(self) -> str:
        self.process.join(10)
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        hint = ": was there too little memory?" if -code == signal.SIGKILL else ""
        return f"signal {-code}{hint}"

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, work: Callable[[int], Any]) -> None:
    """What a worker does until there is no more, or until the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it will end it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    with contextlib.suppress(EOFError, OSError):  # nobody waits for an answer any more
        while (number := pipe.recv()) is not None:
            pipe.send(_outcome(work, number))


def _outcome(work: Callable[[int], Any], number: int) -> Any:
    """What the work gives, or what went wrong with it."""
    try:
        return work(number)
    except MetapriorError as error:
        return _Failure(next(kind for kind in KINDS if isinstance(error, kind)), str(error))
    except Exception:
        return _Failure(None, traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
