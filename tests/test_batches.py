import sys

import numpy as np
import pytest
import torch

from metaprior import Tasks
from metaprior.tasks import Inputs, Padded, SharedInputs, batches, on_one_grid
from metaprior.tasks.batches import MAX_ENTRIES, buckets
from tests.problems import mixed, ragged, shared


def test_every_task_is_in_exactly_one_batch():
    tasks = mixed()
    found = torch.cat([batch.tasks for batch in batches(tasks)])
    assert sorted(found.tolist()) == list(range(len(tasks)))


def test_tasks_with_identical_inputs_are_found_in_whatever_order_their_points_came():
    laid_out = batches(mixed())
    groups = sorted(len(batch.tasks) for batch in laid_out if isinstance(batch, SharedInputs))
    assert groups == [4, 6]


def test_shared_statistics_are_count_mean_and_covariance():
    tasks = shared(d=2, p=2, count=7, n=5)
    (batch,) = batches(tasks)
    assert isinstance(batch, SharedInputs)
    y = batch.y.numpy()
    assert batch.mean[0].numpy() == pytest.approx(y.mean(0))
    expected = sum(np.cov(y[:, :, k], rowvar=False, bias=True) for k in range(2))
    assert batch.scatter[0].numpy() == pytest.approx(expected)


def test_negative_zero_is_zero():
    x = np.array([0.0, 1.0])
    tasks = Tasks.from_pairs([(x * sign, np.ones(2)) for sign in (1.0, 1.0, 1.0, 1.0)] + [([-0.0, 1.0], np.ones(2))])
    (batch,) = batches(tasks)
    assert len(batch.tasks) == 5


def test_padding_keeps_values_and_marks_the_rest():
    tasks = ragged(d=2, p=2)
    for batch in batches(tasks):
        assert isinstance(batch, Padded)
        x = batch.inputs.distinct[batch.inputs.index]
        for row, i in enumerate(batch.tasks.tolist()):
            keep = batch.mask[row]
            assert torch.equal(x[row][keep], tasks[i].x)
            assert torch.equal(batch.y[row][keep], tasks[i].y)
            assert batch.y[row][~keep].abs().sum() == 0


def test_repeated_inputs_are_kept_once():
    tasks = Tasks.from_pairs([(np.arange(n) % 3.0, np.zeros(n)) for n in range(1, 9)])
    for batch in batches(tasks):
        assert len(batch.inputs.distinct) <= 3


def test_buckets_bound_padding_and_memory():
    sizes = torch.from_numpy(np.random.default_rng(0).geometric(0.06, 4000))
    found = list(buckets(sizes))
    assert sorted(torch.cat(found).tolist()) == list(range(4000))
    entries = [len(b) * int(sizes[b].max()) ** 2 for b in found]
    assert max(entries) <= MAX_ENTRIES
    assert sum(len(b) * int(sizes[b].max()) for b in found) <= 1.25 * int(sizes.sum())
    assert len(found) < 30


def test_one_huge_task_is_a_bucket_of_its_own():
    found = list(buckets(torch.tensor([3, 5000, 4])))
    assert [b.tolist() for b in found] == [[0, 2], [1]]


def test_tasks_on_one_grid_are_found_without_sorting():
    tasks = Tasks.on_grid([[1.0, 2.0], [0.0, 3.0], [1.0, 1.0]], np.arange(15.0).reshape(5, 3))
    assert on_one_grid(tasks)
    (batch,) = batches(tasks)
    assert isinstance(batch, SharedInputs)
    assert batch.y[3, :, 0].tolist() == [9.0, 10.0, 11.0]
    assert not on_one_grid(shared())  # the same inputs in another order: grouped, but by sorting
    assert not on_one_grid(ragged())
    assert not on_one_grid(tasks.select([0, 1]))  # too few to be worth it


def test_batches_share_their_distinct_points():
    tasks = mixed()
    laid_out = batches(tasks)
    assert len(laid_out) > 2
    distinct = laid_out[0].inputs.distinct
    assert all(batch.inputs.distinct is distinct for batch in laid_out)
    assert len(distinct) == len(np.unique(tasks.x.numpy()))
    for batch in laid_out:
        first, size = int(batch.tasks[0]), int(tasks.sizes[batch.tasks[0]])
        seen = distinct[batch.inputs.index[0, :size]][:, 0]
        assert sorted(seen.tolist()) == sorted(tasks[first].x[:, 0].tolist())


def test_the_scatter_of_many_tasks_is_summed_in_parts(monkeypatch):
    tasks = shared(count=11)
    whole = batches(tasks)[0].scatter
    monkeypatch.setattr(sys.modules["metaprior.tasks.batches"], "CHUNK", 3)
    assert torch.allclose(batches(tasks)[0].scatter, whole)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_distinct_points_are_those_of_numpy(d):
    x = torch.from_numpy(np.random.default_rng(d).integers(-2, 2, (8, 25, d)).astype(float))
    inputs = Inputs.of(x)
    assert len(inputs.distinct) == len(np.unique(x.reshape(-1, d).numpy(), axis=0))
    assert torch.equal(inputs.distinct[inputs.index], x)
