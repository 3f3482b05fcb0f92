"""The campaign's part on repeating, at its smallest; and what it would not let pass."""

import pytest

from campaign import repeatable
from campaign.parts import Effort


def test_a_little_of_it_holds_and_finds_what_is_put_in(monkeypatch):
    monkeypatch.setattr(repeatable, "RUNS", 2)
    monkeypatch.setattr(repeatable, "_names", lambda effort: [("last value", 30)])
    found = repeatable.run(Effort(0.001))
    assert found.holds, [check for check in found.checks if not check.holds]
    assert found.checks[-1].because == "m"  # the file that was made to differ
    assert found.counts["files opened"] == 4


@pytest.mark.parametrize(
    ("name", "fitted", "density", "holds"),
    [
        (("fpca", 30), 1e-3, 0.0, [False, True]),
        (("fpca", 30), 0.0, 0.01, [True, False]),
        (repeatable.RESTLESS, 0.1, 0.001, [True, True]),
        (repeatable.RESTLESS, 0.1, 0.01, [True, False]),
    ],
)
def test_what_a_second_thread_may_change(name, fitted, density, holds, monkeypatch):
    """Of deep networks on many tasks no digit, but how well they predict."""

    def process(named, seed, run, threads, planted=False):
        two = float(threads == 2)
        said = {"fitted": [[fitted * two, 1.0]], "predicted": [[0.0, 1.0]], "density": -1.0 - density * two}
        return {"files": {"m": str(run if planted else 0)}, "predicted": said}

    monkeypatch.setattr(repeatable, "_process", process)
    monkeypatch.setattr(repeatable, "_names", lambda effort: [name])
    found = repeatable.run(Effort(1.0))
    assert [check.holds for check in found.checks[1:3]] == holds
    assert found.checks[0].holds
    assert found.checks[3].holds


def test_every_method_is_tried_in_the_full_campaign():
    names = [name for name, _ in repeatable._names(Effort(1.0))]
    assert {*repeatable.named_methods(lambda one: one.make is not None), "auto", "compare", "reproduce"} == set(names)


def test_what_differs_is_seen(tmp_path, monkeypatch):
    assert repeatable._differ([{"m": "a", "p": "b"}, {"m": "a", "p": "c"}]) == ["p"]
    assert repeatable._gap([[0.0, 0.5]], [[0.1, 0.5]]) == pytest.approx(0.2)
    (tmp_path / "one.json").write_text('{"seconds": {"all": 1.5}, "settings": {"seconds": 2.0, "seed": 1}}')
    (tmp_path / "two.json").write_text('{"seconds": {"all": 1.7}, "settings": {"seconds": 3.0, "seed": 1}}')
    (tmp_path / "six.json").write_text('{"seconds": {"all": 1.7}, "settings": {"seconds": 3.0, "seed": 2}}')
    one, two, six = (repeatable._in_short(tmp_path / f"{name}.json") for name in ("one", "two", "six"))
    assert one == two != six


def test_a_file_that_does_not_open_is_told(tmp_path, monkeypatch):
    for name in ("predictions.json", "prior.metaprior"):
        (tmp_path / name).write_bytes((repeatable.FILES / name).read_bytes())
    (tmp_path / "auto.metaprior").write_bytes((repeatable.FILES / "prior.metaprior").read_bytes())
    monkeypatch.setattr(repeatable, "FILES", tmp_path)
    found = dict(repeatable._opened())
    assert found["prior.metaprior"] == ""
    assert found["auto.metaprior"] == "it predicts something else"
    assert "there is no model file" in found["mixture.metaprior"]
    assert "there is no folder" in found["shards"]
