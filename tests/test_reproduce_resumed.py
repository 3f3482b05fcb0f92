"""`metaprior reproduce` keeps what is complete of a run that was stopped, and goes on from there."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from metaprior import DataError, OptionError, OutputError, Tasks
from metaprior.cli.app import app
from metaprior.cli.reproduce import CHECKPOINT, reproduce_all, reproduce_experiment
from metaprior.paper import Options, run_experiment
from metaprior.paper.experiments import icu, sinusoid, step
from metaprior.report import Results

CLOCKS = ("seconds", "peak_memory_mb", "files")
QUICK = Options(quick=True, progress=False)


class StoppedError(Exception):
    """The machine was needed for something else."""


def found_in(folder):
    """What a run has written, without what clocks say."""
    found = json.loads((folder / "results.json").read_text())
    for record in found["settings"].get("training", {}).values():
        del record["seconds"]
    return {key: value for key, value in found.items() if key not in CLOCKS}


def assert_same_results(one, other):
    assert found_in(one) == found_in(other)
    assert pq.read_table(one / "tasks.parquet").equals(pq.read_table(other / "tasks.parquet"))
    with np.load(one / "curves.npz") as found, np.load(other / "curves.npz") as wanted:
        assert list(found) == list(wanted)
        assert all(np.array_equal(found[name], wanted[name], equal_nan=True) for name in found)
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    if (one / "model.metaprior").exists():
        assert (one / "model.metaprior").read_bytes() == (other / "model.metaprior").read_bytes()


def stop_after(monkeypatch, parts):
    """Let every run stop when so many parts have been kept."""
    kept, save = [], Results.save_checkpoint

    def save_and_stop(self, path):
        save(self, path)
        kept.append(path)
        if len(kept) == parts:
            raise StoppedError

    monkeypatch.setattr(Results, "save_checkpoint", save_and_stop)


@pytest.fixture
def patients(monkeypatch):
    """The icu experiment on a few patients that were drawn at random."""
    monkeypatch.setattr(icu, "VARIABLES", ("GCS", "HCT"))
    monkeypatch.setattr(icu, "QUICK", 30)

    def draw(part, variables, data=None):
        rng = np.random.default_rng(len(part) + ord(part[-1]))
        hours = [np.sort(rng.uniform(0, 48, rng.integers(4, 9))) for _ in range(40)]
        return {
            name: Tasks.from_pairs([(x, rng.normal() + rng.normal(0, 0.3, len(x))) for x in hours])
            for name in variables
        }

    monkeypatch.setattr(icu, "load_physionet", draw)
    monkeypatch.setattr("metaprior.paper.experiments.find", lambda name, data: None)


RUNS = {
    "step": ("learned both,vanilla,fpca", (1, 3)),
    "sinusoid": ("zero mean,learned mean,learned mean refitted", (1, 2)),
    "mnist": ("mean fit on target,vanilla,linear limit", (1,)),
    "few": ("vanilla,fpca", (1, 2)),
    "theory": ("counter-example,functional PCA", (1,)),
    "icu": ("vanilla,learned both,context mean", (1, 3)),
}


@pytest.mark.parametrize("experiment", RUNS)
def test_a_run_that_was_stopped_goes_on_to_the_same_results(experiment, tmp_path, patients, monkeypatch):
    methods, stops = RUNS[experiment]
    options = replace(QUICK, methods=tuple(methods.split(",")))
    reproduce_experiment(experiment, options, tmp_path / "whole")
    for parts in stops:
        folder = tmp_path / f"stopped {parts}"
        with monkeypatch.context() as stopping:
            stop_after(stopping, parts)
            with pytest.raises(StoppedError):
                reproduce_experiment(experiment, options, folder)
        assert [path.name for path in folder.iterdir()] == [CHECKPOINT]
        reproduce_experiment(experiment, options, folder, resume=True)
        assert_same_results(folder, tmp_path / "whole")
        before = (folder / "results.json").read_bytes()
        with monkeypatch.context() as counting:
            counting.setattr(Results, "save_checkpoint", lambda self, path: pytest.fail("nothing was left to run"))
            reproduce_experiment(experiment, options, folder, resume=True)
        assert_same_results(folder, tmp_path / "whole")
        assert json.loads(before)["seconds"] == json.loads((folder / "results.json").read_text())["seconds"]


@pytest.fixture
def stopped(tmp_path, monkeypatch, capsys):
    """A folder in which the second of two rows has failed, and what was run."""
    run, fitted = [], dict(step.METHODS)

    def counted(name):
        def fit(given):
            run.append(name)
            return fitted[name](given)

        return fit

    def fail(given):
        raise StoppedError

    for name in ("vanilla", "learned mean"):
        monkeypatch.setitem(step.METHODS, name, counted(name))
    monkeypatch.setitem(step.METHODS, "fpca", fail)
    with pytest.raises(StoppedError):
        reproduce_experiment("step", replace(QUICK, methods=("vanilla", "fpca")), tmp_path / "out")
    assert "add --resume to go on" in capsys.readouterr().err
    monkeypatch.setitem(step.METHODS, "fpca", counted("fpca"))
    assert run == ["vanilla"]
    run.clear()
    return tmp_path / "out", run


def test_a_row_that_is_complete_is_not_run_again(stopped, tmp_path):
    folder, run = stopped
    options = replace(QUICK, methods=("vanilla", "fpca"))
    reproduce_experiment("step", options, folder, resume=True)
    assert run == ["fpca"]
    reproduce_experiment("step", options, tmp_path / "whole")
    assert_same_results(folder, tmp_path / "whole")


def test_rows_are_added_to_a_run_that_was_stopped(stopped):
    folder, run = stopped
    reproduce_experiment("step", replace(QUICK, methods=("learned mean",)), folder, add=True)
    assert run == ["learned mean"]
    found = found_in(folder)
    assert found["parts"] == ["vanilla", "learned mean"]
    assert list(dict.fromkeys(row["method"] for row in found["rows"])) == ["vanilla", "learned mean"]
    assert not (folder / CHECKPOINT).exists()
    reproduce_experiment("step", replace(QUICK, methods=("vanilla",)), folder, add=True)
    assert run == ["learned mean", "vanilla"]  # --add runs what it names, also where it is there
    assert sorted(found_in(folder)["parts"]) == ["learned mean", "vanilla"]
    assert len(found_in(folder)["rows"]) == len(found["rows"])
    table = pq.read_table(folder / "tasks.parquet").to_pandas()
    assert not table.duplicated(["method", "setting", "metric", "task"]).any()


def test_a_run_that_was_stopped_is_not_lost_without_a_word(stopped):
    folder, run = stopped
    kept = (folder / CHECKPOINT).read_bytes()
    with pytest.raises(OutputError, match="go on with --resume, or start anew with --overwrite"):
        reproduce_experiment("step", replace(QUICK, methods=("vanilla", "fpca")), folder)
    with pytest.raises(OptionError, match=r"the earlier run has seed = 0 and this one 1: .*--overwrite"):
        reproduce_experiment("step", replace(QUICK, seed=1), folder, resume=True)
    with pytest.raises(OptionError, match="quick = True and this one False"):
        reproduce_experiment("step", replace(QUICK, quick=False), folder, resume=True)
    with pytest.raises(OptionError, match="--add, which runs rows again, or --resume"):
        reproduce_experiment("step", QUICK, folder, resume=True, add=True)
    assert run == []
    assert (folder / CHECKPOINT).read_bytes() == kept
    reproduce_experiment("step", replace(QUICK, seed=1, methods=("vanilla",)), folder, overwrite=True)
    assert found_in(folder)["settings"]["seed"] == 1
    assert not (folder / CHECKPOINT).exists()


def test_all_experiments_look_for_stopped_runs_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.cli.reproduce.check_experiment", lambda name, options: None)
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / CHECKPOINT).touch()
    with pytest.raises(OutputError, match="go on with --resume"):
        reproduce_all(QUICK, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["few"]


def test_an_earlier_run_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    options = replace(QUICK, methods=("vanilla", "fpca"))
    reproduce_experiment("step", replace(options, seed=7), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    stop_after(monkeypatch, 1)
    with pytest.raises(StoppedError):
        reproduce_experiment("step", options, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != CHECKPOINT} == before


def test_a_file_that_is_no_checkpoint(tmp_path, monkeypatch):
    run_experiment("step", replace(QUICK, methods=("vanilla",))).save_checkpoint(tmp_path / CHECKPOINT)
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for content in (b"mine", whole[:-40], whole.replace(b'"experiment"', b'"experimnet"')):
        (tmp_path / CHECKPOINT).write_bytes(content)
        with pytest.raises(DataError, match=r"checkpoint does not hold the rows .* start anew with --overwrite"):
            reproduce_experiment("step", QUICK, tmp_path, resume=True)
        assert (tmp_path / CHECKPOINT).read_bytes() == content


def test_settings_that_hold_others_are_compared_too():
    earlier = Results("icu", {"seed": 0, "patients": {"GCS": 3, "HCT": 4}, "training": {"vanilla": {"epochs": 1}}})
    later = {"seed": 0, "patients": {"GCS": 3}, "training": {}}
    assert earlier.continued("icu", later).settings == earlier.settings
    with pytest.raises(OptionError, match="patients, GCS = 3 and this one 5"):
        earlier.continued("icu", {"seed": 0, "patients": {"GCS": 5}})


def test_curves_that_grow_are_begun_anew_where_a_part_is_run_again(tmp_path):
    options = replace(QUICK, methods=("overfitting",))
    once = run_experiment("theory", options)
    twice = run_experiment("theory", options, once.reopened(options.methods))
    assert twice.rows == once.rows
    assert twice.seconds.keys() == once.seconds.keys()
    assert all(np.array_equal(twice.curves[name], curve) for name, curve in once.curves.items())
    assert pa.concat_tables(twice.tasks).num_rows == pa.concat_tables(once.tasks).num_rows


def test_the_sinusoids_mean_is_fitted_once_for_both_of_its_rows(monkeypatch):
    fitted, fit = [], sinusoid.LearnedPrior.fit
    monkeypatch.setattr(sinusoid.LearnedPrior, "fit", lambda self, tasks: fitted.append(self) or fit(self, tasks))
    run_experiment("sinusoid", replace(QUICK, methods=("learned mean", "learned mean refitted")))
    assert len(fitted) == 1


def test_the_options_of_the_command_line(tmp_path):
    words = ["reproduce", "step", "--quick", "--methods", "bayes limit", "--out", str(tmp_path)]
    run = CliRunner().invoke(app, [*words, "--resume"])
    assert run.exit_code == 0
    assert "there is nothing to resume" in run.stderr
    assert found_in(tmp_path)["parts"] == ["bayes limit"]
    assert isinstance(CliRunner().invoke(app, ["reproduce", "all", "--add"]).exception, OptionError)
    assert torch.get_num_threads() == 1
