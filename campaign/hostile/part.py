"""The part of the campaign: inputs of all families, divided among processes, and what is planted.

    python -m campaign.hostile.part docs/results/campaign/hostile.json "packed tables"

tries some families again, after something was put right, and puts what comes of it into the result.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from campaign.hostile.contract import Outcome, Place
from campaign.hostile.families import FAMILIES, number_of
from campaign.hostile.home import make_home
from campaign.hostile.planted import PLANTED, found_planted
from campaign.hostile.watch import Tally, input_of, tried
from campaign.parts import Cell, Check, Effort, Section, Table, read_section, write_section
from metaprior.seeds import child_seed

HOW = (
    "Files, tables in memory, requests, points and command lines that work are spoilt by seeded mutations: bits, "
    "bytes, lengths, cells, types, names, headers, shapes and depth; files of ours are signed again in most cases, so "
    "that what is inside is looked at and not the checksum alone. Each is given to the package as a user would, and "
    "where that gives a model or a table, something is predicted from it. Allowed are a result, all of whose numbers "
    "are finite, and a `MetapriorError` (at the command line, exit code 2). Another exception, a crash, more than 10 "
    "seconds (60 for a command with a process of its own, most of which is starting it; 5 for a line that does not "
    "end), more than 2 GB of memory (500 MB for such a line), NaN, infinity or -0.0 in a result, and a warning of "
    "another library break the promise. So do two tasks of one name, a JSON true that counts as a number, a training "
    "that was stopped and is lost, a picture beyond what targets can be, a prior learned from one task, options for "
    "targets that are not named, and a command that does less because nobody reads it. Inputs are tried in processes "
    "that are watched from outside, and one that took too long is tried again by itself."
)
SHOWN = 6000
"""Signs of an input that broke the promise, in the table."""


class Block(NamedTuple):
    """Some inputs of a family."""

    family: str
    start: int
    stop: int


def run(effort: Effort) -> Section:
    """Try them all."""
    tallies, found = _tried_all(effort, list(FAMILIES))
    planted = {name: found_planted(name) for name in PLANTED}
    missed = [name for name, seen in planted.items() if not seen]
    seen = f"{len(planted) - len(missed)} of {len(planted)}: {', '.join(planted)}"
    because = seen + f"; missed: {', '.join(missed)}" * bool(missed)
    check = Check("the watcher finds what is planted", not missed, because)
    return _section(_rows(tallies), _found(found), check, ())


def again(section: Section, effort: Effort, names: Sequence[str]) -> Section:
    """The same with some families tried once more."""
    tallies, found = _tried_all(effort, names)
    rows = {row[0]: row for row in (*section.tables[0].rows, *_rows(tallies))}
    outside = [row for table in section.tables[1:] for row in table.rows if row[0] not in names]
    notes = (*section.notes, f"Tried again, after something was put right: {', '.join(names)}.")
    return _section(tuple(rows.values()), (*outside, *_found(found)), section.checks[1], notes)


Found = tuple[str, int, Outcome, bytes]
"""What broke the promise: its family, its number, how it ended, and the input."""


def _tried_all(effort: Effort, names: Sequence[str]) -> tuple[dict[str, Tally], list[Found]]:
    """What the inputs of these families came to, and which of them broke the promise."""
    blocks = [block for block in blocks_of(effort) if block.family in names]
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        home = Path(folder)
        make_home(home)
        tallies = dict.fromkeys(names, Tally())
        work = partial(tried_block, blocks, effort.seed, home)
        for k, tally in effort.each(work, len(blocks), "block of inputs"):
            tallies[blocks[k].family] = tallies[blocks[k].family].and_of(tally)
        return tallies, [
            (name, number, outcome, input_of(FAMILIES[name], seed_of(name, effort.seed), number, Place(home, home)))
            for name, tally in tallies.items()
            for number, outcome in tally.found
        ]


def blocks_of(effort: Effort) -> list[Block]:
    """What each process is given at a time: the dear ones first, so that none is waited for at the end."""
    found = []
    for name, family in sorted(FAMILIES.items(), key=lambda item: item[1].block):
        count = effort.of(family.full)
        found += [Block(name, k, min(k + family.block, count)) for k in range(0, count, family.block)]
    return found


def seed_of(name: str, seed: int) -> int:
    """Of a family."""
    return child_seed(seed, number_of(name))


def tried_block(blocks: Sequence[Block], seed: int, home: Path, k: int) -> Tally:
    """What the inputs of a block came to."""
    name, start, stop = blocks[k]
    return tried(FAMILIES[name], seed_of(name, seed), range(start, stop), home)


COLUMNS = (
    "family",
    "what is spoilt",
    "inputs",
    "done",
    "refused",
    "places that refuse",
    "outside",
    "ms each",
    "slowest, s",
)


def _section(
    rows: Sequence[tuple[Cell, ...]], outside: Sequence[tuple[Cell, ...]], planted: Check, notes: Sequence[str]
) -> Section:
    """The part of the report, of a row for each family and one for each input that broke the promise."""
    every = sum(int(row[2] or 0) for row in rows)
    broken = Check("no mutated input leads outside the contract", not outside, f"{len(outside):,} of {every:,} do")
    tables = [Table("Inputs by family", COLUMNS, tuple(rows))]
    if outside:
        columns = ("family", "number", "kind", "said", "where", "input")
        tables.append(Table("Outside the contract", columns, tuple(outside)))
    return Section("Hostile input", HOW, [broken, planted], tables, notes, {"mutated inputs": every})


def _rows(tallies: dict[str, Tally]) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for name, one in tallies.items():
        counts = (one.tried, one.done, one.refused, len(one.places), len(one.found))
        rows.append((name, FAMILIES[name].what, *counts, 1000 * one.seconds / max(one.tried, 1), one.slowest))
    return tuple(rows)


def _found(found: Sequence[Found]) -> tuple[tuple[Cell, ...], ...]:
    """What broke the promise, and the inputs as far as they are small: packed by zlib, in base 85."""
    return tuple(
        (name, number, one.kind, one.said.replace("|", "¦")[:200], one.where.replace("|", "¦")[:200], _packed(given))
        for name, number, one, given in found
    )


def _packed(given: bytes) -> str | None:
    text = base64.b85encode(zlib.compress(given, 9)).decode()
    return f"`{text}`".replace("|", "\\|") if len(text) <= SHOWN else None


def main() -> None:
    path, names = Path(sys.argv[1]), sys.argv[2].split(",")
    section, about = read_section(path)
    write_section(again(section, Effort(about["share"], about["seed"], about["jobs"]), names), about, path)


if __name__ == "__main__":
    main()
