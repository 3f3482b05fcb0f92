"""Dates and times of day that are written as text: read where a whole column has one form, and only one reading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time
from itertools import takewhile
from typing import Any, NamedTuple

import pyarrow as pa

DATES_READ = "2020-03-28, 2020-03-28T22:00, 2020-03, 28.03.2020, 03/28/2020, 28 Mar 2020, Mar 2020 or 13:45"

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_Y, _M, _D = r"(?P<year>\d{4})", r"(?P<month>\d{1,2})", r"(?P<day>\d{1,2})"
_NAME = r"(?P<name>[a-z]{3,9})\.?"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,6}))?)?(?: ?(?P<half>[ap])m)?"
_DATES = (
    *(f"{_Y}-{_M}-{_D}", f"{_Y}/{_M}/{_D}", f"{_Y}[-/]{_M}", rf"{_D}\.{_M}\.{_Y}"),
    *(f"{_D}[-/]{_M}[-/]{_Y}", f"{_M}[-/]{_D}[-/]{_Y}"),  # which of the two must follow from the values
    *(f"{_Y}[ -]{_NAME}", f"{_NAME}[ -]{_Y}", f"{_D}[ -]{_NAME}[ -]{_Y}", f"{_NAME} {_D}, {_Y}"),
)
_FORMS = [re.compile(form, re.IGNORECASE) for form in (*(f"{date}(?:[ T]{_CLOCK})?" for date in _DATES), _CLOCK)]

_KINDS = (pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.time32("s"), pa.time64("us"))  # from coarse to fine

Moment = datetime | time


def dates_of(column: Any) -> Any:
    """A column of text as dates, moments or times of day; None where it has no form that is read, or two readings."""
    coded = column.dictionary_encode()
    found = readings(coded.dictionary.to_pylist())
    if len(found) != 1:
        return None
    return pa.array(found[0], _kind(found[0])).take(coded.indices)


class Form(NamedTuple):
    """How the dates of a column are written, and the type that holds them."""

    pattern: re.Pattern[str]
    kind: Any

    def read(self, column: Any) -> Any:
        """Text as dates; what is written in another way, or more finely, is missing."""
        coded = column.dictionary_encode()
        moments = [self._moment(text) for text in coded.dictionary.to_pylist()]
        return pa.array(moments, self.kind).take(coded.indices)

    def _moment(self, text: str) -> Moment | None:
        found = _moment(self.pattern, text)
        fits = found is not None and _KINDS.index(_kind([found])) <= _KINDS.index(self.kind)
        return found if fits else None


def form_of(column: Any) -> Form | None:
    """How dates are written of which these are the first: the one form that all have; None where there are two."""
    texts = column.dictionary_encode().dictionary.to_pylist()
    found = [(form, moments) for form in _FORMS if (moments := _moments(form, texts))]
    return Form(found[0][0], _kind(found[0][1])) if len(found) == 1 else None


def _kind(moments: Sequence[Moment]) -> Any:
    """The plainest type that holds all of these: whole days, or whole seconds, where they are."""
    unit = "us" if any(one.microsecond for one in moments) else "s"
    if isinstance(moments[0], time):
        return pa.time64(unit) if unit == "us" else pa.time32(unit)
    whole = all(isinstance(one, datetime) and one.time() == time() for one in moments)
    return pa.date32() if whole else pa.timestamp(unit)


def readings(texts: Sequence[str]) -> list[list[Moment]]:
    """What the texts say in each form that all of them have; forms that say the same count once."""
    found: list[list[Moment]] = []
    for form in _FORMS:
        moments = _moments(form, texts)
        if moments and moments not in found:
            found.append(moments)
    return found


def _moments(form: re.Pattern[str], texts: Sequence[str]) -> list[Moment]:
    """What the texts say in this form; nothing if not all have it."""
    found = [*takewhile(lambda one: one is not None, (_moment(form, text) for text in texts))]
    return found if len(found) == len(texts) else []  # type: ignore[return-value]


def misfits(texts: Sequence[str]) -> list[int]:
    """Where texts, most of which are dates of one form, are none of that form; nowhere if most are no dates."""
    wrong = min(([k for k, text in enumerate(texts) if _moment(form, text) is None] for form in _FORMS), key=len)
    return wrong if 2 * len(wrong) < len(texts) else []


def _moment(form: re.Pattern[str], text: str) -> Moment | None:
    match = form.fullmatch(text.strip())
    if match is None:
        return None
    part = {name: value.lower() for name, value in match.groupdict().items() if value}
    hour = int(part.get("hour", 0))
    if "half" in part:
        hour = hour % 12 + 12 * (part["half"] == "p")
    clock = (hour, int(part.get("minute", 0)), int(part.get("second", 0)), int(part.get("part", "0").ljust(6, "0")))
    try:
        if "year" not in part:
            return time(*clock)
        named = [k for k, month in enumerate(_MONTHS, 1) if month.startswith(part.get("name", "?"))]
        month = named[0] if named else int(part.get("month", 0))
        return datetime(int(part["year"]), month, int(part.get("day", 1)), *clock)
    except ValueError:  # such as a 31st of February
        return None
