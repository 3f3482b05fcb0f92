import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metaprior import DataError, MetaGP, MetapriorWarning, OptionError, Tasks
from metaprior.data import embedded_table


@pytest.fixture(scope="module")
def table():
    return embedded_table("elnino")


@pytest.fixture(scope="module")
def gp(table):
    names = {"task": "year", "x": "month", "y": "temperature"}
    return MetaGP("deep", "rbf", hidden=(16,), max_epochs=60, progress=False).fit(table, **names)


KINDS = {"arrow": lambda table: table, "pandas": pa.Table.to_pandas, "polars": pl.from_arrow}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_table_that_came_in_comes_out(kind, gp, table):
    given = KINDS[kind](table.slice(0, 30))
    found = gp.predict(given, [1.0, 6.5, 12.0])
    assert type(found) is type(given)
    frame = found if kind == "pandas" else found.to_pandas()
    assert list(frame.columns) == ["year", "month", "mean", "sd", "lower", "upper"]
    assert frame["year"].tolist() == [1950] * 3 + [1951] * 3 + [1952] * 3
    assert frame["month"].tolist() == [1.0, 6.5, 12.0] * 3
    tasks = Tasks.from_table(table.slice(0, 30), task="year", x="month", y="temperature")
    posterior = gp.predict(tasks, [1.0, 6.5, 12.0])
    assert frame["mean"].to_numpy() == pytest.approx(posterior.mean[:, 0].numpy(), rel=1e-12)
    assert frame["upper"].to_numpy() == pytest.approx(posterior.interval(0.9).upper[:, 0].numpy(), rel=1e-12)


def test_a_second_table_says_where(gp, table):
    at = pd.DataFrame({"month": [3, 4, 5], "year": [1951, 2050, 1950]})
    with pytest.warns(MetapriorWarning, match="1 of 3 tasks have no known rows"):
        found = gp.predict(table.slice(0, 24).to_pandas(), at)
    assert found["year"].tolist() == [1951, 2050, 1950]
    blank = gp.condition([], []).at([4.0])
    assert found["mean"][1] == pytest.approx(float(blank.mean))  # a task without rows gets the prior
    assert found["sd"][1] == pytest.approx(float(blank.sd))
    assert found["sd"][0] < found["sd"][1]


def test_rows_without_a_target_are_predicted(gp, table):
    frame = table.slice(0, 24).to_pandas()
    frame.loc[[3, 20], "temperature"] = None
    for given in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        found = gp.predict(given, "missing")
        found = found if isinstance(found, pd.DataFrame) else found.to_pandas()
        assert found[["year", "month"]].to_numpy().tolist() == [[1950, 4], [1951, 9]]
    with pytest.raises(DataError, match="nothing to predict"):
        gp.predict(table, "missing")
    frame["temperature"] = None
    with pytest.warns(MetapriorWarning, match="2 of 2 tasks have no known rows"):
        assert len(gp.predict(frame.astype({"temperature": float}), "missing")) == 24


def test_more_columns_on_request(gp, table):
    given = table.slice(0, 12).to_pandas()
    found = gp.predict(given, [6.5], level=0.5, quantiles=(0.25, 0.75), samples=2, seed=1)
    assert list(found.columns)[-4:] == ["q0.25", "q0.75", "sample_1", "sample_2"]
    assert found["lower"][0] == pytest.approx(found["q0.25"][0])
    latent = gp.predict(given, [6.5], latent=True)
    assert latent["sd"][0] < found["sd"][0]


def test_several_tasks_and_targets(table):
    frame = table.to_pandas()
    frame["site"] = ["a" if year % 2 else "b" for year in frame["year"]]
    frame["fahrenheit"] = 1.8 * frame["temperature"] + 32
    gp = MetaGP("zero", "rbf", max_epochs=20, progress=False)
    gp.fit(frame, task=["site", "year"], x="month", y=["temperature", "fahrenheit"])
    found = gp.predict(frame[frame["year"] < 1952], [3.5])
    assert found["site"].tolist() == ["b", "a"]
    assert found["year"].tolist() == [1950, 1951]
    assert found["fahrenheit_mean"].to_numpy() == pytest.approx(1.8 * found["temperature_mean"].to_numpy() + 32)


def test_what_is_refused(gp, table):
    with pytest.raises(OptionError, match=r"level 1\.5"):
        gp.predict(table, [1.0], level=1.5)
    with pytest.raises(OptionError, match="'somewhere'"):
        gp.predict(table, "somewhere")
    with pytest.raises(DataError, match="no column 'temperature'"):
        gp.predict(table.drop_columns(["temperature"]), [1.0])
    with pytest.raises(DataError, match="needs the names of its columns"):
        MetaGP().fit(table)


@pytest.mark.parametrize("kind", KINDS)
def test_dates_go_in_and_come_out(kind, table):
    frame = table.slice(0, 120).to_pandas()
    frame["day"] = pd.to_datetime({"year": 2000, "month": frame["month"], "day": 15})
    given = KINDS[kind](pa.Table.from_pandas(frame[["year", "day", "temperature"]]))
    tasks = Tasks.from_table(given, task="year", x="day", y="temperature")
    assert tasks.notes == ("column 'day': dates, in days since 1970-01-01",)
    assert tasks.x[:2, 0].tolist() == [10971.0, 11002.0]
    gp = MetaGP("constant", "rbf", max_epochs=20, progress=False).fit(given, task="year", x="day", y="temperature")
    at = KINDS[kind](pa.Table.from_pandas(frame.loc[[5, 20], ["year", "day"]], preserve_index=False))
    found = gp.predict(given, at)
    found = found if kind == "pandas" else found.to_pandas()
    assert found["day"].tolist() == frame.loc[[5, 20], "day"].tolist()
