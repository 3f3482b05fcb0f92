"""The commands of the paper and of every page, run as a reader would; what they print beside what is recorded."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from campaign.commands.figures import RELATIVE, UNITS, Compared, compared, compared_results
from campaign.commands.from_pages import Command, Unit, collected, make_tables, units
from campaign.parts import Check, Effort, Section, Table

ROOT = Path(__file__).parents[2]
LIMIT = 3 * 3600.0
"""Seconds after which a command is ended."""

THREADS = 2
SMALL = Command("docs/reproduction.md", "sh", "metaprior reproduce step --methods vanilla")
"""What the smallest campaign runs of the paper."""

LACKING = "No module named"

HOW = f"""Every block of README and docs that is a command or Python is run on {THREADS} threads, those of a page one
after another in one folder, the paper's experiments, benchmarks and examples each in its own. An experiment's rows have
to be within a standard error of those in `docs/results` (of the larger one, where they differ; within {RELATIVE:.0%}
where there is none), and its claims as they are there. What stands beside a command as its output has to be printed
line by line: figures with a standard error agree within it, others within {RELATIVE:.0%} or {UNITS} units of their last
digit. Of a benchmark's table on the page the lines with the same words are compared. Seconds and speeds are not. Tables
that a page only speaks of are made up."""


@dataclass
class Ended:
    """How a command has ended, and how its figures compare."""

    command: Command
    code: int
    said: str
    seconds: float
    figures: Compared = field(default_factory=Compared)

    @property
    def lacking(self) -> bool:
        """Whether it asks for a library that is not here."""
        return self.code != 0 and LACKING in self.said

    @property
    def failed(self) -> bool:
        return self.code != 0 and not self.lacking


PLANTED = Unit(
    (
        Command("planted", "sh", "exit 3"),
        Command("planted", "python", "1 / 0"),
        Command("planted", "sh", "echo 'error 1.20 ± 0.05, width 3.9'", "error 1.10 ± 0.05, width 3.9", whole=True),
        Command("planted", "python", "print('mean 2.5')", "mean 2.5\nsd 0.3", whole=True),
        Command("planted", "sh", "echo 'error 1.14 ± 0.05, width 3.9'", "error 1.10 ± 0.05, width 3.9", whole=True),
    )
)
"""Two that fail, a figure that differs, one that is not printed, and one that agrees."""


def run(effort: Effort) -> Section:
    """All commands in the full campaign; else one experiment and as many of the quick ones as the effort allows."""
    commands = collected()
    every = units(commands)
    if effort.share < 1:
        quick = [unit for unit in every if unit.quick]
        some = random.Random(effort.seed_of(0)).sample(quick, effort.of(len(quick)))
        every = [Unit((SMALL,)), *some]
    ended = [one for _, found in effort.each(partial(run_unit, every), len(every), "commands") for one in found]
    return _section(ended, [command for command in commands if command.why_not], run_unit([PLANTED], 0))


def run_unit(every: list[Unit], number: int) -> list[Ended]:
    """Run the commands of a unit in a folder of their own."""
    commands = every[number].commands
    with tempfile.TemporaryDirectory(prefix="metaprior-commands-") as name:
        folder = Path(name)
        for place in ("benchmarks", "examples"):
            (folder / place).symlink_to(ROOT / place)
        (folder / "docs" / "figures").mkdir(parents=True)
        (folder / "FOLDER").mkdir()
        make_tables(folder)
        outcomes = _outcomes(commands, folder)
        return [_ended(command, folder, *outcome) for command, outcome in zip(commands, outcomes, strict=True)]


def _outcomes(commands: tuple[Command, ...], folder: Path) -> list[Any]:
    """Exit code, what was printed and said, and seconds, of each command."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(THREADS),
        "OMP_WAIT_POLICY": "PASSIVE",
        "MPLBACKEND": "agg",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", ""))),
    }
    asked = json.dumps({"limit": LIMIT, "commands": [(one.language, one.text) for one in commands]})
    words = [sys.executable, "-W", "ignore", "-m", "campaign.commands.child"]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, env=environment, cwd=folder)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    stopped = [done.returncode or 1, "", f"the reader has ended: {done.stderr[-2000:]}", 0.0]
    return found + [stopped] * (len(commands) - len(found))


def _ended(command: Command, folder: Path, code: int, printed: str, said: str, seconds: float) -> Ended:
    ended = Ended(command, code, said, seconds)
    if code == 0 and command.recorded:
        page = folder / command.page  # where a benchmark writes one
        printed += page.read_text(encoding="utf-8") if page.exists() else ""
        ended.figures = compared(command.recorded, printed, whole=command.whole)
    elif code == 0 and command.text.startswith("metaprior reproduce ") and (folder / command.out).exists():
        ended.figures = compared_results(folder / command.out, _recorded(command.out))
    return ended


def _recorded(out: Path) -> Path:
    return ROOT / "docs" / "results" / out.name


def _section(ended: list[Ended], left_out: list[Command], planted: list[Ended]) -> Section:
    failed = [
        f"{one.command.name} ({one.command.page}): exit code {one.code}, {_last(one.said)}"
        for one in ended
        if one.failed
    ]
    differ = [f"{one.command.page}, {one.command.name}: {line}" for one in ended for line in _wrong(one)]
    figures = sum(one.figures.figures for one in ended)
    seen = [(one.failed, bool(_wrong(one))) for one in planted]
    expected = [(True, False), (True, False), (False, True), (False, True), (False, False)]
    checks = [
        Check("every command comes to its end", not failed, _because(len(ended), "commands", failed)),
        Check("figures are the recorded ones", not differ, _because(figures, "figures", differ)),
        Check(
            "a command that fails, and a figure that differs or is not printed, are found where they are planted",
            seen == expected,
            f"{sum(map(tuple.__eq__, seen, expected))} of {len(expected)}",
        ),
    ]
    rows = tuple(
        (one.command.page, one.command.name, one.seconds, one.figures.figures, len(_wrong(one)), not one.failed)
        for one in ended
        if not one.lacking
    )
    columns = ("page", "command", "seconds", "figures compared", "differ", "came to its end")
    lacking = [(f"of {_last(one.said)}", one.command) for one in ended if one.lacking]
    notes = [f"Differs: {line}" for line in differ]
    notes += _left_out([*lacking, *((one.why_not, one) for one in left_out)])
    counts = {"commands": float(len(rows)), "figures": float(figures)}
    return Section("The commands of the pages", HOW, checks, [Table("Commands", columns, rows)], notes, counts)


def _left_out(commands: list[tuple[str, Command]]) -> list[str]:
    """A note for each reason why commands were not run."""
    reasons = dict.fromkeys(reason for reason, _ in commands)
    named = {reason: [f"`{one.name}` ({one.page})" for why, one in commands if why == reason] for reason in reasons}
    return [f"Not run, because {reason}: {', '.join(names)}." for reason, names in named.items()]


def _wrong(ended: Ended) -> list[str]:
    """What differs from the record."""
    return [*ended.figures.differ, *(f"{line} (not printed)" for line in ended.figures.missing)]


def _because(count: int, what: str, wrong: list[str]) -> str:
    return f"{count:,} {what}, {len(wrong)} not so" + "".join(f"; {said}" for said in wrong[:5])


def _last(said: str) -> str:
    return (said.strip().splitlines() or ["nothing said"])[-1][:200]
