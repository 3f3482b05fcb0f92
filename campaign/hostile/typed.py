"""Tables in memory, of Arrow or pandas, whose columns have any type and any bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from campaign.hostile.contract import Family, Place
from campaign.hostile.mutations import MOMENTS, TEXTS, WHOLE, token
from campaign.hostile.tables import COLUMNS, asked, loaded, numbers, with_options
from metaprior import MetapriorError
from metaprior.tasks import Columns

FIXED: dict[str, Any] = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "uint8": pa.uint8(),
    "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(), "float16": pa.float16(),
    "float32": pa.float32(), "float64": pa.float64(), "decimal128": pa.decimal128(38, 5),
    "decimal256": pa.decimal256(70, -3),
    "date32": pa.date32(), "date64": pa.date64(), "s": pa.timestamp("s"), "ms": pa.timestamp("ms", "UTC"),
    "us": pa.timestamp("us"), "ns": pa.timestamp("ns"), "nowhere": pa.timestamp("us", "No/Where"),
    "time32": pa.time32("s"), "time32 ms": pa.time32("ms"), "time64": pa.time64("us"), "time64 ns": pa.time64("ns"),
    "duration": pa.duration("us"), "bytes of 4": pa.binary(4), "interval": pa.month_day_nano_interval(),
}  # fmt: skip
"""Types whose values are so many bits, whatever these are."""

TEXT: dict[str, Any] = {
    "string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view(), "binary": pa.binary(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.int64(), pa.large_string()),
}  # fmt: skip
OTHERS: dict[str, Callable[[int], Any]] = {
    "null": lambda n: pa.nulls(n),
    "bool": lambda n: pa.array([k % 2 == 0 for k in range(n)]),
    "list": lambda n: pa.array([[k] for k in range(n)]),
    "struct": lambda n: pa.array([{"a": k} for k in range(n)]),
    "map": lambda n: pa.array([[("a", k)] for k in range(n)], pa.map_(pa.string(), pa.int64())),
    "numbers coded": lambda n: pa.array([float(k % 3) for k in range(n)]).dictionary_encode(),
    "run ends": lambda n: pa.RunEndEncodedArray.from_arrays([n], pa.array([1.5])),
    "union": lambda n: pa.UnionArray.from_sparse(pa.array([0] * n, pa.int8()), [pa.array(range(n))]),
    "fixed list": lambda n: pa.array([[k, k] for k in range(n)], pa.list_(pa.int8(), 2)),
}
KINDS = (*FIXED, *TEXT, *OTHERS)
FRAMES = ["arrow", "arrow", "chunked", "batch", "stream", *["pandas", "pandas"] * (find_spec("pandas") is not None)]
"""Not polars: its threads do not survive the making of a process that is a copy of this one."""


def make_typed(rng: Random, place: Place) -> bytes:
    """A recipe: of each column its name, its type and its values; mostly one column is not as it should be."""
    rows = rng.choice((0, 1, 2, 5, 9))
    usual: list[list[Any]] = [
        ["task", "string", [rng.choice("abc") for _ in range(rows)]],
        ["x", "plain", [rng.uniform(0, 4) for _ in range(rows)]],
        ["y", "plain", [rng.gauss(0, 1) for _ in range(rows)]],
    ]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        k = rng.randrange(3)
        name = rng.choice(("task", "x", "y", *TEXTS)) if rng.random() < 0.05 else usual[k][0]
        usual[k] = [name, *_values(rng, rows)]
    names = {"task": "task", "x": "x", "y": "y"} | ({"x": usual[1][0]} if rng.random() < 0.3 else {})
    recipe = {"as": rng.choice(FRAMES), "columns": usual, "names": names, "null": rng.random() < 0.2}
    try:
        table_of(recipe)
    except Exception:  # a table that does not exist: Arrow has no cast to that type, or pandas no such date
        return make_typed(rng, place)
    return with_options(rng, json.dumps(recipe).encode())


def _values(rng: Random, rows: int) -> tuple[str, list[Any]]:
    kind = rng.choice(KINDS)
    if kind in FIXED:
        return kind, [rng.choice((*WHOLE, rng.getrandbits(64), rng.randrange(10**6), 86_399)) for _ in range(rows)]
    if kind in TEXT:
        same = rng.choice((*MOMENTS, *TEXTS, token(rng)))
        some = (same, same, token(rng), rng.choice(MOMENTS))
        return kind, [rng.choice(some) if rng.random() < 0.3 else same for _ in range(rows)]
    return kind, [0] * rows


def table_of(recipe: dict[str, Any]) -> Any:
    """What the recipe says, as the library it names has it."""
    arrays = [_array(kind, values, recipe["null"]) for _, kind, values in recipe["columns"]]
    table = pa.Table.from_arrays(arrays, [name for name, _, _ in recipe["columns"]])
    if recipe["as"] == "batch":
        return table.to_batches()[0] if table.num_rows else table
    if recipe["as"] == "chunked":
        return pa.concat_tables([table.slice(0, 1), table.slice(1)])
    if recipe["as"] == "stream":
        return table.to_reader()
    if recipe["as"] == "pandas":
        return table.to_pandas()
    return table


def _array(kind: str, values: list[Any], null: bool) -> Any:
    valid = pa.py_buffer(b"\xfe" * (len(values) // 8 + 1)) if null and values else None
    if kind in FIXED:
        size = FIXED[kind].bit_width // 8
        bits = b"".join(
            ((value * 0x9E3779B97F4A7C15 if size > 8 else value) % (1 << 8 * size)).to_bytes(size, "little")
            for value in values
        )
        return pa.Array.from_buffers(FIXED[kind], len(values), [valid, pa.py_buffer(bits)])
    if kind in TEXT:
        words = [None if null and not k else _word(value) for k, value in enumerate(values)]
        return pa.array([None if one is None else one.encode() for one in words], pa.binary()).cast(TEXT[kind])
    return OTHERS[kind](len(values)) if kind in OTHERS else pa.array(values, pa.float64())


def _word(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


def attempt(given: bytes, place: Place) -> Iterator[Any]:
    head, _, content = given.partition(b"\n")
    options, recipe = json.loads(head), json.loads(content)
    options.pop("about", None)
    names = recipe["names"]
    columns: Columns = COLUMNS._replace(task=(names["task"],), x=(names["x"],), y=(names["y"],))
    yield from asked(table_of(recipe), columns, options | {"model": None}, place)
    if "model" not in options:
        return
    gp, at = loaded(place.home, options["model"]), options["at"]
    at = at if isinstance(at, str) else np.array(at)
    yield from numbers(gp.predict(table_of(recipe), at, missing=options["missing"]))
    try:  # what predict takes, suggest takes
        gp.suggest(table_of(recipe), [[1.0], [2.0], [3.0]] if isinstance(at, str) else at, missing=options["missing"])
    except MetapriorError as error:
        if "a table is" in str(error):
            raise RuntimeError(str(error)) from error


FAMILIES = (Family("tables in memory", "Arrow and pandas: any type, any bits", 80_000, 500, make_typed, attempt),)
