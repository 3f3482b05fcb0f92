"""Children of a process that has imported everything: each does one thing, and may be stopped in the middle of it.

Importing torch takes seconds, so nobody could kill a thousand fresh processes. A fork has everything at hand, and does
the same as a process of its own: it runs the real command line with real words. Libraries have threads in the parent
all the same, and a copy of a lock that one of them holds is held for ever: a child that does not begin is made anew.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from metaprior import MetapriorError
from metaprior.cli import main

PATIENCE = 120.0
"""Seconds after which a child that has not ended is taken to hang."""

BEGUN = 20.0
"""Seconds after which one that has not even begun is made anew."""

FOLDER_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
"""What Python says of files before it touches them."""


class Ended(NamedTuple):
    """How a child has ended. code: as a shell has it below 0 for signals; None where it was stopped for hanging."""

    code: int | None
    seconds: float
    said: str  # on standard error

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def clear(self) -> bool:
        """Whether it is told as an error of the user's, in words."""
        return self.code == 2 and self.said.strip().rsplit("\n", 1)[-1].startswith("error: ")

    def in_short(self) -> str:
        return f"exit code {self.code}, {' / '.join(self.said.strip().splitlines()[-3:])[-300:]!r}"


def command(words: list[str]) -> None:
    """The command line, as `metaprior` runs it."""
    sys.argv = ["metaprior", *words]
    main()


def child(
    work: Callable[[], Any],
    place: Path,
    *,
    moment: float | None = None,
    by: int = signal.SIGKILL,
    before: Callable[[], Any] = lambda: None,
) -> Ended:
    """Do some work in a child that works in a folder. moment: seconds from its beginning, when it is sent a signal.

    before: what it does first, once it is a process of its own.
    """
    pid = _begun(work, place, before)
    began = time.perf_counter()
    code = waited(pid, moment)
    if code is None and moment is not None:
        os.kill(pid, by)
        code = waited(pid, PATIENCE)
    if code is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    seconds, said = time.perf_counter() - began, saying(pid)
    text = said.read_text(errors="replace") if said.exists() else ""  # it may not even have come to that
    said.unlink(missing_ok=True)
    return Ended(code, seconds, text)


def _begun(work: Callable[[], Any], place: Path, before: Callable[[], Any]) -> int:
    """A child that has begun, or is no more; its number."""
    while True:
        hear, tell = os.pipe()
        pid = started(work, place, lambda tell=tell: (before(), os.close(tell)))  # type: ignore[misc, func-returns-value]
        os.close(tell)
        begun = bool(select.select([hear], [], [], BEGUN)[0])  # the end of what it has to say
        os.close(hear)
        if begun:
            return pid
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        saying(pid).unlink(missing_ok=True)


def saying(pid: int) -> Path:
    """What a child says."""
    return Path(os.environ["METAPRIOR_FAULTS"]) / f"said-{pid}"


def started(work: Callable[[], Any], place: Path, before: Callable[[], Any] = lambda: None) -> int:
    """A child that does some work; its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(os.open(saying(os.getpid()), os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.chdir(place)
        before()
        code = _outcome(work)
    finally:
        os._exit(code)


def _outcome(work: Callable[[], Any]) -> int:
    try:
        work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except MetapriorError as error:  # of the library: as the command line tells it
        sys.stderr.write(f"error: {error}\n")
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # too late: it has ended
            signal.signal(number, signal.SIG_IGN)
        sys.stderr.flush()
    return 0


def waited(pid: int, seconds: float | None) -> int | None:
    """How a child has ended within so many seconds; None if it has not."""
    handle = os.pidfd_open(pid)
    try:
        ready = select.select([handle], [], [], PATIENCE if seconds is None else seconds)[0]
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if ready else None


def killed_at_event(number: int, place: Path) -> Callable[[], None]:
    """To be killed at the so-manyth thing that is done to the files of a folder, before it is done.

    A file that is about to be written anew is left empty.
    """
    seen = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in FOLDER_EVENTS and _touches(arguments, place):
            seen += 1
            if seen == number:
                if event == "open" and "w" in str(arguments[1]):
                    os.open(arguments[0], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
                os.kill(os.getpid(), signal.SIGKILL)

    return lambda: sys.addaudithook(look)


def counted_events(into: Path, place: Path) -> Callable[[], None]:
    """To count those things: a byte for each, in a file elsewhere."""
    file = os.open(into, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FOLDER_EVENTS and _touches(arguments, place):
            os.write(file, b".")

    return lambda: sys.addaudithook(look)


def _touches(arguments: tuple[Any, ...], place: Path) -> bool:
    first = arguments[0] if arguments else None
    if not isinstance(first, (str, os.PathLike)):
        return False
    path = os.fspath(first)
    return not os.path.isabs(path) or path.startswith(str(place))


def limited(which: int, amount: int) -> Callable[[], None]:
    """To be allowed no more than so much of something."""
    return lambda: resource.setrlimit(which, (amount, resource.getrlimit(which)[1]))
