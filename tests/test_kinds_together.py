"""Kinds of tasks all at once, against kind by kind."""

import pytest
import torch

from metaprior.errors import DataError, NumericalError
from metaprior.learning import TaskDesigns, k_means, kinds_together
from metaprior.learning.kinds_together import evidences_together, maximised_together
from metaprior.learning.mixtures import FIRST
from metaprior.priors import make_basis
from tests.problems import ragged


@pytest.fixture(params=[1, 2])
def designs(request):
    tasks = ragged(p=request.param, count=60, largest=12)
    return TaskDesigns.of(make_basis("spline", tasks.x, 5), tasks)


@pytest.fixture
def shares(designs):
    hard = k_means(designs.projected.flatten(1), 3, seed=0)
    return (hard + 0.05) / (hard + 0.05).sum(1, keepdim=True)


def one_by_one(designs, shares, ranks, models):
    return [designs.maximised(shares[:, c], ranks[c], 1e-6, models[c]) for c in range(3)]


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.noise == pytest.approx(b.noise, rel=1e-8)
        torch.testing.assert_close(a.mean, b.mean, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(a.loadings @ a.loadings.mT, b.loadings @ b.loadings.mT, rtol=1e-7, atol=1e-8)


def test_the_first_round_and_the_next_are_the_same(designs, shares):
    models = [None] * 3
    for ranks in ([2, 1, 2], [2, 1, 2], [2, 2, 1]):  # in the last, two begin anew
        expected = one_by_one(designs, shares, ranks, models)
        close(maximised_together(designs, shares, ranks, 1e-6, models, FIRST), expected)
        models = expected


def test_the_evidence_of_each_task_is_the_same(designs, shares):
    models = one_by_one(designs, shares, [3, 1, 2], [None] * 3)
    expected = torch.stack([designs.evidence(model) for model in models], 1)
    torch.testing.assert_close(evidences_together(designs, models), expected, rtol=1e-9, atol=1e-9)


def test_scores_that_no_task_determines_are_told(designs, shares):
    """Also where the other kinds are fine."""
    fine, other, _ = one_by_one(designs, shares, [2, 2, 2], [None] * 3)
    steep = other._replace(loadings=1e9 * torch.ones_like(other.loadings), noise=1e-12)  # one component twice
    for evidences in (designs.evidences, lambda models: evidences_together(designs, models)):
        with pytest.raises(NumericalError, match="covariance is not positive definite"):
            evidences([fine, steep])


def test_what_tasks_do_not_determine_is_told(designs, shares):
    none = shares.clone()
    none[:, 1] = 0.0
    none[designs.points == 1, 1] = 1.0
    few = none[:, 1] > 0
    none[few, 1] = (few.nonzero()[:, 0] < int(few.nonzero()[3])).double()  # three tasks of a point each
    with pytest.raises(DataError, match="do not determine every function"):
        maximised_together(designs, none, [1, 1, 1], 1e-6, [None] * 3, FIRST)


@pytest.mark.parametrize(("scores", "basis", "error"), [(True, False, NumericalError), (False, True, DataError)])
def test_one_kind_that_cannot_be_learned_is_told(monkeypatch, scores, basis, error):
    """Also where the others can."""
    failed = torch.tensor([[False, True]])
    found = (None, failed & scores, failed & basis)
    monkeypatch.setattr(kinds_together, "em_step", lambda *given: found)
    with pytest.raises(error):
        kinds_together._stepped(None, None, None)
