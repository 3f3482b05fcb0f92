"""The summary of a test run counts tests that ran: whatever else a run keeps does not end it."""

from types import SimpleNamespace

import pytest

from tests.conftest import NEEDS_DATA, pytest_terminal_summary


def report(when, outcome="passed", **keywords):
    return pytest.TestReport("t.py::test", ("t.py", 1, "test"), keywords, outcome, None, when)


def summary(**stats):
    lines = []
    pytest_terminal_summary(SimpleNamespace(stats=stats, write_line=lines.append))
    return lines


def test_tests_that_were_deselected_are_no_reports():
    item = SimpleNamespace(name="test")  # what `pytest -k` leaves among the statistics
    assert summary(deselected=[item]) == []
    ran, skipped = report("call", **{NEEDS_DATA: 1}), report("setup", "skipped", **{NEEDS_DATA: 1})
    assert summary(passed=[ran, report("call")], skipped=[skipped], deselected=[item]) == [
        "data tests: 1 ran, 1 skipped for want of data"
    ]
