"""JSON lines: a table as an object in each line, with values in the types that JSON gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from io import TextIOWrapper
from itertools import islice
from typing import Any

import pyarrow as pa

from metaprior.data.formats import Opener
from metaprior.data.text import LARGEST_BLOCK, Pick, not_utf8
from metaprior.errors import DataError

CHUNK = 1 << 16
"""Lines that are read at a time."""

Row = dict[str, Any]

_KINDS = {bool: "truth values", int: "numbers", float: "numbers", str: "text", list: "lists", dict: "objects"}


def read_lines(open_: Opener, name: str, pick: Pick, *, whole: bool = False) -> pa.Table:
    """The columns of a file of JSON lines. whole: which they are is known from all lines, not from the first ones."""
    place = _picked(open_, name, pick, whole)
    parts = [columns_of(rows, place, open_, name) for rows in chunks(open_, name)]
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise _mixed(open_, name, place, error) from None


def _picked(open_: Opener, name: str, pick: Pick, whole: bool) -> dict[str, str]:
    """What the file calls each of the columns that were asked for."""
    parts = chunks(open_, name)
    header = keys_of(next(parts, []))
    try:
        found = {} if whole else pick(header)
    except DataError:  # some may come later
        whole = True
    if whole:
        header = list(dict.fromkeys([*header, *(key for rows in parts for key in keys_of(rows))]))
        found = pick(header)
    return {one: header[k] for one, k in found.items()}


def chunks(open_: Opener, name: str) -> Iterator[list[Row]]:
    """The objects of all lines, many at a time."""
    rows = objects(open_, name)
    while found := list(islice(rows, CHUNK)):
        yield found


def objects(open_: Opener, name: str) -> Iterator[Row]:
    """The object of each line; a line that is none is told."""
    with open_() as file, TextIOWrapper(file, "utf-8-sig") as text:
        try:
            for number, line in enumerate(iter(partial(text.readline, LARGEST_BLOCK), ""), 1):
                if line.strip():
                    yield _object(line, number, name)
        except UnicodeDecodeError:
            raise not_utf8(name) from None


def _object(line: str, number: int, name: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: line {number:,} is no JSON ({error}): {line.strip()[:40]!r}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{name}: line {number:,} is {line.strip()[:40]!r}: write an object in each line.")
    return found


def keys_of(rows: list[Row]) -> list[str]:
    """All that the columns of some lines are called."""
    return list(dict.fromkeys(key for row in rows for key in row))


def columns_of(rows: list[Row], place: Mapping[str, str], open_: Opener, name: str) -> pa.Table:
    """Some columns of some lines, missing where a line has none. place: what the file calls them."""
    try:
        return pa.table({one: pa.array([row.get(key) for row in rows]) for one, key in place.items()})
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise _mixed(open_, name, place, error) from None


def _mixed(open_: Opener, name: str, place: Mapping[str, str], error: Exception) -> DataError:
    """The column that has no type of its own, and the first values that show it."""
    first: dict[str, tuple[str, Any, int]] = {}
    for number, row in enumerate(objects(open_, name), 1):
        for title, key in place.items():
            value = row.get(key)
            if value is None:
                continue
            kind, earlier, at = first.setdefault(title, (_KINDS[type(value)], value, number))
            if _KINDS[type(value)] != kind:
                return DataError(
                    f"{name}: column {title!r} mixes {kind} ({earlier!r} in row {at:,}) and {_KINDS[type(value)]} "
                    f"({value!r} in row {number:,}): give all of its values one type."
                )
    return DataError(f"{name} cannot be read as a table: {str(error).splitlines()[0]}")
