import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from metaprior import DataError, NotFittedError, NumericalError, OptionError, Tasks, evidence, score
from metaprior.learning import Designs, MixedEffects, evidence_of, fit_em, start_of
from metaprior.learning.em import UNKNOWNS, check_rank
from metaprior.learning.mixtures import TaskDesigns, designs_of, fit_kinds
from metaprior.methods import FPCA
from metaprior.priors import FourierBasis, PolynomialBasis, SplineBasis
from tests.problems import mixed, ragged, shared, slow_evidence


def curves(count=120, seed=0, largest=8, noise=0.1, grid=None) -> Tasks:
    """Two components of known size around a known mean, each curve seen at a few places of its own."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 1, rng.integers(2, largest + 1))) if grid is None else grid
        first, second = rng.normal(0, 2.0), rng.normal(0, 0.7)
        waves = np.sqrt(2) * np.sin(2 * np.pi * x), np.sqrt(2) * np.cos(2 * np.pi * x)
        pairs.append((x, 3 * x + first * waves[0] + second * waves[1] + rng.normal(0, noise, len(x))))
    return Tasks.from_pairs(pairs)


def random_model(q, r, p, seed, noise=0.3) -> MixedEffects:
    generator = torch.Generator().manual_seed(seed)
    mean, loadings = (torch.randn(q, k, generator=generator, dtype=torch.float64) for k in (p, r))
    return MixedEffects(mean, loadings, noise)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("make", [ragged, shared, mixed])
def test_the_evidence_from_designs_is_that_of_the_prior(make, p):
    tasks = make(p=p)
    basis = PolynomialBasis(-3.0, 3.0, 5)
    model = random_model(5, 3, p, seed=1)
    found = evidence_of(Designs.of(basis, tasks), model)
    assert found == pytest.approx(float(evidence(model.prior(basis), tasks).total.sum().detach()), rel=1e-10)
    assert found == pytest.approx(float(slow_evidence(model.prior(basis), tasks).sum().detach()), rel=1e-10)


@given(
    kind=st.sampled_from([ragged, shared, mixed]),
    p=st.integers(1, 2),
    rank=st.integers(1, 4),
    seed=st.integers(0, 1000),
    far=st.booleans(),
)
def test_em_never_lowers_the_evidence(kind, p, rank, seed, far):
    designs = Designs.of(PolynomialBasis(-4.0, 4.0, 4), kind(p=p, seed=seed))
    start = random_model(4, rank, p, seed) if far else None
    trace = np.array(fit_em(designs, rank, start=start, tolerance=-1.0, max_steps=40).evidence)
    assert len(trace) == 41
    assert np.diff(trace).min() > -1e-9 * np.abs(trace).max()
    assert trace[-1] > trace[0] or not far


def test_em_ends_where_the_gradient_of_the_evidence_is_zero():
    tasks = curves(40, noise=0.3)
    basis = FourierBasis(0.0, 1.0, 5)
    fit = fit_em(Designs.of(basis, tasks), 2, tolerance=1e-13, max_steps=20_000)
    prior = fit.model.prior(basis).requires_grad_(True)
    evidence(prior, tasks).total.sum().backward()
    per_value = torch.cat([p.grad.flatten() for p in (prior.mean.coefficients, prior.kernel.loadings)]) / len(tasks.x)
    assert float(per_value.abs().max()) < 1e-5


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("make", [ragged, mixed])
def test_elsewhere_the_start_is_a_covariance_of_ridge_estimates(make, p):
    """Task by task: the mean of all points by least squares, and what is left of each task with a ridge."""
    tasks, basis, floor = make(p=p), PolynomialBasis(-3.0, 3.0, 4), 1e-6
    every, m = basis(tasks.x), len(tasks)
    mean = torch.linalg.lstsq(every, tasks.y).solution
    ridge = every.square().sum() / (4 * m) * torch.eye(4)
    covariance = torch.zeros(4, 4).double()
    for task in tasks:
        B = basis(task.x)
        own = torch.linalg.solve(B.mT @ B + ridge, B.mT @ (task.y - B @ mean))
        covariance += own @ own.mT / (m * p)
    values, vectors = torch.linalg.eigh(covariance)
    found = start_of(Designs.of(basis, tasks), 2, floor)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.loadings @ found.loadings.mT, vectors[:, 2:] * values[2:] @ vectors[:, 2:].mT)
    assert found.noise == pytest.approx(0.5 * float((tasks.y - every @ mean).square().mean()))
    assert start_of(Designs.of(basis, tasks), 2, 99.0).noise == 99.0


@pytest.mark.parametrize(("q", "rank", "p"), [(3, 1, 1), (3, 3, 2), (6, 1, 2), (6, 5, 1), (6, 5, 2), (6, 6, 1)])
def test_on_one_grid_the_start_is_the_principal_components_of_the_values(q, rank, p):
    """In the span of the basis, from the covariance matrix of the values; what they leave is noise, in equal parts."""
    x, floor = torch.linspace(-1, 1, 6).double()[:, None], 1e-6
    y = torch.from_numpy(np.random.default_rng(q).normal(size=(20, 6, p)) * np.arange(1, 7)[:, None]) + 2.0
    basis = PolynomialBasis(-1.0, 1.0, q)
    found = start_of(Designs.of(basis, Tasks.on_grid(x, y)), rank, floor)
    B = basis(x)
    within = B @ torch.linalg.pinv(B)
    mean = within @ y.mean(0)
    apart = (y - mean).mT.reshape(-1, 6)
    covariance = apart.mT @ apart / len(apart)
    values, vectors = torch.linalg.eigh(within @ covariance @ within)
    values, vectors = values[-rank:], vectors[:, -rank:]
    noise = float((covariance.trace() - values.sum()) / (6 - rank)) if rank < 6 else floor
    assert found.noise == pytest.approx(noise)
    torch.testing.assert_close(B @ found.mean, mean)
    curves, expected = B @ found.loadings, vectors * (values - noise).clamp(min=0.0)
    torch.testing.assert_close(curves @ curves.mT, expected @ vectors.mT)


def test_on_one_grid_the_start_is_the_maximum():
    designs = Designs.of(SplineBasis(0.0, 1.0, [0.3, 0.6]), curves(60, grid=np.linspace(0, 1, 15), noise=0.2))
    assert designs.one_grid
    start = start_of(designs, 2, 1e-9)
    fit = fit_em(designs, 2, tolerance=-1.0, max_steps=50, floor=1e-9)
    assert fit.evidence[-1] == pytest.approx(fit.evidence[0], rel=1e-10)
    assert fit.model.noise == pytest.approx(start.noise, rel=1e-6)
    elsewhere = fit_em(designs, 2, start=random_model(6, 2, 1, seed=0), tolerance=1e-12, max_steps=5000, floor=1e-9)
    assert fit.evidence[-1] * (1 + 1e-3) < elsewhere.evidence[-1] < fit.evidence[-1] + 1e-6  # both are negative


@pytest.mark.parametrize("basis", [FourierBasis(0.0, 1.0, 7), SplineBasis(0.0, 1.0, [0.25, 0.5, 0.75])])
def test_on_dense_curves_it_is_the_svd(basis):
    """Noise-free curves in the span of the basis: the SVD of the centred data, weighted by the trapezoid rule."""
    rng = np.random.default_rng(3)
    x = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None]
    coefficients = (
        torch.tensor(rng.normal(size=(12, 3)) * [3.0, 1.0, 0.4])
        @ torch.linalg.qr(torch.tensor(rng.normal(size=(7, 3))))[0].mT
    )
    y = (coefficients + 2.0) @ basis(x).mT
    tasks = Tasks.on_grid(x, y)
    fpca = FPCA(basis, rank=3, noise_floor=1e-14).fit(tasks)
    weight = torch.full((len(x),), 1 / (len(x) - 1), dtype=torch.float64)
    weight[[0, -1]] /= 2
    U, S, V = torch.linalg.svd((y - y.mean(0)) * weight.sqrt(), full_matrices=False)
    functions = (V[:3] / weight.sqrt()).mT
    sign = (functions * fpca.eigenfunctions(x) * weight[:, None]).sum(0).sign()
    assert fpca.eigenfunctions(x).numpy() == pytest.approx((functions * sign).numpy(), abs=1e-6)
    assert fpca.scores(tasks).mean[..., 0].numpy() == pytest.approx((U[:, :3] * S[:3] * sign).numpy(), abs=1e-6)
    assert fpca.eigenvalues_[:, 0].numpy() == pytest.approx((S[:3] ** 2 / 12).numpy(), rel=1e-6)
    assert fpca.explained_.numpy() == pytest.approx((S[:3] ** 2 / (S**2).sum()).numpy(), abs=1e-6)


def test_sparse_curves_show_the_components_they_were_made_of():
    fpca = FPCA().fit(curves(1500, seed=1))
    x = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    first = np.sqrt(2) * np.sin(2 * np.pi * x[:, 0].numpy())
    found = fpca.eigenfunctions(x)[:, 0].numpy()
    assert abs(np.mean(first * found)) > 0.99
    assert fpca.eigenvalues_[0, 0] == pytest.approx(4.0, rel=0.2)
    assert fpca.noise_[0] == pytest.approx(0.01, rel=0.3)
    assert fpca.rank_ in (2, 3)
    assert fpca.mean_function(x)[:, 0].numpy() == pytest.approx(3 * x[:, 0].numpy(), abs=0.35)


def test_sparse_new_curves_are_covered():
    fpca = FPCA().fit(curves(600, seed=1))
    context, target = curves(400, seed=2, largest=10).context_target(1, seed=0)
    found = score(fpca.predict(context, target), target)
    assert 0.87 < found.summary("coverage_90").mean < 0.93


def test_scores_are_the_posterior_of_the_components():
    """Against the prior conditioned on the curve: f = μ + Σ ξ φ has the same mean and variance everywhere."""
    tasks = curves(80)
    fpca = FPCA(size=8, rank=3).fit(tasks)
    x = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None]
    some = tasks.select(range(5))
    scores, phi = fpca.scores(some), fpca.eigenfunctions(x)
    posterior = fpca.predict(some, Tasks.from_inputs([x] * 5)).function
    mean = fpca.mean_function(x)[:, 0] + scores.mean[..., 0] @ phi.mT
    variance = torch.einsum("nk,mkl,nl->mn", phi, scores.covariance[:, 0], phi)
    assert posterior.mean.reshape(5, 11).numpy() == pytest.approx(mean.numpy(), abs=1e-7)
    assert posterior.variance.reshape(5, 11).numpy() == pytest.approx(variance.numpy(), abs=1e-7)
    assert scores.sd.numpy() ** 2 == pytest.approx(scores.covariance.diagonal(dim1=-2, dim2=-1).mT.numpy())


def test_two_inputs_and_two_outputs():
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(60):
        x = rng.uniform(size=(12, 2))
        level = rng.normal(size=2)
        pairs.append((x, x.sum(1, keepdims=True) + level * [1.0, 50.0] + rng.normal(0, 0.1, (12, 2)) * [1.0, 50.0]))
    tasks = Tasks.from_pairs(pairs)
    fpca = FPCA(size=3).fit(tasks)
    context, target = tasks.context_target(4, seed=0)
    found = score(fpca.predict(context, target), target)
    assert fpca.scores(context).mean.shape == (60, fpca.rank_, 2)
    assert fpca.eigenvalues_[0, 1] / fpca.eigenvalues_[0, 0] == pytest.approx(2500, rel=0.5)
    assert found.summary("mse").mean < 60.0  # 25 is noise; the levels' own variance is 1,250


@pytest.mark.parametrize("d", [2, 3, 4])
def test_a_few_tasks_of_several_inputs_are_planes(d):
    """Sixteen tasks cannot show what 25 functions of two inputs do; a level and a slope of each they can."""
    rng, pairs = np.random.default_rng(d), []
    for _ in range(56):
        x = rng.uniform(0, [10.0**k for k in range(d)], (12, d))
        slopes = rng.normal(1, 0.5, d) / 10.0 ** np.arange(d)
        pairs.append((x, rng.normal(0, 1) + x @ slopes + rng.normal(0, 0.1, len(x))))
    past, new = Tasks.from_pairs(pairs[:16]), Tasks.from_pairs(pairs[16:])
    fpca = FPCA().fit(past)
    assert fpca.tried_[0].size == 2
    context, target = new.context_target(8, 0)
    assert score(fpca.predict(context, target), target).summary("mse").mean < 0.1 * float(new.y.var())


def test_what_is_chosen_is_the_best_that_was_tried():
    fpca = FPCA().fit(curves(100))
    best = max(fpca.tried_, key=lambda one: one.held_out_evidence)
    assert (fpca.basis_.size, fpca.rank_) == (best.size, best.rank)
    assert len({one.size for one in fpca.tried_}) > 1
    assert len({one.rank for one in fpca.tried_}) > 1
    judged = FPCA(held_out=curves(30, seed=9)).fit(curves(100))
    assert judged.tried_ != fpca.tried_


def test_two_or_three_curves_are_enough_for_one_component():
    fpca = FPCA().fit(curves(2))
    assert fpca.rank_ == 1
    assert torch.isfinite(fpca.mean_function(torch.tensor([[0.5]]).double())).all()


def test_a_rank_that_no_fold_can_show_is_learned_from_all_curves():
    assert FPCA(rank=8).fit(curves(10)).rank_ == 8
    with pytest.raises(OptionError, match="number of basis functions, 3"):
        FPCA(rank=5).fit(Tasks.on_grid([0.0, 0.5, 1.0], np.random.default_rng(0).normal(size=(9, 3))))


def test_what_fpca_refuses():
    with pytest.raises(DataError, match="1 curve"):
        FPCA().fit(curves(1))
    with pytest.raises(DataError, match="every curve has one point"):
        FPCA().fit(Tasks.from_pairs([([float(i)], [1.0 * i]) for i in range(9)]))
    with pytest.raises(OptionError, match="rank 0"):
        FPCA(rank=0).fit(curves(9))
    with pytest.raises(OptionError, match="9 curves can show 8 at most"):
        FPCA(rank=9).fit(curves(9))
    with pytest.raises(OptionError, match="from 1 to the number of basis functions, 3"):
        FPCA(size=3, rank=4).fit(curves(9))
    with pytest.raises(DataError, match="distinct inputs"):
        FPCA(size=500).fit(curves(9))
    with pytest.raises(DataError, match="Use fewer basis functions"):
        FPCA(SplineBasis(-10.0, 10.0, np.linspace(-9, 9, 40)), rank=1).fit(curves(9))
    with pytest.raises(OptionError, match="noise_floor"):
        FPCA(noise_floor=0.0).fit(curves(9))
    with pytest.raises(NotFittedError):
        FPCA().mean_function(torch.zeros(1, 1))


def test_a_rank_has_a_function_for_each_component_and_no_more_unknowns_than_one_step_solves_for():
    q, p = 100, 2
    most = UNKNOWNS // q - p
    for rank, one_grid in ((1, False), (most, False), (most + 1, True), (q, True)):
        check_rank(rank, q, p, one_grid=one_grid)
    with pytest.raises(OptionError, match=f"100 basis functions with rank {most + 1} are too many for irregular"):
        check_rank(most + 1, q, p, one_grid=False)
    for rank in (0, q + 1):
        with pytest.raises(OptionError, match="from 1 to the number of basis functions, 100"):
            check_rank(rank, q, p, one_grid=True)


def test_what_linear_algebra_cannot_do_is_said_in_words():
    tasks = curves(9)
    huge = Designs.of(PolynomialBasis(0.0, 1.0, 4), Tasks.from_pairs([(t.x, 1e200 * t.y) for t in tasks]))
    for ask in (lambda: fit_em(huge, 2), lambda: start_of(huge, 2, 1e-6)):
        with pytest.raises(NumericalError, match=r"components of the curves cannot be computed: .*other units"):
            ask()
    wide = random_model(4, 2, 1, seed=0)
    with pytest.raises(NumericalError, match="evidence of the curves is not finite"):
        evidence_of(Designs.of(PolynomialBasis(0.0, 1.0, 4), tasks), wide._replace(mean=torch.inf * wide.mean))
    steep = wide._replace(loadings=1e9 * torch.ones_like(wide.loadings), noise=1e-12)  # one component twice
    with pytest.raises(NumericalError, match="covariance is not positive definite"):
        TaskDesigns.of(PolynomialBasis(0.0, 1.0, 4), tasks).evidence(steep)


def test_the_largest_kind_stays_however_few_tasks_it_has():
    tasks = curves(4, largest=9, grid=np.linspace(0, 1, 6))
    designs = designs_of(PolynomialBasis(0.0, 1.0, 4), tasks)
    one = fit_kinds(designs, torch.ones(4, 1).double(), 2, floor=1e-6)
    assert (len(one.models), one.shares, one.notes) == (1, (1.0,), ())
    two = fit_kinds(designs, torch.eye(2).double()[[0, 1, 0, 0]], 2, floor=1e-6)
    assert len(two.models) == 1
    assert two.notes == ("1 of 2 kinds collapsed and were taken out",)
    torch.testing.assert_close(two.models[0].mean, one.models[0].mean)


def table(data_folder, name, **columns):
    return Tasks.from_table(csv.read_csv(data_folder / "examples" / f"{name}.csv"), **columns)


def test_growth_curves(data_folder):
    """93 children at the same 31 ages: the first component explains the share that the weighted SVD gives."""
    children = table(data_folder, "growth", task="child", x="age", y="height_cm")
    fpca = FPCA().fit(children)
    y, ages = children.y.view(93, 31), children.x[:31, 0]
    weight = torch.zeros(31, dtype=torch.float64)
    weight[:-1] += ages.diff() / 2
    weight[1:] += ages.diff() / 2
    values = torch.linalg.svdvals((y - y.mean(0)) * weight.sqrt()).square()
    assert float(fpca.explained_[0]) == pytest.approx(float(values[0] / values.sum()), abs=0.01)


def test_sparse_visits(data_folder):
    """366 patients with 1 to 11 visits: those of other patients fall into 90% intervals as often as they should."""
    patients = table(data_folder, "cd4", task="subject", x="month", y="cd4_count")
    covered = []
    for seed in range(3):
        held_out, training = patients.split(0.2, seed)
        fpca = FPCA().fit(training)
        context, target = held_out.select(held_out.sizes >= 3).context_target(2, seed)
        covered.append(score(fpca.predict(context, target), target).summary("coverage_90").mean)
    assert 0.85 < np.mean(covered) < 0.95


@pytest.mark.parametrize("own", [True, False], ids=["own inputs", "one grid"])
def test_noise_never_falls_below_its_floor(own):
    """Parabolas without noise: the evidence would take it to nothing."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(60):
        x = np.sort(rng.uniform(0, 1, 7)) if own else np.linspace(0, 1, 7)
        pairs.append((x, 1 + rng.normal() * x + rng.normal() * x**2))
    designs = Designs.of(PolynomialBasis(0.0, 1.0, 4), Tasks.from_pairs(pairs))
    for floor in (1e-3, 0.02):
        assert fit_em(designs, 2, floor=floor, tolerance=1e-9).model.noise == pytest.approx(floor, rel=1e-6)
