"""`MetaGPRegressor` does what scikit-learn's tools expect, and predicts each group from what is known of it."""

import pickle
import subprocess
import sys
from copy import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from metaprior import FPCA, MetaGP, Mixture, OptionError, Tasks, load
from metaprior.adapters.sklearn import MetaGPRegressor

GROUPS, ROWS = 12, 8


def schools(groups=GROUPS, seed=0):
    """Rows of schools in random order: each has a level of its own on a common curve. X, y and labels."""
    rng = np.random.default_rng(seed)
    X, level = rng.uniform(-2, 2, (groups * ROWS, 1)), 5 + 2 * rng.standard_normal(groups)
    owner = rng.permutation(np.repeat(np.arange(groups), ROWS))
    y = level[owner] + np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    return X, y, np.array([f"school {k}" for k in owner])


def plain(**options):
    return MetaGPRegressor("constant", "rbf", **options)


@pytest.fixture(scope="module")
def fitted():
    return plain().fit(*schools()[:2], groups=schools()[2])


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@parametrize_with_checks([MetaGPRegressor()])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


def test_without_groups_it_is_a_gaussian_process_on_its_rows():
    """The prior is another one in its priors' bounds, so only what rows leave little doubt of is alike."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    at = np.linspace(0.5, 9.5, 30)[:, None]
    kernel = ConstantKernel() * Matern(nu=2.5) + WhiteKernel(0.01)
    theirs, their_sd = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y).predict(at, return_std=True)
    ours = MetaGPRegressor().fit(X, y)
    np.testing.assert_allclose(ours.predict(at), theirs, atol=0.06)
    np.testing.assert_allclose(ours.predict_std(at), their_sd, rtol=0.2)
    assert ours.groups_ is None
    assert ours.with_context(X[:0:-1], y[:0:-1]).predict(at) == pytest.approx(theirs, abs=0.1)


def test_a_group_is_predicted_as_its_task_is(fitted):
    X, y, school = schools()
    tasks = Tasks.from_pairs([(X[school == name], y[school == name]) for name in fitted.groups_], fitted.groups_)
    at = np.linspace(-2, 2, 5)[:, None]
    posterior = MetaGP("constant", "rbf", progress=False).fit(tasks).predict(tasks, at)
    rows, asked = np.tile(at, (GROUPS, 1)), np.repeat(fitted.groups_, 5)
    shuffled = np.random.default_rng(2).permutation(len(rows))
    lower, upper = fitted.predict_interval(rows[shuffled], 0.8, groups=asked[shuffled])
    found = [fitted.predict(rows[shuffled], asked[shuffled]), fitted.predict_std(rows[shuffled], asked[shuffled])]
    for ours, theirs in zip(
        [*found, lower, upper], [posterior.mean, posterior.sd, *posterior.interval(0.8)], strict=True
    ):
        np.testing.assert_allclose(ours, theirs[:, 0].numpy()[shuffled], rtol=1e-6)


def test_new_groups_are_predicted_from_the_prior_and_context_makes_them_known(fitted):
    X, y, school = schools(seed=3)
    one = school == school[0]
    names = np.full(one.sum(), "new")
    prior = fitted.predict(X[one], names)
    known = fitted.with_context(X[one][:3], y[one][:3], names[:3])
    assert np.abs(prior - y[one]).mean() > 3 * np.abs(known.predict(X[one], names) - y[one]).mean()
    assert (known.predict_std(X[one], names) < fitted.predict_std(X[one], names)).all()
    np.testing.assert_array_equal(fitted.predict(X[one], names), prior)  # the original knows nothing of it
    assert known.gp_ is fitted.gp_
    seen = fitted.groups_[:1] * 2
    np.testing.assert_array_equal(known.predict(X[:2], seen), fitted.predict(X[:2], seen))


def test_context_takes_the_place_of_the_rows_that_a_group_was_fitted_on(fitted):
    seen = fitted.groups_[0]
    moved = fitted.with_context([[0.0]], [30.0], [seen])
    assert sorted(moved.context_.ids) == sorted(fitted.context_.ids)
    assert moved.predict([[0.0]], [seen])[0] > 20 > fitted.predict([[0.0]], [seen])[0]
    np.testing.assert_allclose(
        moved.predict([[0.5]], [seen]), fitted.with_context([[0]], [30], ["x"]).predict([[0.5]], ["x"])
    )


@pytest.mark.parametrize(
    "labels", [np.arange, lambda n: pd.date_range("2020-01-01", periods=n), list], ids=["numbers", "dates", "text"]
)
def test_labels_are_what_they_are(labels, fitted):
    X, y, school = schools()
    names = list(labels(GROUPS) if labels is not list else fitted.groups_)
    code = {name: k for k, name in enumerate(fitted.groups_)}
    asked = pd.Series([names[code[name]] for name in school])
    found = plain().fit(X, y, groups=asked)
    np.testing.assert_allclose(found.predict(X, groups=asked), fitted.predict(X, groups=school))


def test_several_targets_and_the_choice_of_a_prior():
    X, y, school = schools()
    model = MetaGPRegressor(rungs=("gp per task", "shared gp")).fit(X, np.stack([y, -2 * y], 1), groups=school)
    found = model.predict(X, groups=school)
    assert found.shape == (len(X), 2)
    np.testing.assert_allclose(found[:, 1], -2 * found[:, 0], rtol=0.05, atol=0.05)
    assert set(model.gp_.method_.chosen_) <= {"gp per task", "shared gp"}
    lower, upper = model.predict_interval(X, 0.5, groups=school)
    assert lower.shape == upper.shape == found.shape
    assert (lower < upper).all()
    assert model.score(X, np.stack([y, -2 * y], 1), groups=school) > 0.9


def test_targets_are_what_they_can_be():
    X, y, school = schools()
    counts = np.round(np.clip(y - 4, 0, None))
    model = plain(support=(0, None), integer=True).fit(X, counts, groups=school)
    lower, upper = model.predict_interval(X, 0.9, groups=school)
    assert lower.min() == 0
    assert (upper == upper.round()).all()


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_through_a_search_and_a_pipeline():
    X, y, school = schools()
    piped, folds = make_pipeline(StandardScaler(), plain()), GroupKFold(2)
    by_hand = []
    for train, test in folds.split(X, y, school):
        scaled = StandardScaler().fit(X[train])
        one = plain().fit(scaled.transform(X[train]), y[train], groups=school[train])
        by_hand.append(one.score(scaled.transform(X[test]), y[test], groups=school[test]))
    np.testing.assert_allclose(cross_val_score(piped, X, y, cv=folds, params={"groups": school}), by_hand)
    search = GridSearchCV(piped, {"metagpregressor__kernel": ["rbf", "exponential"]}, cv=folds, error_score="raise")
    search.fit(X, y, groups=school)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(by_hand))
    assert search.best_estimator_[-1].groups_ == list(dict.fromkeys(school))
    assert search.best_estimator_.score(X, y, groups=school) > 0.95


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_groups_in_a_column_go_wherever_x_goes(kind, fitted):
    X, y, school = schools()
    frame = kind({"school": school, "age": X[:, 0]})
    model = plain(group="school")
    held_out = cross_val_predict(model, frame, y, cv=GroupKFold(3), groups=school)
    assert np.abs(held_out - y).mean() > 1  # of schools that it has not seen, it does not know the level
    assert np.abs(cross_val_predict(model, frame, y, cv=4) - y).mean() < 0.5
    model.fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), fitted.predict(X, school))
    assert list(model.feature_names_in_) == ["school", "age"]
    assert model.gp_.trained_on_.columns[:2] == (("school",), ("age",))
    numbers = np.column_stack([X[:, 0], np.unique(school, return_inverse=True)[1]])
    again = plain(group=-1).fit(numbers, y)
    np.testing.assert_allclose(again.predict(numbers), model.predict(frame))


def test_what_is_not_right_is_said(fitted):
    X, y, school = schools()
    alone = plain(max_epochs=1).fit(X, y)
    for wrong, match in (
        (lambda: fitted.predict(X), "fitted with groups, and asked without"),
        (lambda: fitted.score(X, y), "fitted with groups"),
        (lambda: alone.predict(X, groups=school), "fitted without groups"),
        (lambda: fitted.predict(X, groups=school[:5]), "5 labels for 96 rows"),
        (lambda: plain().fit(X, y, groups=school[:, None]), r"shape \(96, 1\)"),
        (lambda: fitted.predict(X[:2], groups=["a", None]), "1 rows have no group .the first is row 1"),
        (lambda: fitted.predict(X[:2], groups=pd.array([pd.NA, "b"])), "1 rows have no group .the first is row 0"),
        (lambda: fitted.predict(np.ones((2, 3)), groups=["a", "b"]), "3 features"),
        (lambda: fitted.with_context(X, np.stack([y, y], 1), groups=school), "y has 2 columns"),
        (lambda: fitted.predict_interval(X, 90, groups=school), "level=90"),
        (lambda: plain(group="school").fit(pd.DataFrame({"x": [1.0, 2.0]}), [1, 2]), "no such column. There are x"),
        (lambda: plain(group="school").fit(X, y), "give the position"),
        (lambda: plain(group=1).fit(X, y), "X has 1 columns"),
        (lambda: plain(group=0).fit(X, y), "no column but the groups"),
        (lambda: plain(group="x").fit(pd.DataFrame({"x": [1.0, 2.0]}), [1, 2]), "no column but the groups"),
        (lambda: plain().fit(X, y, groups=[{1}] * len(X)), "cannot be told apart"),
        (lambda: MetaGPRegressor(rungs=("fpca",)).fit(X, y), "rungs: one task leaves nothing to choose by"),
    ):
        with pytest.raises(ValueError, match=match):  # as scikit-learn's own are; so is a DataError
            wrong()
    with pytest.raises(OptionError, match="already"):
        plain(group=0).fit(np.column_stack([X, X]), y, groups=school)
    with pytest.raises(OptionError, match=r"hidden: an option of a prior whose mean or kernel you choose"):
        MetaGPRegressor(hidden=(3,)).fit(X, y, groups=school)
    with pytest.raises(TypeError, match="nonsense"):
        MetaGPRegressor(nonsense=1)


def test_it_is_kept_as_scikit_learn_keeps_things_and_as_a_model_file(fitted, tmp_path):
    X, _, school = schools()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X, school), fitted.predict(X, school))
    fitted.gp_.save(tmp_path / "m.metaprior")
    assert load(tmp_path / "m.metaprior").trained_on_.tasks == GROUPS


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (MetaGP(), "MetaGP()"),
        (MetaGP("deep", "rbf", hidden=(8,)), "MetaGP(mean='deep', kernel='rbf', hidden=(8,))"),
        (MetaGP(kernel="matern", seed=3), "MetaGP(mean='constant', kernel='matern', seed=3)"),
        (MetaGP("linear", seed=3), "MetaGP(mean='linear', kernel='rbf', seed=3)"),
        (MetaGP(budget=5.0), "MetaGP(budget=5.0)"),
        (FPCA(rank=2), "FPCA(rank=2)"),
        (Mixture([2, 3], rank=4), "Mixture(kinds=[2, 3], rank=4)"),
    ],
    ids=str,
)
def test_methods_are_cloned_and_say_what_they_are(method, said):
    again = clone(method)
    assert repr(method) == repr(again) == said
    assert again is not method
    assert again.get_params() == method.get_params()
    assert again.set_params(seed=7).get_params() == method.get_params() | {"seed": 7}


def test_options_that_do_not_go_together_change_nothing():
    gp = clone(MetaGP()).set_params(mean="deep", kernel="deep", hidden=(8,))
    assert repr(gp) == "MetaGP(mean='deep', kernel='deep', hidden=(8,))"
    with pytest.raises(OptionError, match="hidden"):
        gp.set_params(mean=None, kernel=None)
    with pytest.raises(OptionError, match="mena: no option of MetaGP"):
        gp.set_params(mena="deep")
    assert repr(gp) == "MetaGP(mean='deep', kernel='deep', hidden=(8,))"


def test_what_was_learned_stays_until_the_next_fit(fitted):
    gp = copy(fitted.gp_)
    assert gp.set_params(seed=0).method_ is gp.method_
    assert repr(gp.set_params(seed=1)) == "MetaGP(mean='constant', kernel='rbf', seed=1, progress=False)"


def test_the_package_asks_for_nothing_that_only_some_have():
    """And where it is missing, the adapter says what to install."""
    script = """
import sys
sys.modules["sklearn"] = None
import metaprior
assert "metaprior.adapters" not in sys.modules
try:
    import metaprior.adapters.sklearn
except ImportError as error:
    assert "metaprior.adapters.sklearn needs sklearn" in str(error) and "'metaprior[sklearn]'" in str(error), error
else:
    raise SystemExit("imported")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
