"""What a server did: counts for Prometheus, and a line for each request without any data in it."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any

from metaprior.serve.settings import Log


class Counts:
    """Requests, seconds and errors, by route and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()
        self.at_work = 0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request that was answered."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[method, route] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """As Prometheus reads it."""
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
        lines = [
            "# HELP metaprior_requests_total Requests that were answered.",
            "# TYPE metaprior_requests_total counter",
        ]
        lines += [
            f'metaprior_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
            for (method, route, status), count in sorted(requests.items())
        ]
        lines += _kind("request_seconds_total", "counter", "Seconds until they were answered.")
        lines += [
            f'metaprior_request_seconds_total{{method="{method}",route="{route}"}} {total:.6f}'
            for (method, route), total in sorted(seconds.items())
        ]
        errors = sum(count for (_, _, status), count in requests.items() if status >= 400)
        lines += [
            "# HELP metaprior_errors_total Requests that were refused or failed.",
            "# TYPE metaprior_errors_total counter",
        ]
        lines += [f"metaprior_errors_total {errors}"]
        lines += _kind("at_work", "gauge", "Requests that are worked on.")
        lines += [f"metaprior_at_work {self.at_work}", ""]
        return "\n".join(lines)


def _kind(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP metaprior_{name} {what}", f"# TYPE metaprior_{name} {kind}"]


def log_request(how: Log, said: dict[str, Any]) -> None:
    """A line about one request: when, what route, which status, how long and how large; no data, names or addresses."""
    if how == "none":
        return
    line = {"time": _now(), **said}
    text = json.dumps(line) if how == "json" else " ".join(str(value) for value in line.values())
    sys.stderr.write(text + "\n")


def log_failure(how: Log, error: Exception) -> None:
    """What nobody has thought of, for whoever runs the server. As JSON it is where it was: its words may hold data."""
    if how != "json":
        traceback.print_exception(error)
        return
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    sys.stderr.write(json.dumps({"time": _now(), "failure": type(error).__name__, "where": where}) + "\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
