"""A project whose tests are put to the proof: its files, what each test runs, and what the tests make of a change."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

from campaign.mutation.changes import Change
from campaign.mutation.server import BROKEN

LONGEST = 20.0
"""Seconds of processor time that a test may take to be among those that are asked."""
ENOUGH = 40.0
"""Seconds of tests, quickest first, that a change is shown to."""
NOTHING_COLLECTED = 5
"""What pytest ends with where a file has no test that may run here, as on a machine without a GPU."""
SPARE = 10.0
"""Seconds of processor time that a test may take besides ten times what it took."""
FIRST = 3.0
"""Seconds of tests that are tried before the files of the others are even imported."""


@dataclass(frozen=True)
class Project:
    """root/src/package has rooms; those have the tests that are asked about them, files below root/tests."""

    root: Path
    package: str
    rooms: Mapping[str, tuple[str, ...]]
    warm: tuple[str, ...] = ()
    """Libraries that are imported once, for all changes."""

    @property
    def source(self) -> Path:
        return self.root / "src"

    def sources(self) -> dict[str, str]:
        """The modules of the rooms, by their place below the package."""
        package = self.source / self.package
        files = [file for room in self.rooms for file in sorted((package / room).rglob("*.py"))]
        return {str(file.relative_to(package)): file.read_text(encoding="utf-8") for file in files}


class Seen(NamedTuple):
    """A test that passes: how long it takes and the lines that it runs, by file."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]


class Outcome(NamedTuple):
    """What the tests made of a change. noticed_by: what failed, None where all passed; asked: how many tests were."""

    change: Change | None
    noticed_by: str | None
    asked: int
    seconds: float


class Bench:
    """A copy of a project and a server that runs tests on it; changes are made to copies of the copy."""

    def __init__(self, project: Project, folder: Path, jobs: int) -> None:
        self.project, self.folder, self.jobs = project, folder, jobs
        self.base = folder / "base"
        self.unread: dict[str, str] = {}
        """Files of tests that cannot be read on this machine, or take too long as a whole; and what was said."""
        shutil.copytree(project.source / project.package, self.base / project.package)
        compileall.compile_dir(self.base, quiet=2)
        command = [sys.executable, "-m", "campaign.mutation.server", str(jobs), str(project.root)]
        self.server = subprocess.Popen(
            [*command, *project.warm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.input, self.output = self.server.stdin, self.server.stdout

    def close(self) -> None:
        self.server.terminate()
        self.server.communicate()

    def watched(self, files: Iterable[str], kept: Path) -> Iterator[list[Seen]]:
        """The tests of each file that pass on the code as it is. kept: a folder for what is known already."""
        kept.mkdir(parents=True, exist_ok=True)
        places = {name: kept / f"{Path(name).stem}-{self._digest(name)}.json" for name in files}
        unknown = [name for name, place in places.items() if not place.exists()]
        tasks = {
            name: self._task(name.replace("/", "."), [{"files": [f"tests/{name}"], "limits": {}}]) for name in unknown
        }
        for task in tasks.values():
            task |= {"watched": str(self.base), "longest": LONGEST, "source": str(self.base), "limit": 900.0}
        for name, (_, found) in self._done(tasks):
            if "unread" in found:
                self.unread[name] = found["unread"]
            else:
                places[name].write_text(json.dumps(self._relative(found["found"])), encoding="utf-8")
        for name, place in places.items():
            yield [] if name in self.unread else _tests(json.loads(place.read_text(encoding="utf-8")))

    def tried(self, changes: Mapping[int, Change | None], tests: list[Seen]) -> Iterator[tuple[int, Outcome]]:
        """Each change, as its tests are through with it. None: no change at all, shown to the tests as any other."""
        tasks, asked = {}, {}
        for k, change in changes.items():
            chosen = asked_about(change, tests) if change else _some(tests, k)
            asked[k] = len(chosen)
            if not chosen:
                yield k, Outcome(change, None, 0, 0.0)
                continue
            tasks[k] = self._task(f"change{k}", _batches(chosen)) | {"limit": 90 + 5 * sum(map(_seconds, chosen))}
        for k, (seconds, found) in self._done(tasks, lambda k: self._changed(tasks[k], changes[k])):
            yield k, Outcome(changes[k], found["found"]["failed"], asked[k], seconds)

    def _changed(self, task: dict[str, Any], change: Change | None) -> None:
        """A copy of the package, of which one file is another."""
        source = Path(task["source"])
        shutil.copytree(self.base, source, copy_function=os.link)
        if change is not None:
            file = source / self.project.package / change.file
            text = change.applied(file.read_text(encoding="utf-8"))
            for old in (file, Path(cache_from_source(str(file)))):
                old.unlink(missing_ok=True)
            file.write_text(text, encoding="utf-8")

    def _task(self, name: str, batches: list[dict[str, Any]]) -> dict[str, Any]:
        scratch = self.folder / name
        source = str(scratch / "src")
        return {"source": source, "scratch": str(scratch), "batches": batches, "package": self.project.package}

    def _done(
        self, tasks: Mapping[Any, dict[str, Any]], prepare: Callable[[Any], None] = lambda key: None
    ) -> Iterator[tuple[Any, tuple[float, dict[str, Any]]]]:
        """What comes of tasks, as it comes. Their folders are made shortly before, and are removed."""
        keys = list(tasks)
        given = min(2 * self.jobs, len(keys))
        for number in range(given):
            self._give(number, tasks[keys[number]], prepare, keys[number])
        for _ in keys:
            if not (line := self.output.readline()):
                raise RuntimeError("the server of tests has ended")
            told = json.loads(line)
            key = keys[told["id"]]
            scratch = Path(tasks[key]["scratch"])
            found = self._found(tasks[key], told["code"])
            shutil.rmtree(scratch)
            if given < len(keys):
                self._give(given, tasks[keys[given]], prepare, keys[given])
                given += 1
            yield key, (told["seconds"], found)

    def _give(self, number: int, task: dict[str, Any], prepare: Callable[[Any], None], key: Any) -> None:
        scratch = Path(task["scratch"])
        scratch.mkdir()
        prepare(key)
        (scratch / "task.json").write_text(json.dumps(task | {"id": number}), encoding="utf-8")
        self.input.write(f"{scratch / 'task.json'}\n")
        self.input.flush()

    def _found(self, task: dict[str, Any], code: int | None) -> dict[str, Any]:
        """What a task left; where it left nothing it crashed or took too long, which tests would notice too."""
        scratch = Path(task["scratch"])
        place = scratch / "found.json"
        found: dict[str, Any] = {"found": {"failed": "the time ran out" if code is None else f"it ended with {code}"}}
        if place.exists():
            found = json.loads(place.read_text(encoding="utf-8"))
            package = found["package"]
            if package and not package.startswith(str(self.folder)):
                raise RuntimeError(f"tests were run on {package}")
        unclear = "watched" not in task and (code != 0) != bool(found["found"]["failed"])
        if "watched" in task and code not in (0, 1, NOTHING_COLLECTED):
            found["unread"] = (scratch / "log").read_text()[-3000:]
        if unclear or code == BROKEN:
            raise RuntimeError(f"tests ended with {code}:\n{(scratch / 'log').read_text()[-3000:]}")
        return found

    def _relative(self, found: dict[str, Any]) -> dict[str, Any]:
        """The tests of a file with lines by the files below the package; none where their process was ended."""
        package = str(self.base / self.project.package) + os.sep
        return {
            name: one | {"lines": {file.removeprefix(package): lines for file, lines in one["lines"].items()}}
            for name, one in found.items()
            if name != "failed"
        }

    def _digest(self, name: str) -> str:
        """Of all that the lines of a test file's tests depend on."""
        digest = hashlib.sha256(sys.version.encode())
        tests = self.project.root / "tests"
        helpers = [file for file in sorted(tests.glob("*.py")) if not file.name.startswith("test_")]
        for file in [*sorted((self.project.source).rglob("*.py")), *helpers, tests / name]:
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


@contextmanager
def bench(project: Project, jobs: int) -> Iterator[Bench]:
    """A bench in a folder of its own, which is removed with it."""
    with tempfile.TemporaryDirectory() as folder:
        opened = Bench(project, Path(folder).resolve(), jobs)
        try:
            yield opened
        finally:
            opened.close()


def asked_about(change: Change, tests: Iterable[Seen]) -> list[Seen]:
    """The tests that run a change, quickest first, until they take long.

    What is run at import is asked of the tests that run something of the function or class it belongs to, or else of
    the module.
    """
    wanted = [change.lines] if not change.at_import else [change.scope, (0, sys.maxsize)]
    for first, last in wanted:
        found = [one for one in tests if any(first <= n <= last for n in one.lines.get(change.file, ()))]
        if found:
            return _first(sorted(found, key=_seconds), ENOUGH)
    return []


def _first(tests: list[Seen], seconds: float) -> list[Seen]:
    """Those at the beginning that take so long together; one at least."""
    total = 0.0
    chosen: list[Seen] = []
    for one in tests:
        total += one.seconds
        if chosen and total > seconds:
            break
        chosen.append(one)
    return chosen


def _some(tests: list[Seen], seed: int) -> list[Seen]:
    """Tests by chance, as many as a change is shown to."""
    return sorted(_first(random.Random(seed).sample(tests, len(tests)), ENOUGH), key=_seconds)


def _batches(tests: list[Seen]) -> list[dict[str, Any]]:
    """The first few tests, and the others. A test may take ten times what it took, and then is one that fails."""
    first = _first(tests, FIRST)
    return [
        {
            "files": sorted({one.name.partition("::")[0] for one in batch}),
            "limits": {one.name: SPARE + 10 * one.seconds for one in batch},
        }
        for batch in (first, tests[len(first) :])
        if batch
    ]


def _seconds(test: Seen) -> float:
    return test.seconds


def _tests(found: dict[str, dict[str, Any]]) -> list[Seen]:
    return [
        Seen(name, one["seconds"], {file: frozenset(lines) for file, lines in one["lines"].items()})
        for name, one in found.items()
        if one["passed"]
    ]
