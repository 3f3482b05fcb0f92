"""The columns of a wide table: those that a pattern such as `week_*` matches, and the numbers in their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from metaprior.errors import DataError, OptionError
from metaprior.tasks.dates import dates_of

LEAST = 4
"""Columns of one stem from which on a table looks wide."""

_NUMBER = re.compile(r"(?:(?<![^\W_])-)?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")  # in week-1 the sign is none
_LAST = re.compile(r"(.*?[^\d.]|)(\d+(?:\.\d+)?)")
_WILD = re.compile(r"\*|\?|\[[^]]+\]")
_SHOWN = 5


class Places(NamedTuple):
    """Columns in their order, and what each is at: numbers, dates or times of day, as an Arrow array."""

    names: tuple[str, ...]
    x: Any


class Pattern(NamedTuple):
    """A glob: `*` any signs, `?` one, `[0-9]` one of these. What they stand for is the input of a column."""

    text: str

    @staticmethod
    def of(text: str) -> Pattern:
        if not _WILD.search(text):
            like = text.rstrip("0123456789.") + "*"
            raise OptionError(f"wide={text!r} names one column: put * for the number in the names, such as {like!r}.")
        return Pattern(text)

    @property
    def stem(self) -> str:
        """What the numbers are of: what the names have in common, `week` of `week_*`."""
        parts = [part.strip(" _-.,:()[]=") for part in _WILD.split(self.text)]
        return next((part for part in parts if re.search(r"[^\W\d]", part)), "x")

    def matching(self, columns: Sequence[str], others: Collection[str] = ()) -> list[str]:
        """The columns that have this form, without others that are named for something else."""
        form = self._form()
        found = [name for name in columns if name not in others and form.fullmatch(str(name).strip())]
        if not found:
            raise DataError(self._nothing(columns))
        return found

    def places(self, columns: Sequence[str], others: Collection[str] = ()) -> Places:
        """The columns that have this form, and where in the input each of them is."""
        names = self.matching(columns, others)
        wild = [self._wild(str(name).strip()) for name in names]
        open_parts = ["".join(text for text, _ in parts) for parts in wild]
        read = [dates_of(pa.array(texts)) for texts in ([str(name) for name in names], open_parts)]
        dates = next((one for one in read if one is not None), None)
        x = dates if dates is not None else pa.array(self._numbers(names, wild), pa.float64())
        first: dict[Any, str] = {}
        for name, at in zip(names, x.to_pylist(), strict=True):
            if at in first:
                said = f"{at:g}" if isinstance(at, float) else at
                raise DataError(f"the columns {first[at]!r} and {name!r} are both at {said}: rename one of them.")
            first[at] = name
        return Places(tuple(names), x)

    def _form(self) -> re.Pattern[str]:
        """The glob, with a group for each part that is not spelled out."""
        fixed, wild = _WILD.split(self.text), _WILD.findall(self.text)
        said = [{"*": "(.*)", "?": "(.)"}.get(part, f"({_class(part)})") for part in wild]
        try:
            return re.compile(
                "".join(re.escape(text) + part for text, part in zip(fixed, [*said, ""], strict=True)), re.DOTALL
            )
        except re.error as error:
            raise OptionError(f"wide={self.text!r}: {error}.") from None

    def _wild(self, name: str) -> list[tuple[str, int]]:
        """What the parts that are not spelled out stand for, and where they begin; neighbours are one."""
        match = self._form().fullmatch(name)
        assert match is not None
        found: list[tuple[str, int]] = []
        for k, text in enumerate(match.groups(), 1):
            if found and found[-1][1] + len(found[-1][0]) == match.start(k):
                found[-1] = (found[-1][0] + text, found[-1][1])
            else:
                found.append((text, match.start(k)))
        return found

    def _numbers(self, names: Sequence[str], wild: Sequence[list[tuple[str, int]]]) -> list[float]:
        """The one number that each name has where the pattern leaves it open."""
        numbers = [
            [one for text, start in parts for one in _numbers_in(str(name).strip(), start, start + len(text))]
            for name, parts in zip(names, wild, strict=True)
        ]
        none = [name for name, found in zip(names, numbers, strict=True) if not found]
        several = [name for name, found in zip(names, numbers, strict=True) if len(found) > 1]
        said = [f"no number is in {_listed(none)}"] * bool(none)
        said += [f"several are in {_listed(several)}"] * bool(several)
        if said:
            raise DataError(
                f"wide={self.text!r} takes the number in a column's name as its input, but {', and '.join(said)}. "
                "Rename them, or give a pattern that matches only the others, with all but one number spelled out."
            )
        return [float(found[0]) for found in numbers]

    def _nothing(self, columns: Sequence[str]) -> str:
        known = [str(name) for name in columns]
        near = difflib.get_close_matches(_WILD.sub("1", self.text), known, n=_SHOWN, cutoff=0.5)
        what = f"the nearest are {', '.join(near)}" if near else f"it has {', '.join(known[:_SHOWN])}"
        more = f" and {len(known) - _SHOWN:,} more" if not near and len(known) > _SHOWN else ""
        return f"no column of the table matches wide={self.text!r}: {what}{more}."


def looks_wide(columns: Sequence[Any]) -> str:
    """Advice, where many names of columns differ in the number that they end in; nothing where they do not."""
    stems: dict[str, list[str]] = {}
    for name in map(str, columns):
        found = _LAST.fullmatch(name.strip())
        if found:
            stems.setdefault(found[1], []).append(name.strip())
    stem, names = max(stems.items(), key=lambda one: len(one[1]), default=("", []))
    if len(names) < LEAST:
        return ""
    pattern = "".join(f"[{sign}]" if sign in "*?[" else sign for sign in stem) + ("*" if stem else "[0-9]*")
    return f"It looks wide ({names[0]} … {names[-1]}): if each row is a task of its own, give wide={pattern!r}."


def _numbers_in(name: str, start: int, stop: int) -> list[str]:
    """The numbers in a part of a name; digits next to it belong to them: `week_1*` has 12, not 2, of `week_12`."""
    while 0 < start < stop and name[start - 1 : start + 1].isdigit():
        start -= 1
    while start < stop < len(name) and name[stop - 1 : stop + 1].isdigit():
        stop += 1
    return [found[0] for found in _NUMBER.finditer(name, start, stop)]


def _class(part: str) -> str:
    """`[...]` of a glob as one of a regular expression."""
    inside = re.sub(r"([\\\[&~|])", r"\\\1", part[1:-1])
    return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(str(name)) for name in names[:_SHOWN]) + more
