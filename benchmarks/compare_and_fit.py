"""Do `compare` and `fit` agree? The recommended method and the choice of `fit` on the same held-out tasks.

    python benchmarks/compare_and_fit.py --data FOLDER_OF_CSV_FILES --out FOLDER [--jobs 16] [--tables orange,oxboys]
        [--folds 5] [--seconds 540]

A table is a CSV file with the columns task, x (x2) and y. The methods that `compare` tries by default, and `MetaGP()`
as `fit` learns it, are fitted without each fold of the tasks and scored on that fold from the same random contexts. A
table holds if the recommended method and the choice of `fit` are within two standard errors of each other, in log
density per value over the tasks of all folds.

Each fit of a method without a fold is a file in FOLDER/parts, and each finished table a file in FOLDER. What is there
is not run again, so a run that was stopped goes on. A process has one thread.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import numpy as np
import torch

from metaprior import MetaGP, Tasks
from metaprior.errors import MetapriorError
from metaprior.methods import make_method, named_methods
from metaprior.scoring import Scores, joined_scores, scores_by_setting
from metaprior.selection import Comparison
from metaprior.splits import default_sizes, k_folds, random_sizes
from metaprior.tasks import resolution

FIT, SEED, METRIC = "fit", 0, "log_likelihood"
SETTINGS = "settings"


class Job(NamedTuple):
    """One method, fitted without one fold of one table."""

    table: Path
    method: str
    fold: int
    folds: int
    out: Path

    @property
    def file(self) -> Path:
        return self.out / "parts" / f"{self.table.stem}.{self.folds}.{self.fold}.{self.method.replace(' ', '_')}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--tables", default="", help="names of tables; all by default")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further fit is begun after these")
    asked = parser.parse_args()
    there = sorted(asked.data.glob("*.csv"))
    names = asked.tables.split(",") if asked.tables else [path.stem for path in there]
    tables = [path for path in there if path.stem in names]
    if unknown := set(names) - {path.stem for path in tables}:
        parser.error(f"no table {', '.join(sorted(unknown))} in {asked.data}.")
    (asked.out / "parts").mkdir(parents=True, exist_ok=True)
    tables.sort(key=lambda path: -path.stat().st_size)
    jobs = [
        Job(table, method, fold, asked.folds, asked.out)
        for table in tables
        for method in (FIT, *sorted(_methods(), key=lambda name: name != "auto"))
        for fold in range(asked.folds)
    ]
    run_all([job for job in jobs if not job.file.exists()], asked.jobs, asked.seconds, tables, asked)
    summary(asked.out, asked.folds, [path.stem for path in tables])


def _methods() -> tuple[str, ...]:
    """What `compare` tries by default."""
    return named_methods(lambda one: one.compared)


def run_all(jobs: list[Job], processes: int, seconds: float, tables: Iterable[Path], asked: argparse.Namespace) -> None:
    """The jobs in several processes; a table's row as soon as all of its jobs are done."""
    began, waiting = time.perf_counter(), list(jobs)
    for table in tables:
        finish(table, asked)
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        running: dict[Any, Job] = {}
        while running or (waiting and time.perf_counter() - began < seconds):
            while waiting and len(running) < processes and time.perf_counter() - began < seconds:
                job = waiting.pop(0)
                running[pool.submit(run_one, job)] = job
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
                finish(running.pop(future).table, asked)
    if waiting:
        print(f"{len(waiting)} fits are left: run the same command again.")


def read(table: Path) -> Tasks:
    """A table as tasks."""
    with table.open(newline="") as file:
        _, *rows = csv.reader(file)
    found: dict[str, list[list[float]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append([float(value) for value in row[1:]])
    parts = {name: np.array(values) for name, values in found.items()}
    return Tasks.from_pairs([(part[:, :-1], part[:, -1]) for part in parts.values()], list(parts))


def run_one(job: Job) -> None:
    """Fit one method without a fold and score it there; the file is written when all is known."""
    tasks = read(job.table)
    contexts, fold = random_sizes(default_sizes(tasks), SEED), k_folds(tasks, job.folds, SEED)[job.fold]
    train, judge = tasks.select(fold.train), tasks.select(fold.judge)
    began, found = time.perf_counter(), {}
    if contexts.where_possible(judge):
        try:
            if job.method == FIT:
                method: Any = MetaGP(seed=SEED, progress=False).fit(train)
                found["chosen"] = method.method_.chosen_
                found["why"] = method.method_.why_
            else:
                method = make_method(job.method, train, SEED, contexts).fit(train)
            scores = scores_by_setting(method, judge, contexts, resolution(tasks))
            found[SETTINGS] = {
                setting: {"tasks": one.ids, "values": one.values[METRIC].tolist()} for setting, one in scores.items()
            }
        except MetapriorError as error:
            found["error"] = str(error)
    found["seconds"] = time.perf_counter() - began
    part = job.file.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(job.file)


def finish(table: Path, asked: argparse.Namespace) -> None:
    """Write a table's row, and print it, if all of its jobs are done."""
    file, methods = asked.out / f"{table.stem}.{asked.folds}.json", (FIT, *_methods())
    files = {name: [Job(table, name, k, asked.folds, asked.out).file for k in range(asked.folds)] for name in methods}
    if file.exists() or not all(path.exists() for paths in files.values() for path in paths):
        return
    parts = {name: [json.loads(path.read_text()) for path in paths] for name, paths in files.items()}
    failed = {name: one["error"] for name, found in parts.items() for one in found if "error" in one}
    scores: dict[tuple[str, str], list[Scores]] = {}
    for name, found in parts.items():
        for part in found if name not in failed else ():
            for setting, said in part.get(SETTINGS, {}).items():
                values = torch.tensor(said["values"], dtype=torch.float64)
                scores.setdefault((name, setting), []).append(Scores(tuple(said["tasks"]), {METRIC: values}))
    joined = {key: joined_scores(some, [METRIC]) for key, some in scores.items()}
    compared = Comparison({key: one for key, one in joined.items() if key[0] != FIT}, ())
    both, recommended = Comparison(joined, ()), compared.recommended
    ahead = both.against(recommended, FIT)
    row = {
        "table": table.stem,
        "folds": asked.folds,
        "tasks": ahead.tasks,
        "recommended": recommended,
        "best": compared.best,
        "ahead_of_fit": ahead.mean,
        "stderr": ahead.stderr,
        "holds": abs(ahead.mean) <= 2 * (ahead.stderr or 0.0),
        "density": {name: both.density(name)[:2] for name in both.methods},
        "against_fit": {name: both.against(name, FIT)[:2] for name in both.methods if name != FIT},
        "chosen": [part.get("chosen") for part in parts[FIT]],
        "why": [part.get("why") for part in parts[FIT]],
        "failed": failed,
        "seconds": {name: sum(part["seconds"] for part in found) for name, found in parts.items()},
    }
    file.write_text(json.dumps(row, indent=1) + "\n")
    print(line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    """A row in words."""
    return (
        f"{row['table']:14s}{row['tasks']:5d} tasks  recommended {row['recommended']:15s} "
        f"{row['ahead_of_fit']:+.4f} ± {row['stderr'] or 0.0:.4f} from fit  {'' if row['holds'] else 'DIFFERS'}"
    )


def summary(out: Path, folds: int, tables: list[str]) -> None:
    """All tables that are finished."""
    files = [out / f"{name}.{folds}.json" for name in sorted(tables)]
    rows = [json.loads(path.read_text()) for path in files if path.exists()]
    if not rows:
        print("no table is finished.")
        return
    print(f"\n{len(rows)} of {len(tables)} tables, {folds} folds\n")
    for row in rows:
        print(line(row))
    differ = [row["table"] for row in rows if not row["holds"]]
    print(
        f"\nwithin two standard errors on {len(rows) - len(differ)} of {len(rows)}; not on: {', '.join(differ) or '-'}"
    )
    for name in dict.fromkeys(name for row in rows for name in row["against_fit"]):
        gaps = [row["against_fit"][name] for row in rows if name in row["against_fit"]]
        counts = [sum(sign * gap > 2 * (error or 0.0) for gap, error in gaps) for sign in (1, -1)]
        seconds = sum(row["seconds"][name] for row in rows)
        taken = sum(row["recommended"] == name for row in rows)
        print(
            f"{name:15s} recommended {taken:2d} times; surely ahead of fit {counts[0]:2d}, behind {counts[1]:2d}; "
            f"mean {np.mean([gap for gap, _ in gaps]):+.3f}; {seconds:,.0f} s"
        )
    print(f"{FIT:15s} {sum(row['seconds'][FIT] for row in rows):,.0f} s")


if __name__ == "__main__":
    main()
