import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from metaprior import DataError, Tasks

ROWS = {
    "patient": ["b", "a", "b", "a", "c"],
    "site": [1, 1, 1, 2, 1],
    "hour": [0.0, 1.0, 2.0, 3.0, 4.0],
    "age": [50, 60, 50, 60, 70],
    "gcs": [15.0, 14.0, 13.0, 12.0, 11.0],
    "note": ["x", "7", "y", "z", None],
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("kind", FRAMES)
def test_long_table(kind):
    tasks = Tasks.from_table(FRAMES[kind](ROWS), task="patient", x=["hour", "age"], y="gcs")
    assert tasks.ids == ("b", "a", "c")
    assert tasks[0].x.tolist() == [[0.0, 50.0], [2.0, 50.0]]
    assert tasks[1].y.ravel().tolist() == [14.0, 12.0]
    assert tasks.columns == (("patient",), ("hour", "age"), ("gcs",), ())


@pytest.mark.parametrize("kind", FRAMES)
def test_several_task_columns(kind):
    tasks = Tasks.from_table(FRAMES[kind](ROWS), task=["site", "patient"], x="hour", y=["gcs", "age"])
    assert tasks.ids == ((1, "b"), (1, "a"), (2, "a"), (1, "c"))
    assert tasks.sizes.tolist() == [2, 1, 1, 1]
    assert tasks.p == 2


def test_table_and_pairs_agree():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"t": np.repeat([3, 1, 2], [4, 2, 3]), "x": rng.normal(size=9), "y": rng.normal(size=9)})
    shuffled = Tasks.from_table(frame.sample(frac=1, random_state=0), task="t", x="x", y="y")
    pairs = dict(iter(frame.groupby("t")))
    for task in shuffled:
        assert sorted(task.y.ravel().tolist()) == sorted(pairs[task.id]["y"])


def test_categories_as_tasks():
    frame = pd.DataFrame(
        {"t": pd.Categorical(["u", "v", "u"], categories=["w", "v", "u"]), "x": [1, 2, 3], "y": [1, 2, 3]}
    )
    assert Tasks.from_table(frame, task="t", x="x", y="y").ids == ("u", "v")


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"task": "patiet", "x": "hour", "y": "gcs"}, r"no column 'patiet' \(did you mean 'patient'\?\)"),
        (
            {"task": "patient", "x": "hour", "y": "note"},
            r"column 'note' must hold numbers, but 3 of its 5 values are text \(row 0: 'x'",
        ),
        ({"task": "patient", "x": "hour", "y": "hour"}, "column 'hour' is named more than once, as x and as y"),
        ({"task": "note", "x": "hour", "y": "gcs"}, r"task column 'note' is empty in 1 rows \(the first is row 4\)"),
        ({"task": "patient", "x": [], "y": "gcs"}, "no x column"),
    ],
)
def test_bad_columns(kind, columns, message):
    with pytest.raises(DataError, match=message):
        Tasks.from_table(FRAMES[kind](ROWS), **columns)


ZEROS = {"t": [0.0, -0.0, 1.0], "x": [1.0, -0.0, 3.0], "y": [0.5, -0.0, 1.0], "c": [-0.0, 0.0, 2.0]}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_there_is_one_zero(kind, dtype):
    table = FRAMES[kind]({name: np.array(values, dtype) for name, values in ZEROS.items()})
    tasks = Tasks.from_table(table, task="t", x="x", y="y", task_x="c")
    assert [str(name) for name in tasks.ids] == ["0.0", "1.0"]
    assert tasks.covariates.tolist() == [[0.0], [2.0]]
    pairs = Tasks.from_pairs([([1.0, -0.0], [0.5, -0.0]), ([3.0], [1.0])])
    grid = Tasks.on_grid([1.0, -0.0], [[0.5, -0.0], [-0.0, 1.0]])
    for values in (tasks.x, tasks.y, tasks.covariates, pairs.x, pairs.y, grid.x, grid.y):
        assert not (torch.signbit(values) & (values == 0)).any()


def test_a_signalling_nan_is_a_missing_value_like_any_other():
    y = pa.Array.from_buffers(pa.float16(), 2, [None, pa.py_buffer(np.array([0x7C01, 0x3C00], np.uint16))])
    tasks = Tasks.from_table(
        pa.table({"t": ["a", "b"], "x": [1.0, 2.0], "y": y}), task="t", x="x", y="y", missing="drop"
    )
    assert tasks.y.tolist() == [[1.0]]


def test_what_is_one_moment_in_python_is_one_task():
    days = pa.array([1, 2, 86_400_000], pa.int64()).view(pa.date64())  # the first two on one day
    tasks = Tasks.from_table(pa.table({"t": days, "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}), task="t", x="x", y="y")
    assert tasks.ids == (datetime.date(1970, 1, 1), datetime.date(1970, 1, 2))
    assert tasks.sizes.tolist() == [2, 1]
    durations = pa.table({"t": pa.array([1, 2], pa.duration("s")), "x": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(DataError, match=r"task column 't' holds duration\[s\]; use numbers or text to name tasks"):
        Tasks.from_table(durations, task="t", x="x", y="y")


def test_empty_table():
    with pytest.raises(DataError, match="no rows"):
        Tasks.from_table(pd.DataFrame({"t": [], "x": [], "y": []}), task="t", x="x", y="y")


def test_missing_values_are_counted_placed_and_droppable():
    frame = pl.DataFrame({"t": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "y": [1.0, None, float("inf")]})
    with pytest.raises(DataError, match=r"column 'y': 2 \(row 1 of task 'a', row 2 of task 'b'\).*missing='drop'"):
        Tasks.from_table(frame, task="t", x="x", y="y")
    tasks = Tasks.from_table(frame, task="t", x="x", y="y", missing="drop")
    assert tasks.ids == ("a",)
    assert len(tasks.notes) == 2


def test_a_column_of_nothing_but_missing_values():
    frame = pa.table({"t": [1, 2], "x": [1.0, 2.0], "y": pa.nulls(2)})
    with pytest.raises(DataError, match="column 'y': 2"):
        Tasks.from_table(frame, task="t", x="x", y="y")


def test_numbers_written_as_text_and_dates_say_what_to_do():
    frame = pd.DataFrame({"t": [1, 1], "x": ["1", "2"], "y": [1.0, 2.0], "day": [datetime.date(2020, 1, 1)] * 2})
    with pytest.raises(DataError, match="numbers written as text; convert"):
        Tasks.from_table(frame, task="t", x="x", y="y")
    assert Tasks.from_table(frame, task="t", x="day", y="y").x.flatten().tolist() == [18262.0] * 2
    with pytest.raises(DataError, match="convert it to numbers"):
        Tasks.from_table(frame, task="t", x="y", y="day")


def test_integers_booleans_and_decimals_are_numbers():
    frame = pa.table({"t": [1, 1], "x": pa.array([1, 2], pa.int8()), "y": pa.array([True, False])})
    assert Tasks.from_table(frame, task="t", x="x", y="y").y.tolist() == [[1.0], [0.0]]
    decimals = frame.append_column("z", pa.array([1.5, 2.5]).cast(pa.decimal128(5, 2)))
    assert Tasks.from_table(decimals, task="t", x="x", y="z").y.tolist() == [[1.5], [2.5]]


def test_what_is_not_a_table():
    with pytest.raises(DataError, match=r"not list; for arrays use Tasks.from_pairs"):
        Tasks.from_table([1, 2], task="t", x="x", y="y")


def test_result_is_float64_on_cpu():
    tasks = Tasks.from_table(pd.DataFrame(ROWS), task="patient", x="age", y="gcs")
    assert tasks.x.dtype == torch.float64


def test_everything_wrong_is_said_at_once():
    frame = pd.DataFrame({"t": [1, 2], "x": [1.0, "n/a"], "y": ["?", "2"]})
    message = r"column 'x'.*1 of its 2 values are text \(row 1: 'n/a'\).*; column 'y'.*row 0: '\?'"
    with pytest.raises(DataError, match=message):
        Tasks.from_table(frame, task="t", x="x", y="y")


def test_columns_that_arrow_cannot_hold():
    frame = pd.DataFrame({"t": [1, "a"], "x": [1.0, 2.0], "y": [1.0, 2.0], "z": [1j, 2j], "u": [[1], [2]]})
    with pytest.raises(DataError, match="task column 't' mixes kinds of values"):
        Tasks.from_table(frame, task="t", x="x", y="y")
    with pytest.raises(DataError, match="column 'z' must hold numbers"):
        Tasks.from_table(frame, task="x", x="z", y="y")
    with pytest.raises(DataError, match="use numbers or text to name tasks"):
        Tasks.from_table(frame, task="u", x="x", y="y")


def test_duplicated_column_names():
    frame = pd.DataFrame([[1, 2.0, 3.0, 4.0]], columns=["t", "x", "y", "y"])
    with pytest.raises(DataError, match="columns of the same name"):
        Tasks.from_table(frame, task="t", x="x", y="y")


def test_columns_named_by_numbers():
    frame = pd.DataFrame([[1, 2.0, 3.0]])
    assert Tasks.from_table(frame, task=0, x=1, y=2).y.tolist() == [[3.0]]  # type: ignore[arg-type]


def test_large_integers_and_many_task_columns():
    frame = pa.table({"t": [1], "x": [2**60 + 1], "y": [1.0]})
    assert Tasks.from_table(frame, task="t", x="x", y="y").x.item() == pytest.approx(2**60)
    n = 65_537
    codes = {f"t{k}": np.arange(n) % (n - 1) for k in range(4)} | {"t4": np.arange(n) // (n - 1)}
    many = pa.table(codes | {"x": np.zeros(n), "y": np.zeros(n)})
    assert len(Tasks.from_table(many, task=list(codes), x="x", y="y")) == n


def test_categories_as_numbers_are_refused_with_advice():
    frame = pd.DataFrame({"t": [1, 1], "x": pd.Categorical([1, 2]), "y": [1.0, 2.0]})
    with pytest.raises(DataError, match="holds categories; give each a number"):
        Tasks.from_table(frame, task="t", x="x", y="y")


def test_what_is_said_of_whole_tasks_follows_rows_that_were_dropped():
    frame = pl.DataFrame(
        {
            "t": ["c", "a", "b", "a", "d"],
            "x": [1.0, 2.0, 3.0, 4.0, 5.0],
            "y": [None, 1.0, 2.0, 3.0, 4.0],
            "age": [30, 40, 50, None, None],
        }
    )
    tasks = Tasks.from_table(frame, task="t", x="x", y="y", task_x="age", missing="drop")
    assert tasks.ids == ("a", "b")
    assert tasks.sizes.tolist() == [2, 1]
    assert tasks.covariates is not None
    assert tasks.covariates.flatten().tolist() == [40.0, 50.0]
    assert [note.split(":")[0] for note in tasks.notes] == [
        "dropped 1 of 5 rows",
        "dropped 1 of 4 tasks with no usable row",
        "dropped 1 of 3 tasks without age",
    ]


def test_rows_of_a_task_need_not_stand_together():
    frame = pa.table({"t": ["a", "b", "a", "b", "a"], "x": [1, 2, 3, 4, 5], "y": [1.0, 2.0, 3.0, None, 5.0]})
    with pytest.raises(DataError, match="row 3 of task 'b'"):
        Tasks.from_table(frame, task="t", x="x", y="y")
    tasks = Tasks.from_table(frame, task="t", x="x", y="y", missing="drop")
    assert (tasks.ids, tasks.sizes.tolist()) == (("a", "b"), [3, 1])
