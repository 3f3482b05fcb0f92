"""The pages are true: tables come from result files, commands and examples run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

import metaprior
from docs.refresh import PAGES, refreshed
from metaprior.cli.app import app
from metaprior.data import DATASETS
from metaprior.methods import named_methods
from metaprior.paper import EXPERIMENTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
PAGES_READ = ("tutorial", "theory", "reference", "scale")
TUTORIAL, THEORY, REFERENCE, SCALE = ((DOCS / f"{name}.md").read_text() for name in PAGES_READ)


def commands(text, fence):
    blocks = re.findall(rf"```{fence}\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(("metaprior ", "printf "))]


def examples(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


COMMANDS = commands(README, "sh")  # they run here, one after another
LONG = [
    line for text in (README, TUTORIAL, THEORY, SCALE) for line in commands(text, "bash")
]  # these need data or minutes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_result_files(page):
    text = page.read_text()
    assert "<!-- table:" in text
    assert refreshed(text) == text


def test_there_are_commands_and_examples():
    assert len(COMMANDS) == 12
    assert set(commands(TUTORIAL, "sh")) <= set(COMMANDS)
    assert len(LONG) >= 10
    assert [len(examples(text)) for text in (README, THEORY, REFERENCE, SCALE)] == [2, 1, 1, 1]


@pytest.mark.parametrize("command", LONG)
def test_commands_that_need_data_or_time_exist(command):
    _, *words = shlex.split(command)
    assert words[0] in {name for name, _ in cli_commands()}
    options = {option for name, found in cli_commands() if name.split()[0] == words[0] for option in found}
    assert {word for word in words if word.startswith("--")} <= options
    if words[0] == "reproduce":
        assert words[1] in (*EXPERIMENTS, "all")
    if words[:2] == ["data", "fetch"]:
        assert words[2] in DATASETS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_commands_run(command, folder):
    """In one folder and in their order, as a reader would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout or done.stderr or command.startswith("printf")
    if "2011-ahead" in command:
        assert (folder / "2011-ahead.csv").read_text().count("\n") == 10
        assert (folder / "pictures" / "2011.png").exists()


@pytest.mark.parametrize("example", examples(README))
def test_readme_examples_run(example, capsys):
    found: dict = {}
    exec(example, found)
    if "posterior" in found:
        assert found["posterior"].mean.shape == (3, 1)
        assert (found["lower"] < found["upper"]).all()
        assert "coverage_90" in capsys.readouterr().out
    else:
        assert found["tasks"].ids == ("a", "b")


def test_the_example_of_the_theory_page_runs(capsys):
    found: dict = {}
    exec(examples(THEORY)[0], found)
    assert float(found["fpca"].explained_.sum()) == pytest.approx(1.0)
    assert capsys.readouterr().out


def test_the_example_of_the_reference_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(examples(REFERENCE)[0], found)
    assert found["ahead"]["month"].tolist() == [4, 5, 6]
    assert found["model"](torch.tensor([[5.0]]).double()).mean.shape == (1,)
    assert capsys.readouterr().out


def test_the_example_of_the_scale_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(examples(SCALE)[0], found)
    assert (found["shards"].tasks, found["shards"].rows) == (1797, 115_008)
    assert "Tasks(100 tasks" in capsys.readouterr().out


def cli_commands():
    """Each command with its options, from the program itself."""
    for name, command in typer.main.get_command(app).commands.items():
        group = getattr(command, "commands", None)
        if group is not None:
            yield name, set()
        for full, found in {f"{name} {sub}": one for sub, one in group.items()}.items() if group else [(name, command)]:
            yield full, {option for parameter in found.params for option in parameter.opts if option.startswith("--")}


def test_the_reference_names_every_command_option_and_public_name():
    for name, options in cli_commands():
        assert f"`metaprior {name}" in REFERENCE
        line = next(line for line in REFERENCE.splitlines() if f"`metaprior {name}" in line)
        for option in options - {"--help"}:
            assert f"`{option}`" in line, f"{name}: {option}"
    for name in metaprior.__all__:
        assert f"`{name}`" in REFERENCE, name


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/reproduction.md")]
    named = {word for page in pages for word in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "bench", "docs"} <= named
    assert named <= targets


def test_local_links_lead_somewhere():
    for page in (*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_rung_of_the_ladder_is_in_the_text():
    """In order, as `auto` climbs them."""
    text = (DOCS / "beyond.md").read_text().split("## How `auto` works")[1]
    places = [text.index(f"`{name}`") for name in named_methods(lambda one: one.rung)]
    assert places == sorted(places)
