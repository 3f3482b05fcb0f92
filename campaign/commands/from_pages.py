"""What the pages ask a reader to run, in their order; what is not run here, and why."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from tests.pages import ELSEWHERE, PAGES, Block, blocks

NOT_RUN = {
    r"^make ": "it installs, or measures how quick an idle machine is",
    r"^python -m venv|pip install": "it installs",
    r"^metaprior data fetch": "it downloads (tests/test_fetch.py)",
    r"^metaprior serve|^curl": "it serves until it is stopped (tests/test_serve.py)",
    r"^metaprior reproduce all": "its experiments are run one by one",
    r"benchmarks/(scale|serve)\.py": "it measures how quick an idle machine is",
}
"""Lines that are left out, by what they look like."""

FIRST = {
    "docs/scale-predicting.md": (
        "metaprior shard big.parquet --task id --out shards --buckets 4",
        "metaprior fit shards --x hour --y pulse --rungs fpca --out pulse.metaprior",
    )
}
"""What a page takes from another one."""

DATA = "$METAPRIOR_DATA"
PLACES = {
    r"(digit_kinds\.py --data) FOLDER": rf"\1 {DATA}",
    r"--data FOLDER": f"--data {DATA}/examples",
    r"--table growth\.csv": f"--table {DATA}/examples/growth.csv",
    r"--data ~/my-data": f"--data {DATA}",
    r"\.venv/bin/": "",
}
"""What stands in a page for a reader's own folder, and for the environment of this checkout."""

NEEDS_DATA = re.compile(rf"{re.escape(DATA)}|reproduce (mnist|icu)(?!.*--quick)|reproduce icu")
ALONE = re.compile(r"^metaprior reproduce |^python (benchmarks|examples)/")
"""Commands that need nothing of those before them on the page."""

TABLES = {
    "icu.csv": ("patient", "hour", "pulse"),
    "new.csv": ("patient", "hour", "pulse"),
    "chicks.csv": ("chick", "day", "weight"),
    "new-years.csv": ("year", "month", "temperature"),
    "loblolly.csv": ("Seed", "age", "height"),
    "new-tree.csv": ("Seed", "age", "height"),
    "boys.csv": ("Subject", "age", "height"),
    "big.parquet": ("id", "hour", "pulse"),
}
"""Tables that pages speak of and nobody has: made up, with the columns that the commands name."""


@dataclass(frozen=True)
class Command:
    """Something to run. recorded: what the page says that it prints; whole: it prints nothing else."""

    page: str
    language: str  # python or sh
    text: str
    recorded: str = ""
    whole: bool = False

    @property
    def name(self) -> str:
        return self.text if self.language == "sh" else f"Python, {self.text.strip().splitlines()[-1]}"

    @property
    def out(self) -> Path:
        """Where an experiment's results are written."""
        words = shlex.split(self.text)
        return Path(words[words.index("--out") + 1] if "--out" in words else f"out/{words[2]}")

    @property
    def why_not(self) -> str:
        """The reason why it is not run; empty where it is."""
        reasons = [reason for pattern, reason in NOT_RUN.items() if re.search(pattern, self.text)]
        if self.language == "python":
            return f"tests/{ELSEWHERE[self.page][0]}.py runs it" if self.page in ELSEWHERE else ""
        if not reasons and NEEDS_DATA.search(self.text) and not os.environ.get("METAPRIOR_DATA"):
            reasons = ["it needs the data of METAPRIOR_DATA"]
        return next(iter(reasons), "")


@dataclass(frozen=True)
class Unit:
    """Commands that are run one after another in a folder of their own. quick: it takes no more than some minutes."""

    commands: tuple[Command, ...]
    quick: bool = False


def collected() -> list[Command]:
    """Every command of the pages, the same one of several pages once where it needs nothing else."""
    found: dict[object, Command] = {}
    for page in PAGES:
        for k, command in enumerate(_commands(page)):
            same = re.sub(r"(metaprior reproduce .*) --data \S+", r"\1", command.text)
            found.setdefault(same if ALONE.search(same) else (page, k), command)
    return list(found.values())


def units(commands: list[Command]) -> list[Unit]:
    """What is run: of each page what belongs together, and each long command by itself."""
    run = [command for command in commands if not command.why_not]
    alone = [command for command in run if ALONE.search(command.text)]
    pages = []
    for page in dict.fromkeys(command.page for command in run):
        own = tuple(command for command in run if command.page == page and command not in alone)
        if own:
            quick = not any(block.lines for block in blocks(page, "bash"))
            first = tuple(Command(page, "sh", line) for line in FIRST.get(page, ()))
            pages.append(Unit((*first, *own), quick))
    return [*pages, *(Unit((command,), "--quick" in command.text) for command in alone)]


def _commands(page: str) -> Iterator[Command]:
    every = blocks(page)
    for k, block in enumerate(every):
        following = every[k + 1] if k + 1 < len(every) else None
        printed = following.text if following and following.language == "text" and not _inline(following) else ""
        if block.language == "python":
            yield Command(page, "python", block.text, printed, whole=bool(printed))
        elif block.language in ("sh", "bash"):
            *some, last = [_placed(line) for line in block.lines]
            yield from (Command(page, "sh", line, _table_of(line, block)) for line in some)
            yield Command(page, "sh", last, printed or _table_of(last, block), whole=bool(printed))
        elif block.language == "text" and (line := _inline(block)):
            yield Command(page, "sh", _placed(line), block.text, whole=True)


def _inline(block: Block) -> str:
    """The command that a text says it is printed by, in the paragraph above it."""
    named = re.findall(r"`((?:python|make) [^`]+)`", block.above)
    return named[0] if named else ""


def _placed(line: str) -> str:
    for pattern, place in PLACES.items():
        line = re.sub(pattern, place, line)
    return line


def _table_of(line: str, block: Block) -> str:
    """The tables that a benchmark's figures are recorded in, beside it or where it is named; or a page made of it."""
    if not line.startswith("python benchmarks/"):
        return ""
    if "--markdown " in line:
        return PAGES[line.partition("--markdown ")[2].split()[0]]
    beside = next((text for text in (block.below, block.above) if text.startswith("|")), "")
    named = re.compile(rf"`{re.escape(line)}`[^\n]*\n(?:[^\n]+\n)*\n((?:\|[^\n]*\n)+)")
    return "\n\n".join([beside, *(table for page in PAGES.values() for table in named.findall(page))])


def make_tables(folder: Path) -> None:
    """The tables that pages speak of."""
    for number, (name, (task, x, y)) in enumerate(TABLES.items()):
        rng = np.random.default_rng(number)
        tasks, points = (3, 3) if name.startswith("new") else (60, 12)
        owner, position = np.repeat(np.arange(tasks), points), np.tile(np.arange(1.0, points + 1), tasks)
        values = 20 + 3 * np.sin(position / 3) + rng.normal(size=tasks)[owner] + 0.3 * rng.normal(size=len(owner))
        columns = {task: owner + (1000 if name.startswith("new") else 0), x: position, y: values}
        if name == "chicks.csv":
            columns |= {"diet": np.array(["a", "b", "c"])[owner % 3], "hatched": 1.0 + owner % 7}
        table = pa.table(columns)
        if name.endswith(".parquet"):
            pq.write_table(table, folder / name)
        else:
            csv.write_csv(table, folder / name)
