import math

import numpy as np
import pytest
import torch
from scipy import stats

from metaprior import DataError, Tasks, UnknownNameError, condition, paired_difference, score
from metaprior.scoring import LEVELS, summarise
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
    gaps = [abs(scores.values[f"coverage_{level}"].mean().item() - level / 100) for level in LEVELS]
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
