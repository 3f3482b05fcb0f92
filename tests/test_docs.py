"""The pages are true: tables come from result files, commands and examples run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.refresh import PAGES, refreshed
from metaprior.data import DATASETS
from metaprior.experiments import EXPERIMENTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def commands(fence):
    blocks = re.findall(rf"```{fence}\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("metaprior ")]


COMMANDS, LONG = commands("sh"), commands("bash")  # those that run here, and those that need data or many minutes
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
THEORY = (ROOT / "docs" / "theory.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_result_files(page):
    text = page.read_text()
    assert "<!-- table:" in text
    assert refreshed(text) == text


def test_the_readme_has_commands_and_examples():
    assert len(COMMANDS) == 5
    assert len(LONG) == 6
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("command", LONG)
def test_readme_commands_that_need_data_or_time_exist(command):
    _, *words = shlex.split(command)
    if words[0] == "reproduce":
        assert words[1] in (*EXPERIMENTS, "all")
        assert set(words[2::2]) <= {"--data"}
    else:
        assert words[:2] == ["data", "list"] or (words[:2] == ["data", "fetch"] and words[2] in DATASETS)


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_commands_run(command, tmp_path):
    program, *arguments = shlex.split(command)
    path = str(Path(sys.executable).with_name(program))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([path, *arguments], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_readme_examples_run(example, capsys):
    found: dict = {}
    exec(example, found)
    if "posterior" in found:
        assert found["posterior"].mean.shape == (3, 1)
        assert (found["lower"] < found["upper"]).all()
        assert "coverage_90" in capsys.readouterr().out
    else:
        assert found["tasks"].ids == ("a", "b")


def test_the_examples_of_the_theory_page_run(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", THEORY, re.DOTALL)
    found: dict = {}
    exec(example, found)
    assert float(found["fpca"].explained_.sum()) == pytest.approx(1.0)
    assert capsys.readouterr().out


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/reproduction.md")]
    named = {word for page in pages for word in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "bench", "docs"} <= named
    assert named <= targets


def test_local_links_lead_somewhere():
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
