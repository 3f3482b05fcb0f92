"""What a person types: points, and whole command lines, in this process and in one of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import typer
from pyarrow import csv
from typer.testing import CliRunner

from campaign.hostile.contract import Family, Place
from campaign.hostile.mutations import NUMBERS, TEXTS, mutated, token
from metaprior.cli.app import app
from metaprior.errors import MetapriorError, OptionError
from metaprior.points import points_at

# ---- points ---------------------------------------------------------------------------------------------------------

POINTS = ("3", "1,2,3", "0:4:1", "0:4:0.1", "-1:1:0.25", "x=1", '"x"=1', "1e3", "missing")
MOMENTS_AT = (
    "2020-02-15", "2020-02-15:2020-03-15:7d", "2020-03-28T22:00", "1970-01-01:1970-02-01:1w", "2020-01:2020-03:30min",
    "2020-01-01T00:00:2020-01-02T00:00:6h",
)  # fmt: skip
TWO = ("x=0:4:1,z=5,10", "x=1,z=2:3:1", "z=1,2,3,x=0")


def make_points(rng: Random, place: Place) -> bytes:
    """A text that may have been meant as points, and the inputs that it is for."""
    names, dated, texts = rng.choice(((("x",), (), POINTS), (("x",), ("x",), MOMENTS_AT), (("x", "z"), (), TWO)))
    text = rng.choice(texts if rng.random() < 0.9 else (*POINTS, *MOMENTS_AT, *TWO))
    for _ in range(rng.choice((0, 1, 1, 2))):
        odd = rng.choice((token(rng), rng.choice(texts), rng.choice(NUMBERS), rng.choice((*":,=-0123456789", "x="))))
        at = rng.randrange(len(text) + 1)
        text = text[:at] + odd + text[at + rng.choice((0, 1, 5)) :]
    if rng.random() < 0.2:
        text = mutated(text.encode("utf-8", "replace"), rng, 2).decode("utf-8", "replace")
    return json.dumps([text, names, dated]).encode()


def attempt_points(given: bytes, place: Place) -> Iterator[Any]:
    text, names, dated = json.loads(given)
    yield points_at(text, names, dated)


# ---- command lines --------------------------------------------------------------------------------------------------

FILES = ("past.csv", "past.parquet", "deep.metaprior", "shards", "prior.checkpoint", "nothing", "folder", "empty", "-")
VALUES = (
    "0",
    "1",
    "-1",
    "2",
    "0.5",
    "1e400",
    "nan",
    "x",
    "y",
    "task",
    "task,x",
    "",
    "missing",
    "1:3:1",
    "0,1",
    "a=b",
    "x=1",
)
SOURCES = (
    ["past.csv", "--task", "task", "--x", "x", "--y", "y"],
    ["past.parquet", "--task", "task", "--x", "x", "--y", "y"],
)
BASES: dict[str, tuple[list[str], ...]] = {
    "predict": (
        ["deep.metaprior", "past.csv", "--at", "1:3:1"],
        ["fpca.metaprior", "past.csv", "--at", "missing", "--out", "found.csv"],
        ["two.metaprior", "past.parquet", "--at", "x=1,z=2"],
        ["dated.metaprior", "past.csv", "--at", "1970-01-02"],
        ["deep.metaprior", "shards", "--at", "1", "--out", "predicted"],
    ),
    "fit": tuple(
        [*source, "--out", "new.metaprior", *more]
        for source in SOURCES
        for more in (
            ["--mean", "constant", "--kernel", "rbf", "--epochs", "1"],
            ["--rungs", "gp per task", "--budget", "0"],
        )
    ),
    "suggest": (["deep.metaprior", "past.csv", "--at", "0:3:1", "--points", "1"], ["deep.metaprior", "--at", "1,2,3"]),
    "evaluate": (
        ["deep.metaprior", "past.csv", "--context", "1"],
        ["about.metaprior", "past.parquet", "--context", "2"],
    ),
    "show": (["deep.metaprior"], ["auto.metaprior", "--json"]),
    "shard": (["past.csv", "--task", "task", "--out", "pieces", "--buckets", "2"],),
    "compare": ([*SOURCES[0], "--methods", "last value", "--folds", "2", "--report", "report", "--context", "1"],),
}
SHARES = {"predict": 8, "fit": 2, "suggest": 3, "evaluate": 1, "show": 3, "shard": 3, "compare": 1}
LONGEST = 60.0
"""Seconds for a command with a process of its own: most of it is starting."""

DEAR = {"--plot", "--html", "--pictures", "--ray", "--thorough", "--workers", "--report", "--device", "--help"}
"""Options that are not drawn: what they make takes long, or asks another machine."""


@lru_cache(maxsize=1)
def _known() -> dict[str, list[tuple[str, bool]]]:
    """The options of each command, and whether each is a flag."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {
        name: [
            (one.opts[0], bool(one.is_flag))
            for one in commands[name].params
            if one.param_type_name == "option" and one.opts[0] not in DEAR
        ]
        for name in BASES
    }


def make_arguments(rng: Random, place: Place) -> bytes:
    """A command that works, with one to some arguments that are others, more, or gone."""
    command = rng.choices(list(SHARES), list(SHARES.values()))[0]
    words = list(rng.choice(BASES[command]))
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.randrange(7)
        if kind < 4:
            name, flag = rng.choice(_known()[command])
            words += [name] if flag else [name, _word(rng)]
        elif kind == 4 and words:
            words[rng.randrange(len(words))] = _word(rng)
        elif kind == 5 and words:
            del words[rng.randrange(len(words))]
        else:
            words.insert(rng.randrange(len(words) + 1), _word(rng))
    safe = [word for word in words if "\0" not in word and not any(word.startswith(one) for one in DEAR)]
    if "shards" in safe and command in ("predict", "fit"):
        safe += ["--workers", "1"]  # no processes of its own
    return json.dumps([command, *(word.replace("/", "|") for word in safe)]).encode()


def _word(rng: Random) -> str:
    found = rng.choice((rng.choice(FILES), rng.choice(VALUES), rng.choice(VALUES), token(rng), rng.choice(TEXTS)))
    return found.encode("utf-8", "replace").decode()


def _workplace(place: Place) -> Path:
    """A folder with the files that commands name, as new."""
    folder = place.scratch / "work"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "folder").mkdir(parents=True)
    (folder / "empty").touch()
    for path in place.home.iterdir():
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)
    return folder


@lru_cache(maxsize=1)
def _listed(home: Path) -> frozenset[str]:
    return frozenset(path.name for path in home.iterdir()) | {"folder", "empty"}


def _tidied(place: Place) -> Path:
    """The same folder again, without what commands have left there; what they never write to is not copied anew."""
    folder = place.scratch / "work"
    if not folder.exists():
        return _workplace(place)
    for path in folder.iterdir():
        if path.name not in _listed(place.home):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("past.csv", "deep.metaprior", "fpca.metaprior"):
        if (folder / name).read_bytes() != (place.home / name).read_bytes():
            shutil.copyfile(place.home / name, folder / name)
    return folder


def attempt_arguments(given: bytes, place: Place) -> Iterator[Any]:
    """Run a command in this process, as `metaprior` does, and look at the table that it writes."""
    yield from _as_command(_tidied(place), given)


def _as_command(folder: Path, given: bytes) -> Iterator[Any]:
    os.chdir(folder)
    result = CliRunner().invoke(app, json.loads(given), input="task,x,y\na,1,2\na,2,\n")
    error = result.exception
    if isinstance(error, SystemExit):
        if result.exit_code not in (0, 2):
            raise RuntimeError(f"exit code {result.exit_code}")
        if result.exit_code == 2:
            raise OptionError(result.output[-200:])
    elif isinstance(error, OSError) and not isinstance(error, MetapriorError):
        raise OptionError(str(error))  # `metaprior.cli.main` tells it so
    elif error is not None:
        raise error
    yield from outputs(Path("."))


def outputs(folder: Path) -> Iterator[Any]:
    """The numbers of tables that were written."""
    for path in folder.glob("found*"):
        if not path.is_file():
            continue
        table = pq.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
        for name in table.column_names:
            if re.fullmatch(r"(.*_)?(mean|sd|lower|upper)", name):
                yield np.asarray(table[name], dtype=float)


def attempt_command(given: bytes, place: Place) -> Iterator[Any]:
    """Run a command in a process of its own: its exit code and what it says."""
    folder = _tidied(place)
    command = [sys.executable, "-m", "metaprior", *json.loads(given)]
    here = os.pathsep.join(os.path.abspath(one) for one in sys.path if one)
    ended = subprocess.run(
        command,
        cwd=folder,
        input=b"task,x,y\na,1,2\na,2,\n",
        capture_output=True,
        env=os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"},
        timeout=LONGEST - 5,  # before the watcher ends this one, and leaves that behind
    )
    said = ended.stderr.decode("utf-8", "replace")
    if ended.returncode not in (0, 2) or "Traceback" in said:
        raise RuntimeError(f"exit code {ended.returncode}: {said[-300:]}")
    if ended.returncode == 2:
        raise OptionError(said[-200:])
    yield from outputs(folder)


# ---- pipes ----------------------------------------------------------------------------------------------------------

PIPED = (
    ["predict", "pipe", "past.csv", "--at", "1"],
    ["predict", "deep.metaprior", "past.csv", "--at", "1", "--out", "pipe"],
    ["suggest", "deep.metaprior", "past.csv", "--at", "1", "--out", "pipe"],
    ["suggest", "pipe", "--at", "1"],
    ["evaluate", "pipe", "past.csv"],
    ["show", "pipe"],
    ["show", "deep.metaprior", "--html", "pipe"],
    ["fit", *SOURCES[0], "--mean", "constant", "--kernel", "rbf", "--epochs", "1", "--out", "pipe"],
    ["fit", *SOURCES[0], "--from", "pipe", "--out", "new.metaprior"],
    ["fit", *SOURCES[0], "--out", "piped"],  # what is kept of its training is a pipe
    ["compare", *SOURCES[0], "--methods", "last value", "--folds", "2", "--context", "1", "--out", "pipe"],
)
"""Commands one file of which is a pipe to which nobody writes. (A table may come through one: such would wait.)"""


def make_piped(rng: Random, place: Place) -> bytes:
    ending = rng.choice(("", ".csv", ".parquet", ".metaprior", ".html", " é"))
    words = [f"pipe{ending}" if word == "pipe" else word for word in rng.choice(PIPED)]
    more = (["--seed", "1"], ["--quiet"], ["--resume"], ["--overwrite"], ["--json"])
    return json.dumps(words + (rng.choice(more) if rng.random() < 0.5 else [])).encode()


def attempt_piped(given: bytes, place: Place) -> Iterator[Any]:
    """Run the command: it takes no pipe for a model, and reads none to know whether it may be replaced."""
    folder = _tidied(place)
    for word in {*json.loads(given), ".piped.checkpoint"}:
        if "pipe" in word and word != "piped":
            os.mkfifo(folder / word)
    yield from _as_command(folder, given)


# ---- trainings that were stopped ------------------------------------------------------------------------------------

KEPT = {"new.metaprior": ".new.metaprior.checkpoint", "past.metaprior": ".past.metaprior.checkpoint"}
"""What is kept of a training meanwhile, by the name of its model; the second is the name that a model has by itself."""


def make_kept(rng: Random, place: Place) -> bytes:
    """A command that fits, in whose place another training was stopped."""
    words = ["fit", *rng.choice(BASES["fit"])]
    if rng.random() < 0.3:
        at = words.index("--out")
        del words[at : at + 2]
    for _ in range(rng.choice((0, 1, 1))):
        name, flag = rng.choice([one for one in _known()["fit"] if one[0] not in ("--out", "--overwrite", "--resume")])
        words += [name] if flag else [name, _word(rng)]
    more = rng.choice(([], [], ["--overwrite"], ["--resume"]))
    return json.dumps([word.replace("/", "|") for word in words if "\0" not in word] + more).encode()


def attempt_kept(given: bytes, place: Place) -> Iterator[Any]:
    """Run it: what is kept stays as it is, unless the command may replace it or goes on with it."""
    folder, words = _tidied(place), json.loads(given)
    content = (place.home / "prior.checkpoint").read_bytes()
    for name in KEPT.values():
        (folder / name).write_bytes(content)
    try:
        yield from _as_command(folder, given)
    finally:
        lost = [
            name for name in KEPT.values() if not (folder / name).exists() or (folder / name).read_bytes() != content
        ]
        if lost and words[-1] not in ("--overwrite", "--resume"):
            raise RuntimeError(f"{lost[0]} is lost")


# ---- one task -------------------------------------------------------------------------------------------------------


def make_alone(rng: Random, place: Place) -> bytes:
    """A command that fits a table of one task, of one to some rows."""
    words = ["fit", "alone.csv", *SOURCES[0][1:], "--out", "new.metaprior", "--overwrite"]
    for _ in range(rng.choice((0, 1, 2))):
        words += rng.choice(
            (["--epochs", "2"], ["--budget", "0"], ["--mean", "linear"], ["--kernel", "rbf"], ["--quiet"])
        )
    return json.dumps([rng.choice((1, 2, 9)), *words]).encode()


def attempt_alone(given: bytes, place: Place) -> Iterator[Any]:
    """Run it: where no mean or kernel is named, it makes no model."""
    folder = _tidied(place)
    rows, *words = json.loads(given)
    (folder / "alone.csv").write_text("task,x,y\n" + "".join(f"a,{k},{k * k}\n" for k in range(rows)))
    yield from _as_command(folder, json.dumps(words).encode())
    if "--mean" not in words and "--kernel" not in words:
        raise RuntimeError("a prior was learned from one task")


# ---- targets that cannot have every value ---------------------------------------------------------------------------

TARGETS: dict[str, tuple[Callable[[Random], float], str]] = {
    "yes or no": (lambda rng: float(rng.random() < 0.3), "--support 0,1 --integer"),
    "counts": (lambda rng: float(int(rng.expovariate(0.3))), "--support 0, --integer"),
    "rain": (lambda rng: max(rng.gauss(0, 1), 0.0), "--support 0,"),
    "doses": (lambda rng: rng.expovariate(1.0), "--support 0,"),
    "scores": (lambda rng: float(min(max(round(rng.gauss(9, 6)), 3), 15)), "--support 3,15 --integer"),
    "heights": (lambda rng: rng.gauss(150, 9), ""),
}
"""What targets are drawn from, and the options that `fit` is to name."""


def make_targets(rng: Random, place: Place) -> bytes:
    """A column of targets; in a third of them the user has said what they can be."""
    name = rng.choice(list(TARGETS))
    values = [TARGETS[name][0](rng) for _ in range(120)]
    given = rng.choice(("", "", TARGETS[name][1])).split()
    return json.dumps([name, values, given]).encode()


def attempt_targets(given: bytes, place: Place) -> Iterator[Any]:
    """Fit them: the options are named where nothing was said and there is something to say."""
    name, values, said = json.loads(given)
    os.chdir(_tidied(place))
    rows = "".join(f"t{k % 12},{k // 12},{value!r}\n" for k, value in enumerate(values))
    Path("targets.csv").write_text(f"task,x,y\n{rows}")
    words = ["--task", "task", "--x", "x", "--y", "y", "--mean", "constant", "--kernel", "rbf", "--epochs", "1"]
    result = CliRunner().invoke(app, ["fit", "targets.csv", *words, "--out", "new.metaprior", "--overwrite", *said])
    if result.exit_code:
        raise RuntimeError(result.output[-300:])
    named = re.findall(r"If it can have no others, add (.*?): predictions", result.stderr.replace("\n", " "))
    if named != ([TARGETS[name][1]] if TARGETS[name][1] and not said else []):
        raise RuntimeError(f"{name}: {named}")
    yield 0.0


# ---- readers that leave ---------------------------------------------------------------------------------------------


def make_left(rng: Random, place: Place) -> bytes:
    """A command that works, and which of its streams have no reader."""
    command = rng.choice([name for name in BASES if name != "compare"])
    return json.dumps([rng.choice(("1", "2", "12")), command, *rng.choice(BASES[command])]).encode()


def attempt_left(given: bytes, place: Place) -> Iterator[Any]:
    """Run it in a process of its own whose readers leave at once: it does all that it does otherwise."""
    folder = _tidied(place)
    streams, *words = json.loads(given)
    ours, theirs = os.pipe()
    os.close(ours)
    stdout, stderr = (theirs if number in streams else subprocess.DEVNULL for number in "12")
    here = os.pathsep.join(os.path.abspath(one) for one in sys.path if one)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "metaprior", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"},
            timeout=LONGEST - 5,
        )
    finally:
        os.close(theirs)
    if ended.returncode:
        raise RuntimeError(f"exit code {ended.returncode}")
    if "--out" in words and not (folder / words[words.index("--out") + 1]).exists():
        raise RuntimeError(f"{words} has written nothing")
    yield from outputs(folder)


FAMILIES = (
    Family("points", "what --at is given", 190_000, 5000, make_points, attempt_points),
    Family("command lines", "options and arguments, in this process", 20_000, 50, make_arguments, attempt_arguments),
    Family("pipes", "commands that are given one for a model or an output", 300, 20, make_piped, attempt_piped),
    Family("stopped trainings", "fits in whose place one is kept", 500, 20, make_kept, attempt_kept),
    Family("readers that leave", "commands whose output nobody reads", 100, 4, make_left, attempt_left, LONGEST),
    Family("one task", "fits of tables that have no more", 200, 20, make_alone, attempt_alone),
    Family("targets", "fits of those that cannot have every value", 300, 20, make_targets, attempt_targets),
    Family("commands", "the same, each in a process of its own", 300, 4, make_arguments, attempt_command, LONGEST),
)
