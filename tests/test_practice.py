"""The benchmark on public tables: who is held out, how a prediction is scored, ranks, and the whole way on a folder."""

import json
import math
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import practice
from small_tables import mixed_effects
from small_tables.page import page
from small_tables.protocol import AHEAD, CONTEXTS, LEVEL, SIZES, Gaussian, asked, read_table, scores, splits
from small_tables.running import judged, keep, result_file
from small_tables.summary import Results, ranks


def made(count, points=9, seed=0):
    """Tasks with a common slope and levels of their own; their first targets say who they are."""
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(count):
        x = np.sort(rng.uniform(0, 10, points))
        found[f"task {k:03d}"] = (x[:, None], x + rng.normal(0, 3) + rng.normal(0, 0.1, points))
    return found


@pytest.mark.parametrize(("count", "parts"), [(12, 3), (29, 3), (30, 1), (100, 1)])
def test_no_task_is_on_both_sides(count, parts):
    tasks = made(count)
    found = splits("orange", tasks)
    assert len(found) == parts
    for split in found:
        train = {float(y[0]) for _, y in split.train}
        held = {float(y[0]) for _, y in split.held.values()}
        assert not train & held
        assert len(train) + len(held) == count
    held = [task for split in found for task in split.held]
    assert sorted(held) == sorted(tasks) if parts == 3 else len(held) == round(0.3 * count)


def test_splits_are_fixed_by_the_name_of_the_table():
    held = [list(splits(name, made(40))[0].held) for name in ("orange", "orange", "oxboys")]
    assert held[0] == held[1] != held[2]


def test_tasks_of_two_points_are_learned_from_but_not_judged_by():
    (split,) = splits("short", made(30) | {f"short {k}": (np.zeros((2, 1)), np.zeros(2)) for k in range(30)})
    assert len(split.held) < 18
    assert all(len(y) >= 3 for _, y in split.held.values())
    assert any(len(y) == 2 for _, y in split.train)


def test_contexts_are_the_first_points_or_nested_random_ones():
    tasks = made(5)
    for task, (x, y) in tasks.items():
        one, three, five = (asked("orange", tasks, f"first {size}")[task] for size in SIZES)
        assert [*one.context[1], *one.y] == [*three.context[1], *three.y] == list(y)
        assert np.array_equal(five.x, x[5:])
        one, three, five = (set(asked("orange", tasks, f"random {size}")[task].context[1]) for size in SIZES)
        assert one < three < five
        assert five | set(asked("orange", tasks, "random 5")[task].y) == set(y)
    assert not asked("orange", made(5, points=5 + AHEAD - 1), "first 5")
    orders = [tuple(np.searchsorted(y, one.context[1])) for one, (_, y) in zip(asked("orange", tasks, "random 5").values(), tasks.values(), strict=True)]  # fmt: skip  # noqa: E501
    assert len(set(orders)) > 1  # each task has its own


def test_scores_of_a_gaussian_are_the_closed_form():
    """In units of 2: density, root mean square, coverage; and CRPS as the integral that defines it."""
    mean, sd, y = np.array([1.0, 2.0, 0.0]), np.array([0.5, 1.5, 1.0]), np.array([1.2, -2.0, 0.3])
    found = scores(Gaussian(mean, sd**2), [y[:2], y[2:]], unit=2.0)
    density = norm.logpdf(y / 2, mean / 2, sd / 2)
    assert found["log_density"] == pytest.approx([density[:2].mean(), density[2]])
    assert found["error"] == pytest.approx([math.sqrt((0.1**2 + 2**2) / 2), 0.15])
    assert found["coverage"] == [0.5, 1.0]
    crps = quad(lambda t: (norm.cdf(t) - (t >= 0.3)) ** 2, -8, 8, points=[0.3])[0]
    assert found["crps"][1] == pytest.approx(crps / 2)
    low, high = Gaussian(np.zeros(1), np.ones(1)).bounds()
    assert norm.cdf(high) - norm.cdf(low) == pytest.approx(LEVEL)


def test_a_prediction_of_no_use_has_no_score():
    found = scores(Gaussian(np.array([0.0, np.nan]), np.ones(2)), [np.zeros(1), np.zeros(1)], 1.0)
    assert found["log_density"][0] is not None
    assert found["log_density"][1] is None


def test_equal_values_share_their_places_and_failures_are_last():
    assert ranks([0.5, 2.0, 0.5, 1.0]) == [3.5, 1.0, 3.5, 2.0]
    assert ranks([math.nan, -5.0, math.nan]) == [2.5, 1.0, 2.5]


@pytest.fixture
def few_sizes(monkeypatch):
    monkeypatch.setattr(mixed_effects, "FUNCTIONS", (2, 4))
    monkeypatch.setattr(mixed_effects, "RANKS", (1, 2))


@pytest.mark.usefixtures("few_sizes")
def test_mixed_effects_know_levels_and_slopes():
    """Levels of deviation 3, noise of 0.1: from one point a task is known as well as noise allows."""
    found = judged(mixed_effects.fit, "levels", made(30, points=8))
    assert set(found["cells"]) == set(CONTEXTS)
    for cell in found["cells"].values():
        unit = 4.0
        assert np.mean(cell["error"]) < 4 * 0.1 / unit
        assert 0.75 < np.mean(cell["coverage"]) <= 1


def kept(out, method, values):
    cell = {"tasks": list(range(len(values))), "log_density": values, "error": [1.0] * len(values)}
    cell |= {"crps": cell["error"], "coverage": cell["error"]}
    keep(result_file(out, method, "orange"), {"seconds": {"fit": 1.0, "predict": 0.5}, "cells": {"first 1": cell}})


def test_ties_losses_and_failures(tmp_path):
    kept(tmp_path, "auto", [0.0, 1.0, 0.0, 1.0])
    kept(tmp_path, "near", [0.3, 0.8, 0.3, 0.8])  # 0.05 ahead, and the difference varies by 0.25
    kept(tmp_path, "gpboost", [1.0, 1.9, 1.1, 2.0])
    keep(result_file(tmp_path, "fpca", "orange"), {"failed": "no convergence"})
    methods = ["auto", "near", "fpca"]
    found = Results(tmp_path, methods, ["orange", "not run"])
    assert [(row.method, row.rank, row.tied, row.failed) for row in found.rows()] == [
        ("near", 1.0, 1, 0), ("auto", 2.0, 1, 0), ("fpca", 3.0, 0, 1)
    ]  # fmt: skip
    assert not found.losses("auto", "log_density")
    (loss,) = Results(tmp_path, [*methods, "gpboost"], ["orange"]).losses("auto", "log_density")
    assert (loss.to, loss.behind) == ("gpboost", pytest.approx(1.0))
    assert loss.stderr == pytest.approx(np.std([1.0, 0.9, 1.1, 1.0], ddof=1) / 2)
    text = page(found, "python benchmarks/practice.py --out FOLDER")
    assert "- fpca on orange: no convergence" in text
    assert "in 0 of 1 cells." in text


def write(folder, name, tasks):
    rows = [f"{task},{x[0]},{y}" for task, (xs, ys) in tasks.items() for x, y in zip(xs, ys, strict=True)]
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("\n".join(["task,x,y", *reversed(rows)]))


@pytest.mark.usefixtures("few_sizes")
def test_a_folder_of_tables_from_end_to_end(tmp_path, monkeypatch, capsys):
    """The pair of a method and a table here, not in a process; what is there is not run again."""
    write(tmp_path / "tables", "mine", made(30, points=4))
    read = read_table(tmp_path / "tables" / "mine.csv")
    assert list(read) == sorted(made(30))
    assert np.array_equal(read["task 003"][0], made(30, points=4)["task 003"][0])
    out = ["practice.py", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*out, "--one", "mixed effects", str(tmp_path / "tables" / "mine.csv")])
    practice.main()
    file = result_file(tmp_path / "out", "mixed effects", "mine")
    assert list(json.loads(file.read_text())["cells"]) == ["first 1", "random 1"]
    before = file.stat().st_mtime_ns
    monkeypatch.setattr(sys, "argv", [*out, "--tables", str(tmp_path / "tables"), "--methods", "mixed effects", "--markdown", str(tmp_path / "page.md")])  # fmt: skip  # noqa: E501
    practice.main()
    assert file.stat().st_mtime_ns == before
    assert "| mixed effects |      1.00 |       2 of 2 |" in capsys.readouterr().out
    assert "--methods 'mixed effects'" in (tmp_path / "page.md").read_text()


def test_what_cannot_be_read_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.csv").write_text("child,age,height\na,1,2\n")
    with pytest.raises(ValueError, match="child, age, height"):
        read_table(tmp_path / "mine.csv")
    for more, told in ((["--only", "yours"], "no table yours"), (["--methods", "magic"], "no method 'magic'")):
        monkeypatch.setattr(sys, "argv", ["practice.py", "--out", str(tmp_path), "--tables", str(tmp_path), *more])
        with pytest.raises(SystemExit):
            practice.main()
        assert told in capsys.readouterr().err
