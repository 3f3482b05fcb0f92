"""What is known of a target before any value of it: where it can lie, and whether it is a whole number."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.errors import DataError, OptionError, UnknownNameError

Ends = tuple[float | None, float | None]
"""The least and the greatest possible value; None where there is none."""

Support = Ends | Mapping[str, Ends]
"""Of all targets, or of some by name."""

SHOWN = 3
"""Number of impossible values that a message lists."""

MIN_VALUES = 20
"""Number of values from which they suggest what a target can be."""

MAX_WHOLE = 30
"""Number of whole numbers up to which it matters that there is nothing between them."""

USUAL_ENDS = (1.0, 100.0)
"""Where shares and percentages end."""

PAST = ("is said to be", "Put them right, or leave them out, or widen what is possible.")
"""How a message continues after the column, and ends, where values are to be learned from."""

KNOWN = ("can only be", "Put them right, or leave those rows out; another support needs another fit.")
"""The same where values are known of tasks that a model is asked about."""


class Possible(NamedTuple):
    """The values that a target can have: from one to another, and whole numbers alone where it is one."""

    lower: float = -math.inf
    upper: float = math.inf
    whole: bool = False

    def excludes(self, values: Float[Tensor, " N"]) -> Bool[Tensor, " N"]:
        """Which values a target cannot have. Values that are not finite are missing, not impossible."""
        wrong = (values < self.lower) | (values > self.upper) | ((values != values.round()) & self.whole)
        return wrong & values.isfinite()

    def options(self, name: str | None = None) -> str:
        """The options of a command that say so. name: of the target, where there are several."""
        ends = ",".join("" if math.isinf(end) else f"{end:g}" for end in (self.lower, self.upper))
        support = f"--support {ends if name is None else shlex.quote(f'{name}={ends}')}" if ends != "," else ""
        return " ".join(part for part in (support, "--integer" if self.whole else "") if part)

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


def suggested_values(values: Float[Tensor, " N"]) -> Possible:
    """What the values of a target suggest that it can be: a guess, for a user to confirm.

    Whole numbers are suggested if there are at most `MAX_WHOLE` distinct ones, or if half of them lie within so many of
    the least. A value is suggested as an end if values pile up there, or if it is 0, 1 or 100 and a normal distribution
    around the values would go beyond.
    """
    distinct, counts = values.unique(return_counts=True)
    if len(values) < MIN_VALUES or len(distinct) < 2:
        return Possible()
    low, high = float(distinct[0]), float(distinct[-1])
    few = len(distinct) <= MAX_WHOLE or float(values.median()) <= low + MAX_WHOLE
    whole = few and bool((distinct == distinct.round()).all())
    below, above = (float(values.mean() + sign * 2 * values.std()) for sign in (-1, 1))
    share = next((end for end in USUAL_ENDS if low >= 0 and 0.9 * end <= high <= end < above), math.inf)
    positive = low >= 0 > below or share < math.inf
    return Possible(
        low if _piles_up(counts) else 0.0 if positive else -math.inf,
        high if _piles_up(counts.flip(0)) else share,
        whole,
    )


def _piles_up(counts: Int[Tensor, " k"]) -> bool:
    """Whether the first of some values, in their order, is as frequent as an end is. counts: how often each occurs."""
    first, total = int(counts[0]), int(counts.sum())
    return len(counts) == 2 or (first >= max(3, 0.02 * total) and first >= int(counts[1]))


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


def check_possible(
    names: Sequence[str],
    possible: Sequence[Possible],
    y: Float[Tensor, "N p"],
    where: Callable[[int], str],
    words: tuple[str, str] = KNOWN,
) -> None:
    """Check that all values of the targets are possible.

    Args:
        names: the target columns.
        possible: what each can be; empty if anything.
        y: the values.
        where: describes the place of a row, for the message.
        words: `KNOWN` or `PAST`.
    """
    said, advice = words
    for name, one, column in zip(names, possible, y.unbind(1), strict=False):
        rows = torch.nonzero(one.excludes(column))[:, 0].tolist()
        if rows:
            shown = ", ".join(f"{float(column[row]):g} ({where(row)})" for row in rows[:SHOWN])
            more = ", …" if len(rows) > SHOWN else ""
            raise DataError(
                f"column {name!r} {said} {one}, but {len(rows):,} of its values are not: {shown}{more}. {advice}"
            )
