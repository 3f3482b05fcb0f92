"""Try one input again: `python -m campaign.hostile "Feather files" 135 [--seed 0] [--smaller] [--out FILE]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from campaign.hostile.contract import Place
from campaign.hostile.families import FAMILIES
from campaign.hostile.home import make_home
from campaign.hostile.part import seed_of
from campaign.hostile.smaller import minimised
from campaign.hostile.watch import input_of, one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the campaign")
    parser.add_argument("--smaller", action="store_true", help="leave out whatever does not matter")
    parser.add_argument("--out", type=Path, help="a file for the input")
    asked = parser.parse_args()
    family = FAMILIES[asked.family]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_home(home)
        given = input_of(family, seed_of(family.name, asked.seed), asked.number, Place(home, home))
        if asked.smaller:
            given, outcome = minimised(family, given, home)
        else:
            outcome = one(family, given, home)
    Console().print(f"{len(given):,} bytes: {outcome}", given[:2000], sep="\n", markup=False)
    if asked.out:
        asked.out.write_bytes(given)


if __name__ == "__main__":
    main()
