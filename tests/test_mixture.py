"""Tasks that come in kinds: what a mixture of priors finds, says and refuses."""

import numpy as np
import pytest
import torch

import metaprior
from metaprior import NotFittedError, OptionError, Tasks
from metaprior.inference import WarpedPosterior
from metaprior.learning import Designs, evidence_of, fit_em, start_of
from metaprior.learning.grid_kinds import GridDesigns
from metaprior.learning.mixtures import KindsEM, TaskDesigns, designs_of, fit_kinds, k_means
from metaprior.methods import FPCA, Mixture, Warped
from metaprior.priors import make_basis
from metaprior.scoring import evaluate, score
from metaprior.selection import Auto, compare
from metaprior.splits import random_sizes
from metaprior.tasks import in_order, resolution, rounding_variance
from tests.problems import ragged, shared


def two_kinds(count, seed, n=9):
    """Waves around 3 and lines around −3."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        x, a = np.sort(rng.uniform(0, 1, n)), rng.normal(1, 0.3)
        pairs.append((x, (3 + a * np.sin(6 * x) if k % 2 else -3 + 2 * a * x) + 0.1 * rng.normal(size=n)))
    return Tasks.from_pairs(pairs)


@pytest.fixture(scope="module")
def kinds():
    return Mixture().fit(two_kinds(120, 0))


def test_a_mixture_finds_the_kinds_and_predicts_by_them(kinds):
    assert len(kinds.models_) == 2
    assert kinds.shares_ == pytest.approx([0.5, 0.5], abs=0.02)
    new = two_kinds(60, 1)
    responsible = kinds.responsibilities(new)
    assert float(responsible.amax(1).min()) > 0.99
    assert len(responsible.argmax(1)[::2].unique()) == 1
    context, target = new.context_target(2, seed=0)
    ours, single = (evaluate(method, context, target) for method in (kinds, FPCA().fit(two_kinds(120, 0))))
    assert ours.summary("mse").mean < 0.5 * single.summary("mse").mean
    assert ours.summary("log_likelihood").mean > single.summary("log_likelihood").mean + 0.2


@pytest.mark.parametrize("grid", [True, False])
def test_a_mixture_of_one_kind_is_the_single_prior(grid):
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 7)
    tasks = Tasks.from_pairs([(x, rng.normal() + x * rng.normal() + 0.1 * rng.normal(size=7)) for _ in range(40)])
    tasks = tasks if grid else two_kinds(40, 0)
    one = Mixture(1, rank=2, size=5, seed=0).fit(tasks)
    context, target = tasks.context_target(3, seed=0)
    posterior = one.predict(context, target)
    assert len(posterior.components) == 1
    alone = metaprior.condition(one.priors_[0], one.scaler_.scale(context)).at(one.scaler_.scale(target))
    assert torch.allclose(posterior.mean, one.scaler_.unscale_mean(alone.mean))
    assert torch.allclose(posterior.evidence.total, alone.evidence.total + one.scaler_.log_jacobian(context))
    joint = alone.joint_log_density(one.scaler_.scale_y(target.y)) + one.scaler_.log_jacobian(target)
    assert torch.allclose(posterior.joint_log_density(target.y), joint, rtol=1e-6)


@pytest.mark.parametrize(("waves", "n", "sizes"), [(1.0, 4, (3, 5)), (25.0, 30, (10, 20))])
def test_the_basis_is_as_large_as_tasks_that_were_not_learned_from_call_for(waves, n, sizes):
    """Also where kinds and rank are given: tasks of one kind, with noise that a large basis would follow."""
    rng = np.random.default_rng(0)
    xs = [np.sort(rng.uniform(0, 1, n)) for _ in range(80)]
    tasks = Tasks.from_pairs([(x, rng.normal() + np.sin(waves * x) + 0.3 * rng.normal(size=n)) for x in xs])
    for given in ({}, {"kinds": 1, "rank": 1}):
        assert Mixture(**given, held_out=0.5).fit(tasks).size_ in sizes


def test_evidence_of_the_kinds_against_the_slow_one(kinds):
    tasks = two_kinds(12, 4)
    expected = torch.stack(
        [metaprior.evidence(prior, kinds.scaler_.scale(tasks)).total.detach() for prior in kinds.priors_], 1
    )
    expected = (expected + torch.tensor(kinds.shares_, dtype=torch.float64).log()).logsumexp(1)
    assert torch.allclose(kinds.evidence(tasks), expected + kinds.scaler_.log_jacobian(tasks), rtol=1e-8)


def test_em_never_loses_evidence_and_tells_what_collapsed():
    tasks = two_kinds(60, 0)
    designs = TaskDesigns.of(make_basis("spline", tasks.x, 6), tasks)
    start = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)).double()
    fit = fit_kinds(designs, start / start.sum(1, keepdim=True), 2, floor=1e-6, rounds=20)
    assert (np.diff(fit.evidence) > -1e-6 * abs(fit.evidence[-1])).all()
    lonely = torch.zeros(60, 3).double()
    lonely[:58, 0], lonely[58:, 1] = 1, 1
    fit = fit_kinds(designs, lonely, 2, floor=1e-6)
    assert "2 of 3 kinds collapsed" in fit.notes[0]
    assert len(fit.models) == 1


def test_a_task_of_a_kind_that_is_gone_may_be_of_any_other():
    gone = [[0.0, 0.0, 1.0], [4e-12, 0.0, 1.0], [0.0, 0.01, 0.99]]
    before = torch.tensor([*[[1.0, 0.0, 0.0]] * 6, *[[0.4, 0.6, 0.0]] * 12, *gone]).double()
    em = KindsEM(None, before, 1, 1e-6)
    em._take_out()
    known, some, rest = em.responsible[:6], em.responsible[6:18], em.responsible[18:]
    assert em.notes == ["1 of 3 kinds collapsed and were taken out"]
    assert len(em.models) == 2
    assert torch.allclose(known, torch.tensor([1.0, 0.0]).double())
    assert torch.allclose(some, torch.tensor([0.4, 0.6]).double())
    assert rest[[0, 2]].numpy() == pytest.approx(np.array([[0.5, 0.5], [0.0, 1.0]]), abs=1e-9)
    assert 0.5 < float(rest[1, 0]) < 1.0
    assert float(em.responsible.min()) >= 0.0
    assert torch.allclose(em.responsible.sum(1), torch.ones(21).double())


@pytest.mark.parametrize(("rank", "expected"), [(1, [1, 1, 1]), (2, [2, 2, 2]), (4, [2, 3, 4])])
def test_a_kind_has_half_as_many_components_as_tasks_at_most(rank, expected):
    tasks = two_kinds(20, 0)
    designs = TaskDesigns.of(make_basis("polynomial", tasks.x, 5), tasks)
    start = torch.eye(3).double()[[0] * 5 + [1] * 6 + [2] * 9]
    models = KindsEM(designs, start, rank, 1e-6).advance(1).models
    assert [model.loadings.shape[1] for model in models] == expected
    few = designs_of(make_basis("polynomial", tasks.x, 5), tasks.select(range(3)))
    (alone,) = KindsEM(few, torch.ones(3, 1).double(), rank, 1e-6).advance(1).models
    assert alone.loadings.shape[1] == 1


def test_a_mixture_makes_the_trip_and_refuses_what_it_cannot_do(kinds, tmp_path):
    kinds.save(tmp_path / "m")
    again = metaprior.load(tmp_path / "m")
    context, target = two_kinds(6, 2).context_target(2, seed=0)
    assert torch.equal(again.predict(context, target).mean, kinds.predict(context, target).mean)
    with pytest.raises(OptionError, match="200 kinds: 120 tasks can be of 1 to 120"):
        Mixture(200).fit(two_kinds(120, 0))
    with pytest.raises(NotFittedError):
        Mixture().predict(context, target)
    with pytest.raises(OptionError, match="not one Gaussian-process prior"):
        again.to_botorch([0.1], [1.0])
    drawn = kinds.predict(context, target).samples(5, seed=0)
    assert drawn.shape == (5, len(target.x), 1)
    assert score(kinds.predict(context, target), target).summary("crps").mean > 0


@pytest.mark.parametrize("rank", [1, 3])
def test_a_task_that_counts_twice_is_two_tasks(rank):
    """EM with weights against EM on the same tasks repeated, which knows of no weights."""
    tasks = two_kinds(30, 0)
    often = torch.tensor([1, 2, 3] * 10)
    repeated = tasks.select(torch.arange(30).repeat_interleave(often))
    basis = make_basis("spline", tasks.x, 6)
    weighted = TaskDesigns.of(basis, tasks).weighted(often.double())
    plain = TaskDesigns.of(basis, repeated).weighted(torch.ones(60).double())
    one, two = (fit_em(designs, rank, floor=1e-6, max_steps=20) for designs in (weighted, plain))
    assert one.evidence == pytest.approx(two.evidence, rel=1e-9)
    assert torch.allclose(one.model.mean, two.model.mean, atol=1e-8)
    assert evidence_of(weighted, two.model) == pytest.approx(one.evidence[-1], rel=1e-9)
    light = TaskDesigns.of(basis, tasks).weighted(torch.where(often > 1, often, 0).double())
    assert len(light.blocks[0].count) == 20  # who has no weight costs nothing


def test_values_that_were_rounded_never_have_less_noise_than_that():
    """Patients whose score stands still all day: a kind of them would be sure of it to six digits."""
    rng = np.random.default_rng(0)
    levels = rng.integers(3, 16, 150)
    pairs = [(np.arange(6.0), np.full(6, float(level))) for level in levels[:100]]
    pairs += [(np.arange(6.0), np.round(level + 2 * rng.normal(size=6))) for level in levels[100:]]
    tasks = Tasks.from_pairs(pairs)
    assert rounding_variance(tasks) >= 1 / 12
    assert rounding_variance(two_kinds(20, 0)) == 0.0
    found = Mixture().fit(tasks)
    least = min(model.noise for model in found.models_) * float(found.scaler_.y_scale) ** 2
    assert least >= 0.99 / 12
    context, target = tasks.context_target(2, seed=0)
    assert score(found.predict(context, target), target).values["log_likelihood"].min() > -30


def recorded(values):
    return Tasks.from_pairs([(np.arange(float(len(values))), np.asarray(values, float))])


TENTHS = np.arange(340, 420)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        (np.repeat([1, 2, 3], 10), 1.0),
        (np.concatenate([TENTHS * 0.1, TENTHS / 10, TENTHS * 0.1, TENTHS / 10, TENTHS / 10]), 0.1),
        (np.concatenate([np.repeat(TENTHS, 20) / 10, [36.65]]), 0.1),  # one odd value among 1,600
        (np.concatenate([np.repeat(np.arange(12), 30), [500, 9000, 9000.5]]), 1.0),  # isolated ones, however far
        (np.repeat(32 + 1.8 * TENTHS / 10, 9), 0.18),  # converted from other units
        (np.repeat(1e9 + np.arange(9), 9), 1.0),
        (np.repeat(1.7e12 + np.arange(9), 9), 1.0),  # milliseconds since 1970
        (np.concatenate([np.repeat(TENTHS / 10, 20), [1e15, 1e36]]), 0.1),  # what a file is filled with
        (np.concatenate([np.repeat(np.arange(9.0), 30), [3.02, 5.5]]), 1.0),  # an odd value beside frequent ones
        (np.linspace(0, 1, 300), 0.0),  # not rounded
        (np.full(50, 3.0), 0.0),  # constant
    ],
)
def test_the_step_in_which_values_were_recorded(values, step):
    assert resolution(recorded(values)).tolist() == [pytest.approx(step, rel=1e-6)]
    assert rounding_variance(recorded(values)) == pytest.approx(step**2 / 12, rel=1e-6)


def test_a_warped_mixture_has_the_mean_of_its_draws():
    """Moments part by part, against quadrature over the mixture's own quantiles and against samples."""
    tasks = two_kinds(120, 0)
    positive = Tasks.from_pairs([(x, np.exp(y / 3)) for x, y in ((t.x.numpy(), t.y[:, 0].numpy()) for t in tasks)])
    method = Warped(Mixture(2, rank=2), warp="log").fit(positive)
    context, target = positive.select(range(10)).context_target(1, seed=0)
    posterior = method.predict(context, target)
    assert isinstance(posterior, WarpedPosterior)
    draws = posterior.samples(20_000, seed=0)
    error = draws.std(0) / 20_000**0.5
    assert float(((draws.mean(0) - posterior.mean) / error).abs().max()) < 5
    assert torch.allclose(draws.std(0), posterior.sd, rtol=0.1)
    middle = posterior.quantiles([0.5])[0]
    assert torch.allclose(posterior.cdf(middle), torch.tensor(0.5).double())


def test_all_tasks_are_learned_from_once_the_kinds_are_chosen(monkeypatch):
    tasks = two_kinds(120, 0)
    found = Mixture((1, 2, 3), rank=2).fit(tasks)
    again = fit_kinds(
        TaskDesigns.of(found.basis_, found.scaler_.scale(tasks)), found.responsibilities(tasks), 2, floor=1e-6
    )
    assert [model.noise for model in found.models_] == pytest.approx([model.noise for model in again.models], rel=1e-3)
    few = Mixture((1, 2), rank=2)
    monkeypatch.setattr("metaprior.methods.mixture.SOME", 60)  # kinds are chosen on some tasks where there are many
    few.fit(tasks)
    assert few.shares_ == pytest.approx(found.shares_, abs=0.02)
    assert few.trained_on_.tasks == 120


def on_a_grid(count, n, p=1, seed=0):
    """Two kinds of smooth curves on one grid, of one output or several."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, n)
    waves = np.stack([np.sin((k + 1) * 3 * x) / (k + 1) for k in range(12)])
    pairs = []
    for k in range(count):
        level = np.array([2.0, 1.0, 0.5])[:p] * (1 if k % 2 else -1)
        y = level + (rng.normal(size=(p, 12)) @ waves).T + 0.1 * rng.normal(size=(n, p))
        pairs.append((x, y))
    return Tasks.from_pairs(pairs)


@pytest.mark.parametrize(("n", "size", "p"), [(7, 7, 1), (12, 5, 1), (9, 6, 2)])
def test_kinds_on_a_grid_against_the_slow_ways(n, size, p):
    """A weighted kind in closed form, against the same tasks repeated; evidence task by task, from Gram matrices."""
    tasks = on_a_grid(20, n, p)
    basis = make_basis("spline", tasks.x, size)
    often = torch.tensor([0, 1, 2, 3] * 5)
    repeated = tasks.select(torch.arange(20).repeat_interleave(often))
    slow = start_of(Designs.of(basis, repeated), 2, 1e-6)
    designs = GridDesigns.of(basis, tasks)
    kind = designs.maximised(often.double(), 2, 1e-6)
    (fast,) = designs.in_basis([kind])
    assert torch.allclose(fast.mean, slow.mean, atol=1e-8)
    assert torch.allclose(fast.loadings @ fast.loadings.mT, slow.loadings @ slow.loadings.mT, atol=1e-8)
    assert fast.noise == pytest.approx(slow.noise, rel=1e-8)
    expected = TaskDesigns.of(basis, tasks).evidence(slow)
    assert torch.allclose(designs.evidence(slow), expected, rtol=1e-8)
    assert torch.allclose(designs.evidences([slow, kind])[:, 1], expected, rtol=1e-8)


def test_values_and_what_lies_outside_the_basis_are_those_of_a_fit_by_least_squares():
    tasks = on_a_grid(20, 12, p=2)
    basis = make_basis("spline", tasks.x, 5)
    B, y = basis(tasks.x[:12]), tasks.y.view(20, 12, 2)
    fitted = B @ torch.linalg.lstsq(B.expand(20, -1, -1), y).solution
    designs = GridDesigns.of(basis, tasks)
    assert torch.allclose(designs.outside, (y - fitted).square().sum((1, 2)))
    assert torch.allclose(designs.squares, y.square().sum((1, 2)))
    inside = GridDesigns.of(basis, Tasks.on_grid(tasks.x[:12], fitted)).outside
    assert 0.0 <= float(inside.min()) <= float(inside.max()) < 1e-12  # never less than nothing, by rounding
    assert designs.values == TaskDesigns.of(basis, tasks).values == 20 * 12 * 2


def test_a_kind_that_gets_more_components_than_it_has_directions_begins_anew(monkeypatch):
    tasks = on_a_grid(80, 60)
    designs = GridDesigns.of(make_basis("spline", tasks.x, 60), tasks)
    monkeypatch.setattr("metaprior.learning.grid_kinds.SEVERAL", 1)
    weights = torch.rand(80, generator=torch.Generator().manual_seed(0)).double()
    small = designs.maximised(weights, 1, 1e-6)
    grown, anew = designs.maximised(weights, 20, 1e-6, small), designs.maximised(weights, 20, 1e-6)
    assert small.span.shape[1] < 20
    for one, other in zip(grown, anew, strict=True):
        torch.testing.assert_close(one, other)


def test_the_leading_directions_rise_to_the_closed_form(monkeypatch):
    """Subspace iteration from round to round, against all eigenvectors."""
    tasks = on_a_grid(80, 60)
    basis = make_basis("spline", tasks.x, 60)
    weights = torch.rand(80, generator=torch.Generator().manual_seed(0)).double()
    designs = GridDesigns.of(basis, tasks)
    monkeypatch.setattr("metaprior.learning.grid_kinds.SEVERAL", 1000)
    exact = designs.maximised(weights, 3, 1e-6)
    monkeypatch.setattr("metaprior.learning.grid_kinds.SEVERAL", 2)
    kind, trace = None, []
    for _ in range(6):
        kind = designs.maximised(weights, 3, 1e-6, kind)
        trace.append(float(weights @ designs.evidence(kind)))
    assert kind.span.shape == (60, 15)
    assert (np.diff(trace) > -1e-9 * abs(trace[-1])).all()
    assert trace[-1] == pytest.approx(float(weights @ designs.evidence(exact)), rel=1e-9)


def test_em_on_a_grid_never_loses_evidence_and_agrees_with_em_task_by_task(monkeypatch):
    monkeypatch.setattr("metaprior.learning.grid_kinds.SEVERAL", 2)
    tasks = on_a_grid(60, 40)
    basis = make_basis("spline", tasks.x, 40)
    start = torch.eye(2).double()[(torch.arange(60) % 7 < 4).long()]
    grid, single = GridDesigns.of(basis, tasks), TaskDesigns.of(basis, tasks)
    em = KindsEM(grid, start, 2, 1e-6).advance(15)
    assert (np.diff(em.evidence) > -1e-6 * abs(em.evidence[-1])).all()
    apart = fit_kinds(grid, torch.eye(2).double()[torch.arange(60) % 2], 2, floor=1e-6)
    responsible = torch.softmax(single.evidences(apart.models) + torch.tensor(apart.shares).double().log(), 1)
    assert torch.allclose(responsible, torch.eye(2).double()[torch.arange(60) % 2], atol=1e-6)


def test_single_precision_where_there_is_noise_enough(monkeypatch):
    tasks = on_a_grid(60, 20)
    basis = make_basis("spline", tasks.x, 20)
    double = GridDesigns.of(basis, tasks, 1e-2)
    monkeypatch.setattr("metaprior.learning.grid_kinds.MANY", 0)
    single = GridDesigns.of(basis, tasks, 1e-2)
    assert (single.rows.dtype, GridDesigns.of(basis, tasks, 1e-6).rows.dtype) == (torch.float32, torch.float64)
    weights = torch.ones(60).double()
    one, two = (designs.evidence(designs.maximised(weights, 2, 1e-2)) for designs in (single, double))
    assert torch.allclose(one, two, atol=1e-3)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("make", [ragged, shared])
def test_scores_are_what_one_model_for_all_tasks_says_of_each(make, p):
    """As curves, by the dense Gaussian of each task: components may be turned."""
    tasks = make(p=p)
    basis = make_basis("polynomial", tasks.x, 4)
    designs = designs_of(basis, in_order(tasks))
    beta, W, noise = fit_em(Designs.of(basis, tasks), 2, tolerance=1e-3).model
    scores, loadings = designs.scores(2, 1e-6)
    ours = loadings if isinstance(designs, TaskDesigns) else torch.linalg.solve(designs.root, loadings)
    for task, z in zip(in_order(tasks), scores, strict=True):
        B = basis(task.x)
        covariance = B @ W @ W.mT @ B.mT
        noisy = covariance + noise * torch.eye(len(B))
        expected = covariance @ torch.linalg.solve(noisy, task.y - B @ beta)
        torch.testing.assert_close(B @ ours @ z, expected, atol=1e-6, rtol=1e-6)


def test_kinds_that_cannot_win_are_left_after_a_few_rounds(monkeypatch):
    rounds = []
    advance = KindsEM.advance
    monkeypatch.setattr(KindsEM, "advance", lambda em, count: rounds.append(count) or advance(em, count))
    monkeypatch.setattr("metaprior.methods.mixture.SOME", 50)
    tasks, others = on_a_grid(200, 8), on_a_grid(50, 8, seed=1)
    found = Mixture((1, 2), rank=(1, 4), held_out=others).fit(tasks)
    assert len(found.models_) == 2
    assert rounds.count(4) == len(found.tried_) == 4
    assert 1 <= rounds.count(15) < 4
    monkeypatch.setattr("metaprior.methods.mixture.SOME", 2000)
    slow = Mixture((1, 2), rank=(1, 4), held_out=others).fit(tasks)
    assert torch.allclose(found.evidence(others), slow.evidence(others), rtol=1e-6)


def test_kinds_that_cannot_be_determined_end_the_search():
    """Half of the tasks were seen on the left only: a kind of them says nothing of the right."""
    rng = np.random.default_rng(0)
    pairs = []
    for k in range(60):
        x = np.sort(rng.uniform(0, 0.4, 6)) if k % 2 else np.sort(rng.uniform(0, 1, 6))
        pairs.append((x, (5.0 if k % 2 else -5.0) + rng.normal() + 0.1 * rng.normal(size=6)))
    tasks = Tasks.from_pairs(pairs)
    found = Mixture((1, 2), rank=1, size=8).fit(tasks)
    assert len(found.models_) == 1
    assert [one.kinds for one in found.tried_] == [1]
    with pytest.raises(metaprior.DataError, match="Use fewer basis functions"):
        Mixture(2, rank=1, size=8).fit(tasks)


def test_the_choice_finds_kinds_and_a_comparison_takes_any_rung():
    tasks = two_kinds(150, 0)
    found = Auto(rungs=("shared gp", "fpca", "mixture"), progress=False).fit(tasks)
    assert found.chosen_.get("mixture", 0.0) > 0.5
    densities = {one.name: one.density.mean for one in found.tried_}
    assert densities["mixture"] > densities["fpca"] + 0.2
    side_by_side = compare(tasks, random_sizes([2]), methods=["mixture", "fpca", "last value"], folds=2)
    assert side_by_side.best == "mixture"


@pytest.mark.parametrize("grid", [True, False])
def test_a_round_of_kinds_is_the_textbooks(grid):
    """Evidence and responsibilities after each round, against dense Gaussians of the kinds as they then are."""
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 6)
    curves = [(2.0 if k % 3 else -2.0) + rng.normal() * x + 0.2 * rng.normal(size=6) for k in range(60)]
    tasks = Tasks.from_pairs([(x, y) for y in curves])
    basis = make_basis("polynomial", tasks.x, 3)
    designs = GridDesigns.of(basis, tasks) if grid else TaskDesigns.of(basis, tasks)
    start = torch.from_numpy(rng.dirichlet(np.ones(2), 60))
    kinds = KindsEM(designs, start, rank=1, floor=1e-6)
    shares = start.mean(0)
    for rounds in (1, 2, 3):
        kinds.advance(rounds)
        priors = [model.prior(basis) for model in kinds.fit.models]
        said = torch.stack([metaprior.evidence(prior, tasks).total.detach() for prior in priors], 1) + shares.log()
        assert len(kinds.evidence) == rounds
        assert kinds.evidence[-1] == pytest.approx(float(said.logsumexp(1).sum()), rel=1e-6)
        assert kinds.responsible.numpy() == pytest.approx(torch.softmax(said, 1).numpy(), abs=1e-6)
        shares = kinds.responsible.mean(0)
        assert kinds.fit.shares == pytest.approx(shares.tolist())
    assert kinds.evidence == sorted(kinds.evidence)


def test_there_are_no_more_groups_than_different_points():
    points = torch.tensor([[0.0, 1.0], [0.0, 1.0], [5.0, 1.0], [5.0, 1.0], [5.0, 1.0]]).double()
    groups = k_means(points, 4, seed=0)
    assert groups.shape == (5, 2)
    assert groups.sum(0).sort().values.tolist() == [2.0, 3.0]
    assert torch.equal(groups[0], groups[1])
    with pytest.raises(metaprior.NumericalError, match="not finite"):
        k_means(points * torch.inf, 2, seed=0)
