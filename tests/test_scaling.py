import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaprior import Scaler, Tasks
from tests.problems import ragged

numbers = st.floats(-1e6, 1e6)


def test_scaled_meta_tasks_have_mean_zero_and_deviation_one():
    scaled = Scaler.fit(tasks := ragged(d=2, p=3)).scale(tasks)
    for values in (scaled.x, scaled.y):
        assert values.mean(0).abs().max() < 1e-12
        assert values.std(0, correction=0) == pytest.approx([1.0] * values.shape[1])


def test_statistics_come_from_the_meta_tasks_alone():
    scaler = Scaler.fit(ragged(seed=0))
    other = ragged(seed=9)
    assert torch.equal(scaler.scale(other).x, (other.x - scaler.x_shift) / scaler.x_scale)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=20))
def test_scaling_is_invertible(rows):
    values = np.array(rows)
    scaler = Scaler.fit(tasks := Tasks.from_pairs([(values[:, 0], values[:, 1])]))
    back = scaler.unscale_mean(scaler.scale(tasks).y)
    assert back.ravel().tolist() == pytest.approx(values[:, 1].tolist(), rel=1e-9, abs=1e-9)


def test_variances_and_densities_change_by_the_jacobian():
    scaler = Scaler.fit(ragged(p=2))
    normal = torch.distributions.Normal(0.3, 0.7)
    y = torch.tensor([[0.1, -0.4]], dtype=torch.float64)
    moved = torch.distributions.Normal(
        scaler.unscale_mean(torch.full((2,), 0.3).double()), scaler.unscale_sd(torch.full((2,), 0.7).double())
    )
    assert scaler.unscale_log_density(normal.log_prob(y)).tolist()[0] == pytest.approx(
        moved.log_prob(scaler.unscale_mean(y)).tolist()[0]
    )


@pytest.mark.parametrize("value", [0.0, 5.0, 1e8, -1e-8])
def test_constant_columns_scale_by_their_magnitude(value):
    scaler = Scaler.fit(tasks := Tasks.from_pairs([(np.full(4, value), np.full(4, value))]))
    assert scaler.y_scale.item() == pytest.approx(abs(value) or 1.0)
    assert scaler.scale(tasks).y.abs().max() == 0


def test_identity_changes_nothing():
    tasks = ragged(d=2, p=2)
    scaled = Scaler.identity(2, 2).scale(tasks)
    assert torch.equal(scaled.x, tasks.x)
    assert torch.equal(scaled.y, tasks.y)
