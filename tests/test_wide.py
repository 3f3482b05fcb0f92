"""Tables as people have them: anything that speaks Arrow, and one row per task with the inputs in the header."""

import datetime
import re
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metaprior import DataError, MetaGP, MetapriorWarning, OptionError, Tasks
from metaprior.cli import main
from metaprior.cli.given import Given, named_columns
from metaprior.data import embedded_table
from metaprior.tasks import Pattern, looks_wide

LONG = {"child": ["b", "b", "a"], "age": [2.0, 4.0, 2.0], "height": [80.0, 99.5, 85.0]}
NAMES = {"task": "child", "x": "age", "y": "height"}
WIDE = {
    "child": ["b", "a", "c"],
    "sex": ["f", "m", "f"],
    "age_2": [80.0, 85.0, 81.0],
    "age_10": [140.0, None, 139.0],
    "age_4.5": [99.5, float("nan"), 98.0],
}


def relation(rows):
    table = pa.table(rows)
    return duckdb.from_arrow(table)


def reader(rows):
    return pa.table(rows).to_reader()


SPEAK = {"DuckDB": relation, "reader": reader, "batch": pa.record_batch}


# ---- what speaks Arrow


@pytest.mark.parametrize("kind", SPEAK)
def test_what_speaks_arrow_is_a_table(kind):
    tasks = Tasks.from_table(SPEAK[kind](LONG), **NAMES)
    assert tasks.ids == ("b", "a")
    assert tasks.y.ravel().tolist() == [80.0, 99.5, 85.0]


@pytest.fixture(scope="module")
def elnino():
    table = embedded_table("elnino")
    names = {"task": "year", "x": "month", "y": "temperature"}
    return MetaGP("linear", "rbf", max_epochs=5, progress=False).fit(duckdb.from_arrow(table), **names)


@pytest.mark.parametrize("kind", SPEAK)
def test_a_relation_is_predicted_as_an_arrow_table_is(kind, elnino):
    known = {"year": [2011, 2011, 2012], "month": [1, 2, 1], "temperature": [24.2, 25.9, 24.0]}
    where = {"year": [2012, 2011], "month": [5, 6]}
    expected = elnino.predict(pa.table(known), [4.0, 5.0])
    assert elnino.predict(SPEAK[kind](known), [4.0, 5.0]).equals(expected)
    assert isinstance(expected, pa.Table)
    at_rows = elnino.predict(pa.table(known), pa.table(where))
    assert elnino.predict(SPEAK[kind](known), SPEAK[kind](where)).equals(at_rows)


def test_a_column_that_speaks_arrow_is_points_and_no_table(elnino):
    known = pa.table({"year": [2011], "month": [1], "temperature": [24.2]})
    expected = elnino.predict(known, [4.0, 5.0])
    for points in (pl.Series([4.0, 5.0]), pd.Series([4.0, 5.0]), pa.chunked_array([[4.0, 5.0]])):
        assert elnino.predict(known, points).equals(expected)


def test_types_of_a_database_are_numbers_and_dates():
    found = duckdb.sql("select 'a' as t, date '2020-01-02' as day, sum(v)::hugeint as s, avg(v)::decimal(4, 2) as m "
                       "from (values (1), (2)) as _(v)")  # fmt: skip
    tasks = Tasks.from_table(found, task="t", x="day", y=["s", "m"])
    assert tasks.dated == ("day",)
    assert tasks.y.tolist() == [[3.0, 1.5]]


def test_what_does_not_hand_over_a_table_is_told():
    with pytest.raises(DataError, match="a lazy one: collect it first"):
        Tasks.from_table(pl.DataFrame(LONG).lazy(), **NAMES)
    used = reader(LONG)
    used.read_all()
    with pytest.raises(DataError, match="no rows"):
        Tasks.from_table(used, **NAMES)
    with pytest.raises(DataError, match="several columns called 'child'"):
        Tasks.from_table(duckdb.sql("select 1 as child, 2 as child, 3 as age").to_arrow_reader(), **NAMES)
    with pytest.raises(DataError, match="gives no Arrow table: Conversion Error"):
        Tasks.from_table(duckdb.sql("select 'x'::int as child from range(3)"), **NAMES)


def test_the_package_does_not_import_duckdb():
    code = "import sys, metaprior.cli; sys.exit('duckdb' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- wide


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, relation])
def test_a_wide_table_is_its_long_one(kind):
    """Columns come in any order; cells without a value are no points."""
    tasks = Tasks.from_table(kind(WIDE), task="child", wide="age_*", task_x="sex")
    assert tasks.ids == ("b", "a", "c")
    assert tasks.columns[:3] == (("child",), ("age",), ("value",))
    assert [task.x.ravel().tolist() for task in tasks] == [[2.0, 10.0, 4.5], [2.0], [2.0, 10.0, 4.5]]
    assert tasks[2].y.ravel().tolist() == [81.0, 139.0, 98.0]
    assert tasks.covariates.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert tasks.notes == ()


def test_names_of_wide_tables():
    numbered = Tasks.from_table(pa.table({"t1": [1.0, 2.0], "t2": [3, 4]}), wide="t*", x="hour", y="dose")
    assert (numbered.ids, numbered.columns) == ((0, 1), (("row",), ("hour",), ("dose",), ()))
    years = pd.DataFrame({0: ["u", "v"], 1990: [1, 2], 1991: [3.0, 4.0]})
    tasks = Tasks.from_table(years, task=0, wide="19*")
    assert tasks.ids == ("u", "v")
    assert tasks[0].x.ravel().tolist() == [1990.0, 1991.0]
    clustered = Tasks.from_table(pa.table(WIDE | {"school": [1, 2, 3]}), task="child", wide="age_*", cluster="school")
    assert clustered.clusters.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("pattern", "columns", "stem", "x"),
    [
        ("week_*", ["week_1", "week_10", "id"], "week", [1, 10]),
        ("t*", ["t0.5", "t2"], "t", [0.5, 2]),
        ("week*", ["week-1", "week-2"], "week", [1, 2]),  # a dash after a letter is no sign
        ("week*", ["week.1", "week.10"], "week", [1, 10]),
        ("day_*", ["day_-3", "day_0"], "day", [-3, 0]),
        ("*", ["-3", "1990"], "x", [-3, 1990]),
        ("bp2_week_*", ["bp2_week_1", "bp2_week_3"], "bp2_week", [1, 3]),
        ("week_1*", ["week_1", "week_12"], "week_1", None),
        ("week_1?", ["week_11", "week_12"], "week_1", [11, 12]),
        ("*_months", ["6_months", "12_months"], "months", [6, 12]),
        ("height[[]*", ["height[1]", "height[2]"], "height", [1, 2]),
        ("[!i]*", ["10", "id3"], "x", [10]),
        ("*", ["2019-01", "2019-02"], "x", [datetime.date(2019, 1, 1), datetime.date(2019, 2, 1)]),
        ("2019-*", ["2019-01", "2019-02"], "x", [datetime.date(2019, 1, 1), datetime.date(2019, 2, 1)]),
        ("19*", ["1990", "1991"], "x", [1990, 1991]),
        ("on *", ["on 28.03.2020"], "on", [datetime.date(2020, 3, 28)]),
    ],
)
def test_the_number_in_a_name(pattern, columns, stem, x):
    found = Pattern.of(pattern)
    assert found.stem == stem
    if x is None:
        with pytest.raises(DataError, match="no number is in 'week_1'"):
            found.places(columns)
    else:
        assert found.places(columns).x.to_pylist() == x


def bad(**columns):
    return pa.table({"child": ["a", "b"], "age_2": [1.0, 2.0]} | columns)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (bad(age_x=[1, 2]), {}, r"no number is in 'age_x'"),
        (bad(age_2_3=[1, 2]), {}, r"several are in 'age_2_3'"),
        (bad(age_02=[1, 2]), {}, r"'age_2' and 'age_02' are both at 2"),
        (bad(), {"wide": "agee_*"}, r"matches wide='agee_\*': the nearest are age_2"),
        (bad(), {"wide": "zz*"}, r"matches wide='zz\*': it has child, age_2"),
        (bad(age_3=["tall", "5"]), {}, r"'age_3' must hold numbers, but 1 of its 2 values are text \(row 0: 'tall'\)"),
        (bad(age_3=[datetime.date(2020, 1, 1)] * 2), {}, r"'age_3' must hold numbers, but it holds date32"),
        (bad(age_3=[1.0, float("inf")]), {}, r"'age_3' is infinite in 1 rows \(the first is row 1\)"),
        (bad(child=["a", "a"]), {}, r"1 of 1 tasks have several rows \(the first is 'a' with 2\)"),
        (bad(child=["a", None]), {}, "task column 'child' is empty in 1 rows"),
        (bad(), {"task": "chld"}, r"no column 'chld' \(did you mean 'child'"),
        (bad(), {"task_x": "sexx"}, "no column 'sexx'"),
        (bad(), {"x": ["a", "b"]}, "one input"),
        (bad(age_2=[None, None]), {}, "no task has a usable row"),
        (bad().slice(0, 0), {}, "no rows"),
    ],
)
def test_bad_wide_tables(table, options, message):
    with pytest.raises(DataError, match=message):
        Tasks.from_table(table, **{"task": "child", "wide": "age_*"} | options)


@pytest.mark.parametrize(
    ("stem", "named", "said"),
    [
        ("pulse", {"task": "id", "y": "pulse"}, "'pulse' would be the name of x and of y; give one of them another"),
        ("value", {"task": "id"}, "'value' would be the name of x and of y; .* x .the input. is 'value' after the pa"),
        ("row", {}, "'row' would be the name of task and of x"),
        ("id", {"task": "id"}, "'id' would be the name of task and of x"),
        ("pulse", {"task": "id", "task_x": "id"}, "'id' would be the name of task and of task_x"),
    ],
)
def test_two_roles_of_one_name_are_told_with_where_the_name_comes_from(
    stem, named, said, tmp_path, capsys, monkeypatch
):
    table = pd.DataFrame({"id": ["a", "b"], f"{stem}_1": [1.0, 2.0], f"{stem}_2": [1.5, 2.5]})
    with pytest.raises(DataError, match=f"wide='{stem}_\\*': {said}"):
        Tasks.from_table(table, wide=f"{stem}_*", **named)
    table.to_csv(tmp_path / "t.csv", index=False)
    words = [word for role, name in named.items() for word in (f"--{role.replace('_', '-')}", name)]
    monkeypatch.setattr(sys, "argv", ["metaprior", "fit", str(tmp_path / "t.csv"), "--wide", f"{stem}_*", *words])
    with pytest.raises(SystemExit):
        main()
    assert re.search(f"--wide '{stem}_\\*': {said}", capsys.readouterr().err)
    if "task_x" not in named:
        assert len(Tasks.from_table(table, wide=f"{stem}_*", **named, x="number")) == 2
        given = Given.of(str(tmp_path / "t.csv"), None, None, f"{stem}_*")
        columns = named_columns(given, named.get("task"), "number", named.get("y"))
        assert (columns.x, columns.y) == (("number",), (named.get("y", "value"),))


def test_a_pattern_without_a_place_for_the_number_is_told():
    with pytest.raises(OptionError, match=r"'age_2' names one column: put \* .* such as 'age_\*'"):
        Tasks.from_table(bad(), task="child", wide="age_2")
    with pytest.raises(OptionError, match="bad character range"):
        Tasks.from_table(bad(), task="child", wide="[z-a]*")


def test_a_table_that_looks_wide_is_told_what_to_do():
    table = pd.DataFrame({"child": ["a"], **{f"age_{k}": [1.0] for k in range(5)}})
    advice = r"It looks wide \(age_0 … age_4\): if each row is a task of its own, give wide='age_\*'"
    with pytest.raises(DataError, match=advice):
        Tasks.from_table(table, **NAMES)
    with pytest.raises(DataError, match=advice):
        MetaGP("zero", "rbf").fit(table, task="child")
    assert looks_wide(["1990", "1991", "1992", "1993"]).endswith("give wide='[0-9]*'.")
    assert looks_wide(["a", "b1", "b2", "b3", "c1"]) == ""


def test_a_wide_table_is_learned_from_and_predicted():
    rng = np.random.default_rng(0)
    ages, start = np.arange(2, 12), rng.normal(80, 3, 30)
    heights = start[:, None] + 6 * ages + rng.normal(0, 1, (30, 10))
    past = pd.DataFrame(heights, columns=[f"age_{k}" for k in ages]).assign(child=[f"c{k}" for k in range(30)])
    long = past.melt("child", var_name="age", value_name="value").assign(age=np.repeat(ages.astype(float), 30))
    gp = MetaGP("linear", "rbf", max_epochs=20, progress=False)
    gp.fit(past, task="child", wide="age_*")
    new = pd.DataFrame({"child": ["u", "v", "w"], "age_2": [95.0, 88, None], "age_3": [101.0, None, None]})
    with pytest.warns(MetapriorWarning, match="1 of 3 tasks have no known rows: they get the prior"):
        found = gp.predict(new, [11.0], wide="age_*")
    assert found["child"].tolist() == ["u", "v", "w"]
    known = pd.DataFrame({"child": ["u", "u", "v"], "age": [2.0, 3, 2], "value": [95.0, 101, 88]})
    assert gp.predict(known, [11.0])["mean"].tolist() == pytest.approx(found["mean"].tolist()[:2])
    with pytest.warns(MetapriorWarning):
        filled = gp.predict(new, "missing", wide="age_*")
    assert filled[["child", "age"]].to_numpy().tolist() == [["v", 3.0], ["w", 2.0], ["w", 3.0]]
    again = MetaGP("linear", "rbf", max_epochs=20, progress=False).fit(long, task="child", x="age", y="value")
    assert again.predict(known, [11.0])["mean"].tolist() == pytest.approx(found["mean"].tolist()[:2], rel=1e-3)
    with pytest.raises(OptionError, match="wide belong to tables"):
        gp.predict(Tasks.from_table(known, task="child", x="age", y="value"), [11.0], wide="age_*")
