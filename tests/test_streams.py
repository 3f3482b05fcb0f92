"""A table that comes batch by batch is predicted as it is as a whole."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metaprior import DataError, MetaGP, MetapriorWarning, NotFittedError, OptionError
from metaprior.frames.streams import _Seen

QUICK = {"hidden": (8,), "max_epochs": 15, "progress": False}
COLUMNS = {"task": "id", "x": "x", "y": "y"}


def table_of(tasks=12, points=6, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, (tasks, points)), 1)
    y = rng.normal(size=(tasks, 1)) + np.sin(x) + 0.1 * rng.normal(size=x.shape)
    ids = [f"t{k:02d}" for k in range(tasks) for _ in range(points)]
    return pa.table({"id": ids, "x": x.ravel(), "y": y.ravel()})


@pytest.fixture(scope="module")
def table():
    return table_of()


@pytest.fixture(scope="module")
def gp(table):
    return MetaGP("deep", "rbf", **QUICK).fit(table, **COLUMNS)


@pytest.fixture(scope="module")
def chosen(table):
    return MetaGP(rungs=("gp per task", "shared gp"), progress=False).fit(table, **COLUMNS)


def in_batches(table, points=6, tasks=(1, 4, 3)):
    """Batches of one task, of four, three, one, … and now and then one without rows."""
    row, turn = 0, 0
    while row < table.num_rows:
        count = points * tasks[turn % len(tasks)]
        yield pa.RecordBatch.from_struct_array(table.slice(row, count).to_struct_array().combine_chunks())
        row, turn = row + count, turn + 1
        if turn % 2:
            yield pa.RecordBatch.from_struct_array(table.slice(0, 0).to_struct_array().combine_chunks())


def check_same(gp, table, at, *, points=6, **wanted):
    """What comes out batch by batch is what comes out of the whole; gives it back."""
    whole = gp.predict(table, at, **wanted)
    batches = list(gp.predict_batches(in_batches(table, points), at, **wanted))
    assert {batch.schema for batch in batches} == {whole.schema}
    keys = [(name, "ascending") for name in whole.column_names[:2]]
    found = pa.Table.from_batches(batches)
    check_equal(found.sort_by(keys), whole.sort_by(keys))
    return found


def check_equal(found, whole):
    """Names and inputs are the very same; the last bits of a number depend on what was computed beside it."""
    names = whole.column_names
    numbers = names[next(k for k, name in enumerate(names) if name.endswith("mean")) :]
    assert found.schema.equals(whole.schema)
    assert found.drop_columns(numbers).equals(whole.drop_columns(numbers))
    for name in numbers:
        assert found[name].to_numpy() == pytest.approx(whole[name].to_numpy(), rel=1e-10, abs=1e-10)


def with_gaps(table, every=5):
    y = table["y"].to_numpy().copy()
    y[3::every] = np.nan
    return table.set_column(2, "y", pa.array(y, from_pandas=True))


@pytest.mark.filterwarnings("ignore::metaprior.MetapriorWarning")
@pytest.mark.parametrize("model", ["gp", "chosen"])
@pytest.mark.parametrize("wanted", [{}, {"level": 0.5, "quantiles": (0.1, 0.5), "latent": True}])
def test_batches_are_predicted_as_the_whole(model, wanted, table, request):
    gp = request.getfixturevalue(model)
    assert check_same(gp, table, [2.5, 11.0], **wanted).num_rows == 24
    gaps = with_gaps(table)
    assert check_same(gp, gaps, "missing", **wanted).num_rows == gaps["y"].null_count
    ids = ["t03", "t11", "t03", "t00", "t07"]
    assert check_same(gp, table, pd.DataFrame({"id": ids, "x": [1.0, 2, 3, 4, 5]}), **wanted).num_rows == 5
    assert check_same(gp, gaps, [1.0], missing="drop", **wanted).num_rows == 12
    names = check_same(gp, table, [1.0]).column_names
    assert ("plausibility" in names) == (model == "chosen")


IDS = {
    "int32": (pa.int32(), lambda k: k),
    "uint64": (pa.uint64(), lambda k: 2**63 + k if k % 2 else k + 1),
    "float32": (pa.float32(), lambda k: k / 2),
    "bool": (pa.bool_(), lambda k: k >= 6),
    "large_string": (pa.large_string(), str),
    "categories": (pa.dictionary(pa.int8(), pa.string()), str),
    "date": (pa.date32(), lambda k: dt.date(2020, 1, 1 + k)),
    "timestamp": (pa.timestamp("s"), lambda k: dt.datetime(2020, 1, 1 + k)),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), lambda k: dt.datetime(2020, 1, 1 + k, tzinfo=dt.UTC)),
    "time": (pa.time32("s"), lambda k: dt.time(k)),
    "binary": (pa.binary(), lambda k: bytes([k])),
    "decimal": (pa.decimal128(4, 2), lambda k: Decimal(f"{k + 10}.25")),
}


@pytest.mark.parametrize("kind", IDS)
def test_names_of_tasks_of_any_type(kind, table):
    dtype, name = IDS[kind]
    given = table.set_column(0, "id", pa.array([name(k // 6) for k in range(72)], dtype))
    gp = MetaGP("zero", "rbf", max_epochs=2, progress=False).fit(given, **COLUMNS)
    tasks = (6,) if kind == "bool" else (1, 4, 3)
    whole, batches = gp.predict(given, [1.0]), list(in_batches(given, tasks=tasks))
    found = pa.Table.from_batches(gp.predict_batches(batches[::-1], [1.0])).sort_by("id")  # the first is without rows
    check_equal(found, whole.sort_by("id"))


def test_several_columns_name_a_task_and_there_are_several_targets(table):
    ids = np.arange(72) // 6
    given = table.append_column("site", pa.array(["a" if k % 2 else "b" for k in ids]))
    given = given.set_column(0, "id", pa.array(ids // 2)).append_column("z", pa.array(-2 * table["y"].to_numpy()))
    gp = MetaGP("zero", "rbf", max_epochs=5, progress=False).fit(given, task=["site", "id"], x="x", y=["y", "z"])
    found = check_same(gp, given, [1.0, 2.0])
    assert found.column_names[:5] == ["site", "id", "x", "y_mean", "y_sd"]


START = np.datetime64("2020-03-01")
DAYS, SECONDS = np.arange(72) % 6, (np.arange(72) % 6) * 86_400 + 3_600
INPUTS = {
    "int": (pa.array(DAYS), [2.0, 3.5]),
    "date": (pa.array(START + DAYS.astype("timedelta64[D]")), [18_322.0, 18_323.0]),
    "parts of days": (pa.array(START + DAYS.astype("timedelta64[D]")), [18_322.0, 18_323.5]),
    "second": (pa.array(START + SECONDS.astype("timedelta64[s]")), [18_322.0, 18_323.5]),
    "parts of seconds": (pa.array(START + SECONDS.astype("timedelta64[s]")), [18_322.0, 18_322 + 1 / 7]),
    "zoned": (pa.array(START + SECONDS.astype("timedelta64[s]")).cast(pa.timestamp("ns", "Asia/Tokyo")), [18_322.0]),
    "time": (pa.array([dt.time(3 * k) for k in DAYS.tolist()], pa.time32("s")), [0.25, 0.75]),
    "after a day": (pa.array([dt.time(3 * k) for k in DAYS.tolist()], pa.time32("s")), [0.25, 1.75]),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_of_any_type(kind, table):
    inputs, at = INPUTS[kind]
    given = table.set_column(1, "x", inputs)
    gp = MetaGP("zero", "rbf", max_epochs=5, progress=False).fit(given, **COLUMNS)
    check_same(gp, given, at)
    check_same(gp, with_gaps(given), "missing")
    points = given.select(["id", "x"]).filter(pa.array(np.arange(72) % 7 == 0))
    check_same(gp, given, points)
    if kind == "date":
        noon = pc.add(points["x"].cast(pa.timestamp("s")), pa.scalar(dt.timedelta(hours=12)))
        found = check_same(gp, given, points.set_column(1, "x", noon))
        assert found.schema.field("x").type == pa.timestamp("us")
        mixed = pa.array([*points["x"].cast(noon.type).to_pylist()[:4], *noon.to_pylist()[4:]], noon.type)
        assert check_same(gp, given, points.set_column(1, "x", mixed)).schema.field("x").type == pa.timestamp("us")


def test_dates_written_as_text_come_out_as_moments(table):
    """Whether all of them are whole days is known of the whole alone."""
    texts = [f"2020-03-{1 + k}" + (" 12:00" if row > 36 else "") for row, k in enumerate(DAYS.tolist())]
    days = table.set_column(1, "x", pa.array([text[:9] for text in texts]))
    gp = MetaGP("zero", "rbf", max_epochs=5, progress=False).fit(days, **COLUMNS)
    days = with_gaps(days)
    found = pa.Table.from_batches(gp.predict_batches(in_batches(days), "missing"))
    assert found.schema.field("x").type == pa.timestamp("us")
    assert found["x"].cast(pa.date32()).equals(gp.predict(days, "missing")["x"])


def test_a_task_takes_what_is_known_of_it_from_either_table(table):
    age = pa.array([float(k // 6) for k in range(72)])
    gp = MetaGP("deep", "rbf", **QUICK).fit(table.append_column("age", age), **COLUMNS, task_x="age")
    points = pa.table({"id": ["t01", "t07"], "x": [1.0, 2.0], "age": [1.0, 7.0]})
    check_same(gp, table, points)
    check_same(gp, table.append_column("age", age), [1.0])


def test_ids_of_another_type_in_the_points_are_found(table):
    numbers = table.set_column(0, "id", pa.array(np.arange(72) // 6))
    gp = MetaGP("zero", "rbf", max_epochs=2, progress=False).fit(numbers, **COLUMNS)
    check_same(gp, numbers, pa.table({"id": ["3", "11"], "x": [1.0, 2.0]}))


def test_rows_come_out_in_the_order_in_which_they_are_asked(gp, table):
    points = table.select(["id", "x"]).take(pa.array(np.random.default_rng(0).permutation(72)))
    whole = gp.predict(table, points)
    (batch,) = gp.predict_batches([table], points)
    check_equal(pa.Table.from_batches([batch]), whole)
    alone = {name: gp.predict(table.filter(pc.equal(table["id"], name)), [1.0]) for name in ("t00", "t11")}
    backwards = gp.predict(table, pa.table({"id": [f"t{k:02d}" for k in range(12)][::-1], "x": [1.0] * 12}))
    for name, found in alone.items():
        check_equal(backwards.filter(pc.equal(backwards["id"], name)), found)


def test_only_rows_of_the_tasks_of_a_batch_are_predicted(gp, table):
    points = pa.table({"id": ["t00", "new", "t11"], "x": [1.0, 2.0, 3.0]})
    found = pa.Table.from_batches(gp.predict_batches(in_batches(table), points))
    assert sorted(found["id"].to_pylist()) == ["t00", "t11"]
    nowhere = pa.table({"id": ["new"], "x": [2.0]})
    assert [batch.num_rows for batch in gp.predict_batches(in_batches(table), nowhere)] == [0] * 8


def test_where_no_row_is_asked_nothing_comes_out(gp, table):
    whole = gp.predict(with_gaps(table), "missing")
    batches = list(gp.predict_batches(in_batches(table), "missing"))
    assert [batch.num_rows for batch in batches] == [0] * len(batches)
    assert {batch.schema for batch in batches} == {whole.schema}
    assert list(gp.predict_batches([], [1.0])) == []


def test_batches_are_taken_one_at_a_time(gp, table):
    taken = []

    def watched():
        for batch in in_batches(table):
            taken.append(batch.num_rows)
            yield batch

    found = gp.predict_batches(watched(), [1.0])
    assert taken == []
    next(found)
    assert taken == [6]
    next(found)
    assert taken == [6, 0]


@pytest.mark.filterwarnings("ignore::metaprior.MetapriorWarning")
def test_a_batch_of_which_nothing_can_be_used_gets_the_prior(gp, table):
    """As such a task of a whole table does."""
    y = table["y"].to_numpy().copy()
    y[:6] = np.inf
    odd = table.set_column(2, "y", pa.array(y))
    assert check_same(gp, odd, [1.0], missing="drop").num_rows == 12


def test_what_should_be_known_is_added_up_and_said_once(chosen):
    gaps = with_gaps(table_of(seed=1), every=2)
    y = gaps["y"].to_numpy(zero_copy_only=False).copy()
    y[:6] = np.nan  # a task of which nothing is known
    wild = np.flatnonzero(np.arange(72) // 6 % 4 == 1)
    y[wild] += 1000.0 * (wild % 3)  # tasks unlike the past ones, in several batches
    x = gaps["x"].to_numpy().copy()
    x[[8, 50]] = np.nan
    gaps = gaps.set_column(2, "y", pa.array(y, from_pandas=True)).set_column(1, "x", pa.array(x, from_pandas=True))
    with pytest.warns(MetapriorWarning) as warned:
        found = pa.Table.from_batches(chosen.predict_batches(in_batches(gaps), [1.0], missing="drop"))
    assert {one.filename for one in warned} == {__file__}
    said = sorted(str(one.message) for one in warned)
    usual = found["plausibility"].to_numpy()
    strange = sum(usual < 0.02)
    complete = np.isfinite(x) & np.isfinite(y)
    assert strange >= 3
    assert len(said) == 3
    assert said[0] == "1 of 12 tasks have no known rows: they get the prior."
    names = found["id"].to_numpy()[usual < 0.02][:3]
    assert said[1].startswith(f"{strange} of 12 tasks are unlike those the prior was learned from ({', '.join(names)}")
    assert said[2] == f"dropped {72 - complete.sum()} of 72 rows with NaN or infinity."


def test_rows_that_cannot_be_asked_are_added_up(gp, table):
    x = table["x"].to_numpy().copy()
    x[[3, 8, 9, 10, 50]] = np.nan
    points = pa.table({"id": table["id"], "x": pa.array(x, from_pandas=True)})
    with pytest.warns(MetapriorWarning, match="dropped 5 of 72 rows to predict, which have no 'x'"):
        found = pa.Table.from_batches(gp.predict_batches(in_batches(table), points, missing="drop"))
    assert found.num_rows == 67
    none = points.filter(pa.array(np.isnan(x)))
    more = pa.concat_tables([none, points.slice(20, 1)])
    with pytest.warns(MetapriorWarning, match="dropped 5 of 6 rows"):  # in some batches none is left
        found = pa.Table.from_batches(gp.predict_batches(in_batches(table), more, missing="drop"))
    assert found.num_rows == 1
    with pytest.raises(DataError, match="batch 1: 1 rows to predict have no 'x'"):
        list(gp.predict_batches(in_batches(table), points))


def test_draws_of_batches_have_nothing_in_common(gp, table):
    alike = pa.concat_tables([table.slice(0, 6).set_column(0, "id", pa.array([name] * 6)) for name in "abcd"])
    wanted = {"samples": 3, "seed": 4}
    found = pa.Table.from_batches(gp.predict_batches(in_batches(alike, tasks=(1,)), [1.0], **wanted))
    assert len(set(found["mean"].to_pylist())) == 1
    assert len(set(found["sample_2"].to_pylist())) == 4
    again = pa.Table.from_batches(gp.predict_batches(reversed([*in_batches(alike, tasks=(1,))]), [1.0], **wanted))
    assert again.sort_by("id").equals(found)  # whatever the order
    assert found.schema.equals(gp.predict(alike, [1.0], **wanted).schema)


def test_a_task_that_was_cut_is_an_error(gp, table):
    found = gp.predict_batches(in_batches(table, points=4), [1.0])
    with pytest.raises(DataError, match=r"batch 3: task 't00' was in an earlier batch as well: a batch holds whole"):
        list(found)
    late = [table.slice(0, 24), table.slice(24, 24), table.slice(48), table.slice(18, 6)]
    with pytest.raises(DataError, match="batch 4: task 't03' was in an earlier"):
        list(gp.predict_batches(late, [1.0]))


def test_a_task_that_has_come_is_kept_in_eight_bytes():
    seen = _Seen()
    for k in range(300):
        seen.add(range(7 * k, 7 * k + 7))
    assert sum(run.nbytes for run in seen.runs) == 8 * 2100
    assert len(seen.runs) < 12
    for ids in ([2100, 0], [777], [2099]):
        with pytest.raises(DataError, match=f"task {ids[-1]} was in an earlier"):
            seen.add(ids)
    seen.add([-1, -2, (1, 2), "1", (1,)])


def test_what_is_refused(gp, table):
    with pytest.raises(OptionError, match="level 2"):
        gp.predict_batches([], [1.0], level=2)
    with pytest.raises(OptionError, match="'somewhere'"):
        gp.predict_batches([], "somewhere")
    with pytest.raises(DataError, match="no points to predict at"):
        gp.predict_batches([], [])
    with pytest.raises(DataError, match="the points have no column 'x'"):
        gp.predict_batches([], table.select(["id", "y"]))
    with pytest.raises(DataError, match="column 'x' of the points mixes kinds of values"):
        gp.predict_batches([], pd.DataFrame({"id": ["t00", "t01"], "x": [1.0, "two"]}))
    with pytest.raises(DataError, match="batch 1: a batch is an Arrow record batch or table, not DataFrame"):
        list(gp.predict_batches([table.to_pandas()], [1.0]))
    with pytest.raises(DataError, match="batch 1: the batch has no column 'y'"):
        list(gp.predict_batches([table.select(["id", "x"])], [1.0]))
    other = table.slice(0, 6).set_column(1, "x", table["x"].slice(0, 6).cast(pa.float32()))
    with pytest.raises(DataError, match="batch 2: column 'x' holds float, and double in the first batch"):
        list(gp.predict_batches([table.slice(6), other], [1.0]))
    with pytest.raises(DataError, match=r"batch 2: NaN or infinity in column 'y'.*missing='drop'"):
        list(gp.predict_batches([table.slice(6), with_gaps(table).slice(0, 6)], [1.0]))
    with pytest.raises(NotFittedError):
        MetaGP().predict_batches([], [1.0])
