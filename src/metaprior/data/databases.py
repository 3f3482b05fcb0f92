"""Tables that a database is asked for: SQLite by the standard library, DuckDB where it is installed; to read only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from metaprior.data.text import Pick, as_numbers
from metaprior.errors import DataError, OptionError
from metaprior.tasks import as_frame

MEMORY = ":memory:"
"""A database of DuckDB with no tables of its own, by which files are asked."""

BUSY = 5.0
"""Seconds for which another program may keep an SQLite database to itself."""

ROWS = 1 << 16

_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_LOG = 18
"""The byte of an SQLite file that is 2 where changes are kept in a file beside it."""


class Query(NamedTuple):
    """What a database is asked. db: its file; DuckDB without one reads files: `select * from 'past.csv'`."""

    sql: str
    db: str | None = None

    def __str__(self) -> str:
        return "the query" if self.file is None else f"the query of {self.file}"

    @property
    def file(self) -> str | None:
        return None if self.db in (None, MEMORY) else self.db


def read_query(query: Query, pick: Pick, names: Sequence[str]) -> pa.Table:
    """The columns of a query that are picked. names: those that name tasks, and stay as they are."""
    if not query.sql.strip():
        raise OptionError("the query is empty: give one such as 'select patient, hour, pulse from measured'.")
    if query.file is not None and _is_sqlite(query.file):
        return _read_sqlite(query, pick, names)
    return _read_duckdb(query, pick)


def _is_sqlite(file: str) -> bool:
    """Which of the two a file is; one that is neither is told."""
    path = Path(file)
    if path.is_dir():
        raise DataError(f"{file} is a folder: give the file of a database.")
    if not path.exists():
        raise DataError(f"there is no database {file}.")
    try:
        with path.open("rb") as opened:
            head = opened.read(16)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from None
    if head.startswith(b"SQLite format 3\0"):
        return True
    if head[8:12] != b"DUCK":
        raise DataError(
            f"{file} is no database of SQLite or DuckDB. A table in a file is given as TABLE, or asked for without a "
            f"database: select * from '{file}'."  # nosec B608 # a message, no query
        )
    return False


def _read_sqlite(query: Query, pick: Pick, names: Sequence[str]) -> pa.Table:
    with _told(query, sqlite3.Error, UnicodeError), closing(_opened(str(query.file))) as base:
        base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        found = base.execute(query.sql)
        if found.description is None:
            raise DataError(f"{query} is no select: {_short(query.sql)!r}.")
        place = pick([column[0] for column in found.description])
        parts = [list(zip(*rows, strict=True)) for rows in iter(lambda: found.fetchmany(ROWS), [])]
    arrays = {one: _joined([_array(part[k], one) for part in parts], one) for one, k in place.items()}
    return pa.table({one: array if one in names else _numbers(array) for one, array in arrays.items()})


def _opened(file: str) -> sqlite3.Connection:
    """A database to read alone; no file appears beside one that nobody is writing to."""
    with open(file, "rb") as opened:
        logged = opened.read(_LOG + 1)[_LOG:] == b"\2"
    quiet = logged and not os.path.exists(f"{file}-wal")
    address = f"file:{quote(os.path.abspath(file))}?mode=ro" + "&immutable=1" * quiet
    return sqlite3.connect(address, uri=True, timeout=BUSY)


def _array(values: Sequence[Any], name: str) -> Any:
    """Values of one column, which SQLite lets be of any type: text, where some are."""
    try:
        found = pa.array(values)
    except pa.ArrowException:
        found = None
    if found is not None and not pa.types.is_binary(found.type):
        return found
    if any(isinstance(value, bytes) for value in values):
        raise DataError(f"column {name!r} of the query holds bytes: use numbers, dates or text.")
    return pa.array([None if value is None else str(value) for value in values])


def _joined(arrays: Sequence[Any], name: str) -> Any:
    """A column of its parts: text, where some part is."""
    types = {array.type for array in arrays}
    if pa.string() in types:
        arrays = [array.cast(pa.string()) for array in arrays]
    parts = [pa.table({name: array}) for array in arrays] or [pa.table({name: pa.array([])})]
    return pa.concat_tables(parts, promote_options="permissive")[name]


def _numbers(array: Any) -> Any:
    """Text that is all numbers as those: what was put into SQLite from a text file may have no other type."""
    return as_numbers(array, decimal_comma=False) if pa.types.is_string(array.type) else array


def _read_duckdb(query: Query, pick: Pick) -> pa.Table:
    if find_spec("duckdb") is None:
        raise OptionError(
            "a query of DuckDB, or of files, needs duckdb: pip install 'metaprior[sql]'. SQLite needs nothing."
        )
    duckdb: Any = import_module("duckdb")
    # what is not installed is not fetched, and no variable of ours is a table
    config = {"autoinstall_known_extensions": False, "python_enable_replacements": False}
    with _told(query, duckdb.Error):
        base = duckdb.connect(query.file or MEMORY, read_only=query.file is not None, config=config)
    with closing(base), _told(query, duckdb.Error):
        kinds = [one.type.name for one in base.extract_statements(query.sql)]
        if kinds != ["SELECT"]:
            raise DataError(f"{query} is {'no' if len(kinds) < 2 else 'more than one'} select: {_short(query.sql)!r}.")
        asked = base.sql(query.sql)
        place = pick(asked.columns)
        quoted = ['"' + asked.columns[k].replace('"', '""') + '"' for k in place.values()]
        return as_frame(asked.project(", ".join(quoted))).to_arrow().rename_columns(list(place))


@contextmanager
def _told(query: Query, *kinds: type[Exception]) -> Iterator[None]:
    """What a database says of a query, in one line."""
    try:
        yield
    except kinds as error:
        said = " ".join(str(error).split("\n\nLINE")[0].split()).rstrip(".")
        if "locked" in said or "lock on file" in said:
            said += ". Another program has it open: wait until it is done, or close it"
        elif "authoriz" in said:
            said = f"only a select is asked, not {_short(query.sql)!r}"
        raise DataError(f"{query}: {said}.") from None


def _short(sql: str) -> str:
    return " ".join(sql.split())[:60]
