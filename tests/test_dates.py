"""Dates and times of day as people write them: read where there is one reading, told where there is not."""

from datetime import date, datetime
from datetime import time as clock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metaprior import DataError, MetaGP, MetapriorWarning
from tests.test_reading import read, run, tasks_of

DATES = {
    "2020-01": (["2020-01", "2020-12"], [date(2020, 1, 1), date(2020, 12, 1)]),
    "2020/03/28": (["2020/03/28", "2020/3/1"], [date(2020, 3, 28), date(2020, 3, 1)]),
    "28.03.2020": (["28.03.2020", "01.02.2020"], [date(2020, 3, 28), date(2020, 2, 1)]),
    "US": (["03/04/2020", "03/28/2020"], [date(2020, 3, 4), date(2020, 3, 28)]),
    "European": (["03/04/2020", "28/3/2020"], [date(2020, 4, 3), date(2020, 3, 28)]),
    "either way": (["01/01/2020", "02/02/2020"], [date(2020, 1, 1), date(2020, 2, 2)]),
    "dashes": (["03-04-2020", "28-03-2020"], [date(2020, 4, 3), date(2020, 3, 28)]),
    "2020 Jan": (["2020 Jan", "2020 sept"], [date(2020, 1, 1), date(2020, 9, 1)]),
    "Jan 2020": (["Jan 2020", "March 2020"], [date(2020, 1, 1), date(2020, 3, 1)]),
    "28-Mar-2020": (["28-Mar-2020", "1-APR-2020"], [date(2020, 3, 28), date(2020, 4, 1)]),
    "Mar 28, 2020": (["Mar 28, 2020", "May 1, 2020"], [date(2020, 3, 28), date(2020, 5, 1)]),
    "with times": (
        ["28.03.2020 13:45", "01.02.2020 9:05:30"],
        [datetime(2020, 3, 28, 13, 45), datetime(2020, 2, 1, 9, 5, 30)],
    ),
    "halves": (["3/28/2020 12:05 AM", "3/1/2020 1:45 PM"], [datetime(2020, 3, 28, 0, 5), datetime(2020, 3, 1, 13, 45)]),
    "13:45": (["13:45", "00:30"], [clock(13, 45), clock(0, 30)]),
    "9:05:30": (["9:05:30", "23:59:59.5"], [clock(9, 5, 30), clock(23, 59, 59, 500_000)]),
}


def in_days(moment):
    if isinstance(moment, clock):
        return (moment.hour + moment.minute / 60 + (moment.second + moment.microsecond / 1e6) / 3600) / 24
    return (datetime(*moment.timetuple()[:6]) - datetime(1970, 1, 1)).total_seconds() / 86_400


@pytest.mark.parametrize("form", DATES)
def test_dates_as_people_write_them(form, tmp_path):
    texts, moments = DATES[form]
    rows = "".join(f'a,"{text}",1\n' for text in texts)
    table = read(tmp_path / "t.csv", f"task,x,y\n{rows}a,,1\n")
    assert table["x"].to_pylist() == [*moments, None]
    for frame in (table, *(kind({"task": ["a"] * 2, "x": texts, "y": [1.0, 2.0]}) for kind in FRAMES)):
        tasks = tasks_of(frame, missing="drop")
        assert tasks.x.flatten().tolist() == pytest.approx([in_days(moment) for moment in moments], rel=1e-12)
        said = (
            "times of day, in days (noon is 0.5)"
            if isinstance(moments[0], clock)
            else "dates, in days since 1970-01-01"
        )
        assert tasks.notes[0] == f"column 'x': {said}"
        assert tasks.dated == (() if isinstance(moments[0], clock) else ("x",))


FRAMES = (pd.DataFrame, pl.DataFrame, pa.table)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["03/04/2020", "05/06/2020"], r"day or the month first \(row 0: '03/04/2020'.*write them as 2020-03-28"),
        (["28/03/2020", "03/28/2020"], r"dates are read that look like 2020-03-28, 2020-03-28T22:00, 2020-03"),
        (["31.02.2020", "30.02.2020"], "dates are read that look like"),
        (["1/2/20", "3/4/20"], "dates are read that look like"),
        (["Marble 2020", "Mayday 2020"], "dates are read that look like"),
        (["2020Q1", "2020Q2"], "dates are read that look like"),
        (["May", "June"], "number the categories"),
        (["2020-01-01", "2020-01-02", "unknown"], r"1 of its values are no dates as the others are \(row 2: 'unknown'"),
        (["2020-01", "2020-02", "2020-03-01"], r"1 of its values are no dates as the others are \(row 2: '2020-03-01'"),
    ],
)
def test_dates_that_are_not_sure_are_told(kind, texts, message):
    frame = kind({"task": ["a"] * len(texts), "x": texts, "y": [1.0] * len(texts)})
    with pytest.raises(DataError, match=f"column 'x' must hold numbers or dates, but .*{message}"):
        tasks_of(frame)


def test_dates_are_inputs_only():
    frame = pa.table({"task": ["a", "a"], "x": [1.0, 2.0], "y": ["2020-01", "2020-02"]})
    with pytest.raises(DataError, match="column 'y' must hold numbers, but"):
        tasks_of(frame)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("times", [False, True])
def test_dates_and_times_come_back(kind, times):
    texts = ["06:00", "13:45", "20:15"] if times else ["28/03/2020", "29/03/2020", "01/04/2020"]
    columns = {"task": ["a"] * 3 + ["b"] * 3, "x": texts * 2, "y": [1.0, 2.0, 3.0, 2.0, 3.0, 5.0]}
    frame = kind(columns)
    gp = MetaGP("linear", "rbf", max_epochs=3, progress=False).fit(frame, task="task", x="x", y="y")
    with pytest.warns(MetapriorWarning, match="no known rows"):
        found = gp.predict(frame, kind({"task": ["a", "c"], "x": texts[:2]}))
    given = [found["x"][k].as_py() if kind is pa.table else found["x"][k] for k in range(2)]
    assert [str(one).removesuffix(" 00:00:00") for one in given] == (
        ["06:00:00", "13:45:00"] if times else ["2020-03-28", "2020-03-29"]
    )


def test_times_of_day_end_before_midnight():
    """The end of the day is 1, which no time of day is: such points come back as numbers."""
    frame = pd.DataFrame({"task": ["a"] * 3 + ["b"] * 3, "x": ["00:00", "13:45", "20:15"] * 2, "y": np.arange(6.0)})
    gp = MetaGP("linear", "rbf", max_epochs=3, progress=False).fit(frame, task="task", x="x", y="y")
    found = gp.predict(frame, [0.0, 0.5])
    assert found["x"].tolist() == [clock(0), clock(12)] * 2
    found = gp.predict(frame, [0.0, 0.5, 1.0])
    assert found["x"].tolist() == [0.0, 0.5, 1.0] * 2


def test_dates_go_through_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{k};{day:02}.03.2020;{k + day},5\n" for k in range(6) for day in (1, 8, 15, 28))
    (tmp_path / "past.csv").write_text(f"who;day;v\n{rows}")
    fit = ("--mean", "linear", "--kernel", "rbf", "--epochs", 3, "--out", "m")
    run("fit", "past.csv", "--task", "who", "--x", "day", "--y", "v", *fit)
    (tmp_path / "at.csv").write_text("who,day\n0,2020-03-20\n")
    found = run("predict", "m", "past.csv", "--at", "at.csv", "--plot", "pictures")
    assert found.stdout.splitlines()[1].startswith("0,2020-03-20,")
    assert (tmp_path / "pictures" / "0.png").exists()
    rows = "".join(f"{k},{hour:02}:30,{k + hour}\n" for k in range(6) for hour in (1, 8, 15, 22))
    (tmp_path / "clock.csv").write_text(f"who,hour,v\n{rows}")
    found = run("fit", "clock.csv", "--task", "who", "--x", "hour", "--y", "v", *fit)
    assert "column 'hour': times of day, in days (noon is 0.5)" in found.stderr
    found = run("predict", "m", "clock.csv", "--at", "0.25:0.5:0.25", "--plot", "pictures")
    assert [line.split(",")[1] for line in found.stdout.splitlines()[1:3]] == ["06:00:00", "12:00:00"]
