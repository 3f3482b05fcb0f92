import numpy as np
import pytest
import torch

from metaprior import (
    DataError,
    MetaGP,
    Method,
    NotFittedError,
    OptionError,
    Prior,
    Scaler,
    Tasks,
    condition,
    evidence,
    make_prior,
    paired_difference,
    score,
)
from metaprior.inference import IndependentGaussians, InUnits
from metaprior.methods import ContextMean, LastValue, MeanFitOnTarget, NeuralNetwork, RefittedRBF, VarianceBySize
from metaprior.methods.fit_on_target import CHECK_EVERY
from metaprior.methods.network import _Squares
from metaprior.priors import DeepMean, DeepMeans
from metaprior.scoring import evaluate, scores
from metaprior.splits import Doubling, Given
from tests.problems import known_rbf, ragged, shared


def walks(count=80, seed=0, noise=0.5) -> Tasks:
    """Levels of their own with independent noise: the mean of a context predicts them, and its error is known."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(6, 12, count)
    return Tasks.from_pairs(
        [(np.sort(rng.uniform(0, 10, n)), rng.normal(0, 3) + rng.normal(0, noise, n)) for n in sizes]
    )


METHODS = {
    "last value": lambda: LastValue(),
    "context mean": lambda: ContextMean(),
    "neural network": lambda: NeuralNetwork(hidden=(8,), max_epochs=40, progress=False),
    "mean fit on target": lambda: MeanFitOnTarget(known_rbf(), hidden=(8,), max_steps=50),
    "refitted": lambda: RefittedRBF(known_rbf()),
    "learned mean": lambda: MetaGP("deep", "rbf", hidden=(8,), max_epochs=20, progress=False),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_satisfies_the_one_protocol(name):
    method = METHODS[name]()
    assert isinstance(method, Method)
    tasks = walks(60)
    context, target = tasks.context_target(2, seed=1)
    posterior = method.fit(tasks).predict(context, target)
    found = score(posterior, target)
    assert {"mse", "log_likelihood", "joint_log_likelihood", "coverage_90"} <= set(found.values)
    assert all(bool(torch.isfinite(values).all()) for values in found.values.values())
    assert posterior.samples(3, seed=0).shape == (3, len(target.x), 1)
    assert posterior.function.points is posterior.points


# last value and context mean


def slow_last_value(context: Tasks, at: Tasks, fallback: float) -> list[float]:
    found = []
    for given, wanted in zip(context, at, strict=True):
        for x in wanted.x[:, 0]:
            before = [(float(t), k) for k, t in enumerate(given.x[:, 0]) if t <= x]
            first = sorted((float(t), k) for k, t in enumerate(given.x[:, 0]))
            if not first:
                found.append(fallback)
            else:
                # before the first time, the last of the points at the earliest place in order
                found.append(float(given.y[max(before)[1] if before else first[0][1], 0]))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_last_value_against_the_obvious_loop(seed):
    rng = np.random.default_rng(seed)
    tasks = Tasks.from_pairs([(rng.integers(0, 6, n), rng.normal(size=n)) for n in rng.integers(3, 9, 40)])
    context, target = tasks.context_target(where=lambda x: torch.from_numpy(rng.random(len(x)) < 0.4))
    assert bool((context.sizes == 0).any())  # some have no context
    method = LastValue().fit(tasks)
    fallback = float(method.prior_mean_)
    assert method.values(context, target)[:, 0].tolist() == pytest.approx(slow_last_value(context, target, fallback))


def test_context_mean_is_the_mean_of_the_context():
    tasks = walks(40)
    context, target = tasks.context_target(3, seed=0)
    means = [float(task.y.mean()) for task in context for _ in range(len(target[context.ids.index(task.id)].x))]
    assert ContextMean().fit(tasks).values(context, target)[:, 0].tolist() == pytest.approx(means)


@pytest.mark.parametrize("method", [LastValue, ContextMean])
def test_without_any_context_there_is_the_mean_of_the_meta_tasks(method):
    tasks = walks(40)
    fitted = method().fit(tasks)
    at = Tasks.from_inputs([[0.0, 1.0]], ["new"])
    posterior = fitted.predict(Tasks.empty(["new"], 1, 1), at)
    training = tasks.split(0.1, 0)[1]
    assert posterior.mean[:, 0].tolist() == pytest.approx([float(training.y.mean())] * 2)


def test_last_value_needs_one_input_column():
    tasks = ragged(d=2, count=30)
    with pytest.raises(DataError, match="2 input columns have no order"):
        LastValue().fit(tasks)


def test_other_tasks_than_the_context_are_refused():
    tasks = walks(40)
    context, target = tasks.context_target(2, seed=0)
    with pytest.raises(DataError, match="same tasks in the same order"):
        ContextMean().fit(tasks).predict(context, target.select([1, 0, *range(2, 40)]))


def test_a_point_method_that_was_not_fitted_says_so():
    context, target = walks(5).context_target(2, seed=0)
    with pytest.raises(NotFittedError, match="LastValue has learned nothing"):
        LastValue().predict(context, target)


# the variance of point methods


def test_the_variance_is_the_error_on_held_out_tasks_by_context_size():
    noise = 0.5
    fitted = ContextMean(held_out=0.5).fit(walks(4_000, noise=noise))
    for n in (1, 4):  # Var(y − mean of n others) = σ² (1 + 1/n)
        expected = noise**2 * (1 + 1 / n)
        assert float(fitted.variance_.at(torch.tensor([n]))) == pytest.approx(expected, rel=0.1)


def test_intervals_of_a_point_method_cover_what_they_say():
    fitted = ContextMean().fit(walks(2_000, seed=1))
    context, target = walks(500, seed=2).context_target(4, seed=0)
    covered = score(fitted.predict(context, target), target).summary("coverage_90").mean
    assert covered == pytest.approx(0.9, abs=0.02)


def test_errors_ahead_need_contexts_of_their_own():
    """A random walk: from its first half, errors ahead are larger than errors in between."""
    rng = np.random.default_rng(0)
    t = np.arange(12.0)
    tasks = Tasks.from_pairs([(t, rng.normal(size=12).cumsum()) for _ in range(400)])

    def halves(given):
        return {"half": given.context_target(where=lambda x: x[:, 0] < 6)}

    random, ahead = LastValue().fit(tasks), LastValue(contexts=Given(halves)).fit(tasks)
    six = torch.tensor([6])
    assert float(ahead.variance_.at(six)) > 1.5 * float(random.variance_.at(six))
    assert float(ahead.variance_.at(six)) == pytest.approx(3.5, rel=0.3)  # mean of 1 … 6 steps


def test_variances_are_averaged_over_similar_sizes_and_interpolated():
    sizes = torch.tensor([1] * 40 + [3] * 20 + [4] * 20 + [9] * 50)
    errors = sizes.double()[:, None]
    found = VarianceBySize._averaged(sizes, errors)
    assert found.sizes.tolist() == [1.0, 3.5, 9.0]  # 3 and 4 are too few on their own
    assert found.variances[:, 0].tolist() == [1.0, 3.5, 9.0]
    assert found.at(torch.tensor([0, 1, 9, 100]))[:, 0].tolist() == pytest.approx([1.0, 1.0, 9.0, 9.0])
    assert 1.0 < float(found.at(torch.tensor([2]))) < 3.5


def test_few_tasks_share_one_variance():
    found = VarianceBySize._averaged(torch.tensor([1, 2, 3]), torch.tensor([[1.0], [2.0], [6.0]]))
    assert found.at(torch.tensor([0, 7]))[:, 0].tolist() == [3.0, 3.0]


def test_nothing_to_predict_leaves_no_variance():
    tasks = walks(10)
    everything = tasks.context_target(where=lambda x: torch.ones(len(x), dtype=torch.bool))
    with pytest.raises(DataError, match="variance needs some"):
        ContextMean(contexts=Given(lambda _: {"all": everything})).fit(tasks)


def test_random_contexts_go_as_far_as_there_are_points():
    splits = list(Doubling(0)(walks(30)).values())
    assert [int(split.context.sizes[0]) for split in splits] == [0, 1, 2, 4, 8]
    assert all(bool((split.target.sizes > 0).all()) for split in splits)


def test_independent_gaussians_add_up():
    points = Tasks.from_inputs([[0.0, 1.0], [0.0]])
    mean, variance = torch.tensor([[0.0], [1.0], [2.0]]).double(), torch.tensor([[1.0], [4.0], [0.25]]).double()
    answer = IndependentGaussians(points, mean, variance.sqrt())
    y = torch.tensor([0.5, 0.5, 2.5])
    single = answer.log_density(y)[:, 0]
    assert answer.joint_log_density(y).tolist() == pytest.approx([float(single[:2].sum()), float(single[2])])
    drawn = answer.samples(20_000, seed=0)[..., 0]
    assert drawn.var(0).tolist() == pytest.approx([1.0, 4.0, 0.25], rel=0.05)


# the network on its own


@pytest.mark.parametrize("tasks", [ragged(d=2, p=2), shared(d=1, p=2)], ids=["ragged", "shared"])
def test_the_network_s_error_is_that_of_all_points(tasks):
    mean = DeepMean(tasks.d, tasks.p, seed=0, hidden=(5,))
    with torch.no_grad():
        expected = (mean(tasks.x) - tasks.y).square().mean()
        assert float(_Squares.of(tasks).error(mean)) == pytest.approx(float(expected))


def test_the_network_learns_what_tasks_have_in_common_whatever_their_context_and_units():
    x = np.linspace(0, 5, 20)
    rng = np.random.default_rng(0)
    y = np.sin(x) + rng.normal(0, 0.3, (200, 1))  # a curve, and a level for each task
    fitted = NeuralNetwork(hidden=(16,), progress=False).fit(Tasks.on_grid(x, y))
    at = Tasks.from_inputs([x], ["new"])
    few = fitted.predict(Tasks.from_pairs([([1.0], [9.0])], ["new"]), at).mean[:, 0]
    assert few.numpy() == pytest.approx(np.sin(x), abs=0.1)
    assert torch.equal(few, fitted.predict(Tasks.empty(["new"], 1, 1), at).mean[:, 0])
    large = NeuralNetwork(hidden=(16,), progress=False).fit(Tasks.on_grid(1000 * x, 1000 * y))
    at = Tasks.from_inputs([1000 * x], ["new"])
    assert large.predict(Tasks.empty(["new"], 1, 1), at).mean[:, 0].numpy() == pytest.approx(1000 * few.numpy(), abs=20)


# the mean fitted on the target


def test_fitting_together_is_fitting_one_by_one():
    tasks = ragged(count=15, largest=7)
    own = MeanFitOnTarget(known_rbf(), hidden=(6, 5), max_steps=150).fit(tasks)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.5)
    together = own.predict(context, target)
    for i in range(len(tasks)):
        alone = own.predict(context.select([i]), target.select([i]))
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        assert together.mean[rows].numpy() == pytest.approx(alone.mean.numpy(), abs=1e-8)


def test_fitting_on_a_target_is_adam_on_its_evidence():
    """Against torch's own Adam and the evidence's own gradient, one task and output after another."""
    prior = known_rbf(p=2)
    tasks = Tasks.from_pairs([(task.x, torch.cat([task.y, task.y.square()], 1)) for task in ragged(count=3)])
    own = MeanFitOnTarget(prior, hidden=(6,), max_steps=CHECK_EVERY, tolerance=0.0, seed=3).fit(tasks)
    at = Tasks.from_inputs([[0.3, 1.0]] * 3)
    found = own.predict(tasks, at)
    for i, task in enumerate(tasks):
        mean = DeepMean(1, 2, seed=6, hidden=(6,), like=tasks.x)
        single = Prior(mean, prior.kernel, prior.noise, learn=["mean"])
        optimizer = torch.optim.Adam(single.learned_parameters(), lr=1e-2)
        one = Tasks.from_pairs([(task.x, task.y)])
        for _ in range(CHECK_EVERY):
            optimizer.zero_grad()
            (-evidence(single, one).total.sum()).backward()
            optimizer.step()
        expected = condition(single, one).at(Tasks.from_inputs([[0.3, 1.0]]))
        assert found.mean[2 * i : 2 * i + 2].numpy() == pytest.approx(expected.mean.numpy(), abs=1e-6)


def test_it_goes_on_until_the_evidence_stops_improving_and_overfits():
    tasks = walks(200, noise=1.0)
    gp = MetaGP("zero", "rbf", scale=False, progress=False).fit(tasks)
    context, target = walks(100, seed=5, noise=1.0).context_target(4, seed=0)
    own = MeanFitOnTarget(gp.prior_, hidden=(32, 16)).fit(tasks)
    fitted, vanilla = own.predict(context, target), gp.predict(context, target)
    assert float(fitted.evidence.terms[0].median()) > -1e-3  # the training fit is all but perfect …
    assert torch.allclose(fitted.evidence.terms[1], vanilla.evidence.terms[1])  # … and the complexity has not moved
    worse = paired_difference(score(fitted, target).values["mse"], score(vanilla, target).values["mse"])
    assert worse.mean > 3 * worse.stderr


def test_a_target_without_context_keeps_the_start():
    tasks = walks(10)
    own = MeanFitOnTarget(known_rbf(), hidden=(4,)).fit(tasks)
    at = Tasks.from_inputs([[0.0, 2.0]], ["new"])
    found = own.predict(Tasks.empty(["new"], 1, 1), at)
    assert found.mean.numpy() == pytest.approx(own.start_(at.x).detach().numpy())


def test_float32_networks_go_under_a_float64_covariance():
    tasks = walks(30)
    context, target = tasks.context_target(3, seed=0)
    options = {"hidden": (6,), "max_steps": 100}
    single = MeanFitOnTarget(known_rbf(), dtype=torch.float32, **options).fit(tasks).predict(context, target)
    double = MeanFitOnTarget(known_rbf(), **options).fit(tasks).predict(context, target)
    assert single.mean.dtype == torch.float64
    assert single.mean.numpy() == pytest.approx(double.mean.numpy(), abs=1e-2)


def test_one_mean_per_task():
    start = DeepMean(2, 3, seed=0, hidden=(5,), activation="tanh")
    means = DeepMeans(start, 4)
    x = torch.randn(4, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(means(x), start(x))
    with torch.no_grad():
        means.values[0][2] += 1.0
    prior = Prior(means, known_rbf().kernel, 0.1, learn=())
    assert prior.differs_by_task
    assert torch.equal(prior.of_tasks(torch.tensor([2, 0])).mean(x[[2, 0]]), means(x)[[2, 0]])
    assert not torch.allclose(means(x)[2], start(x)[2])


def test_a_method_on_scaled_tasks_in_the_user_s_units():
    tasks = walks(60)
    scaler = Scaler.fit(tasks)
    context, target = tasks.context_target(3, seed=0)
    prior = known_rbf()
    scaled = RefittedRBF(prior).predict(scaler.scale(context), scaler.scale(target))
    found = InUnits(RefittedRBF(prior), scaler).fit(tasks).predict(context, target)
    assert torch.allclose(found.mean, scaler.unscale_mean(scaled.mean))
    assert torch.allclose(
        found.log_density(target.y), scaled.log_density(scaler.scale_y(target.y)) - scaler.y_scale.log()
    )


# what many tasks on one grid share


def on_a_grid(m=30, n=9, seed=0) -> Tasks:
    rng = np.random.default_rng(seed)
    return Tasks.on_grid(rng.normal(size=(n, 2)), rng.normal(size=(m, n)))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_joint_density_on_one_grid_is_a_difference_of_evidences(size):
    tasks = on_a_grid()
    prior = make_prior("deep", "deep", d=2, hidden=(5,), seed=0)
    context, target = tasks.context_target(size, seed=0)
    posterior = condition(prior, context).at(target)
    assert posterior._on_one_grid(target.y) is not None
    found = posterior.joint_log_density(target.y)
    # a task on its own shares its grid with nobody, so it is computed from the posterior covariance
    for i in (0, 7, 29):
        alone = condition(prior, context.select([i])).at(target.select([i]))
        assert alone._on_one_grid(target.select([i]).y) is None
        assert float(found[i]) == pytest.approx(float(alone.joint_log_density(target[i].y)[0]), abs=1e-8)


def test_other_kernels_for_each_task_cannot_share_an_evidence():
    context, target = shared(count=12).context_target(3, seed=0)
    posterior = RefittedRBF(known_rbf()).predict(context, target)
    assert posterior._on_one_grid(target.y) is None


@pytest.mark.parametrize("entries", [1, 300, 10**9])
def test_scores_do_not_depend_on_the_slices(monkeypatch, entries):
    monkeypatch.setattr(scores, "SLICE", entries)
    tasks = walks(50)
    gp = MetaGP("constant", "rbf", progress=False).fit(tasks)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 9)  # some tasks have nothing to predict
    assert bool((target.sizes == 0).any())
    sliced, whole = evaluate(gp, context, target), score(gp.predict(context, target), target)
    assert sliced.ids == whole.ids
    for metric, values in whole.values.items():
        assert sliced.values[metric].numpy() == pytest.approx(values.numpy(), rel=1e-9), metric


def test_a_bare_function_is_no_way_to_split():
    for make in (LastValue, ContextMean):
        with pytest.raises(OptionError, match=r"Given\(lambda tasks"):
            make(contexts=lambda tasks: [tasks.context_target(2, 0)])
