"""The rules by which rungs go on, are given up and are weighed, on numbers that are made up: nothing is learned."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize

from metaprior import Tasks
from metaprior.methods import METHODS
from metaprior.scoring import Summary
from metaprior.selection import Auto
from metaprior.selection.auto import NEAREST, _because, _inside, _share_below
from metaprior.selection.stacking import (
    LEAST_WEIGHT,
    TOLERATED,
    combined_weights,
    densities,
    drawn_weights,
    least_squares_weights,
    stacking_weights,
)
from metaprior.selection.trials import CANDIDATE, ENOUGH, HOPELESS, JUDGED, LEAST, MATTERS, Plan, Trials, _open
from metaprior.selection.trying import Seen, Values, combined


def values_of(tasks, each=1, seed=0):
    """Values of so many tasks, each of them with so many."""
    owner = torch.arange(tasks).repeat_interleave(each)
    y = torch.from_numpy(np.random.default_rng(seed).normal(size=tasks * each))
    zeros = torch.zeros(tasks * each, dtype=torch.float64)
    return Values(owner, torch.full_like(zeros, 1 / each), y, zeros, torch.ones(tasks), torch.zeros_like(owner))


def said_of(values, density, off=0.0):
    """What a rung said: its log densities, and how far off its means are."""
    density = torch.as_tensor(density, dtype=torch.float64).expand(len(values.y)).clone()
    half = torch.full_like(density, 0.5)
    return Seen(density, half, half, half, values.y + off, torch.zeros(len(values.known), dtype=torch.float64))


def trials_of(values, waves=1, *, racing=True, growing=False, **said):
    """Trials of which so many equal waves have been had."""
    folds = ((SimpleNamespace(train=None, judge=None),),) * 4
    tasks = Tasks.from_pairs([([0.0], [0.0])])
    plan = Plan(tasks, folds, whole=False, racing=racing, growing=growing)
    trials = Trials(plan, lambda tasks: {"first": None}, list(said))
    trials.values = [values] * waves
    trials.seen = {name: [one] * waves for name, one in said.items()}
    return trials


def around(values, middle, spread=0.01):
    """Log densities of a mean and some spread, so that a difference has a standard error."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(len(values.y))[: len(values.y)]
    return middle + spread * signs


def test_a_rung_is_given_up_where_it_is_surely_behind_and_its_error_is_not_the_least():
    values = values_of(40)
    best = said_of(values, around(values, 1.0), off=0.1)
    near, far = (said_of(values, -behind, off=0.2) for behind in (HOPELESS - 1.01, HOPELESS - 0.9))
    exact = said_of(values, -5.0, off=0.05)
    trials = trials_of(values, best=best, near=near, far=far)
    assert trials._worth_it(["best", "near", "far", "untried"], 1) == ["best", "near", "untried"]
    assert trials.running(0) == ["best", "near", "far"]
    assert trials.running(1) == ["best", "near"]
    assert trials._worth_it(["untried"], 1) == ["untried"]
    assert trials_of(values, best=best, exact=exact, far=far).running(1) == ["best", "exact"]
    assert trials_of(values, racing=False, best=best, far=far).running(1) == ["best", "far"]


def test_what_is_not_sure_is_not_given_up():
    values = values_of(40)
    steady = said_of(values, 1.0, off=0.1)
    behind = HOPELESS + 0.1
    # the standard error of ±s over 40 tasks is s / √39; twice that is the doubt
    spread = 0.5 * 0.1 * math.sqrt(39)
    for factor, kept in ((1.05, ["steady", "other"]), (0.95, ["steady"])):
        other = said_of(values, around(values, 1.0 - behind, factor * spread), off=0.2)
        assert trials_of(values, steady=steady, other=other)._worth_it(["steady", "other"], 1) == kept


@pytest.mark.parametrize(("tasks", "kept"), [(LEAST - 1, ["best", "bad"]), (LEAST, ["best"])])
def test_few_tasks_give_no_rung_up(tasks, kept):
    values = values_of(tasks)
    best, bad = said_of(values, around(values, 1.0)), said_of(values, -9.0, off=1.0)
    assert trials_of(values, best=best, bad=bad)._worth_it(["best", "bad"], 1) == kept


def test_from_some_tasks_to_all_go_those_with_a_share_of_density_or_of_error():
    values = values_of(40)
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=40))
    dense = said_of(values, around(values, 1.0), off=noise)
    exact = said_of(values, around(values, 0.95), off=0.01 * noise)
    neither = said_of(values, around(values, 0.9), off=2 * noise)
    trials = trials_of(values, growing=True, dense=dense, exact=exact, neither=neither)
    shares = drawn_weights(densities({"a": dense, "b": exact, "c": neither}, values), values)
    assert [bool(one) for one in shares >= CANDIDATE] == [True, False, False]
    assert trials.running(0) == ["dense", "exact", "neither"]
    assert trials.running(1) == ["dense", "exact"]
    hopeless = said_of(values, around(values, 0.5), off=0.01 * noise)
    least = said_of(values, around(values, 0.95), off=0.01 * noise + 0.001 * noise.square())
    assert trials_of(values, growing=True, dense=dense, x=hopeless, y=least).running(1)[:1] == ["dense"]
    assert trials_of(values, growing=True, dense=dense).running(1) == ["dense"]


def test_waves_end_where_more_tasks_would_not_change_the_choice():
    few, some, many = values_of(JUDGED - 1), values_of(JUDGED), values_of(ENOUGH)

    def decided(values, middle, spread):
        best, other = said_of(values, 1.0, off=0.1), said_of(values, around(values, 1.0 - middle, spread), off=0.1)
        return trials_of(values, best=best, other=other)._decided(0)

    error = 3 * MATTERS  # of the difference, with this spread
    spread = error * math.sqrt(JUDGED - 1)
    assert decided(some, 2 * error, spread)
    assert not decided(some, error / 2, spread)
    assert decided(some, MATTERS / 2, spread)
    assert not decided(few, 2 * error, spread)
    assert decided(many, error / 2, error * math.sqrt(ENOUGH - 1))
    assert trials_of(some)._decided(0)
    assert not trials_of(many, growing=True, a=said_of(many, 1.0))._decided(0)


def test_what_is_open_is_behind_by_something_that_matters_but_not_surely():
    assert _open(Summary(0.05, 0.06, 10))
    assert not _open(Summary(0.05, 0.04, 10))
    assert not _open(Summary(MATTERS, 1.0, 10))
    assert not _open(Summary(0.05, None, 1))


def test_waves_in_common_and_what_was_said_in_them():
    values = values_of(40)
    trials = trials_of(values, waves=2, a=said_of(values, 1.0), b=said_of(values, 0.99))
    trials.seen["b"].pop()
    assert trials.done == 1
    assert {name: len(one.density) for name, one in trials.complete().items()} == {"a": 40, "b": 40}
    assert len(trials.known(2).y) == 80
    assert len(trials.said("a", 2).density) == 80
    growing = trials_of(values, waves=2, growing=True, a=said_of(values, 1.0))
    assert len(growing.known(2).y) == len(growing.said("a", 2).density) == 40
    assert trials_of(values, waves=1).complete() == {}


def test_a_task_counts_as_one_however_many_values_it_has():
    values = Values(
        torch.tensor([0, 0, 2]),
        torch.tensor([0.25, 0.75, 0.5], dtype=torch.float64),
        *(torch.zeros(3, dtype=torch.float64) for _ in range(2)),
        torch.zeros(2),
        torch.zeros(3),
    )
    assert values.per_task(torch.tensor([1.0, 2.0, 7.0], dtype=torch.float64)).tolist() == [1.75, 7.0]


def test_weights_are_those_under_which_values_are_most_probable():
    rng = np.random.default_rng(3)
    log_density, weight = torch.from_numpy(rng.normal(size=(60, 3))), torch.from_numpy(rng.uniform(0.5, 1, 60))
    found = stacking_weights(log_density, weight)

    def surprise(free):
        shares = np.exp(np.append(free, 0.0))
        return -float(np.log(np.exp(log_density.numpy()) @ (shares / shares.sum())) @ weight.numpy())

    best = np.exp(np.append(optimize.minimize(surprise, np.zeros(2), tol=1e-12).x, 0.0))
    assert found.numpy() == pytest.approx(best / best.sum(), abs=2e-3)
    both = stacking_weights(log_density, torch.stack([weight, torch.ones_like(weight)]))
    assert both[0].numpy() == pytest.approx(found.numpy(), abs=1e-4)
    assert both.shape == (2, 3)


def test_weights_of_the_least_squared_error():
    rng = np.random.default_rng(4)
    y, weight = torch.from_numpy(rng.normal(size=50)), torch.from_numpy(rng.uniform(0.1, 1, 50))
    means = y[:, None] + torch.from_numpy(rng.normal(size=(50, 3)) * [0.5, 1.0, 3.0] + [0.2, -0.3, 0.0])
    found = least_squares_weights(means, y, weight)

    def error(shares):
        return float((weight * (means @ torch.from_numpy(shares) - y).square()).sum())

    sums_to_one = {"type": "eq", "fun": lambda shares: shares.sum() - 1}
    best = optimize.minimize(error, np.full(3, 1 / 3), bounds=[(0, 1)] * 3, constraints=sums_to_one, tol=1e-14)
    assert found.numpy() == pytest.approx(best.x, abs=1e-4)
    assert float(found.sum()) == pytest.approx(1.0)


def test_a_combination_moves_to_the_least_error_only_as_far_as_it_has_to():
    values = values_of(400)
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(2, 400)))
    dense, exact = said_of(values, 1.0, off=0.6 * noise[0]), said_of(values, 0.0, off=0.3 * noise[1])
    weights = combined_weights({"dense": dense, "exact": exact}, values)
    means = torch.stack([dense.mean, exact.mean], 1)
    best = least_squares_weights(means, values.y, values.weight)
    least = (means @ best - values.y).square()

    def allowed(weights):
        more = (means @ weights - values.y).square() - least
        return bool(more.mean() <= max(more.std() / math.sqrt(400), TOLERATED * least.mean()))

    assert float(best[0]) < float(weights[0]) < 1
    assert allowed(weights)
    step = (torch.tensor([1.0, 0.0], dtype=torch.float64) - best) / 20
    assert not allowed(weights + step)


def test_a_method_of_little_weight_has_none():
    values = values_of(200)
    rare = torch.where(torch.arange(200) == 0, 6.0, -1.0).double()  # the best of one value alone
    noise = torch.from_numpy(np.random.default_rng(6).normal(size=200))
    seen = {"usual": said_of(values, 0.0, off=noise), "rare": said_of(values, rare, off=noise)}
    raw = drawn_weights(densities(seen, values), values)
    assert 0 < float(raw[1]) < LEAST_WEIGHT
    assert combined_weights(seen, values).tolist() == [1.0, 0.0]


def test_what_a_mixture_says_is_the_mixture_of_what_its_parts_say():
    values = values_of(5)
    a = said_of(values, 1.0, off=0.5)
    b = Seen(a.density - 1, a.cdf / 2, a.below / 4, a.above / 5, a.mean + 1, a.evidence - 2)
    mixed = combined({"a": a, "b": b}, {"a": 0.25, "b": 0.75})
    assert mixed.density.tolist() == pytest.approx([math.log(0.25 * math.e + 0.75)] * 5)
    assert mixed.cdf.tolist() == pytest.approx([0.25 * 0.5 + 0.75 * 0.25] * 5)
    assert mixed.below.tolist() == pytest.approx([0.25 * 0.5 + 0.75 * 0.125] * 5)
    assert mixed.above.tolist() == pytest.approx([0.25 * 0.5 + 0.75 * 0.1] * 5)
    assert mixed.mean.tolist() == pytest.approx((a.mean + 0.75).tolist())
    assert mixed.evidence.tolist() == pytest.approx([math.log(0.25 + 0.75 * math.exp(-2))] * 5)


def test_what_is_chosen_is_told_with_its_coverage_and_scores():
    """Of two settings: values of the first are all inside, of the second half."""
    values = values_of(100, each=2)
    setting = torch.tensor([0, 1]).repeat(100)
    values = Values(values.task, values.weight, values.y, values.step, torch.tensor([2, 0] * 100), setting)
    cdf = torch.where((setting == 1) & (values.task % 2 == 0), 0.04, 0.5).double()
    evidence = torch.arange(200, dtype=torch.float64)
    good = Seen(torch.full_like(cdf, 1.0), cdf, cdf, cdf, values.y + 0.5, evidence)
    bad = Seen(torch.full_like(cdf, -3.0), cdf, cdf, cdf, values.y + 2.0, evidence - 1)
    auto = Auto()
    auto._choose({"good": good, "bad": bad}, values, ["near", "far"])
    assert auto.chosen_ == {"good": 1.0}
    assert auto.why_.startswith("good alone")
    assert auto.coverage_[0] == pytest.approx(0.75)
    right = auto.calibration_.probability(cdf)
    assert auto.coverage_[1] == pytest.approx(float((2 * (right - 0.5).abs() <= 0.9).double().mean()))
    tried = {one.name: one for one in auto.tried_}
    assert (tried["good"].density.mean, tried["bad"].density.mean) == (1.0, -3.0)
    assert (tried["good"].behind.mean, tried["bad"].behind.mean) == (0.0, 4.0)
    assert (tried["good"].mse, tried["bad"].mse) == pytest.approx((0.25, 4.0))
    assert tried["good"].density.tasks == 100
    assert auto.scores_["near"]["coverage"]["50"] == 1.0
    assert auto.scores_["far"]["coverage"]["50"] == pytest.approx(0.5)
    assert auto.scores_["far"]["coverage_90"]["mean"] == auto.scores_["far"]["coverage"]["90"]
    assert auto.scores_["near"]["mse"]["mean"] == pytest.approx(0.25)
    usual, sizes = auto.usual_
    assert usual.tolist() == [one / 2 for one in range(0, 200, 2)]  # of contexts with points, per value
    assert sizes.tolist() == [2] * 100


def test_a_combination_says_what_it_gains():
    chosen = {"a": 0.4, "b": 0.6}
    assert "+0.250 ± 0.125 from that of the best alone, b" in _because(chosen, "b", Summary(0.25, 0.125, 9))
    assert _because({"a": 1.0}, "a", Summary(0.0, None, 1)).startswith("a alone")


def test_how_usual_a_context_is_is_told_by_those_of_its_size():
    known = torch.tensor([1] * NEAREST + [50] * NEAREST)
    usual = torch.cat([torch.arange(NEAREST), torch.arange(NEAREST) + 1000]).double()
    surprise = torch.tensor([-1.0, 5.5, 1e9, 5.5, 1004.5], dtype=torch.float64)
    found = _share_below(surprise, torch.tensor([1, 1, 2, 50, 40]), usual, known)
    wanted = [1, 7, NEAREST + 1, 1, 6]
    assert found.tolist() == pytest.approx([one / (NEAREST + 1) for one in wanted])
    assert _share_below(surprise, known[:5], usual[:0], known[:0]).tolist() == [1.0] * 5


def test_a_central_interval_has_its_ends():
    cdf = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.76], dtype=torch.float64)
    assert _inside(cdf, 50).tolist() == [0, 1, 1, 1, 0]
    assert _inside(cdf, 90).tolist() == [1, 1, 1, 1, 1]


def test_what_the_choice_takes_is_in_the_table():
    assert METHODS["auto"].takes_task_x
