"""A posterior that is made of those of sets of tasks says of each task what the last part that has it says."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from metaprior import FPCA, Combination, LearnedPrior, Tasks
from metaprior.inference import Gathered, GaussianMarginals
from metaprior.inference.gaussian import IndependentGaussians
from metaprior.inference.posterior import Nodes, moments
from metaprior.methods import GPPerTask
from tests.test_families import asked, past


@pytest.fixture(scope="module")
def parts():
    """What two methods say of four tasks, and both gathered: the first method of 0, 1, 2, the second of 2 and 3."""
    context, points = asked()
    learned = LearnedPrior("constant", "rbf", max_epochs=5, progress=False).fit(past())
    mixed = Combination([FPCA(size=5, rank=2), GPPerTask()], [0.6, 0.4]).fit(past())
    first, second = torch.tensor([0, 1, 2]), torch.tensor([3, 2])
    said = [
        method.predict(context.select(which), points.select(which))
        for method, which in ((learned, first), (mixed, second))
    ]
    return points, said, Gathered(points, list(zip((first, second), said, strict=True)))


def rows(points, first, second):
    """First's answers of tasks 0 and 1, second's of tasks 2 and 3, at their points."""
    n = points.sizes.tolist()
    own = first[..., : n[0] + n[1], :]
    return torch.cat([own, second[..., n[3] :, :], second[..., : n[3], :]], -2)


def test_each_value_is_of_the_part_that_speaks_last(parts):
    points, (first, second), both = parts
    for answer in ("mean", "sd"):
        wanted = rows(points, getattr(first, answer), getattr(second, answer))
        torch.testing.assert_close(getattr(both, answer), wanted)
        torch.testing.assert_close(
            getattr(both.function, answer),
            rows(points, getattr(first.function, answer), getattr(second.function, answer)),
        )
    quantiles = both.quantiles([0.1, 0.7])
    torch.testing.assert_close(quantiles, rows(points, first.quantiles([0.1, 0.7]), second.quantiles([0.1, 0.7])))
    torch.testing.assert_close(
        both.cdf(quantiles)[1], torch.full(both.shape, 0.7, dtype=torch.float64), rtol=1e-6, atol=0
    )
    y = quantiles[1]
    n = points.sizes.tolist()
    of_first = y[: sum(n[:3])]
    of_second = torch.cat([y[-n[3] :], y[sum(n[:2]) : sum(n[:3])]])
    for answer in ("log_density", "crps"):
        wanted = rows(points, getattr(first, answer)(of_first), getattr(second, answer)(of_second))
        torch.testing.assert_close(getattr(both, answer)(y), wanted)
    joint = first.joint_log_density(of_first)[:2], second.joint_log_density(of_second)[[1, 0]]
    torch.testing.assert_close(both.joint_log_density(y), torch.cat(joint))
    own = both.inverse_cdf(torch.full((1, *both.shape), 0.3, dtype=torch.float64))
    torch.testing.assert_close(own, both.quantiles([0.3]))


def test_a_task_as_a_whole(parts):
    points, (first, second), both = parts
    covariances = both.covariances()
    wanted = [*first.covariances()[:2], *second.covariances()[::-1]]
    for one, other in zip(covariances, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert both.shape == (len(points.x), 1)
    evidence = torch.cat([first.evidence.total[:2], second.evidence.total[[1, 0]]])
    torch.testing.assert_close(both.evidence.total, evidence.detach())
    draws = both.samples(3, 5)
    assert draws.shape == (3, *both.shape)
    assert not torch.equal(draws, both.samples(3, 6))
    assert torch.equal(draws, both.samples(3, 5))


def test_the_most_jitter_is_told():
    needed = [(torch.tensor([k]), SimpleNamespace(jitter=jitter)) for k, jitter in enumerate((0.0, 1e-8, 1e-10))]
    assert Gathered(Tasks.from_inputs([np.zeros((1, 1))] * 3), needed).jitter == 1e-8


def test_the_nodes_of_parts_stand_for_their_distributions(parts):
    """Also where one part has more of them than another, and where they come a few at a time."""
    _, _, both = parts
    for at_once in (1000, 7):
        rule = Nodes.of(both)._replace(at_once=at_once)
        mean, sd = moments(both.nodes(rule), both.mean)
        torch.testing.assert_close(mean, both.mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(sd, both.sd, rtol=1e-5, atol=1e-5)


def test_what_parts_cannot_do_the_whole_cannot(parts):
    points, (first, _), both = parts
    assert not both.is_gaussian
    alone = Gathered(points, [(torch.arange(4), _gaussians(points))])
    assert alone.is_gaussian
    assert alone.evidence is None
    assert first.is_gaussian == isinstance(first, GaussianMarginals) or first.is_gaussian


def test_without_deviation_a_distribution_is_a_step():
    points = Tasks.from_inputs([np.zeros((3, 1))])
    step = _gaussians(points, [0.0, 0.0, 2.0])
    y = torch.tensor([[[-1.0], [1.0], [2.0]], [[0.0], [0.0], [0.0]]], dtype=torch.float64)
    found = step.cdf(y)[..., 0]
    assert found[0].tolist() == pytest.approx([0.0, 1.0, 0.8413447460685429])
    assert found[1].tolist() == [0.5, 0.5, 0.5]


def _gaussians(points, deviations=None):
    shape = (len(points.x), 1)
    sds = torch.ones(shape) if deviations is None else torch.tensor(deviations)[:, None]
    return IndependentGaussians(points, torch.zeros(shape, dtype=torch.float64), sds.double())
