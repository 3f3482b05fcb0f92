"""One model, context and seed give one score: from Python, from the command line, and in the model file."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metaprior import DataError, MetaGP, Tasks
from metaprior.cli.app import app
from metaprior.cli.evaluate import SHOWN
from metaprior.inference import Calibration
from metaprior.methods import GPPerTask
from metaprior.scoring import scores_by_setting
from metaprior.selection import Auto, trials
from metaprior.selection.trials import Plan
from metaprior.splits import default_contexts, roles_of
from metaprior.tasks import resolution

COLUMNS = {"task": "patient", "x": "hour", "y": "pulse"}
OPTIONS = [word for role, name in COLUMNS.items() for word in (f"--{role}", name)]


def pulses(count=60, seed=0):
    """Whole numbers, of tasks of 2 to 8 points."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(count):
        hour = np.sort(rng.permutation(12)[: 2 + k % 7])
        pulse = (70 + 5 * np.sin(hour / 2) + rng.normal(0, 4) + rng.normal(0, 2, len(hour))).round()
        parts.append(pd.DataFrame({"patient": k, "hour": hour, "pulse": pulse}))
    return pd.concat(parts)


def run(*words):
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model that the command line has fitted on some tasks, and a table of others."""
    folder = tmp_path_factory.mktemp("agreement")
    past, new, model = (str(folder / name) for name in ("past.csv", "new.csv", "pulse.metaprior"))
    pulses().to_csv(past, index=False)
    pulses(25, seed=1).assign(patient=lambda table: table.patient + 1000).to_csv(new, index=False)
    run("fit", past, *OPTIONS, "--mean", "constant", "--kernel", "rbf", "--epochs", 30, "--out", model, "--quiet")
    return past, new, model


def summaries(scores):
    return {metric: list(scores.summary(metric)) for metric in SHOWN}


@pytest.mark.parametrize("seed", [0, 3])
def test_score_and_the_command_evaluate_give_the_same_figures(files, seed):
    _, new, model = files
    words = ["evaluate", model, new, "--json", "--seed", seed]
    gp, table = MetaGP.load(model), pd.read_csv(new)
    by_number = json.loads(run(*words, "--context", "1,3"))
    for n, found in by_number.items():
        ours = {metric: list(value.values()) for metric, value in found[model].items()}
        for given in (table, Tasks.from_table(table, **COLUMNS)):
            assert summaries(gp.score(given, int(n), seed=seed)) == ours
    (found,) = json.loads(run(*words, "--context-until", "hour=4")).values()
    ours = {metric: list(value.values()) for metric, value in found[model].items()}
    assert summaries(gp.score(table, lambda x: x[:, 0] <= 4)) == ours


def test_methods_beside_the_model_keep_to_what_its_target_can_be(tmp_path):
    """A Gaussian process for each task alone is scored on counts as the same method that knows them to be counts."""
    rng = np.random.default_rng(0)
    rows = [(k, x, float(rng.poisson(1.0 + k % 3))) for k in range(12) for x in range(6)]
    table, model = pd.DataFrame(rows, columns=["patient", "hour", "pulse"]), str(tmp_path / "m")
    table.to_csv(tmp_path / "counts.csv", index=False)
    tasks = Tasks.from_table(table, **COLUMNS).with_possible((0, None), integer=True)
    alone = MetaGP.of(GPPerTask().fit(tasks))
    MetaGP("constant", "rbf", max_epochs=2, progress=False).fit(tasks).save(model)
    found = json.loads(run("evaluate", model, tmp_path / "counts.csv", "--json", "--context", 2))["2"]["gp per task"]
    ours = summaries(alone.score(tasks, 2))
    for metric in SHOWN:
        assert list(found[metric].values()) == pytest.approx(ours[metric])


def test_scores_of_fit_are_those_of_its_held_out_tasks(files):
    past, _, model = files
    gp = MetaGP.load(model)
    held_out = roles_of(Tasks.from_table(pd.read_csv(past, dtype={"patient": str}), **COLUMNS), 0).judge
    assert gp.scores_
    for n, found in gp.scores_.items():
        expected = summaries(gp.score(held_out, int(n)))
        assert {metric: list(found[metric].values()) for metric in SHOWN} == expected


def choices(kind, count=60):
    """Tasks with targets of this kind."""
    rng, pairs = np.random.default_rng(0), []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 6, 7))
        curve = np.sin(x) + rng.normal()
        y = curve + 0.3 * rng.normal(size=7)
        pairs.append((x, rng.poisson(np.exp(curve / 2)).astype(float) if "counts" in kind else y))
    tasks = Tasks.from_pairs(pairs)
    if "limited" in kind:
        tasks = replace(tasks, y=tasks.y.clamp(-0.5, 1.0))
    if "tenths" in kind:
        tasks = replace(tasks, y=tasks.y.round(decimals=1))
    supports = {"counts that are known to be some": ((0, None), True)}
    limited = ((-0.5, 1.0), False) if "limited" in kind else (None, False)
    return tasks.with_possible(*supports.get(kind, limited))


KINDS = ["real", "tenths", "counts", "counts that are known to be some", "limited", "limited tenths"]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_choice_are_those_of_the_model_on_its_held_out_tasks(kind, monkeypatch):
    """Of many tasks, where the model is used as it was judged; not recalibrated, as that differs from fold to fold."""
    monkeypatch.setattr(trials, "RANKED", 30)
    monkeypatch.setattr(Calibration, "of", lambda *given: Calibration.identity())
    tasks = choices(kind)
    gp = MetaGP.of(Auto(rungs=("shared gp",), progress=False).fit(tasks))
    held_out = tasks.select(Plan.of(tasks, 0, thorough=False).waves[-1][0].judge)
    found = scores_by_setting(gp, held_out, default_contexts(tasks, 0), resolution(tasks))
    assert list(found) == list(gp.method_.scores_)
    for setting, scores in found.items():
        own = gp.method_.scores_[setting]
        for metric in ("mse", "log_likelihood"):
            assert tuple(own[metric].values()) == pytest.approx(tuple(scores.summary(metric)))
        assert own["coverage_90"]["mean"] == pytest.approx(scores.summary("coverage_90").mean)
        for level, share in own["coverage"].items():
            assert share == pytest.approx(float(scores.values[f"coverage_{level}"].mean()))
    covered = np.mean([scores.summary("coverage_90").mean for scores in found.values()])  # all have the same tasks
    assert gp.method_.coverage_ == pytest.approx((covered, covered))


def test_tables_are_scored_without_rows_that_lack_values(files):
    _, new, model = files
    gp, table = MetaGP.load(model), pd.read_csv(new)
    gaps = pd.concat([table, table.iloc[:1].assign(pulse=np.nan)])
    with pytest.raises(DataError, match="missing"):
        gp.score(gaps, 1)
    with pytest.warns(UserWarning, match="dropped 1"):
        assert summaries(gp.score(gaps, 1, missing="drop")) == summaries(gp.score(table, 1))
    with pytest.raises(DataError, match="no task has points on both sides"):
        gp.score(table, lambda x: x[:, 0] > 99)
