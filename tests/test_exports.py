"""A learned prior in GPyTorch and BoTorch: the same posterior, in the user's units."""

import gpytorch
import numpy as np
import pytest
import torch

from metaprior import DataError, MetaGP, NotFittedError, Tasks
from tests.problems import ragged

CONFIGURATIONS = [("deep", "deep"), ("zero", "rbf"), ("linear", "matern"), ("constant", "deep")]


def fitted(mean, kernel, d=1, p=1):
    tasks = ragged(d=d, p=p, count=20)
    units = Tasks.from_pairs([(3 * t.x + 10, 50 * t.y + torch.arange(p) * 200 - 7) for t in tasks])
    return MetaGP(mean, kernel, hidden=(6, 5), max_epochs=15, progress=False).fit(units)


def new_task(d=1, p=1, n=6):
    rng = np.random.default_rng(3)
    return 10 + 3 * rng.normal(size=(n, d)), 40 * rng.normal(size=(n, p)), 10 + 3 * rng.normal(size=(9, d))


@pytest.mark.parametrize(("mean", "kernel"), CONFIGURATIONS)
@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_gpytorch_and_botorch_have_our_posterior(mean, kernel, d, p):
    gp = fitted(mean, kernel, d, p)
    x, y, at = new_task(d, p)
    ours = gp.condition(x, y).at(at)
    scale = float(ours.sd.max())
    model = gp.to_gpytorch(x, y)
    points = torch.as_tensor(at)
    with torch.no_grad(), gpytorch.settings.fast_pred_var(False):
        theirs = model(points if p == 1 else points.expand(p, -1, -1))
        seen = model.likelihood(theirs)
    assert theirs.mean.reshape(p, -1).mT.numpy() == pytest.approx(ours.mean.numpy(), abs=1e-6 * scale)
    assert theirs.variance.reshape(p, -1).mT.numpy() == pytest.approx(
        ours.function.variance.numpy(), abs=1e-6 * scale**2
    )
    assert seen.variance.reshape(p, -1).mT.numpy() == pytest.approx(ours.variance.numpy(), abs=1e-6 * scale**2)
    bo = gp.to_botorch(x, y)
    with torch.no_grad():
        posterior = bo.posterior(points)
    assert posterior.mean.numpy() == pytest.approx(ours.mean.numpy(), abs=1e-6 * scale)
    assert posterior.variance.numpy() == pytest.approx(ours.function.variance.numpy(), abs=1e-6 * scale**2)


def test_an_acquisition_function_can_be_optimised():
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf

    gp = fitted("deep", "rbf")
    x, y, _ = new_task()
    improvement = LogExpectedImprovement(gp.to_botorch(x, y), best_f=float(y.max()))
    bounds = torch.tensor([[4.0], [16.0]], dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        point, value = optimize_acqf(improvement, bounds, q=1, num_restarts=3, raw_samples=16)
    assert 4.0 <= float(point) <= 16.0
    assert bool(torch.isfinite(value))


def test_what_is_refused():
    with pytest.raises(NotFittedError):
        MetaGP().to_gpytorch([1.0], [1.0])
    gp = fitted("zero", "rbf")
    with pytest.raises(DataError, match="2 input columns"):
        gp.to_gpytorch(np.zeros((3, 2)), np.zeros(3))


def test_exporting_leaves_the_model_as_it_is():
    gp = fitted("deep", "deep")
    x, y, at = new_task()
    before = gp.condition(x, y).at(at).mean
    model = gp.to_botorch(x, y)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert all(parameter.requires_grad for parameter in gp.prior_.learned_parameters())
    assert len(gp.prior_.learned_parameters()) > 3
    assert torch.equal(gp.condition(x, y).at(at).mean, before)
