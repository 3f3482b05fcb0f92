"""The part of the campaign: inputs of all families, divided among processes, and what is planted."""

from __future__ import annotations

import base64
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
from campaign.parts import Check, Effort, Section, Table
from metaprior.seeds import child_seed

HOW = (
    "Files, tables in memory, requests, points and command lines that work are spoilt by seeded mutations: bits, "
    "bytes, lengths, cells, types, names, headers, shapes and depth; files of ours are signed again in most cases, so "
    "that what is inside is looked at and not the checksum alone. Each is given to the package as a user would, and "
    "where that gives a model or a table, something is predicted from it. Allowed are a result, all of whose numbers "
    "are finite, and a `MetapriorError` (at the command line, exit code 2). Another exception, a crash, more than 10 "
    "seconds (60 for a command with a process of its own, most of which is starting it), more than 2 GB of memory, "
    "NaN or infinity in a result, and a warning of another library break the promise. Inputs are tried in processes "
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
    blocks = blocks_of(effort)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        home = Path(folder)
        make_home(home)
        tallies = dict.fromkeys(FAMILIES, Tally())
        work = partial(tried_block, blocks, effort.seed, home)
        for k, tally in effort.each(work, len(blocks), "block of inputs"):
            tallies[blocks[k].family] = tallies[blocks[k].family].and_of(tally)
        found = [
            (name, number, outcome, input_of(FAMILIES[name], seed_of(name, effort.seed), number, Place(home, home)))
            for name, tally in tallies.items()
            for number, outcome in tally.found
        ]
    planted = {name: found_planted(name) for name in PLANTED}
    return Section(
        "Hostile input",
        HOW,
        _checks(tallies, planted),
        [_table(tallies), *([_found(found)] if found else [])],
        counts={"mutated inputs": sum(one.tried for one in tallies.values())},
    )


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


def _checks(tallies: dict[str, Tally], planted: dict[str, bool]) -> list[Check]:
    broken = sum(len(one.found) for one in tallies.values())
    every = sum(one.tried for one in tallies.values())
    missed = [name for name, seen in planted.items() if not seen]
    seen = f"{len(planted) - len(missed)} of {len(planted)}: {', '.join(planted)}"
    return [
        Check("no mutated input leads outside the contract", broken == 0, f"{broken:,} of {every:,} do"),
        Check("the watcher finds what is planted", not missed, seen + f"; missed: {', '.join(missed)}" * bool(missed)),
    ]


def _table(tallies: dict[str, Tally]) -> Table:
    rows = []
    for name, one in tallies.items():
        counts = (one.tried, one.done, one.refused, len(one.places), len(one.found))
        rows.append((name, FAMILIES[name].what, *counts, 1000 * one.seconds / max(one.tried, 1), one.slowest))
    columns = ("family", "what is spoilt", "inputs", "done", "refused", "places that refuse", "outside", "ms each")
    return Table("Inputs by family", (*columns, "slowest, s"), tuple(rows))


def _found(found: Sequence[tuple[str, int, Outcome, bytes]]) -> Table:
    """What broke the promise, and the inputs as far as they are small: packed by zlib, in base 85."""
    rows = tuple(
        (name, number, one.kind, one.said.replace("|", "¦")[:200], one.where.replace("|", "¦")[:200], _packed(given))
        for name, number, one, given in found
    )
    return Table("Outside the contract", ("family", "number", "kind", "said", "where", "input"), rows)


def _packed(given: bytes) -> str | None:
    text = base64.b85encode(zlib.compress(given, 9)).decode()
    return f"`{text}`".replace("|", "\\|") if len(text) <= SHOWN else None
