"""Tables as users have them: what names a task, what is missing, wide files, other formats."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather
from typer.testing import CliRunner

from metaprior import DataError, MetaGP, Tasks
from metaprior.cli import app
from metaprior.data import embedded_table, read_table, shard, write_table
from metaprior.tasks import Columns, Covariate
from metaprior.tasks.trained_on import as_written

COLUMNS = Columns(("task",), ("x",), ("y",))
ROWS = "task,x,y\n02134,1,2\n2134,2,3.5\n"


def read(path, content, columns=COLUMNS, **options):
    """A table from a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(str(path), columns, **options)


def run(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, (found.output, found.exception)
    return found


def tasks_of(table, columns=COLUMNS, **options):
    return Tasks.from_table(table, **columns._asdict(), **options)


# ---- what names a task


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_tasks_of_text_files_are_named_as_written(tmp_path, suffix):
    text = "task,x,y\n02134,1,2\n2134,1,3\n7,1,2\n007,1,2\n1e5,1,2\n100000,1,2\n7.0,1,2\n+7,1,2\n"
    text = text.replace(",", "\t") if suffix == "tsv" else text
    table = read(tmp_path / f"t.{suffix}", gzip.compress(text.encode()) if suffix == "csv.gz" else text)
    assert tasks_of(table).ids == ("02134", "2134", "7", "007", "1e5", "100000", "7.0", "+7")
    assert tasks_of(table).sizes.tolist() == [1] * 8


def test_a_name_far_down_is_no_number_either(tmp_path):
    rows = "".join(f"{7 + k % 3},{k},1\n" for k in range(30_000)) + "007,1,1\n"
    ids = tasks_of(read(tmp_path / "t.csv", "task,x,y\n" + rows)).ids
    assert ids == ("7", "8", "9", "007")


def test_several_columns_that_name_a_task(tmp_path):
    columns = Columns(("site", "patient"), ("x",), ("y",))
    table = read(tmp_path / "t.csv", "x,site,patient,y\n1,01,1,5\n2,1,01,6\n3,01,1,7\n", columns)
    assert tasks_of(table, columns).ids == (("01", "1"), ("1", "01"))


def test_typed_files_keep_their_types(tmp_path):
    table = pa.table({"task": [7, 8], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    for name in ("t.parquet", "t.feather"):
        assert tasks_of(read_table(str(tmp_path / name), COLUMNS)).ids == (7, 8)


def test_ids_are_alike_across_files_and_zeros_count():
    assert {as_written(one) for one in (1950, 1950.0, "1950", "1950.0")} == {"1950"}
    assert as_written("007") == "007"
    assert as_written("1.10") == "1.10"


@pytest.fixture(scope="module")
def elnino():
    names = {"task": "year", "x": "month", "y": "temperature"}
    return MetaGP("linear", "rbf", max_epochs=5, progress=False).fit(embedded_table("elnino"), **names)


def test_predictions_name_tasks_as_they_came(tmp_path, elnino):
    elnino.save(tmp_path / "m")
    (tmp_path / "new.csv").write_text("year,month,temperature\n02134,1,24\n2134,1,20\n1950,1,23\n")
    run("predict", tmp_path / "m", tmp_path / "new.csv", "--at", "4:5:1", "--out", tmp_path / "p.csv")
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["02134", "02134", "2134", "2134", "1950", "1950"]
    run("predict", tmp_path / "m", tmp_path / "new.csv", "--at", "4:4:1", "--out", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["year"].to_pylist() == ["02134", "2134", "1950"]
    found = run("evaluate", tmp_path / "m", "elnino", "--context", "1", "--json")
    assert "trained on 61 of 61 tasks" in found.stderr
    csv.write_csv(embedded_table("elnino"), tmp_path / "same.csv")
    found = run("evaluate", tmp_path / "m", tmp_path / "same.csv", "--context", "1", "--json")
    assert "trained on 61 of 61 tasks" in found.stderr


def test_tasks_that_differ_by_a_point_and_zero_stay_two(elnino):
    known = pa.table({"year": ["7", "7.0"], "month": [1.0, 1.0], "temperature": [20.0, 30.0]})
    found = elnino.predict(known, pa.table({"year": ["7.0", "7"], "month": [1.0, 1.0]}))
    assert found["mean"][0].as_py() > found["mean"][1].as_py() + 2
    alone = elnino.predict(known.slice(1), pa.table({"year": [7], "month": [1.0]}))
    assert alone["mean"][0].as_py() == pytest.approx(found["mean"][0].as_py())


def test_names_are_in_quotes_only_where_they_need_them(tmp_path):
    for names, text in ((["007", "a b"], "007,1\na b,2\n"), (['a"b', "c"], '"a""b",1\n"c",2\n')):
        write_table(pa.table({"t": names, "x": [1, 2]}), str(tmp_path / "t.csv"))
        assert (tmp_path / "t.csv").read_text().split("\n", 1)[1] == text


# ---- what is missing


def test_only_an_empty_field_of_text_is_missing(tmp_path):
    columns = COLUMNS._replace(task_x=(Covariate("region"), Covariate("age")))
    text = "task,x,y,region,age\nNA,1,NA,EU,40\nNA,2,1,EU,NA\nnull,NaN,2,NA,50\nnan,3,4,null,60\n"
    table = read(tmp_path / "t.csv", text, columns)
    assert table["y"].to_pylist() == [None, 1.0, 2.0, 4.0]
    tasks = tasks_of(table, columns, missing="drop")
    assert tasks.ids == ("NA", "nan")
    assert table["region"].to_pylist() == ["EU", "EU", "NA", "null"]
    assert table["age"].to_pylist() == [40.0, None, 50.0, 60.0]
    with pytest.raises(DataError, match=r"task column 'task' is empty in 1 rows \(the first is row 1\)"):
        tasks_of(read(tmp_path / "t.csv", 'task,x,y\nNA,1,2\n"",1,2\n'))


def test_a_level_is_text_where_past_ones_were(tmp_path):
    """A new table may hold nothing but NA, or nothing but what looks like a number."""
    levels = COLUMNS._replace(task_x=(Covariate("ward", ("007", "10", "NA")),))
    for level in ("NA", "10", "007"):
        table = read(tmp_path / "t.csv", f"task,x,y,ward\na,1,2,{level}\n", levels)
        assert tasks_of(table, levels).columns.task_x == levels.task_x
    unknown = COLUMNS._replace(task_x=(Covariate("ward"),))
    for values, found in (
        (("1", "2"), ()),
        (("007", "12"), ("007", "12")),
        (("true", "false"), ()),
        (("2020-01-01", "2020-01-02"), ()),
        (("b", "7"), ("7", "b")),
    ):
        table = read(tmp_path / "t.csv", "task,x,y,ward\na,1,2,{}\nb,1,2,{}\n".format(*values), unknown)
        assert tasks_of(table, unknown).columns.task_x[0].levels == found


# ---- wide tables


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Many columns; three of them matter, and one name is there twice."""
    home, count = tmp_path_factory.mktemp("wide"), 20_000
    names = ["task", "x", "y", *(f"gene{k}" for k in range(count)), "gene0"]
    genes = ["-0.1234567890123456789012345678901234567890123456789012345678"] * (count + 1)
    rows = [[str(r // 4), str(r % 4), f"{r}.5", *genes] for r in range(20)]
    (home / "t.csv").write_text("\n".join(map(",".join, [names, *rows])) + "\n")
    typed = pa.Table.from_arrays([pa.array([1.0, 2.0])] * len(names), names=names)
    feather.write_feather(typed, home / "t.feather", compression="uncompressed")
    pq.write_table(typed.select(range(5_000)), home / "t.parquet")
    return home


@pytest.mark.parametrize("name", ["t.csv", "t.feather", "t.parquet"])
def test_only_named_columns_are_read(wide, name):
    table = read_table(str(wide / name), COLUMNS)
    assert table.column_names == ["task", "x", "y"]
    assert len(tasks_of(table)) == (5 if name == "t.csv" else 2)


def test_wide_tables_are_told_of_in_short(wide):
    path = str(wide / "t.csv")
    with pytest.raises(DataError, match=r"t\.csv has no column 'yy' .*gene8 and 19,991 more\.$") as caught:
        read_table(path, COLUMNS._replace(y=("yy",)))
    assert len(str(caught.value)) < 400
    assert "(did you mean 'y'?)" in str(caught.value)
    with pytest.raises(DataError, match="several columns called 'gene0'"):
        read_table(path, COLUMNS._replace(y=("gene0",)))
    assert read_table(path, COLUMNS._replace(y=("gene1",))).num_rows == 20
    frame = pd.DataFrame(np.zeros((2, 500)), columns=[f"c{k}" for k in range(500)])
    with pytest.raises(DataError, match=r"c11 and 488 more\.$"):
        Tasks.from_table(frame, task="c1", x="c2", y="temperature")


def test_points_need_no_targets_and_some_columns_may_be_absent(tmp_path, wide):
    columns = COLUMNS._replace(y=(), task_x=(Covariate("diet", ("a", "b")),))
    points = "task,x,note\n007,1,?\n"
    assert read(tmp_path / "t.csv", points, columns, optional=["diet"]).to_pydict() == {"task": ["007"], "x": [1]}
    with pytest.raises(DataError, match=r"no column 'diet'"):
        read_table(str(tmp_path / "t.csv"), columns)
    points = "task,x,diet\n007,1,a\n"
    assert read(tmp_path / "t.csv", points, columns, optional=["diet"]).column_names == ["task", "x", "diet"]
    assert read_table(str(wide / "t.csv"), COLUMNS._replace(y=())).column_names == ["task", "x"]
    with pytest.raises(DataError, match=r"t\.csv has no column 'y'. Its columns: task, x, diet"):
        read_table(str(tmp_path / "t.csv"), COLUMNS)


# ---- formats


def packed_table(write):
    sink = io.BytesIO()
    write(pa.table({"task": ["02134", "2134"], "x": [1, 2], "y": [2.0, 3.5]}), sink)
    return sink.getvalue()


def zipped(*names, content="<a/>", **options):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", **options) as archive:
        for name in names:
            archive.writestr(name, content)
    return sink.getvalue()


OBJECTS = '{"task": "02134", "x": 1, "y": 2, "note": [1]}\n\n{"y": 3.5, "x": 2, "task": "2134", "note": {"a": 0}}\n'

READ = {
    "plain": ROWS,
    "byte-order mark": "\ufeff" + ROWS,
    "Windows": ROWS.replace("\n", "\r\n"),
    "old Mac": ROWS.replace("\n", "\r"),
    "blank lines": "\n\n" + ROWS + "\n\n",
    "no last line end": ROWS.rstrip(),
    "quoted": '"task","x","y"\n"02134","1","2"\n2134,2,3.5\n',
    "blanks": "task , x, y\n02134 ,  1, 2\n2134 ,  2, 3.5\n",
    "more columns": 'note,task,x,y\n"a, ""b""\nc",02134,1,2\n,2134,2,3.5\n',
    "tabs": ROWS.replace(",", "\t"),
    "tabs and commas": 'task\tx\ty\t"a,b",c,d\n02134\t1\t2\t\n2134\t2\t3.5\t\n',
    "bars": ROWS.replace(",", "|"),
    "semicolons": ROWS.replace(",", ";"),
    "European": "task;x;y;Größe, cm\n02134;1;2;1,5\n2134;2;3,5;\n",
    "semicolons in a name": 'task,x,y,"a;b;c;d;e"\n02134,1,2,1\n2134,2,3.5,1\n',
    "gzip": gzip.compress(ROWS.encode()),
    "gzip in parts": gzip.compress(ROWS[:20].encode()) + gzip.compress(ROWS[20:].encode()),
    "zip": zipped("t.csv", content=ROWS, compression=zipfile.ZIP_DEFLATED),
    "zip of a Mac": zipped("a/", "a/t.csv", "__MACOSX/a/._t.csv", "a/.DS_Store", content=ROWS),
    "JSON lines": OBJECTS,
    "JSON lines of Windows": "\ufeff" + OBJECTS.replace("\n", "\r\n"),
    "JSON lines in gzip": gzip.compress(OBJECTS.encode()),
    "JSON lines in zip": zipped("t.jsonl", content=OBJECTS),
    "Parquet": packed_table(pq.write_table),
    "Feather": packed_table(feather.write_feather),
}


@pytest.mark.parametrize("suffix", ["csv", "dat"])
@pytest.mark.parametrize("kind", READ)
def test_files_are_known_by_what_they_hold(kind, suffix, tmp_path):
    table = read(tmp_path / f"t.{suffix}", READ[kind])
    assert {name: table[name].to_pylist() for name in ("task", "x", "y")} == {
        "task": ["02134", "2134"],
        "x": [1, 2],
        "y": [2.0, 3.5],
    }


def database(folder):
    with sqlite3.connect(folder / "t.db") as base:
        base.execute("create table t (a)")
    base.close()
    return (folder / "t.db").read_bytes()


REFUSED = {
    "xlsx": (zipped("xl/workbook.xml"), r"spreadsheet.*save it as CSV \(File > Save As > CSV UTF-8\)"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "Excel.*save it as CSV"),
    "ods": (zipped("mimetype", "content.xml"), "spreadsheet.*save it as CSV"),
    "zip of several": (zipped("a.csv", "b/c.csv"), r"zip archive of 2 files \(a.csv, b/c.csv\): unpack it, and give"),
    "zip of nothing": (zipped("folder/"), "zip archive of nothing"),
    "empty zip": (zipped(), "zip archive"),
    "zip of no table": (zipped("t.html"), "no column 'task'"),
    "zip in zip": (zipped("t.zip", content=zipped("t.csv")), "zip packed by zip: unpack it with unzip"),
    "Parquet in zip": (zipped("t.parquet", content=READ["Parquet"]), "parquet packed by zip: unpack it"),
    "bzip2 in zip": (zipped("t.csv", compression=zipfile.ZIP_BZIP2), "packed in a way that is not read"),
    "locked zip": (zipped("t.csv").replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0"), "by a password"),
    "cut zip": (READ["zip"][:-30], "damaged zip archive: File is not a zip file"),
    "altered zip": (
        zipped("t.csv", content=ROWS).replace(b"2134,2,3.5", b"2134,2,4.5"),
        "damaged zip archive: Bad CRC",
    ),
    "broken line": (OBJECTS + '{"task": 3,\n', r"line 4 is no JSON \(Expecting property name .*'\{\"task\": 3,'"),
    "two in a line": (OBJECTS + OBJECTS[:46] + "," + OBJECTS[:46], r"line 4 is no JSON \(Extra data"),
    "a list among lines": (OBJECTS + "[1]\n", r"line 4 is '\[1\]': write an object in each line"),
    "mixed kinds": (
        '{"task": "7", "x": 1, "y": 2}\n{"task": 7, "x": 1, "y": 2}\n',
        r"'task' mixes text \('7' in row 1\) and numbers \(7 in row 2\)",
    ),
    "no such key": ('{"task": "7", "x": 1, "why": 2}\n', r"no column 'y' \(did you mean 'why'\?\)"),
    "Latin-1 lines": ('{"task": "ä", "x": 1, "y": 2}\n'.encode("latin-1"), "no UTF-8 text"),
    "half a pair": (b'{"task": "\\ud800", "x": 1, "y": 2}\n', "cannot be read as a table"),
    "too large for an integer": (
        b'{"task": 123456789012345678901234567890, "x": 1, "y": 2}\n',
        "cannot be read as a tab",
    ),
    "DuckDB": (bytes(8) + b"DUCK" + bytes(99), "DuckDB database: ask it for a table: --sql"),
    "records": (json.dumps([{"task": 1, "x": 2}]).encode(), "is JSON: .*read_json"),
    "columns": (json.dumps({"task": {"0": 1}}, indent=1).encode(), "is JSON"),
    "UTF-16": (ROWS.encode("utf-16"), "UTF-16 text.*save it as UTF-8"),
    "UTF-16 without mark": (ROWS.encode("utf-16-le"), "UTF-16 text"),
    "Latin-1": ("task,x,y,Größe\n1,2,3,4\n".encode("latin-1"), "no UTF-8 text"),
    "bzip2": (bz2.compress(ROWS.encode()), "packed by bzip2: unpack it first"),
    "xz": (lzma.compress(ROWS.encode()), "packed by xz"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", "packed by zstd"),
    "pickle": (pickle.dumps([1]), "Python pickle"),
    "empty": (b"", "is empty"),
    "a mark alone": (b"\xef\xbb\xbf\r\n", "is empty"),
    "empty in gzip": (gzip.compress(b""), "is empty"),
    "cut gzip": (gzip.compress(np.random.default_rng(0).bytes(1 << 18))[:-99], "cannot be read|no UTF-8|UTF-16"),
    "cut gzip of rows": (gzip.compress((ROWS + ROWS[9:] * 50_000).encode())[:-99], "Truncated compressed stream"),
    "Parquet in gzip": (gzip.compress(READ["Parquet"]), "parquet packed by gzip: unpack it with gunzip"),
    "cut Parquet": (READ["Parquet"][:-9], "no Parquet table"),
    "cut Feather": (READ["Feather"][:-9], "no Feather table"),
    "no rows": (b"task,x,y\n", "has no rows"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_read_is_named(kind, tmp_path):
    content, message = REFUSED[kind]
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "t.csv", content)
    assert str(caught.value).startswith(str(tmp_path / "t.csv"))
    assert str(caught.value).isprintable()


def test_a_database_is_named(tmp_path):
    with pytest.raises(DataError, match="SQLite database: ask it for a table: --sql"):
        read(tmp_path / "t.csv", database(tmp_path))


def test_a_delimiter_that_is_given_wins(tmp_path):
    text = "a,task;x;y\n1,7;1;2\n"
    assert read(tmp_path / "t.csv", text, Columns(("a,task",), ("x",), ("y",)), delimiter=";").num_rows == 1
    with pytest.raises(DataError, match="no column 'task'"):
        read(tmp_path / "t.csv", READ["tabs"], delimiter=",")
    assert read(tmp_path / "t.csv", READ["tabs"], delimiter="tab").num_rows == 2


def test_a_comma_in_a_number_is_a_decimal_one_in_european_files_only(tmp_path):
    with pytest.raises(DataError, match=r"'y' must hold numbers, but 1 of its 2 values are text \(row 0: '1,234'\)"):
        tasks_of(read(tmp_path / "t.csv", 'task,x,y\na,1,"1,234"\na,2,3\n'))
    for mixed in ("1.234,5", "1,234,567"):  # thousands: not to be guessed
        with pytest.raises(DataError, match="must hold numbers"):
            tasks_of(read(tmp_path / "t.csv", f"task;x;y\na;1;{mixed}\na;2;3\n"))
    table = read(tmp_path / "t.csv", "task;x;y\na;-0,5;1e3\na;2;NA\n")
    assert table["x"].to_pylist() == [-0.5, 2.0]
    columns = COLUMNS._replace(task_x=(Covariate("dose"),))
    assert read(tmp_path / "t.csv", "task;x;y;dose\n1,5;1;2;0,5\n", columns).to_pydict() == {
        "task": ["1,5"],
        "x": [1],
        "y": [2],
        "dose": [0.5],
    }


def test_lines_longer_than_a_block_are_read(tmp_path):
    table = read(tmp_path / "t.csv", f"note,task,x,y\n{'a' * 3_000_000},007,1,2\n")
    assert table.to_pydict() == {"task": ["007"], "x": [1], "y": [2]}


@pytest.mark.parametrize("letters", [4, 24])
def test_a_table_has_room_for_100_000_columns_and_names_the_limit_for_a_million(tmp_path, letters):
    names = [f"{k:0{letters}}" for k in range(100_000)]
    table = read(tmp_path / "t.csv", f"{','.join(names)},task,x,y\n{'1,' * len(names)}007,1,2\n")
    assert table.to_pydict() == {"task": ["007"], "x": [1], "y": [2]}
    with pytest.raises(DataError, match=r"has a header that is too long, of more than 4,194,304 bytes"):
        read(tmp_path / "t.csv", f"{','.join(map(str, range(1_000_000)))},task,x,y\n")


def test_a_packed_table_goes_through_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"0{k};{t};{k + t},5\n" for k in range(6) for t in range(4))
    (tmp_path / "past.csv.gz").write_bytes(gzip.compress(f"who;t;v\n{rows}".encode()))
    names = ["--task", "who", "--x", "t", "--y", "v"]
    found = run("fit", "past.csv.gz", *names, "--mean", "linear", "--kernel", "rbf", "--epochs", 3)
    assert "24 rows, 6 tasks of 4 to 4 points" in found.stderr
    found = run("predict", "past.metaprior", "past.csv.gz", "--at", "5:5:1")
    assert found.stdout.splitlines()[1].startswith("00,5,")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("1.5 true", r"column 'y' mixes numbers \(1.5 in row 1\) and truth values \(True in row 2\)"),
        ("true 1", r"column 'y' mixes truth values \(True in row 1\) and numbers \(1 in row 2\)"),
        ("null false", "column 'y' holds true and false: write the numbers 1 and 0"),
        ("true true", "column 'y' holds true and false"),
    ],
)
def test_true_is_no_number_in_json(values, said, tmp_path, monkeypatch):
    lines = [f'{{"task": "a", "x": {k}, "y": {value}}}' for k, value in enumerate(values.split())]
    for block in (1 << 20, 20):
        monkeypatch.setattr("metaprior.data.lines.BLOCK", block)
        with pytest.raises(DataError, match=said):
            read(tmp_path / "t.jsonl", "\n".join([*lines, ""]))
    swapped = [line.replace('"x"', '"z"').replace('"y"', '"x"').replace('"z"', '"y"') for line in lines]
    with pytest.raises(DataError, match=said.replace("'y'", "'x'")):
        read(tmp_path / "t.jsonl", "\n".join([*swapped, ""]))
    about = COLUMNS._replace(task_x=(Covariate("smokes"),))  # what is no number anyway may be true
    table = read(tmp_path / "t.jsonl", '{"task": "a", "x": 1, "y": 2, "smokes": true}', about)
    assert table["smokes"].to_pylist() == [True]


def test_a_quote_that_is_not_closed_loses_no_rows(tmp_path):
    with pytest.raises(DataError, match=r"column 'task' has a value of several lines, beginning with 'b,2,200'"):
        read(tmp_path / "t.csv", 'task,x,y\na,1,100\n"b,2,200\nc,3,300\n"d,4,400\ne,5,500\n', COLUMNS)


def test_blank_lines_before_the_header_and_tabs_with_decimal_commas(tmp_path):
    found = read(tmp_path / "t.txt", "\n  \ntask\tx\ty\n007\t1\t2,5\n", COLUMNS)
    assert found.to_pydict() == {"task": ["007"], "x": [1], "y": [2.5]}


def test_a_line_that_never_ends_is_not_taken_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.data.text.MAX_LINE", 1 << 21)
    monkeypatch.setattr("metaprior.data.lines.MAX_LINE", 1 << 20)
    monkeypatch.setattr("metaprior.data.blocks.FIRST", 1 << 20)
    with pytest.raises(DataError, match=r"has a header that is too long, of more than 4,194,304 bytes: leave out"):
        read(tmp_path / "t.csv.gz", gzip.compress(b"a" * (5 << 20)))
    endless = gzip.compress(b"task,x,y\na,1,2\n" + b"0" * (5 << 20))
    with pytest.raises(DataError, match=r"has a line of more than 2,097,152 bytes: write one observation in each line"):
        read(tmp_path / "t.csv.gz", endless)
    with pytest.raises(DataError, match=r"has a line of more than 2,097,152 bytes: write one observation in each line"):
        shard(tmp_path / "t.csv.gz", tmp_path / "shards", task="task")
    with pytest.raises(DataError, match=r"has a line of more than 1,048,576 bytes"):
        read(tmp_path / "t.zip", zipped("t.jsonl", content=b'{"a": "' + b"a" * (1 << 22)))
