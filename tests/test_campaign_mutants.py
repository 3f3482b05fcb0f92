"""The campaign's part on tests: what is changed, which tests are asked, and that a change nobody notices is told."""

import ast
import json
import time
from dataclasses import replace

import pytest

from campaign import mutants
from campaign.mutation.changes import Change, changes, drawn
from campaign.mutation.project import Project, Seen, asked_about, bench
from campaign.parts import Effort

SOURCE = '''"""Words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from math import pi

__all__ = ["f"]
LIMIT = 3
"""More words, with a 4."""


class Kept:
    size: int = 5

    def grown(self, by: int = 2, *, twice: bool = False) -> "list[4]":
        """Words and a 7."""
        self.size += by
        if not twice or by > LIMIT:
            raise ValueError(f"too much: {by + 1}")
        return [min(k, self.size) for k in range(1, self.size) if k - 1]


def f(x, y):
    assert x <= y, "9 is text"
    print("one", 2)
    g(x, y)
    return -x.sum(dim=-1)[1:, :2].clamp(min=0.0) @ torch.exp(y) if x is None else x[y:]
'''
WANTED = {
    "arithmetic": {"k - 1 -> (k + 1)", "self.size += by -> self.size -= by"},
    "comparison": {"by > LIMIT -> (by >= LIMIT)", "x <= y -> (x > y)", "x is None -> (x is not None)"},
    "constant": {"3 -> (4)", "5 -> (6)", "2 -> (3)", "0.0 -> (1.0)"},
    "true/false": {"False -> (True)"},
    "and/or": {"not twice or by > LIMIT -> (not twice and by > LIMIT)"},
    "negation dropped": {"not twice -> (twice)"},
    "condition negated": {"not twice or by > LIMIT -> (not (not twice or by > LIMIT))"},
    "statement removed": {"g(x, y) -> pass", "self.size += by -> pass"},
    "arguments swapped": {"g(x, y) -> (g(y, x))"},
    "min/max, sum/mean": {"min(k, self.size) -> (max(k, self.size))", "x.sum(dim=-1) -> (x.mean(dim=-1))"},
    "axis": {"x.sum(dim=-1) -> (x.sum(dim=-2))"},
    "slice": {"(1:, :2) -> 2:, :2", "(1:, :2) -> 1:, :1", "y: -> y + 1:"},
    "call removed": {"torch.exp(y) -> (y)"},
    "boundary": {"range(1, self.size) -> (range(1, self.size - 1))"},
}


def test_each_operator_finds_its_places():
    found = {}
    for one in changes(SOURCE, "a.py"):
        found.setdefault(one.operator, set()).add(f"{one.before} -> {one.after}")
    for operator, wanted in WANTED.items():
        assert wanted <= found[operator], operator


def test_every_change_is_another_program_and_a_name_of_its_own():
    chosen = drawn({"a.py": SOURCE}, 10_000, 0)
    trees = [ast.dump(ast.parse(one.applied(SOURCE))) for one in chosen]
    assert len(set(trees)) == len(trees) > 30
    assert ast.dump(ast.parse(SOURCE)) not in trees
    assert len({one.key for one in chosen}) == len(chosen)


def test_what_only_people_and_type_checkers_read_stays():
    for one in changes(SOURCE, "a.py"):
        text = one.applied(SOURCE)
        for kept in (
            '"""Words."""',
            "with a 4",
            'list[4]"',
            "a 7",
            "{by + 1}",
            "9 is text",
            'print("one", 2)',
            "TYPE_C",
        ):
            assert kept in text or one.before.startswith("raise"), one.key


def test_a_draw_is_repeatable_and_stays_where_other_code_changes():
    every = {one.key for one in drawn({"a.py": SOURCE}, 40, 1)}
    assert every == {one.key for one in drawn({"a.py": SOURCE}, 40, 1)}
    assert every != {one.key for one in drawn({"a.py": SOURCE}, 40, 2)}
    longer = {one.key for one in drawn({"a.py": "NEW = 1\n" + SOURCE}, 40, 1)}
    assert len(every & longer) >= 39
    assert {one.key for one in drawn({"a.py": SOURCE}, 20, 1)} < every


def test_lines_of_all_modules_of_the_rooms_can_change():
    sources = mutants.METAPRIOR.sources()
    chosen = drawn(sources, 300, 0)
    assert {one.file.split("/")[0] for one in chosen} == {"inference", "learning", "selection"}
    assert len({one.file for one in chosen}) > 30
    for room in mutants.METAPRIOR.rooms.values():
        for file in room:
            assert (mutants.ROOT / "tests" / file).exists(), file


def change(lines, scope=(1, 99), at_import=False):
    return Change("a.py", "f", "constant", "1", "2", lines, at_import, scope, 0, 1)


def test_tests_that_run_the_line_are_asked_the_quickest_first():
    tests = [
        Seen("slow", 3.0, {"a.py": frozenset({5, 6})}),
        Seen("quick", 1.0, {"a.py": frozenset({6})}),
        Seen("elsewhere", 0.1, {"a.py": frozenset({7}), "b.py": frozenset({5})}),
    ]
    names = lambda *of: [one.name for one in asked_about(*of, tests)]  # noqa: E731
    assert names(change((5, 6))) == ["quick", "slow"]
    assert names(change((5, 5))) == ["slow"]
    assert names(change((8, 8))) == []
    assert names(change((1, 1), (5, 5), at_import=True)) == ["slow"]
    assert names(change((1, 1), (1, 1), at_import=True)) == ["elsewhere", "quick", "slow"]


CODE = """LIMIT = 10


def inside(x):
    return x > LIMIT


def unseen(x):
    return x - 1


def runs_on(n):
    while n > 0:
        n -= 1
    return n


def elsewhere(x):
    if x != 3:
        raise SystemExit(1)
"""
TESTS = """import multiprocessing

import pytest
from small.room.code import elsewhere, inside, runs_on, unseen


@pytest.fixture(scope="module")
def ended():
    return runs_on(3)


def test_inside():
    assert inside(11)
    assert not inside(9)


def test_first(ended):
    assert ended == 0


def test_second(ended):
    assert ended == 0


def test_that_is_run_without_a_look():
    unseen(1)


def test_in_another_process():
    process = multiprocessing.get_context("spawn").Process(target=elsewhere, args=(3,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_that_does_not_pass_here():
    assert False
"""


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Tests of these changes take no time, unless they never end."""
    monkeypatch.setattr("campaign.mutation.project.SPARE", 0.5)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A project of one module, of which one function is run but not looked at."""
    root = tmp_path_factory.mktemp("small")
    for folder in ("src/small/room", "tests"):
        (root / folder).mkdir(parents=True)
    for file in ("src/small/__init__.py", "src/small/room/__init__.py", "tests/__init__.py"):
        (root / file).write_text("")
    (root / "src/small/room/code.py").write_text(CODE)
    (root / "tests/test_code.py").write_text(TESTS)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return Project(root, "small", {"room": ("test_code.py",)})


def test_a_change_is_noticed_or_not_by_what_the_tests_look_at(small):
    every = {f"{one.function}: {one.before} -> {one.after}": one for one in changes(CODE, "room/code.py")}
    wanted = {
        "inside: x > LIMIT -> (x <= LIMIT)": "test_inside",
        ": 10 -> (11)": "test_inside",  # at the top of the module
        "inside: x > LIMIT -> (x >= LIMIT)": None,
        "unseen: x - 1 -> (x + 1)": None,
        "runs_on: n > 0 -> (n >= 0)": "test_",
        "elsewhere: x != 3 -> (x == 3)": "test_in_another_process",
        "runs_on: n -= 1 -> pass": "test_",  # it never ends
    }
    begun = time.monotonic()
    with bench(small, jobs=2) as opened:
        tests = [one for some in opened.watched(["test_code.py"], small.root / "out") for one in some]
        outcomes = dict(opened.tried(dict(enumerate([*(every[name] for name in wanted), None])), tests))
    assert time.monotonic() - begun < 60
    users = [one.name.partition("::")[2] for one in tests if 14 in one.lines["room/code.py"]]
    assert users == ["test_first", "test_second"]  # a fixture that they share ran it
    assert "test_that_does_not_pass_here" not in str(tests)
    for k, (name, by) in enumerate(wanted.items()):
        found = outcomes[k].noticed_by
        assert (found is None) == (by is None), f"{name}: {found}"
        assert by is None or by in found
    assert outcomes[len(wanted)].noticed_by is None
    assert (small.root / "src/small/room/code.py").read_text() == CODE


def test_the_report_tells_what_was_not_noticed(small, tmp_path):
    reviewed = tmp_path / "reviewed.json"
    looked_at = [one.key for one in changes(CODE, "room/code.py") if one.function != "unseen"]
    reviewed.write_text(json.dumps(dict.fromkeys(looked_at, "same: nothing looks")))
    section = mutants.run(Effort(0.04, seed=3, jobs=2), small, reviewed)
    told = {row[0]: row[-1] for row in section.tables[1].rows}
    assert told["`room/code.py`, `unseen`"] == "not yet"
    assert set(told.values()) <= {"not yet", "same: nothing looks"}
    assert [check.holds for check in section.checks[1:]] == [False, True]
    assert section.counts["changes"] == 12


def test_files_that_cannot_be_read_are_told_and_not_taken_for_empty(small, tmp_path):
    unread = small.root / "tests" / "test_unread.py"
    unread.write_text("import a_library_that_is_not_here\n")
    reviewed = tmp_path / "reviewed.json"
    reviewed.write_text("{}")
    try:
        both = replace(small, rooms={"room": ("test_code.py", "test_unread.py")})
        assert "test_unread.py" in mutants.run(Effort(0.004, seed=3, jobs=2), both, reviewed).notes[-1]
        with pytest.raises(RuntimeError, match="No module named 'a_library_that_is_not_here'"):
            mutants.run(Effort(0.004, seed=3, jobs=2), replace(small, rooms={"room": ("test_unread.py",)}), reviewed)
    finally:
        unread.unlink()


def test_a_share_has_its_exact_interval():
    low, high = mutants.interval(9, 10)
    assert (low, high) == pytest.approx((0.5550, 0.9975), abs=1e-4)
