"""Where to predict, as the user writes it: values, ranges and grids of them, in numbers or dates."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from metaprior.errors import OptionError

Array = np.ndarray[Any, Any]

FORMS = (
    "Give values (3 or 1,2,3) or a range with its end (START:STOP:STEP), in numbers or dates (2020-02-15, "
    "2020-03-28T22:00; steps of 7d, 1w, 6h, 30min), for each of several inputs by its name (hour=0:48:1,dose=5,10 is "
    "all combinations); or a table, or missing."
)
MOST = 1_000_000
"""Points for each task."""

DAY = 86_400_000_000.0
"""Microseconds: whole ones are exact, so that a step of 20 minutes never leads beside the clock."""

STEPS = {"w": 7 * DAY, "d": DAY, "h": DAY / 24, "min": DAY / 1440, "s": 1e6}
MOMENT = r"\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?!\d)(?::\d\d(?!\d)(?:\.\d{1,6})?)?)?)?"
RANGE = rf"({MOMENT}|[^:]*):({MOMENT}|[^:]*):([^:]*)"


def points_at(text: str, names: Sequence[str], dated: Collection[str]) -> Array:
    """The points that `--at` names, a column for each input: all combinations of their values. dated: which are dates.

    `1:12:1`, `2020-02-15:2020-03-15:7d`, `hour=0:48:1,dose=5,10`: a part without a name is of the input before it.
    """
    try:
        columns = [_column(name, parts, name in dated) for name, parts in _by_input(text, names).items()]
        count = math.prod(map(len, columns))
        if count > MOST:
            raise OptionError(f"{count:,} points for each task are too many; give a larger step.")
    except OptionError as error:
        raise OptionError(f"--at {text}: {error} {FORMS}") from None
    return np.stack([grid.ravel() for grid in np.meshgrid(*columns, indexing="ij")], 1)


def number_or_date(text: str, dated: bool) -> float:
    """A number, or a date such as 2020-03-01 or 2020-03-01T06:00 as days since 1970: as the input holds."""
    value, is_date = _value(text.strip())
    _check_dated("it", is_date, dated)
    return value / DAY if is_date else value


def _check_dated(what: str, dates: bool, dated: bool) -> None:
    if dates != dated:
        kinds = ("numbers, not dates", "dates, such as 2020-02-15, not numbers")
        raise OptionError(f"{what} holds {kinds[dated]}.")


def _by_input(text: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The parts of each input, in the inputs' order; where there is one, it need not be named."""
    found: dict[str, list[str]] = {name: [] for name in names}
    current = names[0] if len(names) == 1 else None
    try:
        parts = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as error:  # a line break, or a text that never ends
        raise OptionError(f"it cannot be read ({error}).") from None
    for part in parts:
        name, named, value = part.rpartition("=")
        if named:
            current = name.strip()
            if current not in found:
                raise OptionError(f"there is no input {current!r} but {', '.join(names)}.")
            if found[current]:
                raise OptionError(f"the input {current!r} is there twice.")
        if current is None:
            raise OptionError(f"the model has the inputs {', '.join(names)}: name each.")
        found[current].append(value.strip())
    lacking = [name for name, parts in found.items() if not parts]
    if lacking:
        raise OptionError(f"no value for {', '.join(lacking)}.")
    return found


def _column(name: str, parts: Sequence[str], dated: bool) -> Array:
    """The values of one input; dates in days since 1970."""
    columns = []
    for values, dates in map(_values, parts):
        _check_dated(f"the input {name!r}", dates, dated)
        columns.append(values / DAY if dates else values)
    return np.concatenate(columns)


def _values(part: str) -> tuple[Array, bool]:
    """A value, or a range with its end; and whether they are moments, in microseconds since 1970."""
    between = None if re.fullmatch(MOMENT, part) else re.fullmatch(RANGE, part)
    if between is None:
        value, dates = _value(part)
        return np.array([value]), dates
    (start, dates), (stop, also) = map(_value, between.groups()[:2])
    if dates != also:
        raise OptionError(f"{part!r} goes from a number to a date, or from a date to a number.")
    step = _step(between[3].strip(), dates)
    if not (0 < step < math.inf and start <= stop and math.isfinite(stop - start)):
        raise OptionError("give a step above 0 and a stop that is not before the start.")
    steps = (stop - start) / step + 1e-9
    if steps >= MOST:
        raise OptionError(f"{steps:,.0f} points for each task are too many; give a larger step.")
    first, by = Decimal(repr(start)), Decimal(repr(step))  # in decimals, or 3 * 0.1 would be written with 17 digits
    return np.array([float(first + k * by) for k in range(math.floor(steps) + 1)]), dates


def _value(text: str) -> tuple[float, bool]:
    """A number, or a moment in microseconds since 1970; and whether it is that."""
    try:
        if re.fullmatch(MOMENT, text):
            return float(np.datetime64(text, "us").astype(np.int64)), True
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"{text!r} is no number, date or file.")
    return number, False


def _step(text: str, dates: bool) -> float:
    """A step in numbers, or between moments in microseconds: of days, unless it has another unit."""
    number, unit = re.fullmatch(r"(.*?)(w|d|h|min|s)?", text).groups()  # type: ignore[union-attr]
    try:
        if dates:
            return float(np.round(float(number) * STEPS[unit or "d"]))
        return float(text)
    except ValueError:
        kinds = "7, 7d, 1w, 6h or 30min" if dates else "0.5"
        raise OptionError(f"{text!r} is no step, such as {kinds}.") from None
