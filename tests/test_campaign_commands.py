"""The campaign's part on commands: what differs from the record, and what fails, is reported."""

import json
import re
from dataclasses import replace

import pytest

from campaign import commands
from campaign.commands import PLANTED, Unit, compared, compared_results, run_unit
from campaign.commands.from_pages import FIRST, NOT_RUN, TABLES, Command, collected, make_tables, units
from campaign.parts import Effort
from tests import pages
from tests.pages import PAGES, blocks, blocks_of

TABLE = """| method | MSE | fit, s |
|---|---:|---:|
| auto | 0.390 ± 0.010 | 12 |
| **last value** | −1.2 | 3 |
"""


@pytest.mark.parametrize(
    ("printed", "differ"),
    [
        (TABLE, 0),
        (TABLE.replace("0.390", "0.399"), 0),  # within its standard error
        (TABLE.replace("0.390", "0.401"), 1),
        (TABLE.replace("−1.2", "▼ -1.25"), 0),  # two units of the last digit, 5%
        (TABLE.replace("−1.2", "1.2"), 1),
        (TABLE.replace("−1.2", "−1.5"), 1),
        (TABLE.replace(" 12 |", " 99 |"), 0),  # seconds
        (TABLE.replace("| −1.2 |", "| −1.2, 7 |"), 1),  # a figure more
    ],
)
def test_figures_that_differ_are_found(printed, differ):
    found = compared(TABLE, printed)
    assert (len(found.differ), found.missing) == (differ, [])
    assert found.figures == 2


def test_lines_that_are_not_printed_are_found_where_all_of_it_has_to_be():
    recorded = "known  error\n    1  2.06\n    3  2.77\n"
    assert compared(recorded, "known  error\n    1  2.06\n").missing == ["3  2.77"]
    assert compared(recorded, "known  error\n    1  2.06\n    3  3.77\n").differ == ["3  2.77 (now 3, 3.77)"]
    part = compared(TABLE, "auto          0.390 ± 0.010\nauto 0.5 in 3 folds\n", whole=False)
    assert (part.figures, part.differ, part.missing) == (1, [], [])


def row(mean, stderr=0.1, method="vanilla"):
    return {"method": method, "setting": "1", "metric": "mse", "mean": mean, "stderr": stderr}


@pytest.mark.parametrize(
    ("ours", "differ"),
    [
        ({}, 0),
        ({"rows": [row(1.09)]}, 0),
        ({"rows": [row(1.11)]}, 1),
        ({"rows": [row(None)]}, 1),
        ({"rows": [row(1.04, None)]}, 0),  # within the recorded standard error
        ({"rows": [row(5.0, method="fpca")]}, 0),  # nothing to compare with
        ({"claims": [{"id": "a", "holds": False}]}, 1),
        ({"rows": [row(5.0)], "settings": {"seed": 1}}, 0),
    ],
)
def test_experiments_are_compared_row_by_row(ours, differ, tmp_path):
    recorded = {"settings": {"seed": 0}, "rows": [row(1.0)], "claims": [{"id": "a", "holds": True}]}
    for name, found in (("recorded", recorded), ("ours", recorded | ours)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(found))
    assert len(compared_results(tmp_path / "ours", tmp_path / "recorded").differ) == differ


def test_every_reason_and_every_stand_in_is_of_some_command():
    every = collected()
    assert all(any(re.search(pattern, one.text) for one in every) for pattern in NOT_RUN)
    assert all(any(name in one.text for one in every) for name in TABLES)
    assert set(FIRST) <= set(PAGES)


def test_every_line_of_the_pages_is_collected_and_every_text_has_its_command(monkeypatch):
    monkeypatch.setenv("METAPRIOR_DATA", "/data")
    every = collected()
    run = {command for unit in units(every) for command in unit.commands}
    assert {one for one in every if not one.why_not} <= run
    for page in PAGES:
        lines = [line for block in blocks(page, "sh", "bash") for line in block.lines]
        assert len(lines) <= len([one for one in every if one.language == "sh"])
        beside_r = {
            block.text for block, last in zip(blocks(page)[1:], blocks(page), strict=False) if last.language == "r"
        }
        for block in blocks(page, "text"):
            known = block.text in beside_r or page == "docs/reference.md" or "GPU" in block.above
            assert known or any(block.text == one.recorded and one.whole for one in every), f"{page}: {block.text}"
    assert sum(one.text.startswith("metaprior reproduce icu") for one in every) == 1
    monkeypatch.delenv("METAPRIOR_DATA")
    left_out = {one.text for one in collected() if "METAPRIOR_DATA" in one.why_not}
    assert {"metaprior reproduce mnist", "metaprior reproduce icu --data $METAPRIOR_DATA"} <= left_out
    assert "metaprior reproduce mnist --quick" not in left_out


def test_tables_are_those_that_commands_name(tmp_path):
    make_tables(tmp_path)
    for name, columns in TABLES.items():
        named = [one.text for one in collected() if f" {name} " in one.text and "--task" in one.text]
        for line in named:
            words = set(re.findall(r"--(?:task|x|y|task-x) ([\w,]+)", line))
            here = {*columns, "diet,hatched"} if name == "chicks.csv" else {*columns}
            assert words <= here, line
        assert (tmp_path / name).stat().st_size > 50


PAGE = """# A page

```sh
metaprior data list
exit 3
```

```python
print("error 1.20")
```

```text
error 1.10
```

`python -c 'print("width 3.9")'` says how wide it is:

```text
width 3.9
```

```bash
make test
```
"""


def test_a_page_whose_commands_fail_and_whose_figures_differ(monkeypatch):
    """All of it, on one page that is not true."""
    monkeypatch.setattr(pages, "PAGES", {"page.md": PAGE})
    monkeypatch.setattr("campaign.commands.from_pages.PAGES", {"page.md": PAGE})
    found = commands.run(Effort(1.0))
    assert [check.holds for check in found.checks] == [False, False, True]
    assert "exit 3 (page.md): exit code 3" in found.checks[0].because
    assert "error 1.10 (now 1.2)" in found.checks[1].because
    assert found.counts == {"commands": 4, "figures": 2}
    assert [row[3:] for row in found.tables[0].rows] == [(0, 0, True), (0, 0, False), (1, 1, True), (1, 0, True)]
    assert any("make test" in note for note in found.notes)
    truth = PAGE.replace("1.10", "1.20").replace("exit 3\n", "")
    monkeypatch.setattr(pages, "PAGES", {"page.md": truth})
    monkeypatch.setattr("campaign.commands.from_pages.PAGES", {"page.md": truth})
    assert commands.run(Effort(1.0)).holds


def test_a_command_that_does_not_end_and_a_library_that_is_not_here(monkeypatch):
    monkeypatch.setattr(commands, "LIMIT", 0.2)
    slow, lacking, reader = (
        Command("page.md", "sh", "sleep 30"),
        Command("page.md", "python", "import no_such_library"),
        Command("page.md", "python", "import os\nos._exit(7)"),
    )
    ended = run_unit([Unit((slow, lacking, reader, slow))], 0)
    assert [(one.failed, one.lacking) for one in ended] == [(True, False), (False, True), (True, False), (True, False)]
    assert "has not ended within" in ended[0].said
    assert ended[2].code == 7


def test_the_smallest_campaign_runs_one_experiment_and_a_quick_unit(monkeypatch):
    run = []

    def note(every, number):
        run.append(every[number])
        return [] if every[number] is not PLANTED else run_unit(every, number)

    monkeypatch.setattr(commands, "run_unit", note)
    assert commands.run(Effort(0.01)).holds
    first, quick, planted = run
    assert [one.text for one in first.commands] == ["metaprior reproduce step --methods vanilla"]
    assert quick.quick
    assert planted is PLANTED


def test_blocks_have_what_stands_beside_them():
    (block,) = blocks_of("one\n\ntwo\nthree\n\n```sh\nls\n```\n\n| a |\n| b |\n\nfour\n")
    assert (block.above, block.before, block.below) == ("two\nthree", "three", "| a |\n| b |")
    first, second = blocks_of("```r\nx\n```\n\n```text\n1\n```\n")
    assert (first.above, second.above) == ("", "")
    assert replace(Command("p", "sh", "metaprior reproduce step --out out/a")).out.name == "a"
