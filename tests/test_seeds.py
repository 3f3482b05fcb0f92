import pytest
import torch

from metaprior import OptionError, PriorSpec, Tasks
from metaprior.methods import HyperPosterior
from metaprior.priors import Network
from metaprior.seeds import child_seed, generator_of


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
