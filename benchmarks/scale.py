"""Past what fits: a made-up table of many tasks in random order, and how long each step with it takes.

    python benchmarks/scale.py [--tasks 1000000] [--rows 30000000] [--text] [--csv] [--folder FOLDER]
    python benchmarks/scale.py --kills 50 --tasks 100000 --rows 3000000

The table is sharded; functional PCA and a learned prior (deep mean, deep kernel) learn from the shards; and tasks of
five rows are predicted at twenty points each. Each step is a process of its own: seconds, peak memory (resident, of the
largest of its processes, by the kernel's count), rows and megabytes a second.
With --kills a step is killed at so many random moments, and goes on until it is done; the bytes have to be those of a
run that was left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from metaprior.data import Manifest

COMMAND = [sys.executable, "-c", "from metaprior.cli import main; main()"]
BLOCK = 1 << 20


class Step(NamedTuple):
    """What a process took."""

    seconds: float
    memory: int  # bytes, at its peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--buckets", type=int, default=256)
    parser.add_argument("--text", action="store_true", help="tasks are named by text")
    parser.add_argument("--csv", action="store_true", help="the table is text, not Parquet")
    parser.add_argument("--folder", type=Path, help="where to work, and what to keep; default a temporary folder")
    parser.add_argument("--kills", type=int, default=0, help="kill a step at so many random moments")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        table = made_up(folder, options)
        words = ["shard", str(table), "--task", "id", "--buckets", str(options.buckets), "--quiet"]
        if options.kills:
            shards, model = str(killed("shard", words, folder, options)), ["--x", "x", "--y", "y", "--rungs", "fpca"]
            fit = ["fit", shards, *model, "--resume", "--workers", "2", "--quiet"]
            fitted = str(killed("fit", fit, folder, options))
            predict = ["predict", fitted, shards, "--at", "0:10:0.5", "--workers", "2", "--quiet"]
            killed("predict", predict, folder, options)
        else:
            sharding(words, folder / "shards", table, options.rows)
            learning(folder, options)
            predicting(folder, options)


def made_up(folder: Path, options: argparse.Namespace) -> Path:
    """Curves of two components around a mean, at random places, the rows of all in random order."""
    name = f"table-{options.tasks}-{options.rows}{'-text' * options.text}"
    path = folder / f"{name}.{'csv' if options.csv else 'parquet'}"
    if path.exists():
        return path
    start = time.perf_counter()
    rng = np.random.default_rng(options.seed)
    scores = rng.normal(size=(options.tasks, 2)) * [1.0, 0.5]
    part = path.with_name(f".{path.name}")
    schema = pa.schema([("id", pa.string() if options.text else pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    writer = csv.CSVWriter(part, schema) if options.csv else pq.ParquetWriter(part, schema)
    with writer:
        for first in range(0, options.rows, BLOCK):
            count = min(BLOCK, options.rows - first)
            task, x = rng.integers(0, options.tasks, count), rng.uniform(0, 10, count)
            curve = np.sin(x) + scores[task, 0] * np.cos(x / 3) + scores[task, 1] * np.sin(x / 2)
            named = pa.array(task)
            if options.text:
                named = pc.binary_join_element_wise("task-", named.cast(pa.string()), "")
            writer.write_table(pa.table([named, x, curve + 0.1 * rng.normal(size=count)], schema=schema))
    part.rename(path)
    print(
        f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB, made up in {time.perf_counter() - start:.0f} s", flush=True
    )
    return path


def timed(words: Sequence[str], *, quiet: bool = False) -> Step:
    """A command in a process of its own; it has to end well."""
    start = time.perf_counter()
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL if quiet else None)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    return Step(time.perf_counter() - start, usage.ru_maxrss * 1024)  # the largest of it and its workers


def sharding(words: Sequence[str], out: Path, table: Path, rows: int) -> None:
    """The table into shards."""
    step = timed([*words, "--out", str(out), "--overwrite"])
    told("shard", step, rows, table.stat().st_size)
    print(f"  {sum(path.stat().st_size for path in out.iterdir()) / 1e6:,.0f} MB of shards", flush=True)


def learning(folder: Path, options: argparse.Namespace) -> None:
    """Models of all tasks, by two workers; functional PCA by one worker too, which has to come to the same bytes."""
    fit = ["fit", str(folder / "shards"), "--x", "x", "--y", "y", "--quiet", "--overwrite"]
    seconds = {}
    for workers in (2, 1):
        words = [*fit, "--rungs", "fpca", "--workers", str(workers), "--out", str(folder / f"fpca-{workers}.metaprior")]
        step = timed(words)
        seconds[workers] = step.seconds
        told(f"fit, functional PCA, {workers} workers", step, options.rows)
    same = (folder / "fpca-1.metaprior").read_bytes() == (folder / "fpca-2.metaprior").read_bytes()
    print(f"  two workers are {seconds[1] / seconds[2]:.2f} times as fast; the same bytes: {same}", flush=True)
    deep = ["--mean", "deep", "--kernel", "deep", "--workers", "2", "--out", str(folder / "deep.metaprior")]
    told("fit, learned prior, 2 workers", timed([*fit, *deep]), options.rows)


def predicting(folder: Path, options: argparse.Namespace) -> None:
    """As many tasks of five rows, predicted at twenty points each, by two workers."""
    few = argparse.Namespace(**vars(options) | {"rows": 5 * options.tasks})
    new = folder / "new"
    timed(["shard", str(made_up(folder, few)), "--task", "id", "--out", str(new), "--quiet", "--overwrite"])
    tasks = Manifest.read(new).tasks
    for name in ("fpca-2", "deep"):
        words = ["predict", str(folder / f"{name}.metaprior"), str(new), "--at", "0.25:9.75:0.5", "--workers", "2"]
        step = timed([*words, "--out", str(folder / f"ahead-{name}"), "--overwrite", "--quiet"])
        told(f"predict, {name}, 20 ahead, 2 workers", step, 20 * tasks)
        print(f"  {tasks / step.seconds:,.0f} tasks/s", flush=True)


def told(what: str, step: Step, rows: int, size: int | None = None) -> None:
    more = "" if size is None else f", {size / 1e6 / step.seconds:,.0f} MB/s"
    memory, rate = step.memory / 1e9, rows / step.seconds
    print(f"{what}: {step.seconds:.1f} s, {memory:.2f} GB at most; {rate:,.0f} rows/s{more}", flush=True)


def killed(what: str, words: Sequence[str], folder: Path, options: argparse.Namespace) -> Path:
    """Killed at random moments and gone on with, as often as it takes; whenever it is done, the bytes are compared.

    What came of it when it was left alone is what the next step takes.
    """
    alone, out = folder / f"{what}-left-alone", folder / f"{what}-killed"
    for path in (alone, out):
        removed(path)
    begins = timed(["shard", "--help"], quiet=True).seconds
    whole = timed([*words, "--out", str(alone)]).seconds
    expected, rng = content(alone), random.Random(options.seed)
    print(f"{what}, left alone: {whole:.1f} s, {begins:.1f} s of them until it begins", flush=True)
    done, ends, going = 0, 0, False
    while done < options.kills or going:
        start = time.perf_counter()
        process = subprocess.Popen([*COMMAND, *words, "--out", str(out)], start_new_session=True)
        try:
            process.wait(rng.uniform(min(begins, whole / 2), whole) if done < options.kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
            process.wait()
            done, going = done + 1, True
            continue
        if process.returncode or content(out) != expected:
            raise SystemExit(f"{what}, after {done} kills: exit code {process.returncode}, or other bytes")
        ends, whole = ends + 1, min(whole, time.perf_counter() - start)  # the machine may be quicker by now
        going = False
        removed(out)
    print(f"{what}: {done} kills, {ends} times gone on with to the end: the same bytes each time", flush=True)
    return alone


def removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def content(made: Path) -> dict[str, str]:
    """What a file, or each file of a folder, holds, in short."""
    files = [path for path in sorted(made.rglob("*")) if path.is_file()] if made.is_dir() else [made]
    return {str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    main()
