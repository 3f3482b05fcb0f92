"""Would the tests notice? Small changes to the code, drawn by a seed, each shown to the tests that run it.

    python -m campaign.mutants docs/results/campaign/mutants.json

puts what was said since of the changes that went unnoticed (`mutation/reviewed.json`) into a result: they can be looked
at only once they are known. The code has to be that of the run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from scipy import stats

from campaign.mutation.changes import Change, drawn
from campaign.mutation.project import ENOUGH, LONGEST, Bench, Outcome, Project, Seen, bench
from campaign.parts import Check, Effort, Section, Table, read_section, write_section
from metaprior.progress import progress_bar

ROOT = Path(__file__).parents[1]
REVIEWED = Path(__file__).parent / "mutation" / "reviewed.json"
MUTANTS, UNCHANGED = 300, 10
WANTED = 0.85
SAME = "same"
"""How the word on a change begins that no caller could see."""
NOT_YET = "not yet"
"""What stands there until somebody has looked."""

INFERENCE = (
    "asking baselines conditioning_once device evidence exports families few_tasks fpca frames gathered hierarchical "
    "mixture model numerics outputs possible posterior pretended recorded richer_priors scoring searching stack "
    "suggesting warps"
)
LEARNING = (
    "baselines device evidence few_tasks files fit_shards fpca hierarchical kinds_together lbfgs learning mixture "
    "model outputs pretended richer_priors small_tables stack streaming together"
)
SELECTION = (
    "asking auto clusters extending model possible pretended recorded richer_priors selection small_tables splits "
    "task_covariates trial_rules trials"
)
METAPRIOR = Project(
    ROOT,
    "metaprior",
    {
        room: tuple(f"test_{name}.py" for name in names.split())
        for room, names in (("inference", INFERENCE), ("learning", LEARNING), ("selection", SELECTION))
    },
    (
        "torch", "gpytorch", "scipy.stats", "scipy.optimize", "pyarrow.parquet", "matplotlib.pyplot", "typer",
        "rich.progress", "narwhals", "safetensors.torch", "hypothesis", "pandas", "polars", "sklearn.gaussian_process",
        "botorch", "torch.distributed",
    ),
)  # fmt: skip


def run(effort: Effort, project: Project = METAPRIOR, reviewed: Path = REVIEWED) -> Section:
    """Draw changes, show them to the tests of their room, and say how many are noticed."""
    changes = drawn(project.sources(), effort.of(MUTANTS), effort.seed_of(7))
    unchanged = effort.of(UNCHANGED)
    asked: dict[int, Change | None] = dict(enumerate([*changes, *[None] * unchanged]))
    with bench(project, effort.jobs) as opened:
        tests = _tests(opened, project, {_room(change) for change in changes})
        outcomes = list[Outcome]()
        with progress_bar("changes", len(asked)) as advance:
            for _, outcome in opened.tried(asked, tests):
                outcomes.append(outcome)
                advance()
    unread = [f"Not asked, as they cannot be read on this machine: {', '.join(opened.unread)}."] * bool(opened.unread)
    changed = [one for one in outcomes if one.change]
    section = _section(effort, changed, [one for one in outcomes if not one.change], tests, unread)
    return looked_at(section, changes, json.loads(reviewed.read_text(encoding="utf-8")))


def looked_at(section: Section, changes: Iterable[Change], known: Mapping[str, str]) -> Section:
    """The same with what was said of the changes that were not noticed, one by one."""
    keys = {_cells(change): change.key for change in changes}
    shares, unnoticed = section.tables
    said = [known.get(keys.get((str(row[0]), str(row[1])), ""), NOT_YET) for row in unnoticed.rows]
    rows = tuple((*row[:-1], words) for row, words in zip(unnoticed.rows, said, strict=True))
    looked, same = (sum(map(test, said)) for test in (NOT_YET.__ne__, lambda words: words.startswith(SAME)))
    tried = int(section.counts["changes"])
    noticed = tried - len(rows)
    first, _, *others = section.checks
    every = Check("every change that is not noticed was looked at", looked == len(rows), f"{looked} of {len(rows)}")
    note = (
        f"Of those that were not noticed, {same} change nothing that a caller could see (or only how long it takes): "
        f"without them the share is {noticed / max(1, tried - same):.1%}."
    )
    tables = (shares, replace(unnoticed, rows=rows))
    return replace(section, checks=[first, every, *others], tables=tables, notes=[note, *section.notes[1:]])


def _tests(opened: Bench, project: Project, rooms: set[str]) -> list[Seen]:
    """The tests of some rooms that pass here."""
    files = sorted({file for room in rooms for file in project.rooms[room]})
    found = list[Seen]()
    with progress_bar("test files", len(files)) as advance:
        for tests in opened.watched(files, project.root / "out" / "mutants"):
            found += tests
            advance()
    if not found:
        raise RuntimeError("no test passes here: " + "\n".join(opened.unread.values()))
    return found


def interval(noticed: int, tried: int, level: float = 0.95) -> tuple[float, float]:
    """A share of so many, by Clopper and Pearson."""
    found = stats.binomtest(noticed, tried).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def _section(
    effort: Effort, outcomes: list[Outcome], unchanged: list[Outcome], tests: list[Seen], notes: list[str]
) -> Section:
    """The outcome as a part of the report, before anybody has looked at it."""
    unnoticed = sorted((one for one in outcomes if not one.noticed_by), key=_key)
    noticed, tried = len(outcomes) - len(unnoticed), len(outcomes)
    low, high = interval(noticed, tried)
    reached = noticed / tried if effort.share == 1 else high  # of a few changes the share says little
    false_alarms = [one.noticed_by for one in unchanged if one.noticed_by]
    some = f"{noticed} of {tried}, {noticed / tried:.1%} (95% interval {low:.1%} to {high:.1%})"
    checks = [
        Check(f"at least {WANTED:.0%} of the changes are noticed", reached >= WANTED, some),
        Check("every change that is not noticed was looked at", False, NOT_YET),
        Check(
            "code without a change passes all its tests, in the same way",
            not false_alarms,
            f"{len(unchanged)} times with {unchanged[0].asked} tests" + "".join(f"; {one}" for one in false_alarms),
        ),
    ]
    how = (
        f"A change is one slip in one place of {', '.join(METAPRIOR.rooms)}: another operator, a constant, a slice or "
        "an axis moved by one, arguments swapped, a condition negated, a statement or a call taken away. Each is made "
        "to a copy of the package and shown to the tests of its room that run the line, quickest first, until one "
        f"fails or {ENOUGH:.0f} seconds of them have passed: what slower tests would notice is not counted. Tests that "
        f"do not pass on the machine as it is, or need more than {LONGEST:.0f} seconds, are not asked."
    )
    counts = {"changes": float(tried), "tests that may be asked": float(len(tests))}
    return Section("Would the tests notice?", how, checks, _tables(outcomes, unnoticed), [NOT_YET, *notes], counts)


def _tables(outcomes: list[Outcome], unnoticed: list[Outcome]) -> list[Table]:
    """Shares by room and by operator, and the changes that passed, one by one."""
    missed = {id(one) for one in unnoticed}
    rows: list[tuple[str, int, int, float]] = []
    for group in (_room, _operator):
        every = Counter(group(one.change) for one in outcomes if one.change)
        seen = Counter(group(one.change) for one in outcomes if one.change and id(one) not in missed)
        rows += [(name, count, seen[name], round(seen[name] / count, 3)) for name, count in sorted(every.items())]
    told = [(*_cells(one.change), one.asked, NOT_YET) for one in unnoticed if one.change]
    return [
        Table("Noticed, by room and by what was changed", ("of", "changes", "noticed", "share"), tuple(rows)),
        Table("Not noticed", ("where", "change", "tests asked", "looked at"), tuple(told)),
    ]


def _cells(change: Change) -> tuple[str, str]:
    """Where a change is, and what it is, as a table says it."""
    return f"`{change.file}`, `{change.function}`", _shown(change)


def _room(change: Change) -> str:
    return change.file.split("/")[0]


def _operator(change: Change) -> str:
    return change.operator


def _key(outcome: Outcome) -> str:
    return outcome.change.key if outcome.change else ""


def _shown(change: Change) -> str:
    """A change as a cell of a table: short, on one line, and without a table's own sign."""
    before, after = (" ".join(text.split()).replace("|", "\\|") for text in (change.before, change.after))
    return f"line {change.lines[0]}, {change.operator}: `{_short(before)}` → `{_short(after)}`"


def _short(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def main() -> None:
    path = Path(sys.argv[1])
    section, about = read_section(path)
    effort = Effort(about["share"], about["seed"])
    changes = drawn(METAPRIOR.sources(), effort.of(MUTANTS), effort.seed_of(7))
    write_section(looked_at(section, changes, json.loads(REVIEWED.read_text(encoding="utf-8"))), about, path)


if __name__ == "__main__":
    main()
