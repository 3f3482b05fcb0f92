"""Held out means held out: a fold has no say in the weights and the recalibration that it is scored by."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from metaprior import Tasks
from metaprior.methods import METHODS, Entry, GPPerTask
from metaprior.selection import Auto, cross_fitting
from metaprior.selection import trials as trials_module
from metaprior.selection.cross_fitting import PARTS, cross_fitted, fitted_ensemble
from metaprior.selection.trying import Seen, Values

ROWS = ("density", "below", "upto", "start", "end", "mean")


def predictions(values, y, seed=0):
    """Gaussian predictions of held-out values by three candidates of different error."""
    rng = np.random.default_rng(seed)
    seen = {}
    for name, error in (("near", 0.4), ("middle", 0.6), ("far", 0.8)):
        found = stats.norm(values.y.numpy() + rng.normal(0, error, len(y)), rng.uniform(0.4, 0.8, len(y)))
        parts = (found.logpdf(y), *[stats.norm.ppf(found.cdf(y))] * 4, found.mean())
        seen[name] = Seen(*map(torch.from_numpy, parts), torch.zeros(len(values.known), dtype=torch.float64))
    return seen


def held_out(folds=4, tasks=40, each=3):
    """Values of tasks, and of which fold each task is."""
    owner = torch.arange(tasks).repeat_interleave(each)
    y = torch.from_numpy(np.random.default_rng(1).normal(size=len(owner)))
    fold = owner % folds
    return Values(owner, torch.full_like(y, 1 / each), y, torch.ones(tasks).long(), torch.zeros_like(owner), fold)


@pytest.mark.parametrize("folds", [2, 5])
@pytest.mark.parametrize("noisy", [0, 1])
def test_noise_in_one_fold_does_not_change_what_scores_it(folds, noisy):
    values = held_out(folds)
    here = values.fold == noisy
    noise = torch.from_numpy(np.random.default_rng(2).normal(0, 20, len(values.y)))
    replaced = dataclasses.replace(values, y=torch.where(here, noise, values.y))
    before, after = predictions(values, values.y.numpy()), predictions(values, replaced.y.numpy())

    def scoring(seen, given):
        """Weights and recalibration that score the fold: of its values, as the mixture has them."""
        others = {name: one.some(given.fold != noisy) for name, one in seen.items()}
        return fitted_ensemble(others, given.some(given.fold != noisy), 0)

    assert scoring(before, values) == scoring(after, replaced)
    weights, calibration = scoring(before, values)
    found = cross_fitted(after, replaced, 0).recalibrated.some(here)
    mixed = sum(weight * after[name].pit[1][here] for name, weight in weights.items())
    assert found.pit[1].numpy() == pytest.approx(calibration.probability(mixed).numpy(), abs=1e-12)
    # with a say of its own it would be scored by others
    assert fitted_ensemble(after, replaced, 0)[1] != calibration


def levels(count=24, noisy=()):
    """Curves on levels of their own; the targets of some tasks are noise."""
    rng, noise = np.random.default_rng(5), np.random.default_rng(6)
    pairs = []
    for k in range(count):
        x = np.sort(rng.uniform(0, 6, 6))
        y = np.sin(x) + rng.normal() + 0.3 * rng.normal(size=6)
        pairs.append((x, noise.normal(0, 1.5, 6) if k in noisy else y))
    return Tasks.from_pairs(pairs)


class Wide(GPPerTask):
    """A candidate that learns nothing from other tasks: its units are fixed."""

    spread, level = 1.5, -0.5

    def fit(self, tasks):
        super().fit(tasks)
        fixed = GPPerTask().fit(levels()).scaler_
        y_scale, y_shift = self.spread * fixed.y_scale, fixed.y_shift + self.level
        self.scaler_ = dataclasses.replace(fixed, y_scale=y_scale, y_shift=y_shift)
        return self


class Narrow(Wide):
    """One that is hopeless where some tasks are noise."""

    spread, level = 0.8, 0.7


PLANS = {"few tasks": ({}, {}), "fold by fold": ({"SMALL": 0}, {"thorough": True}), "many tasks": ({"RANKED": 30}, {})}


@pytest.mark.parametrize("plan", PLANS)
def test_a_choice_is_scored_by_weights_and_recalibration_that_know_nothing_of_the_fold(plan, monkeypatch):
    """All the way from the tasks: noise in place of the targets of a fold changes what scores the others alone."""
    constants, options = PLANS[plan]
    for name, value in constants.items():
        monkeypatch.setattr(trials_module, name, value)
    monkeypatch.setitem(METHODS, "wide", Entry(lambda *asked: Wide(), rung=True))
    monkeypatch.setitem(METHODS, "narrow", Entry(lambda *asked: Narrow(), rung=True))
    count = 24 if plan == "few tasks" else 60

    def scored(noisy=()):
        """What has scored each fold, by the tasks that it was fitted on."""
        found = {}

        def recorded(seen, values, seed):
            found[frozenset(values.task.tolist())] = fitted_ensemble(seen, values, seed)
            return found[frozenset(values.task.tolist())]

        with monkeypatch.context() as patch:
            patch.setattr(cross_fitting, "fitted_ensemble", recorded)
            Auto(rungs=("wide", "narrow"), progress=False, **options).fit(levels(count, noisy))
        return found

    before = scored()
    everyone = frozenset().union(*before)
    assert len(everyone) == (12 if plan == "many tasks" else count)
    assert len(before) > 3  # one for each fold, without its tasks
    assert all(others < everyone for others in before)
    for others in before:
        after = scored(everyone - others)
        assert after[others] == before[others]
        assert all(after[some] != before[some] for some in before if some != others)


def test_rows_come_back_in_their_order():
    values = held_out(3)
    seen = {"near": predictions(values, values.y.numpy())["near"]}
    found = cross_fitted(seen, values, 0).ensemble
    for part in ROWS:
        assert getattr(found, part).numpy() == pytest.approx(getattr(seen["near"], part).numpy())


def test_one_fold_is_divided_by_its_tasks():
    """With many tasks all are held out at once: no task is scored by weights that it had a say in."""
    values = dataclasses.replace(held_out(), fold=torch.zeros(120).long())
    seen = predictions(values, values.y.numpy())
    whole, own = fitted_ensemble(seen, values, 0)
    found = cross_fitted(seen, values, 0).recalibrated
    mixed = sum(weight * seen[name].pit[1] for name, weight in whole.items())
    assert not torch.allclose(found.pit[1], own.probability(mixed), atol=1e-4)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for k in range(PARTS):
        inside = torch.isin(values.task, torch.nonzero(order % PARTS == k)[:, 0])
        rest = {name: one.some(~inside) for name, one in seen.items()}
        weights, calibration = fitted_ensemble(rest, values.some(~inside), 0)
        mixed = sum(weight * seen[name].pit[1][inside] for name, weight in weights.items())
        assert found.pit[1][inside].numpy() == pytest.approx(calibration.probability(mixed).numpy(), abs=1e-12)


def test_a_single_held_out_task_is_scored_without_a_choice():
    values = held_out(1, tasks=1)
    seen = predictions(values, values.y.numpy())
    found = cross_fitted(seen, values, 0)
    equal = torch.stack([one.mean for one in seen.values()]).mean(0)
    assert found.ensemble.mean.numpy() == pytest.approx(equal.numpy())
    assert found.recalibrated.pit[1].numpy() == pytest.approx(found.ensemble.pit[1].numpy(), abs=1e-12)
