"""Agreement: one model and one table give the same numbers and the same notes, whichever way they are asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from campaign.agreement.tables import CASES, Case
from campaign.agreement.ways import (
    Answer,
    Fitted,
    browser_of_this_machine,
    from_arrays,
    from_command_line,
    from_page,
    from_python,
    from_server,
    from_sklearn,
)
from campaign.parts import Check, Effort, Section, Table

SAME = 1e-9
"""Difference, in standard deviations, of ways through Python: last bits depend on what is computed beside."""

LEAST = 3
"""Tables at any effort."""

TABLES = {"command line": from_command_line, "server": from_server}
"""Ways that take the table as Python does."""

HOW = (
    f"{len(CASES)} small tables of many kinds (laws, supports, dates, time zones, times of day, covariates, several "
    "targets, inputs and task columns, wide, with gaps, duplicates and unknown tasks), each with a model of fixed "
    "settings. The reference is `gp.predict(table, at)`. The same is asked of `gp.condition(x, y).at(x_new)` task by "
    "task, of `metaprior predict`, of `metaprior serve`, of the page in a browser, and of `MetaGPRegressor`, which "
    "learns its own model. Differences are in predicted standard deviations."
)


class Compared(NamedTuple):
    """How far each way is from Python, and whether its notes differ."""

    apart: dict[str, float]
    notes: list[str]


def run(effort: Effort) -> Section:
    """Some of the tables, or all of them."""
    names = list(CASES)[:: max(len(CASES) // effort.of(len(CASES), LEAST), 1)]
    found = dict(effort.each(partial(_one, names, effort.seed), len(names), "agreement"))
    by_name = {names[k]: found[k] for k in sorted(found)}
    ways = list(dict.fromkeys(way for one in by_name.values() for way in one.apart))
    return Section(
        "Agreement",
        HOW,
        _checks(by_name, ways),
        [_differences(by_name, ways)],
        [] if "page" in ways else ["There is no chromium here: the page was not asked."],
        {"tables": float(len(names)), "answers": float(sum(1 + len(one.apart) for one in by_name.values()))},
    )


def _checks(found: Mapping[str, Compared], ways: Sequence[str]) -> list[Check]:
    checks = []
    for way in ways:
        shares = {name: one.apart[way] / tolerance_of(name, way) for name, one in found.items() if way in one.apart}
        worst = max(shares, key=lambda name: shares[name])
        because = f"{len(shares)} tables, at most {found[worst].apart[way]:.1e} sd apart ({worst})"
        checks.append(Check(f"{way}: the numbers of Python", shares[worst] <= 1, because))
    wrong = [f"{name}: {note}" for name, one in found.items() for note in one.notes]
    because = "; ".join(wrong[:3]) or f"{len(found)} tables, {len(ways)} ways"
    return [*checks, Check("every way gives the same notes", not wrong, because)]


def _differences(found: Mapping[str, Compared], ways: Sequence[str]) -> Table:
    rows = tuple((name, *(one.apart.get(way) for way in ways)) for name, one in found.items())
    return Table("Largest difference from Python, in standard deviations", ("table", *ways), rows)


def tolerance_of(name: str, way: str) -> float:
    """What a way may be apart from Python."""
    return made(name, 0).tolerance if way == "page" else SAME


def made(name: str, seed: int) -> Case:
    """A table by name."""
    return CASES[name](np.random.default_rng([seed, list(CASES).index(name)]))


def _one(names: Sequence[str], seed: int, k: int) -> Compared:
    with TemporaryDirectory() as folder, browser_of_this_machine() as browser:
        return compared(made(names[k], seed), Path(folder), browser)


def compared(case: Case, folder: Path, browser: Any) -> Compared:
    """Every way that can take a table, beside Python. browser: None where there is none."""
    fitted = Fitted(case, folder)
    python, arrays = from_python(fitted), from_arrays(fitted)
    found = {name: way(fitted) for name, way in TABLES.items()}
    if case.adapter:
        found["scikit-learn"] = from_sklearn(fitted)
    notes = [said for name, one in found.items() for said in differing(name, python.notes, one.notes)]
    found["arrays"] = arrays
    if browser is not None:
        found["page"] = from_page(fitted, browser)
        notes += differing("page", arrays.notes, found["page"].notes)
    return Compared({name: apart(python, one) for name, one in found.items()}, notes)


def apart(python: Answer, other: Answer) -> float:
    """The largest difference in units of the standard deviation; infinite where a number is missing."""
    if python.numbers.shape != other.numbers.shape or not np.isfinite(other.numbers).all():
        return np.inf
    sd = np.repeat(python.numbers[:, 1::4], 4, 1)
    return float((np.abs(python.numbers - other.numbers) / sd).max())


def differing(way: str, expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Notes that one of two ways has alone. Which column of a table to look at is said where there is a table."""
    first, second = ([re.sub(r": see the column \S+\.$", ".", note) for note in some] for some in (expected, found))
    return [] if first == second else [f"{way} says {second}, Python {first}"]
