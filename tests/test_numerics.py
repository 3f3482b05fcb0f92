"""Where numbers are hard: everything works, or says why not; nothing is silently NaN."""

import gpytorch
import numpy as np
import pytest
import torch

from metaprior import MetaGP, NumericalError, Prior, Tasks, condition, evidence
from metaprior.inference import JITTER, factor
from metaprior.inference.factor import is_trusted, trusting
from metaprior.inference.small import inverse_and_logdet
from tests.problems import known_rbf

QUICK = {"hidden": (8,), "max_epochs": 40, "progress": False}


def test_factor_states_the_jitter_it_needed():
    good, singular = torch.eye(3).double(), torch.ones(3, 3).double()
    L, jitter = factor(torch.stack([good, singular]))
    assert jitter[0] == 0.0
    assert jitter[1] in JITTER[1:]
    assert torch.allclose(L[1] @ L[1].mT, singular, atol=1e-5)


def test_only_a_gpu_is_trusted():
    """Here a look costs nothing, and what cannot be factored is found at once."""
    with trusting():
        assert not is_trusted(torch.eye(2))
        with pytest.raises(NumericalError):
            factor(-torch.eye(2).double()[None])


def test_inverses_of_small_matrices_in_the_plain_way():
    roots = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 5, 5)))
    A = roots @ roots.mT + torch.eye(5)
    inverse, logdet = inverse_and_logdet(A)
    torch.testing.assert_close(inverse, torch.linalg.inv(A))
    torch.testing.assert_close(logdet, torch.linalg.slogdet(A).logabsdet)
    _, logdet = inverse_and_logdet(torch.stack([A[0], -A[1]]))
    assert logdet.isnan().tolist() == [False, True]


def test_repeated_inputs_without_noise_need_jitter_and_it_is_said():
    x, y = np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0, 2.0])
    tasks = Tasks.from_pairs([(x, y)])
    found = evidence(known_rbf(noise=0.0), tasks)
    assert torch.isfinite(found.total).all()
    assert found.jitter > 0
    posterior = condition(known_rbf(noise=0.0), tasks).at(tasks)
    assert posterior.jitter > 0
    assert torch.allclose(posterior.mean, tasks.y, atol=1e-3)


def test_repeated_inputs_with_noise_are_ordinary():
    tasks = Tasks.from_pairs([(np.zeros(5), np.arange(5.0))])
    posterior = condition(known_rbf(noise=0.5), tasks).at(tasks)
    assert posterior.jitter == 0.0
    # n observations of one value: precision-weighted mean of prior and data
    assert posterior.mean[0].item() == pytest.approx(10 / 0.5 / (1 / 1.3 + 5 / 0.5))


def test_noise_free_samples_on_a_grid_that_holds_the_context():
    prior = known_rbf(noise=0.0, lengthscale=1.0)
    grid = np.linspace(-5, 5, 50)
    tasks = Tasks.from_pairs([(grid, np.sin(grid))])
    context, _ = tasks.context_target(30, seed=0)
    posterior = condition(prior, context).at(tasks)
    draws = posterior.function.samples(4, seed=0)
    assert (draws - tasks.y).abs().max() < 0.02
    assert posterior.function.jitter == posterior.jitter > 0  # and it says that it needed some
    one = Tasks.from_pairs([([0.0], [1.0])])
    assert condition(prior, one).at(one).samples(2, seed=0).numpy() == pytest.approx(1.0, abs=0.01)


def test_values_whose_squares_overflow():
    y = 1e160 * np.sin(np.arange(40.0)).reshape(8, 5)
    gp = MetaGP("constant", "rbf", seed=0, **QUICK).fit(Tasks.from_pairs([(np.arange(5.0), row) for row in y]))
    assert np.isfinite(gp.condition([0.0], [1e160]).at([1.0]).mean.item())


class NegativeKernel(gpytorch.kernels.Kernel):
    def forward(self, x1, x2, diag=False, **_):
        return -torch.ones(*x1.shape[:-1], *(() if diag else (x2.shape[-2],)), dtype=x1.dtype)


def test_a_kernel_that_is_none_names_the_task_and_the_causes():
    prior = Prior(gpytorch.means.ZeroMean(), NegativeKernel(), 0.1, learn=())
    tasks = Tasks.from_pairs([([0.0, 1.0], [0.0, 1.0])], ids=["patient 7"])
    with pytest.raises(NumericalError, match=r"task 'patient 7'.*not positive definite.*\(a\).*\(b\)"):
        evidence(prior, tasks)
    with pytest.raises(NumericalError, match="patient 7"):
        condition(prior, tasks)


def test_infinite_parameters_name_the_task():
    prior = known_rbf()
    with torch.no_grad():
        prior.kernel.raw_outputscale.fill_(float("nan"))
    good, bad = ([0.0], [0.0]), ([0.0, 1.0], [0.0, 1.0])
    with pytest.raises(NumericalError, match=r"task 'a' \(2 in all\) is not finite"):
        evidence(prior, Tasks.from_pairs([good, bad], ids=["a", "b"]))


def test_a_single_point():
    tasks = Tasks.from_pairs([([0.5], [2.0])])
    prior = known_rbf()
    assert evidence(prior, tasks).total.item() == pytest.approx(
        torch.distributions.Normal(0.0, 1.4**0.5).log_prob(torch.tensor(2.0).double()).item()
    )
    assert condition(prior, tasks).at(tasks).mean.item() == pytest.approx(2.0 * 1.3 / 1.4)


# with an offset of 1e8 and a magnitude below 1, x would be lost to rounding before it reaches the library
@pytest.mark.parametrize(("magnitude", "offset"), [(1e-8, 0.0), (1e8, 0.0), (1.0, 1e8), (1e8, 1e8)])
def test_any_magnitude_gives_the_same_answer_in_its_own_units(magnitude, offset):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(30, 8))
    y = np.sin(3 * x) + rng.normal(size=(30, 1))
    plain = MetaGP("constant", "rbf", seed=0, **QUICK).fit(Tasks.from_pairs(zip(x, y, strict=True)))
    scaled = zip(offset + magnitude * x, magnitude * y, strict=True)
    moved = MetaGP("constant", "rbf", seed=0, **QUICK).fit(Tasks.from_pairs(scaled))
    at = np.linspace(-1, 1, 5)
    expected = plain.condition(x[0, :3], y[0, :3]).at(at)
    found = moved.condition(offset + magnitude * x[0, :3], magnitude * y[0, :3]).at(offset + magnitude * at)
    tolerance = 1e-4 if offset else 1e-6
    assert (found.mean / magnitude).numpy() == pytest.approx(expected.mean.numpy(), rel=tolerance, abs=tolerance)
    assert (found.sd / magnitude).numpy() == pytest.approx(expected.sd.numpy(), rel=tolerance)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e8, 1e-8])
def test_constant_tasks(value):
    tasks = Tasks.from_pairs([(np.arange(5.0), np.full(5, value))] * 8)
    posterior = MetaGP("deep", "deep", seed=0, **QUICK).fit(tasks).condition([0.0], [value]).at([2.0, 9.0])
    assert posterior.mean.ravel().tolist() == pytest.approx([value, value], rel=0.05, abs=0.05)
    assert torch.isfinite(posterior.sd).all()


def test_one_point_per_task():
    tasks = Tasks.from_pairs([([k], [2.0 * k]) for k in np.linspace(-1, 1, 40)])
    gp = MetaGP("deep", "rbf", seed=0, hidden=(8,), progress=False).fit(tasks)
    posterior = gp.condition([0.0], [0.0]).at([0.5])
    assert posterior.mean.item() == pytest.approx(1.0, abs=0.15)
