import numpy as np
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


def interleaved(gp):
    """Known rows of three tasks, and rows to predict: shuffled, some twice, with labels; and their predictions."""
    rng = np.random.default_rng(0)
    known = pd.DataFrame({"year": np.repeat([1950, 1951, 2050], 4), "month": np.tile([1, 2, 3, 4], 3)})
    known["temperature"] = 20.0 + rng.normal(size=len(known)) + known["year"] % 7
    at = pd.DataFrame(
        {"year": np.tile([2050, 1950, 1951, 1950], 5), "month": rng.permutation(np.repeat([5, 6, 8.5, 9], 5))}
    )
    at.loc[len(at)] = at.iloc[3]
    at.index = [f"row {k % 17}" for k in rng.permutation(len(at))]  # some labels twice
    each = {
        year: gp.condition(*own[["month", "temperature"]].to_numpy().T) for year, own in known.groupby("year")
    }  # every row by itself, so that no order can be mistaken
    means = [float(each[row.year].at([row.month]).mean[0]) for row in at.itertuples()]
    return known, at, means


@pytest.mark.parametrize("kind", KINDS)
def test_predicted_rows_keep_the_order_of_the_requested_table(kind, gp):
    known, at, means = interleaved(gp)
    to_kind = lambda frame: KINDS[kind](pa.Table.from_pandas(frame, preserve_index=False))  # noqa: E731
    found = gp.predict(to_kind(known), to_kind(at), samples=2, quantiles=(0.25,))
    assert np.asarray(found["mean"]) == pytest.approx(means, rel=1e-9)
    assert np.asarray(found["year"]).tolist() == at["year"].tolist()
    assert np.asarray(found["month"]).tolist() == at["month"].tolist()
    both = pd.concat([at.assign(temperature=np.nan), known]).sample(frac=1, random_state=1)
    lacking = both["temperature"].isna().to_numpy()
    found = gp.predict(to_kind(both), "missing")
    assert np.asarray(found["month"]).tolist() == both["month"][lacking].tolist()
    order = dict(zip(zip(at["year"], at["month"], strict=True), means, strict=True))
    wanted = [order[label] for label in zip(both["year"][lacking], both["month"][lacking], strict=True)]
    assert np.asarray(found["mean"]) == pytest.approx(wanted, rel=1e-9)


def test_predicted_rows_keep_the_index_of_the_requested_pandas_table(gp):
    known, at, means = interleaved(gp)
    found = gp.predict(known, at)
    assert found.index.equals(at.index)
    at["pred"] = found["mean"]
    assert at["pred"].to_numpy() == pytest.approx(means, rel=1e-9)
    both = pd.concat([at.drop(columns="pred").assign(temperature=np.nan), known.set_index(known.index + 100)])
    both.loc[both.index[2], "month"] = np.nan
    with pytest.warns(MetapriorWarning, match="dropped"):
        found = gp.predict(both, "missing", missing="drop")
    asked = both[both["temperature"].isna() & both["month"].notna()]
    assert found.index.equals(asked.index)
    assert found["month"].tolist() == asked["month"].tolist()
    assert gp.predict(known, [5.0]).index.equals(pd.RangeIndex(3))  # nobody asked for rows
    assert type(gp.predict(pa.Table.from_pandas(known), at)) is pa.Table


def test_a_stream_of_points_is_read_once(gp):
    known, at, means = interleaved(gp)
    reader = pa.Table.from_pandas(at, preserve_index=False).to_reader()
    assert gp.predict(known, reader)["mean"].to_numpy() == pytest.approx(means, rel=1e-9)
