"""Which lines of some files each test runs, and how long it takes: a plugin for pytest."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from types import CodeType, FrameType
from typing import Any

import pytest

Lines = dict[str, set[int]]


class TooLong(BaseException):
    """A test took more processor time than it may. No `except Exception` of the code under test stops it."""


def limited(seconds: float) -> None:
    """Raise `TooLong` after so much processor time of this process; 0: never."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


class Recorder:
    """The lines that are run of the files below a folder, since it was last asked."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lines: Lines = defaultdict(set)
        if sys.version_info >= (3, 12):
            events = sys.monitoring
            events.use_tool_id(events.COVERAGE_ID, "mutants")
            events.register_callback(events.COVERAGE_ID, events.events.LINE, self._line)
            events.set_events(events.COVERAGE_ID, events.events.LINE)
        else:
            threading.settrace(self._called)
            sys.settrace(self._called)

    def taken(self) -> Lines:
        """What was run since the last time."""
        lines, self.lines = self.lines, defaultdict(set)
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()
        return lines

    def _line(self, code: CodeType, line: int) -> Any:
        """Each line is told once: then it costs nothing, until the events are started again."""
        if code.co_filename.startswith(self.folder):
            self.lines[code.co_filename].add(line)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._traced if frame.f_code.co_filename.startswith(self.folder) else None

    def _traced(self, frame: FrameType, event: str, argument: object) -> Any:
        self.lines[frame.f_code.co_filename].add(frame.f_lineno)
        return self._traced


class Watch:
    """Notes outcome, seconds and lines of each test. What a fixture of a module does counts for all its users."""

    def __init__(self, folder: str, longest: float) -> None:
        self.recorder = Recorder(folder)
        self.longest = longest
        self.shared: dict[int, tuple[float, Lines]] = {}
        self.found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, begun = self.recorder.taken(), time.perf_counter()
        try:
            return (yield)
        finally:
            during = self.recorder.taken()
            seconds, lines = self.shared.get(id(fixturedef), (0.0, {}))
            self.shared[id(fixturedef)] = (seconds + time.perf_counter() - begun, _joined(lines, during))
            self.recorder.lines = defaultdict(set, _joined(before, during))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        self.recorder.taken()
        self.passed = False
        begun = time.perf_counter()
        limited(self.longest)
        try:
            return (yield)
        finally:
            limited(0)
            own = self.recorder.taken(), time.perf_counter() - begun
            self.found[item.nodeid] = self._with_shared(item, *own)

    def _with_shared(self, item: Any, lines: Lines, seconds: float) -> dict[str, Any]:
        definitions = item._fixtureinfo.name2fixturedefs.values()
        used = [self.shared[id(one)] for some in definitions for one in some if id(one) in self.shared]
        seconds = max(seconds, sum(time for time, _ in used))
        lines = _joined(lines, *(one for _, one in used))
        return {"passed": self.passed, "seconds": seconds, "lines": {file: sorted(n) for file, n in lines.items()}}

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


def _joined(*some: Lines) -> Lines:
    found: Lines = defaultdict(set)
    for lines in some:
        for file, numbers in lines.items():
            found[file] |= numbers
    return found
