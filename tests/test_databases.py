"""Queries of databases, and wide tables, as a user of the command line has them."""

import os
import runpy
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metaprior
from metaprior.data import Query, databases, embedded_table, read_table
from metaprior.tasks import Columns
from tests.test_tool import refused, run

COLUMNS = Columns(("year",), ("month",), ("temperature",))
ASK = "select year, month, temperature from sst"
FIT = ["--mean", "linear", "--kernel", "rbf", "--epochs", 3, "--out", "m"]
NAMES = ["--task", "year", "--x", "month", "--y", "temperature"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The same table in both databases; and wide, with gaps, as text."""
    folder, table = tmp_path_factory.mktemp("databases"), embedded_table("elnino")
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    with sqlite3.connect(folder / "base.sqlite") as base:
        base.execute("create table sst (year integer, month integer, temperature real, note)")
        base.executemany("insert into sst values (?, ?, ?, null)", rows)
        base.execute("create table text (year text, month text, temperature text)")
        base.executemany("insert into text values (?, ?, ?)", [(f"0{y}", str(m), f"{t}") for y, m, t in rows])
        base.execute("insert into text values ('007', '1', '')")
        base.execute("create table mixed (year, month, temperature)")
        base.executemany("insert into mixed values (?, ?, ?)", [(7, 1, 2.5), ("a", 2, ""), (7, 3, 4), (8, 1, b"x")])
    base.close()
    with duckdb.connect(folder / "base.duckdb") as base:
        base.register("given", table)
        base.execute("create table sst as select * from given")
    pq.write_table(table, folder / "sst.parquet")
    cells = {year: {} for year, _, _ in rows}
    for year, month, value in rows:
        cells[year][month] = value
    lines = [",".join([str(year), "x", *(f"{of[m]}" for m in range(1, 13))]) for year, of in cells.items()]
    lines[3] = lines[3].rsplit(",", 2)[0] + ",,NA"
    header = ",".join(["year", "note", *(f"month_{m}" for m in range(1, 13))])
    (folder / "wide.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def content(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


# ---- queries


@pytest.mark.parametrize("name", ["base.sqlite", "base.duckdb", None])
def test_a_query_gives_the_table(home, name, monkeypatch):
    monkeypatch.chdir(home)
    before = content(home)
    sql = ASK if name else "select month, year, temperature from 'sst.parquet'"
    found = read_table(Query(sql, name), COLUMNS)
    assert found.select(["year", "month", "temperature"]).equals(embedded_table("elnino"))
    assert content(home) == before


def test_only_named_columns_come_and_those_of_a_pattern(home):
    every = Query("select * from sst", str(home / "base.sqlite"))
    assert read_table(every, COLUMNS).column_names == ["year", "month", "temperature"]
    wide = Query("select 7 as id, 1.5 as week_1, 2.5 as week_2, 'x' as other")
    assert read_table(wide, Columns(("id",), (), ()), wide="week_*").column_names == ["id", "week_1", "week_2"]


def test_sqlite_is_read_as_text_is_where_it_holds_that(home):
    """What came from a text file has no types; what names a task is as it is written."""
    found = read_table(Query("select * from text", str(home / "base.sqlite")), COLUMNS)
    assert found.schema.types == [pa.string(), pa.float64(), pa.float64()]
    assert found["year"][0].as_py() == "01950"
    assert found.slice(732).to_pylist() == [{"year": "007", "month": 1.0, "temperature": None}]
    mixed = read_table(Query("select * from mixed limit 3", str(home / "base.sqlite")), COLUMNS)
    assert mixed.to_pydict() == {"year": ["7", "a", "7"], "month": [1, 2, 3], "temperature": [2.5, None, 4.0]}


def test_parts_of_a_column_may_differ_in_type(home, monkeypatch):
    monkeypatch.setattr(databases, "ROWS", 1)
    mixed = read_table(Query("select * from mixed limit 3", str(home / "base.sqlite")), COLUMNS)
    assert mixed.to_pydict() == {"year": ["7", "a", "7"], "month": [1, 2, 3], "temperature": [2.5, None, 4.0]}


def test_a_database_with_a_log_beside_it_is_left_as_it_is(tmp_path):
    base = sqlite3.connect(tmp_path / "log.db")
    base.execute("pragma journal_mode = wal")
    base.execute("create table sst as select 1 as year, 2 as month, 3.0 as temperature")
    base.commit()
    query = Query(ASK, str(tmp_path / "log.db"))
    assert read_table(query, COLUMNS).num_rows == 1  # what is only in the log
    base.close()
    assert os.listdir(tmp_path) == ["log.db"]
    assert read_table(query, COLUMNS).num_rows == 1
    assert os.listdir(tmp_path) == ["log.db"]


def test_a_query_goes_through_the_commands(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = ["--sql", ASK, "--db", home / "base.sqlite"]
    found = run("fit", *of, *NAMES, *FIT)
    assert f"the query of {home / 'base.sqlite'}: 732 rows, 61 tasks of 12 to 12 points" in found.stderr
    plain = run("predict", "m", "elnino", "--at", "4:5:1").stdout
    assert run("predict", "m", *of, "--at", "4:5:1").stdout == plain
    assert run("predict", "m", "--sql", ASK, "--db", home / "base.duckdb", "--at", "4:5:1").stdout == plain
    assert "the model was trained on" in run("evaluate", "m", *of, "--context", "1").stderr
    run("fit", *of, *NAMES, *FIT[:-2])
    assert os.path.exists("base.metaprior")
    some = "select * from sst where year < 1960"
    run(
        "compare",
        "--sql",
        some,
        *of[2:],
        *NAMES,
        "--methods",
        "last value,context mean",
        "--context",
        "3",
        "--folds",
        2,
    )


ASKED, SQLITE, DUCKDB = ["fit", "--sql"], ["--db", "HOME/base.sqlite", *NAMES], ["--db", "HOME/base.duckdb", *NAMES]
BAD = {
    "both": (["fit", "elnino", "--sql", ASK, *NAMES], "give TABLE (elnino) or --sql, not both"),
    "neither": (["fit", *NAMES], "give a TABLE"),
    "neither, predict": (["predict", "none", "--at", "1"], "give a TABLE"),
    "a database alone": (["fit", *SQLITE], "say what to ask it for"),
    "the database as TABLE": (["fit", "HOME/base.sqlite", *NAMES], "SQLite database: ask it for a table: --sql"),
    "no such database": ([*ASKED, ASK, "--db", "none.db", *NAMES], "there is no database none.db"),
    "a folder": ([*ASKED, ASK, "--db", ".", *NAMES], "is a folder"),
    "no database": ([*ASKED, ASK, "--db", "HOME/wide.csv", *NAMES], "no database of SQLite or DuckDB"),
    "broken SQLite": ([*ASKED, ASK, "--db", "broken.db", *NAMES], "file is not a database"),
    "broken DuckDB": ([*ASKED, ASK, "--db", "broken.duckdb", *NAMES], "broken.duckdb: IO Error: Corrupt database"),
    "misspelled": ([*ASKED, "selec 1", *SQLITE], 'near "selec": syntax error'),
    "misspelled, DuckDB": ([*ASKED, "selec 1", *NAMES], 'syntax error at or near "selec"'),
    "no such table": ([*ASKED, "select * from x", *SQLITE], "no such table: x"),
    "no such table, DuckDB": ([*ASKED, "select * from x", *NAMES], "Table with name x does not exist"),
    "a variable of ours": ([*ASKED, "select * from query", *NAMES], "Table with name query does not exist"),
    "no rows": ([*ASKED, f"{ASK} where year = 0", *SQLITE], "has no rows"),
    "no rows, DuckDB": ([*ASKED, f"{ASK} where year = 0", *DUCKDB], "has no rows"),
    "no column": ([*ASKED, "select year from sst", *DUCKDB], "no column 'month'"),
    "twice": ([*ASKED, "select 1 as year, 2 as year, 3 as month", *NAMES], "several columns called 'year'"),
    "bytes": ([*ASKED, "select * from mixed", *SQLITE], "'temperature' of the query"),
    "no select": ([*ASKED, "drop table sst", *SQLITE], "only a select is asked"),
    "writes": ([*ASKED, "vacuum into 'new.db'", *SQLITE], "only a select is asked"),
    "attaches": ([*ASKED, "attach 'new.db' as n", *SQLITE], "only a select is asked"),
    "two": ([*ASKED, "select 1; select 2", *SQLITE], "one statement at a time"),
    "a comment": ([*ASKED, "-- nothing", *SQLITE], "is no select: '-- nothing'"),
    "no select, DuckDB": ([*ASKED, "drop table sst", *DUCKDB], "is no select"),
    "writes, DuckDB": ([*ASKED, "copy (select 1) to 'new.csv'", *NAMES], "the query is no select"),
    "two, DuckDB": ([*ASKED, "select 1; copy (select 1) to 'new.csv'", *NAMES], "more than one select"),
    "empty": ([*ASKED, " ", *NAMES], "the query is empty"),
    "wide and embedded": (["fit", "elnino", "--wide", "m*"], "elnino has one row per observation"),
    "wide and shards": (["fit", ".", "--wide", "m*"], ". has one row per observation"),
    "no such columns": (["fit", "HOME/wide.csv", "--wide", "mnth_*"], "matches --wide 'mnth_*': the nearest are month"),
    "no pattern": (["fit", "HOME/wide.csv", "--wide", "month_1"], "--wide 'month_1' names one column"),
    "no number": (["fit", "HOME/wide.csv", "--wide", "*o*", "--task", "year"], "no number is in 'note'"),
    "looks wide": (["fit", "HOME/wide.csv", "--task", "year"], "It looks wide (month_1 … month_12): if each row is a "),
    "looks wide, named": (["fit", "HOME/wide.csv", *NAMES], "task of its own, give --wide 'month_*'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_queries_are_told_and_nothing_is_made(name, home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    (tmp_path / "broken.duckdb").write_bytes(bytes(8) + b"DUCK" + bytes(9000))
    before, there = content(home), content(tmp_path)
    words, message = BAD[name]
    said = refused(*(str(word).replace("HOME", str(home)) for word in words), capsys=capsys, monkeypatch=monkeypatch)
    assert message in said
    assert "Traceback" not in said
    assert (content(home), content(tmp_path)) == (before, there)


def test_a_database_that_another_program_keeps_to_itself_is_told(home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(databases, "BUSY", 0.05)
    (tmp_path / "base.sqlite").write_bytes((home / "base.sqlite").read_bytes())
    writer = sqlite3.connect("base.sqlite", isolation_level=None)
    writer.execute("begin exclusive")
    said = refused("fit", "--sql", ASK, "--db", "base.sqlite", *NAMES, capsys=capsys, monkeypatch=monkeypatch)
    writer.close()
    assert "database is locked. Another program has it open: wait until it is done, or close it." in said


def test_without_duckdb_sqlite_is_still_asked(home):
    code = "import sys; sys.modules['duckdb'] = None\nimport importlib.util as u; found = u.find_spec\n"
    code += "u.find_spec = lambda name, *a: None if name == 'duckdb' else found(name, *a)\n"
    code += "from metaprior.data import Query, read_table\nfrom metaprior.tasks import Columns\n"
    code += "columns = Columns(('year',), ('month',), ('temperature',))\n"
    code += f"print(read_table(Query({ASK!r}, {str(home / 'base.sqlite')!r}), columns).num_rows)\n"
    code += f"read_table(Query({ASK!r}), columns)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "732\n"
    assert "needs duckdb: pip install 'metaprior[sql]'" in done.stderr


# ---- wide tables


def test_a_wide_table_goes_through_the_commands(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wide = [home / "wide.csv", "--wide", "month_*"]
    found = run("fit", *wide, "--task", "year", "--y", "temperature", *FIT)
    assert "61 rows, 61 tasks of 10 to 12 points" in found.stderr
    assert "month → temperature" in found.stderr
    assert metaprior.load("m").trained_on_.columns == (("year",), ("month",), ("temperature",), ())
    table = embedded_table("elnino").to_pylist()
    gap = [(1953, 11), (1953, 12)]
    rows = [f"{one['year']},{one['month']},{one['temperature']}" for one in table]
    rows = [row for row, one in zip(rows, table, strict=True) if (one["year"], one["month"]) not in gap]
    (tmp_path / "long.csv").write_text("\n".join(["year,month,temperature", *rows]) + "\n")
    assert run("predict", "m", *wide, "--at", "4.5").stdout == run("predict", "m", "long.csv", "--at", "4.5").stdout
    filled = run("predict", "m", *wide, "--at", "missing").stdout.splitlines()
    assert [line.split(",")[:2] for line in filled[1:]] == [["1953", "11"], ["1953", "12"]]
    assert "from 3 points" in run("evaluate", "m", *wide, "--context", "3").stdout
    run("compare", *wide, "--methods", "last value,context mean", "--context", "3", "--folds", 2)
    run("predict", "m", *wide, "--at", "4:6:1", "--plot", "pictures", "--out", "p.csv")
    assert len(os.listdir("pictures")) == 61


def test_tasks_of_a_wide_table_need_no_name(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("fit", home / "wide.csv", "--wide", "month_*", *FIT)
    assert metaprior.load("m").trained_on_.columns == (("row",), ("month",), ("value",), ())
    (tmp_path / "new.csv").write_text("month_1;month_2\n24,2;25,9\n;\n")
    found = run("predict", "m", "new.csv", "--wide", "month_*", "--at", "4")
    assert [line.split(",")[:2] for line in found.stdout.splitlines()[1:]] == [["0", "4"], ["1", "4"]]
    assert "1 of 2 tasks have no known rows: they get the prior" in found.stderr
    assert "dropped" not in found.stderr


def test_json_lines_may_name_a_column_late(tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.data.lines.BLOCK", 5)
    (tmp_path / "t.jsonl").write_text('{"id": 7, "w1": 1}\n{"id": 8, "w1": 2, "w2": 2.5}\n{"id": 9, "w3": null}\n')
    wide = read_table(str(tmp_path / "t.jsonl"), Columns(("id",), (), ()), wide="w*")
    assert wide.to_pydict() == {"id": [7, 8, 9], "w1": [1, 2, None], "w2": [None, 2.5, None], "w3": [None] * 3}
    late = read_table(str(tmp_path / "t.jsonl"), Columns(("id",), ("w1",), ("w2",)))
    assert late["w2"].to_pylist() == [None, 2.5, None]


# ---- examples

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_example_of_a_wide_table_fills_gaps_better_than_the_months_mean(capsys):
    found = runpy.run_path(str(EXAMPLES / "wide_table.py"))["main"]()
    assert found["gaps"] > 15
    assert found["error"] < 0.8 * found["naive"]
    assert found["inside"] > 0.7
    assert "within the 90% intervals" in capsys.readouterr().out


def test_the_example_of_a_query_joins_predictions_with_the_truth(capsys):
    found = runpy.run_path(str(EXAMPLES / "sql.py"))["main"]()
    assert [row[:2] for row in found] == [(year, month) for year in (2009, 2010) for month in (6, 9, 12)]
    assert sum(lower <= truth <= upper for *_, lower, upper, truth in found) >= 4
    assert capsys.readouterr().out.count("2010") == 6
