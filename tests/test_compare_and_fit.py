"""The benchmark of `compare` beside `fit` recommends what `compare` recommends, and goes on where it was stopped."""

import json
from argparse import Namespace

import numpy as np
import pytest

import compare_and_fit
from metaprior.selection import compare
from metaprior.splits import default_sizes, random_sizes

METHODS = ("last value", "gp per task", "shared gp")


@pytest.fixture
def table(tmp_path):
    """Curves that all tasks share, each on a level of its own."""
    rng, path = np.random.default_rng(0), tmp_path / "waves.csv"
    rows = ["task,x,y"]
    for k in range(8):
        level = rng.normal()
        rows += [f"task {k},{x},{2 * np.sin(x) + level + 0.1 * rng.normal()}" for x in range(6)]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_the_benchmark_gives_the_scores_and_the_recommendation_of_compare(table, tmp_path, monkeypatch):
    monkeypatch.setattr(compare_and_fit, "_methods", lambda: METHODS)
    asked = Namespace(out=tmp_path, folds=2)
    (tmp_path / "parts").mkdir()
    jobs = [
        compare_and_fit.Job(table, name, fold, 2, tmp_path)
        for name in (*METHODS, compare_and_fit.FIT)
        for fold in (0, 1)
    ]
    row = tmp_path / "waves.2.json"
    for job in jobs:
        assert not row.exists()
        compare_and_fit.run_one(job)
        assert job.file.exists()
        compare_and_fit.finish(table, asked)
    found, tasks = json.loads(row.read_text()), compare_and_fit.read(table)
    expected = compare(tasks, random_sizes(default_sizes(tasks), 0), methods=METHODS, folds=2)
    assert found["recommended"] == expected.recommended
    assert found["best"] == expected.best
    for name in METHODS:
        assert found["density"][name] == pytest.approx(expected.density(name)[:2])
    gap, error = found["against_fit"][found["recommended"]]
    assert (gap, error) == (found["ahead_of_fit"], found["stderr"])
    assert gap == pytest.approx(found["density"][found["recommended"]][0] - found["density"]["fit"][0])
    assert found["holds"] == (abs(gap) <= 2 * error)
    assert "waves" in compare_and_fit.line(found)
