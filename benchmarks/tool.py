"""The tool against doing it by hand: predictions and epochs against GPyTorch task by task, tables, and imports.

    python benchmarks/tool.py [--data FOLDER]

Each ratio is taken in one run. With a folder that holds PhysioNet 2012, epochs are on its GCS (61,563 rows, 3,936
tasks); otherwise on made-up tasks of the same number and size.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import gpytorch
import numpy as np
import pyarrow as pa
import torch
from pyarrow import csv

from metaprior import MetaGP, Tasks, make_prior
from metaprior.data import load_physionet
from metaprior.errors import DataError
from metaprior.learning import evidence_loss, make_updates

SOME = 60
"""Tasks that GPyTorch is timed on, one after another."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with physionet2012")
    data = parser.parse_args().data
    imports()
    predictions()
    epochs(data)
    tables()


def imports() -> None:
    """Seconds to import, alternating, each in a process of its own."""
    found: dict[str, list[float]] = {"gpytorch": [], "metaprior": []}
    for _ in range(5):
        for name in found:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-W", "ignore", "-c", f"import {name}"], check=True)
            found[name].append(time.perf_counter() - start)
    ours, theirs = median(found["metaprior"]), median(found["gpytorch"])
    print(f"import metaprior {ours:.2f} s, import gpytorch {theirs:.2f} s: {ours / theirs:.2f}×\n")


def predictions() -> None:
    """10,000 tasks of 10 known points, 50 points ahead: means and bounds."""
    rng = np.random.default_rng(0)
    frame = pa.table(
        {"task": np.repeat(np.arange(10_000), 10), "x": rng.uniform(0, 10, 100_000), "y": rng.normal(size=100_000)}
    )
    gp = MetaGP("deep", "deep", max_epochs=5, progress=False).fit(frame.slice(0, 2000), task="task", x="x", y="y")
    ahead = np.linspace(10, 20, 50)
    start = time.perf_counter()
    gp.predict(frame, ahead)
    ours = time.perf_counter() - start
    tasks = Tasks.from_table(frame.slice(0, 10 * SOME), task="task", x="x", y="y")
    points = torch.from_numpy(ahead)[:, None]
    start = time.perf_counter()
    for task in tasks:
        model = gp.to_gpytorch(task.x, task.y)
        with torch.no_grad():
            found = model.likelihood(model(points))
            found.confidence_region()
    theirs = (time.perf_counter() - start) / SOME * 10_000
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print("10,000 tasks × 10 points, 50 ahead:")
    print(f"  ours {ours:.1f} s, GPyTorch one by one {theirs:.0f} s: {theirs / ours:.0f}×")
    print(f"  memory {memory:.2f} GB\n")


def epochs(data: Path | None) -> None:
    """One gradient over all tasks: ours against an ExactGP for each task, the same prior."""
    tasks = _patients(data)
    prior = make_prior("deep", "deep", d=1, seed=0, like=tasks.x)
    updates = make_updates("adam", prior, tasks, evidence_loss(prior, "task"), rate=1e-3, batch_size=None, seed=0)
    updates.run(1)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        updates.run(1)
        times.append(time.perf_counter() - start)
    ours = median(times)
    theirs = _one_by_one(tasks) / SOME * len(tasks)
    print(f"an epoch over {len(tasks):,} tasks, {len(tasks.x):,} rows:")
    print(f"  ours {ours:.2f} s, an ExactGP for each task {theirs:.1f} s: {theirs / ours:.0f}×\n")


def _one_by_one(tasks: Tasks) -> float:
    """Seconds for the gradients of some tasks' evidence, an ExactGP each."""
    prior = make_prior("deep", "deep", d=1, seed=0, like=tasks.x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    some = tasks.select(torch.linspace(0, len(tasks) - 1, SOME).long())
    start = time.perf_counter()
    for task in some:
        model = _Exact(task.x, task.y[:, 0], likelihood, prior.mean, prior.kernel)
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(task.x), task.y[:, 0])
        loss.backward()
    return time.perf_counter() - start


class _Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x, y, likelihood, mean, kernel) -> None:  # type: ignore[no-untyped-def]
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):  # type: ignore[no-untyped-def]
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x)[..., 0], self.covar_module(x))


def _patients(data: Path | None) -> Tasks:
    try:
        if data is not None:
            return load_physionet("set-a", ("GCS",), data)["GCS"]
    except DataError as error:
        print(error)
    rng = np.random.default_rng(0)
    return Tasks.from_pairs([(np.sort(rng.uniform(0, 48, n)), rng.normal(size=n)) for n in rng.integers(4, 28, 3936)])


def tables() -> None:
    """Three million rows of 300,000 tasks."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "patient": rng.permutation(np.repeat(np.arange(300_000), 10)),
            "hour": rng.uniform(0, 48, 3_000_000),
            "gcs": rng.normal(size=3_000_000),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "big.csv"
        csv.write_csv(table, file)
        print(f"a table of {table.num_rows:,} rows, 300,000 tasks, in no order ({table.nbytes / 2**20:.0f} MB):")
        subprocess.run([sys.executable, "-c", READ, str(file)], check=True)


READ = """
import re, sys, time
import metaprior
from metaprior.data import read_table
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 2**10
before, start = peak(), time.perf_counter()
columns = metaprior.tasks.Columns(("patient",), ("hour",), ("gcs",))
table = read_table(sys.argv[1], columns)
metaprior.Tasks.from_table(table, **columns._asdict())
seconds, more = time.perf_counter() - start, peak() - before
print(f"  read and grouped in {seconds:.1f} s; memory {more:.0f} MB, {more * 2**20 / table.nbytes:.1f} × the table")
"""
"""Reading a table, in a process of its own: its memory is nobody else's."""


if __name__ == "__main__":
    main()
