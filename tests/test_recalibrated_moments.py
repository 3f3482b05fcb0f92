"""Mean and deviation of recalibrated ensembles, against numerical integration of the cdf that SciPy gives."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from metaprior import Tasks
from metaprior.inference import (
    CalibratedPosterior,
    Calibration,
    IndependentGaussians,
    MixturePosterior,
    PossiblePosterior,
    StudentPosterior,
)
from metaprior.tasks import Possible

POINT = Tasks.from_inputs([np.zeros((1, 1))])
LEVELS = stats.norm.ppf([0.75, 0.9, 0.95, 0.985])


def drawn_case(rng, most=5):
    """Components (location, scale, degrees of freedom), their weights, and how far bounds reach at each level."""
    parts = []
    for _ in range(rng.integers(2, most + 1)):
        location, scale = rng.normal() * rng.choice([0.1, 1, 5]), math.exp(rng.normal() * rng.choice([0.1, 0.7]))
        heavy = math.exp(rng.uniform(math.log(2.15), math.log(40)))
        parts.append((location, scale, heavy if rng.random() < 0.6 else math.inf))
    reach = LEVELS * math.exp(0.25 * rng.normal()) * np.exp(0.12 * rng.normal(size=4).cumsum())
    for k in range(1, 4):
        reach[k] = max(reach[k], reach[k - 1] + 0.05 * (1 + LEVELS[k - 1]))
    return parts, rng.dirichlet(np.ones(len(parts))), Calibration(tuple(reach.tolist()))


def one(location, scale, degrees):
    number = [torch.tensor([[value]], dtype=torch.float64) for value in (location, scale)]
    if degrees == math.inf:
        return IndependentGaussians(POINT, *number)
    spread = number[1] * math.sqrt(degrees / (degrees - 2))
    return StudentPosterior(IndependentGaussians(POINT, number[0], spread), torch.tensor([degrees]).double(), UNIT)


UNIT = torch.ones(1, dtype=torch.float64)


def ensemble(parts, weights):
    return MixturePosterior([one(*part) for part in parts], torch.from_numpy(np.log(weights))[None])


def law(location, scale, degrees):
    return stats.norm(location, scale) if degrees == math.inf else stats.t(degrees, location, scale)


def tails(parts, weights, y):
    """The probability below y and that above it."""
    laws = [law(*part) for part in parts]
    return [sum(w * getattr(one, side)(y) for w, one in zip(weights, laws, strict=True)) for side in ("cdf", "sf")]


def put_right(calibration, below, above):
    """Both probabilities after recalibration: the normal score moves along straight lines, and stays beyond ±8."""
    right, own = (np.concatenate([[0.0], one.numpy()]) for one in calibration.knots())
    z = np.where(below < above, special.ndtri(below), -special.ndtri(above))
    moved = np.where(np.abs(z) < 8, np.sign(z) * np.interp(np.abs(z), own, right), z)
    return special.ndtr(moved), special.ndtr(-moved)


def by_integration(parts, weights, calibration):
    """Mean and deviation from `∫ (1 − F) dy` and `∫ 2 y (1 − F) dy` above the mean of the components, and so below."""
    laws = [law(*part) for part in parts]
    middle = sum(w * each.mean() for w, each in zip(weights, laws, strict=True))
    spread = math.sqrt(
        sum(w * (each.var() + (each.mean() - middle) ** 2) for w, each in zip(weights, laws, strict=True))
    )
    gap = np.unique(np.concatenate([np.linspace(0, 60, 60_001), np.geomspace(1e-4, 1e12, 60_001)])) * spread
    first = second = 0.0
    for side in (-1, 1):
        y = middle + side * gap
        plain = tails(parts, weights, y)[side == 1]
        moved = put_right(calibration, *tails(parts, weights, y))[side == 1]
        change = moved - plain  # what is known of the components themselves needs no integration
        first += side * np.trapezoid(change, gap)
        second += np.trapezoid(2 * gap * change, gap)
    return middle + first, math.sqrt(spread**2 + second - first**2)


@pytest.mark.parametrize("seed", range(10))
def test_moments_of_recalibrated_ensembles_with_heavy_tails(seed):
    """Ten drawn cases for each seed: the deviation is within 0.2%, and the mean within 0.1% of a deviation."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        parts, weights, calibration = drawn_case(rng)
        posterior = CalibratedPosterior(ensemble(parts, weights), calibration)
        mean, sd = by_integration(parts, weights, calibration)
        assert float(posterior.sd) == pytest.approx(sd, rel=2e-3), (parts, weights, calibration)
        assert float(posterior.mean) == pytest.approx(mean, abs=1e-3 * sd), (parts, weights, calibration)


def test_moments_of_many_components():
    rng = np.random.default_rng(3)
    for _ in range(8):
        count, (_, _, calibration) = rng.integers(9, 40), drawn_case(rng)
        spread, wide = rng.choice([0.3, 1, 4]), rng.choice([0.1, 0.5])
        parts = [
            (spread * rng.normal(), math.exp(wide * rng.normal()), rng.choice([math.inf, math.inf, 2.6, 8.0]))
            for _ in range(count)
        ]
        weights = rng.dirichlet(np.full(count, rng.choice([0.2, 1.0])))
        posterior = CalibratedPosterior(ensemble(parts, weights), calibration)
        mean, sd = by_integration(parts, weights, calibration)
        assert float(posterior.sd) == pytest.approx(sd, rel=2e-3)
        assert float(posterior.mean) == pytest.approx(mean, abs=1e-3 * sd)


@pytest.mark.parametrize("degrees", [2.1, 2.5, 4.0, 30.0])
def test_moments_of_one_recalibrated_student(degrees):
    for reach in ((0.5, 1.2, 1.7, 2.3), (0.7, 1.4, 1.9, 4.5), (0.9, 1.6, 2.4, 3.0)):
        posterior = CalibratedPosterior(one(3.0, 2.0, degrees), Calibration(reach))
        mean, sd = by_integration([(3.0, 2.0, degrees)], [1.0], Calibration(reach))
        assert float(posterior.sd) == pytest.approx(sd, rel=2e-3)
        assert float(posterior.mean) == pytest.approx(mean, abs=1e-3 * sd)


@pytest.mark.parametrize("degrees", [math.inf, 2.1, 5.0])
def test_without_a_change_nothing_changes(degrees):
    identity = Calibration(tuple(LEVELS.tolist()))
    both = ensemble([(0.0, 1.0, degrees), (0.3, 2.0, degrees)], np.array([0.4, 0.6]))
    for posterior in (one(3.0, 2.0, degrees), both):
        assert float(CalibratedPosterior(posterior, identity).sd) == pytest.approx(float(posterior.sd), rel=1e-6)
        assert float(CalibratedPosterior(posterior, identity).mean) == pytest.approx(float(posterior.mean), rel=1e-7)


PARTS, WEIGHTS = [(0.5, 1.0, math.inf), (1.0, 2.0, 3.0), (-3.0, 0.1, math.inf)], np.array([0.5, 0.3, 0.2])
REACH = Calibration((0.6, 1.5, 2.2, 3.1))


def test_a_component_that_is_there_twice_is_one():
    twice = [*PARTS, PARTS[0]]
    posterior = CalibratedPosterior(ensemble(twice, np.array([0.3, 0.3, 0.2, 0.2])), REACH)
    mean, sd = by_integration(PARTS, WEIGHTS, REACH)
    assert float(posterior.sd) == pytest.approx(sd, rel=2e-3)
    assert float(posterior.mean) == pytest.approx(mean, abs=1e-3 * sd)


@pytest.mark.parametrize("unit", [1e-180, 1e-9, 1e60])
def test_moments_have_units(unit):
    expected = CalibratedPosterior(ensemble(PARTS, WEIGHTS), REACH)
    posterior = CalibratedPosterior(ensemble([(unit * at, unit * by, nu) for at, by, nu in PARTS], WEIGHTS), REACH)
    assert float(posterior.sd) == pytest.approx(unit * float(expected.sd), rel=1e-9)
    assert float(posterior.mean) == pytest.approx(unit * float(expected.mean), rel=1e-9)


def test_each_point_has_moments_of_its_own():
    """Points with other components beside each other, some of which have no say in some tasks, and none uncertain."""
    points = Tasks.from_inputs([np.zeros((2, 1)), np.zeros((2, 1))])
    means = torch.tensor([[0.0], [2.0], [-1.0], [4.0]], dtype=torch.float64)
    sds = torch.tensor([[1.0], [0.5], [3.0], [0.0]], dtype=torch.float64)
    other = IndependentGaussians(points, means + 1, 2 * sds)
    log_weights = torch.tensor([[0.3, 0.7], [0.0, 1.0]], dtype=torch.float64).log()
    posterior = CalibratedPosterior(
        MixturePosterior([IndependentGaussians(points, means, sds), other], log_weights), REACH
    )
    for k in range(4):
        at, by = float(means[k]), float(sds[k])
        if by == 0:
            assert (float(posterior.mean[k]), float(posterior.sd[k])) == (pytest.approx(at + 1), pytest.approx(0.0))
            continue
        weights = log_weights[k // 2].exp().tolist()
        mean, sd = by_integration([(at, by, math.inf), (at + 1, 2 * by, math.inf)], weights, REACH)
        assert float(posterior.sd[k]) == pytest.approx(sd, rel=2e-3)
        assert float(posterior.mean[k]) == pytest.approx(mean, abs=1e-3 * sd)


@pytest.mark.parametrize("ends", [(0.0, math.inf), (-0.5, 2.0), (-math.inf, 1.0)])
@pytest.mark.parametrize("degrees", [math.inf, 3.0])
def test_moments_of_what_is_cut(ends, degrees):
    """Where much lies beyond a support: `∫ (1 − F) dy` and `∫ 2 y (1 − F) dy` between its ends."""
    parts = [(0.5, 1.0, math.inf), (1.0, 2.0, degrees), (-3.0, 0.1, math.inf)]
    recalibrated = CalibratedPosterior(ensemble(parts, WEIGHTS), REACH)
    posterior = PossiblePosterior.of(recalibrated, [Possible(*ends)])
    first = second = 0.0  # about an anchor inside the support
    for side in (-1, 1):
        room = side * (ends[side == 1] - 0.5)
        gap = np.unique(np.concatenate([np.linspace(0, 200, 400_001), np.geomspace(1e-4, 1e9, 60_001)]))
        gap = np.append(gap[gap < room], room) if room < math.inf else gap
        tail = put_right(REACH, *tails(parts, WEIGHTS, 0.5 + side * gap))[side == 1]
        first += side * np.trapezoid(tail, gap)
        second += np.trapezoid(2 * gap * tail, gap)
    assert float(posterior.mean) == pytest.approx(0.5 + first, abs=2e-3 * math.sqrt(second))
    assert float(posterior.sd) == pytest.approx(math.sqrt(second - first**2), rel=2e-3)
