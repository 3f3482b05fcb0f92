"""Which lines of some files each test runs, and how long it takes: a plugin for pytest."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from campaign.mutation.recorder import FOLDER, INTO, Lines, Recorder


class TooLong(BaseException):
    """A test took more processor time than it may. No `except Exception` of the code under test stops it."""


def limited(seconds: float) -> None:
    """Raise `TooLong` after so much processor time of this process; 0: never."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


class Watch:
    """Notes outcome, seconds and lines of each test. What a fixture of a module does counts for all its users."""

    def __init__(self, folder: str, longest: float, scratch: Path) -> None:
        self.recorder = Recorder(folder)
        self.children = scratch / "children"
        os.environ |= {INTO: str(self.children), FOLDER: folder}
        self.longest = longest
        self.shared: dict[int, tuple[float, Lines]] = {}
        self.found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, begun = self.recorder.taken(), _used()
        try:
            return (yield)
        finally:
            during = self.recorder.taken()
            self.shared[id(fixturedef)] = (_used() - begun, during)  # of the value that tests now see
            self.recorder.lines = defaultdict(set, _joined(before, during))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        self.recorder.taken()
        self.children.mkdir()
        self.passed = False
        begun = _used()
        limited(self.longest)
        try:
            return (yield)
        finally:
            limited(0)
            seconds = _used() - begun
            self.found[item.nodeid] = self._with_shared(
                item, _joined(self.recorder.taken(), *self._of_children()), seconds
            )
            shutil.rmtree(self.children)

    def _with_shared(self, item: Any, lines: Lines, seconds: float) -> dict[str, Any]:
        definitions = item._fixtureinfo.name2fixturedefs.values()
        used = [self.shared[id(one)] for some in definitions for one in some if id(one) in self.shared]
        seconds = max(seconds, sum(taken for taken, _ in used))
        lines = _joined(lines, *(one for _, one in used))
        return {"passed": self.passed, "seconds": seconds, "lines": {file: sorted(n) for file, n in lines.items()}}

    def _of_children(self) -> list[Lines]:
        """The lines that processes ran which a test started."""
        told = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(self.children.iterdir())]
        return [{file: set(numbers) for file, numbers in lines.items()} for lines in told]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self.passed = report.passed
        elif report.failed:
            self.passed = False


class Chosen:
    """Runs some tests alone, in their order, each with a limit in seconds, and keeps the first one that fails."""

    def __init__(self, limits: dict[str, float]) -> None:
        self.limits = limits
        self.failed: str | None = None
        self.ran = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        place = {name: k for k, name in enumerate(self.limits)}
        items[:] = sorted((one for one in items if one.nodeid in place), key=lambda one: place[one.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        limited(self.limits[item.nodeid])
        try:
            return (yield)
        except TooLong:
            self.failed = f"{item.nodeid} (took too long)"
            raise
        finally:
            limited(0)
            self.ran += 1

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = f"{report.nodeid} (cannot be collected)"


def _used() -> float:
    """Seconds of processor time of this process and of those that it started, whatever else the machine does."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _joined(*some: Lines) -> Lines:
    found: Lines = defaultdict(set)
    for lines in some:
        for file, numbers in lines.items():
            found[file] |= numbers
    return found
