"""The commands on a user's own table, as a user runs them."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import metaprior
from metaprior.cli import fit as cli_fit
from metaprior.cli import main
from metaprior.cli.app import app
from metaprior.data import embedded_table
from metaprior.learning import checkpoints
from metaprior.report.live import page as live
from metaprior.selection import Auto, compare
from metaprior.splits import random_sizes
from metaprior.tasks import Possible, Tasks

NAMES = ["--task", "year", "--x", "month", "--y", "temperature"]


def run(*words, fails=False, stdin=None):
    """A command in this process; what it wrote to standard output and error, and its exit code."""
    found = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    if not fails:
        assert found.exit_code == 0, (found.output, found.exception)
    return found


def refused(*words, capsys, monkeypatch):
    """The message with which the program ends, and that it is the user's to put right: exit code 2."""
    monkeypatch.setattr(sys, "argv", ["metaprior", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of the early years and a table of the late ones."""
    home = tmp_path_factory.mktemp("tool")
    table = embedded_table("elnino")
    years = table["year"].to_numpy()
    csv.write_csv(table.filter(pa.array(years < 1990)), home / "early.csv")
    csv.write_csv(table.filter(pa.array(years >= 1990)), home / "late.csv")
    run("fit", home / "early.csv", *NAMES, "--mean", "deep", "--kernel", "rbf", "--epochs", 60, "--out", home / "m")
    return home


def test_fit_says_what_it_saw_and_what_to_do_next(folder, tmp_path):
    found = run("fit", folder / "early.csv", *NAMES, "--epochs", 20, "--out", tmp_path / "m")
    assert "480 rows, 40 tasks of 12 to 12 points" in found.stderr
    assert "Next: metaprior predict" in found.stderr
    assert "tasks that it has not seen, from" in found.stdout
    assert not list(tmp_path.glob(".*"))


def test_embedded_tables_know_their_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("fit", "elnino", "--epochs", 3, "--mean", "deep", "--kernel", "rbf")
    assert "month → temperature" in found.stderr
    assert metaprior.load("elnino.metaprior").trained_on_.columns == (("year",), ("month",), ("temperature",), ())


def test_quiet_and_json(folder, tmp_path):
    found = run("fit", folder / "early.csv", *NAMES, "--epochs", 5, "--out", tmp_path / "m", "--quiet")
    assert found.output == ""
    found = run("fit", folder / "early.csv", *NAMES, "--epochs", 5, "--out", tmp_path / "m", "--json")
    assert json.loads(found.stdout)["tasks"] == 40


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict_writes_a_table(folder, tmp_path, suffix):
    out = tmp_path / f"p.{suffix}"
    found = run("predict", folder / "m", folder / "late.csv", "--at", "1:12:0.5", "--out", out)
    table = pq.read_table(out) if suffix == "parquet" else csv.read_csv(out)
    assert table.column_names == ["year", "month", "mean", "sd", "lower", "upper"]
    assert table.num_rows == 21 * 23
    assert table["month"].to_pylist()[:23] == np.arange(1, 12.5, 0.5).tolist()
    assert "483 predictions for 21 tasks" in found.stderr
    gp = metaprior.load(folder / "m")
    expected = gp.predict(csv.read_csv(folder / "late.csv"), np.arange(1, 12.5, 0.5))
    assert table["upper"].to_numpy() == pytest.approx(expected["upper"].to_numpy(), rel=1e-12)


def test_predict_pipes(folder):
    text = (folder / "late.csv").read_text()
    found = run("predict", folder / "m", "-", "--at", "13:13:1", "--level", 0.5, "--quantiles", "0.25,0.75", stdin=text)
    table = csv.read_csv(io.BytesIO(found.stdout.encode()))
    assert table.num_rows == 21
    assert table["lower"].to_pylist() == pytest.approx(table["q0.25"].to_pylist())
    assert "outside the range of 'month' that the model was trained on (1 to 12)" in found.stderr


def test_predict_at_a_table_and_at_missing(folder, tmp_path):
    (tmp_path / "at.csv").write_text("year,month\n1995,4\n2030,4\n")
    run("predict", folder / "m", folder / "late.csv", "--at", tmp_path / "at.csv", "--out", tmp_path / "p.csv")
    table = csv.read_csv(tmp_path / "p.csv")
    assert table["year"].to_pylist() == [1995, 2030]
    assert table["sd"][0].as_py() < table["sd"][1].as_py()
    (tmp_path / "gaps.csv").write_text("year,month,temperature\n1,1,24.5\n1,2,25.5\n1,3,\n")
    run("predict", folder / "m", tmp_path / "gaps.csv", "--at", "missing", "--out", tmp_path / "p.csv")
    assert csv.read_csv(tmp_path / "p.csv")["month"].to_pylist() == [3]


def test_predict_keeps_the_order_of_the_rows_in_the_file_of_points(folder, tmp_path):
    years, months = [1995, 2030, 1991, 1995, 2030, 1995], [4, 4, 9, 2, 4, 4]
    rows = "".join(f"{year},{month}\n" for year, month in zip(years, months, strict=True))
    (tmp_path / "at.csv").write_text(f"year,month\n{rows}")
    run("predict", folder / "m", folder / "late.csv", "--at", tmp_path / "at.csv", "--out", tmp_path / "p.csv")
    found = csv.read_csv(tmp_path / "p.csv").to_pydict()
    assert (found["year"], found["month"]) == (years, months)
    known = csv.read_csv(folder / "late.csv").to_pandas()
    gp = metaprior.load(folder / "m")
    for year, month, mean in zip(years, months, found["mean"], strict=True):
        own = known[known["year"] == year]
        alone = gp.condition(own["month"].tolist(), own["temperature"].tolist()).at([month])
        assert mean == pytest.approx(float(alone.mean[0]), rel=1e-9)


def test_predict_draws_a_picture_of_each_task(folder, tmp_path):
    options = ("--at", "1:12:1", "--out", tmp_path / "p.csv", "--plot", tmp_path / "plots", "--samples", 2)
    run("predict", folder / "m", folder / "late.csv", *options)
    assert len(list((tmp_path / "plots").glob("*.png"))) == 21
    assert "sample_2" in csv.read_csv(tmp_path / "p.csv").column_names


def test_several_task_columns_with_dates_and_commas_from_parquet_to_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks = [(site, patient) for site in ("a/b", "a b", "c") for patient in ("1", "2")]
    days = np.datetime64("2020-01-01") + np.arange(5)
    columns = {
        "site": [site for site, _ in tasks for _ in days],
        "patient": [patient for _, patient in tasks for _ in days],
        "day": np.tile(days, len(tasks)),
        "pulse, resting": [60.0 + len(site) + k for site, _ in tasks for k in range(len(days))],
    }
    pq.write_table(pa.table(columns), "t.parquet")
    gp = metaprior.MetaGP("linear", "rbf", max_epochs=5, progress=False)
    gp.fit(pa.table(columns), task=["site", "patient"], x="day", y="pulse, resting").save("m")
    found = run("evaluate", "m", "t.parquet", "--context", "2", "--json")
    assert "trained on 6 of 6 tasks" in found.stderr
    run("predict", "m", "t.parquet", "--at", "t.parquet", "--out", "p.parquet", "--plot", "plots")
    table = pq.read_table("p.parquet")
    assert table.column_names[:3] == ["site", "patient", "day"]
    assert (table["day"].to_numpy()[:5] == days).all()
    assert len(list(Path("plots").glob("*.png"))) == 6


def test_evaluate_compares_and_warns_of_tasks_it_has_seen(folder):
    found = run("evaluate", folder / "m", folder / "late.csv", "--context", "1,3", "--json")
    scores = json.loads(found.stdout)
    assert set(scores) == {"1", "3"}
    ours = scores["3"].pop(str(folder / "m"))
    assert set(scores["3"]) == {"last value", "gp per task"}
    assert set(ours) == {"mse", "log_likelihood", "crps", "coverage_90", "calibration_error"}
    assert all(ours["log_likelihood"]["mean"] > other["log_likelihood"]["mean"] for other in scores["3"].values())
    assert "warning" not in found.stderr
    found = run("evaluate", folder / "m", "elnino", "--context-until", "month=3")
    assert (
        "trained on 36 of 61 tasks (1950, 1951, 1952, …): their scores are too good" in found.stderr
    )  # four were set aside to judge by
    assert "month ≤ 3" in found.stdout


def test_show_tells_and_draws(folder, tmp_path):
    found = run("show", folder / "m", "--pictures", tmp_path)
    assert "36 tasks, 432 rows" in found.stdout
    page = (tmp_path / "model.html").read_text()
    assert page.count("data:image/png") == 5
    assert json.loads(run("show", folder / "m", "--json").stdout)["kind"] == "prior"


def test_compare_ends_in_a_sentence(folder, tmp_path):
    chosen = "learned mean,fpca,last value,gp per task"
    found = run(
        *("compare", folder / "early.csv", *NAMES, "--methods", chosen, "--folds", 3),
        *("--report", tmp_path / "report", "--out", tmp_path / "best"),
    )
    assert "Use " in found.stderr
    assert "against last value and" in found.stderr
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    assert {row["method"] for row in results["rows"]} == {*chosen.split(","), "the choice"}
    assert len(results["settings"]["chosen_in_each_fold"]) == 3
    assert results["settings"]["verdict"] in (tmp_path / "report" / "report.html").read_text()
    assert 'href="live.html"' in (tmp_path / "report" / "report.html").read_text()
    assert "Content-Security-Policy" in (tmp_path / "report" / "live.html").read_text()
    best = metaprior.load(tmp_path / "best")
    assert best.trained_on_.tasks == 40
    run("show", tmp_path / "best", "--pictures", tmp_path / "pictures")


def test_compare_keeps_to_what_the_target_can_be_and_says_who_is_left_out(tmp_path, monkeypatch):
    """Counts; the recommended model is the choice of fit, written with what it was told of the target."""
    monkeypatch.chdir(tmp_path)
    rng, rows = np.random.default_rng(0), []
    for k in range(24):
        level = rng.normal()
        rows += [f"{k},{t},{rng.poisson(np.exp(1.5 + 0.3 * level + np.sin(t)))}" for t in range(2 if k < 4 else 7)]
    write("counts.csv", "\n".join(["patient,week,seizures", *rows]) + "\n")
    words = ("--task", "patient", "--x", "week", "--y", "seizures", "--support", "0,", "--integer")
    methods = ("--methods", "auto,gp per task,last value", "--folds", 2, "--context", "1,3")
    found = run("compare", "counts.csv", *words, *methods, "--report", "report", "--out", "best", "--json")
    left_out = "4 of 24 tasks are not scored from 3 points: they have no more than 3 points (0, 1, 2, 3)."
    assert f"note: {left_out}" in found.stderr
    told = json.loads(found.stdout)
    assert told["recommended"] == "auto"
    assert left_out in told["notes"]
    assert left_out in (Path("report") / "report.html").read_text()
    gp = metaprior.load("best")
    assert gp.trained_on_.possible == (Possible(0.0, math.inf, True),)
    assert isinstance(gp.method_, Auto)
    assert gp.trained_on_.tasks == 24
    tasks = Tasks.from_table(csv.read_csv("counts.csv"), task="patient", x="week", y="seizures")
    expected = compare(
        tasks.with_possible((0, None), integer=True),
        random_sizes([1, 3], 0),
        methods=["auto", "gp per task", "last value"],
        folds=2,
    )
    rows = json.loads((Path("report") / "results.json").read_text())["rows"]
    for (method, setting), scores in expected.scores.items():
        (row,) = [
            one for one in rows if (one["method"], one["setting"], one["metric"]) == (method, setting, "log_likelihood")
        ]
        assert row["mean"] == pytest.approx(scores.summary("log_likelihood").mean)
    impossible = run("compare", "counts.csv", *words[:6], "--support", "1,", *methods, fails=True)
    assert "is said to be 1 or more" in str(impossible.exception)


def test_a_comparison_ends_well_without_a_page_to_try(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MOST", 10)
    methods = ("--methods", "last value,context mean,fpca", "--folds", 3)
    report, best = tmp_path / "report", tmp_path / "best"
    found = run("compare", folder / "early.csv", *NAMES, *methods, "--report", report, "--out", best)
    assert "no page to try it on: the model takes" in found.stderr
    assert "live.html" not in (report / "report.html").read_text()
    assert metaprior.load(best).trained_on_.tasks == 40


def test_fit_goes_on_from_a_model_and_from_a_checkpoint(folder, tmp_path, monkeypatch):
    run("fit", folder / "late.csv", *NAMES, "--from", folder / "m", "--epochs", 5, "--out", tmp_path / "more")
    assert metaprior.load(tmp_path / "more").trained_on_.tasks == 53
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    fit = ("fit", folder / "early.csv", *NAMES, "--epochs", 60, "--mean", "deep", "--kernel", "rbf")
    write = checkpoints.Checkpoint.write

    def stop(self, values):
        write(self, values)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.Checkpoint, "write", stop)
    found = run(*fit, "--out", tmp_path / "m", fails=True)
    assert found.exit_code != 0
    assert "add --resume to go on" in found.stderr
    assert not (tmp_path / "m").exists()
    monkeypatch.setattr(checkpoints.Checkpoint, "write", write)
    run(*fit, "--out", tmp_path / "m", "--resume")
    one, two = (metaprior.load(path).prior_.state_dict() for path in (tmp_path / "m", folder / "m"))
    assert all(value.equal(two[name]) for name, value in one.items())


def test_digits_are_a_table_too(tmp_path):
    table = embedded_table("digits")
    assert table.column_names == ["image", "label", "row", "column", "grey"]
    assert table.num_rows == 1797 * 64


def write(name, text):
    Path(name).write_text(text)
    return name


def test_ids_match_as_they_are_written(folder, tmp_path, monkeypatch):
    """A number in one table may be text in another; a task without rows is told."""
    monkeypatch.chdir(tmp_path)
    known = write("k.csv", "year,month,temperature\n2011,1,24.2\n2011,2,25.9\n")
    alike = run("predict", folder / "m", known, "--at", write("a.csv", "year,month\n2011,5\n"))
    found = run("predict", folder / "m", known, "--at", write("b.csv", "year,month\nnew,5\n2011,5\n"))
    assert found.stdout.splitlines()[2].split(",")[2:] == alike.stdout.splitlines()[1].split(",")[2:]
    assert "1 of 2 tasks have no known rows: they get the prior" in found.stderr
    zeros = write("z.csv", "year,month,temperature\n007,1,24.2\n008,2,25.9\n")
    assert "\n007,4," in run("predict", folder / "m", zeros, "--at", "4:4:1").stdout
    floats = write("f.csv", "year,month,temperature\n1950.0,1,24.2\n1950.0,2,25.9\n1951.0,1,24\n1951.0,2,24\n")
    assert "trained on 2 of 2 tasks" in run("evaluate", folder / "m", floats, "--context", "1").stderr


def test_what_is_dropped_is_told_and_a_task_without_rows_gets_the_prior(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gaps = write("g.csv", "year,month,temperature\n2011,1,24.2\n2011,4,\n2012,4,\n2012,,\n")
    found = run("predict", folder / "m", gaps, "--at", "4:5:1", "--missing", "drop")
    assert [line.split(",")[0] for line in found.stdout.splitlines()[1:]] == ["2011", "2011", "2012", "2012"]
    assert "dropped 3 of 4 rows" in found.stderr
    found = run("predict", folder / "m", gaps, "--at", "missing", "--missing", "drop")
    assert len(found.stdout.splitlines()) == 3
    assert "dropped 1 rows to predict have no 'month' (row 3)" in found.stderr


def test_dates_stay_what_they_were_and_may_be_written_in_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},2020-0{month}-15,{k + month}" for k in range(8) for month in (1, 2, 3, 4)]
    write("d.csv", "\n".join(["patient,day,value", *rows]) + "\n")
    fit = ("--mean", "linear", "--kernel", "rbf", "--epochs", 3, "--out", "m")
    run("fit", "d.csv", "--task", "patient", "--x", "day", "--y", "value", *fit)
    found = run("predict", "m", "d.csv", "--at", "2020-04-01:2020-04-03:1")
    assert found.stdout.splitlines()[1].startswith("0,2020-04-01,")
    assert "2020-01-15 to 2020-04-15" in run("show", "m").stdout
    assert "day ≤ 2020-02-20" in run("evaluate", "m", "d.csv", "--context-until", "day=2020-02-20").stdout
    zone = pa.timestamp("ms", tz="Europe/Berlin")
    table = csv.read_csv("d.csv")
    moments = table["day"].combine_chunks().cast(pa.timestamp("ms")).cast(zone)
    pq.write_table(table.set_column(1, "day", moments), "z.parquet")
    run("predict", "m", "z.parquet", "--at", "z.parquet", "--out", "o.parquet")
    again = pq.read_table("o.parquet")["day"]
    assert again.type == zone
    assert again.to_pylist() == moments.to_pylist()


def test_brackets_in_names_are_no_markup(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{k},{t},{k + t}\n" for k in range(6) for t in range(4))
    write("b.csv", f"who,t [h],speed [/s]\n{rows}")
    fit = ("--mean", "linear", "--kernel", "rbf", "--epochs", 3, "--out", "m")
    run("fit", "b.csv", "--task", "who", "--x", "t [h]", "--y", "speed [/s]", *fit)
    assert "speed [/s] (0 to 8)" in run("show", "m").stdout
    run("fit", write("c.csv", f'who,t,"a, b"\n{rows}'), "--task", "who", "--x", "t", "--y", '"a, b"', *fit)
    assert metaprior.load("m").trained_on_.columns.y == ("a, b",)


def test_what_was_learned_before_is_not_held_out(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("fit", folder / "early.csv", *NAMES, "--from", folder / "m", "--epochs", 2, "--out", "again")
    assert "has learned from 36 of these tasks before" in found.stderr
    assert "no scores" in found.stderr
    assert metaprior.load("again").trained_on_.tasks == 40


def test_json_is_json_where_numbers_are_infinite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("c.csv", "year,month,temperature\n" + "".join(f"{k},{t},5\n" for k in range(6) for t in range(4)))
    found = run("fit", "c.csv", *NAMES, "--mean", "zero", "--kernel", "rbf", "--epochs", 3, "--out", "m")
    assert "column 'temperature' is 5 in every row" in found.stderr
    text = run("evaluate", "m", "c.csv", "--context", "2", "--json").stdout
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


BAD = {
    "pictures in the way": (["show", "MODEL", "--pictures", "empty.csv/x"], "Choose another with --pictures"),
    "nowhere to write": (["compare", "elnino", "--out", "nowhere/m"], "a folder that exists"),
    "another mean": (["fit", "elnino", "--from", "MODEL", "--mean", "zero"], "has mean 'deep'"),
    "no epochs": (["fit", "elnino", "--epochs", "0"], "--epochs 0: give 1 or more"),
    "step of nothing": (["predict", "MODEL", "elnino", "--at", "4:12:nan"], "a step above 0"),
    "long delimiter": (["fit", "elnino.csv", *NAMES, "--delimiter", ";;"], "no file elnino.csv"),
    "two signs": (["fit", "semicolon.csv", *NAMES, "--delimiter", ";;"], "give one sign"),
    "samples": (["predict", "MODEL", "elnino", "--at", "1:12:0.001", "--samples", "1"], "too many to draw together"),
    "categories": (["fit", "words.csv", *NAMES, "--out", "m"], "number the categories"),
    "a billion draws": (["predict", "MODEL", "elnino", "--at", "1:2:1", "--samples", "1000000000"], "at most 100,000"),
    "draws": (["predict", "MODEL", "elnino", "--at", "1:12:0.01", "--samples", "9999"], "give at most 2,977"),
    "huge": (["fit", "huge.csv", *NAMES, "--out", "m"], "'temperature' is as large as 3e+300 (task '1')"),
    "huge, compared": (["compare", "huge.csv", *NAMES], "Give it in other units, below 1e+75"),
    "numbers for dates": (["evaluate", "MODEL", "dated.csv", "--context", "1"], "trained on numbers in column 'month'"),
    "no such file": (["fit", "nothing.csv", *NAMES, "--out", "m"], "no file nothing.csv, nor an embedded table"),
    "columns not named": (["fit", "words.csv", "--x", "month"], "say which columns are what with --task, --y"),
    "a folder": (["fit", ".", *NAMES, "--out", "m"], "holds no shards"),
    "empty": (["fit", "empty.csv", *NAMES, "--out", "m"], "empty.csv is empty"),
    "delimiter": (
        ["fit", "semicolon.csv", *NAMES, "--delimiter", ",", "--out", "m"],
        "(did you mean 'year;month;temperature'?)",
    ),
    "encoding": (["fit", "latin.csv", *NAMES, "--out", "m"], "no UTF-8 text"),
    "duplicate": (["fit", "twice.csv", *NAMES, "--out", "m"], "several columns called 'year'"),
    "no rows": (["fit", "header.csv", *NAMES, "--out", "m"], "has no rows"),
    "no column": (["fit", "elnino", *NAMES[:-1], "temprature", "--out", "m"], "did you mean 'temperature'?"),
    "empty task": (["fit", "notask.csv", *NAMES, "--out", "m"], "task column 'year' is empty in 1 rows"),
    "text as x": (["fit", "words.csv", *NAMES, "--out", "m"], "column 'month' must hold numbers"),
    "parquet": (["fit", "fake.parquet", *NAMES, "--out", "m"], "no Parquet table"),
    "out is a folder": (["fit", "elnino", *NAMES, "--out", "."], "give the name of a file"),
    "no mean": (["fit", "elnino", *NAMES, "--mean", "depp", "--out", "m"], "Did you mean 'deep'"),
    "device": (["fit", "elnino", *NAMES, "--device", "tpu", "--out", "m"], "'cpu', 'cuda' or 'auto'"),
    "missing option": (["fit", "elnino", *NAMES, "--missing", "guess", "--out", "m"], "use one of error, drop"),
    "no model": (["predict", "none", "elnino", "--at", "1:2:1"], "there is no model file none"),
    "range": (["predict", "MODEL", "elnino", "--at", "1:x:1"], "'x' is no number, date or file. Give values"),
    "step": (["predict", "MODEL", "elnino", "--at", "1:5:0"], "a step above 0"),
    "level": (["predict", "MODEL", "elnino", "--at", "1:2:1", "--level", "1.2"], "between 0 and 1"),
    "extension": (["predict", "MODEL", "elnino", "--at", "1:2:1", "--out", "p.xlsx"], "written as one of .csv"),
    "other columns": (["predict", "MODEL", "words2.csv", "--at", "1:2:1"], "no column 'temperature'"),
    "contexts": (["evaluate", "MODEL", "elnino", "--context", "few"], "give whole numbers"),
    "until": (["evaluate", "MODEL", "elnino", "--context-until", "month"], "Give COLUMN=NUMBER"),
    "both contexts": (["evaluate", "MODEL", "elnino", "--context", "1", "--context-until", "month=3"], "not both"),
    "unknown method": (["compare", "elnino", *NAMES, "--methods", "magic"], "unknown method 'magic'"),
    "misspelled method": (
        ["compare", "elnino", *NAMES, "--methods", "fpca,lerned mean"],
        "Did you mean 'learned mean'",
    ),
    "one fold": (["compare", "elnino", *NAMES, "--folds", "1"], "1 folds: give 2 or more"),
    "long contexts": (["compare", "elnino", *NAMES, "--context", "50"], "no task has more than 50 points"),
    "long, evaluate": (["evaluate", "MODEL", "elnino", "--context", "50"], "no task has more than 50 points"),
    "anonymous": (["fit", "anonymous.csv", *NAMES, "--out", "m"], "task column 'year' is empty in 1 rows"),
    "bad points": (["predict", "MODEL", "elnino", "--at", "words3.csv"], "words3.csv has no column 'month'"),
    "other columns than before": (
        ["fit", "swapped.csv", "--task", "year", "--x", "hour", "--y", "gcs", "--from", "MODEL", "--out", "m"],
        "goes from month to temperature: give the same columns",
    ),
    "missing target": (["predict", "MODEL", "gap.csv", "--at", "1:2:1"], "rows out with --missing drop"),
    "removed option": (
        ["predict", "MODEL", "elnino", "--at", "1:2:1", "--fallback"],
        "--fallback was removed: its intervals held far too few values",
    ),
    "one task": (["compare", "one.csv", *NAMES], "1 tasks are too few"),
    "one task, fit": (
        ["fit", "one.csv", *NAMES, "--out", "m"],
        "there is one task only: what tasks have in common cannot be learned from it. Give two or more",
    ),
    "one task, epochs": (["fit", "one.csv", *NAMES, "--epochs", "5", "--out", "m"], "there is one task only: what tas"),
    "one row in all": (["fit", "row.csv", *NAMES, "--out", "m"], "choose mean and kernel, such as constant and rbf"),
    "one row each": (["compare", "single.csv", *NAMES], "every task has one point"),
}

FILES = {
    "huge.csv": b"year,month,temperature\n1,2,3e300\n1,3,2e300\n2,2,1e300\n2,3,2e300\n",
    "dated.csv": b"year,month,temperature\n1,2020-01-02,3\n1,2020-01-03,4\n2,2020-01-02,3\n",
    "empty.csv": b"",
    "semicolon.csv": b"year;month;temperature\n1;2;3\n",
    "latin.csv": "year,month,température\n1,2,3\n".encode("latin-1"),
    "twice.csv": b"year,year,month\n1,2,3\n",
    "header.csv": b"year,month,temperature\n",
    "notask.csv": b"year,month,temperature\n1,2,3\n,2,3\n",
    "words.csv": b"year,month,temperature\n1,May,3\n1,June,4\n",
    "words2.csv": b"year,month,heat\n1,2,3\n",
    "fake.parquet": b"no table",
    "anonymous.csv": b"year,month,temperature\na,2,3\n,2,3\n",
    "words3.csv": b"year,hour\n1,2\n",
    "swapped.csv": b"year,hour,gcs\n1,2,3\n1,3,3\n2,2,3\n3,3,4\n",
    "gap.csv": b"year,month,temperature\n1,2,24\n1,3,\n",
    "one.csv": b"year,month,temperature\n1,2,3\n1,3,4\n",
    "row.csv": b"year,month,temperature\n1,2,3\n",
    "single.csv": b"year,month,temperature\n" + b"".join(b"%d,1,%d\n" % (i, i) for i in range(9)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_message(name, folder, tmp_path, capsys, monkeypatch):
    for file, content in FILES.items():
        (tmp_path / file).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    words, message = BAD[name]
    words = [str(folder / "m") if word == "MODEL" else word for word in words]
    said = refused(*words, capsys=capsys, monkeypatch=monkeypatch)
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "m").exists()


def test_few_points_and_few_tasks_are_no_reason_to_stop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, content in FILES.items():
        Path(file).write_bytes(content)
    found = run("fit", "single.csv", *NAMES, "--epochs", 5, "--out", "m")
    assert "no scores" in found.stderr
    assert "nothing to learn a kernel from" in found.stderr
    run("predict", "m", "single.csv", "--at", "1:2:1", "--out", "p.csv")
    Path("gap.csv").write_bytes(FILES["gap.csv"])
    run("predict", "m", "gap.csv", "--at", "1:2:1", "--missing", "drop", "--out", "p.csv")
    found = run("fit", "one.csv", *NAMES, "--mean", "constant", "--kernel", "rbf", "--epochs", 5, "--out", "m")
    assert "note: there is one task only" in found.stderr
    identical = "year,month,temperature\n" + "".join(f"{i % 5},1,2\n" for i in range(3000))
    Path("same.csv").write_text(identical)
    run("fit", "same.csv", *NAMES, "--epochs", 3, "--mean", "constant", "--kernel", "rbf", "--out", "m")


def test_ctrl_c_ends_cleanly(folder, tmp_path):
    code = "import sys; from metaprior.cli import main; t = sys.modules['metaprior.cli.app']\n"
    code += "def stop(*a, **k): raise KeyboardInterrupt\nt.fit_model = stop\nmain()"
    words = ["fit", str(folder / "early.csv"), *NAMES, "--out", str(tmp_path / "m")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_dates_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},2020-0{month}-15,{k + month}" for k in range(8) for month in (1, 2, 3, 4)]
    Path("dates.csv").write_text("\n".join(["patient,day,value", *rows]) + "\n")
    names = ("--task", "patient", "--x", "day", "--y", "value")
    found = run("fit", "dates.csv", *names, "--epochs", 5, "--mean", "deep", "--kernel", "rbf", "--out", "m")
    assert "days since 1970-01-01" in found.stderr
    Path("ahead.csv").write_text("patient,day\n0,2020-05-15\n")
    found = run("predict", "m", "dates.csv", "--at", "ahead.csv", "--out", "p.csv")
    assert "outside the range" in found.stderr
    assert "2020-05-15" in Path("p.csv").read_text()


def test_a_model_is_written_before_anything_else_can_go_wrong(folder, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("metaprior.cli.fit._score", fail)
    run("fit", folder / "early.csv", *NAMES, "--epochs", 3, "--out", tmp_path / "m", fails=True)
    assert metaprior.load(tmp_path / "m").trained_on_.tasks == 36


def test_scores_are_of_tasks_that_had_no_say(folder, tmp_path, monkeypatch):
    """Neither learned from nor stopped by; one model is trained and one file written."""
    fits, judged, saved = [], [], []
    whole, scored, save = metaprior.LearnedPrior.fit, cli_fit.held_out_scores, metaprior.MetaGP.save

    def fit(self, tasks, **options):
        fits.append({*tasks.ids, *self.training.held_out.ids})
        return whole(self, tasks, **options)

    def judge(gp, tasks, contexts):
        judged.append(set(tasks.ids))
        return scored(gp, tasks, contexts)

    monkeypatch.setattr(metaprior.LearnedPrior, "fit", fit)
    monkeypatch.setattr(cli_fit, "held_out_scores", judge)
    monkeypatch.setattr(metaprior.MetaGP, "save", lambda self, path: (saved.append(path), save(self, path)))
    run(
        "fit", folder / "early.csv", *NAMES, "--mean", "deep", "--kernel", "rbf", "--epochs", 5, "--out", tmp_path / "m"
    )
    (seen,), (asked,) = fits, judged
    assert asked
    assert not seen & asked
    assert len(seen | asked) == 40
    assert saved == [tmp_path / "m"]
    kept = metaprior.load(tmp_path / "m")
    assert kept.trained_on_.seen(seen) == list(seen)
    assert kept.trained_on_.seen(asked) == []
    assert {"mse", "log_likelihood", "coverage"} <= set(next(iter(kept.scores_.values())))
