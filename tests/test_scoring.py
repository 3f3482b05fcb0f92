import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from metaprior import DataError, Tasks, UnknownNameError, condition, paired_difference, score
from metaprior.inference import Calibration, IndependentGaussians, MixturePosterior, PossiblePosterior
from metaprior.scoring import LEVELS, covers, pit_share, summarise
from metaprior.tasks import Possible
from tests.problems import known_rbf, ragged


def test_metrics_are_averaged_over_points_then_over_tasks():
    tasks = Tasks.from_pairs([([0.0, 9.0], [1.0, 3.0]), ([0.0, 50.0, 90.0], [1.0, 0.0, -1.0])])
    context, target = tasks.context_target(where=lambda x: x[:, 0] == 0)
    prior = known_rbf(variance=1.0, lengthscale=1.0, noise=0.25)
    scores = score(condition(prior, context).at(target), target)
    # far from the context the posterior is the prior: mean 0, variance 1.25
    assert scores.values["mse"].tolist() == pytest.approx([9.0, 0.5])
    density = stats.norm(0, 1.25**0.5).logpdf
    assert scores.values["log_likelihood"].tolist() == pytest.approx([density(3.0), (density(0) + density(-1)) / 2])
    assert scores.values["joint_log_likelihood"].tolist() == pytest.approx(scores.values["log_likelihood"].tolist())
    assert scores.values["evidence"].tolist() == pytest.approx([density(1.0)] * 2)
    assert scores.values["coverage_90"].tolist() == [0.0, 1.0]
    mean, stderr, count = scores.summary("mse")
    assert (mean, count) == (pytest.approx(4.75), 2)
    assert stderr == pytest.approx(np.std([9.0, 0.5], ddof=1) / math.sqrt(2))


def test_a_true_model_is_calibrated():
    prior, rng = known_rbf(noise=0.3), np.random.default_rng(0)
    points = Tasks.from_inputs([rng.uniform(-2, 2, 10) for _ in range(800)])
    drawn = condition(prior, Tasks.empty(points.ids, 1, 1))
    y = drawn.at(Tasks.from_inputs([t.x for t in points])).samples(1, seed=0)[0]
    tasks = Tasks(points.x, y, points.offsets, points.ids, points.columns)
    context, target = tasks.context_target(4, seed=0)
    scores = score(condition(prior, context).at(target), target)
    assert scores.summary("calibration_error").mean < 0.015
    assert scores.summary("calibration_error").stderr is None
    coverage = scores.summary("coverage_90")
    assert coverage.mean == pytest.approx(0.9, abs=4 * coverage.stderr)


def test_calibration_error_is_the_mean_gap_of_all_levels():
    context, target = ragged(largest=6).context_target(1, seed=0)
    scores = score(condition(known_rbf(), context).at(target), target)
    gaps = [abs(scores.values[f"pit_{level}"].mean().item() - level / 100) for level in LEVELS]
    assert scores.summary("calibration_error").mean == pytest.approx(np.mean(gaps))
    assert "coverage_50" not in scores.metrics


def test_tasks_without_points_to_predict_are_left_out():
    tasks = Tasks.from_pairs([([0.0], [1.0]), ([0.0, 1.0], [1.0, 2.0])], ids=["one", "two"])
    context, target = tasks.context_target(1, seed=0)
    scores = score(condition(known_rbf(), context).at(target), target)
    assert scores.ids == ("two",)
    assert scores.summary("mse").tasks == 1
    assert scores.summary("mse").stderr is None


def test_paired_differences():
    a, b = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([0.5, 2.0, 2.0]).double()
    assert paired_difference(a, b).mean == pytest.approx(0.5)
    assert paired_difference(a, b) == summarise(a - b)
    with pytest.raises(DataError, match="cannot be paired"):
        paired_difference(a, b[:2])


def test_nothing_to_score_and_unknown_metrics():
    tasks = ragged(count=3)
    posterior = condition(known_rbf(), tasks).at(tasks)
    with pytest.raises(DataError, match="no point is left"):
        score(posterior, Tasks.empty(tasks.ids, 1, 1))
    with pytest.raises(DataError, match="other points than the target's"):
        score(posterior, tasks.select([1, 0, 2]))
    with pytest.raises(UnknownNameError, match="Did you mean 'mse'"):
        score(posterior, tasks).summary("ms")


def test_a_central_interval_has_its_ends():
    cdf = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.76], dtype=torch.float64)
    assert covers(cdf, cdf, 50).tolist() == [0, 1, 1, 1, 0]
    assert covers(cdf, cdf, 90).tolist() == [1, 1, 1, 1, 1]
    assert pit_share(cdf, cdf, 50).tolist() == [0, 1, 1, 1, 0]


def test_the_share_of_an_interval_in_a_value_of_its_own_probability():
    below, upto = torch.tensor([[0.0, 0.2, 0.1, 0.9, 0.5], [0.25, 0.8, 0.3, 1.0, 0.75]]).double()
    assert pit_share(below, upto, 50).tolist() == pytest.approx([0.0, 0.5 / 0.6, 0.25, 0.0, 1.0])
    assert covers(below, upto, 50).tolist() == [1, 1, 1, 0, 1]


SUPPORTS = {
    "binary": Possible(0.0, 1.0, True),
    "counts": Possible(0.0, math.inf, True),
    "a score": Possible(0.0, 7.0, True),
    "a share": Possible(0.0, 1.0),
    "anything": Possible(),
}


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", SUPPORTS)
def test_coverage_is_that_of_the_bounds_and_draws_have_no_calibration_error(name, mixed):
    """For binary targets the interval held all, and the score was 0.48: a cdf holds the probability of its value."""
    tasks, each, rng = 5000, 2, np.random.default_rng(0)
    centre = 3.0 if name in ("counts", "a score") else 0.4
    points = Tasks.from_inputs([np.arange(float(each))] * tasks)
    sds = (0.6, 1.5) if mixed else (0.9,)
    parts = [_around(points, centre + sd * rng.normal(size=(tasks * each, 1)), sd) for sd in sds]
    weights = torch.full((tasks, len(parts)), 1 / len(parts)).double().log()
    found = PossiblePosterior.of(MixturePosterior(parts, weights) if mixed else parts[0], [SUPPORTS[name]])
    y = found.samples(1, seed=1)[0]
    target = Tasks(points.x, y, points.offsets, points.ids, points.columns._replace(y=("y",)))
    scores = score(found, target)
    for level in LEVELS:
        lower, upper = found.interval(level / 100)
        inside = ((lower <= y) & (y <= upper)).double().view(tasks, each).mean(1)
        assert torch.equal(scores.values[f"coverage_{level}"], inside)
    assert scores.summary("coverage_90").mean > (0.97 if name == "binary" else 0.89)
    assert scores.summary("calibration_error").mean < 0.01  # three standard errors of the worst of nine
    wrong = dataclasses.replace(found, posterior=_widened(found.posterior, 3.0))
    right, off = (score(one, target).summary("calibration_error").mean for one in (found, wrong))
    assert off > 1.5 * right


def _around(points, means, sd):
    return IndependentGaussians(points, torch.from_numpy(means), torch.full(means.shape, sd).double())


def _widened(posterior, factor):
    if isinstance(posterior, MixturePosterior):
        return dataclasses.replace(posterior, components=[_widened(one, factor) for one in posterior.components])
    return IndependentGaussians(posterior.points, posterior.mean, factor * posterior.sd)


@pytest.mark.parametrize("name", SUPPORTS)
def test_what_is_right_needs_no_recalibration_however_its_values_are_cut_or_rounded(name):
    """A value that stands for many has all their probabilities, not that of one of them."""
    count, rng = 20_000, np.random.default_rng(0)
    points = Tasks.from_inputs([np.arange(float(count))])
    centre = torch.from_numpy(rng.normal(3.0 if name in ("counts", "a score") else 0.3, 0.7, (count, 1)))
    found = PossiblePosterior.of(
        IndependentGaussians(points, centre, torch.full((count, 1), 0.8).double()), [SUPPORTS[name]]
    )
    pit = (part.flatten() for part in found.pit_interval(found.samples(1, seed=2)[0]))
    calibration = Calibration.of(Calibration.pit_nodes(*pit), torch.ones(count).double(), 10**6)
    assert calibration.reach == pytest.approx(Calibration.identity().reach, rel=0.04)
