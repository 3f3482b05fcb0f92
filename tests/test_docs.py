"""The pages are true: tables come from result files, commands and examples run, links lead somewhere."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import typer

import metaprior
from docs.refresh import PAGES as WITH_TABLES
from docs.refresh import refreshed
from metaprior.cli.app import app
from metaprior.data import DATASETS
from metaprior.methods import named_methods
from metaprior.paper import EXPERIMENTS
from tests.pages import DOCS, ELSEWHERE, PAGES, ROOT, blocks

README, REFERENCE = PAGES["README.md"], PAGES["docs/reference.md"]
RUN_HERE = [page for page in PAGES if blocks(page, "sh", "python")]
LONG = [(page, line) for page in PAGES for block in blocks(page, "bash") for line in block.lines]


@pytest.mark.parametrize("page", WITH_TABLES, ids=lambda page: page.name)
def test_tables_are_those_of_the_result_files(page):
    text = page.read_text()
    assert "<!-- table:" in text
    assert refreshed(text) == text


def test_the_page_says_how_long_every_experiment_takes():
    for name in EXPERIMENTS:
        found = json.loads((DOCS / "results" / name / "results.json").read_text())
        (cell,) = re.findall(rf"^\| {name} \| ([\d.]+) \| [\d.–]+ \|", PAGES["docs/reproduction.md"], re.MULTILINE)
        assert float(cell) == pytest.approx(sum(found["seconds"].values()) / 60, abs=0.51)


def test_every_block_has_a_language_that_somebody_checks():
    checked = {"python", "sh", "bash", "text", "r", "{toctree}", "{eval-rst}", "{raw}"}
    for page in PAGES:
        assert PAGES[page].count("```") == 2 * len(re.findall(r"^```[\w{]", PAGES[page], re.MULTILINE)), page
        found = {block.language for block in blocks(page)}
        assert found <= checked | ({"ini", "dockerfile"} if page == "docs/serving.md" else set()), page
    for page, modules in ELSEWHERE.items():
        assert all(page.removeprefix("docs/") in (ROOT / f"tests/{name}.py").read_text() for name in modules)
    assert sum(len(blocks(page, "python", "sh")) for page in PAGES) >= 20


def cli_commands():
    """Each command with its options, from the program itself."""
    for name, command in typer.main.get_command(app).commands.items():
        group = getattr(command, "commands", None)
        if group is not None:
            yield name, set()
        for full, found in {f"{name} {sub}": one for sub, one in group.items()}.items() if group else [(name, command)]:
            shown = [parameter for parameter in found.params if not getattr(parameter, "hidden", False)]
            yield full, {option for parameter in shown for option in parameter.opts if option.startswith("--")}


KNOWN = dict(cli_commands())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@pytest.mark.parametrize(("page", "line"), LONG, ids=[f"{page}: {line[:40]}" for page, line in LONG])
def test_commands_that_need_data_or_time_exist(page, line):
    program, *words = shlex.split(line)
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    if program.endswith("metaprior"):
        assert words[0] in KNOWN
        assert options <= {option for name, found in KNOWN.items() if name.split()[0] == words[0] for option in found}
        if words[0] == "reproduce":
            assert words[1] in (*EXPERIMENTS, "all")
        if words[:2] == ["data", "fetch"]:
            assert words[2] in DATASETS
    elif program == "make":
        assert set(words) - {word for word in words if "=" in word} <= TARGETS
    elif program.endswith("pip"):
        assert set(re.findall(r"\[([\w,]+)\]", line)) <= EXTRAS | {"optuna,sklearn"}
    elif program == "python" and words[0] != "-m":
        text = (ROOT / words[0]).read_text()
        assert all(f'"{option}"' in text for option in options), f"{words[0]}: {options}"
    else:
        assert program in ("python", "printf", "curl", "torchrun"), line


@pytest.mark.parametrize("page", [page for page in RUN_HERE if page not in ELSEWHERE])
def test_commands_and_examples_run(page, tmp_path, monkeypatch, capsys):
    """In one folder and in their order, as a reader would. A command that another page has run is not run again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found: dict = {}
    some = blocks(page, "python", "sh")
    if {block.language for block in some} == {"sh"} and page != "README.md":
        some = [block for block in some if not set(block.lines) <= {line for one in OF_README for line in one.lines}]
    for block in some:
        if block.language == "python":
            exec(block.text, found)
            continue
        for line in block.lines:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            assert done.stdout or done.stderr or line.startswith("printf")
    check = EXPECTED.get(page)
    if check:
        check(found, capsys.readouterr().out)


OF_README = blocks("README.md", "sh")


def _readme(found, out):
    assert found["posterior"].mean.shape == (3, 1)
    assert (found["lower"] < found["upper"]).all()
    assert found["tasks"].ids == ("a", "b")
    assert "coverage_90" in out
    assert Path("2011-ahead.csv").read_text().count("\n") == 10
    assert Path("pictures/2011.png").exists()


def _theory(found, out):
    assert float(found["fpca"].explained_.sum()) == pytest.approx(1.0)
    assert out


def _reference(found, out):
    assert found["ahead"]["month"].tolist() == [4, 5, 6]
    assert found["model"](torch.tensor([[5.0]]).double()).mean.shape == (1,)
    assert out


def _scale(found, out):
    assert (found["shards"].tasks, found["shards"].rows) == (1797, 115_008)
    assert "Tasks(100 tasks" in out


EXPECTED = {"README.md": _readme, "docs/theory.md": _theory, "docs/reference.md": _reference, "docs/scale.md": _scale}
"""What has come of a page's examples, where more can be said than that they run."""


R_BLOCKS = [(page, block) for page in PAGES for block in blocks(page, "r")]


def test_every_block_of_r_says_whether_it_was_run():
    assert R_BLOCKS
    assert all(block.before in ("<!-- run -->", "<!-- not run -->") for _, block in R_BLOCKS)


@pytest.mark.parametrize("page", sorted({page for page, _ in R_BLOCKS}))
def test_blocks_of_r_run(page, tmp_path):
    script = "\n".join(block.text for of, block in R_BLOCKS if of == page and block.before == "<!-- run -->")
    for package in re.findall(r"^library\((\w+)", script, re.MULTILINE):
        ask = f'quit(status = !requireNamespace("{package}", quietly = TRUE))'
        if shutil.which("Rscript") is None or subprocess.run(["Rscript", "-e", ask]).returncode:
            pytest.skip(f"no R with {package}: install Debian's r-base-core and r-cran-{package}")
    (tmp_path / "page.R").write_text(script)
    done = subprocess.run(["Rscript", "page.R"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_reference_names_every_command_option_and_public_name():
    for name, options in cli_commands():
        assert f"`metaprior {name}" in REFERENCE
        line = next(line for line in REFERENCE.splitlines() if f"`metaprior {name}" in line)
        for option in options - {"--help"}:
            assert f"`{option}`" in line, f"{name}: {option}"
    for name in metaprior.__all__:
        assert f"`{name}`" in REFERENCE, name


def test_the_site_has_every_public_name_and_every_page():
    listed = set(re.findall(r"^   (\w+)$", PAGES["docs/api.md"], re.MULTILINE))
    assert set(metaprior.__all__) - listed == {"CONFIGURATIONS"}
    trees = "".join(block.text for page in PAGES for block in blocks(page, "{toctree}"))
    within = {line for line in trees.splitlines() if re.fullmatch(r"[a-z-]+", line)}
    assert within | {"index"} == {path.stem for path in DOCS.glob("*.md")}


def test_every_make_target_that_is_named_exists():
    texts = [*PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text()]
    named = {word for text in texts for word in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"demo", "test", "bench", "docs", "site", "dist"} <= named
    assert named <= TARGETS


def test_local_links_lead_somewhere():
    pages = {ROOT / name: text for name, text in PAGES.items()}
    pages |= {ROOT / name: (ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")}
    for page, text in pages.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists() or target == "gallery/index.rst", f"{page.name}: {target}"


def test_every_figure_is_shown_and_every_shown_one_is_there():
    shown = {path for text in PAGES.values() for path in re.findall(r"(?:docs/)?figures/([\w-]+\.png)", text)}
    assert shown == {path.name for path in (DOCS / "figures").iterdir()}


def test_every_rung_of_the_ladder_is_in_the_text():
    """In order, as `auto` climbs them."""
    text = PAGES["docs/beyond.md"].split("## How `auto` works")[1]
    places = [text.index(f"`{name}`") for name in named_methods(lambda one: one.rung)]
    assert places == sorted(places)


def test_the_readme_is_short():
    assert len(README.splitlines()) < 150
