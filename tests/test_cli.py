"""The real command line, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metaprior
from metaprior.cli import reproduce
from metaprior.paper import Options
from metaprior.paper.experiments import mnist

METAPRIOR = str(Path(sys.executable).with_name("metaprior"))


def run(*arguments, cwd=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run([METAPRIOR, *arguments], capture_output=True, text=True, env=environment, cwd=cwd)


def test_a_command_ends_well_when_its_reader_leaves_first(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(f"t{k % 12},{k // 12},{rng.normal():.3f}\n" for k in range(60))
    (tmp_path / "t.csv").write_text(f"task,x,y\n{rows}")
    names = "--task task --x x --y y --rungs 'gp per task' --budget 0"
    fit = f"fit t.csv {names} --out m --html page.html"
    predict = "predict m t.csv --at 0:2000:0.1 --plot pictures"
    for command, reader in ((fit, "2>&1 | true"), (predict, "| head -n 1"), ("show m --json", "| true")):
        line = f"set -o pipefail; {METAPRIOR} {command} {reader}"
        ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
        assert (ended.returncode, "Error" in ended.stderr) == (0, False), (command, ended.stderr)
    assert metaprior.load(tmp_path / "m").trained_on_.tasks == 12
    assert (tmp_path / "page.html").exists()
    assert not (tmp_path / ".m.checkpoint").exists()
    assert len(list((tmp_path / "pictures").iterdir())) == 12
    closed = subprocess.run(["bash", "-c", f"{METAPRIOR} show nothing >&-"], capture_output=True, text=True)
    assert (closed.returncode, "there is no model file nothing" in closed.stderr) == (2, True)


@pytest.mark.parametrize(
    ("experiment", "figures", "sizes", "methods"),
    [
        (
            "step",
            ["performance", "reconstructions"],
            (1, 5, 20),
            ["vanilla", "learned kernel", "learned mean", "learned both"],
        ),
        ("sinusoid", ["samples"], (1, 5, 20), ["zero mean", "true mean", "learned mean"]),
        ("mnist", ["performance", "reconstructions"], (3, 10, 30), list(mnist.METHODS)),
    ],
)
def test_quick_experiments_end_to_end(experiment, figures, sizes, methods, tmp_path):
    done = run("reproduce", experiment, "--quick", "--seed", "3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Mean squared error" in done.stdout
    files = {"results.json", "tasks.parquet", "curves.npz", "table.md", "report.html"}
    files |= {f"{name}.{kind}" for name in figures for kind in ("png", "svg")}
    files |= {"model.metaprior", "live.html"} if experiment == "step" else set()
    assert {path.name for path in tmp_path.iterdir()} == files
    assert ("live.html" in (tmp_path / "report.html").read_text()) == (experiment == "step")
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in figures)
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["settings"]["seed"] == 3
    assert found["settings"]["quick"] is True
    assert {row["setting"] for row in found["rows"]} == set(map(str, sizes))
    assert set(methods) <= {row["method"] for row in found["rows"]}
    assert all(np.isfinite(row["mean"]) for row in found["rows"])
    table = (tmp_path / "table.md").read_text()
    for method in methods:
        assert f"| {method} |" in table


def test_rows_can_be_chosen_and_algorithm_1_runs(tmp_path):
    done = run(
        "reproduce", "step", "--quick", "--methods", "learned mean, bayes limit", "--optimizer", "algorithm1",
        "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert {row["method"] for row in found["rows"]} == {"learned mean", "bayes limit"}
    assert found["settings"]["optimizer"] == "algorithm1"
    assert found["settings"]["training"]["learned mean"]["epochs"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "stpe"], "unknown experiment 'stpe'. Did you mean 'step'?"),
        (
            ["reproduce", "step", "--methods", "learned bth"],
            "unknown method 'learned bth'. Did you mean 'learned both'?",
        ),
        (["reproduce", "step", "--optimizer", "sgd"], "unknown optimizer 'sgd'."),
        (["reproduce", "step", "--seed", "-1"], "seed -1"),
        (["reproduce", "step", "--out", "/dev/null/out"], "cannot write to the folder /dev/null/out"),
        (["reproduce"], "Missing argument"),
        (["reproduce", "step", "--sed", "1"], "--seed"),
    ],
)
def test_the_users_mistakes_exit_with_2_and_no_traceback(arguments, message, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_nothing_is_run_when_the_folder_cannot_be_written(monkeypatch):
    def run_experiment(name, options):
        pytest.fail("the work began before the folder was tried")

    monkeypatch.setattr(reproduce, "run_experiment", run_experiment)
    with pytest.raises(metaprior.OutputError, match="cannot write to the folder"):
        reproduce.reproduce_experiment("step", Options(), Path("/dev/null/out"))


def test_help_shows_options_and_an_example():
    text = run("reproduce", "--help").stdout
    for word in ("--out", "--seed", "--methods", "--optimizer", "--quick", "Example:", "sinusoid", "algorithm1"):
        assert word in text
    assert "reproduce" in run("--help").stdout


def test_version():
    assert run("--version").stdout == f"metaprior {metaprior.__version__}\n"
