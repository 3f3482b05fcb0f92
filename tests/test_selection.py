"""Comparing methods on a user's tasks: what is said follows from tasks that nobody had seen."""

import pickle
import sys
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from metaprior import DataError, OptionError, Tasks, UnknownNameError, paired_difference
from metaprior.methods import METHODS, Entry, GPPerTask, make_method, named_methods
from metaprior.paper import EXPERIMENTS
from metaprior.scoring import evaluate, score
from metaprior.selection import Auto, compare, portrait
from metaprior.selection.compare import BY, CHOSEN
from metaprior.selection.trying import scores_by_setting, try_on
from metaprior.splits import Until, default_sizes, k_folds, random_sizes
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
    tasks = seasons(7)
    method = make_method(name, tasks).fit(tasks)
    context, target = seasons(5, seed=1).context_target(2, seed=0)
    found = score(method.predict(context, target), target)
    assert np.isfinite(found.summary("log_likelihood").mean)
    assert method.trained_on_.tasks == 7


def test_the_choice_is_a_method_too_and_is_told_how_it_will_be_asked():
    contexts = Until("x", 3.0)
    found = make_method("auto", seasons(7), 3, contexts)
    assert isinstance(found, Auto)
    assert found.contexts is contexts
    assert found.seed == 3
    assert not METHODS["auto"].compared  # it takes minutes: only where it is asked for


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
    def bar(label, total, **options):
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
    assert curves["sd"] == pytest.approx(posterior.function.sd[:, 0].numpy(), rel=1e-6)
    assert np.diag(curves["correlation"]) == pytest.approx(1.0)
    assert curves["draws"].shape == (12, 121)
    assert len(curves["epochs"]) == len(gp.training_.checks)
    values, vectors = curves["eigenvalues"], curves["eigenfunctions"]
    assert vectors.shape == (4, 121)
    assert (np.diff(values) <= 0).all()
    assert curves["covariance"] @ vectors.T == pytest.approx(vectors.T * values, abs=1e-6 * values[0])
    assert (vectors.sum(1) > -1e-12).all()  # those that are odd around the middle sum to nothing but rounding
    assert curves["held-out evidence"].tolist() == [check.held_out_evidence for check in gp.training_.checks]


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
        if len(calls) == 4:  # the outer fit of the second fold, after an inner one that went well
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
    inner, outer = Watched.trials[::2], Watched.trials[1::2]
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
    rungs = {m: named_methods(lambda one, m=m: one.suits(m)) for m in (5, 99, 100, 199, 200)}
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
