"""The page of the campaign is made of what it found, and of nothing else."""

import math
from pathlib import Path

import pytest

from campaign import __main__ as campaign
from campaign.parts import Check, Effort, Section, Table, read_section, write_section
from campaign.report import PARTS, report

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results" / "campaign"
ABOUT = {"part": "numerics", "share": 0.5, "seed": 3, "jobs": 2, "seconds": 12.0, "versions": {"python": "3"}}


def test_the_page_is_that_of_the_result_files():
    assert (ROOT / "docs" / "trust.md").read_text() == report(RESULTS)
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(PARTS)


def test_a_section_comes_back_as_it_was_and_hides_nothing(tmp_path):
    table = Table("figures", ("what", "how much"), (("a", 1.5), ("b", math.inf), ("c", None)))
    section = Section("Numbers", "how", (Check("it holds", False, "it does not"),), (table,), ("a note",), {"tries": 7})
    write_section(section, ABOUT, tmp_path / "numerics.json")
    again, about = read_section(tmp_path / "numerics.json")
    assert (again.tables, again.checks, again.counts, about) == ((table,), section.checks, section.counts, ABOUT)
    assert not again.holds
    page = report(tmp_path)
    for said in (
        "| Numbers | 7 tries | 0 of 1 |",
        "✗ it holds: it does not",
        "| b | inf |",
        "50.0% of the full campaign",
    ):
        assert said in page


def test_a_part_that_fails_takes_none_of_the_others_with_it(tmp_path, monkeypatch, capsys):
    def run(name, effort, out, console):
        if name == "hostile":
            raise RuntimeError("no room")
        section = Section(PARTS[name], "how", (Check("it holds", True, "it does"),), counts={"tries": 1})
        write_section(section, ABOUT | {"part": name}, out / f"{name}.json")
        return section

    monkeypatch.setattr(campaign, "run_part", run)
    monkeypatch.setattr("sys.argv", ["campaign", "--parts", "numerics,hostile,supply", "--out", str(tmp_path)])
    assert campaign.main() == 1
    assert "no room" in capsys.readouterr().out
    page = (tmp_path / "trust.md").read_text()
    assert page == report(tmp_path)
    for said in (
        "| Numbers | 1 tries | 1 of 1 |",
        "| Hostile input | not run in full yet | – |",
        "| What comes along |",
    ):
        assert said in page
    monkeypatch.setattr("sys.argv", ["campaign", "--parts", "supply", "--out", str(tmp_path)])
    assert campaign.main() == 0
    monkeypatch.setattr("sys.argv", ["campaign", "--parts", "nothing", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        campaign.main()
    assert "unknown parts nothing" in capsys.readouterr().err


def squared(number):
    return number**2


@pytest.mark.parametrize("jobs", [1, 2])
def test_effort_is_divided_and_counted(jobs):
    effort = Effort(0.01, seed=1, jobs=jobs)
    assert (effort.of(1000), effort.of(10), effort.of(10, least=20), Effort(1.0).of(10)) == (10, 1, 10, 10)
    assert dict(effort.each(squared, 5, "squares")) == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert effort.seed_of(1) != effort.seed_of(2)
