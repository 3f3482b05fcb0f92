"""Writing files so that nothing is lost: folders are tried before the work, files appear whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from metaprior.errors import OutputError


def prepare_folder(folder: Path, option: str = "--out") -> None:
    """Make sure that files can be written there, before any work is done. option: what a user gives another with."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".metaprior-{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)  # another machine may have a process of the same number
    except OSError as error:
        raise OutputError(
            f"cannot write to the folder {folder}: {error.strerror or error}. Choose another with {option}."
        ) from None


def check_file(
    path: Path, reads: Iterable[str], *, ours: Callable[[Path], bool], overwrite: bool, option: str = "--out"
) -> None:
    """Make sure that a file can be written there and that nothing is lost by it, before any work is done.

    reads: what the command reads, which it never replaces, whatever name it goes by. ours: whether a file that is there
    is of the kind that such a command makes; any other is replaced only if the user says so (overwrite). option: what a
    user gives another file with.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise OutputError(f"{path}: give the name of a file in a folder that exists.")
    _check_lost(path, list(reads), ours, overwrite, option)
    prepare_folder(path.parent, option)


def check_folder(
    folder: Path,
    names: Iterable[str],
    reads: Iterable[str],
    *,
    ours: Callable[[Path], bool],
    overwrite: bool,
    option: str,
) -> None:
    """The same for files of a folder, which need not exist yet. option: what a user gives another folder with."""
    prepare_folder(folder, option)
    known = list(reads)
    for name in names:
        _check_lost(folder / name, known, ours, overwrite, option)


def _check_lost(path: Path, reads: Iterable[str], ours: Callable[[Path], bool], overwrite: bool, option: str) -> None:
    for name in reads:
        if same_file(path, name):
            raise OutputError(
                f"{path} is what this command reads ({name}), and would be lost: choose another {option}."
            )
    if os.path.lexists(path) and not overwrite and not (path.is_file() and ours(path)):  # a pipe is never read
        raise OutputError(f"{path} exists, and would be lost: choose another {option}, or replace it with --overwrite.")


class _Outlet(io.FileIO):
    """A standard stream whose reader may leave before all is said, as `head` does: the rest goes nowhere."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(content)


def outlive_readers() -> None:
    """From now on, this process does its work to the end whether or not anybody reads what it says."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed before
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif not stream.isatty():
            with contextlib.suppress(OSError):  # it is in memory
                outlet = io.BufferedWriter(_Outlet(stream.fileno(), "w", closefd=False))
                stream.flush()
                how = {"encoding": stream.encoding, "errors": stream.errors, "line_buffering": stream.line_buffering}
                setattr(sys, name, io.TextIOWrapper(outlet, **how))


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two names lead to one file that exists: also by another path, or by a link."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write beside the final name, then move there: a reader never sees half a file."""
    part = path.with_name(f".{os.getpid()}{secrets.randbelow(10**9):09d}.{path.name}")  # ours alone, on any machine
    try:
        write(part)
        part.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
