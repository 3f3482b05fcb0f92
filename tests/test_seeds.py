from functools import partial

import numpy as np
import pytest
import torch

from metaprior import LearnedPrior, MetaGP, OptionError, PriorSpec, Tasks, make_prior
from metaprior.methods import METHODS, HyperPosterior, MeanFitOnTarget, make_method, table
from metaprior.priors import Network
from metaprior.seeds import affine_seed, child_seed, generator_of
from metaprior.selection import Auto
from tests.test_fit_many import brief


def test_children_differ_from_each_other_and_from_their_parents():
    numbers = [0, 1, 2, 7, 1000, 2**32, 2**32 + 1, 2**62]
    paths = [(), *((k,) for k in numbers), *((k, j) for k in numbers for j in numbers), (0, 0, 0), (1, 0, 0)]
    found = [child_seed(seed, *path) for seed in numbers for path in paths]
    assert len(set(found)) == len(found) == len(numbers) * len(paths)
    assert not set(found) & set(numbers)
    assert all(0 <= seed < 2**62 for seed in found)


def test_a_child_is_the_same_every_time():
    assert child_seed(3, 1, 4) == child_seed(3, 1, 4) == 2903714047270334940  # numpy promises it
    assert torch.rand(1, generator=generator_of(child_seed(3, 1))) != torch.rand(1, generator=generator_of(3))


def test_children_are_spread_over_all_seeds():
    found = torch.tensor([child_seed(0, k) for k in range(4000)]).double() / 2**62
    assert torch.histc(found, 4, 0.0, 1.0).tolist() == pytest.approx([1000] * 4, rel=0.1)


@pytest.mark.parametrize("wrong", [(2**63,), (-1,), (0, 2**63), (0, -1)])
def test_seeds_that_no_generator_takes(wrong):
    with pytest.raises(OptionError, match="whole number from 0"):
        child_seed(*wrong)
    with pytest.raises(OptionError, match="whole number from 0"):
        generator_of(wrong[-1])


def test_no_part_of_a_prior_starts_as_a_part_of_another_seed():
    spec = PriorSpec("deep", "eigenfunctions + deep", noise="deep", hidden=(5,), features=3, functions=4)
    starts = []
    for seed in range(6):
        networks = [part for part in spec.build(d=1, seed=seed).modules() if isinstance(part, Network)]
        assert len(networks) == 4  # mean, eigenfunctions, what they leave over, noise
        starts += [tuple(network.layers[0].bias.tolist()) for network in networks]
    assert len(set(starts)) == len(starts) == 24


def test_no_member_of_an_ensemble_is_one_of_another_seeds():
    x = torch.linspace(0, 1, 4)
    tasks = Tasks.from_pairs([(x, x + k) for k in range(3)])
    found = [HyperPosterior(members=2, seed=seed, hidden=(3,), max_epochs=1).fit(tasks) for seed in (0, 1)]
    seeds = {member.seed for one in found for member in one.members_}
    assert len(seeds) == 4
    assert not seeds & set(range(10_000))  # nor is it what a single prior of another seed is


def test_seeds_of_sums_are_what_they_were_and_never_too_high():
    assert affine_seed(5, factor=2, offset=1) == 11
    assert affine_seed(2**62 - 1, factor=2, offset=1) == 2**63 - 1
    found = [affine_seed(seed, factor=2, offset=k) for seed in (2**62, 2**62 + 1, 2**63 - 1) for k in (0, 1)]
    assert len(set(found)) == 6
    assert max(found) < 2**63
    assert affine_seed(2**63 - 1, offset=1) < 2**63


def few_curves():
    rng = np.random.default_rng(0)
    return Tasks.from_pairs([(x := rng.uniform(0, 1, 4), np.exp(np.sin(5 * x) + rng.normal())) for _ in range(6)])


SEEDED = {name: partial(make_method, name) for name, one in METHODS.items() if one.make is not None} | {
    "auto": lambda tasks, seed: Auto(rungs=("shared gp", "fpca"), seed=seed, progress=False),
    "mean fit on target": lambda tasks, seed: MeanFitOnTarget(make_prior("deep", "rbf", d=1, seed=0), seed=seed),
    "a prior of minibatches": lambda tasks, seed: LearnedPrior(
        "deep", "deep", seed=seed, optimizer="adam", batch_size=2, progress=False, max_epochs=2
    ),
    "deep noise": lambda tasks, seed: LearnedPrior(
        "constant", "deep", noise="deep", seed=seed, max_epochs=2, progress=False
    ),
}
WITHOUT_SEED = {"gp per task"}


@pytest.mark.parametrize("name", sorted(SEEDED))
def test_every_method_takes_every_seed_or_names_the_one_it_was_given(name, monkeypatch):
    monkeypatch.setattr(table, "EPISODES", 6)
    tasks = few_curves()

    def fitted(seed):
        return brief(SEEDED[name](tasks, seed)).fit(tasks)

    for seed in (2**62, 2**63 - 1):
        context, target = tasks.context_target(2, seed=seed)
        assert fitted(seed).predict(context, target).mean.isfinite().all()
    if name not in WITHOUT_SEED:
        for wrong in (2**63, -1):
            with pytest.raises(OptionError, match=rf"seed {wrong}: give a whole number from 0 to 2\*\*63 - 1"):
                fitted(wrong)


@pytest.mark.parametrize("wrong", [1.5, "1"])
def test_what_is_no_whole_number_is_no_seed(wrong):
    with pytest.raises(OptionError, match="give a whole number"):
        MetaGP("deep", "rbf", max_epochs=1, seed=wrong, progress=False).fit(few_curves())
    with pytest.raises(OptionError, match="give a whole number"):
        few_curves().context_target(2, seed=wrong)
