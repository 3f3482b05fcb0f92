"""Tables as files: text, JSON lines, packed ones, Parquet, Feather and SQLite, spoilt; read, and predicted from."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from campaign.hostile.contract import Family, Place
from campaign.hostile.mutations import dumped, mutated, mutated_json, token, token_bytes
from metaprior import DataError, Tasks, load, shard
from metaprior.data import Query, read_content, read_table
from metaprior.frames import Wanted, predict_table
from metaprior.tasks import Columns, Covariate, check_targets, long_table, wide_columns

COLUMNS = Columns(("task",), ("x",), ("y",))
ABOUT = COLUMNS._replace(task_x=(Covariate("age"), Covariate("diet")))
ROWS = [
    ("a", 0.5, 1.0, 61, "rich"), ("a", 1.5, 0.8, 61, "rich"), ("a", 2.0, None, 61, "rich"),
    ("b", 0.25, -0.5, 40, "poor"), ("b", 3.0, 0.1, 40, "poor"), ("007", 1.0, 0.2, 55, "rich"),
    ("007", 2.5, 0.9, 55, "rich"), ("é,;", 3.5, 0.0, 33, "none"),
]  # fmt: skip
NAMES = ("task", "x", "y", "age", "diet")


def with_options(rng: Random, content: bytes, **more: Any) -> bytes:
    """An input: a line of options, then the file."""
    options: dict[str, Any] = {"missing": rng.choice(("error", "drop")), **more}
    if rng.random() < 0.4:
        options["model"] = rng.choice(("deep", "fpca", "whole", "dated", "auto", "warped"))
        options["at"] = rng.choice(("missing", [[1.0], [2.0]], [[1e300]], [[1e-300], [0.0]]))
    if rng.random() < 0.2:
        options["about"] = True
    if rng.random() < 0.1:
        options["support"] = rng.choice(([0, None], [None, 1], [-1e308, 1e308]))
    return json.dumps(options).encode() + b"\n" + content


def split(given: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, content = given.partition(b"\n")
    return json.loads(head), content


# ---- what is done with them -----------------------------------------------------------------------------------------


def in_memory(given: bytes, place: Place) -> Iterator[Any]:
    """As a server reads a body."""
    options, content = split(given)
    columns = ABOUT if options.get("about") else COLUMNS
    yield from asked(read_content(content, "the table", columns, options.get("delimiter")), columns, options, place)


def in_lines(given: bytes, place: Place) -> Iterator[Any]:
    """The same of JSON lines, which are refused where a number is true or false."""
    yield from in_memory(given, place)
    with suppress(ValueError, RecursionError):  # what follows needs lines that Python reads one by one
        check_truth([json.loads(line) for line in split(given)[1].splitlines()], ("x", "y"))


def check_truth(rows: Any, names: Sequence[str]) -> None:
    """Whether numbers of some rows, which were taken, are true or false."""
    if any(isinstance(row.get(name), bool) for row in rows if isinstance(row, dict) for name in names):
        raise RuntimeError("true or false was taken for a number")


def in_file(given: bytes, place: Place) -> Iterator[Any]:
    """As a command reads a file."""
    options, content = split(given)
    columns, wide = ABOUT if options.get("about") else COLUMNS, options.get("wide")
    name: Any = str(place.file(content, options.get("name", "table")))
    if "sql" in options:
        name = Query(options["sql"], name)
    table = read_table(name, columns, options.get("delimiter"), wide=wide)
    if wide is not None:
        columns = wide_columns(wide, columns._replace(x=(), y=tuple(options.get("y", ()))))
        table = long_table(table, wide, columns)
    try:
        yield from asked(table, columns, options, place)
    except DataError as error:
        if "more than once" in str(error):  # nobody has named a column twice here
            raise RuntimeError(str(error)) from error
        raise


def asked(table: Any, columns: Columns, options: dict[str, Any], place: Place) -> Iterator[Any]:
    """Tasks made of a table and, where the options name a model, predictions of them."""
    support = options.get("support")
    tasks = Tasks.from_table(table, **columns._asdict(), missing=options["missing"])
    tasks = tasks.with_possible(None if support is None else tuple(support), False)
    check_targets(tasks)
    if len(set(tasks.ids)) < len(tasks):
        raise RuntimeError("two tasks have one id")
    yield from (tasks.x, tasks.y)
    if options.get("model") is None:
        return
    model, at = loaded(place.home, options["model"]), options["at"]
    known = model.trained_on_.columns
    at = at if isinstance(at, str) else np.array(at)
    wanted = Wanted(missing=options["missing"], quantiles=(0.1,))
    yield from numbers(predict_table(model, known, table, at, wanted).table)


def numbers(table: Any) -> Iterator[Any]:
    """The columns of predictions, which are finite; not what they repeat of the input. There is one zero in them."""
    named = ("mean", "sd", "lower", "upper", "q0.1", "plausibility")
    for name in table.column_names if hasattr(table, "column_names") else list(table.columns):
        values = np.asarray(table[name])
        if values.dtype.kind == "f" and bool((np.signbit(values) & (values == 0)).any()):
            raise RuntimeError(f"-0.0 in column {name!r}")
        if str(name) in named:
            yield values.astype(float)


@lru_cache(maxsize=64)
def loaded(home: Path, name: str) -> Any:
    """A kept model."""
    return load(home / f"{name}.metaprior")


# ---- how they are made ----------------------------------------------------------------------------------------------


def _some(rng: Random) -> list[tuple[Any, ...]]:
    """Some rows, of which one may lack its target."""
    return rng.sample(ROWS if rng.random() < 0.3 else [row for row in ROWS if row[2] is not None], rng.randint(1, 7))


def _cells(rng: Random) -> list[list[bytes]]:
    """The header and rows of a table as text, some cells of which are odd."""
    rows = [list(map(str.encode, NAMES))]
    for row in _some(rng):
        rows.append([b"" if value is None else str(value).encode() for value in row])
    if rng.random() < 0.15:
        moment = rng.choice(("2020-03-%02d", "%02d.03.2020", "%02d:30", "2020-%02d", "2020-03-01T%02d:00"))
        for k, cells in enumerate(rows[1:], 1):
            cells[1] = (moment % k).encode()
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 5))):
        cells = rows[0] if rng.random() < 0.05 else rng.choice(rows[1:])
        cells[rng.randrange(len(cells))] = token_bytes(rng)
    return rows


def _quoted(cell: bytes) -> bytes:
    return b'"' + cell.replace(b'"', b'""') + b'"'


def text(rng: Random) -> bytes:
    """A text table with odd cells, delimiters, line ends and quotes."""
    sign, end = rng.choice((b",", b",", b",", b"\t", b";", b"|")), rng.choice((b"\n", b"\n", b"\r\n", b"\r", b"\n\n"))
    quote = rng.random() < 0.2
    lines = []
    for cells in _cells(rng):
        if sign == b";" and rng.random() < 0.5:
            cells = [cell.replace(b".", b",") for cell in cells]
        quoted = [_quoted(cell) if quote or (sign in cell and rng.random() < 0.9) else cell for cell in cells]
        lines.append(sign.join(quoted[: 5 if rng.random() < 0.97 else rng.randint(0, 4)]))
    start = rng.choice((*[b""] * 20, *[b"\xef\xbb\xbf"] * 4, b"\n\n", b" ", b"# a comment\n", b"\xff\xfe", b"\0"))
    found = start + end.join(lines) + rng.choice((end, b""))
    if rng.random() < 0.01:  # a field without end
        found = found.replace(sign, sign + rng.choice((b"9", b"x", b'"', b" ")) * rng.choice((10**4, 200_000)), 3)
    return mutated(found, rng, 2) if rng.random() < 0.3 else found


def make_text(rng: Random, place: Place) -> bytes:
    delimiter = rng.choice((*[None] * 40, ",", ";", "tab", "\t", "a", "\0", "é", "", ",,", '"', " "))
    return with_options(rng, text(rng), delimiter=delimiter)


def lines(rng: Random) -> bytes:
    """JSON lines with odd values."""
    found = []
    for row in _some(rng):
        value: Any = dict(zip(NAMES, row, strict=True))
        if rng.random() < 0.25:
            value = mutated_json(value, rng)
        found.append(dumped(value, ascii_only=rng.random() < 0.5).encode("utf-8", "surrogatepass"))
    whole = rng.choice((*[b"\n"] * 12, b"\r\n", b"\n\n", b",\n")).join(found)
    return mutated(whole, rng, 2) if rng.random() < 0.25 else whole


def make_lines(rng: Random, place: Place) -> bytes:
    return with_options(rng, lines(rng))


def make_packed(rng: Random, place: Place) -> bytes:
    """Text or lines in gzip or zip, spoilt inside or outside; at times far larger than it looks."""
    inside = rng.choice((text, lines))(rng)
    if rng.random() < 0.004:
        inside = b"task,x,y\n" + rng.choice((b"a,1,2\n", b"1", b"\n", b'"')) * rng.choice((10**5, 2 * 10**6))
    if rng.random() < 0.5:
        found = gzip.compress(inside, rng.choice((0, 1)), mtime=0)
    else:
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for k in range(rng.choice((1, 1, 1, 1, 1, 0, 2))):
                archive.writestr(
                    zipfile.ZipInfo(
                        (rng.choice((token(rng), "xl/a", "a/", "")) if rng.random() < 0.1 else "t.csv") + str(k)
                    ),
                    inside,
                )
        found = sink.getvalue()
    return with_options(rng, mutated(found, rng, 2) if rng.random() < 0.6 and len(found) < 60_000 else found)


def _arrow(rng: Random) -> pa.Table:
    rows = rng.choices(ROWS, k=rng.choice((1, 8, 8, 30)))
    table = pa.table({name: [row[k] for row in rows] for k, name in enumerate(NAMES)})
    if rng.random() < 0.3:
        table = table.set_column(0, "task", table["task"].dictionary_encode())
    if rng.random() < 0.3:
        table = table.set_column(1, "x", table["x"].cast(rng.choice((pa.float32(), pa.decimal128(9, 3), pa.string()))))
    if rng.random() < 0.2:
        moments = pa.array(range(len(rows)), pa.int64()).cast(rng.choice((pa.timestamp("us"), pa.time64("us"))))
        table = table.set_column(1, "x", moments)
    return table


def make_parquet(rng: Random, place: Place) -> bytes:
    """Parquet, of which the last bytes, where everything else is described, are spoilt most often."""
    sink = io.BytesIO()
    packed, version = rng.choice(("none", "snappy", "zstd", "gzip")), rng.choice(("1.0", "2.6"))
    options: dict[str, Any] = {"use_dictionary": rng.random() < 0.5, "data_page_version": rng.choice(("1.0", "2.0"))}
    pq.write_table(_arrow(rng), sink, compression=packed, version=version, **options)
    content = sink.getvalue()
    size = int.from_bytes(content[-8:-4], "little")
    body, footer = content[: -8 - size], content[-8 - size : -8]
    kind = rng.randrange(4)
    if kind == 0:
        content = mutated(content, rng)
    elif kind == 1:
        body = mutated(body, rng)
    elif kind == 2:
        footer = mutated(footer, rng, 2)
    if kind:
        content = body + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    if rng.random() < 0.05:
        content = mutated(content[-8:], rng, 1).join((content[:-8], b""))
    return with_options(rng, content, name=rng.choice(("t.parquet", "t", "t.csv")))


def make_feather(rng: Random, place: Place) -> bytes:
    sink = io.BytesIO()
    table = _arrow(rng)
    packed = rng.choice((None, None, None, "lz4", "zstd"))
    with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(compression=packed)) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    return with_options(rng, mutated(content, rng, 3) if rng.random() < 0.97 else content, name="t.feather")


@lru_cache(maxsize=1)
def _database() -> bytes:
    with sqlite3.connect(":memory:") as base:
        base.execute("create table t (task, x, y, age, diet)")
        base.executemany("insert into t values (?, ?, ?, ?, ?)", ROWS)
        base.commit()
        return base.serialize()


SQL = "select task, x, y, age, diet from t"


def make_database(rng: Random, place: Place) -> bytes:
    """SQLite, the file or the question spoilt; or cells of any type."""
    content, sql = _database(), SQL
    if rng.random() < 0.2:
        odd = rng.choice(
            ("1e400", "x'ff'", "null", "9223372036854775807", "'2020-01-01'", "'１'", "char(0)", "zeroblob(9)")
        )
        sql = f"select task, {odd} as x, y, age, diet from t union all {SQL}"
    elif rng.random() < 0.3:
        sql = mutated(sql.encode(), rng, 2).decode("utf-8", "replace")
    else:
        content = mutated(content, rng)
    return with_options(rng, content, sql=sql, name="t.db")


ENDS = {"read": ("t.csv", "t.csv.gz", "t.zip"), "shard": ("t.csv", "t.csv.gz")}
"""Names of files with a line that does not end, by what is done with them."""

STARTS = (
    "",
    "\ufeff",
    "task,x,y\n",
    "task,x,y\na,1,2\na,",
    'task,x,y\na,1,"',
    '{"task":"',
    '{"task":"a","x":1}\n{"task":"',
)


def make_endless(rng: Random, place: Place) -> bytes:
    """A file in a few words: how it begins, what follows again and again, and how many million bytes of it."""
    how = rng.choice(tuple(ENDS))
    recipe = {"how": how, "name": rng.choice(ENDS[how]), "start": rng.choice(STARTS), "more": rng.choice('0 ;,x"é')}
    if rng.random() < 0.3:
        recipe["more"] = rng.choice(("c,", "1,2,", "0\n", '""', "\\", "{"))
    return json.dumps(recipe | {"million": rng.choice((1, 5, 20, 70, 150))}).encode()


def attempt_endless(given: bytes, place: Place) -> Iterator[Any]:
    """Read the file, or make shards of it: what is too much is refused before it is in memory."""
    recipe = json.loads(given)
    path = place.scratch / recipe["name"]
    more = (recipe["more"] * 10**6).encode()[: 10**6]
    with _opened_to_write(path) as file:
        file.write(recipe["start"].encode())
        for _ in range(recipe["million"] if recipe["more"] != "0\n" else min(recipe["million"], 5)):
            file.write(more)
    if recipe["how"] == "read":
        yield from asked(read_table(str(path), COLUMNS), COLUMNS, {"missing": "drop"}, place)
    else:
        shutil.rmtree(place.scratch / "pieces", ignore_errors=True)
        shard(path, place.scratch / "pieces", task="task", buckets=2, progress=False)


@contextmanager
def _opened_to_write(path: Path) -> Iterator[Any]:
    """A file that is packed as its name says."""
    if path.suffix == ".zip":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open("t.csv", "w") as file,
        ):
            yield file
    else:
        with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
            yield file


def make_wide(rng: Random, place: Place) -> bytes:
    """A row for each task: columns by a pattern, with odd names."""
    stem = rng.choice(("week_", "week_", "", "y ", "2020-01-0", "t=", "week-"))
    names = [f"{stem}{k}" for k in range(1, rng.randint(2, 6))]
    for _ in range(rng.choice((0, 0, 1, 2))):
        names[rng.randrange(len(names))] = token(rng).replace("\n", " ").replace(",", " ")
    rows = [["task", *names]]
    for k in range(rng.randint(1, 4)):
        rows.append(
            [
                f"t{k}",
                *(
                    rng.choice(("0.5", "-1", "3", "0", "7e2", "", *[token(rng)] * (rng.random() < 0.1))).replace(
                        ",", "."
                    )
                    for _ in names
                ),
            ]
        )
    pattern = rng.choice((f"{stem}*", f"{stem}*", f"{stem}?", "*", "[0-9]", "week_[1-9]", token(rng) + "*", token(rng)))
    content = "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    more = {"y": [rng.choice(("value", "week", "y", "t", token(rng)))]} if rng.random() < 0.2 else {}
    content = mutated(content, rng, 2) if rng.random() < 0.3 else content
    return with_options(rng, content, wide=pattern, name="t.csv", **more)


FAMILIES = (
    Family(
        "text tables", "bytes, cells, delimiters, quotes, line ends, encodings", 250_000, 1000, make_text, in_memory
    ),
    Family("JSON lines", "values, types, depth, bytes", 100_000, 1000, make_lines, in_lines),
    Family("packed tables", "gzip and zip, spoilt inside or outside, and bombs", 60_000, 500, make_packed, in_file),
    Family("Parquet files", "footers, pages, lengths", 100_000, 500, make_parquet, in_file),
    Family("Feather files", "messages, offsets, lengths", 80_000, 500, make_feather, in_file),
    Family("SQLite files", "bytes, queries, cells of any type", 25_000, 500, make_database, in_file),
    Family(
        "endless lines",
        "headers, rows and values of up to 150 million bytes",
        300,
        10,
        make_endless,
        attempt_endless,
        5.0,
        500_000_000,
    ),
    Family("wide tables", "names of columns, patterns, cells", 40_000, 500, make_wide, in_file),
)
