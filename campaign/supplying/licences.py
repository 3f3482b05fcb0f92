"""The licences of what a project needs, as the installed packages state them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RUN_TIME = "run time"

BY_HAND = {"gpboost": "Apache-2.0", "patsy": "BSD-2-Clause", "statsmodels": "BSD-3-Clause"}
"""Of packages that are seldom installed, or state nothing: read in what they are shipped with."""

PERMISSIVE = r"MIT|BSD|Apache|Python Software Foundation|PSF|ISC|Zlib|MIT-CMU|HPND|0BSD|CC0|BSL-1.0|ZPL|Public Domain"
PARTLY = r"MPL|Mozilla|LGPL"
STRONG = r"(?<!L)GPL|General Public License"


class Licence(NamedTuple):
    """A package, its version (None where it is not installed), its licence, and what needs it."""

    package: str
    version: str | None
    licence: str
    needed_by: tuple[str, ...]

    @property
    def kind(self) -> str:
        """permissive, file by file (what is changed stays open), strong, or unknown."""
        for kind, words in (("strong", STRONG), ("file by file", PARTLY), ("permissive", PERMISSIVE)):
            if re.search(words, self.licence):
                return kind
        return "unknown"


def licences(pyproject: Path) -> list[Licence]:
    """Of all that a project and its extras need, directly or not, as far as it is installed."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    groups = {RUN_TIME: project["dependencies"]} | project.get("optional-dependencies", {})
    needed: dict[str, list[str]] = {}
    for group, requirements in groups.items():
        for name in _closure([Requirement(one) for one in requirements]):
            needed.setdefault(name, []).append(group)
    own = canonicalize_name(project["name"])
    return [_licence(name, tuple(by)) for name, by in sorted(needed.items()) if name != own]


def licence_of(found: Distribution) -> str:
    """As a package states it: an expression, else its classifiers, else the first line of a text; else nothing."""
    stated = found.metadata
    if "License-Expression" in stated:
        return stated["License-Expression"]
    named = [one.split("::")[-1].strip() for one in stated.get_all("Classifier") or [] if one.startswith("License ::")]
    if named and named != ["OSI Approved"]:
        return ", ".join(named)
    lines = "\n".join(stated.get_all("License") or []).strip().splitlines()
    return lines[0].strip() if lines else ""


def _licence(name: str, needed_by: tuple[str, ...]) -> Licence:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return Licence(name, None, BY_HAND.get(name, "not installed here"), needed_by)
    return Licence(name, found.version, licence_of(found) or BY_HAND.get(name, ""), needed_by)


def _closure(asked: list[Requirement]) -> Iterator[str]:
    """The names of packages that are asked for, and of those that they ask for."""
    seen: set[tuple[str, str]] = set()
    left = [(one, "") for one in asked]
    while left:
        requirement, extra = left.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *sorted(requirement.extras)):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                further = distribution(name).requires or []
            except PackageNotFoundError:
                further = []
            left += [(Requirement(one), wanted) for one in further]
    yield from sorted({name for name, _ in seen})
