import weakref

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from metaprior import DataError, NumericalError, Prior, Tasks, evidence, make_prior
from metaprior.inference import summed_evidence, task_evidence
from metaprior.inference.evidence import _residual_message, gaussian_terms
from metaprior.tasks import SharedInputs, batches
from metaprior.tasks.batches import pad, padded
from tests.problems import PRIORS, known_rbf, mixed, perturbed, ragged, shared, slow_evidence

TASKS = {"ragged": ragged, "shared": shared, "mixed": mixed}


def close(a, b, rel=1e-9):
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=rel, atol=rel)


@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("name", PRIORS)
def test_batched_evidence_is_the_slow_one(name, tasks, d, p):
    prior, tasks = perturbed(PRIORS[name](d, p)), TASKS[tasks](d=d, p=p)
    found = evidence(prior, tasks)
    assert close(found.total, slow_evidence(prior, tasks))
    assert found.jitter == 0.0
    total = summed_evidence(prior, batches(tasks), tasks.ids)
    assert close(total.total, found.total.sum())
    assert close(total.complexity, found.complexity.sum())


def test_against_scikit_learn():
    prior = known_rbf()
    for task in ragged(count=10, largest=30):
        kernel = ConstantKernel(1.3, "fixed") * RBF(0.7, "fixed")
        oracle = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(task.x.numpy(), task.y.numpy())
        ours = evidence(prior, Tasks.from_pairs([(task.x, task.y)])).total.item()
        assert ours == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-8)


def test_against_gpytorch_exact_gp():
    prior = perturbed(PRIORS["learned mean"](1, 1))
    for task in ragged(count=5, largest=30):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = prior.noise(task.x)[0].detach()

        class Exact(gpytorch.models.ExactGP):
            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(prior.mean(x)[..., 0], prior.kernel(x))

        model = Exact(task.x, task.y[:, 0], likelihood).double()
        model.train()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        oracle = mll(model(task.x), task.y[:, 0]).item() * len(task.x)
        ours = evidence(prior, Tasks.from_pairs([(task.x, task.y)])).total.item()
        assert ours == pytest.approx(oracle, rel=1e-8)


def test_the_three_terms_are_the_papers():
    tasks, prior = ragged(p=2), known_rbf(p=2)
    terms = evidence(prior, tasks)
    for i, task in enumerate(tasks):
        z = prior.at(task.x)
        A = (prior.covariance(z, z) + torch.diag(z.noise)).detach().numpy()
        y, n = task.y.numpy(), len(task.x)
        assert terms.data_fit[i].item() == pytest.approx(-0.5 * np.trace(y.T @ np.linalg.solve(A, y)))
        assert terms.complexity[i].item() == pytest.approx(-0.5 * 2 * np.linalg.slogdet(A)[1])
        assert terms.normaliser[i].item() == pytest.approx(-0.5 * 2 * n * np.log(2 * np.pi))
    assert close(terms.total, terms.data_fit + terms.complexity + terms.normaliser, 0)


def test_complexity_does_not_depend_on_the_mean():
    tasks = ragged()
    zero, deep = known_rbf(mean="zero"), known_rbf(mean="deep")
    assert torch.equal(evidence(zero, tasks).complexity, evidence(deep, tasks).complexity)
    assert not torch.equal(evidence(zero, tasks).data_fit, evidence(deep, tasks).data_fit)


@pytest.mark.parametrize("scatter", [False, True])
def test_analytic_gradient_of_the_terms(scatter):
    generator = torch.Generator().manual_seed(0)
    B = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    R = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    S = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    S = S @ S.mT if scatter else None

    def terms(B, R):
        A = B @ B.mT + torch.eye(4, dtype=torch.float64)
        return gaussian_terms(A, R, S, None)[:3]

    assert torch.autograd.gradcheck(terms, (B, R), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("name", PRIORS)
def test_every_gradient_against_finite_differences(name, tasks):
    prior, tasks = perturbed(PRIORS[name](1, 2)), TASKS[tasks](p=2)
    laid_out = batches(tasks)
    parameters = prior.learned_parameters()

    def total():
        return summed_evidence(prior, laid_out, tasks.ids).total

    gradients = torch.autograd.grad(total(), parameters, allow_unused=True)
    generator = torch.Generator().manual_seed(1)
    directions = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
    for parameter, gradient, direction in zip(parameters, gradients, directions, strict=True):
        along = 0.0 if gradient is None else float((gradient * direction).sum())
        values = []
        with torch.no_grad():
            for step in (1e-5, -2e-5):
                parameter += step * direction
                values.append(float(total()))
            parameter += 1e-5 * direction
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(along, rel=2e-5, abs=2e-5)


def test_terms_of_several_matrices_are_the_same_with_and_without_slopes():
    rng = np.random.default_rng(0)
    roots, R = torch.from_numpy(rng.normal(size=(3, 4, 4))), torch.from_numpy(rng.normal(size=(3, 4, 2)))
    A, S = roots @ roots.mT + torch.eye(4), roots.mT @ roots
    plain = gaussian_terms(A, R, S, None)
    wanted = (
        (R * torch.linalg.solve(A, R)).sum(-2),
        torch.linalg.solve(A, S).diagonal(dim1=-2, dim2=-1).sum(-1),
        torch.linalg.slogdet(A).logabsdet,
    )
    sloped = gaussian_terms(A.requires_grad_(), R, S, None)
    only_r = gaussian_terms(A.detach(), R.requires_grad_(), S, None)
    for found in (plain, sloped, only_r):
        for one, other in zip(found, wanted, strict=False):
            torch.testing.assert_close(one.detach(), other.detach())
    (slope,) = torch.autograd.grad(only_r[0].sum(), R)
    torch.testing.assert_close(slope, 2 * torch.linalg.solve(A, R).detach())


def test_per_task_gradients_of_shared_groups():
    prior, tasks = perturbed(PRIORS["learned both"](1, 1)), shared()
    weights = torch.linspace(-1, 1, len(tasks), dtype=torch.float64)
    ours = torch.autograd.grad((weights * evidence(prior, tasks).total).sum(), prior.learned_parameters())
    slow = torch.autograd.grad((weights * slow_evidence(prior, tasks)).sum(), prior.learned_parameters())
    assert all(close(a, b, 1e-8) for a, b in zip(ours, slow, strict=True))


@given(st.integers(0, 1000))
def test_order_of_tasks_and_of_points_changes_nothing(seed):
    prior, tasks = PRIORS["learned both"](1, 1), mixed(seed=seed % 7)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(tasks))
    inside = [rng.permutation(int(n)) for n in tasks.sizes]
    moved = Tasks.from_pairs([(tasks[i].x[inside[i]], tasks[i].y[inside[i]]) for i in order])
    assert close(evidence(prior, moved).total, evidence(prior, tasks).total[torch.from_numpy(order)])


@given(st.integers(0, 1000), st.integers(0, 8))
def test_padding_changes_nothing(seed, extra):
    prior, tasks = PRIORS["learned mean"](1, 1), ragged(seed=seed)
    alone = torch.cat([evidence(prior, tasks.select([i])).total for i in range(len(tasks))])
    longest = Tasks.from_pairs([*((t.x, t.y) for t in tasks), (np.arange(9.0 + extra), np.zeros(9 + extra))])
    together = pad(longest, torch.arange(len(longest)))
    assert together.mask.shape[1] == 9 + extra
    assert close(task_evidence(prior, together, longest.ids).total[:-1], alone)


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_splitting_a_batch_changes_nothing(seed, fraction):
    prior, tasks = PRIORS["learned kernel"](1, 1), mixed(seed=seed % 5)
    parts = tasks.split(fraction, seed)
    whole = dict(zip(tasks.ids, evidence(prior, tasks).total.tolist(), strict=True))
    for part in parts:
        assert evidence(prior, part).total.tolist() == pytest.approx([whole[name] for name in part.ids])


@given(st.integers(0, 1000))
def test_grouping_changes_nothing(seed):
    prior, tasks = PRIORS["vanilla"](1, 2), shared(p=2, seed=seed)
    assert isinstance(batches(tasks)[0], SharedInputs)
    one_by_one = summed_evidence(prior, padded(tasks), tasks.ids).total
    assert close(summed_evidence(prior, batches(tasks), tasks.ids).total, one_by_one)


@given(st.floats(-1e3, 1e3), st.integers(0, 100))
def test_shifting_y_and_a_constant_mean_changes_nothing(shift, seed):
    prior, tasks = PRIORS["constant mean, Matérn"](1, 1), ragged(seed=seed)
    before = evidence(prior, tasks).total
    with torch.no_grad():
        prior.mean.raw_constant += shift
    moved = Tasks.from_pairs([(t.x, t.y + shift) for t in tasks])
    assert close(evidence(prior, moved).total, before, 1e-7)


@pytest.mark.parametrize("degrees", [None, 5.0])
def test_per_point_weighting_divides_by_the_size(degrees):
    prior, tasks = make_prior("zero", "rbf", d=1, degrees=degrees, seed=0), mixed()
    weighted = summed_evidence(prior, batches(tasks), tasks.ids, per_point=True).total
    assert close(weighted, (evidence(prior, tasks).total / tasks.sizes).sum())


def test_cost_of_a_group_does_not_grow_with_its_tasks(monkeypatch):
    factored, original = [], torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda A: factored.append(A.shape) or original(A))
    tasks = shared(count=500, n=6)
    summed_evidence(PRIORS["learned both"](1, 1), batches(tasks), tasks.ids)
    assert factored == [(1, 6, 6)]


def test_points_that_batches_have_in_common_are_asked_of_the_prior_once(monkeypatch):
    prior, laid_out = PRIORS["learned both"](1, 1), batches(mixed())
    asked, original = [], Prior.at
    monkeypatch.setattr(Prior, "at", lambda self, x: asked.append(len(x)) or original(self, x))
    summed_evidence(prior, laid_out, mixed().ids)
    assert len(laid_out) > 1
    assert asked == [len(mixed().x.unique(dim=0))]


def test_batches_that_are_gone_once_they_are_summed_change_nothing():
    """Their points stay till the end: what would take their place in memory could be mistaken for them."""
    prior, tasks, points = PRIORS["learned kernel"](1, 1), ragged(), []

    def one_by_one():
        for k in range(len(tasks)):
            batch = pad(tasks, torch.tensor([k]))
            points.append(weakref.ref(batch.inputs.distinct))
            yield batch
            del batch
            assert all(one() is not None for one in points)

    with torch.no_grad():
        assert close(summed_evidence(prior, one_by_one(), tasks.ids).total, evidence(prior, tasks).total.sum())


def test_on_another_device_every_term_is_what_it_was():
    found = evidence(known_rbf(), ragged())._replace(jitter=1e-8)
    assert all(torch.equal(*pair) for pair in zip(found.to("cpu").terms, found.terms, strict=True))
    assert found.to("cpu").jitter == 1e-8
    assert not torch.equal(found.data_fit, found.complexity)


def test_evidence_of_one_task():
    prior, tasks = PRIORS["learned both"](1, 1), ragged()
    assert evidence(prior, tasks[3]).total.item() == pytest.approx(evidence(prior, tasks).total[3].item())


def test_a_prior_for_other_inputs_says_so():
    with pytest.raises(DataError, match="points with 2 input columns; make it with d=2"):
        evidence(PRIORS["learned both"](1, 1), ragged(d=2))
    batched = Prior(gpytorch.means.ZeroMean(), RBFKernel(batch_shape=torch.Size([3])), 0.1, learn=())
    with pytest.raises(DataError, match=r"batch shape \(3,\)"):
        evidence(batched, ragged())


def test_jitter_does_not_depend_on_what_a_task_is_padded_with():
    prior = known_rbf(variance=1e-6, noise=0.0)
    pairs = [([0.0, 0.0], [1e-3, 1e-3]), (np.arange(6.0), np.zeros(6))]
    alone, together = Tasks.from_pairs(pairs[:1]), Tasks.from_pairs(pairs)
    assert evidence(prior, alone).jitter > 0
    whole = task_evidence(prior, pad(together, torch.arange(2)), together.ids).total[0].item()
    assert whole == pytest.approx(evidence(prior, alone).total.item(), rel=1e-9)


@pytest.mark.parametrize("tasks", TASKS)
def test_float32_is_an_option(tasks):
    tasks = TASKS[tasks](p=2)
    found = evidence(perturbed(PRIORS["learned both"](1, 2)).float(), tasks)
    assert found.total.dtype == torch.float32
    assert close(found.total.double(), evidence(perturbed(PRIORS["learned both"](1, 2)), tasks).total, 1e-3)


def test_outputs_must_match():
    with pytest.raises(DataError, match="mean has 1 outputs, but the tasks have 2"):
        evidence(PRIORS["vanilla"](1, 1), ragged(p=2))


def test_a_mean_that_is_not_finite_is_told_with_its_task():
    tasks = Tasks.from_pairs([([0.0], [1.0]), ([0.0, 1.0], [1.0, 2.0]), ([0.0, 9.0], [1.0, 2.0])], ["a", "b", "far"])

    class Breaks(gpytorch.means.Mean):
        def forward(self, x):
            return torch.where(x[..., 0] > 5, torch.inf, 0.0)

    prior = Prior(Breaks(), known_rbf().kernel, known_rbf().noise, learn=())
    with pytest.raises(NumericalError, match="of task 'far' is not finite"):
        evidence(prior, tasks)
    residuals = torch.tensor([[[0.0], [1.0]], [[torch.nan], [1.0]]])
    assert "of batch element 1 is" in _residual_message(residuals, None)
