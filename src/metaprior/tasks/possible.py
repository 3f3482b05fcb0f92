"""What is known of a target before any value of it: where it can lie, and whether it is a whole number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metaprior.errors import DataError, OptionError, UnknownNameError

Ends = tuple[float | None, float | None]
"""The least and the greatest possible value; None where there is none."""

Support = Ends | Mapping[str, Ends]
"""Of all targets, or of some by name."""


class Possible(NamedTuple):
    """The values that a target can have: from one to another, and whole numbers alone where it is one."""

    lower: float = -math.inf
    upper: float = math.inf
    whole: bool = False

    def __str__(self) -> str:
        ends = f"{self.lower:g} or more" * (self.upper == math.inf) or f"{self.upper:g} or less" * (
            self.lower == -math.inf
        )
        said = "" if (self.lower, self.upper) == (-math.inf, math.inf) else ends or f"{self.lower:g} to {self.upper:g}"
        return " ".join(part for part in ("whole numbers" if self.whole else "", said) if part)


def possible_values(
    names: Sequence[str], support: Support | None, integer: bool | Sequence[str]
) -> tuple[Possible, ...]:
    """For each target; nothing where all of them can be anything. integer: of all targets, or of these."""
    given = dict(support) if isinstance(support, Mapping) else dict.fromkeys(names, support or (None, None))
    whole = (names if integer else ()) if isinstance(integer, bool) else tuple(integer)
    for name in (*given, *whole):
        if name not in names:
            raise UnknownNameError("target column", name, names)
    found = tuple(_of_one(name, given.get(name, (None, None)), name in whole) for name in names)
    return found if any(one != Possible() for one in found) else ()


def _of_one(name: str, ends: Ends, whole: bool) -> Possible:
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except (TypeError, ValueError):
        raise OptionError(f"support {ends!r} of {name!r}: give the least and the greatest value, or None.") from None
    lower, upper = -math.inf if low is None else low, math.inf if high is None else high
    if not lower < upper:
        raise OptionError(
            f"support from {lower:g} to {upper:g} of {name!r}: the least value comes before the greatest."
        )
    if whole and any(math.isfinite(end) and end != round(end) for end in (lower, upper)):
        raise OptionError(f"support from {lower:g} to {upper:g} of {name!r}: the ends of whole numbers are whole.")
    return Possible(lower, upper, whole)


def read_support(words: Sequence[str], names: Sequence[str]) -> Support | None:
    """`--support 0,` or `--support wind=0,200`, as often as wanted."""
    if not words:
        return None
    found: dict[str, Ends] = {}
    for word in words:
        name, has_name, text = word.rpartition("=")
        parts = text.split(",")
        try:
            if len(parts) != 2 or not any(part.strip() for part in parts):
                raise ValueError(text)
            low, high = (float(part) if part.strip() else None for part in parts)
        except ValueError:
            raise OptionError(
                f"--support {word}: give the least and the greatest value with a comma between them, such as 0,1; or "
                "one of them: 0, (with the comma) is 0 or more."
            ) from None
        for each in [name] if has_name else names:
            found[each] = (low, high)
    return found


def not_possible(name: str, one: Possible, count: int, first: Sequence[tuple[str, float]]) -> DataError:
    """That so many past values are not such as can be. first: some of them, where they stand and what they are."""
    shown = ", ".join(f"{value:g} ({where})" for where, value in first)
    return DataError(
        f"column {name!r} is said to be {one}, but {count:,} of its values are not: {shown}"
        + (", …" if count > len(first) else "")
        + ". Put them right, or leave them out, or widen what is possible."
    )
