"""Tables as text: where their columns stand, and what those hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from csv import Error, reader
from functools import partial
from io import TextIOWrapper
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from metaprior.data.formats import Opener
from metaprior.errors import DataError, OptionError
from metaprior.tasks import Columns

BLOCK = 1 << 20
"""Bytes of text that are read at a time; more where a line is longer."""

MAX_LINE = 1 << 25
"""Bytes of a line that are read for certain; none of twice as many is."""

MAX_HEADER = 1 << 22
"""Bytes of a header: 100,000 columns have room, a million have not."""

NO_VALUE = csv.ConvertOptions().null_values
"""What stands for a missing number: nothing, NA, NaN, null and the like."""

DELIMITERS = ",\t;|"

Pick = Callable[[Sequence[str]], dict[str, int]]
"""From the columns that a file has, where those stand that were asked for."""


class Layout(NamedTuple):
    """How a text is a table: the sign between columns, the header, blank lines before it, where columns stand."""

    sign: str
    header: list[str]
    blank: int
    place: dict[str, int]
    block: int  # bytes to read at a time, of which the header is a small part

    def written(self, name: str) -> str:
        """What the file itself calls a column: with the blanks around it."""
        return self.header[self.place[name]]

    @property
    def decimal_comma(self) -> bool:
        return self.sign in ";\t"

    def read_options(self, block: int) -> csv.ReadOptions:
        return csv.ReadOptions(block_size=block, skip_rows=self.blank)

    @property
    def parse_options(self) -> csv.ParseOptions:
        return csv.ParseOptions(delimiter=self.sign, newlines_in_values=True)

    def convert_options(self, types: Mapping[str, Any]) -> csv.ConvertOptions:
        """The columns that were picked, some of them of given types."""
        return csv.ConvertOptions(
            include_columns=[self.header[k] for k in self.place.values()],
            column_types={self.written(name): dtype for name, dtype in types.items()},
        )


def layout_of(open_: Opener, name: str, wanted: Collection[str], delimiter: str | None, pick: Pick) -> Layout:
    """The layout of a text file. wanted: columns by which its delimiter is known."""
    line, blank = header_line(open_, name)
    sign = delimiter_of(line, wanted, delimiter)
    header = split_line(line, sign)
    block = BLOCK if 4 * len(line) < BLOCK else 4 * MAX_HEADER
    return Layout(sign, header, blank, pick(header), block)


def read_text(open_: Opener, name: str, columns: Columns, delimiter: str | None, pick: Pick) -> pa.Table:
    """The columns of a text file, with a task's names as they are written."""
    layout = layout_of(open_, name, {*columns.task, *columns.x, *columns.y}, delimiter, pick)
    names = {*columns.task, *(one.name for one in columns.task_x)}.intersection(layout.place)
    table = _parsed(open_, name, layout, dict.fromkeys(names, pa.string()))
    known = {*columns.task, *(one.name for one in columns.task_x if one.levels)}  # to be text
    found = {}
    for one, column in zip(layout.place, table.columns, strict=True):
        if pa.types.is_string(column.type):
            column = tidied(column, one, layout, name, is_name=one in names)
            column = column if one in known else as_numbers(column, decimal_comma=layout.decimal_comma)
        found[one] = column
    return pa.table(found)


def tidied(column: Any, title: str, layout: Layout, name: str, *, is_name: bool) -> Any:
    """A column of text with what is missing in it; names may be anything but empty."""
    if layout.written(title) != title:
        column = pc.utf8_trim_whitespace(column)  # blanks around all of its fields
    column = without(column, [""] if is_name else NO_VALUE)
    _check_quotes(column, title, name)
    return column


def _check_quotes(column: Any, title: str, name: str) -> None:
    """A quote that is never closed makes one value of many lines, which would be lost without a word."""
    for sign in "\n\r":
        several = pc.match_substring(column, sign)
        if pc.any(several).as_py():
            first = column.filter(several)[0].as_py().splitlines()[0]
            raise DataError(
                f"{name}: column {title!r} has a value of several lines, beginning with {first[:40]!r}. Is a quote not "
                "closed there? Put it right, or take the line breaks out."
            )


def _parsed(open_: Opener, name: str, layout: Layout, types: Mapping[str, Any]) -> pa.Table:
    """Read block by block: the text is never in memory as a whole."""
    block = layout.block
    while True:
        try:
            with open_() as file:
                options = layout.read_options(block), layout.parse_options, layout.convert_options(types)
                table = csv.read_csv(file, *options)
            pa.default_memory_pool().release_unused()  # what parsing took is twice the table
        except (pa.ArrowException, OSError, ValueError) as error:
            if is_longer(error, block):
                block = larger(block)
                continue
            raise not_readable(error, name) from None
        check_utf8(table.schema, name)
        return table


def is_longer(error: Exception, block: int) -> bool:
    """Whether a line was longer than a block, and a larger one may do."""
    return _is_too_long(error) and block < MAX_LINE


def larger(block: int) -> int:
    """The size to try next, where a line is longer than a block."""
    return min(8 * block, MAX_LINE)


def _is_too_long(error: Exception) -> bool:
    return "straddling" in str(error)


def not_readable(error: Exception, name: str) -> DataError:
    """What parsing a text ended with, in words."""
    if "UTF8" in str(error):
        return not_utf8(name)
    if _is_too_long(error):
        return DataError(
            f"{name} has a line of more than {MAX_LINE:,} bytes: write one observation in each line. Or is a quote not "
            "closed?"
        )
    return DataError(f"{name} cannot be read as a table: {first_line(error)}")


def check_utf8(schema: pa.Schema, name: str) -> None:
    """Whether all text could be decoded: Arrow makes bytes of what it cannot."""
    if any(pa.types.is_binary(field.type) for field in schema):
        raise not_utf8(name)


def not_utf8(name: str) -> DataError:
    """What is said of a file in some other encoding."""
    return DataError(f"{name} is no UTF-8 text: save it as UTF-8, or convert it with iconv.")


def header_line(open_: Opener, name: str) -> tuple[str, int]:
    """The first line that is not blank, and how many are before it."""
    with open_() as file, TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
        lines = iter(partial(text.readline, MAX_HEADER + 1), "")
        blank, line = next(((k, line.rstrip("\r\n")) for k, line in enumerate(lines) if line.strip()), (0, ""))
    if len(line) > MAX_HEADER:
        raise DataError(
            f"{name} has a header that is too long, of more than {MAX_HEADER:,} bytes: leave out the columns that are "
            "not needed, or write one observation in each row."
        )
    if not line.isascii() and any("\udc80" <= sign <= "\udcff" for sign in line):
        raise not_utf8(name)
    return line, blank


def delimiter_of(line: str, wanted: Collection[str], given: str | None) -> str:
    """The sign between columns: the one given, or that with which the first line has most of the named columns."""
    if given is None:

        def fits(sign: str) -> tuple[int, int]:
            header = [name.strip() for name in split_line(line, sign)]
            return len(set(wanted).intersection(header)), len(header)

        return max(DELIMITERS, key=fits)
    sign = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(sign) != 1 or sign in '"\r\n':
        raise OptionError(f"--delimiter {given!r}: give one sign, such as ';', or 'tab'.")
    return sign


def split_line(line: str, sign: str) -> list[str]:
    """The fields of a line."""
    try:
        return next(reader([line], delimiter=sign), [])
    except Error:  # with another sign it may be one field, longer than the module reads
        return [line]


def without(column: Any, words: Sequence[str]) -> Any:
    """A column of text in which these words are missing values."""
    return pc.if_else(pc.is_in(column, value_set=pa.array(words)), pa.scalar(None, column.type), column)


def as_numbers(column: Any, *, decimal_comma: bool) -> Any:
    """Text as numbers, truth values or dates where all of it can be read so; 007 stays the name that it is."""
    plain = plain_numbers(column)
    if plain.null_count == len(plain) or any_like(plain, r"^[+-]?0\d"):
        return column
    if decimal_comma and not any_like(plain, r"\."):
        plain = plain_numbers(column, comma=True)
    for dtype in (pa.float64(), pa.bool_(), pa.timestamp("us")):
        try:
            return plain.cast(dtype)
        except pa.ArrowInvalid:
            continue
    return column


def plain_numbers(column: Any, *, comma: bool = False) -> Any:
    """Text as Arrow reads numbers: without blanks, with a point for a comma."""
    plain = without(pc.utf8_trim_whitespace(column), NO_VALUE)
    return pc.replace_substring(plain, ",", ".") if comma else plain


def any_like(column: Any, pattern: str) -> bool:
    """Whether some text of a column has this pattern."""
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def first_line(error: Any) -> str:
    """What an error says, without what follows."""
    return str(error).split("\n", 1)[0]
