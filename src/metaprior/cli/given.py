"""The table that a command is given: a file, a folder of shards, an embedded one, or a query; long or wide."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from metaprior.data import COLUMNS, EMBEDDED, Manifest, Query, column_names, read_table
from metaprior.errors import MetapriorError, OptionError
from metaprior.progress import progress_bar
from metaprior.tasks import Columns, Covariate, Pattern, long_table, looks_wide, wide_columns


class Given(NamedTuple):
    """Where a table comes from, and the pattern of the columns that are its points, if it has one row per task."""

    source: str | Query
    wide: str | None = None

    @staticmethod
    def of(table: str | None, sql: str | None, db: str | None, wide: str | None) -> Given:
        """What TABLE, `--sql`, `--db` and `--wide` say: exactly one of the first two."""
        if sql is None and db is not None:
            example = "--sql 'select patient, hour, pulse from …'"
            raise OptionError(f"--db {db}: say what to ask it for, such as {example}.")
        if table is not None and sql is not None:
            raise OptionError(f"give TABLE ({table}) or --sql, not both.")
        if table is None and sql is None:
            raise OptionError("give a TABLE: a file, - for standard input, elnino or digits; or a query, with --sql.")
        if wide is not None:
            Pattern.of(wide)
            if table is not None and (table in EMBEDDED or os.path.isdir(table)):
                raise OptionError(f"--wide {wide}: {table} has one row per observation.")
        return Given(Query(sql, db) if sql is not None else str(table), wide)

    def __str__(self) -> str:
        return str(self.source)

    @property
    def folder(self) -> str | None:
        """The folder of shards, if it is one."""
        return self.source if isinstance(self.source, str) and os.path.isdir(self.source) else None

    @property
    def files(self) -> list[str]:
        """What is read, and never replaced."""
        file = self.source.file if isinstance(self.source, Query) else self.source
        return files_read(*([] if file is None else [file]))

    @property
    def stem(self) -> str:
        """What a model of it is called where nobody says."""
        name = (self.source.file if isinstance(self.source, Query) else self.source) or "-"
        name = name.removesuffix(".gz").removesuffix(".zip")
        return "model" if name == "-" else Path(name).stem

    def read(self, columns: Columns, delimiter: str | None, optional: Collection[str] = (), *, quiet: bool) -> pa.Table:
        """The columns that have a role, and those of the pattern."""
        asks = isinstance(self.source, Query)
        with progress_bar("asking the database", None, show=asks and not quiet, in_shares=True):
            return read_table(self.source, columns, delimiter, optional=optional, wide=self.wide)

    def as_long(self, table: pa.Table, columns: Columns) -> pa.Table:
        """A table that was read as one with a row per observation, some of which may lack their target."""
        if self.wide is None:
            return table
        return long_table(table, self.wide, wide_columns(self.wide, columns), empty=True)


def split_names(text: str) -> list[str]:
    """Column names separated by commas; one that has a comma itself stands in double quotes."""
    try:
        parts = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as error:  # a line break, or a quote that is never closed
        raise OptionError(f"{text!r}: cannot be read as names of columns ({error}).") from None
    names = [name.strip() for name in parts if name.strip()]
    if not names:
        raise OptionError("give at least one column name.")
    return names


def files_read(*names: str) -> list[str]:
    """Those of a command's inputs that are files: embedded tables are none, standard input may be one."""
    return ["/dev/stdin" if name == "-" else name for name in names if name not in EMBEDDED and not os.path.isdir(name)]


def named_columns(given: Given, task: str | None, x: str | None, y: str | None, task_x: str | None = None) -> Columns:
    """The columns that `--task`, `--x`, `--y` and `--task-x` name; embedded tables know theirs, shards their tasks."""
    asked = {"task": task, "x": x, "y": y}
    known: dict[str, Any] = {}
    if given.folder is not None:
        known = {"task": Manifest.read(given.folder).task}
    elif given.wide is not None:
        known = Columns((), (), ())._asdict()
    elif given.source in COLUMNS:
        known = COLUMNS[str(given.source)]._asdict()
    lacking = [f"--{name}" for name, text in asked.items() if text is None and name not in known]
    if lacking:
        raise OptionError(
            f"{given}: say which columns are what with {', '.join(lacking)}, such as --task patient --x hour --y pulse."
            f"{_advice(given)}"
        )
    named = {name: tuple(split_names(text)) for name, text in asked.items() if text is not None}
    about = tuple(Covariate(name) for name in split_names(task_x)) if task_x is not None else ()
    found = Columns(**known | named | {"task_x": about})
    return found if given.wide is None else wide_columns(given.wide, found)


def _advice(given: Given) -> str:
    """What a file's own columns say about how it is meant; nothing where it cannot be looked at."""
    if not isinstance(given.source, str) or not os.path.isfile(given.source):
        return ""
    try:
        return f" {looks_wide(column_names(Path(given.source), None))}".rstrip()
    except (MetapriorError, OSError):
        return ""
