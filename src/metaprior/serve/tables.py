"""Tables that come and go: JSON, CSV, Arrow or Parquet, by the types that a request names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa
from pyarrow import ipc

from metaprior.data import read_content, written
from metaprior.errors import DataError
from metaprior.serve.refusals import Refusal
from metaprior.serve.typed import check_parquet, check_rows, plain, stream_table
from metaprior.tasks import Columns, check_known, with_dates

JSON, CSV = "application/json", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
TYPES = {JSON: JSON, CSV: CSV, "text/plain": CSV, ARROW: ARROW, PARQUET: PARQUET, "application/x-parquet": PARQUET}
"""The types of bodies and answers, by what they are called."""

KINDS = {**TYPES, "*/*": JSON, "application/*": JSON, "text/*": CSV}
"""The types of answers, by what an Accept header may call them."""


def type_of(header: str | None) -> str:
    """What a body is, by its Content-Type."""
    name = (header or JSON).split(";")[0].strip().lower()
    if name not in TYPES:
        raise Refusal(415, "type", f"a body is one of {', '.join(sorted(set(TYPES.values())))}.", "header Content-Type")
    return TYPES[name]


def wanted_type(header: str | None) -> str:
    """What an answer should be, by the Accept header: what it likes best; JSON where anything will do."""
    parts = [part.lower().replace(" ", "").split(";") for part in (header or "*/*").split(",")]
    liked = {name: _liking(options) for name, *options in parts}
    for name in sorted(liked, key=lambda name: -liked[name]):
        if name in KINDS and liked[name] > 0:
            return KINDS[name]
    known = ", ".join(sorted(set(TYPES.values())))
    raise Refusal(406, "type", f"an answer is one of {known}.", "header Accept")


def _liking(options: Sequence[str]) -> float:
    """The q of a type in an Accept header, from 0 (not at all) to 1."""
    try:
        return next((float(option[2:]) for option in options if option.startswith("q=")), 1.0)
    except ValueError:
        return 1.0


def parsed(body: bytes) -> Any:
    """JSON, which may have NaN; told where it is none."""
    try:
        found = json.loads(body.decode("utf-8-sig"))
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
        return found
    except RecursionError:
        raise Refusal(400, "data", "the JSON is nested too deeply.", "body") from None
    except ValueError as error:
        raise Refusal(400, "data", f"the body is no JSON: {error}.", "body") from None


def table_of_rows(given: Any, columns: Columns, optional: Collection[str], most: int) -> pa.Table:
    """Rows as JSON has them: a list of objects, or an object of columns."""
    named = [*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)]
    if isinstance(given, Mapping):
        lists = {str(name): values for name, values in given.items()}
        if not all(isinstance(values, list) for values in lists.values()):
            raise DataError("columns: give a list of values for each.")
        if len({len(values) for values in lists.values()}) > 1:
            raise DataError("columns: all have to be of one length.")
        check_known([n for n in named if n not in optional], list(lists), "the columns are")
        lists = {name: lists[name] for name in named if name in lists}
    elif isinstance(given, list):
        check_rows(len(given), most)
        if not all(isinstance(row, Mapping) for row in given):
            raise DataError("rows: give a list of objects, each with the table's columns.")
        found = [name for name in named if any(name in row for row in given)]
        if lacking := [name for name in named if name not in found and name not in optional and given]:
            check_known(lacking, list(dict.fromkeys(name for row in given for name in row)), "the rows have")
        lists = {name: [row.get(name) for row in given] for name in found}
    else:
        raise DataError("give rows as a list of objects, or columns as an object of lists.")
    check_rows(len(next(iter(lists.values()), [])), most)
    table = pa.table({name: _column(values, name, columns) for name, values in lists.items()})
    if not table.num_rows:
        raise DataError("there are no rows.")
    return with_dates(nw.from_native(table), columns.x).to_native()


def _column(values: list[Any], name: str, columns: Columns) -> pa.Array:
    if name in columns.task:
        if any(isinstance(value, (list, dict, bool)) or value is None for value in values):
            raise DataError(f"column {name!r} names tasks: give text or numbers.")
        if len({type(value) for value in values}) > 1:
            values = [str(value) for value in values]
    elif name in columns.y:
        if not all(value is None or type(value) in (int, float) for value in values):
            raise DataError(f"column {name!r} is a target: give numbers, and null where it is to be predicted.")
        return pa.array([None if value is None else _float(value, name) for value in values], pa.float64())
    elif name in columns.x and any(isinstance(value, bool) for value in values):
        raise DataError(f"column {name!r} is an input: give numbers or dates, not true or false.")
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise DataError(f"column {name!r}: {str(error).splitlines()[0]}") from None


def _float(value: float, name: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"column {name!r} has a number that is too large.") from None


def table_of_body(body: bytes, kind: str, columns: Columns, optional: Collection[str], most: int) -> pa.Table:
    """The rows of a body that is a table itself."""
    if kind == ARROW:
        return stream_table(body, columns, optional, most)
    if body[:2] in (b"\x1f\x8b", b"PK"):
        raise DataError(f"the body is packed by {'zip' if body[:2] == b'PK' else 'gzip'}: send it as it is.")
    if kind == PARQUET:
        check_parquet(body, columns, most)
    elif body[:4] == b"PAR1" or body[:6] == b"ARROW1":
        raise DataError("the body is no text: name its type in Content-Type.")
    elif re.match(rb"(\xef\xbb\xbf)?\s*\{\s*[\"}]", body):
        raise DataError("the body is JSON: name its type in Content-Type.")
    else:
        check_rows(body.count(b"\n") - 1, most)
    table = read_content(body, "the body", columns, optional=optional)
    check_rows(table.num_rows, most)
    return plain(table, columns) if kind == PARQUET else table


def answer_of(table: pa.Table, kind: str) -> bytes:
    """A table of predictions in the type that was asked for; JSON comes with its notes and is made elsewhere."""
    if kind == CSV:
        return written(table, "csv")
    if kind == PARQUET:
        return written(table, "parquet")
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """A table as JSON has it: dates as ISO text, no NaN."""
    columns = {name: [_plain(value) for value in table[name].to_pylist()] for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (int, str, bool)) else value.isoformat()
