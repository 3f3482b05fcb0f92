"""The examples of learning curves and of one likelihood run as they stand, and come to what their page says."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adapters.md").read_text()


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What an example prints; its picture is there, and on the page."""

    def run(name, picture):
        path = tmp_path / f"{picture}.png"
        monkeypatch.setattr("sys.argv", ["example", "--out", str(path)])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        assert path.stat().st_size > 20_000
        assert f"python examples/{name}.py --out docs/figures/{picture}.png" in PAGE
        assert f"figures/{picture}.png)" in PAGE
        return capsys.readouterr().out

    return run


def numbers(text):
    return [float(one) for one in re.findall(r"\d+\.?\d*", text)]


def on_page(first_line):
    """The block of the page that begins so."""
    (block,) = [one for one in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if one.startswith(first_line)]
    return block


def test_learning_curves(printed):
    header, whole, learned = printed("learning_curves", "learning-curves").splitlines()
    (epochs, loss), (fewer, other) = (numbers(line) for line in (whole, learned))
    assert (epochs, fewer < epochs / 2) == (600, True)
    assert other < 1.15 * loss
    said = [value for line in on_page(header).splitlines()[1:] for value in numbers(line)]
    assert said == pytest.approx([epochs, loss, fewer, other], rel=0.1)  # a rounding may stop a trial a step later


def test_one_likelihood_over_many_datasets(printed):
    out = printed("one_likelihood_many_datasets", "one-likelihood")
    assert numbers(out) == pytest.approx(numbers(on_page(out.splitlines()[0])), abs=0.02)
    few, many, truth = (numbers(out.splitlines()[k]) for k in (1, 4, 5))
    for k, value in enumerate(truth):
        assert many[1 + 2 * k] < value < many[2 + 2 * k]  # the true one lies in between
        assert many[2 + 2 * k] - many[1 + 2 * k] < 0.3 * (few[2 + 2 * k] - few[1 + 2 * k])


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.split("## Optuna")[1].split("\n## ")[0], re.DOTALL)
    found: dict = {}
    exec(example, found)
    epochs = int(capsys.readouterr().out.split()[0])
    assert epochs == sum(len(trial.intermediate_values) for trial in found["study"].trials) < 0.8 * 20 * 15
