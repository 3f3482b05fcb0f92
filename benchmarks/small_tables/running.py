"""Each method on each table, in a process of its own with one thread; a result is kept as soon as it is there."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from small_tables.protocol import CONTEXTS, METRICS, Fit, Pair, asked, read_table, scores, splits


class Peer(NamedTuple):
    """A method that is not ours: its file here, and what it must be able to import."""

    module: str
    needs: str
    what: str


PEERS = {
    "mixed effects": Peer("mixed_effects", "scipy", "a B-spline mean and random curves of low rank, by EM"),
    "gpboost": Peer("boosting", "gpboost", "boosted trees for the mean, a level and a Gaussian process for each task"),
    "statsmodels": Peer(
        "linear_mixed", "statsmodels", "MixedLM: a spline mean, a random level and slope for each task"
    ),
}
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def fit_of(method: str) -> Fit:
    if method in PEERS:
        fit: Fit = importlib.import_module(f"small_tables.{PEERS[method].module}").fit
        return fit
    return partial(importlib.import_module("small_tables.ours").fit, method)


def result_file(out: Path, method: str, table: str) -> Path:
    return out / method.replace(" ", "-") / f"{table}.json"


def run_all(methods: Sequence[str], tables: Sequence[Path], out: Path, jobs: int, limit: float) -> None:
    """What has no result yet."""
    left = [(m, t) for t, m in product(tables, methods) if not result_file(out, m, t.stem).exists()]
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_process, method, table, out, limit) for method, table in left]
        try:
            for done, one in enumerate(as_completed(running), 1):
                print(f"{one.result()}; {len(left) - done} of {len(left)} left", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _process(method: str, table: Path, out: Path, limit: float) -> str:
    """One method on one table; a process that ends without a result has failed."""
    start, path = time.perf_counter(), result_file(out, method, table.stem)
    script = Path(__file__).parents[1] / "practice.py"
    words = [sys.executable, "-W", "ignore", str(script), "--out", str(out), "--one", method, str(table)]
    failed = f"more than {limit:.0f} s"
    try:
        done = subprocess.run(words, env=os.environ | ONE_THREAD, timeout=limit, capture_output=True, text=True)
        if done.returncode == -signal.SIGINT:
            return f"{method} on {table.stem}: interrupted"
        failed = f"ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    except subprocess.TimeoutExpired:
        pass
    if not path.exists():
        keep(path, {"failed": failed})
    why = json.loads(path.read_text()).get("failed")
    return f"{method} on {table.stem}: {f'failed, {why}' if why else f'{time.perf_counter() - start:.1f} s'}"


def run_one(method: str, table: Path, out: Path) -> None:
    """In this process; a method that fails has that as its result."""
    tasks = read_table(table)
    try:
        found = judged(fit_of(method), table.stem, tasks)
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    keep(result_file(out, method, table.stem), found)


def judged(fit: Fit, name: str, tasks: dict[str, Pair]) -> dict[str, Any]:
    """Scores of all held-out tasks by context, and seconds of the processor, of all splits together."""
    cells: dict[str, dict[str, list[Any]]] = {}
    fitting = predicting = 0.0
    for split in splits(name, tasks):
        unit = float(np.concatenate([y for _, y in split.train]).std())
        start = time.process_time()
        predict = fit(split.train)
        fitting += time.process_time() - start
        for context in CONTEXTS:
            held = asked(name, split.held, context)
            if not held:
                continue
            start = time.process_time()
            said = predict([one.context for one in held.values()], [one.x for one in held.values()])
            predicting += time.process_time() - start
            cell = cells.setdefault(context, {"tasks": [], **{metric: [] for metric in METRICS}})
            cell["tasks"] += held
            for metric, values in scores(said, [one.y for one in held.values()], unit).items():
                cell[metric] += values
    return {"seconds": {"fit": fitting, "predict": predicting}, "cells": cells}


def keep(path: Path, found: dict[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)
