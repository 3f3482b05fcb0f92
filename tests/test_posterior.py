import math
from itertools import pairwise

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from metaprior import DataError, OptionError, Prior, Tasks, condition, evidence
from metaprior.inference import (
    CalibratedPosterior,
    Calibration,
    ContextBatch,
    GaussianConditional,
    IndependentGaussians,
    MixturePosterior,
)
from metaprior.inference.low_rank import LowRankBatch
from metaprior.inference.mixtures import _absolute
from metaprior.inference.posterior import moments
from metaprior.priors import BasisKernel, BasisMean, Degrees, PolynomialBasis
from metaprior.tasks.batches import padded
from tests.problems import PRIORS, known_rbf, perturbed, ragged, slow_posterior


def contexts_and_targets(d=1, p=1, seed=0):
    """Contexts of 0 to 8 points and targets of 1 to 9."""
    rng = np.random.default_rng(seed)
    tasks = Tasks.from_pairs([(rng.normal(size=(n, d)), rng.normal(size=(n, p))) for n in rng.integers(9, 18, 12)])
    mask = torch.zeros(len(tasks.x), dtype=torch.bool)
    for i in range(len(tasks)):
        start = int(tasks.offsets[i])
        mask[start : start + i % 9] = True
    return tasks.context_target(where=lambda _: mask)


@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("name", PRIORS)
def test_unequal_contexts_and_targets_in_one_call_are_the_papers_equation(name, d, p):
    prior = perturbed(PRIORS[name](d, p))
    context, target = contexts_and_targets(d, p)
    posterior = condition(prior, context).at(target)
    covariances = posterior.covariances()
    for i in range(len(context)):
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        mean, covariance = slow_posterior(prior, context[i], target[i])
        noise = prior.noise(target[i].x)
        assert torch.allclose(posterior.mean[rows], mean, rtol=1e-8, atol=1e-10)
        assert torch.allclose(posterior.function.variance[rows, 0], covariance.diagonal(), rtol=1e-8, atol=1e-10)
        assert torch.allclose(posterior.variance[rows, 0], covariance.diagonal() + noise, rtol=1e-8, atol=1e-10)
        assert covariances[i].shape == (p, *covariance.shape)
        for k in range(p):
            assert torch.allclose(covariances[i][k], covariance + torch.diag(noise), rtol=1e-8, atol=1e-10)
            assert torch.allclose(posterior.function.covariances()[i][k], covariance, rtol=1e-8, atol=1e-10)


def test_against_scikit_learn():
    prior = known_rbf()
    context, target = contexts_and_targets()
    posterior = condition(prior, context).at(target)
    for i in range(1, 9):
        kernel = ConstantKernel(1.3, "fixed") * RBF(0.7, "fixed")
        oracle = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None)
        oracle.fit(context[i].x.numpy(), context[i].y.numpy().ravel())
        mean, covariance = oracle.predict(target[i].x.numpy(), return_cov=True)
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        assert posterior.mean[rows, 0].numpy() == pytest.approx(mean, rel=1e-8)
        assert posterior.function.covariances()[i][0].numpy() == pytest.approx(covariance, rel=1e-8, abs=1e-12)


def test_against_gpytorch_exact_gp():
    prior = perturbed(PRIORS["learned both"](1, 1))
    context, target = contexts_and_targets(seed=3)
    posterior = condition(prior, context).at(target)
    for i in range(1, 9):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = prior.noise(context[i].x)[0].detach()

        class Exact(gpytorch.models.ExactGP):
            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(prior.mean(x)[..., 0], prior.kernel(x))

        model = Exact(context[i].x, context[i].y[:, 0], likelihood).double().eval()
        with torch.no_grad():
            oracle = likelihood(model(target[i].x))
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        assert posterior.mean[rows, 0].numpy() == pytest.approx(oracle.mean.numpy(), rel=1e-8)
        assert posterior.variance[rows, 0].numpy() == pytest.approx(oracle.variance.numpy(), rel=1e-8)


def test_without_context_it_is_the_prior():
    prior, points = perturbed(PRIORS["learned both"](1, 2)), ragged(p=2)
    posterior = condition(prior, Tasks.empty(points.ids, points.d, points.p)).at(points)
    z = prior.at(points.x)
    assert torch.allclose(posterior.mean, z.mean)
    assert torch.allclose(posterior.function.variance[:, 0], prior.variance(z))
    assert torch.allclose(posterior.joint_log_density(points.y), evidence(prior, points).total)
    assert posterior.evidence.total.tolist() == [0.0] * len(points)


def test_conditioned_on_one_task():
    prior, (context, _) = known_rbf(p=2), contexts_and_targets(p=2)
    together = condition(prior, context).at([0.3, 0.9])
    for k in (0, 3):  # the first has no points yet
        alone = condition(prior, context[k])
        assert alone.context.ids == context.ids[k : k + 1]
        torch.testing.assert_close(alone.at([0.3, 0.9]).mean, together.mean[2 * k : 2 * k + 2])
        assert evidence(prior, context[k]).total.item() == pytest.approx(together.evidence.total[k].item())


def test_without_noise_it_interpolates():
    prior = known_rbf(noise=0.0)
    context, _ = ragged(count=8, largest=4).context_target(where=lambda x: x[:, 0] > -9)
    posterior = condition(prior, context).at(context)
    assert torch.allclose(posterior.mean, context.y, atol=1e-5)
    assert posterior.sd.max() < 1e-4


def test_joint_density_is_a_difference_of_evidences():
    prior = perturbed(PRIORS["learned both"](2, 2))
    context, target = contexts_and_targets(2, 2)
    joint = condition(prior, context).at(target).joint_log_density(target.y)
    difference = evidence(prior, context.joined(target)).total - evidence(prior, context).total
    assert torch.allclose(joint, difference.detach(), rtol=1e-9, atol=1e-9)


def test_a_joint_density_is_the_same_alone_whichever_tasks_share_their_inputs():
    """Ten tasks of six points: on one grid, on two in turn, or each on its own."""
    rng, prior = np.random.default_rng(0), known_rbf()
    grids = rng.uniform(-1, 1, (10, 6))
    for grid_of in ([0] * 10, [0, 1] * 5, range(10)):
        tasks = Tasks.from_pairs([(grids[k], rng.normal(size=6)) for k in grid_of])
        context, target = tasks.context_target(where=lambda x: torch.arange(len(x)) % 6 < 2)
        joint = condition(prior, context).at(target).joint_log_density(target.y)
        for k in range(10):
            known, asked = context.select([k]), target.select([k])
            assert float(joint[k]) == pytest.approx(float(condition(prior, known).at(asked).joint_log_density(asked.y)))


def test_context_evidence_comes_with_the_posterior():
    prior = perturbed(PRIORS["learned mean"](1, 1))
    context, target = contexts_and_targets()
    ours = condition(prior, context).at(target).evidence
    expected = evidence(prior, context)
    assert torch.allclose(ours.total, expected.total.detach())
    assert torch.allclose(ours.complexity, expected.complexity.detach())


def test_pointwise_density_quantiles_and_intervals():
    prior = known_rbf(p=2)
    context, target = contexts_and_targets(p=2)
    posterior = condition(prior, context).at(target)
    normal = stats.norm(posterior.mean.numpy(), posterior.sd.numpy())
    assert posterior.log_density(target.y).numpy() == pytest.approx(normal.logpdf(target.y.numpy()))
    assert posterior.quantiles([0.1, 0.5])[0].numpy() == pytest.approx(normal.ppf(0.1))
    lower, upper = posterior.interval(0.8)
    assert upper.numpy() == pytest.approx(normal.ppf(0.9))
    assert lower.numpy() == pytest.approx(normal.ppf(0.1))


def test_samples_have_the_posteriors_mean_and_covariance():
    prior = known_rbf(p=2)
    context, target = contexts_and_targets(p=2)
    posterior = condition(prior, context).at(target)
    draws = posterior.samples(20_000, seed=0)
    rows = slice(int(target.offsets[4]), int(target.offsets[5]))
    for k in range(2):
        sample = draws[:, rows, k].numpy()
        assert sample.mean(0) == pytest.approx(posterior.mean[rows, k].numpy(), abs=0.04)
        assert np.cov(sample.T) == pytest.approx(posterior.covariances()[4][k].numpy(), abs=0.06)
    assert np.corrcoef(draws[:, rows.start, 0], draws[:, rows.start, 1])[0, 1] == pytest.approx(0, abs=0.04)


def test_samples_depend_on_the_seed_alone():
    prior = known_rbf()
    context, target = contexts_and_targets()
    whole = condition(prior, context).at(target)
    assert torch.equal(whole.samples(3, seed=1), whole.samples(3, seed=1))
    assert not torch.equal(whole.samples(3, seed=1), whole.samples(3, seed=2))
    first = condition(prior, context.select([0])).at(target.select([0]))
    assert first.samples(3, seed=1).shape == (3, int(target.sizes[0]), 1)


def test_observations_are_wider_than_the_function_by_the_noise():
    context, target = contexts_and_targets()
    posterior = condition(known_rbf(noise=0.3), context).at(target)
    assert torch.allclose(posterior.variance - posterior.function.variance, torch.tensor(0.3).double())
    assert torch.equal(posterior.mean, posterior.function.mean)


@given(st.integers(0, 1000))
def test_batching_targets_changes_nothing(seed):
    prior = PRIORS["learned mean"](1, 1)
    context, target = contexts_and_targets(seed=seed)
    order = np.random.default_rng(seed).permutation(len(context))
    whole = condition(prior, context).at(target)
    moved = condition(prior, context.select(order)).at(target.select(order))
    assert torch.allclose(moved.joint_log_density(target.select(order).y), whole.joint_log_density(target.y)[order])
    restored = torch.cat([moved.points.select([k]).x for k in np.argsort(order)])
    assert torch.equal(restored, target.x)


@pytest.mark.parametrize("degrees", [None, 5.0])
def test_of_certain_points_the_distribution_is_a_step(degrees):
    """At the first point; at the second, beside it, it is what it would be alone."""
    plain = known_rbf(noise=0.0)
    prior = Prior(plain.mean, plain.kernel, 0.0, learn=(), degrees=None if degrees is None else Degrees(degrees))
    posterior = condition(prior, Tasks.from_pairs([([0.0], [1.0])])).at([0.0, 0.5])
    mean, sd = posterior.mean, posterior.sd
    law = stats.norm if degrees is None else stats.t(degrees + 1)
    scale = sd[1].item() * (1.0 if degrees is None else math.sqrt((degrees - 1) / (degrees + 1)))
    assert sd[0].item() == 0.0
    assert sd[1].item() > 0.0
    for gap, below, density in ((-0.3, 0.0, -np.inf), (0.0, 0.5, np.inf), (0.3, 1.0, -np.inf)):
        y, z = mean + gap, gap / scale
        assert posterior.cdf(y).flatten().tolist() == pytest.approx([below, law.cdf(z)])
        assert posterior.log_density(y).flatten().tolist() == pytest.approx([density, law.logpdf(z) - math.log(scale)])
        score = quad(lambda t: law.cdf(t) ** 2, -np.inf, z)[0] + quad(lambda t: law.sf(t) ** 2, z, np.inf)[0]
        assert posterior.crps(y).flatten().tolist() == pytest.approx([abs(gap), scale * score], rel=1e-3)
    assert posterior.quantiles([0.1, 0.9])[:, 0].flatten().tolist() == [mean[0].item()] * 2


def test_bad_questions():
    prior = known_rbf()
    context, target = contexts_and_targets()
    conditional = condition(prior, context)
    with pytest.raises(DataError, match="points have 2 input columns, but the context has 1"):
        conditional.at(Tasks.from_inputs([np.zeros((1, 2))] * len(context)))
    with pytest.raises(DataError, match="same tasks"):
        conditional.at(target.select([0]))
    posterior = conditional.at(target)
    with pytest.raises(DataError, match="one value per point"):
        posterior.log_density(target.y[:-1])
    with pytest.raises(OptionError, match=r"level=1\.5"):
        posterior.interval(1.5)
    for wrong in ([0.0], 0.5, [[0.5]]):
        with pytest.raises(OptionError, match="list of numbers between 0 and 1"):
            posterior.quantiles(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="NaN or infinity in y"):
        posterior.joint_log_density(target.y * float("nan"))
    with pytest.raises(DataError, match="no tasks"):
        condition(prior, context.select([]))
    gaps = torch.where(torch.arange(len(target.x))[:, None] == 1, torch.nan, target.x)
    with pytest.raises(DataError, match="NaN or infinity among the points"):
        conditional.at(Tasks(gaps, target.y, target.offsets, target.ids, target.columns))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_the_algebra_in_features_is_that_of_points(p, noise):
    """A kernel of three features: the same posterior, evidence and samples by either algebra."""
    tasks = ragged(p=p, count=20, largest=12)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.6)
    generator = torch.Generator().manual_seed(1)
    loadings, mean = (torch.randn(5, k, generator=generator, dtype=torch.float64) for k in (3, p))
    basis = PolynomialBasis(-4.0, 4.0, 5)
    prior = Prior(BasisMean(basis, mean), BasisKernel(basis, loadings), noise, learn=())
    quick = condition(prior, context)
    assert {type(part) for part in quick.parts} == {LowRankBatch, ContextBatch}
    for part in quick.parts:  # by its points where these are no more than the features
        assert ((part.mask.sum(1) <= 3) == (type(part) is ContextBatch)).all()
    plain = GaussianConditional(context, [ContextBatch(prior, batch, context) for batch in padded(context)])
    a, b = quick.at(target), plain.at(target)
    assert a.mean.numpy() == pytest.approx(b.mean.numpy(), abs=1e-8)
    assert a.sd.numpy() == pytest.approx(b.sd.numpy(), abs=1e-8)
    for found, expected in zip(quick.evidence.terms, plain.evidence.terms, strict=True):
        assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-8)
    assert a.joint_log_density(target.y).numpy() == pytest.approx(b.joint_log_density(target.y).numpy(), rel=1e-6)
    for found, expected in zip(a.covariances(), b.covariances(), strict=True):
        assert found.numpy() == pytest.approx(expected.numpy(), abs=1e-8)
    alone = condition(prior, context.select([3])).at(target.select([3]))
    rows = slice(int(target.offsets[3]), int(target.offsets[4]))
    assert alone.mean.numpy() == pytest.approx(a.mean[rows].numpy(), abs=1e-9)


def test_without_noise_a_joint_density_is_the_same_however_many_tasks_are_asked_together():
    """On a grid that needs jitter: four tasks or more could share a factor of the whole, three could not."""
    x = np.linspace(0, 1, 14)
    rng = np.random.default_rng(0)
    tasks = Tasks.on_grid(x, np.stack([np.sin(3 * x + a) for a in rng.normal(size=6)]))
    prior = known_rbf(noise=0.0, lengthscale=0.9)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.4)
    together = condition(prior, context).at(target)
    joint = together.joint_log_density(target.y)
    assert together.jitter > 0  # and it is told
    for some in ([0, 1, 2], [3], [0, 1, 2, 3, 4]):
        apart = condition(prior, context.select(some)).at(target.select(some))
        assert apart.joint_log_density(target.select(some).y).numpy() == pytest.approx(joint[some].numpy(), rel=1e-9)


class NoisyBeyond(torch.nn.Module):
    """Noise beyond a point, and none before."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def forward(self, x):
        return torch.where(x[..., 0] > self.end, 0.1, 0.0).to(x)


def test_where_some_points_have_no_noise_a_joint_density_is_still_the_same():
    """A difference of two evidences would have three digits here."""
    x, rng = np.linspace(0, 1, 12), np.random.default_rng(0)
    tasks = Tasks.on_grid(x, np.stack([np.sin(3 * x + a) for a in rng.normal(size=5)]))
    plain = known_rbf(lengthscale=0.9)
    prior = Prior(plain.mean, plain.kernel, NoisyBeyond(0.8), learn=())
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.4)
    joint = condition(prior, context).at(target).joint_log_density(target.y)
    for k in range(5):
        alone = condition(prior, context.select([k])).at(target.select([k])).joint_log_density(target[k].y)
        assert float(joint[k]) == pytest.approx(float(alone), rel=1e-9)


def test_where_a_shared_factor_needs_jitter_it_is_not_used():
    """Noise so small that the whole grid cannot be factored without: the tasks' own covariances can."""
    x = np.linspace(0, 1, 14)
    rng = np.random.default_rng(0)
    tasks = Tasks.on_grid(x, np.stack([np.sin(3 * x + a) for a in rng.normal(size=5)]))
    prior = known_rbf(noise=1e-18, lengthscale=0.9)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.2)
    joint = condition(prior, context).at(target).joint_log_density(target.y)
    alone = condition(prior, context.select([2])).at(target.select([2])).joint_log_density(target.select([2]).y)
    assert float(joint[2]) == pytest.approx(float(alone[0]), rel=1e-9)


@pytest.mark.parametrize(
    "reach", [(0.5, 1.2, 1.7, 2.3), (0.7, 1.4, 1.9, 4.5), (2.0, 4.0, 6.0, 8.5), (0.6, 1.9, 2.0, 2.1)]
)
def test_a_calibration_goes_through_its_levels_and_on_to_where_scores_end(reach):
    calibration, right = Calibration(reach), stats.norm.ppf([0.75, 0.9, 0.95, 0.985])
    onward = reach[3] + (reach[3] - reach[2]) / (right[3] - right[2]) * (3 - right[3])
    onward = max(min(onward, (reach[3] + 8) / 2), reach[3] + 0.1)
    here, there = [0.0, *right, 3.0, 8.0], [0.0, *reach, onward, max(8.0, onward + 0.1)]
    z = np.concatenate([np.linspace(-7.9, 7.9, 60), [0.0]])
    moved = calibration.outward(torch.from_numpy(z))
    assert moved.numpy() == pytest.approx(np.sign(z) * np.interp(np.abs(z), here, there))
    back, slope = calibration.inward(moved)
    assert back.numpy() == pytest.approx(z)
    rise = (calibration.outward(back + 1e-7) - calibration.outward(back - 1e-7)) / 2e-7
    assert slope.numpy() == pytest.approx(1 / rise.numpy(), rel=1e-5)
    density = stats.norm.logpdf(z) - stats.norm.logpdf(moved) + slope.log().numpy()
    assert calibration.gain(moved).numpy() == pytest.approx(density)
    wide = [quad(lambda z: np.interp(z, here, there) ** 2 * stats.norm.pdf(z), *ends)[0] for ends in pairwise(here)]
    assert calibration.spread == pytest.approx(math.sqrt(2 * sum(wide)), rel=1e-4)


def of_kind(kind):
    """A distribution at each of two points of two tasks."""
    points = Tasks.from_pairs([([0.0, 1.0], [0.0, 0.0])] * 2)
    rng = np.random.default_rng(0)
    if kind == "gaussian":
        return IndependentGaussians(points, *torch.from_numpy(rng.uniform(0.3, 2.0, (2, 4, 1))))
    if kind == "student":
        plain = known_rbf()
        prior = Prior(plain.mean, plain.kernel, 0.1, learn=(), degrees=Degrees(4.5))
        return condition(prior, Tasks.from_pairs([([0.5], [1.0]), ([0.2], [-1.0])])).at(points)
    parts = [of_kind("gaussian"), of_kind("student") if kind == "mixture" else of_kind("gaussian")]
    parts.append(IndependentGaussians(points, *torch.from_numpy(rng.uniform(0.3, 3.0, (2, 4, 1)))))
    return MixturePosterior(parts, torch.tensor([[0.3, 0.1, 0.6], [0.8, 0.2, 0.0]], dtype=torch.float64).log())


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "student", "gaussians", "mixture"])
def test_moments_and_score_are_those_that_many_quantiles_have(kind, calibrated):
    plain = of_kind(kind)
    posterior = CalibratedPosterior(plain, Calibration((0.5, 1.2, 1.7, 2.3))) if calibrated else plain
    z = torch.linspace(-7.5, 7.5, 1501, dtype=torch.float64)[:, None, None]
    F, weights = torch.special.ndtr(z), torch.exp(-z.square() / 2)
    values, weights = posterior.inverse_cdf(F), weights / weights.sum()
    mean = (weights * values).sum(0)
    sd = (weights * (values - mean).square()).sum(0).sqrt()
    assert (posterior.mean / sd).numpy() == pytest.approx((mean / sd).numpy(), abs=1e-4)
    assert posterior.sd.numpy() == pytest.approx(sd.numpy(), rel=5e-4)
    for at in (500, 700, 790, 1000):
        below = torch.trapezoid(F[: at + 1].square(), values[: at + 1], dim=0)
        above = torch.trapezoid((1 - F[at:]).square(), values[at:], dim=0)
        found = posterior.crps(values[at])
        assert found.numpy() == pytest.approx((below + above).numpy(), rel=1e-3)


def test_a_calibration_that_changes_nothing_leaves_joint_densities_far_out():
    prior = known_rbf()
    posterior = condition(prior, Tasks.from_pairs([([0.0], [1.0])])).at([0.3, 0.6, 1.0])
    same = CalibratedPosterior(posterior, Calibration.identity())
    for far in (-7.99, -5.0, 0.3, 5.0):
        y = posterior.mean + far * posterior.sd
        assert same.joint_log_density(y).item() == pytest.approx(posterior.joint_log_density(y).item(), rel=1e-5)


def test_what_held_out_values_show_is_believed_by_their_number():
    """Reaches are weighted quantiles of scores without sides; of too few tasks, between those and the expected ones."""
    rng, right = np.random.default_rng(0), stats.norm.ppf([0.75, 0.9, 0.95, 0.985])
    scores, weights = rng.normal(0, 1.7, 300), rng.uniform(size=300)
    given = torch.from_numpy(stats.norm.cdf(scores)), torch.from_numpy(weights)
    shown = []
    for level in (0.5, 0.8, 0.9, 0.97):
        enough = [s for s in np.abs(scores) if weights[np.abs(scores) <= s].sum() >= level * weights.sum()]
        shown.append(min(enough))
    for tasks, trust in ((30, 0.5), (270, 0.9)):
        expected = np.array(shown) ** trust * right ** (1 - trust)
        assert Calibration.of(*given, tasks).reach == pytest.approx(expected)
    still = Calibration.of(torch.full((300,), 0.5).double(), given[1], 10**9).reach  # all at the median
    assert np.diff([0.0, *still]) == pytest.approx(0.05 * (1 + np.array([0.0, *right[:3]])))


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e150])
def test_moments_of_weighed_values_are_their_average_and_its_spread(unit):
    rng = np.random.default_rng(0)
    values, weights = rng.normal(3.0, 2.0, size=(7, 4, 2)), rng.uniform(size=(7, 4, 2))
    values[:, 0] = 1.5  # nothing is uncertain there
    pieces = [
        (torch.from_numpy(unit * values[some]), torch.from_numpy(weights[some])) for some in ([0, 1, 2], [3], [4, 5, 6])
    ]
    mean, sd = moments(pieces, torch.from_numpy(unit * values[5]))
    expected = np.average(values, 0, weights)
    assert (mean / unit).numpy() == pytest.approx(expected)
    spread = np.sqrt(np.average((values - expected) ** 2, 0, weights))
    assert (sd / unit).numpy() == pytest.approx(spread)


def test_what_is_expected_of_a_magnitude():
    """`E|X|`, also where nothing is uncertain."""
    mean, sd = torch.tensor([-0.5, 0.0, 0.5, 0.0, 2.0]).double(), torch.tensor([0.0, 0.0, 1.0, 2.0, 0.5]).double()
    found = _absolute(mean.clone(), sd, False)
    folded = stats.foldnorm.mean((mean / sd).abs()[2:].numpy(), scale=sd[2:].numpy())
    assert found.tolist() == pytest.approx([0.5, 0.0, *folded])
    assert _absolute(mean[2:].clone(), sd[2:], True).tolist() == pytest.approx(folded)


def test_where_nothing_was_factored_no_jitter_is_told():
    points = Tasks.from_inputs([np.zeros(3)])
    assert IndependentGaussians(points, torch.zeros(3, 1), torch.ones(3, 1)).jitter == 0.0


def test_covariances_of_a_mixture_are_its_second_moments():
    points, rng = Tasks.from_inputs([np.zeros(3), np.zeros(2)]), np.random.default_rng(0)
    parts = [IndependentGaussians(points, *torch.from_numpy(rng.uniform(0.3, 2.0, (2, 5, 2)))) for _ in range(3)]
    weights = np.array([[0.5, 0.2, 0.3], [0.0, 0.9, 0.1]])
    mixture = MixturePosterior(parts, torch.from_numpy(weights).log())
    for i, rows in enumerate((slice(0, 3), slice(3, 5))):
        for k in range(2):
            means = np.stack([one.mean[rows, k] for one in parts])
            seconds = [np.outer(m, m) + np.diag(one.sd[rows, k] ** 2) for m, one in zip(means, parts, strict=True)]
            mean = weights[i] @ means
            expected = np.tensordot(weights[i], seconds, 1) - np.outer(mean, mean)
            assert mixture.covariances()[i][k].numpy() == pytest.approx(expected)
