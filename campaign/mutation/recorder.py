"""Which lines of some files are run, by this process."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, set[int]]

INTO, FOLDER = "WATCHED_INTO", "WATCHED_FOLDER"
"""Variables of the environment by which processes that a test starts are watched: where to note, and what."""


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
