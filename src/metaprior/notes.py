"""What a reader of results should know, counted, so that what was said of several parts can be said of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

SHOWN = 3
"""So many of what a note is about are named."""


class Note(NamedTuple):
    """So many of these are so: `12 of 40 tasks have no known rows`. One that is about none is not told."""

    number: int
    what: str
    of: int = 0  # all of them; 0 where nobody counts
    names: tuple[str, ...] = ()  # of the first few
    then: str = ""  # how it goes on after the names
    before: str = ""
    alone: str = ""  # how it is told while it is of one table: more may be said then

    def __str__(self) -> str:
        if self.alone:
            return self.alone
        of = f" of {self.of:,}" if self.of else ""
        more = ", …" if self.number > SHOWN else ""
        named = f" ({', '.join(self.names)}{more})" if self.names else ""
        return f"{self.before}{self.number:,}{of} {self.what}{named}{self.then}"


def told(notes: Iterable[Note]) -> list[str]:
    """The notes in words, those that are about something."""
    return [str(note) for note in notes if note.number]


def added(notes: Iterable[Note]) -> list[Note]:
    """Notes of parts as notes of the whole: those that say the same are one."""
    found: dict[tuple[str, str, str], Note] = {}
    for note in notes:
        key = (note.before, note.what, note.then)
        so_far = found.get(key)
        if so_far is not None:
            names = (so_far.names + note.names)[:SHOWN]
            note = note._replace(number=so_far.number + note.number, of=so_far.of + note.of, names=names)
        found[key] = note._replace(alone="")
    return list(found.values())


def first_names(ids: Sequence[Any]) -> tuple[str, ...]:
    """The first few of what a note is about."""
    return tuple(map(str, ids[:SHOWN]))
