"""The campaign's look at agreement: some of its tables by every way, and differences that are planted and found."""

from contextlib import nullcontext

import numpy as np
import pytest

from campaign import agreement
from campaign.agreement import CASES, Compared, apart, compared, made, tolerance_of
from campaign.agreement.ways import Answer, Fitted, from_python
from campaign.parts import Effort

WAYS = {"command line", "server", "arrays", "page"}


def test_there_are_twenty_tables():
    assert len(CASES) == 20


@pytest.mark.parametrize("name", ["strangers", "task covariates", "counts", "wide", "dates of a time zone", "gaps"])
def test_every_way_gives_the_same_numbers_and_the_same_notes(name, browser, tmp_path):
    case = made(name, 1)
    found = compared(case, tmp_path, browser)
    assert set(found.apart) == WAYS | ({"scikit-learn"} if case.adapter else set())
    assert {way for way, far in found.apart.items() if far > tolerance_of(name, way)} == set()
    assert found.notes == []


def test_the_tables_ask_for_notes_of_every_kind(tmp_path):
    said = " ".join(
        note
        for name in ("strangers", "task covariates", "duplicate rows", "dates of a time zone", "gaps", "two inputs")
        for note in from_python(Fitted(made(name, 0), tmp_path)).notes
    )
    for part in (
        *("points lie outside the range of 't'", "known points lie outside", "tasks lie outside the range of 'age'"),
        *("unlike those the prior was learned from", "have no known rows", "rows repeat", "dropped the time zone"),
        *("rows to predict have no 't'", "dropped 1 of"),
    ):
        assert part in said


def test_numbers_and_notes_that_differ_are_found(monkeypatch, tmp_path):
    answer = Answer(np.array([[1.0, 2.0, -1.0, 3.0]]), ["a", "b: see the column plausibility."])
    assert apart(answer, answer) == 0
    assert apart(answer, Answer(answer.numbers + np.array([0, 0, 0, 1e-8]), [])) == pytest.approx(5e-9)
    assert apart(answer, Answer(answer.numbers * np.nan, [])) == apart(answer, Answer(answer.numbers[:0], [])) == np.inf
    assert agreement.differing("server", answer.notes, ["a", "b."]) == []
    assert agreement.differing("server", answer.notes, ["b.", "a"]) != []
    monkeypatch.setattr(agreement, "_one", lambda names, seed, k: Compared({"server": 1e-8 * k}, []))
    numbers, notes = agreement.run(Effort(0.01)).checks
    assert (numbers.holds, notes.holds) == (False, True)
    monkeypatch.setattr(agreement, "_one", lambda names, seed, k: Compared({"server": 0.0}, ["x"] * (k == 2)))
    numbers, notes = agreement.run(Effort(0.01)).checks
    assert (numbers.holds, notes.holds) == (True, False)


def test_the_part_runs(monkeypatch, browser):
    monkeypatch.setattr(agreement, "browser_of_this_machine", lambda: nullcontext(browser))
    monkeypatch.setattr(agreement, "CASES", {name: CASES[name] for name in ("shares", "two targets")})
    section = agreement.run(Effort(1.0))
    assert section.holds, section.checks
    (table,) = section.tables
    assert [row[0] for row in table.rows] == ["shares", "two targets"]
    assert section.counts["answers"] >= 10
