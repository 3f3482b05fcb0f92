"""The campaign's part on numbers, at a small share: it holds, and what is planted is found."""

import numpy as np
import pytest

from campaign.numerics import ahead, judged, otherwise, planted, run
from campaign.numerics.drawn import Size, draw
from campaign.numerics.judged import Outcome, judge, relative_errors
from campaign.numerics.wanted import Values
from campaign.parts import Effort


def test_a_small_share_holds():
    section = run(Effort(0.003))
    assert [check.text for check in section.checks if not check.holds] == []
    assert section.counts["problems against mpmath"] >= 10
    assert section.counts["against float64 by another route"] >= 100
    planted_table = section.tables[-1]
    assert len(planted_table.rows) == len(planted.PLANTED) + 1
    assert all(one > 0 for row in planted_table.rows for one in row[1:] if one is not None)


def test_both_references_say_the_same_of_a_problem():
    group = draw(3, Size(6, 3, 1), ("rbf",))
    exact, other = (one.wanted(group, 0, 0.0, 0.0) for one in (ahead, otherwise))
    assert set(exact.values) == set(other.values)
    for name, values in exact.values.items():
        found = other.values[name].value
        assert relative_errors(found, values).max() <= values.tolerance
        assert other.values[name].scale.astype(float) == pytest.approx(values.scale.astype(float), rel=1e-6)


def test_an_error_is_relative_to_its_scale_and_has_to_be_a_number():
    values = Values(np.array([1.0, 1.0, 1.0]), np.array([1.0, 100.0, 1.0]), 1.0)
    found = relative_errors(np.array([1.5, 1.5, np.nan]), values)
    assert found.tolist() == [0.5, 0.005, np.inf]
    assert relative_errors(np.array([np.inf]), Values(np.array([1.0]), np.array([1.0]), 1.0))[0] == np.inf


def test_a_miss_is_told_with_the_seed_that_repeats_it():
    outcome = Outcome()
    with planted.planted("½ log 2π left out"):
        judge(draw(7, Size(3, 2, 1)), ahead.wanted, outcome)
    assert outcome.misses > 0
    assert "seed 7" in outcome.said[0]


def test_a_slope_that_is_refused_without_a_reason_is_a_miss(monkeypatch):
    group = draw(0, Size(4, 2, 2), kernels=("rbf",))
    answers = judged.ask(group)
    answers.refused_slope = "task 0: no reason"
    monkeypatch.setattr(judged, "ask", lambda group: answers)
    judge(group, otherwise.wanted, outcome := Outcome())
    assert outcome.misses == outcome.tallies["an error has a reason"].misses == 1
