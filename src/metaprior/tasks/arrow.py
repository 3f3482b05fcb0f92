"""What is taken as a table: whatever narwhals knows, and whatever speaks Arrow."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa

from metaprior.errors import DataError

SPOKEN = ("__arrow_c_stream__", "__arrow_c_array__")
"""By which objects hand over Arrow data: relations of DuckDB, readers of ADBC, record batches, …"""


def as_frame(table: Any) -> nw.DataFrame[Any]:
    """A pandas, polars or Arrow table as it is; anything else that speaks Arrow as an Arrow table, read once."""
    try:
        return nw.from_native(_plain_table(table) if isinstance(table, pa.Table) else table, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"the table has columns of the same name; rename them. {error}") from None
    except TypeError:
        if any(hasattr(table, name) for name in SPOKEN):
            return nw.from_native(_read(table), eager_only=True)
        lazy = "a lazy one: collect it first" if hasattr(table, "collect") else f"not {type(table).__name__}"
        raise DataError(
            f"a table is a pandas, polars or Arrow one, or speaks Arrow (a DuckDB relation), {lazy}; for arrays use "
            "Tasks.from_pairs."
        ) from None


def is_table(given: Any) -> bool:
    """Whether something is a table; one column by itself is an array, though it may speak Arrow too."""
    speaks = any(hasattr(given, name) for name in SPOKEN) and not hasattr(given, "__array__")
    return speaks or hasattr(given, "columns") or hasattr(given, "column_names")


def arrow_of(frame: nw.DataFrame[Any], name: str) -> Any:
    """A column as one Arrow array, or None where its values have no common type."""
    try:
        array = frame.get_column(name).to_arrow()
    except (pa.ArrowException, TypeError):
        return None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _read(table: Any) -> pa.Table:
    """All that an object hands over. What goes wrong on the way is its own: a query that fails, a closed database."""
    try:
        found = pa.table(table)
    except Exception as error:
        raise DataError(f"{type(table).__name__} gives no Arrow table: {str(error).split(chr(10), 1)[0]}") from error
    names = found.column_names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"the table has several columns called {twice[0]!r}; rename them.")
    return _plain_table(found)


def _plain_table(table: pa.Table) -> pa.Table:
    """The same with its text one after another: of text that is kept as views, Arrow cannot take some rows."""
    plain = [pa.string() if str(field.type) == "string_view" else field.type for field in table.schema]
    if plain == table.schema.types:
        return table
    return table.cast(pa.schema([field.with_type(one) for field, one in zip(table.schema, plain, strict=True)]))
