"""Each context is factored once: whatever is asked later is a view of that."""

import numpy as np
import pandas as pd
import pytest
import torch

from metaprior import FPCA, Auto, Combination, HyperPosterior, LearnedPrior, MetaGP, Mixture, Tasks, Warped
from metaprior.methods import GPPerTask
from metaprior.methods.per_task import LENGTHS, NOISES, VARIANCES
from metaprior.tasks import Columns

GRID = len(LENGTHS) * len(VARIANCES) * len(NOISES)
SMALL = {"max_epochs": 5, "progress": False}


def curves(count=24, seed=0, n=9):
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 2, n))
        pairs.append((x, 5 + np.sin(3 * x) + rng.normal() + 0.1 * rng.normal(size=n)))
    return Tasks.from_pairs(pairs, [f"{seed} {k}" for k in range(count)])


@pytest.fixture
def factored(monkeypatch):
    """How many matrices were factored by each call since the list was cleared."""
    counts = []

    def counting(whole):
        def count(A, **options):
            counts.append(A.shape[:-2].numel() if A.shape[-1] else 0)
            return whole(A, **options)

        return count

    for name in ("cholesky", "cholesky_ex"):
        monkeypatch.setattr(torch.linalg, name, counting(getattr(torch.linalg, name)))
    return counts


METHODS = {
    "a prior": (lambda: LearnedPrior("constant", "matern", **SMALL), 1),
    "functional PCA": (lambda: FPCA(size=5, rank=2), 1),
    "a Student-t process": (lambda: LearnedPrior("constant", "rbf", degrees=5.0, **SMALL), 1),
    "a warp": (lambda: Warped(LearnedPrior("constant", "rbf", **SMALL)), 1),
    "kinds": (lambda: Mixture(2, rank=1, size=5), 2),
    "members": (lambda: HyperPosterior(members=3, hidden=(4,), max_epochs=5), 3),
    "a grid of kernels": (lambda: GPPerTask(), GRID),
    "a combination": (lambda: Combination([FPCA(size=5, rank=2), Mixture(2, rank=1, size=5)], [1, 1]), 3),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_context_is_factored_once_for_each_gaussian(name, factored):
    make, gaussians = METHODS[name]
    method = make().fit(curves())
    context, target = curves(5, seed=1).context_target(4, seed=0)
    factored.clear()
    conditional = method.condition(context)
    assert sum(factored) == gaussians * len(context)
    for points in (target, [0.1, 1.7]):
        posterior = conditional.at(points)
        assert torch.isfinite(posterior.mean).all()
        posterior.interval(0.9), conditional.evidence, posterior.evidence, conditional.plausibility
    assert sum(factored) == gaussians * len(context)


def test_prediction_with_the_choice_is_one_pass_and_plausibility_a_view_of_it(factored):
    auto = Auto(rungs=("gp per task", "fpca"), progress=False).fit(curves())
    each = {"gp per task": GRID, "fpca": 1}
    table = {"task": [], "x": [], "y": []}
    context, _ = curves(5, seed=1).context_target(4, seed=0)
    for task in context:
        table["task"] += [task.id] * 4
        table["x"] += task.x[:, 0].tolist()
        table["y"] += task.y[:, 0].tolist()
    gp = MetaGP.of(auto)
    assert gp.trained_on_.columns == Columns(("task",), ("x",), ("y",))
    factored.clear()
    found = gp.predict(pd.DataFrame(table), at=[0.3, 1.1])
    assert "plausibility" in found.columns
    assert sum(factored) == len(context) * sum(each[name] for name in auto.chosen_)


def test_a_second_question_does_not_condition_again(factored):
    gp = MetaGP("constant", "matern", **SMALL).fit(curves())
    conditional = gp.condition([0.1, 0.5, 1.0], [5.0, 6.0, 6.2])
    factored.clear()
    one, two = conditional.at([0.3]), conditional.at([0.3, 1.5])
    assert factored == []
    assert float(one.mean[0]) == float(two.mean[0])
    assert conditional.evidence.total.shape == (1,)
