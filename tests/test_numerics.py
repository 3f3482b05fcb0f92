"""Where numbers are hard: everything works, or says why not; nothing is silently NaN."""

import math

import gpytorch
import numpy as np
import pytest
import scipy.special
import torch

from metaprior import MetaGP, NumericalError, Prior, Tasks, condition, evidence, make_prior
from metaprior.inference import (
    JITTER,
    ContextBatch,
    GaussianConditional,
    IndependentGaussians,
    StackedTasks,
    UserPosterior,
    factor,
    stacked_evidence,
    summed_evidence,
)
from metaprior.inference.evidence import feature_terms, log_gamma_ratio
from metaprior.inference.factor import attempt, is_trusted, mean_over, padded_identity, trusting
from metaprior.inference.normal import normal_cdf
from metaprior.inference.small import inverse_and_logdet
from metaprior.priors import BasisKernel, Degrees, PolynomialBasis, squared_distances, stacked
from metaprior.tasks import Scaler, batches
from metaprior.tasks.batches import padded
from tests.problems import known_rbf

QUICK = {"hidden": (8,), "max_epochs": 40, "progress": False}


def test_factor_states_the_jitter_it_needed():
    good, singular = torch.eye(3).double(), torch.ones(3, 3).double()
    L, jitter = factor(torch.stack([good, singular]))
    assert jitter[0] == 0.0
    assert jitter[1] in JITTER[1:]
    assert torch.allclose(L[1] @ L[1].mT, singular, atol=1e-5)


@pytest.mark.parametrize("scale", [None, 40.0])
def test_jitter_is_the_first_that_works_relative_to_the_scale(scale):
    lacking = torch.tensor([-1.0, 1e-10, 1e-8, 1e-6, 1e-5], dtype=torch.float64)
    A = torch.diag_embed(torch.stack([torch.full_like(lacking, 2.0), torch.full_like(lacking, 4.0), -lacking], 1))
    unit = A.diagonal(dim1=-2, dim2=-1).mean(-1) if scale is None else torch.full_like(lacking, scale)
    works = [[step for step in JITTER if step * one > least] for one, least in zip(unit, lacking, strict=True)]
    L, jitter, failed = attempt(A, None if scale is None else unit)
    assert failed.tolist() == [not steps for steps in works]
    L, jitter, unit, A = L[~failed], jitter[~failed], unit[~failed], A[~failed]
    assert jitter.tolist() == [steps[0] for steps in works if steps]
    torch.testing.assert_close(L @ L.mT, A + (jitter * unit)[:, None, None] * torch.eye(3), rtol=1e-12, atol=0.0)
    assert torch.equal(factor(A, None, None if scale is None else unit).L, L)


@pytest.mark.parametrize(
    ("names", "said"), [(list("abcd"), "task 'c'"), (None, "batch element 2"), (["a"], "the tasks like 'a'")]
)
def test_of_several_matrices_the_first_that_has_no_factor_is_named(names, said):
    several = torch.eye(3).double().repeat(4, 1, 1)
    several[2:] *= -1.0
    with pytest.raises(NumericalError, match=rf"{said} \(2 in all\) is not positive definite"):
        factor(several, names)
    L, _, failed = attempt(several)
    assert failed.tolist() == [False, False, True, True]
    assert torch.equal(L, torch.eye(3).double().expand(4, 3, 3))
    several[2, 0, 1] = several[3, 2, 2] = torch.nan
    with pytest.raises(NumericalError, match=rf"{said} \(2 in all\) is not finite"):
        factor(several, names)


def test_what_is_padded_counts_in_no_mean_and_is_independent_of_all_else():
    mask = torch.arange(3) < torch.tensor([0, 1, 3])[:, None]
    values = torch.tensor([[9.0, 9.0, 9.0], [2.0, torch.nan, 9.0], [1.0, 2.0, 6.0]]).double()
    assert mean_over(values, mask).tolist() == [0.0, 2.0, 3.0]
    A = torch.arange(9.0).reshape(3, 3) + 2
    nothing, one, whole = padded_identity(A.expand(3, 3, 3), mask)
    assert torch.equal(nothing, torch.eye(3))
    assert torch.equal(one, torch.diag(torch.tensor([2.0, 1.0, 1.0])))
    assert torch.equal(whole, A)


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


# what the campaign's problems found (campaign/numerics)


def known(kernel, d=1, variance=1.3, lengthscale=0.7, noise=0.1, **options):
    prior = make_prior("zero", kernel, d=d, noise=noise, seed=0, **options)
    prior.kernel.outputscale = torch.tensor(variance, dtype=torch.float64)
    prior.kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return prior


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("kernel", ["rbf", "matern", "exponential"])
def test_far_away_it_is_the_prior(kernel, d):
    context = Tasks.from_pairs([(np.outer([0.0, 1.0], np.ones(d)), [1.0, 2.0])])
    posterior = condition(known(kernel, d), context).at(np.full((1, d), 1e160))
    assert posterior.mean.item() == 0.0
    assert posterior.sd.item() == pytest.approx(1.4**0.5)
    apart = Tasks.from_pairs([(np.outer([0.0, 1e200], np.ones(d)), [1.0, 2.0])])
    assert evidence(known(kernel, d), apart).total.item() == pytest.approx(-0.5 * (5 / 1.4) - np.log(2 * np.pi * 1.4))


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("kernel", ["rbf", "matern", "exponential"])
def test_points_close_together_far_from_0_keep_their_distances(kernel, d):
    rng = np.random.default_rng(d)
    x, y = rng.integers(-512, 512, size=(5, d)) / 512, rng.normal(size=5)  # which 1e9 + x holds in all digits
    prior = known(kernel, d, lengthscale=0.7 * d)
    found = []
    for offset in (0.0, 1e9):
        tasks = Tasks.from_pairs([(offset + x, y)])
        total = evidence(prior, tasks).total.sum()
        (slope,) = torch.autograd.grad(total, [prior.kernel.base_kernel.raw_lengthscale])
        stack = stacked([prior])
        together = stacked_evidence(stack, stack.start, StackedTasks.of([tasks]), sloped=True)
        found.append([total.item(), slope.item(), together.total[0], *together.slopes[0]])
    assert found[1] == pytest.approx(found[0], rel=1e-12)
    assert found[0][0] == pytest.approx(found[0][2], rel=1e-12)


def test_neighbours_keep_their_distance_however_many_columns():
    rng = np.random.default_rng(0)
    z = torch.from_numpy(30 * rng.normal(size=(4, 40)).repeat(3, 0) + 1e-7 * rng.normal(size=(12, 40)))
    expected = (z[:, None] - z).square().sum(-1)
    assert torch.allclose(squared_distances(z, z), expected, rtol=1e-12, atol=0)
    batched = squared_distances(z.expand(2, -1, -1), z[:5])
    assert torch.allclose(batched, expected[:, :5].expand(2, -1, -1), rtol=1e-12, atol=0)


def test_the_evidence_is_the_same_with_and_without_a_gradient():
    """κ is 1e14: by an inverse, the data fit had four digits left."""
    x = np.linspace(0, 1, 12)
    tasks = Tasks.from_pairs([(x, np.ones(12))])
    prior = known("rbf", noise=1e-13)
    traced = evidence(prior, tasks)
    with torch.no_grad():
        plain = evidence(prior, tasks)
    stack = stacked([prior])
    sloped, quick = (
        stacked_evidence(stack, stack.start, StackedTasks.of([tasks]), sloped=slopes).total[0]
        for slopes in (True, False)
    )
    assert traced.data_fit.item() == pytest.approx(plain.data_fit.item(), rel=1e-8)
    assert sloped == pytest.approx(quick, rel=1e-8)


def test_a_task_with_fewer_points_than_features_keeps_its_digits_beside_a_longer_one():
    rng = np.random.default_rng(0)
    loadings = torch.from_numpy(rng.normal(size=(4, 3)))
    prior = Prior(
        gpytorch.means.ZeroMean(), BasisKernel(PolynomialBasis(-1.0, 1.0, 4), loadings), 1e-12, learn=("kernel",)
    )
    short, long = ([0.3], [1.7]), (np.linspace(-1, 1, 9), rng.normal(size=9))
    alone = Tasks.from_pairs([short], ids=["short"])
    both = Tasks.from_pairs([long, short], ids=["long", "short"])
    variance = float(prior.variance(prior.at(alone.x))[0].detach()) + 1e-12
    exact = -0.5 * (1.7**2 / variance + np.log(2 * np.pi * variance))
    for found in (evidence(prior, both).total[1], condition(prior, both).evidence.total[1]):
        assert found.item() == pytest.approx(exact, rel=1e-13)
    expected, found = (condition(prior, tasks).at([-0.5, 0.3]) for tasks in (alone, both))
    assert torch.allclose(found.mean[2:], expected.mean, rtol=1e-12)
    assert torch.allclose(found.variance[2:], expected.variance, rtol=1e-10, atol=1e-14)
    (slope,) = torch.autograd.grad(evidence(prior, both).total[1], [prior.kernel.loadings])
    (own,) = torch.autograd.grad(evidence(prior, alone).total[0], [prior.kernel.loadings])
    assert torch.allclose(slope, own, rtol=1e-10)


def test_no_variance_on_the_diagonal_of_a_covariance_is_negative():
    tasks = Tasks.from_pairs([([0.3], [1.0])])
    for variance in np.random.default_rng(0).uniform(1, 2, 50):
        posterior = condition(known("rbf", variance=variance, noise=0.0), tasks).at([0.3]).function
        assert posterior.covariances()[0].item() >= 0


def test_values_around_1e9_are_summed_as_they_are_one_by_one():
    """The mean of such values is no float64: what is lost is kept beside it."""
    rng = np.random.default_rng(0)
    x = np.arange(3.0)
    tasks = Tasks.from_pairs([(x, 1e9 + rng.choice([-1.0, 1.0], 3)) for _ in range(21)])
    prior = make_prior("constant", "rbf", d=1, noise=0.1, seed=0)
    with torch.no_grad():
        prior.mean.raw_constant.fill_(1e9 + 0.5)
        one_by_one = evidence(prior, tasks).total.sum().item()
        together = summed_evidence(prior, batches(tasks), tasks.ids).total.item()
    stack = stacked([prior])
    assert together == pytest.approx(one_by_one, rel=1e-13)
    assert stacked_evidence(stack, stack.start, StackedTasks.of([tasks])).total[0] == pytest.approx(
        one_by_one, rel=1e-13
    )


def test_a_stack_tells_its_jitter_which_is_of_each_tasks_own_size():
    """Padding has variance 1, which says nothing of a task whose variance is 1e-20."""
    short, long = ([0.0, 0.0, 0.0], [1e-10] * 3), ([0.0, 1.0, 2.0, 4.0, 5.0], np.full(5, 1e-10))
    tasks = Tasks.from_pairs([short, long])
    prior = known("rbf", variance=1e-20, noise=0.0)
    stack = stacked([prior, known("rbf", variance=1e-20, noise=1e-21)])
    found = stacked_evidence(stack, stack.start, StackedTasks.of([tasks, tasks]))
    plain = evidence(prior, tasks)
    assert found.jitter.tolist() == [plain.jitter, 0.0]
    assert plain.jitter > 0
    assert found.total[0] == pytest.approx(plain.total.sum().item(), rel=1e-6)


def test_a_stack_reads_parameters_as_torch_does():
    """From 20 on torch's softplus is the identity."""
    tasks = Tasks.from_pairs([([0.0, 1.0], [1.0, 2.0])])
    prior = known("rbf", variance=21.0, lengthscale=22.0, noise=0.1)
    stack = stacked([prior])
    found = stacked_evidence(stack, stack.start, StackedTasks.of([tasks]), sloped=True)
    total = evidence(prior, tasks).total.sum()
    scale, length = torch.autograd.grad(total, [prior.kernel.raw_outputscale, prior.kernel.base_kernel.raw_lengthscale])
    assert found.total[0] == pytest.approx(total.item(), rel=1e-13)
    assert found.slopes[0] == pytest.approx([scale.item(), length.item()], rel=1e-12)


def test_the_normal_distribution_keeps_its_digits_in_the_tail():
    z = torch.tensor([-37.0, -20.0, -9.0, -5.0, -1.0, 0.0, 2.0], dtype=torch.float64)
    assert normal_cdf(z).numpy() == pytest.approx(scipy.special.ndtr(z.numpy()), rel=1e-12, abs=0)
    posterior = condition(known("rbf"), Tasks.from_pairs([([0.0], [1.0])])).at([0.5])
    far = posterior.mean - 20 * posterior.sd
    assert posterior.cdf(far).item() == pytest.approx(scipy.special.ndtr(-20.0), rel=1e-11, abs=0)


def test_quantiles_of_students_t_far_out():
    posterior = condition(known("rbf", degrees=2.2), Tasks.from_pairs([([0.0], [1.0])])).at([0.5])
    levels = [1e-300, 1e-200, 1e-100, 1e-20, 1e-3]
    for quantile, level in zip(posterior.quantiles(levels), levels, strict=True):
        assert posterior.cdf(quantile).item() == pytest.approx(level, rel=1e-10, abs=0)


@pytest.mark.parametrize("a", [0.7, 3.7, 19.9, 20.0, 20.001, 33.3, 1e3, 1e8])
def test_a_ratio_of_gamma_functions_is_a_product(a):
    """`Γ(a + n) / Γ(a) = a (a + 1) … (a + n - 1)`."""
    for n in (1, 2, 3, 12, 40):
        expected = math.fsum(math.log(a + i) for i in range(n))
        found = log_gamma_ratio(torch.tensor(a, dtype=torch.float64), float(n)).item()
        assert found == pytest.approx(expected, rel=4e-15 if a > 20 else 1e-13, abs=1e-14)


def test_with_very_many_degrees_of_freedom_a_student_process_is_gaussian_to_the_last_digit():
    tasks = Tasks.from_pairs([([0.0, 1.0, 2.0], [1.0, 0.0, 1.0])])
    student, gaussian = (evidence(known("rbf", degrees=degrees), tasks) for degrees in (1e13, None))
    assert student.normaliser.item() == pytest.approx(gaussian.normaliser.item(), rel=1e-12)
    at = condition(known("rbf", degrees=1e13), tasks).at([0.5]), condition(known("rbf"), tasks).at([0.5])
    assert at[0].log_density([0.3]).item() == pytest.approx(at[1].log_density([0.3]).item(), rel=1e-11)


class NowhereBeyond(gpytorch.kernels.Kernel):
    def forward(self, x1, x2, diag=False, **_):
        found = torch.where((x1.abs() > 5) | (x2.mT.abs() > 5), torch.nan, torch.exp(-(x1 - x2.mT).abs()))
        return found.diagonal(dim1=-2, dim2=-1) if diag else found


def test_a_posterior_that_is_no_number_names_task_and_point():
    prior = Prior(gpytorch.means.ZeroMean(), NowhereBeyond(), 0.1, learn=())
    tasks = Tasks.from_pairs([([0.0], [0.0])], ids=["patient 7"])
    with pytest.raises(NumericalError, match=r"task 'patient 7' at \[9\.0\] is not finite"):
        condition(prior, tasks).at([1.0, 9.0])
    one_of_two = Prior(
        lambda x: torch.cat([x, torch.where(x > 5, torch.nan, x)], -1), known_rbf().kernel, 0.1, learn=()
    )
    tasks = Tasks.from_pairs([([0.0], [[0.0, 0.0]])] * 2, ids=["patient 7", "patient 8"])
    with pytest.raises(NumericalError, match=r"task 'patient 8' at \[9\.0\] is not finite"):
        condition(one_of_two, tasks).at(Tasks.from_inputs([[1.0, 2.0], [1.0, 9.0, 2.0]], tasks.ids))


def test_a_task_that_is_wilder_than_float64_can_tell_is_named():
    tasks = Tasks.from_pairs([([0.0], [0.0]), ([0.0], [1e200])], ids=["calm", "wild"])
    with pytest.raises(NumericalError, match="task 'wild' is so large"):
        condition(known("rbf", degrees=5.0), tasks)


def test_covariances_in_units_whose_square_overflows():
    scaled = IndependentGaussians(
        Tasks.from_pairs([([0.0, 1.0], [0.0, 0.0])]), torch.zeros(2, 1), torch.full((2, 1), 1e-10)
    )
    one = torch.ones(1, dtype=torch.float64)
    (found,) = UserPosterior(scaled, scaled.points, Scaler(0 * one, one, 0 * one, 1e160 * one)).covariances()
    assert found.flatten().tolist() == pytest.approx([1e300, 0.0, 0.0, 1e300])


def test_features_that_do_not_differ_need_jitter_of_the_points_own_kind():
    """Jitter of the features' precision would stand for something else: the evidence was off by millions."""
    loadings = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    prior = Prior(gpytorch.means.ZeroMean(), BasisKernel(PolynomialBasis(-1.0, 1.0, 3), loadings), 1e-18, learn=())
    tasks = Tasks.from_pairs([(np.linspace(-1, 1, 6), np.ones(6))] * 2)
    plain = GaussianConditional(tasks, [ContextBatch(prior, batch, tasks) for batch in padded(tasks)])
    assert plain.jitter > 0
    for found in (evidence(prior, tasks), condition(prior, tasks).evidence):
        assert found.jitter == plain.jitter
        assert found.total.numpy() == pytest.approx(plain.evidence.total.numpy(), rel=1e-6)


def test_a_covariance_so_small_that_its_inverse_overflows_is_told():
    prior = known("rbf", variance=1e-300, noise=1e-310)
    tasks = Tasks.from_pairs([([0.0, 0.0], [0.0, 0.0])], ids=["small"])
    with pytest.raises(NumericalError, match=r"task 'small'.*overflows"):
        evidence(prior, tasks).total.sum().backward()


@pytest.mark.parametrize("together", [False, True])
def test_a_slope_that_overflows_on_its_way_is_told(together):
    """Evidence and slope are ordinary numbers here, but an entry of ααᵀ, or of A⁻¹SA⁻¹, is none."""
    prior = known("rbf", variance=1e-296, noise=1e-306)
    pairs = [([0.0, 0.1], [sign * 1e-140, sign * 1e-140 * (1 + 1e-9)]) for sign in (1.0, -1.0)]
    tasks = Tasks.from_pairs(pairs, ids=["tiny", "other"])
    found = (summed_evidence(prior, batches(tasks), tasks.ids) if together else evidence(prior, tasks)).total
    assert torch.isfinite(found).all()
    with pytest.raises(NumericalError, match=r"task 'tiny'.*overflows: scale y"):
        found.sum().backward()


def test_features_whose_products_overflow_and_cancel_are_told():
    """The second task's first point is `∞ − ∞` in the features, though its value is 0."""
    Z = torch.tensor([[[1.0, 1.0], [0.0, 1.0]], [[1e5, 1e5], [0.0, 1.0]]], dtype=torch.float64)
    R = torch.tensor([[[0.0], [1.0]], [[0.0], [1e304]]], dtype=torch.float64)
    with pytest.raises(NumericalError, match=r"task 'b'.*overflows: scale y"):
        feature_terms(Z, torch.ones(2, 2).double(), R, None, ["a", "b"])


def test_a_students_data_fit_in_features_is_no_difference_of_two_large_numbers():
    """|R|² − |M^{-½}ZᵀR|² is below 0 for values around 1e9 of which 1e-6 is noise, and a logarithm of that is NaN."""
    loadings = torch.tensor([[1e9, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    kernel = BasisKernel(PolynomialBasis(-1.0, 1.0, 3), loadings)
    prior = Prior(gpytorch.means.ZeroMean(), kernel, 1e-12, learn=(), degrees=Degrees(2.24))
    x = np.linspace(-1, 1, 30)
    tasks = Tasks.from_pairs([(x, 1e9 + np.sin(k + x)) for k in range(4)])
    by_scores = condition(prior, tasks).evidence.data_fit.numpy()
    assert evidence(prior, tasks).data_fit.numpy() == pytest.approx(by_scores, rel=1e-9)
