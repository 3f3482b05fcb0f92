"""What the campaign of faults has found: each of these was wrong once."""

import ctypes
import os
import re
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import metaprior
from metaprior import Auto, DataError, MetaGP
from metaprior.errors import short_of_memory
from metaprior.learning import checkpoints
from metaprior.output import write_whole
from metaprior.report import Results
from metaprior.selection import trials
from tests.problems import ragged
from tests.test_auto import curves
from tests.test_tool import refused, run

TASKS = ragged(count=30, largest=7)
FIT = ["--task", "id", "--x", "x", "--y", "y", "--quiet"]


class StoppedError(Exception):
    """Stands for whatever ends a process."""


def stopped_at(patch, number):
    """Learning is stopped when so many checkpoints have been written."""
    write, count = checkpoints.Checkpoint.write, [0]

    def stop(self, values):
        write(self, values)
        count[0] += 1
        if count[0] == number:
            raise StoppedError

    patch.setattr(checkpoints.Checkpoint, "write", stop)


def table_at(path):
    rng = np.random.default_rng(0)
    lines = [f"t{k % 12},{rng.uniform():.3f},{rng.normal():.3f}" for k in range(60)]
    path.write_text("\n".join(["id,x,y", *lines]) + "\n")
    return path


def test_a_training_that_had_ended_when_it_was_killed_does_not_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)

    def fresh():
        return MetaGP("linear", "rbf", check_every=3, max_epochs=9, progress=False)

    whole = fresh().fit(TASKS)
    with monkeypatch.context() as patch:
        stopped_at(patch, 3)  # after the last epochs
        with pytest.raises(StoppedError):
            fresh().fit(TASKS, checkpoint=tmp_path / "kept")
    resumed = fresh().fit(TASKS, checkpoint=tmp_path / "kept")
    assert resumed.training_.epochs == whole.training_.epochs == 9
    assert resumed.training_.stopped == whole.training_.stopped
    for path, gp in (("whole", whole), ("resumed", resumed)):
        gp.save(tmp_path / path)
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(("count", "ranked"), [(20, 600), (110, 600), (130, 60)])
@pytest.mark.parametrize("kills", [[1], [3], [5], [2, 2]])
def test_a_choice_that_was_killed_ends_with_the_same_bytes(count, ranked, kills, tmp_path, monkeypatch):
    """All folds at once, wave by wave, and from some tasks on to all of them."""
    monkeypatch.setattr(trials, "RANKED", ranked)
    tasks, path = curves(count), tmp_path / "kept"

    def fresh():
        return Auto(rungs=("gp per task", "shared gp", "fpca"), progress=False)

    fresh().fit(tasks).save(tmp_path / "whole")
    for number in kills:
        with monkeypatch.context() as patch:
            stopped_at(patch, number)
            try:
                fresh().fit(tasks, checkpoint=path, keep=True)
            except StoppedError:
                assert path.exists()
    fresh().fit(tasks, checkpoint=path).save(tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not path.exists()


@pytest.mark.parametrize(
    "how", [["--rungs", "gp per task,fpca"], ["--mean", "linear", "--kernel", "deep", "--epochs", "30"]]
)
def test_a_checkpoint_stays_until_the_model_is_there(how, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    words = ["fit", table_at(tmp_path / "t.csv"), *FIT, *how]
    run(*words, "--out", tmp_path / "whole")
    assert not (tmp_path / ".whole.checkpoint").exists()
    with monkeypatch.context() as patch:

        def killed(self, path):
            raise StoppedError

        patch.setattr(MetaGP, "save", killed)
        run(*words, "--out", tmp_path / "m", fails=True)
    kept = (tmp_path / ".m.checkpoint").read_bytes()
    said = refused(*words, "--out", tmp_path / "m", capsys=capsys, monkeypatch=monkeypatch)
    assert (
        ".m.checkpoint holds what a run that was stopped has learned: go on with --resume, or start anew with" in said
    )
    assert (tmp_path / ".m.checkpoint").read_bytes() == kept
    run(*words, "--out", tmp_path / "m", "--resume")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not (tmp_path / ".m.checkpoint").exists()
    (tmp_path / "m").unlink()
    (tmp_path / ".m.checkpoint").write_bytes(kept)
    run(*words, "--out", tmp_path / "m", "--overwrite")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not (tmp_path / ".m.checkpoint").exists()


def in_a_child(work):
    """How a process that does something has ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    MetaGP("deep", "deep", hidden=(60, 60), max_epochs=1, progress=False).fit(TASKS).save(path)
    return path


def test_a_model_file_that_is_cut_short_while_it_is_read_ends_no_process(model, tmp_path, monkeypatch):
    path, header = tmp_path / "m", metaprior.files._header
    path.write_bytes(model.read_bytes())

    def cut(*given):
        os.truncate(path, 0)
        return header(*given)

    monkeypatch.setattr("metaprior.files._header", cut)
    assert in_a_child(lambda: metaprior.load(path)) == 0


def test_a_model_is_written_under_names_that_are_known_as_ours(model, tmp_path):
    """A folder of checkpoints in which a killed run has left something else would be left alone for ever."""
    libc, folder = ctypes.CDLL(None), tmp_path / "out"
    folder.mkdir()
    watch = libc.inotify_init()
    assert libc.inotify_add_watch(watch, os.fsencode(folder), 0x100) >= 0  # whatever is created there
    metaprior.load(model).save(folder / "m")
    told, names = os.read(watch, 4096), []
    os.close(watch)
    while told:
        (length,) = struct.unpack_from("I", told, 12)
        names.append(told[16 : 16 + length].rstrip(b"\0").decode())
        told = told[16 + length :]
    assert names
    assert all(re.fullmatch(r"(\.\d+\.)?m", name) for name in names)


def test_two_who_write_one_file_at_once_do_not_share_what_they_write_to(tmp_path):
    path = tmp_path / "file"

    def slow(part):
        part.write_text("the first")
        write_whole(path, lambda other: other.write_text("the second"))  # in another thread, or on another machine
        assert path.read_text() == "the second"

    write_whole(path, slow)
    assert path.read_text() == "the first"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def ended(work, tmp_path):
    """How the program ends if this is what fitting does."""
    code = "import os, signal, sys, torch; from metaprior.cli import main; t = sys.modules['metaprior.cli.app']\n"
    code += f"def stop(*a, **k): {work}\nt.fit_model = stop\nmain()"
    words = ["fit", str(table_at(tmp_path / "t.csv")), *FIT, "--out", str(tmp_path / "m")]
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


def test_a_process_that_is_asked_to_end_does_so_as_after_ctrl_c(tmp_path):
    done = ended("os.kill(os.getpid(), signal.SIGTERM)", tmp_path)
    assert done.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_process_that_is_stopped_before_its_command_has_begun_ends_without_a_traceback(number, code, tmp_path):
    stop = f"import os, signal, typer.main; from metaprior.cli import main; number = signal.{number}\n"
    stop += "typer.main.get_command = lambda app: os.kill(os.getpid(), number)\nmain()"
    done = subprocess.run([sys.executable, "-c", stop, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")


def test_too_little_memory_is_told(tmp_path):
    done = ended("torch.empty(1 << 60)", tmp_path)
    assert done.returncode == 2
    assert "error: there is too little memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert short_of_memory(MemoryError())
    assert not short_of_memory(RuntimeError("something else"))


def test_results_of_two_runs_are_not_taken_for_one(tmp_path):
    table = table_at(tmp_path / "t.csv")
    for seed in (0, 1):
        words = ["--methods", "last value,context mean", "--folds", 2, "--context", 1, "--seed", seed]
        run("compare", table, *FIT, *words, "--report", tmp_path / f"{seed}")
    assert Results.read(tmp_path / "0").experiment == "compare"
    (tmp_path / "0" / "tasks.parquet").write_bytes((tmp_path / "1" / "tasks.parquet").read_bytes())
    with pytest.raises(DataError, match=r"tasks.parquet is of another run than results.json. Run it again"):
        Results.read(tmp_path / "0")
    run("compare", table, *FIT, *words, "--report", tmp_path / "0")  # they are still known as ours
    assert Results.read(tmp_path / "0").settings["seed"] == 1
