"""The rules by which rungs go on, are given up and are weighed, on numbers that are made up: nothing is learned."""

import dataclasses
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from metaprior import DataError, Tasks
from metaprior.inference import Calibration, IndependentGaussians
from metaprior.methods import METHODS, Entry, GPPerTask
from metaprior.scoring import Summary
from metaprior.selection import Auto
from metaprior.selection import trials as trials_module
from metaprior.selection.auto import NEAREST, AutoConditional, _all_tried, _because, _share_below
from metaprior.selection.stacking import (
    DRAWS,
    ERROR_TOLERANCE,
    LEAST_WEIGHT,
    MAX_DEFICIT,
    ROUGHLY,
    _is_less_probable,
    combined_weights,
    densities,
    drawn_weights,
    least_squares_weights,
    stacking_weights,
)
from metaprior.selection.trials import (
    CANDIDATE,
    ENOUGH,
    GAINS,
    HOPELESS,
    JUDGED,
    LEAST,
    MANY,
    MATTERS,
    OF_ERROR,
    RANKED,
    SMALL,
    Plan,
    Trials,
    _first,
    _open,
)
from metaprior.selection.trying import Question, Seen, Values, combined
from metaprior.splits import Given, random_sizes


def values_of(tasks, each=1, seed=0):
    """Values of so many tasks, each of them with so many."""
    owner = torch.arange(tasks).repeat_interleave(each)
    y = torch.from_numpy(np.random.default_rng(seed).normal(size=tasks * each))
    zeros = torch.zeros(tasks * each, dtype=torch.float64)
    ones, none = torch.ones(tasks), torch.zeros_like(owner)
    return Values(owner, torch.full_like(zeros, 1 / each), y, ones, none, none)


def said_of(values, density, off=0.0):
    """What a rung said: its log densities, and how far off its means are."""
    density = torch.as_tensor(density, dtype=torch.float64).expand(len(values.y)).clone()
    median = torch.zeros_like(density)
    evidence = torch.zeros(len(values.known), dtype=torch.float64)
    return Seen(density, *[median] * 4, values.y + off, evidence)


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
    always = said_of(values, -1.0, off=0.2)  # behind by the same everywhere: nothing could be surer
    assert trials_of(values, best=said_of(values, 1.0, off=0.1), always=always).running(1) == ["best"]


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
    shares = drawn_weights(densities({"a": dense, "b": exact, "c": neither}), values, 0)
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
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(2),
        torch.zeros(3),
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
    shifts = torch.from_numpy(rng.uniform(-2000, 2000, 60))  # values that nobody, or everybody, finds likely
    assert stacking_weights(log_density + shifts[:, None], weight).numpy() == pytest.approx(found.numpy(), abs=1e-9)


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


def test_weights_move_towards_the_least_error_while_the_log_density_ties():
    values = values_of(400)
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(3, 400)))
    dense = said_of(values, 0.4 * noise[2], off=0.6 * noise[0])
    exact = said_of(values, 0.4 * noise[2].roll(1), off=0.3 * noise[1])  # as probable, and nearer
    weights = combined_weights({"dense": dense, "exact": exact}, values, 0)
    means = torch.stack([dense.mean, exact.mean], 1)
    least = least_squares_weights(means, values.y, values.weight)
    more = (means @ weights - values.y).square() - (means @ least - values.y).square()
    by_density = drawn_weights(densities({"dense": dense, "exact": exact}), values, 0)
    assert float(least[0]) < float(weights[0]) < float(by_density[0])
    assert more.mean() <= (means @ least - values.y).square().mean() * (1 + ERROR_TOLERANCE)


def test_a_lower_squared_error_does_not_pay_for_a_lower_log_density():
    """One candidate is surely more probable, the other has a quarter of its squared error."""
    values = values_of(400)
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(2, 400)))
    seen = {
        "dense": said_of(values, around(values, 1.0), off=0.6 * noise[0]),
        "exact": said_of(values, 0.0, off=0.3 * noise[1]),
    }
    assert combined_weights(seen, values, 0).tolist() == [1.0, 0.0]


def test_a_method_of_little_weight_has_none():
    values = values_of(200)
    rare = torch.where(torch.arange(200) == 0, 6.0, -1.0).double()  # the best of one value alone
    noise = torch.from_numpy(np.random.default_rng(6).normal(size=200))
    seen = {"usual": said_of(values, 0.0, off=noise), "rare": said_of(values, rare, off=noise)}
    raw = drawn_weights(densities(seen), values, 0)
    assert 0 < float(raw[1]) < LEAST_WEIGHT
    assert combined_weights(seen, values, 0).tolist() == [1.0, 0.0]


def test_what_a_mixture_says_is_the_mixture_of_what_its_parts_say():
    values = values_of(5)
    a = said_of(values, 1.0, off=0.5)
    scores = (score + shift for score, shift in zip((a.below, a.upto, a.start, a.end), (-1, 40, -50, 2), strict=True))
    b = Seen(a.density - 1, *scores, a.mean + 1, a.evidence - 2)
    mixed = combined({"a": a, "b": b}, {"a": 0.25, "b": 0.75})
    assert mixed.density.tolist() == pytest.approx([math.log(0.25 * math.e + 0.75)] * 5)
    for name, shift in (("below", -1), ("upto", 40), ("start", -50), ("end", 2)):
        expected = stats.norm.ppf(0.25 * 0.5 + 0.75 * stats.norm.cdf(shift))
        assert getattr(mixed, name).tolist() == pytest.approx([expected] * 5)
    assert [part.tolist() for part in mixed.pit] == [
        pytest.approx([stats.norm.cdf(float(score[0]))] * 5) for score in (mixed.below, mixed.upto)
    ]
    assert mixed.mean.tolist() == pytest.approx((a.mean + 0.75).tolist())
    assert mixed.evidence.tolist() == pytest.approx([math.log(0.25 + 0.75 * math.exp(-2))] * 5)


def test_what_is_chosen_is_told_with_its_coverage_and_scores():
    """Of two settings: values of the first are all inside, of the second half."""
    values = values_of(100, each=2)
    setting = torch.tensor([0, 1]).repeat(100)
    values = dataclasses.replace(values, known=torch.tensor([2, 0] * 100), setting=setting)
    cdf = torch.where((setting == 1) & (values.task % 2 == 0), 0.04, 0.5).double()
    evidence, scores = torch.arange(200, dtype=torch.float64), [torch.special.ndtri(cdf)] * 4
    good = Seen(torch.full_like(cdf, 1.0), *scores, values.y + 0.5, evidence)
    bad = Seen(torch.full_like(cdf, -3.0), *scores, values.y + 2.0, evidence - 1)
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


def test_the_reason_of_a_choice_names_the_criterion_that_decided():
    chosen = {"a": 0.4, "b": 0.6}
    gain = "+0.250 ± 0.125 from that of the best candidate alone, b."
    assert _because(chosen, "b", Summary(0.25, 0.125, 9)).endswith(gain)
    assert "a tie within a standard error" in _because(chosen, "b", Summary(-0.1, 0.125, 9))
    assert "squared error" in _because({"a": 1.0}, "b", Summary(-0.1, 0.125, 9))
    assert _because({"a": 1.0}, "a", Summary(0.0, None, 1)).startswith("a alone")


@pytest.mark.parametrize(("error", "single"), [(0.31, True), (0.1, False)])
def test_an_ensemble_of_lower_density_is_taken_for_its_error_alone(error, single):
    """Two candidates share the weight, and together are half a standard error behind the first one.

    error: of the second one's means, where that of the first one's is 0.3.
    """
    values = values_of(40)
    gaps = 0.1 * np.random.default_rng(0).normal(size=40)
    gaps = torch.from_numpy(gaps - gaps.mean() + 0.8 * gaps.std(ddof=1) / math.sqrt(40))
    first, second = said_of(values, 0.0, off=0.3), said_of(values, -gaps[values.task], off=error)
    seen = {"first": first, "second": second}
    shares = drawn_weights(densities(seen), values, 0)
    assert float(shares.min()) > 0.1
    assert float(combined(seen, dict(zip(seen, shares.tolist(), strict=True))).density.mean()) < 0
    auto = Auto()
    auto._choose(seen, values, ["1"])
    if single:
        assert auto.chosen_ == {"first": 1.0}
        assert auto.why_.startswith("first alone")
    else:
        assert auto.chosen_["second"] > 0.1
        assert auto.why_.endswith("a tie within a standard error, and its squared error is lower.")


def test_how_usual_a_context_is_is_told_by_those_of_its_size():
    known = torch.tensor([1] * NEAREST + [50] * NEAREST)
    usual = torch.cat([torch.arange(NEAREST), torch.arange(NEAREST) + 1000]).double()
    surprise = torch.tensor([-1.0, 5.5, 1e9, 5.5, 1004.5], dtype=torch.float64)
    found = _share_below(surprise, torch.tensor([1, 1, 2, 50, 40]), usual, known)
    wanted = [1, 7, NEAREST + 1, 1, 6]
    assert found.tolist() == pytest.approx([one / (NEAREST + 1) for one in wanted])
    assert _share_below(surprise, known[:5], usual[:0], known[:0]).tolist() == [1.0] * 5


def test_what_the_choice_takes_is_in_the_table():
    assert METHODS["auto"].takes_task_x


def at_random(tasks=30, rungs=3, seed=0):
    """What rungs said of values of which tasks have unequal numbers, in two settings; every second is rounded."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.append(np.arange(tasks), rng.integers(0, tasks, 2 * tasks)))
    count = len(owner)
    y, step = rng.normal(size=count), np.where(np.arange(count) % 2, 0.5, 0.0)
    known = torch.from_numpy(rng.integers(0, 4, tasks))
    setting = torch.from_numpy(rng.integers(0, 2, count))
    numbers = (torch.from_numpy(one) for one in (rng.uniform(0.1, 1, count), y))
    values, seen = Values(torch.from_numpy(owner), *numbers, known, setting, torch.from_numpy(owner % 3)), {}
    for k in range(rungs):
        said = stats.norm(y + rng.normal(0, 0.5 + 0.05 * k, count), rng.uniform(0.5, 1.5, count))
        mass = np.log((said.cdf(y + step / 2) - said.cdf(y - step / 2)) / np.where(step > 0, step, np.nan))
        at, start, end = (stats.norm.ppf(said.cdf(y + gap)) for gap in (0, -step / 2, step / 2))
        parts = (np.where(step > 0, mass, said.logpdf(y)), at, at, start, end, said.mean())
        evidence = rng.normal(size=tasks)
        evidence[k % tasks] = -math.inf
        seen[f"rung {k}"] = Seen(*map(torch.from_numpy, (*parts, evidence)))
    return seen, values


def by_task(values, numbers, where=None):
    """Weighted means of tasks, one after the other."""
    found = []
    for task in sorted(set(values.task.tolist())):
        rows = [i for i, own in enumerate(values.task.tolist()) if own == task and (where is None or where[i])]
        weight = [float(values.weight[i]) for i in rows]
        if rows:
            found.append(sum(w * float(numbers[i]) for w, i in zip(weight, rows, strict=True)) / sum(weight))
    return np.array(found)


def error_of(numbers):
    return numbers.std(ddof=1) / math.sqrt(len(numbers)) if len(numbers) > 1 else 0.0


def told_by(numbers):
    return pytest.approx((numbers.mean(), error_of(numbers), len(numbers)))


@pytest.mark.parametrize("seed", [0, 1])
def test_all_that_is_told_of_a_choice_is_what_loops_over_tasks_give(seed):
    seen, values = at_random(seed=seed)
    auto = Auto()
    auto._choose(seen, values, ["near", "far", "never"])
    density = {name: by_task(values, one.density) for name, one in seen.items()}
    best = max(density, key=lambda name: density[name].mean())
    for one in auto.tried_:
        assert one.density == told_by(density[one.name])
        assert one.behind[::2] == pytest.approx(((density[best] - density[one.name]).mean(), 30))
        assert one.mse == pytest.approx(by_task(values, (seen[one.name].mean - values.y) ** 2).mean())
    shares = combined_weights(seen, values, 0).tolist()
    assert auto.chosen_ == {name: share for name, share in zip(seen, shares, strict=True) if share > 0}
    assert len(auto.chosen_) > 1
    chosen = combined(seen, auto.chosen_)
    gain = by_task(values, chosen.density) - density[best]
    found = re.search(r"is (\S+) ± (\S+) from that of the best candidate alone, ([^.:]*)", auto.why_)
    assert [float(found[1]), float(found[2])] == pytest.approx(told_by(gain).expected[:2], abs=5e-4)
    assert found[3] == best
    assert auto.calibration_ == Calibration.of(chosen.pit[1], values.weight, 30)
    usual = [(float(e) / n, n) for e, n in zip(chosen.evidence, values.known.tolist(), strict=True) if n]
    assert torch.stack(auto.usual_, 1).numpy() == pytest.approx(np.array(usual))
    # scores: fold by fold, with weights and recalibration of the other folds
    before, after = {}, {}
    for fold in range(3):
        here = values.fold == fold
        others, rest = {name: one.some(~here) for name, one in seen.items()}, values.some(~here)
        shares = combined_weights(others, rest, 0).tolist()
        weights = {name: share for name, share in zip(seen, shares, strict=True) if share > 0}
        recalibration = Calibration.of(combined(others, weights).pit[1], rest.weight, 20)
        ensemble = combined({name: one.some(here) for name, one in seen.items()}, weights)
        for found, one in ((before, ensemble), (after, ensemble.calibrated(recalibration))):
            rows = zip(
                *(getattr(one, part).tolist() for part in ("density", "below", "upto", "start", "end", "mean")),
                strict=True,
            )
            found |= dict(zip(torch.nonzero(here)[:, 0].tolist(), rows, strict=True))
    chosen, right = (
        Seen(*torch.tensor([found[k] for k in range(len(values.y))], dtype=torch.float64).unbind(1), chosen.evidence)
        for found in (before, after)
    )

    def inside(one, level, where=None):
        return by_task(values, [abs(cdf - 0.5) <= level / 200 for cdf in one.pit[1].tolist()], where).mean()

    assert auto.coverage_ == pytest.approx((inside(chosen, 90), inside(right, 90)))
    assert list(auto.scores_) == ["near", "far"]
    for k, name in enumerate(auto.scores_):
        where, told = (values.setting == k).tolist(), auto.scores_[name]
        assert tuple(told["log_likelihood"].values()) == told_by(by_task(values, right.density, where))
        assert tuple(told["mse"].values()) == told_by(by_task(values, (right.mean - values.y) ** 2, where))
        assert told["coverage"] == pytest.approx({str(n): inside(right, n, where) for n in range(10, 100, 10)})
        assert told["coverage_90"] == {"mean": told["coverage"]["90"], "stderr": None}


def test_evidence_that_is_not_finite_is_no_usual_one():
    seen, values = at_random(rungs=1)
    auto = Auto()
    auto._choose(seen, values, ["near", "far"])
    wanted = [i for i in range(1, 30) if values.known[i] > 0]  # the first is not finite
    assert auto.usual_[1].tolist() == values.known[wanted].tolist()
    assert auto.usual_[0].tolist() == pytest.approx((seen["rung 0"].evidence / values.known)[wanted].tolist())


def test_what_was_given_up_is_told_beside_the_best_on_the_same_tasks():
    seen, values = at_random()
    other, later = at_random(seed=5)
    trials = trials_of(values, **seen)
    trials.values.append(later)
    for name in ("rung 0", "rung 1"):
        trials.seen[name].append(other[name])
    trials.seconds = {"rung 0": 1.0, "rung 1": 2.0, "rung 2": 3.0}
    trials.running = lambda wave: ["rung 0", "rung 1"]  # the last was given up after the first wave
    auto = Auto()
    auto._choose(trials.complete(), trials.known(2), ["near", "far"])
    assert [len(by) for by in (trials.known(2).y, trials.known(1).y)] == [180, 90]
    best = max(auto.tried_, key=lambda one: one.density.mean).name
    found = {one.name: one for one in _all_tried(trials, auto.tried_)}
    assert [one.seconds for one in found.values()] == [1.0, 2.0, 3.0]
    for name, (about, said, beside) in {
        "rung 1": (trials.known(2), trials.said("rung 1", 2), trials.said(best, 2)),
        "rung 2": (values, seen["rung 2"], seen[best]),
    }.items():
        own, least = (by_task(about, one.density) for one in (said, beside))
        assert found[name].density == told_by(own)
        assert found[name].behind.mean == pytest.approx((least - own).mean())


def test_how_usual_a_context_is_is_what_loops_give():
    rng = np.random.default_rng(0)
    known, sizes = torch.from_numpy(rng.integers(1, 40, 150)), torch.from_numpy(rng.integers(1, 60, 20))
    usual, surprise = torch.from_numpy(rng.normal(size=150)), torch.from_numpy(rng.normal(size=20))
    for count in (150, NEAREST, 7):
        found = _share_below(surprise, sizes, usual[:count], known[:count])
        for own, size, share in zip(surprise.tolist(), sizes.tolist(), found.tolist(), strict=True):
            ratios = [max(size / n, n / size) for n in known[:count].tolist()]
            reach = sorted(ratios)[min(NEAREST, count) - 1] * (1 + 1e-12)
            near = [float(usual[k]) for k in range(count) if ratios[k] <= reach]
            assert share == pytest.approx((1 + sum(one < own for one in near)) / (1 + len(near)))


def test_plausibility_is_of_evidence_per_value():
    """Of contexts of two targets; one without points is as usual as can be, and so are all without evidence."""
    pairs = [(np.arange(n), np.zeros((n, 2))) for n in (4, 1, 2)]
    context = Tasks.from_pairs(pairs).context_target(where=lambda x: x[:, 0] > 0).context  # of 3, 0 and 1 points
    evidence = SimpleNamespace(total=torch.tensor([-12.0, 0.0, -1.0], dtype=torch.float64))
    usual = torch.tensor([-3.0, -1.5, -1.0, 0.0], dtype=torch.float64), torch.tensor([6, 6, 2, 2])
    device = torch.device("cpu")
    inner = SimpleNamespace(context=context, evidence=evidence, device=device)
    found = AutoConditional(inner, Calibration.identity(), usual).plausibility
    # -2 and -0.5 per value: one and three of four are below
    assert found.tolist() == pytest.approx([2 / 5, 1.0, 4 / 5])
    blind = SimpleNamespace(context=context, evidence=None, device=device)
    assert AutoConditional(blind, Calibration.identity(), usual).plausibility.tolist() == [1.0] * 3


@pytest.mark.parametrize("seed", [0, 7])
def test_drawn_weights_are_the_mean_over_draws_of_tasks(seed):
    """Against EM as it is in books, draw by draw."""
    seen, values = at_random()
    found = densities(seen)
    for column, one in zip(found.unbind(1), seen.values(), strict=True):
        assert column.numpy() == pytest.approx(one.density)
    shares = np.random.default_rng(seed).dirichlet(np.ones(30), DRAWS)
    likely, total = found.exp().numpy(), np.zeros(3)
    for draw in shares:
        weight = values.weight.numpy() * draw[values.task.numpy()]
        mixed = np.full(3, 1 / 3)
        for _ in range(ROUGHLY):
            belongs = likely * mixed / (likely @ mixed)[:, None]
            mixed = weight @ belongs / weight.sum()
        total += mixed / DRAWS
    assert drawn_weights(found, values, seed).numpy() == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(("tasks", "seed"), [(12, 0), (12, 1), (52, 2), (52, 3), (1, 4)])
def test_combined_weights_follow_their_rules(tasks, seed):
    """Step by step: towards the least error while densities tie, without small ones, or the best alone."""
    seen, values = at_random(tasks, rungs=4, seed=seed)
    names, means = list(seen), np.stack([one.mean.numpy() for one in seen.values()], 1)
    found = densities(seen)
    dense = drawn_weights(found, values, seed).numpy()
    exact = least_squares_weights(torch.from_numpy(means), values.y, values.weight).numpy()

    def error(weights):
        return by_task(values, (means @ weights - values.y.numpy()) ** 2)

    def density(weights):
        return by_task(values, np.log(np.exp(found.numpy()) @ weights))

    def less_probable(weights, other):
        lost = density(other) - density(weights)
        return tasks > 1 and lost.mean() > MAX_DEFICIT * error_of(lost)

    alone = max(np.eye(len(names)), key=lambda one: density(one).mean())
    best = max((alone, dense), key=lambda one: density(one).mean())
    weights = dense
    for k in range(21):
        moved = dense + k / 20 * (exact - dense)
        if k > 0 and less_probable(moved, best):
            break
        weights = moved
        more = error(weights) - error(exact)
        if more.mean() <= max(error_of(more), ERROR_TOLERANCE * error(exact).mean()):
            break
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    worse = density(weights).mean() < density(alone).mean() and error(weights).mean() >= error(alone).mean()
    wanted = alone if worse or less_probable(weights, alone) else weights
    assert combined_weights(seen, values, seed).numpy() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(("deficit", "single"), [(1.05, True), (0.95, False)])
def test_the_best_candidate_alone_is_taken_where_the_ensemble_is_behind_by_a_standard_error(deficit, single):
    """deficit: of the ensemble, in standard errors. Its squared error is lower in either case."""
    values = values_of(50)
    lost = around(values, 0.01, 0.01 * math.sqrt(49) / (deficit * MAX_DEFICIT))
    density = torch.stack([(2 * (-lost).exp() - 1).log(), torch.zeros(50).double()], 1)
    half, alone = (torch.tensor(shares, dtype=torch.float64) for shares in ([0.5, 0.5], [0.0, 1.0]))
    assert _is_less_probable(half, alone, density, values) == single
    one = values_of(1)
    assert not _is_less_probable(half, alone, torch.tensor([[-9.0, 0.0]]).double(), one)  # one task has no error


def test_a_plan_by_the_number_of_tasks_and_rows():
    def plan(count, rows, thorough=False):
        sizes = [rows // count + (k < rows % count) for k in range(count)]
        return Plan.of(Tasks.from_pairs([(np.zeros((n, 1)), np.zeros((n, 1))) for n in sizes]), 0, thorough)

    def shape(one):
        return [len(wave) for wave in one.waves], one.whole, one.racing, one.growing

    small, folded = ([5], True, True, False), ([1] * 4, False, True, False)
    assert shape(plan(MANY - 1, SMALL)) == small
    assert shape(plan(MANY - 1, SMALL + 1)) == ([1] * 5, False, True, False)
    assert shape(plan(MANY, MANY)) == folded
    assert shape(plan(RANKED, RANKED)) == folded
    assert shape(plan(RANKED + 1, RANKED + 1)) == ([1, 1], False, True, True)
    assert shape(plan(RANKED + 1, RANKED + 1, thorough=True)) == ([1] * 4, False, False, False)
    assert shape(plan(20, 20, thorough=True)) == ([5], True, False, False)
    (ranked,), (last,) = plan(1_000, 1_000).waves
    assert (len(ranked.judge), len(ranked.train)) == (RANKED // 4, RANKED - RANKED // 4)
    assert (len(last.judge), len(last.train)) == (200, 800)


def test_rounds_are_those_until_enough_tasks_are_judged():
    def rounds(*judged, **options):
        waves = tuple((SimpleNamespace(judge=range(n)),) for n in judged)
        return Plan(None, waves, **{"whole": False, "racing": True} | options).rounds

    assert rounds(5, 5, 5) == 4
    assert rounds(5, 5, 5, whole=True) == 3
    assert rounds(ENOUGH // 2, ENOUGH // 2, 5, 5) == 3
    assert rounds(ENOUGH // 2, ENOUGH // 2 - 1, 5, 5) == 4
    assert rounds(ENOUGH, ENOUGH, ENOUGH, racing=False) == 4
    assert rounds(ENOUGH, 5, growing=True) == 2
    folds = tuple(SimpleNamespace(judge=range(ENOUGH // 3)) for _ in range(3))
    assert Plan(None, (folds, folds), whole=False, racing=True).rounds == 2


def test_the_first_tasks_are_those_of_clusters_that_begin_within_a_number():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 40).tolist()
    tasks = Tasks.from_pairs([([0.0], [0.0])] * 40).with_clusters(labels)
    for most in (1, 13, 26, 40):
        wanted, units = [], tasks.units.tolist()
        for unit in tasks.shuffled(3).tolist():
            if len(wanted) < most:
                wanted += [k for k in range(40) if units[k] == unit]
        assert _first(tasks, most, 3).tolist() == sorted(wanted)


def test_on_a_gpu_learns_what_gains_from_it(monkeypatch):
    class Moved(GPPerTask):
        where = "here"

        def to(self, device):
            self.where = device
            return self

    monkeypatch.setitem(METHODS, "moved", Entry(lambda *asked: Moved(), rung=True))
    trials = trials_of(values_of(1), moved=None)
    trials.device = "there"
    few, many = (Tasks.from_pairs([(np.zeros((n, 1)), np.zeros((n, 1)))]) for n in (GAINS - 1, GAINS))
    assert [trials._made("moved", tasks).where for tasks in (few, many)] == ["here", "there"]


def test_what_was_kept_is_taken_up_again_unless_a_probability_is_none():
    seen, values = at_random()
    before = trials_of(values, **seen)
    before.seconds, before.left_out = {"rung 0": 3.0}, {"rung 9": "why"}
    again = trials_of(values)
    again._resume(SimpleNamespace(read=before._kept))
    assert again._kept().keys() == before._kept().keys()
    for name in ("seconds", "left_out"):
        assert getattr(again, name) == getattr(before, name)
    assert list(again.seen) == list(seen)
    for field in dataclasses.fields(Seen):
        assert torch.equal(getattr(again.seen["rung 1"][0], field.name), getattr(seen["rung 1"], field.name))
    for field in dataclasses.fields(Values):
        assert torch.equal(getattr(again.values[0], field.name), getattr(values, field.name))
    assert again.resumed
    for nothing in (None, SimpleNamespace(read=lambda: None), SimpleNamespace(read=trials_of(values)._kept)):
        fresh = trials_of(values)
        fresh._resume(nothing)
        assert not fresh.resumed
    for name in ("below", "upto", "start", "end"):
        for wrong in (-math.inf, 40.0, math.inf, math.nan):
            one = getattr(seen["rung 2"], name).clone()
            one[7] = wrong
            before.seen["rung 2"] = [dataclasses.replace(seen["rung 2"], **{name: one})]
            file = SimpleNamespace(read=before._kept)
            if wrong == wrong:
                trials_of(values)._resume(file)
            else:
                with pytest.raises(ValueError, match="a normal score that is none"):
                    trials_of(values)._resume(file)


def test_in_time_are_the_first_waves_of_quick_rungs_and_what_begins_before_the_end(monkeypatch):
    trials, now = trials_of(values_of(1)), [12.0]
    monkeypatch.setattr(trials_module.time, "perf_counter", lambda: now[0])
    trials.began = 10.0
    assert trials._in_time("mixture", 3)
    trials.budget = 2.5
    assert trials._in_time("mixture", 3)
    trials.budget = 2.0
    assert not trials._in_time("mixture", 0)
    assert trials._in_time("gp per task", 0)
    assert trials._in_time("hierarchical gp, curves alone", 0)
    assert not trials._in_time("gp per task", 1)
    trials.resumed = True
    assert not trials._in_time("gp per task", 0)


@pytest.mark.parametrize("seed", range(8))
def test_who_goes_on_is_what_loops_give(seed):
    """Random rungs, some surely behind, some with the least error, in two waves: the rules as they are written down."""
    rng = np.random.default_rng(seed)
    values, said, tasks = values_of(20 + 90 * (seed % 2), each=2, seed=seed), {}, 20 + 90 * (seed % 2)
    for k in range(5):
        middle = -rng.choice([0.0, 0.05, 0.3])
        density = middle + rng.normal(0, rng.choice([0.05, 0.5]), len(values.y))
        said[f"rung {k}"] = said_of(values, density, off=torch.from_numpy(rng.normal(size=len(values.y))))
    early = values.task < tasks // 2
    trials, growing = (trials_of(values.some(early), growing=grows, **said) for grows in (False, True))
    for one in (trials, growing):
        one.values.append(values.some(~early))
        one.seen = {name: [own.some(early), own.some(~early)] for name, own in said.items()}

    def of(names, rows):
        density = {name: by_task(values, said[name].density, rows) for name in names}
        errors = {name: by_task(values, (said[name].mean - values.y) ** 2, rows).mean() for name in names}
        best = max(names, key=lambda name: density[name].mean())
        behind = {name: density[best] - density[name] for name in names}
        return {name: (lost.mean(), error_of(lost), errors[name]) for name, lost in behind.items()}

    def hopeful(names, rows):
        found = of(names, rows)
        least = min(error for *_, error in found.values())
        return [name for name, (lost, sd, error) in found.items() if lost - 2 * sd <= HOPELESS or error == least]

    first = hopeful(list(said), early)
    both = hopeful(first, early | True)
    assert [trials.running(wave) for wave in range(3)] == [list(said), first, both]
    for wave, names, rows in ((0, first, early), (1, both, early | True)):
        still = [name for name, (lost, sd, _) in of(names, rows).items() if MATTERS < lost < sd]
        assert trials._decided(wave) == (len(by_task(values, values.y, rows)) >= JUDGED and not still)
    part, early_said = values.some(early), {name: own.some(early) for name, own in said.items()}
    dense = drawn_weights(densities(early_said), part, 0).tolist()
    means = torch.stack([one.mean for one in early_said.values()], 1)
    exact = least_squares_weights(means, part.y, part.weight).tolist()
    going = [
        name
        for name, share, other in zip(said, dense, exact, strict=True)
        if share >= CANDIDATE or (other >= OF_ERROR and name in first)
    ]
    assert growing.running(1) == going


def test_a_question_has_a_row_for_every_value_of_every_setting():
    """Against loops over settings, tasks, points and targets; of two clusters, whose numbers the values bear."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(n, 1)), rng.normal(size=(n, 2))) for n in (2, 6, 1, 4)]
    tasks = Tasks.from_pairs(pairs, list("abcd"))
    contexts, steps = random_sizes([1, 3]), torch.tensor([0.0, 0.5], dtype=torch.float64)
    found = Question.of(tasks, torch.tensor([7, 2, 5, 7]), contexts, steps, ["none", "3", "1"])
    rows, known = [], []
    for name, place in (("1", 2), ("3", 1)):
        for context, target in zip(*contexts(tasks)[name], strict=True):
            known.append(2 * len(context.x))
            unit = {"a": 7, "b": 2, "c": 5, "d": 7}[target.id]
            for y in target.y.tolist():
                rows += [(unit, 1 / (2 * len(target.x)), y[0], place), (unit, 1 / (2 * len(target.x)), y[1], place)]
    values = found.values
    told = (values.task, values.weight, values.y, values.setting)
    assert torch.stack([one.double() for one in told], 1).numpy() == pytest.approx(np.array(rows))
    assert values.known.tolist() == known
    assert Question.of(tasks.select([2]), torch.tensor([5]), contexts, steps, ["1", "3"]) is None


class Normal:
    """Says of every value that it is normal around its input, with deviation 2; and has no evidence, if asked so."""

    def __init__(self, evidence=None):
        self.evidence = evidence

    def condition(self, context):
        own = None if self.evidence is None else SimpleNamespace(total=torch.tensor(self.evidence).double())
        return SimpleNamespace(evidence=own, at=self.at)

    def at(self, target):
        means = target.x.expand(-1, target.p)
        return IndependentGaussians(target, means, torch.full_like(means, 2.0))


def asked_of(pairs, steps=(0.0, 0.0), **possible):
    tasks = Tasks.from_pairs(pairs)
    tasks = tasks.with_possible(**possible) if possible else tasks
    whole = Given(lambda tasks: {"blank": (tasks.select(range(len(tasks))).context_target(0, seed=0))})
    return Question.of(tasks, torch.arange(len(tasks)), whole, torch.tensor(steps).double(), ["blank"])


def test_an_answer_is_of_every_value_and_of_the_step_it_was_rounded_from():
    """Also where values end: what lies beyond an end was recorded as the end."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 1)), np.array([[0, 1], [3, 2.5], [1, 2.6], [0, 0], [2, 2.8], [3, -1.0]])
    pairs = [(x[:2], y[:2]), (x[2:], y[2:])]
    names = Tasks.from_pairs(pairs).columns.y
    support = {"support": dict(zip(names, [(0, 3), (None, 2.8)], strict=True))}
    for steps, ended in (((0.0, 0.0), {}), ((1.0, 0.0), {}), ((1.0, 0.5), support), ((0.0, 0.5), support)):
        question = asked_of(pairs, steps, **ended)
        seen = question.answer(Normal([1.0, 2.0]))
        means = np.repeat(x, 2, axis=1)
        wanted = {name: np.zeros_like(y) for name in ("density", "below", "upto", "start", "end")}
        for k, (step, (lower, upper)) in enumerate(zip(steps, ((0, 3), (-np.inf, 2.8)), strict=True)):
            lower, upper = (lower, upper) if ended else (-np.inf, np.inf)
            normal, values = stats.norm(means[:, k], 2), y[:, k]
            low, high = (np.where(values - step / 2 < lower, -np.inf, values - step / 2) for _ in range(2))
            high = np.where(values + step / 2 > upper, np.inf, values + step / 2)
            before, upto = (np.where(values == end, far, values) for end, far in ((lower, -np.inf), (upper, np.inf)))
            low, high = (low, high) if step else (before, upto)
            with np.errstate(divide="ignore"):
                mass = np.log((normal.cdf(high) - normal.cdf(low)) / (step or 1.0))
            wanted["density"][:, k] = np.where(high > low, mass, normal.logpdf(values))
            for name, ends in (("below", before), ("upto", upto), ("start", low), ("end", high)):
                wanted[name][:, k] = (ends - means[:, k]) / 2
        for name, expected in wanted.items():
            assert getattr(seen, name).tolist() == pytest.approx(expected.ravel().tolist()), name
        plain = asked_of(pairs, steps).answer(Normal()).mean
        assert plain.tolist() == pytest.approx(means.ravel().tolist())
        if ended:  # means of possible values: the integral of the quantiles
            u = (np.arange(4000) + 0.5) / 4000
            cut = stats.norm(means[..., None], 2).ppf(u).clip([[[0], [-np.inf]]], [[[3], [2.8]]]).mean(-1)
            assert seen.mean.tolist() == pytest.approx(cut.ravel().tolist(), abs=2e-3)
        assert seen.evidence.tolist() == [1.0, 2.0]
    assert question.answer(Normal()).evidence.isnan().tolist() == [True, True]


def test_a_value_that_is_impossible_under_a_rung_is_told():
    with pytest.raises(DataError, match="impossible under it"):
        asked_of([([[0.0]], [[0.0, 1e200]])]).answer(Normal())


def test_what_is_put_right_has_the_density_of_its_probabilities():
    """A calibrated density is the slope of the calibrated probability; means and evidence stay."""
    calibration, y = Calibration((0.9, 1.6, 2.6, 3.0)), torch.linspace(-3.03, 3, 40).double()
    zero, width = torch.zeros_like(y), 1e-4

    density = -0.5 * y.square() - 0.5 * math.log(2 * math.pi)
    seen = Seen(density, y, y, y - width, y + width, y + 7, zero + 3)
    right = seen.calibrated(calibration)
    slope = (torch.special.ndtr(right.end) - torch.special.ndtr(right.start)) / (2 * width)
    assert right.density.numpy() == pytest.approx(slope.log().numpy(), abs=1e-3)
    assert torch.allclose(right.pit[1], calibration.probability(torch.special.ndtr(y)))
    assert torch.equal(right.mean, seen.mean)
    assert torch.equal(right.evidence, seen.evidence)
    some = seen.some(y > 1)
    assert some.upto.tolist() == seen.upto[y > 1].tolist()
    assert torch.equal(some.evidence, seen.evidence)
