"""Priors that learn together say, and learn, what each would alone."""

import dataclasses

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel

from metaprior import FPCA, HyperPosterior, LearnedPrior, Tasks, Warped
from metaprior.inference import StackedTasks, stacked_evidence, summed_evidence
from metaprior.learning import learn_together, meta_train_many
from metaprior.learning.spec import TrainingSpec
from metaprior.methods import learned_warps
from metaprior.priors import HyperPrior, make_prior, stacked
from metaprior.tasks import batches

KINDS = {
    "plain": ("constant", "matern", {}),
    "last value": ("deep", "exponential", {"hidden": (7,)}),
    "smooth": ("zero", "rbf", {}),
    "deep": ("deep", "deep", {"hidden": (6, 5), "features": 3}),
    "student": ("deep", "deep", {"hidden": (6, 5), "degrees": 5.0}),
    "eigenfunctions": ("deep", "eigenfunctions + deep", {"hidden": (6, 5), "functions": 4}),
    "known noise": ("constant", "rbf", {"noise": 0.2}),
    "float32": ("deep", "deep", {"hidden": (6, 5), "network_dtype": torch.float32}),
}


def irregular(count: int, seed: int, d: int = 1, p: int = 1) -> Tasks:
    """Tasks of 1 to 9 points at inputs of their own; of some, two rows are at one point."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        x = rng.normal(size=(1 + (k + seed) % 9, d))
        x[-1] = x[0]
        pairs.append((x, np.sin(x.sum(1))[:, None] + rng.normal(size=(len(x), p))))
    return Tasks.from_pairs(pairs)


def gridded(count: int, seed: int, p: int = 1, n: int = 6) -> Tasks:
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, n)
    return Tasks.on_grid(
        x, np.sin(3 * x)[None, :, None] + rng.normal(size=(count, 1, p)) + 0.1 * rng.normal(size=(count, n, p))
    )


def mixed(count: int, seed: int, p: int = 1) -> Tasks:
    """Some tasks share their inputs, others have their own."""
    shared, rest = gridded(count, seed, p), irregular(count, seed, 1, p)
    pairs = [(task.x.numpy(), task.y.numpy()) for tasks in (shared, rest) for task in tasks]
    return Tasks.from_pairs(pairs)


SETS = {
    "irregular": [irregular(5, 0), irregular(8, 1), irregular(3, 2)],
    "one grid": [gridded(5, 0), gridded(30, 1), gridded(2, 2)],
    "both": [mixed(6, 0), irregular(2, 1), gridded(12, 2, n=4)],
    "two inputs": [irregular(5, 0, d=2), irregular(8, 1, d=2), irregular(3, 2, d=2)],
    "two targets": [mixed(6, 0, p=2), irregular(8, 1, p=2), gridded(20, 2, p=2)],
}


@pytest.mark.parametrize(("per_point", "a_batch"), [(False, 0), (True, 10_000)])
@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_has_the_evidence_and_gradient_of_each_prior(kind, sets, per_point, a_batch, monkeypatch):
    """The oracle is GPyTorch's own modules, one prior after the other, whichever tasks are laid out together."""
    monkeypatch.setattr("metaprior.inference.stack.A_BATCH", a_batch)
    mean, kernel, options = KINDS[kind]
    tasks = SETS[sets]
    d, p = tasks[0].d, tasks[0].p
    priors = [make_prior(mean, kernel, d=d, p=p, seed=k, **options) for k in range(3)]
    together = stacked(priors)
    laid_out = StackedTasks.of(tasks, whole="degrees" in options, per_point=per_point)
    found, gradient, *_ = stacked_evidence(together, together.start, laid_out, sloped=True)
    np.testing.assert_allclose(stacked_evidence(together, together.start, laid_out).total, found)
    close = 1e-4 if kind == "float32" else 1e-8
    for k, (prior, own) in enumerate(zip(priors, tasks, strict=True)):
        alone = summed_evidence(prior, batches(own, prior.like), own.ids, per_point=per_point).total
        parameters = list(prior.parameters())
        expected = torch.autograd.grad(alone, parameters, allow_unused=True)
        flat = torch.cat(
            [
                torch.zeros_like(own).flatten() if g is None else g.flatten().double()
                for own, g in zip(parameters, expected, strict=True)
            ]
        )
        assert found[k] == pytest.approx(float(alone.detach()), rel=close)
        np.testing.assert_allclose(gradient[k], flat, rtol=close, atol=close * float(flat.abs().max() + 1))


def test_where_the_mean_alone_is_learned_covariances_are_found_once():
    tasks = SETS["both"]
    priors = [make_prior("deep", "rbf", d=1, seed=k, hidden=(4,), learn=("mean",)) for k in range(3)]
    together, laid_out, known = stacked(priors), StackedTasks.of(tasks), []
    assert together.mean_alone
    for values in (together.start, together.start + 0.2 * together.moves):
        anew = stacked_evidence(together, values, laid_out, sloped=True)
        again = stacked_evidence(together, values, laid_out, sloped=True, known=known)
        assert len(known) == len(laid_out.batches)
        np.testing.assert_allclose(again.total, anew.total)
        np.testing.assert_allclose(again.slopes, anew.slopes)
        assert anew.slopes.any()


@pytest.mark.parametrize("a_batch", [0, 10_000])
def test_slopes_along_the_targets_are_those_of_finite_differences(a_batch, monkeypatch):
    monkeypatch.setattr("metaprior.inference.stack.A_BATCH", a_batch)
    tasks = SETS["both"]
    together = stacked([make_prior("constant", "matern", d=1, seed=0, degrees=6.0) for _ in tasks])
    laid_out, y = StackedTasks.of(tasks, whole=True), torch.cat([own.y for own in tasks]).numpy()
    found = stacked_evidence(together, together.start, laid_out, y, sloped=True)
    np.testing.assert_allclose(found.total, stacked_evidence(together, together.start, laid_out).total)
    for row in (0, 7, len(y) - 1):
        step = np.zeros_like(y)
        step[row] = 1e-5
        up, down = (stacked_evidence(together, together.start, laid_out, y + s).total.sum() for s in (step, -step))
        assert found.of_targets[row, 0] == pytest.approx((up - down) / 2e-5, rel=1e-5)


def test_parts_of_a_stack_are_what_they_were():
    tasks = SETS["both"]
    priors = [make_prior("deep", "deep", d=1, seed=k, hidden=(4,)) for k in range(3)]
    together, laid_out = stacked(priors), StackedTasks.of(tasks)
    whole = stacked_evidence(together, together.start, laid_out).total
    some = stacked_evidence(together.select([2, 0]), together.start[[2, 0]], laid_out.select([2, 0])).total
    np.testing.assert_allclose(some, whole[[2, 0]])


def test_what_has_no_formula_is_not_stacked():
    ours = make_prior("constant", "rbf", d=1, seed=0)
    assert stacked([ours, make_prior("constant", "matern", d=1, seed=0)]) is None
    for kernel in (
        ScaleKernel(PeriodicKernel()),
        RBFKernel(),
        ScaleKernel(RBFKernel(ard_num_dims=2)),
        ScaleKernel(RBFKernel(active_dims=[0])),
        ScaleKernel(RBFKernel(lengthscale_constraint=GreaterThan(0.1))),
    ):
        assert stacked([make_prior("constant", kernel, d=2, seed=0)]) is None
    assert stacked([make_prior("linear", "rbf", d=1, seed=0)]) is None
    assert stacked([make_prior("constant", "rbf", d=1, seed=0, noise="deep")]) is None


def test_a_covariance_that_cannot_be_factored_spoils_its_own_prior_only():
    priors = [make_prior("constant", "rbf", d=1, seed=0) for _ in range(2)]
    together, tasks = stacked(priors), StackedTasks.of([irregular(4, 0), irregular(4, 1)])
    values = together.start.copy()
    values[0, together.where["kernel.raw_outputscale"]] = np.nan
    found, slopes, *_ = stacked_evidence(together, values, tasks, sloped=True)
    assert np.isnan(found[0])
    assert np.isfinite(found[1])
    assert np.isfinite(slopes[1]).all()


def test_the_law_of_a_stack_is_that_of_each_prior():
    tasks = [irregular(5, k) for k in range(2)]
    for learn in (("mean", "kernel", "noise"), ("mean",), ("kernel", "noise")):
        options = {"hidden": (5,), "learn": learn}
        priors = [make_prior("deep", "rbf", d=1, seed=k, like=own.x + k, **options) for k, own in enumerate(tasks)]
        laws = [HyperPrior(prior, width=0.5 + k, anchored=bool(k)) for k, prior in enumerate(priors)]
        together = stacked(priors)
        moved = together.start + 0.3 * together.moves
        found, slopes = together.law(laws)(moved)
        together.write(moved)
        for k, (prior, law) in enumerate(zip(priors, laws, strict=True)):
            density = law.log_density()
            assert found[k] == pytest.approx(float(density.detach()))
            expected = torch.autograd.grad(density, prior.learned_parameters())
            np.testing.assert_allclose(
                slopes[k, together.moves], torch.cat([g.flatten() for g in expected]), atol=1e-10
            )
            assert not slopes[k, ~together.moves].any()


class Bowls:
    """Quadratic bowls of different shapes, one of which cannot be evaluated beyond a wall."""

    entries = 0

    def __init__(self, centres, curvatures):
        self.centres, self.curvatures = centres, curvatures

    def loss(self, values):
        slopes = self.curvatures * (values - self.centres)
        found = 0.5 * (slopes * (values - self.centres)).sum(1)
        return np.where(values[:, 0] > 50.0, np.nan, found), slopes

    def judged(self, values, loss):
        return -loss

    def select(self, which):
        return Bowls(self.centres[which], self.curvatures[which])


HOW = {"max_epochs": 400, "check_every": 5, "patience": 3, "tolerance": 1e-14}


def bowls(count, size, seed=0):
    rng = np.random.default_rng(seed)
    return Bowls(rng.normal(size=(count, size)), 10 ** rng.uniform(0, 4, size=(count, size)))


def test_every_problem_finds_its_own_optimum():
    problems = bowls(7, 5)
    ended = learn_together(problems, np.full((7, 5), 3.0), np.ones(5, bool), **HOW)
    for k, one in enumerate(ended):
        np.testing.assert_allclose(one.values, problems.centres[k], atol=1e-5)
        assert one.best.judged == max(look.judged for look in one.looks)
        assert one.stopped.startswith("converged")


def test_what_a_problem_does_depends_on_itself_alone():
    problems, start = bowls(5, 4), np.full((5, 4), 3.0)
    moves = np.array([True, True, False, True])
    together = learn_together(problems, start, moves, **HOW)
    for k, one in enumerate(together):
        (alone,) = learn_together(problems.select([k]), start[k : k + 1], moves, **HOW)
        np.testing.assert_allclose(one.values, alone.values, atol=1e-7)
        assert float(one.values[2]) == 3.0  # it was not to move


def test_a_step_into_nothing_is_taken_back():
    problems = bowls(2, 3)
    problems.curvatures[0] = 1e-6  # so flat that the first steps go far
    problems.centres[0, 0] = 49.0
    (one, other) = learn_together(problems, np.zeros((2, 3)), np.ones(3, bool), **HOW)
    assert one.best.judged > -1e-6
    np.testing.assert_allclose(other.values, problems.centres[1], atol=1e-5)


def test_learning_together_ends_where_learning_alone_does():
    """Strong-Wolfe L-BFGS on GPyTorch's modules, and ours on a stack, find the same optimum of a smooth evidence."""
    tasks = [gridded(12, k) for k in range(3)]
    options = {"held_out": None, "max_epochs": 300, "check_every": 20, "progress": False}
    together = [LearnedPrior("constant", "matern", **options) for _ in tasks]
    LearnedPrior.fit_many(together, tasks)
    for one, own in zip(together, tasks, strict=True):
        alone = LearnedPrior("constant", "matern", **options).fit(own)
        ours, theirs = (gp.training_.best.held_out_evidence for gp in (one, alone))
        assert ours == pytest.approx(theirs, abs=1e-5)
        context, target = gridded(3, 9).context_target(2, 0)
        means = [gp.predict(context, target).mean for gp in (one, alone)]
        torch.testing.assert_close(*means, atol=1e-2, rtol=1e-2)
        assert one.training_.epochs <= 300


def test_priors_that_differ_are_learned_all_the_same():
    """Some hold tasks out and some do not, and one has a kernel that has no formula here."""
    tasks = [gridded(8, 0), gridded(3, 1), gridded(8, 2)]
    options = {"max_epochs": 10, "progress": False}
    priors = [
        LearnedPrior("constant", "matern", held_out=0.3, **options),
        LearnedPrior("constant", "matern", held_out=None, **options),
        LearnedPrior("constant", ScaleKernel(PeriodicKernel()), held_out=None, **options),
    ]
    LearnedPrior.fit_many(priors, tasks)
    for gp in priors:
        assert gp.training_.best.held_out_evidence > gp.training_.checks[0].held_out_evidence
    assert len(priors[0].training_.held_out) > 0
    assert priors[1].training_.held_out == ()


def test_members_of_several_hyper_posteriors_are_those_of_each():
    tasks = [gridded(5, 0), irregular(6, 1)]
    options = {"members": 2, "hidden": (4,), "max_epochs": 20}
    together = [HyperPosterior(seed=k, **options) for k in range(2)]
    HyperPosterior.fit_many(together, tasks)
    for k, (one, own) in enumerate(zip(together, tasks, strict=True)):
        alone = HyperPosterior(seed=k, **options).fit(own)
        context, target = (
            own.context_target(1, 0) if int(own.sizes.min()) > 1 else own.select(own.sizes > 1).context_target(1, 0)
        )
        ours, theirs = (gp.predict(context, target).mean for gp in (one, alone))
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("warp", ["box-cox", "yeo-johnson"])
def test_warps_learned_together_are_those_learned_alone(warp):
    skewed = [dataclasses.replace(own, y=own.y.exp()) for own in (gridded(20, 0), mixed(8, 1), irregular(15, 2))]
    together = learned_warps(warp, skewed, [0, 0, 0])
    for one, own in zip(together, skewed, strict=True):
        (alone,) = learned_warps(warp, [own], [0])
        torch.testing.assert_close(one.power, alone.power, atol=1e-3, rtol=0)
        assert float(one.power) < 0.9  # it was bent: the values are exponentials


def test_warped_methods_of_one_kind_learn_together():
    tasks = [gridded(10, 0), gridded(12, 1)]
    together = [Warped(FPCA(size=4, rank=1)) for _ in tasks]
    Warped.fit_many(together, tasks)
    for one, own in zip(together, tasks, strict=True):
        alone = Warped(FPCA(size=4, rank=1)).fit(own)
        context, target = own.context_target(2, 0)
        torch.testing.assert_close(
            one.predict(context, target).mean, alone.predict(context, target).mean, atol=1e-3, rtol=1e-3
        )


def test_a_way_of_learning_of_its_own_goes_one_by_one():
    tasks = [gridded(6, k) for k in range(2)]
    priors = [make_prior("constant", "rbf", d=1, seed=0) for _ in tasks]
    how = [TrainingSpec(optimizer="adam", max_epochs=5, held_out=None)] * 2
    found = meta_train_many(priors, tasks, how, [0, 0])
    assert [one.epochs for one in found] == [5, 5]
