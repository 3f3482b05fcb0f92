"""What a user should know of an answer: from Python, in warnings, what the command line prints, in the same words."""

import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from metaprior import DataError, MetaGP, MetapriorWarning, Tasks, load
from metaprior.adapters.sklearn import MetaGPRegressor
from metaprior.cli.app import app
from metaprior.serve import Server, Settings, load_models
from metaprior.tasks import duplicate_rows

QUICK = {"max_epochs": 3, "progress": False}
COLUMNS = {"task": "who", "x": "hour", "y": "seizures"}
NAMES = [word for role, name in COLUMNS.items() for word in (f"--{role}", name)]
COUNTS = ["--support", "0,", "--integer"]  # or a command names these options
PAST = "that the model was trained on"
THERE = "far from the known points it only repeats its prior there."


def seizures(count=9, seed=0, first=0):
    """Counts of some patients, at the hours 0 to 5."""
    rng = np.random.default_rng(seed)
    rows = [(f"p{first + k}", hour, float(rng.poisson(3 + k % 3))) for k in range(count) for hour in range(6)]
    return pd.DataFrame(rows, columns=["who", "hour", "seizures"])


def command(*words, fails=False):
    """The notes of a command, in order; of one that fails the error."""
    found = CliRunner().invoke(app, [*map(str, words)])
    assert bool(found.exit_code) == fails, (found.output, found.exception)
    return str(found.exception) if fails else re.findall(r"^note: (.*)$", found.stderr, re.MULTILINE)


def warned(ask):
    """The warnings of a call, in order; each names the line of this file that has asked."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask()
    assert {one.category for one in said} <= {MetapriorWarning}
    assert {one.filename for one in said} <= {__file__}
    return [str(one.message) for one in said]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model of counts in a file, and a table of new patients beside it."""
    folder = tmp_path_factory.mktemp("notes")
    gp = MetaGP("constant", "rbf", **QUICK)
    gp.fit(seizures(), **COLUMNS, support=(0, None), integer=True).save(folder / "m.metaprior")
    seizures(3, seed=1, first=50).to_parquet(folder / "new.parquet")
    return folder


@pytest.fixture(scope="module")
def gp(home):
    return load(home / "m.metaprior")


def test_points_outside_the_past_range_are_noted_alike(home, gp):
    table = seizures(3, seed=1, first=50)
    said = [f"3 of 6 points lie outside the range of 'hour' {PAST} (0 to 5): {THERE}"]
    assert warned(lambda: gp.predict(table, [5.0, 5.1])) == said
    assert command("predict", home / "m.metaprior", home / "new.parquet", "--at", "5,5.1", "--out", "-") == said
    assert warned(lambda: gp.suggest(table, [5.0, 5.1])) == said
    assert command("suggest", home / "m.metaprior", home / "new.parquet", "--at", "5,5.1", "--out", "-") == said
    assert warned(lambda: list(gp.predict_batches([pa.Table.from_pandas(table)], [5.0, 5.1]))) == said
    tasks = Tasks.from_table(table, **COLUMNS)
    assert warned(lambda: gp.predict(tasks, [5.0, 5.1])) == said
    assert warned(lambda: gp.suggest(tasks, [5.5, 5.1])) == [said[0].replace("3 of 6", "6 of 6")]
    assert warned(lambda: gp.predict(table, [0.0, 5.0])) == []
    assert command("predict", home / "m.metaprior", home / "new.parquet", "--at", "0,5", "--out", "-") == []
    with TestClient(Server(load_models([str(home / "m.metaprior")]), Settings(log="none")).app()) as server:
        server.base_url = "http://127.0.0.1"
        answer = server.post("/predict", json={"rows": table.to_dict("records"), "at": [5.0, 5.1]})
    assert answer.json()["notes"] == said


def test_of_one_task_the_points_outside_the_past_range_are_noted(gp):
    known = gp.condition([1.0, 2.0], [3.0, 4.0])
    assert warned(lambda: known.at([4.0, 5.0])) == []
    (said,) = warned(lambda: known.at([6.0, 5.0]))
    assert said == f"1 of 2 points lie outside the range of 'hour' {PAST} (0 to 5): {THERE}"
    (said,) = warned(lambda: gp.condition([1.0, 600.0], [3.0, 4.0]).at([4.0, 5.0]))
    assert said == f"1 of 2 known points lie outside the range of 'hour' {PAST} (0 to 5): its prior is a guess there."
    assert known.at([4.0]).mean.isfinite().all()
    assert known.evidence.total.shape == (1,)


def test_tasks_without_known_rows_are_counted_whatever_is_asked_of_them(gp):
    table, at = seizures(1, first=50), pd.DataFrame({"who": ["p50", "new", "other"], "hour": [1.5, 2.5, 3.5]})
    said = ["2 of 3 tasks have no known rows: they get the prior."]
    assert warned(lambda: gp.predict(table, at)) == said
    assert warned(lambda: gp.suggest(table, at)) == said


def test_notes_can_be_filtered_by_their_class(gp):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MetapriorWarning, match="outside the range"):
            gp.predict(seizures(2), [9.0])
        warnings.simplefilter("ignore", MetapriorWarning)
        gp.predict(seizures(2), [9.0])


def test_covariates_outside_the_past_range_are_noted_alike(tmp_path):
    past = seizures().assign(age=lambda table: table["who"].str[1:].astype(float))
    new = seizures(2, first=50).assign(age=[8.0] * 6 + [80.0] * 6)
    gp = MetaGP("deep", "rbf", hidden=(4,), **QUICK).fit(past, **COLUMNS, task_x="age")
    gp.save(tmp_path / "m")
    new.to_parquet(tmp_path / "new.parquet")
    said = [f"1 of 2 tasks lie outside the range of 'age' {PAST} (0 to 8): what it says of them is a guess."]
    assert warned(lambda: gp.predict(new, [1.0])) == said
    assert command("predict", tmp_path / "m", tmp_path / "new.parquet", "--at", "1", "--out", "-") == said
    assert warned(lambda: gp.score(new, 2)) == said
    assert command("evaluate", tmp_path / "m", tmp_path / "new.parquet", "--context", "2") == said
    assert warned(lambda: gp.condition([1.0], [2.0], task_x={"age": 80.0}).at([1.0])) == [
        said[0].replace("of 2", "of 1")
    ]
    assert warned(lambda: gp.predict(Tasks.from_table(new, **COLUMNS, task_x=["age"]), [1.0])) == said


def test_task_columns_that_the_prior_does_not_use_are_noted_alike(tmp_path):
    past = seizures(12).assign(age=lambda table: table["who"].str[1:].astype(float))
    past.to_parquet(tmp_path / "past.parquet")
    said = ["the prior makes no use of the task columns, and does not ask for them again."]
    gp = MetaGP(rungs=["fpca"], progress=False)
    assert warned(lambda: gp.fit(past, **COLUMNS, task_x="age")) == said
    fit = ["fit", tmp_path / "past.parquet", *NAMES, "--task-x", "age", "--rungs", "fpca", "--out", tmp_path / "m"]
    assert command(*fit, *COUNTS) == said


def test_tasks_of_the_training_are_noted_alike_where_they_are_scored_or_learned_from_again(home, gp, tmp_path):
    both = pd.concat([seizures(2), seizures(1, seed=1, first=50)])
    both.to_parquet(tmp_path / "both.parquet")
    said = ["the model was trained on 2 of 3 tasks (p0, p1): their scores are too good."]
    assert warned(lambda: gp.score(both, 2)) == said
    assert command("evaluate", home / "m.metaprior", tmp_path / "both.parquet", "--context", "2") == said
    assert warned(lambda: gp.predict(both, [1.0])) == []  # it is asked of past tasks as of others
    said = ["the earlier model has learned from 2 of these tasks before."]
    assert warned(lambda: gp.like_new(**QUICK).fit(both, **COLUMNS, start=gp)) == said
    fit = ["fit", tmp_path / "both.parquet", *NAMES, "--from", home / "m.metaprior", "--epochs", 2]
    assert command(*fit, "--out", tmp_path / "again") == said


def test_duplicate_rows_are_noted_alike(home, gp, tmp_path):
    table = pd.concat([seizures(12, first=20), seizures(12, first=20).iloc[[0, 1, 7]]])
    table.to_parquet(tmp_path / "twice.parquet")
    said = (
        "3 of 75 rows repeat an earlier row of their task (p20, p21): each counts as another measurement. Drop them "
        "if they are copies."
    )
    assert warned(lambda: gp.predict(table, [1.0])) == [said]
    assert command("predict", home / "m.metaprior", tmp_path / "twice.parquet", "--at", "1", "--out", "-") == [said]
    assert warned(lambda: MetaGP("constant", "rbf", **QUICK).fit(table, **COLUMNS)) == [said]
    fit = ["fit", tmp_path / "twice.parquet", *NAMES, "--mean", "constant", "--kernel", "rbf", "--epochs", 3]
    assert command(*fit, *COUNTS, "--out", tmp_path / "m") == [said]
    assert warned(lambda: gp.score(table, 2)) == [said]
    assert command("evaluate", home / "m.metaprior", tmp_path / "twice.parquet", "--context", "2") == [said]


def test_rows_are_duplicates_only_of_their_task_and_with_all_their_values():
    tasks = Tasks.from_pairs([([0.0, 1.0, 1.0, -0.0], [5.0, 6.0, 7.0, 5.0]), ([0.0, 1.0], [5.0, 6.0])], ["a", "b"])
    assert str(duplicate_rows(tasks)).startswith("1 of 6 rows repeat an earlier row of their task (a)")
    assert duplicate_rows(Tasks.empty(["a"], 2, 1)).number == 0
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4, (400, 3)).astype(float)
    owner = np.sort(rng.integers(0, 5, 400))
    pairs = [(values[owner == k, :2], values[owner == k, 2]) for k in range(5)]
    expected = sum(len(x) - len({*map(tuple, np.column_stack([x, y]))}) for x, y in pairs)
    assert duplicate_rows(Tasks.from_pairs(pairs)).number == expected > 100


def test_time_zones_that_are_dropped_are_noted_alike(tmp_path):
    hours = pd.date_range("2024-01-01", periods=6, freq="h", tz="Europe/Berlin")
    table = seizures().assign(hour=np.tile(hours, 9))
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "zoned.parquet")
    said = ["dropped the time zone Europe/Berlin of column 'hour' in 54 rows: its moments count in UTC."]
    gp = MetaGP("constant", "rbf", **QUICK)
    assert warned(lambda: gp.fit(table, **COLUMNS)) == said
    fit = ["fit", tmp_path / "zoned.parquet", *NAMES, "--mean", "constant", "--kernel", "rbf", "--epochs", 3]
    found = command(*fit, *COUNTS, "--out", tmp_path / "m")
    assert found == ["column 'hour': dates, in days since 1970-01-01", *said]
    start = gp.trained_on_.x_range[0][0]
    assert start == pytest.approx(19722 + 23 / 24)  # midnight in Berlin, at 11 pm of the day before in UTC
    at = ["--at", "2024-01-01T01:00", "--out", "-"]
    assert warned(lambda: gp.predict(table, [start])) == said
    assert command("predict", tmp_path / "m", tmp_path / "zoned.parquet", *at) == said
    assert warned(lambda: gp.predict(table, table[["who", "hour"]])) == [said[0].replace("54", "108")]
    for zone in ("UTC", None):
        same = table.assign(hour=table["hour"].dt.tz_convert(zone))
        assert warned(lambda same=same: gp.predict(same, [start])) == []


def test_the_adapter_for_scikit_learn_gives_the_same_notes(gp):
    table = seizures(12)
    new = pd.DataFrame({"who": ["p0", "p1", "new"], "hour": [5.0, 6.0, 7.0]})
    same = MetaGP("constant", "rbf", **QUICK).fit(table, **COLUMNS)
    said = warned(lambda: same.predict(table, new))
    assert len(said) == 2
    model = MetaGPRegressor("constant", "rbf", max_epochs=3).fit(table[["hour"]], table["seizures"], table["who"])
    assert warned(lambda: model.predict(new[["hour"]], new["who"])) == said
    assert warned(lambda: model.predict_interval(new[["hour"]], 0.5, new["who"])) == said


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_known_values_that_cannot_be_are_refused_with_task_row_and_advice(home, gp, tmp_path, missing):
    table = seizures(3, seed=1, first=50)
    table.loc[8, "seizures"] = -3.0
    table.loc[13, "seizures"] = 2.5
    if missing == "drop":
        table.loc[[0, 6], "seizures"] = np.nan  # the rows are named as the table has them
    table.to_csv(tmp_path / "bad.csv", index=False)
    said = (
        "column 'seizures' can only be whole numbers 0 or more, but 2 of its values are not: -3 (row 8 of task 'p51'), "
        "2.5 (row 13 of task 'p52'). Put them right, or leave those rows out; another support needs another fit."
    )
    for ask in (
        lambda: gp.predict(table, [1.0], missing=missing),
        lambda: gp.predict(pa.Table.from_pandas(table), table[["who", "hour"]], missing=missing),
        lambda: list(gp.predict_batches([pa.Table.from_pandas(table)], [1.0], missing=missing)),
        lambda: gp.suggest(table, [1.0], missing=missing),
    ):
        with pytest.raises(DataError) as refused:
            ask()
        assert str(refused.value).removeprefix("batch 1: ") == said
    words = [home / "m.metaprior", tmp_path / "bad.csv", "--at", "1", "--out", "-", "--missing", missing]
    assert command("predict", *words, fails=True) == said
    assert command("suggest", *words, fails=True) == said
    with TestClient(Server(load_models([str(home / "m.metaprior")]), Settings(log="none")).app()) as server:
        server.base_url = "http://127.0.0.1"
        body = (tmp_path / "bad.csv").read_bytes()
        csv = {"content": body, "headers": {"Content-Type": "text/csv"}}
        answers = [
            server.post("/predict", params={"at": "1", "missing": missing}, **csv),
            server.post("/models/m/tasks", **csv),
        ]
    assert [(one.status_code, one.json()["error"]["message"]) for one in answers] == [(400, said)] * 2


def test_known_values_of_arrays_tasks_and_wide_tables_that_cannot_be_are_refused(gp):
    bad = r"'seizures' can only be whole numbers 0 or more, but 1 of its values are not: -3 \({} of task '{}'\)"
    with pytest.raises(DataError, match=bad.format("row 1", "new task")):
        gp.condition([1.0, 2.0], [4.0, -3.0])
    table = seizures(2)
    table.loc[9, "seizures"] = -3.0
    tasks = Tasks.from_table(table, **COLUMNS)
    for ask in (lambda: gp.predict(tasks, [1.0]), lambda: gp.score(tasks, 2), lambda: gp.suggest(tasks, [1.5])):
        with pytest.raises(DataError, match=bad.format("row 3", "p1")):
            ask()
    wide = table.pivot(index="who", columns="hour", values="seizures").add_prefix("hour_").reset_index()
    with pytest.raises(DataError, match=bad.format("hour 3(.0)?", "p1")):
        gp.predict(wide, [1.0], wide="hour_*")
    model = MetaGPRegressor("constant", "rbf", max_epochs=3, support=(0, None))
    model.fit(seizures()[["hour"]], seizures()["seizures"], seizures()["who"])
    with pytest.raises(DataError, match=r"can only be 0 or more, but 1 of its values are not: -3"):
        model.with_context(table[["hour"]], table["seizures"], table["who"])
