"""An input that breaks the promise, made as small as it can be."""

from __future__ import annotations

from pathlib import Path

from campaign.hostile.contract import Family, Outcome
from campaign.hostile.watch import one


def minimised(family: Family, given: bytes, home: Path, most: int = 400) -> tuple[bytes, Outcome]:
    """The same outcome from fewer bytes: parts are left out as long as it stays. most: tries."""
    wanted, step = one(family, given, home), max(len(given) // 2, 1)
    while step and most > 0:
        start, shorter = 0, False
        while start < len(given) and most > 0:
            less = given[:start] + given[start + step :]
            most -= 1
            if same(one(family, less, home), wanted):
                given, shorter = less, True
            else:
                start += step
        step = step if shorter and step == 1 else step // 2
    return given, wanted


def same(found: Outcome, wanted: Outcome) -> bool:
    """Whether two inputs break the promise in one way."""
    return found.kind == wanted.kind and (found.kind in ("crash", "hang", "memory") or found.where == wanted.where)
