"""`metaprior shard`: sources of every kind, runs that are killed and go on, and what is refused."""

import datetime
import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather
from typer.testing import CliRunner

from metaprior import DataError, OptionError, OutputError, Shards, Tasks, shard
from metaprior.cli import app
from metaprior.data import Manifest, blocks, embedded_table, sharding

QUIET = {"buckets": 5, "progress": False}


def rows_of(folder):
    """All rows, those of each task together, as the manifest has their columns."""
    names = [name for name, _ in Manifest.read(folder).schema]
    shards = Shards.open(folder, x=names, y=names)
    return pa.concat_tables([shards.table(k) for k in range(shards.count)]).select(names)


def _refused(what, to):
    """What is to be written, but for one chunk."""
    if to.name == "chunk-000003.arrow":
        raise OutputError("stopped")
    return what


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def written(path, text):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", text)
        return path
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


# ---- sources


def long_table(rows=300):
    rng = np.random.default_rng(0)
    return pa.table({"id": rng.integers(0, 30, rows), "x": np.arange(float(rows)), "y": rng.normal(size=rows)})


@pytest.mark.parametrize(
    "name", ["t.parquet", "t.feather", "t.csv", "t.tsv", "t.csv.gz", "t.zip", "t.jsonl", "t.jsonl.gz", "folder"]
)
def test_every_source_gives_the_same_rows(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sharding, "CHUNK_ROWS", 40)
    monkeypatch.setattr("metaprior.data.streams.ROWS", 16)
    monkeypatch.setattr("metaprior.data.text.BLOCK", 500)
    monkeypatch.setattr("metaprior.data.lines.BLOCK", 500)
    table, path = long_table(), tmp_path / name
    if name == "folder":
        path.mkdir()
        for k, part in enumerate((table.slice(0, 100), table.slice(100, 3), table.slice(103))):
            pq.write_table(part, path / f"part-{k}.parquet")
        (path / "_SUCCESS").touch()
    elif name == "t.parquet":
        pq.write_table(table, path, row_group_size=70)
    elif name == "t.feather":
        feather.write_feather(table, path, chunksize=70)
    elif "jsonl" in name:
        written(path, "".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink, csv.WriteOptions(delimiter="\t" if "tsv" in name else ","))
        written(path, sink.getvalue().to_pybytes().decode())
    found = rows_of(shard(path, tmp_path / "shards", task="id", **QUIET))
    with monkeypatch.context() as patch:
        write = sharding.Workplace.write
        patch.setattr(sharding.Workplace, "write", lambda self, to, what: write(self, to, _refused(what, to)))
        with pytest.raises(OutputError):
            shard(path, tmp_path / "stopped", task="id", **QUIET)
    assert content(shard(path, tmp_path / "stopped", task="id", **QUIET)) == content(tmp_path / "shards")
    text = name.startswith("t.") and name[2:5] in ("csv", "tsv", "zip")
    expected = table.set_column(0, "id", table["id"].cast(pa.string())) if text else table
    assert found.schema.types == expected.schema.types
    assert found.sort_by("x").equals(expected)


def test_files_of_a_folder_may_differ_in_types_and_order_but_not_in_columns(tmp_path):
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "y": [1], "z": [None]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"z": ["s"], "id": [2**40], "y": [0.5]}), tmp_path / "b.parquet")
    found = rows_of(shard(tmp_path, tmp_path / "shards", task="id", **QUIET)).sort_by("id")
    assert found.to_pydict() == {"id": [1, 2**40], "y": [1.0, 0.5], "z": [None, "s"]}
    pq.write_table(pa.table({"id": [2], "y": [0.5]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet has no column 'z'"):
        shard(tmp_path, tmp_path / "other", task="id", **QUIET)
    pq.write_table(pa.table({"id": [2], "y": [0.5], "z": ["s"], "more": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"a column 'more' that the files before it lack.*--columns"):
        shard(tmp_path, tmp_path / "other", task="id", **QUIET)
    kept = shard(tmp_path, tmp_path / "other", task="id", columns=["y"], **QUIET)
    assert rows_of(kept).column_names == ["id", "y"]
    pq.write_table(pa.table({"id": ["two"], "y": [0.5], "z": ["s"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"'id' holds string in .*b\.parquet and int32"):
        shard(tmp_path, tmp_path / "third", task="id", **QUIET)


def test_types_survive(tmp_path):
    table = pa.table(
        {
            "id": pa.array(["a", "b", "a"]).dictionary_encode(),
            "day": pa.array([datetime.date(2020, 1, k) for k in (1, 2, 3)]),
            "moment": pa.array([datetime.datetime(2020, 1, 1, k) for k in (1, 2, 3)], pa.timestamp("ms", "UTC")),
            "clock": pa.array([datetime.time(k, 30) for k in (1, 2, 3)]),
            "flag": [True, None, False],
            "list": [[1], [], None],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = rows_of(shard(tmp_path / "t.parquet", tmp_path / "shards", task="id", buckets=1, progress=False))
    expected = table.set_column(0, "id", table["id"].cast(pa.string())).take([0, 2, 1])
    assert found.drop_columns("moment").equals(expected.drop_columns("moment"))
    assert found["moment"].to_pylist() == expected["moment"].to_pylist()


def test_embedded_tables(tmp_path):
    shards = Shards.open(shard("elnino", tmp_path / "s", task="year", **QUIET), x="month", y="temperature")
    assert (shards.tasks, shards.rows) == (61, 732)
    assert len(Tasks.from_table(embedded_table("elnino"), task="year", x="month", y="temperature")) == 61


# ---- text


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "FIRST", 60)
    monkeypatch.setattr("metaprior.data.text.BLOCK", 60)


def from_text(path, lines, **options):
    return rows_of(
        shard(written(path / "t.csv", lines), path / "shards", task="id", buckets=1, progress=False, **options)
    )


def test_names_are_kept_and_numbers_may_become_fractions(tmp_path, small_blocks):
    rows = "".join(f"{k % 3:03d},{k},{k % 2},x\n" for k in range(40))
    found = from_text(tmp_path, f"id,x, flag ,note\n{rows}7,0.5,007,y\n", text=["flag"])
    assert found["id"].unique().to_pylist() == ["000", "001", "002", "7"]
    assert found["x"][-1].as_py() == 0.5
    assert found["flag"].unique().to_pylist() == ["0", "1", "007"]


@pytest.mark.parametrize(
    ("forms", "kind", "expected"),
    [
        (["2020-01-05"] * 20, pa.date32(), datetime.date(2020, 1, 5)),
        (["28.03.2020"] * 20, pa.date32(), datetime.date(2020, 3, 28)),
        (["28 Mar 2020 13:45"] * 20, pa.timestamp("ms"), datetime.datetime(2020, 3, 28, 13, 45)),
        (["13:45"] * 20, pa.time32("ms"), datetime.time(13, 45)),
        (["03/28/2020"] * 20, pa.date32(), datetime.date(2020, 3, 28)),
        (["05/05/2020"] * 20 + ["05/28/2020"], pa.string(), "05/05/2020"),  # the first block does not tell
        (["true", "FALSE"] * 20, pa.bool_(), True),
    ],
)
def test_dates_of_text(tmp_path, small_blocks, forms, kind, expected):
    found = from_text(tmp_path, "id,day\n" + "".join(f"a,{day}\n" for day in forms))
    assert found["day"].type == kind
    assert found["day"][0].as_py() == expected
    assert len(found) == len(forms)


@pytest.mark.parametrize(
    ("usual", "odd", "what"),
    [
        ("1.5", "abc", "number"),
        (" 1.5 ", "abc", "number"),
        ("2020-01-05", "2020-13-05", "date"),
        ("28.03.2020", "31.02.2020", "date"),
        ("28.03.2020", "28.03.2020 13:45", "date"),
        ("true", "maybe", "truth value"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(tmp_path, small_blocks, usual, odd, what):
    text = "id;y\n" if usual == "1.5" else "id,y\n"
    sign = text[2]
    text += f"a{sign}{usual}\n" * 30 + f"b{sign}{odd}\n" + f"a{sign}{usual}\n" * 9
    with pytest.raises(DataError, match=rf"'y' is '{odd}' in line 32, which is no {what}.*--text"):
        from_text(tmp_path, text)
    assert len(from_text(tmp_path, text, text=["y"])) == 40


def test_decimal_commas_and_what_is_missing(tmp_path, small_blocks):
    text = "id;x;y;z\n" + "a;1;;\n" * 20 + "a;1,5;NA;3\nb;2;0,25;4,5\n"
    found = from_text(tmp_path, text)
    assert found["x"].to_pylist()[-2:] == [1.5, 2.0]
    assert found["y"].to_pylist()[-2:] == [None, 0.25]
    assert found["z"].to_pylist()[-2:] == [3.0, 4.5]


def test_lines_may_be_longer_than_a_block_but_quotes_have_to_end(tmp_path, small_blocks):
    text = "id,note,y\n" + "a,n,1\n" * 30 + f"b,{'long ' * 200},2\n" + "a,n,3\n" * 30
    assert from_text(tmp_path, text)["y"].to_pylist() == [1.0] * 30 + [3.0] * 30 + [2.0]
    with pytest.raises(DataError, match="a value of several lines"):
        from_text(tmp_path, 'id,note,y\na,n,1\nb,"n\nc",3\n', overwrite=True)
    (tmp_path / "t.csv").write_bytes(b"id,note,y\n" + b"a,n,1\n" * 30 + b"b,\xe9,1\n")
    with pytest.raises(DataError, match="no UTF-8"):
        shard(tmp_path / "t.csv", tmp_path / "new", task="id", **QUIET)
    with pytest.raises(DataError, match="has no rows"):
        shard(written(tmp_path / "t.csv", "id,y\n"), tmp_path / "new", task="id", **QUIET)


# ---- what cannot be done, and the command

OPTIONS = QUIET | {"task": "id"}


@pytest.fixture
def source(tmp_path):
    pq.write_table(long_table(), tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"buckets": 0}, OptionError, "buckets=0: give 1 to 65,536"),
        ({"buckets": 65_537}, OptionError, "buckets=65537"),
        ({"task": "idd"}, DataError, r"no column 'idd' \(did you mean 'id'"),
        ({"columns": ["why"]}, DataError, "no column 'why'"),
        ({"text": ["z"]}, DataError, "no column 'z'"),
    ],
)
def test_options_that_make_no_sense(source, tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        shard(source, tmp_path / "out", **OPTIONS | options)
    assert not (tmp_path / "out").exists()


def test_every_row_has_its_task(source, tmp_path):
    ids = [1.0] * 70 + [None, float("nan")] + [2.0] * 9
    pq.write_table(pa.table({"id": ids, "y": range(81)}), source)
    with pytest.raises(DataError, match="'id' is empty in row 71, the first of 2 among"):
        shard(source, tmp_path / "out", **OPTIONS)
    pq.write_table(pa.table({"id": ids[:70], "y": range(70)}), source)
    assert Manifest.read(shard(source, tmp_path / "out", **OPTIONS)).rows == 70


def test_what_is_no_table(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        shard(tmp_path / "none", tmp_path / "out", **OPTIONS)
    with pytest.raises(DataError, match="has no Parquet files"):
        shard(tmp_path, tmp_path / "out", **OPTIONS)
    with pytest.raises(DataError, match="give a file"):
        shard("-", tmp_path / "out", **OPTIONS)
    (tmp_path / "t.parquet").write_text("id,y\n1,2\n")
    with pytest.raises(DataError, match="no Parquet table"):
        shard(tmp_path / "t.parquet", tmp_path / "out", **OPTIONS)


def test_the_command(source, tmp_path):
    words = ["shard", str(source), "--task", "id", "--out", str(tmp_path / "out"), "--buckets", "3", "--columns", "y"]
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == {"shards": str(tmp_path / "out"), "tasks": 30, "rows": 300, "buckets": 3}
    assert "300 rows, 30 tasks of" in found.stderr
    assert "in 3 buckets" in found.stderr
    assert pq.read_table(tmp_path / "out" / "bucket-00000.parquet").column_names == ["id", "y"]
    again = CliRunner().invoke(app, [*words, "--overwrite", "--quiet"])
    assert (again.exit_code, again.output) == (0, "")


def test_json_lines_that_do_not_fit_the_first_ones_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.data.lines.BLOCK", 45)
    first = '{"id": 7, "x": 1}\n{"id": "007", "x": 1}\n'
    with pytest.raises(DataError, match=r"'id' mixes numbers \(7 in row 1\) and text \('007' in row 2\)"):
        shard(written(tmp_path / "t.jsonl", first), tmp_path / "out", task="id", **QUIET)
    rows = '{"id": "a", "x": 1}\n{"id": "b", "x": null}\n{"id": "c", "x": 2.5'
    found = rows_of(shard(written(tmp_path / "t.jsonl", rows + "}\n"), tmp_path / "good", task="id", **QUIET))
    assert found.sort_by("id").to_pydict() == {"id": ["a", "b", "c"], "x": [1.0, None, 2.5]}
    for more, message in (
        ('}\n{"id": "d", "x": "5"}', r"'x' mixes numbers .1 in row 1. and text .'5' in row 4"),
        ('}\n{"id": "d", "x": "t"}', r"'x' mixes numbers .1 in row 1. and text .'t' in row 4"),
        (', "z": 1}', "a column 'z' that its first"),
    ):
        with pytest.raises(DataError, match=message):
            shard(written(tmp_path / "t.jsonl", rows + more), tmp_path / "bad", task="id", **QUIET)
