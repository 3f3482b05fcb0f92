"""Hyper-prior, hyper-posterior and the predictive objective, against what they are defined as."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from gpytorch.kernels import LinearKernel

from metaprior import (
    DataError,
    LearnedPrior,
    MetaGP,
    NotFittedError,
    NumericalError,
    OptionError,
    Tasks,
    UnknownNameError,
    condition,
    evidence,
)
from metaprior.files import load_method
from metaprior.learning import evidence_loss, meta_train
from metaprior.learning.objective import SPLITS, predictive_loss, with_hyper_prior
from metaprior.methods import HyperPosterior
from metaprior.methods.hyper_posterior import _perturbed
from metaprior.paper import Options, run_experiment
from metaprior.paper.experiments import few
from metaprior.paper.experiments.theory import overfitting
from metaprior.priors import HyperPrior, make_prior
from metaprior.priors.hyperprior import SPREAD
from metaprior.report import Results
from metaprior.splits import drawn_contexts
from metaprior.tasks import batches
from tests.problems import ragged

SMALL = {"hidden": (6,), "max_epochs": 20}


def waves(count, seed=0, n=12):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 6, n)
    return Tasks.from_pairs([(x, np.sin(x) + rng.normal(0, 0.5) + rng.normal(0, 0.05, n)) for _ in range(count)])


def deep(seed=3, like=None, **options):
    return make_prior("deep", "rbf", d=1, seed=seed, hidden=(6,), like=like, **options)


@torch.no_grad()
def test_the_hyper_prior_is_the_law_that_networks_start_from():
    prior = deep(gain=2.0)
    hyper = HyperPrior(prior, width=0.5)
    names = {id(parameter): name for name, parameter in prior.named_parameters()}
    expected = 0.0
    for parameter in prior.learned_parameters():
        name = names[id(parameter)]
        if "network" in name:  # gain 2 before a sigmoid with one input, 1 at the end with six
            expected += float((parameter / (0.5 * (2.0 if "layers.0" in name else 1 / math.sqrt(6)))).square().sum())
    assert float(hyper.log_density()) == pytest.approx(-expected / 2)
    with torch.no_grad():
        prior.noise.raw += 2.0  # not of a network: around its start
    assert float(hyper.log_density()) == pytest.approx(-expected / 2 - 0.5 * (2.0 / (0.5 * SPREAD)) ** 2)


YEARS = torch.arange(1950.0, 2011.0).double()[:, None]


def test_drawn_networks_have_the_spread_that_they_say():
    draws = [deep(seed=k, like=YEARS).mean.network.standardised() for k in range(400)]
    for place in range(4):
        values = torch.stack([network[place].value.detach() for network in draws])
        assert float(values.std()) == pytest.approx(draws[0][place].spread, rel=0.1)
        assert abs(float(values.mean())) < 0.1 * draws[0][place].spread


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["rbf", "deep"])
def test_where_the_inputs_lie_does_not_matter_to_the_hyper_prior(kernel):
    options = {"d": 2, "hidden": (32, 32), "noise": "deep", "seed": 1}
    like = torch.cat([YEARS, 1e-3 * YEARS.square()], 1)
    years, plain = (make_prior("deep", kernel, like=where, **options) for where in (like, None))
    for anchored in (False, True):
        moved, expected = (HyperPrior(prior, anchored=anchored) for prior in (years, plain))
        assert float(moved.log_density()) == pytest.approx(float(expected.log_density()), rel=1e-9)
        parts = zip(moved.centres, expected.centres, strict=True)
        assert all(torch.allclose(one, other, atol=1e-9) for one, other in parts)
        for prior in (years, plain):  # the same change of the network's function, seen from either inputs
            prior.mean.network.layers[2].weight += 0.3
            prior.mean.network.layers[0].bias += 0.7
        assert float(moved.log_density()) == pytest.approx(float(expected.log_density()), rel=1e-9)


@pytest.mark.parametrize("anchored", [False, True])
def test_the_gradient_of_the_hyper_prior_by_finite_differences(anchored):
    prior = deep(like=YEARS)
    hyper = HyperPrior(prior, width=0.8, anchored=anchored)
    with torch.no_grad():
        for parameter in prior.learned_parameters():
            parameter += 0.01
    hyper.log_density().backward()
    for name, parameter in prior.named_parameters():
        flat, step = parameter.data.view(-1), 1e-6
        kept, values = float(flat[0]), []
        for sign in (1, -1):
            flat[0] = kept + sign * step
            values.append(float(hyper.log_density().detach()))
        flat[0] = kept
        assert float(parameter.grad.view(-1)[0]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5), name


@torch.no_grad()
def test_what_is_not_learned_does_not_count():
    prior = deep(like=YEARS, learn=("kernel", "noise"))
    assert float(HyperPrior(prior).log_density()) == 0.0
    hyper = HyperPrior(prior)
    prior.mean.network.layers[0].weight += 1.0
    assert float(hyper.log_density()) == 0.0


@torch.no_grad()
def test_anchored_networks_lie_around_their_own_start():
    prior = deep()
    assert float(HyperPrior(prior, anchored=True).log_density()) == 0.0
    assert float(HyperPrior(prior).log_density()) < 0.0


def test_the_gradient_of_the_map_objective_by_finite_differences():
    prior, tasks = deep(), waves(4)
    laid_out = batches(tasks)
    loss = with_hyper_prior(evidence_loss(prior, "task"), HyperPrior(prior, width=0.3), len(tasks))
    loss(laid_out, tasks.ids).backward()
    weight = prior.mean.network.layers[0].weight
    for i in range(3):
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight[i, 0] += step
                values.append(float(loss(laid_out, tasks.ids)))
                weight[i, 0] -= step
        assert float(weight.grad[i, 0]) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


@torch.no_grad()
def test_each_task_bears_its_share_of_the_hyper_prior():
    prior, tasks = deep(), ragged(d=1, count=6)
    loss = with_hyper_prior(evidence_loss(prior, "task"), HyperPrior(prior), len(tasks))
    parts = [tasks.select([i]) for i in range(6)]
    total = sum(float(loss(batches(part), part.ids)) for part in parts)
    assert total == pytest.approx(float(loss(batches(tasks), tasks.ids)))


def test_a_narrow_hyper_prior_holds_the_mean_to_a_constant_and_a_wide_one_does_nothing():
    tasks = waves(5)
    options = {"held_out": None, "progress": False, "hidden": (16,), "max_epochs": 60}
    plain = LearnedPrior("deep", "rbf", **options).fit(tasks)
    wide = LearnedPrior("deep", "rbf", hyper_prior=1e6, **options).fit(tasks)
    narrow = LearnedPrior("deep", "rbf", hyper_prior=1e-3, **options).fit(tasks)
    spread = {}
    for name, gp in (("plain", plain), ("wide", wide), ("narrow", narrow)):
        with torch.no_grad():
            spread[name] = float(gp.prior_.at(torch.linspace(-2, 2, 20).double()[:, None]).mean.std())
    assert spread["narrow"] < 1e-3
    assert spread["wide"] == pytest.approx(spread["plain"], rel=1e-3)
    assert spread["plain"] > 0.1


def test_without_held_out_tasks_learning_is_judged_by_what_it_maximises():
    prior, tasks = deep(), waves(4)
    hyper = HyperPrior(prior, width=0.2)
    training = meta_train(prior, tasks, seed=0, held_out=None, hyper_prior=hyper, max_epochs=40, progress=False)
    with torch.no_grad():
        there = float(evidence(prior, tasks).total.sum() + hyper.log_density()) / tasks.y.numel()
    assert training.best.held_out_evidence == pytest.approx(there)


@torch.no_grad()
def test_the_predictive_objective_is_the_density_of_targets_given_contexts():
    prior, tasks = deep(), ragged(d=1, count=7)
    contexts = drawn_contexts(tasks, SPLITS, seed=5)
    loss = float(predictive_loss(prior, tasks, seed=5)(batches(tasks), tasks.ids))
    total = 0.0
    for k in range(len(contexts)):
        known = contexts[k]
        task = tasks[[f"{name}" for name in tasks.ids].index(str(known.id).rpartition(", context ")[0])]
        rest = [i for i in range(len(task.x)) if not bool((task.x[i] == known.x).all(1).any())]
        if not rest:  # a task of one point says nothing
            assert len(task.x) == 1
            continue
        posterior = condition(prior, Tasks.from_pairs([(known.x, known.y)], ["one"])).at(
            Tasks.from_pairs([(task.x[rest], task.y[rest])], ["one"])
        )
        total += float(posterior.joint_log_density(task.y[rest])) / SPLITS
    assert int(tasks.sizes.min()) == 1
    assert len(contexts) == SPLITS * len(tasks)
    assert loss == pytest.approx(-total, rel=1e-8)


def test_the_predictive_objective_learns_and_says_where_it_does_not_go():
    tasks = waves(12)
    gp = LearnedPrior("deep", "rbf", objective="predictive", progress=False, **SMALL).fit(tasks)
    assert gp.training_.best.held_out_evidence > gp.training_.checks[0].held_out_evidence
    for wrong in ({"optimizer": "algorithm1"}, {"optimizer": "adam", "batch_size": 2}, {"weighting": "point"}):
        with pytest.raises(OptionError, match="all tasks at once"):
            LearnedPrior("deep", "rbf", objective="predictive", progress=False, **SMALL, **wrong).fit(tasks)
    with pytest.raises(UnknownNameError, match="objective"):
        LearnedPrior("deep", "rbf", objective="guess", progress=False).fit(tasks)
    single = Tasks.from_pairs([([float(k)], [1.0]) for k in range(5)])
    with pytest.raises(DataError, match="two points"):
        LearnedPrior("deep", "rbf", objective="predictive", progress=False).fit(single)


@pytest.fixture(scope="module")
def ensemble():
    return HyperPosterior(members=3, seed=1, **SMALL).fit(waves(5))


def test_the_predictive_of_a_hyper_posterior_is_the_mixture_over_its_members(ensemble):
    context, target = waves(4, seed=9).context_target(3, 0)
    posterior = ensemble.predict(context, target)
    each = [member.predict(context, target) for member in ensemble.members_]
    weights = torch.softmax(torch.stack([one.evidence.total for one in each], 1), 1)
    rows = weights[target.task_of_row]
    mean = sum(rows[:, k, None] * one.mean for k, one in enumerate(each))
    density = torch.stack([rows[:, k, None].log() + one.log_density(target.y) for k, one in enumerate(each)])
    torch.testing.assert_close(posterior.mean, mean)
    torch.testing.assert_close(posterior.log_density(target.y), density.logsumexp(0))
    assert float(posterior.sd.min()) > 0
    means = torch.stack([one.mean for one in each])
    assert float(means.std(0).max()) > 1e-3  # the members differ


def test_one_member_is_the_prior_itself():
    one = HyperPosterior(members=1, **SMALL).fit(waves(4))
    context, target = waves(3, seed=9).context_target(2, 0)
    ours, alone = one.predict(context, target), one.members_[0].predict(context, target)
    torch.testing.assert_close(ours.mean, alone.mean)
    torch.testing.assert_close(ours.quantiles([0.1, 0.9]), alone.quantiles([0.1, 0.9]))


def test_perturbed_tasks_differ_by_draws_of_the_covariance():
    tasks = waves(300, n=4)
    gp = LearnedPrior("zero", "rbf", progress=False, max_epochs=20).fit(tasks)
    scaled = gp.scaler_.scale(tasks)
    added = (_perturbed(gp.prior_, scaled, seed=0).y - scaled.y).view(300, 4)
    blank = Tasks.empty(["one"], 1, 1)
    expected = (
        gp.predict(blank, Tasks.from_inputs([tasks[0].x], ["one"])).covariances()[0][0] / gp.scaler_.y_scale.square()
    )
    assert float((torch.cov(added.T) - expected).abs().max()) < 0.2 * float(expected.max())


def test_a_hyper_posterior_makes_the_trip_and_refuses_what_it_cannot_do(ensemble, tmp_path):
    context, target = waves(4, seed=9).context_target(3, 0)
    ensemble.save(tmp_path / "few.metaprior")
    again = load_method(tmp_path / "few.metaprior")
    torch.testing.assert_close(again.predict(context, target).mean, ensemble.predict(context, target).mean)
    assert list(again.options["hidden"]) == [6]
    for wrong in ({"members": 0}, {"members": 1.5}, {"learn": ("mean",)}, {"held_out": 0.5}, {"hiden": (6,)}):
        with pytest.raises(OptionError, match="members"):
            HyperPosterior(**wrong)
    with pytest.raises(NotFittedError):
        HyperPosterior().state()
    with pytest.raises(NotFittedError):
        HyperPosterior().predict(context, target)
    with pytest.raises(OptionError, match="width"):
        HyperPosterior(hyper_prior=0.0, members=1, **SMALL).fit(waves(3))


def test_the_experiment_on_few_tasks_runs():
    options = Options(quick=True, progress=False, methods=("vanilla", "map", "fpca"))
    found = run_experiment("few", options)
    assert {row["method"] for row in found.rows} == {"vanilla", "map", "fpca"}
    assert {row["setting"] for row in found.rows} == {"m = 2", "m = 5", "ñ = 1", "ñ = 5", "ñ = 20"}
    assert set(few.METHODS) > {"auto", "hyper-posterior"}


def test_standard_errors_of_few_tasks_hold_the_draw_of_them():
    """Each draw has meta-tasks and new functions of its own: what its figures differ by is what the error says."""
    found = run_experiment("few", Options(quick=True, progress=False, methods=("vanilla",)))
    table = pa.concat_tables(found.tasks).to_pandas()
    of_draws = table[(table.setting == "m = 5") & (table.metric == "mse")]
    row = found.value("vanilla", "m = 5", "mse")
    assert of_draws.task.tolist() == ["draw 1", "draw 2"]
    assert row["mean"] == pytest.approx(of_draws.value.mean())
    assert row["stderr"] == pytest.approx(of_draws.value.std() / math.sqrt(2))
    first, second = (few.one_draw("vanilla", 2, draw, 0).scores[few.CONTEXT].values["mse"] for draw in (0, 1))
    assert [float(one.mean()) for one in (first, second)] == pytest.approx(
        table[(table.setting == "m = 2") & (table.metric == "mse")].value.tolist()
    )
    assert few.DRAWS >= 10


def test_draws_share_neither_meta_tasks_nor_new_functions(monkeypatch):
    drawn = []
    monkeypatch.setattr(few, "draw_sinusoids", lambda count, seed: drawn.append((count, seed)) or waves(count))
    for draw in range(3):
        few.one_draw("fpca", 4, draw, seed=0)
    assert [count for count, _ in drawn] == [few.FUNCTIONS, 4] * 3
    assert len({seed for _, seed in drawn}) == 6


def test_standard_errors_by_the_number_of_meta_tasks_hold_their_draw():
    found = Results("theory", {})
    overfitting._vary_meta_tasks(found, [2, 3], seed=0, options=Options(quick=True, progress=False))
    assert {row["setting"] for row in found.rows} == {"m = 2", "m = 3"}
    assert {row["tasks"] for row in found.rows} == {2}
    names = pa.concat_tables(found.tasks)["task"].unique().to_pylist()
    assert names == ["draw 1", "draw 2"]
    assert overfitting.DRAWS >= 10


def test_another_of_its_kind_learns_by_the_same():
    gp = MetaGP("deep", "rbf", hyper_prior=0.7, objective="predictive", progress=False, **SMALL).fit(waves(6))
    assert gp.like_new().options["hyper_prior"] == 0.7
    assert gp.like_new().options["objective"] == "predictive"


def test_members_differ_by_as_much_as_so_few_tasks_leave_open():
    """Five levels of deviation ½: what they have in common is known to ½ / √5, and the members' means say so.

    Without a draw of the tasks' own covariance they would all learn the same mean where there are points.
    """
    found = HyperPosterior(members=12, seed=0, hidden=(16,), max_epochs=40).fit(waves(5))
    blank = Tasks.empty(["new"], 1, 1)
    means = torch.stack([member.condition(blank).at(np.linspace(0, 6, 12)).mean for member in found.members_])
    level = float(means.mean(1).std())
    assert 0.3 < level / (0.5 / math.sqrt(5)) < 2.5  # the hyper-prior holds them somewhat closer


def test_an_error_of_a_perturbed_task_names_that_task():
    """Batches are of tasks of similar size, so their places are not those of the tasks."""
    x = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    pairs = [(x[:2], x[:2]), (x, x), (1e200 * (1 + x[:2]), x[:2]), (x[:3], x[:3])]
    tasks = Tasks.from_pairs(pairs, ["short", "long", "far out", "other"])
    prior = make_prior("constant", LinearKernel(), d=1, seed=0).double()
    with pytest.raises(NumericalError, match="task 'far out'"):
        _perturbed(prior, tasks, seed=0)
