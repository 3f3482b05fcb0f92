"""What a command writes costs a user no file: its inputs stay, and so does whatever such a command does not make."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyarrow import csv

import metaprior
from metaprior import OutputError
from metaprior.cli import main
from metaprior.cli.common import Screen
from metaprior.cli.show import show_model
from metaprior.files import saved_in
from metaprior.learning import CHECKPOINT, Checkpoint

NAMES = ["--task", "who", "--x", "t", "--y", "y"]
FIT = ["fit", "mine.csv", *NAMES, "--mean", "constant", "--kernel", "rbf", "--epochs", "2", "--quiet"]
PREDICT = ["predict", "m.metaprior", "mine.csv", "--at", "at.csv", "--quiet"]
COMPARE = ["compare", "mine.csv", *NAMES, "--methods", "last value,gp per task", "--folds", "2", "--quiet"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table, points, a model of them, and something of the user's own."""
    home = tmp_path_factory.mktemp("files")
    rows = "".join(f"{k},{t},{k + t % 3 + 0.1 * k * t}\n" for k in range(6) for t in range(4))
    (home / "mine.csv").write_text(f"who,t,y\n{rows}")
    (home / "at.csv").write_text("who,t\n1,2.5\n")
    (home / "own.csv").write_text("my,notes\n1,2\n")
    table = csv.read_csv(home / "mine.csv")
    gp = metaprior.MetaGP("constant", "rbf", max_epochs=2, progress=False).fit(table, task="who", x="t", y="y")
    gp.save(home / "m.metaprior")
    return {path.name: path.read_bytes() for path in home.iterdir()}


@pytest.fixture
def home(files, tmp_path, monkeypatch):
    """Those files, in the folder in which commands run."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """A command as a user runs it; the message with which it is refused, or nothing."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["metaprior", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == (2 if said else 0)
        return said

    return run


READ = {
    "the table": (FIT, "mine.csv"),
    "the table, compared": (COMPARE, "mine.csv"),
    "the context": (PREDICT, "mine.csv"),
    "the points": (PREDICT, "at.csv"),
    "the model": (PREDICT, "m.csv"),
}
LINKS = {
    "as it is": lambda name: name,
    "by a path": lambda name: f"../{Path.cwd().name}/{name}",
    "by a symbolic link": lambda name: Path("link.csv").symlink_to(name) or "link.csv",
    "by a hard link": lambda name: os.link(name, "link.csv") or "link.csv",
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_never_replaced(name, link, home, files, run):
    words, read = READ[name]
    if name == "the model":  # by a name that a table could have
        Path("m.metaprior").rename("m.csv")
        words = [words[0], "m.csv", *words[2:]]
    before, out = Path(read).read_bytes(), LINKS[link](read)
    for more in ([], ["--overwrite"]):
        assert "is what this command reads" in run(*words, *more, "--out", out)
    assert Path(read).read_bytes() == before


@pytest.mark.parametrize("words", [FIT, PREDICT, COMPARE], ids=lambda words: words[0])
def test_a_file_of_ones_own_is_replaced_only_on_request(words, home, files, run):
    assert "own.csv exists, and would be lost" in run(*words, "--out", "own.csv")
    assert Path("own.csv").read_bytes() == files["own.csv"]
    assert run(*words, "--out", "own.csv", "--overwrite") == ""
    assert run(*words, "--out", "own.csv") == ""  # it is one that the command has made by now
    assert Path("own.csv").read_bytes() != files["own.csv"]
    assert Path("mine.csv").read_bytes() == files["mine.csv"]


def test_predictions_of_other_columns_are_not_ours(home, run):
    Path("p.csv").write_text("who,hour,mean,sd,lower,upper\n1,2,3,4,5,6\n")
    assert "would be lost" in run(*PREDICT, "--out", "p.csv")
    Path("p.csv").write_text('"who","t","mean","sd","lower","upper","more"\n1,2,3,4,5,6,7\n')
    assert "would be lost" in run(*PREDICT, "--out", "p.csv")  # a column of the user's own
    Path("p.csv").write_text("who,t,mean,sd,lower,upper,q0.1,sample_1,plausibility\n1,2,3,4,5,6,7,8,9\n")
    assert run(*PREDICT, "--out", "p.csv") == ""


@pytest.mark.parametrize("name", ["table.md", "results.json", "tasks.parquet", "report.html", "performance.png"])
def test_results_take_the_place_of_results_only(name, home, run):
    Path("rep").mkdir()
    Path("rep", name).write_text("my own")
    assert "would be lost: choose another --report" in run(*COMPARE, "--report", "rep")
    assert Path("rep", name).read_text() == "my own"
    assert run(*COMPARE, "--report", "rep", "--overwrite") == ""
    assert run(*COMPARE, "--report", "rep") == ""  # results by now
    assert "one of the results" in run(*COMPARE, "--report", "rep", "--out", "rep/table.md", "--overwrite")
    words = [COMPARE[0], "rep/table.md", *COMPARE[2:]]
    Path("rep", "table.md").write_bytes(Path("mine.csv").read_bytes())
    assert "is what this command reads" in run(*words, "--report", "rep", "--overwrite")


def test_pictures_take_the_place_of_pictures_only(home, run):
    Path("pic").mkdir()
    for name in ("1.png", "prior.png", "model.html"):
        Path("pic", name).write_text("my own")
    plot = [*PREDICT, "--plot", "pic", "--out", "p.csv"]
    assert "1.png exists, and would be lost: choose another --plot" in run(*plot)
    assert Path("pic", "1.png").read_text() == "my own"
    assert run(*plot, "--overwrite") == ""
    assert run(*plot) == ""  # its own by now
    show = partial(show_model, folder=Path("pic"), html=None, screen=Screen(quiet=True))
    for name in ("prior.png", "model.html"):
        with pytest.raises(OutputError, match=f"{name} exists, and would be lost: choose another --pictures"):
            show("m.metaprior")
        Path("pic", name).unlink()
    show("m.metaprior")
    show("m.metaprior")
    Path("pic", "model.html").write_bytes(Path("m.metaprior").read_bytes())
    with pytest.raises(OutputError, match="is what this command reads"):
        show("pic/model.html", overwrite=True)


def test_the_default_name_and_the_model_that_learning_goes_on_from(home, files, run):
    Path("mine.metaprior").write_text("not a model")
    assert "mine.metaprior exists, and would be lost" in run(*FIT)
    words = [*FIT, "--from", "m.metaprior", "--out", "m.metaprior"]
    assert "m.metaprior exists, and would be lost" in run(*words)
    assert Path("m.metaprior").read_bytes() == files["m.metaprior"]
    assert run(*words, "--overwrite") == ""
    assert Path("m.metaprior").read_bytes() != files["m.metaprior"]


def test_what_lies_where_a_training_is_kept(home, run):
    place = Path(".new.checkpoint")
    place.write_text("mine")
    assert ".new.checkpoint exists, and would be lost" in run(*FIT, "--out", "new")
    assert place.read_text() == "mine"
    place.unlink()
    Checkpoint(place, "of another training").write({"epoch": 3})
    assert saved_in(place) == CHECKPOINT
    assert "holds what a run that was stopped has learned" in run(*FIT, "--out", "new")
    assert saved_in(place) == CHECKPOINT
    assert run(*FIT, "--out", "new", "--overwrite") == ""
    assert saved_in(Path("new")) == "metagp"


def test_the_results_of_a_comparison_leave_its_table_alone(home, run):
    table = csv.read_csv("mine.csv")
    metaprior.data.write_table(table, "tasks.parquet")
    before = Path("tasks.parquet").read_bytes()
    words = [COMPARE[0], "tasks.parquet", *COMPARE[2:], "--report", "."]
    assert "choose another --report" in run(*words)
    assert Path("tasks.parquet").read_bytes() == before


FOLDERS = {
    "--plot": [*PREDICT, "--plot", "own.csv"],
    "--report": [*COMPARE, "--report", "own.csv"],
    "--pictures": ["show", "m.metaprior", "--pictures", "own.csv"],
    "--out": ["reproduce", "step", "--quick", "--out", "own.csv"],
}


@pytest.mark.parametrize("option", FOLDERS)
def test_a_file_is_no_folder(option, home, files, run):
    assert f"Choose another with {option}" in run(*FOLDERS[option])
    assert Path("own.csv").read_bytes() == files["own.csv"]


def test_standard_input_may_be_a_file(home, files):
    code = "from metaprior.cli import main; main()"
    words = [sys.executable, "-c", code, *PREDICT[:2], "-", "--at", "1:2:1", "--out", "mine.csv"]
    with Path("mine.csv").open() as table:
        done = subprocess.run(words, stdin=table, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is what this command reads" in done.stderr
    assert Path("mine.csv").read_bytes() == files["mine.csv"]
