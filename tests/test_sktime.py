"""The forecaster for sktime: its own checks, the same answers as `MetaGP`, times of every kind, bad input."""

import importlib
import pickle
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skpro.utils.estimator_checks
import sktime.utils.estimator_checks
import torch
from sktime.forecasting.base import ForecastingHorizon

from metaprior import DataError, MetaGP, MetapriorError, MetapriorWarning, OptionError, Tasks
from metaprior.adapters.skpro import PosteriorDistribution
from metaprior.adapters.sktime import MetaGPForecaster

HOURS, SERIES = 12, 8
DAYS = pd.date_range("2024-03-01", periods=HOURS, freq="D")


def panel(index=range(HOURS), series=SERIES, columns=("load",), seed=0):
    """Series that differ in level and slope, all at the same times."""
    rng, x = np.random.default_rng(seed), np.arange(len(index))
    names = ["series", "time"]

    def one():
        values = np.sin(x / 3) + rng.normal() + rng.normal(0, 0.1) * x + rng.normal(0, 0.05, len(x))
        return {name: values + k for k, name in enumerate(columns)}

    return pd.concat({f"s{k}": pd.DataFrame(one(), index=index) for k in range(series)}, names=names)


def made(**options):
    """Quick to learn, and always the same."""
    usual = {"mean": "constant", "kernel": "rbf", "progress": False, "options": {"max_epochs": 20}}
    return MetaGPForecaster(**(usual | options))


@pytest.fixture(scope="module")
def pretrained():
    return made().pretrain(panel())


@pytest.fixture
def forecaster(pretrained):
    return pretrained.clone()


@pytest.fixture(scope="module")
def daily():
    return made().pretrain(panel(DAYS))


NEW = pd.Series([0.3, 0.7, 0.8, 1.1], name="load")


@pytest.mark.filterwarnings("ignore::metaprior.MetapriorWarning")  # their series are noise, and reach far ahead
@pytest.mark.filterwarnings("ignore:Sorting by default when concatenating")  # sktime does, in update_predict
def test_sktime_finds_nothing_to_complain_of():
    assert MetaGPForecaster.get_class_tag("tests:skip_by_name") is None
    found = sktime.utils.estimator_checks.check_estimator(MetaGPForecaster, verbose=False)
    assert len(found) > 800
    assert {name: said for name, said in found.items() if said != "PASSED"} == {}


@pytest.mark.filterwarnings("ignore:.*does not have a numerically exact implementation of the 'pdfnorm' method")
def test_skpro_finds_nothing_to_complain_of():
    found = skpro.utils.estimator_checks.check_estimator(PosteriorDistribution, verbose=False)
    assert len(found) > 90
    assert {name: said for name, said in found.items() if said != "PASSED"} == {}


def test_forecasts_are_those_of_the_model(forecaster):
    values = panel()["load"].unstack().to_numpy().copy()
    gp = MetaGP("constant", "rbf", held_out=0.34, max_epochs=20, seed=0, progress=False)
    gp.fit(Tasks.on_grid(np.arange(HOURS), values, [f"s{k}" for k in range(SERIES)]))
    posterior = gp.condition(np.arange(4.0), NEW.to_numpy()).at([[4.0], [6.0]])
    forecaster.fit(NEW)
    np.testing.assert_allclose(forecaster.predict(fh=[1, 3]), posterior.mean[:, 0])
    np.testing.assert_allclose(forecaster.predict_var(fh=[1, 3])["load"], posterior.sd[:, 0].square())
    bounds = forecaster.predict_interval(fh=[1, 3], coverage=[0.5, 0.9])
    np.testing.assert_allclose(bounds["load", 0.9], torch.cat(posterior.interval(0.9), 1))
    covariance = forecaster.predict_var(fh=[1, 3], cov=True)
    np.testing.assert_allclose(covariance, posterior.covariances()[0][0])
    distribution = forecaster.predict_proba(fh=[1, 3])
    np.testing.assert_allclose(distribution.quantile([0.05, 0.95]), bounds["load", 0.9])
    given = pd.DataFrame({"load": [1.0, 0.5]}, index=[4, 6])
    values = given.to_numpy().copy()
    np.testing.assert_allclose(distribution.log_pdf(given), posterior.log_density(values))
    crps = distribution.energy(given) - distribution.energy() / 2
    np.testing.assert_allclose(crps, posterior.crps(values))
    np.testing.assert_allclose(distribution.loc[[6]].ppf(0.3), posterior.quantiles([0.3])[0][1:])


def test_draws_are_of_whole_series(forecaster):
    drawn = forecaster.fit(NEW.iloc[:1]).predict_proba(fh=[1, 2], marginal=False).sample(400)["load"].unstack()
    exact = forecaster.predict_var(fh=[1, 2], cov=True).to_numpy()
    np.testing.assert_allclose(np.cov(drawn.to_numpy().T), exact, rtol=0.35)
    assert exact[0, 1] > 0.5 * exact[0, 0]


def test_many_series_at_once_are_as_one_by_one(forecaster):
    new = panel(seed=1).groupby("series").head(5).drop(index=[("s2", 4), ("s5", 3), ("s5", 4)])  # they end apart
    together = forecaster.fit(new).predict_quantiles(fh=[1, 2], alpha=[0.1, 0.9])
    assert together.index.names == ["series", "time"]
    assert together.loc["s5"].index.tolist() == [3, 4]
    for name in ("s0", "s2", "s5"):
        alone = forecaster.fit(new.loc[name]).predict_quantiles(fh=[1, 2], alpha=[0.1, 0.9])
        pd.testing.assert_frame_equal(together.loc[name], alone, check_names=False)


@pytest.mark.parametrize(
    "later",
    [
        pd.date_range("2031-07-30", periods=4, freq="D"),
        pd.date_range("2031-07-30", periods=4, freq="D", tz="America/Lima"),
        pd.period_range("2031-07-30", periods=4, freq="D"),
    ],
    ids=["dates", "dates with a zone", "periods"],
)
def test_time_is_counted_in_days_from_the_start(forecaster, daily, later):
    expected = forecaster.fit(NEW).predict(fh=[1, 3])
    found = daily.clone().fit(NEW.set_axis(later)).predict(fh=[1, 3])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert type(found.index) is type(later)


def test_time_can_be_that_of_the_index():
    options = {"mean": "deep", "options": {"max_epochs": 20, "hidden": (8,)}}
    by_index, by_start = (made(align=align, **options).pretrain(panel()) for align in ("index", "start"))
    late = NEW.set_axis(range(5, 9))
    assert not np.allclose(by_index.fit(late).predict(fh=[1]), by_start.fit(late).predict(fh=[1]))
    filled = pd.Series([np.nan] * 5 + NEW.tolist(), name="load")  # the start is known, and the values come later
    np.testing.assert_allclose(by_index.fit(late).predict(fh=[1]), by_start.fit(filled).predict(fh=[1]))


def test_irregular_times_are_taken_as_they_are(daily):
    known = pd.DatetimeIndex(["2025-01-01", "2025-01-02 12:00", "2025-01-05 06:00"])
    asked = pd.DatetimeIndex(["2025-01-05 18:00", "2025-01-09"])
    found = daily.clone().fit(pd.Series([0.3, 0.7, 0.8], index=known)).predict_interval(fh=asked)
    posterior = daily.priors_["load"].condition([0.0, 1.5, 4.25], [0.3, 0.7, 0.8]).at([[4.75], [8.0]])
    np.testing.assert_allclose(found, torch.cat(posterior.interval(0.9), 1))
    night = pd.DatetimeIndex(["2025-03-30 00:00", "2025-03-30 04:00"]).tz_localize("Europe/Rome")  # of three hours
    found = daily.clone().fit(pd.Series([0.3, 0.7], index=night)).predict(fh=night[[1]])
    np.testing.assert_allclose(found, daily.priors_["load"].condition([0.0, 0.125], [0.3, 0.7]).at([[0.125]]).mean[0])
    ahead = ForecastingHorizon([pd.Timedelta(hours=12)], is_relative=True)
    assert daily.clone().fit(pd.Series([0.3, 0.7, 0.8], index=known)).predict(fh=ahead).index.tolist() == [asked[0]]


def test_what_is_missing_is_left_out(forecaster):
    with_gap = forecaster.fit(NEW.where(NEW.index != 1)).predict(fh=[1])
    np.testing.assert_allclose(with_gap, forecaster.fit(NEW.drop(1)).predict(fh=[1]))
    assert forecaster.fit(NEW).predict(fh=[1]).iloc[0] != with_gap.iloc[0]


def test_a_series_that_has_not_begun_is_forecast_by_the_prior(forecaster):
    found = forecaster.fit(pd.Series([np.nan], name="load")).predict_interval(fh=[0, 1, 2])
    posterior = forecaster.priors_["load"].condition([], []).at([[0.0], [1.0], [2.0]])
    np.testing.assert_allclose(found, torch.cat(posterior.interval(0.9), 1))


@pytest.mark.parametrize("update_params", [True, False])
def test_an_update_is_as_if_all_had_been_known(forecaster, update_params):
    expected = forecaster.fit(NEW).predict(fh=[1, 2])
    found = forecaster.fit(NEW.iloc[:2]).update(NEW.iloc[2:], update_params=update_params).predict(fh=[1, 2])
    pd.testing.assert_series_equal(found, expected)
    corrected = forecaster.fit(NEW.replace(0.7, 9.0)).update(NEW.iloc[1:3], update_params=update_params)
    np.testing.assert_allclose(corrected.predict(fh=[2, 3]), expected)  # counted from the end of what came last
    both = made().fit(panel().groupby("series").head(4))
    before = both.models_["load"]
    both.update(panel().groupby("series").nth([4, 5]), update_params=update_params)
    assert (both.models_["load"] is before) != update_params


def test_each_variable_has_a_prior_of_its_own():
    two = made().pretrain(panel(columns=["load", "price"]))
    frame = pd.DataFrame({"price": NEW + 1, "load": NEW})
    frame.loc[1, "price"] = np.nan
    found = two.fit(frame).predict(fh=[1, 2])
    assert found.columns.tolist() == ["price", "load"]
    alone = made().pretrain(panel()).fit(frame["load"]).predict(fh=[1, 2])
    np.testing.assert_allclose(found["load"], alone)
    np.testing.assert_allclose(two.fit(frame[["price"]]).predict(fh=[1, 2]), found[["price"]])
    named_otherwise = two.fit(frame[["load", "price"]].set_axis(["a", "b"], axis=1)).predict(fh=[1, 2])
    np.testing.assert_allclose(named_otherwise, found[["load", "price"]])
    assert two.predict_proba(fh=[1, 2]).mean().shape == (2, 2)


def test_without_past_series_it_learns_from_what_it_is_given():
    short = panel().groupby("series").head(6)
    together = made().fit(short)
    assert together.models_["load"].trained_on_.tasks == SERIES
    np.testing.assert_allclose(together.predict(fh=[0]), made().pretrain(short).fit(short).predict(fh=[0]))
    line = pd.Series(np.linspace(5, 9, 20))
    bounds = MetaGPForecaster(progress=False).fit(line).predict_interval(fh=[1])  # a process of its own
    assert bounds.iloc[0, 0] < 9.2 < bounds.iloc[0, 1]
    assert bounds.iloc[0, 1] - bounds.iloc[0, 0] < 2


def test_more_past_series_are_learned_from_with_those_of_before():
    first, second = panel(), panel(seed=1)
    twice = made().pretrain(first).pretrain(second)
    assert twice.priors_["load"].trained_on_.tasks == 2 * SERIES  # series of the same names are others
    both = pd.concat([first, second.rename(index=lambda name: f"{name} again", level="series")])
    expected = made().pretrain(both).fit(NEW).predict(fh=[1, 2])
    np.testing.assert_allclose(twice.fit(NEW).predict(fh=[1, 2]), expected)
    fitted_first = made().fit(NEW).pretrain(first)
    assert fitted_first.clone().state == "pretrained"


def test_what_was_learned_survives_a_file_and_a_clone(pretrained):
    expected = pretrained.clone().fit(NEW).predict_interval(fh=[1, 2])
    again = pickle.loads(pickle.dumps(pretrained)).fit(NEW)
    pd.testing.assert_frame_equal(again.predict_interval(fh=[1, 2]), expected)


def test_bounds_are_possible_values():
    counts = (panel() * 3).clip(0).round()
    found = (
        made(support=(0, None), integer=True).pretrain(counts).fit(pd.Series([0.0, 0.0])).predict_interval(fh=[1, 2])
    )
    assert (found.to_numpy() >= 0).all()
    assert (found.to_numpy() == found.to_numpy().round()).all()


def test_the_prior_is_chosen_for_the_points_that_will_be_known():
    options = {"rungs": ["shared gp", "gp per task"]}
    found = MetaGPForecaster(context_lengths=3, progress=False, options=options).pretrain(panel())
    assert list(found.priors_["load"].scores_) == ["first 3"]


def test_series_unlike_the_past_ones_and_times_beyond_them_are_told():
    options = {"rungs": ["shared gp"]}
    found = MetaGPForecaster(context_lengths=3, progress=False, options=options).pretrain(panel(series=60))
    with pytest.warns(MetapriorWarning, match="1 of 2 series are unlike .* \\(odd\\)"):
        found.fit(pd.concat({"s": NEW.to_frame(), "odd": -50 * NEW.to_frame()}, names=["s", "t"]))
    found.fit(NEW)
    found.predict(fh=[1])
    with pytest.warns(MetapriorWarning, match=r"1 of 2 times of the horizon lie outside .* \(0 to 11\)"):
        found.predict(fh=[1, 30])


IRREGULAR = pd.DatetimeIndex(["2025-01-01", "2025-01-02 12:00", "2025-01-05 06:00"])

BAD = {
    "unsorted": (lambda f: f.fit(NEW.iloc[::-1]), DataError, r"must rise, but 2 comes after 3: .* y.sort_index\(\)"),
    "unsorted panel": (lambda f: f.pretrain(panel().iloc[::-1]), DataError, r"\('s7', 10\) comes after \('s7', 11\)"),
    "other index": (lambda f: f.fit(NEW.set_axis(DAYS[:4])), DataError, "indexed by whole numbers, .* holds dates"),
    "empty": (lambda f: f.fit(NEW.iloc[:0]), DataError, "give the start with a missing value"),
    "infinite": (lambda f: f.fit(NEW.replace(0.8, np.inf)), DataError, "infinity in column 'load' at 2"),
    "other variables": (
        lambda f: f.fit(pd.DataFrame({"load": NEW, "price": NEW})),
        DataError,
        "had the variables load; here there are load, price",
    ),
    "no horizon": (lambda f: f.fit(NEW).predict(fh=[]), ValueError, "must not be empty"),
    "nothing known": (
        lambda f: made().fit(pd.Series([np.nan])),
        DataError,
        "from past series alone: call pretrain first",
    ),
    "nothing to learn from": (lambda f: made().pretrain(panel() * np.nan), DataError, "column 'load' has no values"),
    "one past series": (
        lambda f: MetaGPForecaster(progress=False).pretrain(panel(series=1)),
        DataError,
        "or choose mean and kernel",
    ),
    "align": (lambda f: made(align="end").pretrain(panel()), OptionError, "align='end': give 'start'"),
    "option": (lambda f: made(options={"depth": 3}).pretrain(panel()), OptionError, "depth: no option"),
    "steps without a length": (
        lambda f: made().fit(pd.Series([1.0, 2.0, 1.5], index=IRREGULAR)).predict(fh=[1]),
        DataError,
        "no regular step, .* give the times",
    ),
}


@pytest.mark.parametrize(("do", "error", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_told(forecaster, do, error, said):
    with pytest.raises(error, match=said):
        do(forecaster)
    assert forecaster.fit(NEW).predict(fh=[1]).notna().all()  # nothing is lost


def test_the_extra_is_named_where_sktime_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "metaprior.adapters.sktime")
    monkeypatch.setitem(sys.modules, "sktime.forecasting.base", None)
    with pytest.raises(MetapriorError, match=r"needs sktime.* pip install 'metaprior\[sktime\]'"):
        importlib.import_module("metaprior.adapters.sktime")


ROOT = Path(__file__).parent.parent
SECTION = (ROOT / "docs" / "adapters.md").read_text().split("\n## sktime\n")[1].split("\n## ")[0]


def words(text):
    return re.sub(r"[\d. ]+", " ", text)


def numbers(text):
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.mark.filterwarnings("ignore::metaprior.MetapriorWarning")  # a few of their new series are unlike the past ones
@pytest.mark.parametrize(("name", "settings"), [("cold_start", 4), ("irregular_timestamps", 1)])
def test_examples_run_and_print_what_the_page_says(name, settings, capsys):
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    (block,) = [
        text for text in re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL) if words(said).endswith(words(text))
    ]
    assert numbers(said)[-len(numbers(block)) :] == pytest.approx(numbers(block), rel=0.1, abs=1)
    held = [int(share) for share in re.findall(r"(\d+)%(?: of|$)", said, re.MULTILINE)]
    assert len(held) == settings
    assert all(85 <= share <= 97 for share in held)


def test_the_example_of_the_page_runs(capsys):
    found: dict = {}
    (example,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    exec(example, found)
    assert found["ahead"].shape == (24, 3)
    assert len(capsys.readouterr().out.splitlines()) >= 8


def test_covariances_of_series_that_end_at_different_times_are_refused(forecaster):
    unequal = pd.concat({"a": NEW.to_frame(), "b": NEW[:2].to_frame()}, names=["series", "time"])
    forecaster.fit(unequal, fh=[1, 2])
    assert len(forecaster.predict_var()) == 4
    with pytest.raises(OptionError, match="cov=True: the series are asked about at different times"):
        forecaster.predict_var(cov=True)
