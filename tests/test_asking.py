"""Where to predict, and what comes back: the grammar of `--at`, columns of all names, values of all sizes."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import csv
from typer.testing import CliRunner

from metaprior import Combination, DataError, LearnedPrior, MetaGP, NumericalError, OptionError, Tasks, Warped
from metaprior.cli.app import app
from metaprior.frames import Wanted, predict_table
from metaprior.inference import CalibratedPosterior, Calibration
from metaprior.points import FORMS, MOST, number_or_date, points_at

QUICK = {"max_epochs": 3, "progress": False}


def run(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, (found.output, found.exception)
    return found


def moments(text):
    """Dates that are asked for, as they are written."""
    days = points_at(text, ["day"], ["day"])[:, 0]
    return [str(np.datetime64(round(day * 86_400), "s")) for day in days]


def test_values_and_ranges_of_numbers():
    for text, values in {
        "3": [3],
        "-3": [-3],
        "1,2, 3": [1, 2, 3],
        "1:2:0.5": [1, 1.5, 2],
        "0:1:0.1": np.arange(11) / 10,  # with its end
        "0:1:0.3,9": [0, 0.3, 0.6, 0.9, 9],
        "hour=1,2": [1, 2],
    }.items():
        assert points_at(text, ["hour"], []) == pytest.approx(np.array(values, dtype=float)[:, None])


def test_dates_and_times():
    assert moments("2020-02-15") == ["2020-02-15T00:00:00"]
    weeks = ["2020-02-15T00:00:00", "2020-02-22T00:00:00", "2020-02-29T00:00:00"]
    for step in ("7", "7d", "1w", "168h"):
        assert moments(f"2020-02-15:2020-03-01:{step}") == weeks
    assert moments("2020-02-15,2020-02-22:2020-02-29:1w") == weeks
    night = ["2020-03-28T22:00:00", "2020-03-29T04:00:00", "2020-03-29T10:00:00"]
    assert moments("2020-03-28T22:00:2020-03-29T10:00:6h") == night
    assert moments("2020-03-28T22:00:00:2020-03-29T10:00:00:6h") == night
    assert moments("2020-03-28T22:00:00") == night[:1]
    thirds = moments("2020-03-28T22:20:2020-03-29T10:00:20min")
    assert thirds[:3] == ["2020-03-28T22:20:00", "2020-03-28T22:40:00", "2020-03-28T23:00:00"]
    assert thirds[-1] == night[-1]
    assert moments("2020-03-28T22:20:2020-03-29T10:00:30") == ["2020-03-28T22:20:00"]  # 30 days
    assert number_or_date("2020-03-01T06:00", dated=True) == 18322.25
    assert number_or_date(" 24 ", dated=False) == 24
    for text, dated in (("2020", True), ("2020-03-01", False)):
        with pytest.raises(OptionError, match="it holds"):
            number_or_date(text, dated)
    assert points_at("0:1:0.1", ["x"], [])[:, 0].tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_several_inputs_are_a_grid():
    grid = points_at("dose=5,10,hour=0:2:1", ["hour", "dose"], [])
    assert grid.tolist() == [[0, 5], [0, 10], [1, 5], [1, 10], [2, 5], [2, 10]]
    assert points_at('"a, b"=1,c=2020-01-01', ["a, b", "c"], ["c"]).tolist() == [[1, 18262]]


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "points.csv": "'points.csv' is no number, date or file",
        "2020-02-31": "'2020-02-31' is no number",
        "nan": "'nan' is no number",
        "1:2": "'1:2' is no number",
        "1:2:3h": "'3h' is no step, such as 0.5",
        "day=2020-01-01:2020-02-01:fast,hour=1": "'fast' is no step, such as 7, 7d",
        "2:1:1": "a stop that is not before the start",
        "0:1:1e-320": "too many",
        f"0:{MOST}:1": "too many; give a larger step",
        "hour=0:1:0.0005,day=2020-01-01:2020-01-03:86s": "4,022,010 points for each task are too many",
        "5": "the inputs hour, day: name each",
        "hour=5": "no value for day",
        "hour=5,hour=6,day=7": "'hour' is there twice",
        "hour=5,dose=6": "no input 'dose' but hour, day",
        "hour=2020-01-01,day=2020-01-01": "'hour' holds numbers, not dates",
        "hour=1,day=2020": "'day' holds dates, such as 2020-02-15, not numbers",
        "hour=1,day=2020-03-10:2020-03-12T00:10": "is no number, date or file",  # the step was forgotten
        "day=2020-01-01:9:1,hour=1": "from a number to a date",
        "": "no value for",
    }.items(),
)
def test_what_is_not_understood_says_what_there_is(text, message):
    names = ["hour", "day"] if "=" in text or text == "5" else ["hour"]
    with pytest.raises(OptionError) as refused:
        points_at(text, names, ["day"])
    assert message in str(refused.value)
    assert FORMS in str(refused.value)


@pytest.fixture
def dated(tmp_path, monkeypatch):
    """A model of two inputs, a moment and a dose, and its table."""
    monkeypatch.chdir(tmp_path)
    times = [f"2020-03-{day} {hour}:00:00" for day in (28, 29) for hour in ("06", "18")]
    rows = [f"{k},{time},{dose},{k + dose}" for k in range(5) for time in times for dose in (5, 10)]
    Path("t.csv").write_text("\n".join(["who,time,dose,y", *rows]) + "\n")
    gp = MetaGP("constant", "rbf", **QUICK)
    gp.fit(csv.read_csv("t.csv"), task="who", x=["time", "dose"], y="y").save("m")


def test_a_grid_of_moments_and_doses_from_the_command_line(dated):
    at = "time=2020-03-28T22:00:2020-03-29T10:00:6h,dose=5,10"
    found = run("predict", "m", "t.csv", "--at", at, "--out", "p.csv")
    assert "warning" not in found.stderr
    table = csv.read_csv("p.csv").to_pandas()
    assert len(table) == 5 * 6
    assert [str(time) for time in table["time"][:3]] == [
        "2020-03-28 22:00:00",
        "2020-03-28 22:00:00",
        "2020-03-29 04:00:00",
    ]
    assert table["dose"][:4].tolist() == [5, 10, 5, 10]
    Path(at).write_text("who,time,dose\n1,2020-03-29 00:00:00,7\n")  # a file of that name is meant
    run("predict", "m", "t.csv", "--at", at, "--out", "p.csv")
    assert csv.read_csv("p.csv")["dose"].to_pylist() == [7]
    found = run("evaluate", "m", "t.csv", "--context-until", "time=2020-03-28T12:00")
    assert "from time ≤ 2020-03-28T12:00:00" in found.stdout
    many = ",".join(f"{dose}" for dose in range(300))  # too long for the name of a file
    run("predict", "m", "t.csv", "--at", f"time=2020-03-29,dose={many}", "--out", "p.csv")
    assert csv.read_csv("p.csv").num_rows == 5 * 300


def test_a_range_of_fractions_of_a_second(dated):
    run("predict", "m", "t.csv", "--at", "time=2020-03-28:2020-03-28T00:00:02:0.5s,dose=5", "--out", "p.csv")
    assert csv.read_csv("p.csv").num_rows == 25


def test_the_points_that_were_asked_at_come_back(dated):
    gp, table = MetaGP.load("m"), csv.read_csv("t.csv")
    columns = gp.trained_on_.columns
    points = predict_table(gp, columns, table, np.array([[18349.0, 5.0]]), Wanted()).points
    assert len(points) == 5
    assert points.dated == ("time",)
    asked = pd.DataFrame({"who": [1], "time": [18349.0], "dose": [5.0]})
    with pytest.raises(DataError, match="trained on dates in column 'time'; here it holds numbers"):
        gp.predict(table.to_pandas(), asked)


@pytest.fixture(scope="module")
def awkward():
    """A table whose columns are called as those of a prediction, and a model of it with plausibilities."""
    rng = np.random.default_rng(0)
    rows = [(f"c{k}", t, k + t + rng.normal()) for k in range(8) for t in range(6)]
    table = pd.DataFrame(rows, columns=["plausibility", "mean", "sd"])
    gp = MetaGP(rungs=("gp per task", "shared gp"), progress=False)
    return table, gp.fit(table, task="plausibility", x="mean", y="sd")


def test_columns_of_the_same_name_stand_apart(awkward, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, gp = awkward
    found = gp.predict(table, [1.5, 2.5])
    ours = ["mean_predicted", "sd", "lower", "upper", "plausibility_predicted"]
    assert list(found.columns) == ["plausibility", "mean", *ours]
    assert found["mean"].tolist() == [1.5, 2.5] * 8
    assert set(found["plausibility"]) == set(table["plausibility"])
    tasks = Tasks.from_table(table, task="plausibility", x="mean", y="sd")
    assert found["mean_predicted"].to_numpy() == pytest.approx(gp.predict(tasks, [1.5, 2.5]).mean[:, 0].numpy())
    with monkeypatch.context() as patch:
        patch.setattr("metaprior.frames.tables.IMPLAUSIBLE", 1.1)  # all tasks are unlike the past ones
        with pytest.warns(UserWarning, match="see the column plausibility_predicted"):
            gp.predict(table, [1.5])
    gp.save("m")
    table.to_csv("t.csv", index=False)
    drawn = []
    monkeypatch.setattr("metaprior.cli.predict.task_figure", lambda curves, *_: drawn.append(curves))
    monkeypatch.setattr("metaprior.cli.predict.write_figure", lambda *_: None)
    for _ in range(2):  # what it has written is known again
        run("predict", "m", "t.csv", "--at", "1.5,2.5", "--out", "p.csv", "--plot", "plots")
    assert drawn[0]["x"].tolist() == [1.5, 2.5]
    assert drawn[0]["mean"] == pytest.approx(found["mean_predicted"][:2].to_numpy())


def test_a_suffix_may_be_taken_too(awkward):
    table, _ = awkward
    table = table.rename(columns={"plausibility": "mean_predicted"})
    gp = MetaGP("constant", "rbf", **QUICK).fit(table, task="mean_predicted", x="mean", y="sd")
    header = ["mean_predicted", "mean", "mean_predicted_predicted", "sd", "lower", "upper"]
    assert list(gp.predict(table, [1.5]).columns) == header


@pytest.mark.parametrize(("task", "x", "y"), [("患者🙂", "小时", "脉搏"), ("$_$", "cost in $", r"$\foo$")])
def test_names_that_the_font_lacks_or_takes_for_mathematics_are_drawn_without_a_word(task, x, y, tmp_path, monkeypatch):
    """Warnings are errors here."""
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame([(f"{task} {k}", t, k + t) for k in range(5) for t in range(4)], columns=[task, x, y])
    table.to_csv("t.csv", index=False)
    gp = MetaGP("constant", "rbf", **QUICK).fit(table, task=task, x=x, y=y)
    gp.save("m")
    found = run("predict", "m", "t.csv", "--at", "1,2", "--out", "p.csv", "--plot", "plots", "--quiet")
    assert found.output == ""
    assert len(list(Path("plots").glob("*.png"))) == 5
    run("show", "m", "--pictures", "pictures")
    assert Path("pictures/prior.png").exists()


def curves(scale):
    rng = np.random.default_rng(1)
    x = np.arange(6.0)
    return Tasks.from_pairs(
        [(x, scale * np.exp(rng.normal(0, 0.3) + 0.1 * x + rng.normal(0, 0.1, 6))) for _ in range(9)]
    )


METHODS = {
    "prior": lambda: LearnedPrior("constant", "rbf", **QUICK),
    "combination": lambda: Combination(
        [LearnedPrior(mean, "rbf", **QUICK) for mean in ("constant", "linear")], [0.4, 0.6]
    ),
    "warped": lambda: Warped(LearnedPrior("constant", "rbf", **QUICK)),
}


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_deviations_of_values_whose_squares_vanish(name, calibrated):
    found = []
    for scale in (1.0, 2.0**-990):
        tasks = curves(scale)
        context, target = tasks.context_target(2, seed=0)
        posterior = METHODS[name]().fit(tasks).predict(context, target)
        if calibrated:
            reach = tuple(1.2 * z for z in Calibration.identity().reach)
            posterior = CalibratedPosterior(posterior, Calibration(reach))
        found.append([value / scale for value in (posterior.mean, posterior.sd, *posterior.interval(0.9))])
    for ordinary, tiny in zip(*found, strict=True):
        torch.testing.assert_close(tiny, ordinary, rtol=1e-6, atol=1e-9)


def test_huge_targets_are_refused_before_any_work():
    tasks = Tasks.from_pairs([([0.0, 1.0], [1e80, 2e80]), ([0.0, 1.0], [1.0, 2.0])], ids=["a", "b"])
    with pytest.raises(DataError, match=r"'y' is as large as 2e\+80 \(task 'a'\).*other units"):
        MetaGP(progress=False).fit(tasks)


def test_values_in_other_units_are_told_with_their_task():
    names = {"task": "who", "x": "t", "y": "y"}
    table = pd.DataFrame({"who": [0, 0, 1, 1], "t": [0.0, 1.0] * 2, "y": [1e-300, 2e-300, 2e-300, 1e-300]})
    gp = MetaGP("constant", "rbf", **QUICK).fit(table, **names)
    assert (gp.predict(table, [0.5])["sd"] > 0).all()
    with pytest.raises(NumericalError, match=r"task 0 .*same units"):
        gp.predict(table.assign(y=[1e60, 2e60, 1e-300, 1e-300]), [0.5])
    with pytest.raises(DataError, match=r"as large as 2e\+300 \(task 0\)"):
        gp.predict(table.assign(y=[1e300, 2e300, 1e-300, 1e-300]), [0.5])


CLOCK = pd.DataFrame({"who": ["a", "a", "b", "b"], "t": ["06:00", "12:00"] * 2, "y": [1.0, 2.0, 2.0, 3.0]})
HOURS = CLOCK.assign(t=[6.0, 12.0] * 2)
DAYS = CLOCK.assign(t=["2020-01-01", "2020-01-02"] * 2)


@pytest.mark.parametrize("learned", [CLOCK, HOURS, DAYS], ids=["clock", "hours", "days"])
def test_hours_are_no_times_of_day_and_neither_are_dates(learned):
    """12:00 is half a day, and would be half an hour to a model of hours, within its range and without a word."""
    gp = MetaGP("constant", "rbf", **QUICK).fit(learned, task="who", x="t", y="y")
    for other in (CLOCK, HOURS, DAYS):
        points = other[["who", "t"]]
        if other is learned:
            assert len(gp.predict(other, points)) == 4
            continue
        with pytest.raises(DataError, match=r"the model was trained on .* in column 't'; here it holds"):
            gp.predict(other, [0.5])
        with pytest.raises(DataError, match=r"the model was trained on .* in column 't'; here it holds"):
            gp.predict(learned, points)


def test_texts_that_look_alike_are_two_tasks():
    known = pd.DataFrame({"who": ["7", "7", "8", "8"], "t": [0.0, 1.0] * 2, "y": [5.0, 5.0, 1.0, 1.0]})
    gp = MetaGP("constant", "rbf", **QUICK).fit(known, task="who", x="t", y="y")
    with pytest.warns(UserWarning, match="2 of 3 tasks have no known rows"):
        found = gp.predict(known, pd.DataFrame({"who": ["7", "7.0", "07"], "t": 0.0})).set_index("who")["mean"]
    assert found["7"] != found["7.0"] == found["07"]
    number = gp.predict(known, pd.DataFrame({"who": [7.0], "t": 0.0}))  # a number is written so
    assert number["mean"][0] == pytest.approx(found["7"])


def test_quantiles_are_told_apart():
    with pytest.raises(OptionError, match="the same in their first six digits"):
        Wanted(quantiles=(0.1, 0.1)).check()
