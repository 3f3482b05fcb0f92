"""The continuous ranked probability score of every composition, against numerical integration of SciPy's cdfs."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from metaprior import Tasks
from metaprior.inference import (
    CalibratedPosterior,
    Calibration,
    IndependentGaussians,
    MixturePosterior,
    PossiblePosterior,
    WarpedPosterior,
)
from metaprior.priors.warps import LogWarp
from metaprior.tasks import Possible
from tests.test_recalibrated_moments import LEVELS, REACH, drawn_case, ensemble, one, put_right, tails

IDENTITY = Calibration(tuple(LEVELS.tolist()))
GAPS = np.unique(np.concatenate([np.linspace(0, 200, 200_001), np.geomspace(1e-7, 1e12, 200_001)]))


def by_integration(tails_at, y, ends=(-math.inf, math.inf)):
    """`∫ F²` below y and `∫ (1 − F)²` above it, up to the ends of a support, from the probabilities on both sides."""
    found = 0.0
    for side, end in ((-1, ends[0]), (1, ends[1])):
        room = abs(end - y)
        gap = GAPS if room == math.inf else np.append(GAPS[room > GAPS], room)
        found += np.trapezoid(tails_at(y + side * gap)[side == 1] ** 2, gap)
    return found


def recalibrated(parts, weights, calibration):
    return lambda t: put_right(calibration, *tails(parts, weights, t))


ENSEMBLES = {
    "heavy tails": ([(0.0, 1.0, 2.2), (0.5, 1.0, 2.2)], [0.5, 0.5]),
    "a narrow component in a wide one": ([(0.0, 0.01, 2.2), (0.0, 1.0, 2.2)], [0.9, 0.1]),
    "far apart": ([(0.0, 1e-3, math.inf), (3.0, 1.0, 2.5)], [0.5, 0.5]),
    "very far apart": ([(0.0, 1.0, 3.0), (300.0, 0.01, 2.5)], [0.995, 0.005]),
    "one": ([(0.0, 1.0, 5.0)], [1.0]),
    "many": ([(0.3 * k, 1.0 + 0.1 * k, 5.0 if k % 3 else math.inf) for k in range(12)], [1 / 12] * 12),
}
VALUES = (0.0, 1.0, -5.0, 3.0, 1000.0)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_of_ensembles(name):
    parts, weights = ENSEMBLES[name]
    plain = ensemble(parts, np.array(weights))
    for y in VALUES:
        expected = by_integration(lambda t: tails(parts, weights, t), y)
        assert float(plain.crps(y)) == pytest.approx(expected, rel=1e-3)
        expected = by_integration(recalibrated(parts, weights, REACH), y)
        assert float(CalibratedPosterior(plain, REACH).crps(y)) == pytest.approx(expected, rel=2e-3)


def test_of_drawn_recalibrated_ensembles():
    rng = np.random.default_rng(11)
    for _ in range(15):
        parts, weights, calibration = drawn_case(rng)
        posterior, y = CalibratedPosterior(ensemble(parts, weights), calibration), 3 * float(rng.normal())
        expected = by_integration(recalibrated(parts, weights, calibration), y)
        assert float(posterior.crps(y)) == pytest.approx(expected, rel=2e-3), (parts, weights, calibration, y)


def log_normal(sigma):
    ends = [torch.tensor([value], dtype=torch.float64) for value in (1.0, 1e-12, 1e12)]
    return WarpedPosterior(one(0.0, sigma, math.inf), LogWarp(*ends))


@pytest.mark.parametrize("sigma", [0.5, 2.0, 3.0])
def test_of_strongly_skewed_distributions(sigma):
    """The upper tail of a log-normal distribution holds much of its score, far beyond its usual values."""
    law, single = stats.lognorm(sigma), log_normal(sigma)
    both = MixturePosterior([single, log_normal(sigma)], torch.tensor([[0.3, 0.7]]).double().log())
    forms = [single, both, CalibratedPosterior(both, IDENTITY), PossiblePosterior.of(single, [Possible(0.0)])]
    for y in (0.01, 1.0, 10.0, 1000.0):
        expected = by_integration(lambda t: (law.cdf(t), law.sf(t)), y, (0.0, math.inf))
        for posterior in forms:
            assert float(posterior.crps(y)) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("ends", [(0.0, math.inf), (-0.5, 2.0), (-math.inf, 1.0)])
@pytest.mark.parametrize("degrees", [math.inf, 3.0])
def test_of_what_is_cut(ends, degrees):
    parts, weights = [(0.5, 1.0, math.inf), (1.0, 2.0, degrees), (-3.0, 0.1, math.inf)], [0.5, 0.3, 0.2]
    posterior = PossiblePosterior.of(CalibratedPosterior(ensemble(parts, np.array(weights)), REACH), [Possible(*ends)])
    for y in (0.3, ends[0], ends[1]):
        if math.isfinite(y):
            expected = by_integration(recalibrated(parts, weights, REACH), y, ends)
            assert float(posterior.crps(y)) == pytest.approx(expected, rel=2e-3)


def test_of_what_is_certain_in_part():
    """Steps of the cdf: `E|X − y| − ½ E|X − X'|` of the components."""
    points = Tasks.from_inputs([np.zeros((3, 1))])
    certain = IndependentGaussians(points, torch.tensor([[1.0]] * 3).double(), torch.zeros(3, 1).double())
    wide = one(1.0, 2.0, 4.0)
    spread = stats.t(4, 1.0, 2.0)
    y = torch.tensor([[1.0], [0.2], [9.0]], dtype=torch.float64)
    alone = MixturePosterior(
        [log_normal_of(certain), log_normal_of(certain)], torch.tensor([[0.5, 0.5]]).double().log()
    )
    assert alone.crps(y).numpy() == pytest.approx((y - math.e).abs().numpy(), rel=1e-9)
    both = MixturePosterior([one(1.0, 0.0, math.inf), wide], torch.tensor([[0.4, 0.6]]).double().log())
    for value in (1.0, 0.2, 9.0):
        expected = by_integration(
            lambda t: (0.4 * (t >= 1) + 0.6 * spread.cdf(t), 0.4 * (t < 1) + 0.6 * spread.sf(t)), value
        )
        assert float(both.crps(value)) == pytest.approx(expected, rel=1e-2)


def log_normal_of(gaussian):
    ends = [torch.tensor([value], dtype=torch.float64) for value in (1.0, 1e-12, 1e12)]
    return WarpedPosterior(gaussian, LogWarp(*ends))


@pytest.mark.parametrize("unit", [1e-180, 1e-9, 1e60])
def test_it_has_the_units_of_the_values(unit):
    parts, weights = ENSEMBLES["far apart"]
    expected = float(ensemble(parts, np.array(weights)).crps(0.7))
    scaled = ensemble([(unit * at, unit * by, nu) for at, by, nu in parts], np.array(weights))
    assert float(scaled.crps(0.7 * unit)) == pytest.approx(unit * expected, rel=1e-9)
