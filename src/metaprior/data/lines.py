"""JSON lines: a table as an object in each line, with values in the types that JSON gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from metaprior.data.formats import Opener
from metaprior.data.text import BLOCK, MAX_LINE, Pick, not_utf8
from metaprior.errors import DataError

Row = dict[str, Any]

_KINDS = {bool: "truth values", int: "numbers", float: "numbers", str: "text", list: "lists", dict: "objects"}


def read_lines(open_: Opener, name: str, pick: Pick, *, whole: bool = False) -> pa.Table:
    """The columns of a file of JSON lines. whole: which they are is known from all lines, not from the first ones."""
    place = _picked(open_, name, pick, whole)
    parts = [columns_of(rows, place, open_, name) for rows in chunks(open_, name)]
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise mixed(open_, name, place, error) from None


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
    """The objects of all lines, those of a block at a time; a line that is none is told."""
    number = 1
    for lines in _blocks(open_, name):
        if found := _objects(lines, number, name):
            yield found
        number += len(lines)


def _blocks(open_: Opener, name: str) -> Iterator[list[bytes]]:
    """The lines of a file, block by block: it is never in memory as a whole."""
    rest, first = b"", True
    with open_() as file:
        while block := file.read(BLOCK):
            if first:
                block, first = block.removeprefix(b"\xef\xbb\xbf"), False
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > MAX_LINE:
                raise DataError(f"{name} has a line of more than {MAX_LINE:,} bytes: write an object in each line.")
            yield lines
    yield [rest]


def _objects(lines: list[bytes], number: int, name: str) -> list[Row]:
    """The objects of some lines, all at once where that can be. number: of the first line."""
    filled = [line for line in lines if line.strip()]
    try:
        found = json.loads(b"[" + b",".join(filled) + b"]")
        if len(found) == len(filled) and all(type(one) is dict for one in found):
            return found  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    return [_object(line, number + k, name) for k, line in enumerate(lines) if line.strip()]


def _object(line: bytes, number: int, name: str) -> Row:
    try:
        text = line.decode().strip()
        found = json.loads(text)
    except UnicodeDecodeError:
        raise not_utf8(name) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: line {number:,} is no JSON ({error}): {text[:40]!r}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{name}: line {number:,} is {text[:40]!r}: write an object in each line.")
    return found


def keys_of(rows: list[Row]) -> list[str]:
    """All that the columns of some lines are called."""
    return list(dict.fromkeys(key for row in rows for key in row))


def columns_of(rows: list[Row], place: Mapping[str, str], open_: Opener, name: str) -> pa.Table:
    """Some columns of some lines, missing where a line has none. place: what the file calls them."""
    columns = {one: [row.get(key) for row in rows] for one, key in place.items()}
    for one, values in columns.items():
        if len({bool, *map(type, values)} - {type(None)}) > 1 and bool in map(type, values):  # Arrow would take it as 1
            raise mixed(open_, name, place, f"column {one!r} has truth values beside others.")
    try:
        return pa.table({one: pa.array(values) for one, values in columns.items()})
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise mixed(open_, name, place, error) from None


def mixed(open_: Opener, name: str, place: Mapping[str, str], error: Exception | str) -> DataError:
    """The column that has no type of its own, and the first values that show it."""
    first: dict[str, tuple[str, Any, int]] = {}
    for number, row in enumerate((row for rows in chunks(open_, name) for row in rows), 1):
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
