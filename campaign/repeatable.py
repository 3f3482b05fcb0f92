"""Repeatable: the same seed gives the same bytes, threads change digits nobody sees, and files of before still open."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import csv

import metaprior
from campaign.parts import Check, Effort, Section, Table
from metaprior import files as model_files
from metaprior.cli import main as command
from metaprior.methods import make_method, named_methods

SIZES, LARGE = (30, 120), 1_500
"""Tasks of the tables: of the smaller, folds are learned together, and methods for many tasks are left out; of the
largest, learning is worth a second thread."""

RUNS = 3
"""Processes that do the same, each with its own hashes of text and its own disorder of memory."""

FITTED, PREDICTED = 1e-4, 1e-9
"""What a second thread may change: of predictions by a model that was learned with two, and by one and the same model.
Relative to the standard deviation that is predicted."""

RESTLESS, AS_GOOD = ("learned both", LARGE), 0.005
"""Of deep networks on many tasks no digit is promised, only how well they predict, in nats per value: their learning
ends before its optimum, by held-out tasks, and carries rounding errors into the parameters on its way."""

FILES = Path(__file__).parents[1] / "tests" / "files"

HOW = """Every method that a file can hold learns from a small table, predicts it to CSV and Parquet, and a comparison
is run, each in {runs} fresh processes: with other hashes of text, with memory in another disorder, on one thread. The
bytes have to be the same: of model files, of predictions, and of reports but for seconds and memory. Then the same with
one and with two threads, where the largest change of a predicted mean or standard deviation, in predicted standard
deviations, has to be below {fitted:g} for models that were learned again, and below {predicted:g} for the same model
asked again, of a task of 600 points, whose matrices threads share. Deep networks that learn from {many:,} tasks are
held to their log density per value, which may differ by {good:g}: errors of 1e-14 in the targets, on one thread, move
their predictions by a hundredth of a standard deviation. Files that earlier versions wrote are opened, and predict what
they predicted then."""


def run(effort: Effort) -> Section:
    names = _names(effort)
    done = [one for _, one in effort.each(partial(_tried, names, effort.seed), len(names), "the same again")]
    found, threads = [one for one, _ in done], [one for _, one in done if one is not None]
    opened = list(_opened())
    planted = _differ([_process(names[0], effort.seed, run, 1, planted=True)["files"] for run in range(2)])
    different = [f"{one['name']}: {', '.join(one['differ'])}" for one in found if one["differ"]]
    predicted = max((one["predicted"] for one in threads), default=0.0)
    restless = [one for one in threads if (one["name"], one["tasks"]) == RESTLESS]
    fitted = max((one["fitted"] for one in threads if one not in restless), default=0.0)
    as_good = max((one["density"] for one in threads), default=0.0)
    bytes_ = sum(one["files"] for one in found)
    checks = [
        Check("the same seed, the same bytes", not different,
              f"{bytes_} files of {len(names)} methods, in {RUNS} processes each"
              + "".join(f"; {said}" for said in different)),
        Check("models learned with one and with two threads predict alike", fitted <= FITTED,
              f"at most {fitted:.1g} standard deviations apart"),
        Check("models learned with one and with two threads predict as well", as_good <= AS_GOOD,
              f"at most {as_good:.1g} nats per value apart"),
        Check("one model predicts alike with one and with two threads", predicted <= PREDICTED,
              f"at most {predicted:.1g} standard deviations apart"),
        Check("files of every format so far open", all(not wrong for _, wrong in opened),
              f"{len(opened)} files" + "".join(f"; {name}: {wrong}" for name, wrong in opened if wrong)),
        Check("found, when it is put in: a file that names the moment it was written", bool(planted),
              ", ".join(planted)),
    ]  # fmt: skip
    rows = tuple((one["name"], one["tasks"], one["fitted"], one["density"], one["predicted"]) for one in threads)
    table = Table(
        "One and two threads: the largest difference, in predicted standard deviations; and in log density per value",
        ("method", "tasks", "learned again", "its log density", "the same model"),
        rows,
    )
    how = HOW.format(runs=RUNS, fitted=FITTED, predicted=PREDICTED, many=LARGE, good=AS_GOOD)
    return Section(
        "Repeatable", how, checks, [table], (), {"files compared": bytes_ * RUNS, "files opened": len(opened)}
    )


def _names(effort: Effort) -> list[tuple[str, int]]:
    """Methods and numbers of tasks; in the smallest campaign a few of them."""
    every = [(name, SIZES[0]) for name in named_methods(lambda one: one.make is not None and one.least <= SIZES[0])]
    every += [(name, SIZES[1]) for name in named_methods(lambda one: one.make is not None and one.least > SIZES[0])]
    every += [("auto", size) for size in SIZES] + [("compare", SIZES[0]), ("reproduce", 0)]
    every += [("shared gp", LARGE), ("learned both", LARGE)]
    random.Random(0).shuffle(every)
    return every[: effort.of(20 * len(every), 1)]


def _tried(names: list[tuple[str, int]], seed: int, number: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """One method in several processes: how many files, and which differ; and what a second thread changes."""
    named = names[number]
    found = [_process(named, seed, run, 1) for run in range(RUNS)]
    files = [one["files"] for one in found]
    same = {"name": _said(named), "files": len(files[0]), "differ": _differ(files)}
    if not found[0]["predicted"]:
        return same, None
    two = _process(named, seed, 0, 2)["predicted"]
    one = found[0]["predicted"]
    gaps = {key: _gap(one[key], two[key]) for key in ("fitted", "predicted")}
    return same, {"name": named[0], "tasks": named[1], "density": abs(one["density"] - two["density"]), **gaps}


def _differ(found: list[dict[str, str]]) -> list[str]:
    return [name for name in found[0] if len({one.get(name) for one in found}) > 1]


def _gap(one: list[list[float]], two: list[list[float]]) -> float:
    first, second = np.array(one), np.array(two)
    return float(np.abs(first - second).max() / np.abs(first[:, 1]).min()) if len(first) else 0.0


def _said(named: tuple[str, int]) -> str:
    return f"{named[0]} ({named[1]} tasks)"


def _process(named: tuple[str, int], seed: int, run: int, threads: int, planted: bool = False) -> Any:
    """What a fresh process makes of a method."""
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    count = str(threads)
    environment = os.environ | {
        "PYTHONPATH": path, "PYTHONHASHSEED": str(run), "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
        "MPLBACKEND": "agg",
    }  # fmt: skip
    asked = json.dumps(
        {"name": named[0], "tasks": named[1], "seed": seed, "run": run, "threads": threads, "planted": planted}
    )
    words = [sys.executable, "-W", "ignore", "-m", "campaign.repeatable", asked]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{_said(named)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- in such a process


def main() -> None:
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    disorder = _disorder(asked["run"])
    if asked["planted"]:
        vars(model_files)["version"] = lambda name: str(time.time_ns())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        told = StringIO()
        with redirect_stdout(told):
            predicted = _done(asked)
        files = {str(path): _in_short(path) for path in sorted(Path().rglob("*")) if path.is_file()}
        os.chdir("/")
    del disorder
    sys.stdout.write(json.dumps({"files": files, "predicted": predicted}) + "\n")


def _disorder(run: int) -> list[Any]:
    """Memory that is taken, so that what comes later lies elsewhere, and elsewhere within a line of the cache."""
    rng = random.Random(run)
    held = [np.ones(rng.randrange(1, 2_000)) for _ in range(2_000 * run)]
    return [one for one in held if rng.random() < 0.5]


def _done(asked: dict[str, Any]) -> dict[str, Any]:
    """Learn, save, predict; or compare or reproduce. What threads may change is given back."""
    name, seed = asked["name"], asked["seed"]
    if name == "reproduce":
        _command("reproduce", "step", "--quick", "--methods", "vanilla,learned both,fpca", "--out", "r", "--seed", seed)
        return {}
    table = _table(asked["tasks"], 1)
    csv.write_csv(table, "table.csv")
    columns = ("--task", "id", "--x", "x", "--y", "y")
    if name == "compare":
        _command("compare", "table.csv", *columns, "--methods", "last value,shared gp,fpca", "--context", 2, "--report",
                 "r", "--out", "m", "--seed", seed)  # fmt: skip
        return {}
    tasks = metaprior.Tasks.from_table(table, task="id", x="x", y="y")
    if name == "auto":
        _command("fit", "table.csv", *columns, "--out", "m", "--seed", seed, "--quiet")
    else:
        metaprior.MetaGP.of(make_method(name, tasks, seed).fit(tasks)).save("m")
    for out in ("p.csv", "p.parquet"):
        _command("predict", "m", "table.csv", "--at", "0:1:0.1", "--samples", 2, "--out", out, "--quiet")
    return _asked_again("m", tasks)


def _asked_again(model: str, tasks: metaprior.Tasks) -> dict[str, Any]:
    """Predictions of the model that was learned; and of a file's, of one task whose matrices threads share."""
    context, target = tasks.context_target(2, seed=0)
    learned = metaprior.load(model).predict(context, target)
    x = np.random.default_rng(2).uniform(0, 1, 600)
    kept = metaprior.load(FILES / "prior.metaprior").condition(x, np.sin(5 * x)).at(np.linspace(0, 1, 300))
    density = float(learned.log_density(target.y).mean())
    found = {"fitted": learned, "predicted": kept}
    said = {key: torch.stack([one.mean[:, 0], one.sd[:, 0]], 1)[:300].tolist() for key, one in found.items()}
    return said | {"density": density}


def _command(*words: object) -> None:
    sys.argv = ["metaprior", *map(str, words)]
    try:
        command()
    except SystemExit as end:
        if end.code:
            raise


def _table(tasks: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(tasks), rng.integers(4, 9, tasks))
    x = rng.uniform(0, 1, len(owner))
    y = np.sin(5 * x) + rng.normal(size=tasks)[owner] + 0.2 * rng.normal(size=len(x))
    return pa.table({"id": [f"t{k}" for k in owner], "x": x, "y": y})


CLOCKS: tuple[Callable[[str], str], ...] = (
    partial(re.compile(r'"[^"]*seconds": (\{[^}]*\}|[\d.e+-]+)').sub, ""),
    partial(re.compile(r'"(peak_memory_mb|[\w ]+, seconds)": [\d.e+-]+').sub, ""),
)


def _in_short(path: Path) -> str:
    """Of a file, without what clocks say. Pages and pictures, which name the seconds, are said to be there."""
    data = path.read_bytes()
    if path.suffix == ".json":
        found = json.loads(data)
        found = {key: value for key, value in found.items() if key not in ("seconds", "peak_memory_mb", "files")}
        text = json.dumps(found)
        for without in CLOCKS:
            text = without(text)
        data = text.encode()
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            data = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
    elif path.suffix in (".html", ".svg"):
        return "there"
    return hashlib.sha256(data).hexdigest()


# ---- files of before


def _opened() -> Iterator[tuple[str, str]]:
    """Each file that an earlier version wrote, and what is wrong with it."""
    expected = json.loads((FILES / "predictions.json").read_text())
    for name, (means, deviations) in expected.items():
        try:
            posterior = metaprior.load(FILES / name).condition([0.1, 0.5], [1.2, 0.7]).at([0.0, 0.9])
        except metaprior.MetapriorError as error:
            yield name, str(error)
            continue
        alike = np.allclose(posterior.mean[:, 0], means, rtol=1e-9) and np.allclose(
            posterior.sd[:, 0], deviations, rtol=1e-9
        )
        yield name, "" if alike else "it predicts something else"
    yield "shards", _shards_opened(FILES / "shards")


def _shards_opened(folder: Path) -> str:
    """Whether shards are read as they were written: by the checksum of each bucket, and by their rows."""
    try:
        shards = metaprior.Shards.open(folder, x="x", y="y")
        rows = sum(len(shards.part(k).x) for k in range(shards.count))
    except metaprior.MetapriorError as error:
        return str(error)
    return "" if rows == len(pq.read_table(folder.parent / "shards.parquet")) else "rows are missing"


if __name__ == "__main__":
    main()
