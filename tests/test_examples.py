"""The examples run as they stand, and come to what their pages say."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adapters.md").read_text()


def figures(lines):
    """The numbers of each line, by what stands before them."""
    return {
        line.rstrip("0123456789.% "): [float(one) for one in re.findall(r"[\d.]+(?=%|\s|$)", line)] for line in lines
    }


@pytest.mark.parametrize(("name", "picture"), [("unseen_group", "unseen-group"), ("past_fit_as_prior", "past-fit")])
def test_an_example_prints_the_table_of_the_page_and_draws_its_picture(name, picture, tmp_path, monkeypatch, capsys):
    path = tmp_path / f"{picture}.png"
    monkeypatch.setattr("sys.argv", ["example", "--out", str(path)])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = [line for line in capsys.readouterr().out.splitlines() if line in PAGE or re.search(r"\d\.\d\d", line)]
    (block,) = [block for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if said[0] in block]
    ours, theirs = figures(said), figures(block.splitlines())
    assert list(ours) == list(theirs)
    for line, values in theirs.items():
        assert ours[line] == pytest.approx(values, rel=0.05, abs=0.01), line
    assert path.stat().st_size > 20_000
    assert f"figures/{picture}.png" in PAGE


def test_the_examples_of_the_page_run(capsys):
    found: dict = {}
    page = PAGE.split("## scikit-learn")[1].split("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(first, found)
    assert (found["lower"] < found["upper"]).all()
    assert (found["known"].predict([[5]], groups=[99]) > found["model"].predict([[5]], groups=[99]) + 2).all()
    exec(second, found)
    new_schools, new_pupils = (np.abs(found[name] - found["y"]).mean() for name in ("new_schools", "new_pupils"))
    assert new_schools > 1.5 * new_pupils
    assert len(capsys.readouterr().out.splitlines()) >= 3
