"""A process that has imported what tests need, but not what they test, and forks itself for each set of tests.

    python -m campaign.mutation.server JOBS ROOT MODULE … < tasks > outcomes

Each line in is the path of a task, each line out an outcome, both JSON. A task has `id`, `source` (the folder with the
package to test), `scratch` (a folder for what is written), `limit` (seconds) and `batches` of tests: each has `files`,
and `limits`, the seconds that each test may take, in their order. A task to watch all tests of some files has `watched`
(the folder whose lines are noted) and `longest` (seconds of a test) besides, and no limits.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

LOOK = 0.02
"""Seconds between two looks at what has ended."""
BROKEN = 70
"""The exit code where not the tests went wrong, but what runs them."""


def main() -> None:
    jobs, root, modules = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    _warm(root, modules)
    lines = os.fdopen(0, "rb", buffering=0)  # one line at a time, so that `select` knows of the others
    waiting: list[dict[str, Any]] = []
    running: dict[int, tuple[dict[str, Any], float]] = {}
    more = True
    while more or waiting or running:
        if more and select.select([lines], [], [], LOOK)[0]:
            line = lines.readline()
            more = bool(line)
            waiting += [json.loads(Path(line.decode().strip()).read_text())] if line else []
        elif not more:
            time.sleep(LOOK)
        while waiting and len(running) < jobs:
            task = waiting.pop(0)
            running[_forked(task)] = (task, time.monotonic())
        _reap(running)


def _warm(root: str, modules: list[str]) -> None:
    """Import what takes long and is never changed. What such a library warns of as it is imported is not ours."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("pytest", "campaign.mutation.watching", *modules):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    os.chdir(root)


def _forked(task: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _redirected(Path(task["scratch"]) / "log")
        code = _tested(task)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirected(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _tested(task: dict[str, Any]) -> int:
    """In the forked process: run the tests on the package in the task's folder; 0 where all pass."""
    import pytest

    from campaign.mutation.watching import Chosen, Watch

    scratch, source = Path(task["scratch"]), task["source"]
    sys.path.insert(0, source)
    own = Path(__file__).parent
    watched = [str(own / "children"), str(own.parents[1])] if "watched" in task else []
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.getcwd(), *watched])
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "--basetemp", str(scratch / "tmp")]
    code = 0
    found: dict[str, Any] = {}
    for batch in task["batches"]:
        chosen = Chosen(batch["limits"])
        watch = Watch(task["watched"], task["longest"], scratch) if task.get("watched") else None
        how = [] if watch else ["-x"]
        code = int(pytest.main([*options, *how, *batch["files"]], plugins=[watch or chosen]))
        found = watch.found if watch else {"failed": chosen.failed}
        if code:
            break
    package = sys.modules[task["package"]].__file__ if task["package"] in sys.modules else None
    (scratch / "found.json").write_text(json.dumps({"code": code, "package": package, "found": found}))
    return code


def _reap(running: dict[int, tuple[dict[str, Any], float]]) -> None:
    """Tell of those that have ended, and end those that take too long, with all that they started."""
    for pid, (task, begun) in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        late = time.monotonic() - begun > task["limit"]
        if not ended and not late:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not ended:
            os.waitpid(pid, 0)
        del running[pid]
        code = None if not ended else os.waitstatus_to_exitcode(status)
        seconds = round(time.monotonic() - begun, 2)
        print(json.dumps({"id": task["id"], "code": code, "seconds": seconds}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
