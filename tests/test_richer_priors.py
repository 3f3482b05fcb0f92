"""Eigenfunction kernels, noise by input, Student-t processes, warps and mixtures, against slow references."""

import gc
import math
import weakref

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from metaprior import DataError, LearnedPrior, OptionError, Prior, Tasks, UnknownNameError, condition, evidence
from metaprior.inference import IndependentGaussians, MixtureConditional, MixturePosterior, summed_evidence
from metaprior.inference.crps import integrated_crps
from metaprior.inference.evidence import covariance_matrix, gaussian_terms, in_features, prior_terms
from metaprior.methods import Warped, learned_warp
from metaprior.priors import WARPS, DeepNoise, Degrees, EigenfunctionKernel, make_prior, make_warp
from metaprior.scoring import score
from metaprior.selection import portrait
from metaprior.tasks import batches
from tests.problems import ragged


def eigen(d=1, p=1, functions=3, rest=0, noise=None, degrees=None, floor=1e-3):
    kernel = "eigenfunctions + deep" if rest else "eigenfunctions"
    options = {"functions": functions, "features": rest or 2, "hidden": (6,), "noise": noise, "noise_floor": floor}
    return make_prior("deep", kernel, d=d, p=p, degrees=degrees, seed=3, **options)


def dense(prior, x):
    """`K + N` at some points, entry by entry from the kernel itself."""
    with torch.no_grad():
        K = prior.kernel(x).to_dense()
        return K + torch.diag(prior.noise(x))


def grids(count=9, n=7, p=1, seed=0):
    """Tasks on one grid: they enter the evidence through their scatter."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, n)
    return Tasks.from_pairs([(x, rng.normal(size=(n, p))) for _ in range(count)])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("rest", [0, 2])
@pytest.mark.parametrize("noise", [None, "deep"])
def test_evidence_of_eigenfunctions_is_that_of_the_dense_matrix(p, rest, noise):
    prior = eigen(p=p, rest=rest, noise=noise)
    tasks = ragged(d=1, p=p, count=8)
    found = evidence(prior, tasks).total.detach()
    for k, task in enumerate(tasks):
        with torch.no_grad():
            mean = prior.at(task.x).mean
        law = stats.multivariate_normal(cov=dense(prior, task.x).numpy())
        expected = sum(law.logpdf((task.y - mean)[:, j].numpy()) for j in range(p))
        assert float(found[k]) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("floor", [1e-6, 1e-3, 0.5])
@pytest.mark.parametrize("make", [ragged, grids], ids=["ragged", "one grid"])
def test_features_and_points_agree_to_the_eighth_digit_with_their_gradients(make, floor):
    prior, tasks = eigen(floor=floor), make(count=9)
    for batch in batches(tasks):
        z = prior.at(batch.inputs.distinct).gather(batch.inputs.index)
        mask = getattr(batch, "mask", None)
        if not in_features(prior, z):
            continue
        residual = batch.y - z.mean if mask is not None else batch.mean - z.mean
        residual = residual if mask is None else torch.where(mask[..., None], residual, 0.0)
        scatter = getattr(batch, "scatter", None)
        names = [0] * len(residual)
        by_features = prior_terms(prior, z, residual, scatter, names, mask)
        by_points = gaussian_terms(covariance_matrix(prior, z, mask), residual, scatter, names)
        tolerance = 1e-8 if floor > 1e-6 else 1e-6  # K + σ²I itself has lost digits
        gradients = []
        for terms in (by_features, by_points):
            loss = terms[0].sum() + terms[1].sum() + terms[2].sum()
            prior.zero_grad()
            loss.backward(retain_graph=True)
            gradients.append(torch.cat([q.grad.flatten() for q in prior.kernel.parameters()]))
        for one, two in zip(by_features[:3], by_points[:3], strict=True):
            assert torch.allclose(one, two, rtol=tolerance, atol=tolerance * float(two.detach().abs().max() + 1))
        scale = float(gradients[1].abs().max())
        assert torch.allclose(*gradients, rtol=1e-4, atol=max(1e-8, tolerance) * 100 * scale)


def test_the_gradient_of_the_summed_evidence_is_that_of_finite_differences():
    prior, tasks = eigen(noise="deep", degrees=4.0), ragged(count=6)
    laid_out = batches(tasks)
    loss = summed_evidence(prior, laid_out, tasks.ids).total
    loss.backward()
    for name, parameter in prior.named_parameters():
        flat, step = parameter.data.view(-1), 1e-5
        kept = float(flat[0])
        values = []
        for sign in (1, -1):
            flat[0] = kept + sign * step
            values.append(float(summed_evidence(prior, laid_out, tasks.ids).total.detach()))
        flat[0] = kept
        slope = (values[0] - values[1]) / (2 * step)
        assert float(parameter.grad.view(-1)[0]) == pytest.approx(slope, rel=2e-4, abs=1e-6), name


def test_an_eigenfunction_kernel_learns_that_two_sides_differ():
    x = np.linspace(-1, 1, 12)
    tasks = Tasks.from_pairs([(x, sign * np.sign(x)) for sign in (1.0, -1.0) * 10])
    gp = LearnedPrior("zero", "eigenfunctions", functions=3, hidden=(8,), max_epochs=100, progress=False).fit(tasks)
    posterior = gp.predict(Tasks.from_pairs([([-0.8], [1.0])]), Tasks.from_inputs([[0.8]]))
    assert float(posterior.mean) < -0.6  # a stationary kernel would answer 0
    K = gp.prior_.kernel(torch.linspace(-1, 1, 20).double()[:, None]).to_dense().detach()
    assert int(torch.linalg.matrix_rank(K)) <= 3
    with pytest.raises(OptionError, match="give 1 or more"):
        EigenfunctionKernel(1, 0, seed=0)


def test_noise_that_depends_on_the_input():
    noise = DeepNoise(1, seed=0, hidden=(5,), initial=0.2, floor=0.01)
    x = torch.linspace(-1, 1, 5).double()[:, None]
    assert noise(x).detach().numpy() == pytest.approx(0.2)  # it starts as one variance for all
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(60):
        x = rng.uniform(-1, 1, 12)
        pairs.append((x, np.sin(3 * x) + rng.normal(size=12) * np.where(x > 0, 0.5, 0.05)))
    gp = LearnedPrior("deep", "rbf", noise="deep", hidden=(8,), max_epochs=200, progress=False).fit(
        Tasks.from_pairs(pairs)
    )
    found = gp.prior_.noise(gp.scaler_.scale(Tasks.from_inputs([[-0.7, 0.7]])).x).detach().sqrt()
    assert float(found[1] / found[0]) > 4
    with pytest.raises(UnknownNameError, match="unknown noise"):
        make_prior("zero", "rbf", d=1, noise="depp", seed=0)


@pytest.mark.parametrize("p", [1, 2])
def test_a_student_process_against_the_multivariate_t(p):
    """Evidence, marginals and joint density are ratios of multivariate t densities."""
    prior = eigen(p=p, degrees=3.5)
    tasks = ragged(d=1, p=p, count=9)
    tasks = tasks.select(tasks.sizes > 3)
    context, target = tasks.context_target(2, seed=0)
    posterior = condition(prior, context).at(target)
    joint, single = posterior.joint_log_density(target.y), posterior.log_density(target.y)
    nu = float(prior.degrees().detach())

    def log_t(x, y):
        with torch.no_grad():
            r = (y - prior.at(x).mean).mT.reshape(-1).numpy()
        cov = np.kron(np.eye(p), dense(prior, x).numpy())
        return stats.multivariate_t(shape=cov * (nu - 2) / nu, df=nu).logpdf(r)

    row = 0
    for k, (known, wanted) in enumerate(zip(context, target, strict=True)):
        both = log_t(torch.cat([known.x, wanted.x]), torch.cat([known.y, wanted.y]))
        alone = log_t(known.x, known.y)
        assert float(posterior.evidence.total[k]) == pytest.approx(float(alone), rel=1e-9)
        assert float(joint[k]) == pytest.approx(float(both - alone), rel=1e-7)
        if p == 1:
            one = log_t(torch.cat([known.x, wanted.x[:1]]), torch.cat([known.y, wanted.y[:1]])) - alone
            assert float(single[row, 0]) == pytest.approx(float(one), rel=1e-7)
        row += len(wanted.x)


def test_a_student_process_of_many_degrees_is_gaussian():
    student, gaussian = eigen(degrees=1e7), eigen()
    tasks = ragged(count=8)
    context, target = tasks.select(tasks.sizes > 2).context_target(2, seed=0)
    one, two = (condition(prior, context).at(target) for prior in (student, gaussian))
    for ask in (
        lambda q: q.mean,
        lambda q: q.sd,
        lambda q: q.log_density(target.y),
        lambda q: q.joint_log_density(target.y),
        lambda q: q.quantiles([0.1, 0.9]),
        lambda q: q.cdf(target.y),
        lambda q: q.function.sd,
        lambda q: q.evidence.total,
    ):
        assert torch.allclose(ask(one), ask(two), rtol=1e-4, atol=1e-5)
    assert one.crps(target.y).numpy() == pytest.approx(two.crps(target.y).numpy(), rel=0.02, abs=1e-3)


def test_a_wild_task_widens_a_student_posterior_and_its_draws():
    prior = Prior(lambda x: 0 * x[..., 0], known(), 0.1, learn=(), degrees=Degrees(4.0))
    x = np.linspace(-1, 1, 5)
    tasks = Tasks.from_pairs([(x, 0.3 * np.ones(5)), (x, np.array([6.0, -5.0, 7.0, -6.0, 5.0]))], ["calm", "wild"])
    posterior = condition(prior, tasks).at(Tasks.from_inputs([[3.0], [3.0]], tasks.ids))
    assert float(posterior.sd[1]) > 3 * float(posterior.sd[0])
    drawn = posterior.samples(4000, seed=0)[:, :, 0]
    assert drawn.std(0).numpy() == pytest.approx(posterior.sd[:, 0].numpy(), rel=0.1)
    for level in (0.5, 0.9):
        lower, upper = posterior.interval(level)
        inside = ((drawn > lower[:, 0]) & (drawn < upper[:, 0])).double().mean(0)
        assert inside.numpy() == pytest.approx(level, abs=0.03)
    assert posterior.covariances()[1].shape == (1, 1, 1)


def known():
    from gpytorch.kernels import RBFKernel, ScaleKernel

    return ScaleKernel(RBFKernel()).double()


VALUES = torch.tensor([0.2, 0.9, 1.0, 3.0, 50.0]).double()[:, None]


@pytest.mark.parametrize("kind", WARPS)
def test_a_warp_rises_and_comes_back(kind):
    warp = make_warp(kind, VALUES)
    warp = warp.bent_by(*(torch.full_like(start, -0.7) for start in warp.learned.values()))
    values = VALUES if kind in ("log", "box-cox") else torch.cat([-VALUES, 0 * VALUES[:1], VALUES])
    values = values.sort(0).values
    t = warp(values)
    assert (t.diff(dim=0) > 0).all()
    assert torch.allclose(warp.inverse(t), values, rtol=1e-9, atol=1e-9)
    y = values.clone().requires_grad_()
    warp(y).sum().backward()
    assert torch.allclose(warp.log_slope(values), y.grad.log(), rtol=1e-9, atol=1e-9)


def skewed(count=60, seed=0, n=8):
    """Positive values whose logarithms are smooth curves."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 3, n))
        pairs.append((x, np.exp(1.5 * rng.normal() + np.sin(x + rng.normal()) + 0.2 * rng.normal(size=n))))
    return Tasks.from_pairs(pairs)


def test_an_identity_warp_changes_nothing():
    tasks = skewed(20)
    plain = LearnedPrior("constant", "rbf", max_epochs=20, progress=False).fit(tasks)
    same = Warped(LearnedPrior("constant", "rbf", max_epochs=20, progress=False), "identity").fit(tasks)
    context, target = tasks.context_target(3, seed=0)
    one, two = plain.predict(context, target), same.predict(context, target)
    assert torch.allclose(one.mean, two.mean, rtol=1e-4, atol=1e-4)  # by quadrature
    assert torch.allclose(one.sd, two.sd, rtol=2e-3)
    for ask in (
        lambda q: q.log_density(target.y),
        lambda q: q.joint_log_density(target.y),
        lambda q: q.quantiles([0.05, 0.5, 0.95]),
        lambda q: q.evidence.total,
        lambda q: q.samples(3, seed=1),
    ):
        assert torch.allclose(ask(one), ask(two), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["log", "box-cox", "yeo-johnson"])
def test_a_warp_is_worth_it_on_skewed_values_and_its_density_is_one(kind):
    tasks, new = skewed(), skewed(seed=1)
    options = {"max_epochs": 60, "progress": False}
    context, target = new.context_target(3, seed=0)
    plain = score(LearnedPrior("constant", "matern", **options).fit(tasks).predict(context, target), target)
    posterior = Warped(LearnedPrior("constant", "matern", **options), kind).fit(tasks).predict(context, target)
    found = score(posterior, target)
    gain = found.values["log_likelihood"] - plain.values["log_likelihood"]
    assert float(gain.mean()) > 0.5
    assert float(posterior.quantiles([0.001]).min()) >= -1
    if kind != "box-cox":  # its Gaussian reaches below what any y has
        density = integrate.quad(
            lambda y: float(posterior.log_density(torch.full_like(posterior.mean, y))[0].exp()), 1e-6, 2000, limit=400
        )
        assert density[0] == pytest.approx(1.0, abs=2e-3)
        mean = integrate.quad(
            lambda y: y * float(posterior.log_density(torch.full_like(posterior.mean, y))[0].exp()),
            1e-6,
            2000,
            limit=400,
        )
        assert float(posterior.mean[0]) == pytest.approx(mean[0], rel=0.02)
    assert torch.allclose(posterior.cdf(posterior.quantiles([0.3])[0]), torch.tensor(0.3).double(), atol=1e-9)


def test_what_a_warp_cannot_take_is_named():
    tasks = Tasks.from_pairs([([1.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [3.0, 0.0])], ["a", "b"])
    for kind in ("log", "box-cox"):
        with pytest.raises(DataError, match=r"1 of column 'y' are not \(the first is 0, row 1 of task 'b'\)"):
            learned_warp(kind, tasks)
    with pytest.raises(UnknownNameError, match="unknown warp 'lgo'"):
        learned_warp("lgo", tasks)
    gp = Warped(LearnedPrior("constant", "rbf", max_epochs=5, progress=False), "log").fit(skewed(20))
    with pytest.raises(DataError, match="use the warp 'yeo-johnson'"):
        gp.predict(tasks, tasks)
    posterior = gp.predict(skewed(2), skewed(2))
    assert float(posterior.log_density(-torch.ones(16).double()).max()) == -math.inf
    assert float(posterior.cdf(-torch.ones(16, 1).double()).max()) == 0


def two_kinds():
    """Two priors, contexts and targets."""
    priors = [eigen(functions=2), eigen(functions=4, rest=2)]
    tasks = ragged(count=8)
    context, target = tasks.select(tasks.sizes > 3).context_target(2, seed=0)
    return priors, context, target


def test_a_mixture_is_what_bayes_says():
    """Weights from the contexts' evidence, and the density of context and target together over that of the context."""
    priors, context, target = two_kinds()
    shares = torch.tensor([0.3, 0.7]).double().log()
    mixture = MixtureConditional([condition(prior, context) for prior in priors], shares, by_evidence=True).at(target)
    both = torch.stack([evidence(prior, context.joined(target)).total.detach() for prior in priors], 1) + shares
    alone = torch.stack([evidence(prior, context).total.detach() for prior in priors], 1) + shares
    assert torch.allclose(mixture.weights, torch.softmax(alone, 1))
    assert torch.allclose(mixture.evidence.total, alone.logsumexp(1))
    expected = both.logsumexp(1) - alone.logsumexp(1)
    assert torch.allclose(mixture.joint_log_density(target.y), expected, rtol=1e-7)


def test_moments_quantiles_and_scores_of_a_mixture_are_its_own():
    priors, context, target = two_kinds()
    mixture = MixtureConditional(
        [condition(prior, context) for prior in priors], torch.full((2,), 0.5).double().log(), by_evidence=True
    ).at(target)
    row, law = 0, []
    weights = mixture.weights[target.task_of_row]
    parts = [
        (float(w), float(c.mean[row]), float(c.sd[row])) for w, c in zip(weights[row], mixture.components, strict=True)
    ]

    def density(y):
        return sum(w * stats.norm(m, s).pdf(y) for w, m, s in parts)

    def cdf(y):
        return sum(w * stats.norm(m, s).cdf(y) for w, m, s in parts)

    bounds = min(m - 12 * s for _, m, s in parts), max(m + 12 * s for _, m, s in parts)
    mean = integrate.quad(lambda y: y * density(y), *bounds, limit=300)[0]
    square = integrate.quad(lambda y: y * y * density(y), *bounds, limit=300)[0]
    assert float(mixture.mean[row]) == pytest.approx(mean, abs=1e-7)
    assert float(mixture.sd[row]) == pytest.approx(math.sqrt(square - mean**2), rel=1e-6)
    for q in (0.05, 0.5, 0.9):
        law.append(cdf(float(mixture.quantiles([q])[0, row])))
    assert law == pytest.approx([0.05, 0.5, 0.9], abs=1e-9)
    assert float(mixture.log_density(target.y)[row].exp()) == pytest.approx(density(float(target.y[row])), rel=1e-9)
    y = float(target.y[row])
    left = integrate.quad(lambda t: cdf(t) ** 2, bounds[0], y, limit=300)[0]
    right = integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, bounds[1], limit=300)[0]
    assert float(mixture.crps(target.y)[row]) == pytest.approx(left + right, rel=1e-5)
    assert float(super(MixturePosterior, mixture).crps(target.y)[row]) == pytest.approx(left + right, rel=1e-3)
    drawn = mixture.samples(3000, seed=0)
    assert float(drawn[:, row].mean()) == pytest.approx(mean, abs=0.1 * float(mixture.sd[row]))
    assert torch.equal(drawn, mixture.samples(3000, seed=0))


@pytest.mark.parametrize("narrow", [1.0, 0.1, 1e-3])
def test_the_score_of_a_distribution_that_has_only_a_cdf_is_that_of_its_closed_form(narrow):
    """Gaussians of very different widths, whose score is known; values far from both, between them, and in one."""
    points = Tasks.from_pairs([([0.0, 1.0, 2.0, 3.0, 4.0], np.zeros(5))])
    means = torch.tensor([[0.0], [3.0]]).double().expand(2, 5)
    parts = [
        IndependentGaussians(points, m[:, None], torch.full((5, 1), s).double())
        for m, s in zip(means, (1.0, narrow), strict=True)
    ]
    mixture = MixturePosterior(parts, torch.tensor([[0.6, 0.4]]).double().log())
    y = torch.tensor([[-20.0], [0.5], [3.0], [3.001], [8.0]]).double()
    found = integrated_crps(mixture.cdf, y, mixture.edges(fine=True))
    np.testing.assert_allclose(found, mixture.crps(y), rtol=1e-3)


def test_a_mixture_of_one_is_that_one():
    priors, context, target = two_kinds()
    alone = condition(priors[0], context).at(target)
    one = [condition(priors[0], context)]
    mixture = MixtureConditional(one, torch.zeros(1).double(), by_evidence=True).at(target)
    assert torch.allclose(mixture.mean, alone.mean)
    assert torch.allclose(mixture.sd, alone.sd)
    assert torch.allclose(mixture.quantiles([0.2]), alone.quantiles([0.2]))
    assert torch.allclose(mixture.joint_log_density(target.y), alone.joint_log_density(target.y))
    assert torch.allclose(mixture.crps(target.y), alone.crps(target.y))
    assert torch.allclose(mixture.function.sd, alone.function.sd)


@pytest.mark.parametrize("kind", ["log", "box-cox", "yeo-johnson"])
def test_a_task_far_above_the_past_ones_is_predicted_where_it_lies(kind):
    """Past values up to 4.1, and 40 six times: the prediction is there, with bounds that hold what they say."""
    rng = np.random.default_rng(0)
    pairs = [(np.sort(rng.uniform(0, 1, 8)), np.exp(rng.normal(0, 0.6) + 0.1 * rng.normal(size=8))) for _ in range(30)]
    method = Warped(LearnedPrior("constant", "matern", max_epochs=30, progress=False), kind).fit(
        Tasks.from_pairs(pairs)
    )
    posterior = method.condition(Tasks.from_pairs([(np.linspace(0, 0.9, 6), np.full(6, 40.0))])).at([0.5, 0.95])
    lower, upper = posterior.interval(0.9)
    assert (lower < upper).all()
    assert posterior.cdf(upper).numpy() == pytest.approx(0.95, abs=1e-9)
    assert posterior.mean.numpy() == pytest.approx(40.0, abs=6.0)
    assert float(posterior.log_density(torch.full((2, 1), 40.0).double()).min()) > -4


def test_a_covariance_of_a_warp_has_no_closed_form_and_a_portrait_takes_draws():
    method = Warped(LearnedPrior("constant", "matern", max_epochs=5, progress=False), "log").fit(skewed(20))
    blank = method.condition(Tasks.empty(["new"], 1, 1)).at([0.5, 1.0])
    assert blank.covariances() is None
    curves = portrait(method, method.trained_on_)
    drawn = method.condition(Tasks.empty(["new"], 1, 1)).at(curves["x"]).function.samples(500, seed=3)[:, :, 0]
    width = drawn.quantile(0.95, 0) - drawn.quantile(0.05, 0)
    assert np.median((curves["upper"] - curves["lower"]) / width.numpy()) == pytest.approx(1.0, abs=0.3)


def test_the_jacobian_of_a_warp_is_that_of_every_output():
    rng = np.random.default_rng(0)
    pairs = [(np.sort(rng.uniform(0, 2, 6)), np.exp(rng.normal(size=(6, 2)) * [0.3, 0.9])) for _ in range(15)]
    method = Warped(LearnedPrior("constant", "rbf", max_epochs=10, progress=False), "log").fit(Tasks.from_pairs(pairs))
    context = Tasks.from_pairs([pairs[0], pairs[1]])
    posterior = method.condition(context).at([3.0])  # one point: its outputs are independent
    y = torch.tensor([[0.3, 2.0], [1.5, 0.4]]).double()
    assert posterior.joint_log_density(y).numpy() == pytest.approx(posterior.log_density(y).sum(1).numpy(), rel=1e-9)
    plain = method.method.condition(
        Tasks.from_pairs([(x, np.log(v / method.warp_.unit.numpy())) for x, v in pairs[:2]])
    )
    t = (y / method.warp_.unit).log()
    expected = plain.at([3.0]).joint_log_density(t) - y.log().sum(1)
    assert posterior.joint_log_density(y).numpy() == pytest.approx(expected.numpy(), rel=1e-9)


def test_a_warp_keeps_no_tasks_alive():
    tasks = ragged(count=4)
    learned_warp("yeo-johnson", tasks)
    kept = weakref.ref(tasks)
    del tasks
    gc.collect()
    assert kept() is None
