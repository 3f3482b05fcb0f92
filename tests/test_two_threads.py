"""What a user runs, on two threads: the paper's experiment on patients, and a large prediction of an ensemble."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

CHILD = """
import sys
from metaprior import arrays
from metaprior.inference import student

def recorded(function, of_rows, values):
    print("by_threads", function.__name__, values.size, file=sys.stderr)
    return by_threads(function, of_rows, values)

by_threads, student.by_threads = arrays.by_threads, recorded
if sys.argv[1] == "lowered":
    arrays.MANY = 1
sys.argv[:2] = ["metaprior"]
from metaprior.cli import main
main()
"""
"""The command line in a process of its own, which says what it hands to threads. First word: "lowered" or "real"."""


def calls(said):
    """The functions that were handed to threads, each with the number of values."""
    lines = [line.split()[1:] for line in said.splitlines() if line.startswith("by_threads")]
    return [(name, int(count)) for name, count in lines]


def run(threshold, *words, threads=2):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, threshold, *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return calls(done.stderr)


def test_the_experiment_on_patients(data_folder, tmp_path):
    found = run("lowered", "reproduce", "icu", "--quick", "--data", data_folder, "--out", tmp_path)
    assert {"stdtr", "_quantile"} <= {name for name, count in found if count > 1}
    assert (tmp_path / "report.html").exists()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model of tasks whose scales differ widely, with a Student component, and new tasks."""
    home = tmp_path_factory.mktemp("two-threads")
    rng = np.random.default_rng(0)
    for name, tasks in (("past", 120), ("new", 60)):
        owner = np.repeat(np.arange(tasks), 6)
        x = rng.uniform(0, 1, len(owner))
        wild = np.exp(rng.normal(0, 1, tasks))[owner]
        y = wild * (np.sin(5 * x) + rng.normal(size=tasks)[owner] + 0.2 * rng.normal(size=len(owner)))
        csv.write_csv(pa.table({"id": owner, "x": x, "y": y}), home / f"{name}.csv")
    columns = ("--task", "id", "--x", "x", "--y", "y")
    out = ("--out", home / "m.metaprior", "--quiet")
    run("real", "fit", home / "past.csv", *columns, "--rungs", "shared gp,student", *out, threads=1)
    return home


@pytest.mark.parametrize(("threshold", "step"), [("real", 0.001), ("lowered", 0.1)])
def test_a_large_prediction_of_an_ensemble(home, tmp_path, threshold, step):
    words = ("predict", home / "m.metaprior", home / "new.csv", "--at", f"0:1:{step}", "--level", "0.9", "--quiet")
    predict = partial(run, threshold, *words, "--samples", "2", "--out")
    found = predict(tmp_path / "two.parquet")
    largest = 50_000 if threshold == "real" else 1
    assert {"stdtr", "_quantile"} <= {name for name, count in found if count >= largest}
    predict(tmp_path / "one.parquet", threads=1)
    one, two = (pq.read_table(tmp_path / f"{name}.parquet").to_pandas() for name in ("one", "two"))
    assert len(two) == 60 * (round(1 / step) + 1)
    np.testing.assert_allclose(two.to_numpy(dtype=float), one.to_numpy(dtype=float), rtol=1e-9)
