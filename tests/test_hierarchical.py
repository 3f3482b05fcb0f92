"""The hierarchy of Gaussian processes, against the one dense Gaussian that it is."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from metaprior import DataError, NumericalError, Tasks
from metaprior.inference import MixtureConditional
from metaprior.methods import HierarchicalGP, Warped
from metaprior.methods.hierarchical import BETWEEN, CENTRES, FEW, FLOOR, LEVEL, _Hierarchies, _Said
from metaprior.model import MetaGP


def curves(count, seed=0, *, p=1, d=1, points=(4, 9)):
    """Tasks around a sine, each with a level of its own."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        n = int(rng.integers(*points))
        x = rng.uniform(-2, 2, (n, d))
        level = rng.normal(0, 0.5, p)
        y = np.sin(2 * x.sum(1))[:, None] * np.arange(1, p + 1) + level + 0.1 * rng.normal(size=(n, p))
        pairs.append((x, y))
    return Tasks.from_pairs(pairs)


def matern(nu, distance):
    t = math.sqrt(2 * nu) * distance
    return (1 + t + (t**2 / 3 if nu == 2.5 else 0)) * np.exp(-t)


def dense(tasks, logs):
    """The covariance of all values, level, shared curve, own level and own curve written down one by one."""
    said = _Said.of(logs, tasks.d)
    x, owner = tasks.x.numpy(), tasks.task_of_row.numpy()

    def apart(lengths):
        return np.sqrt((((x[:, None] - x[None]) / lengths.numpy()) ** 2).sum(-1))

    shared = LEVEL**2 + float(said.curve) ** 2 * matern(2.5, apart(said.curve_length))
    own = float(said.own_level) ** 2 + float(said.own) ** 2 * matern(1.5, apart(said.own_length))
    noise = (float(said.noise) ** 2 + FLOOR) * np.eye(len(x))
    return shared + own * (owner[:, None] == owner[None]) + noise


def log_density(y, K):
    sign, logdet = np.linalg.slogdet(K)
    assert sign > 0
    return sum(-0.5 * (r @ np.linalg.solve(K, r) + logdet + len(r) * math.log(2 * math.pi)) for r in y.T)


@pytest.mark.parametrize(("p", "d"), [(1, 1), (2, 1), (1, 2)])
def test_the_evidence_is_that_of_one_dense_gaussian(p, d):
    """With a centre at every input nothing is approximated but for the jitter; two sets of tasks are two problems."""
    sets = [curves(3, 0, p=p, d=d), curves(4, 1, p=p, d=d, points=(2, 6))]
    assert all(len(own.x) <= CENTRES for own in sets)
    problems = _Hierarchies(sets, [own.x for own in sets])
    generator = torch.Generator().manual_seed(0)
    logs = problems.middle + 0.3 * torch.randn(2, len(problems.middle), generator=generator, dtype=torch.float64)
    found = problems.evidence(logs)
    for k, own in enumerate(sets):
        assert float(found.total[k]) == pytest.approx(log_density(own.y.numpy(), dense(own, logs[k])), rel=1e-5)


def test_the_slopes_are_those_of_finite_differences():
    sets = [curves(3, 0), curves(5, 1, points=(2, 6))]
    problems = _Hierarchies(sets, [own.x[:8] for own in sets])
    values = np.stack([problems.middle.numpy() + 0.1, problems.middle.numpy() - 0.2])
    _, slopes = problems.loss(values)
    for j in range(values.shape[1]):
        step = np.zeros_like(values)
        step[:, j] = 1e-5
        expected = (problems.loss(values + step)[0] - problems.loss(values - step)[0]) / 2e-5
        assert slopes[:, j] == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_a_new_task_is_predicted_as_by_the_dense_gaussian_of_all_tasks():
    """At inputs that are centres of the shared curve, where nothing is approximated but for the jitter."""
    past = curves(4, 0, points=(3, 6))
    assert len(past.x) <= CENTRES - BETWEEN
    method = HierarchicalGP().fit(past)
    method._set(method.centres_, *(part[:1] for part in (method.learned_, method.log_shares_ * 0)), *(
        part[:1] for part in (method.weights_, method.left_open_)
    ))  # fmt: skip
    context, target = Tasks.from_pairs([(past.x[::3], past.x[::3].cos())]).context_target(3, 0)
    found = method.predict(context, target)
    everything = method.scaler_.scale(
        Tasks.from_pairs(
            [(t.x, t.y) for t in past] + [(torch.cat([context.x, target.x]), torch.cat([context.y, target.y]))]
        )
    )
    K, y = dense(everything, method.learned_[0]), everything.y[:, 0].numpy()
    k = len(target.x)
    solved = np.linalg.solve(K[:-k, :-k], K[:-k, -k:])
    mean, variance = solved.T @ y[:-k], np.diag(K[-k:, -k:] - K[-k:, :-k] @ solved)
    assert found.mean[:, 0].numpy() == pytest.approx(method.scaler_.unscale_mean(torch.tensor(mean)).numpy(), abs=1e-5)
    assert found.sd[:, 0].numpy() == pytest.approx(np.sqrt(variance) * float(method.scaler_.y_scale), rel=1e-5)


def test_several_that_learn_together_are_those_that_learn_alone():
    sets = [curves(5, 0), curves(9, 1)]
    together = [HierarchicalGP(), HierarchicalGP()]
    HierarchicalGP.fit_many(together, sets)
    for one, own in zip(together, sets, strict=True):
        alone = HierarchicalGP().fit(own)
        context, target = own.context_target(2, 0)
        found, expected = one.predict(context, target), alone.predict(context, target)
        torch.testing.assert_close(found.mean, expected.mean, atol=1e-2, rtol=0)
        torch.testing.assert_close(found.sd, expected.sd, atol=1e-2, rtol=0)


def test_with_few_tasks_more_is_left_open():
    """Of the shared curve, and of deviations and lengthscales."""
    context, target = curves(100, 99).context_target(1, 0)
    widths, inside = {}, {}
    for count in (3, FEW):
        found = []
        for seed in range(6):
            method = HierarchicalGP().fit(curves(count, seed))
            assert len(method.priors_) == 1 if count == FEW else len(method.priors_) > 4
            lower, upper = method.predict(context, target).interval(0.9)
            covers = (lower <= target.y) & (target.y <= upper)
            found.append((float((upper - lower).mean()), float(covers.double().mean())))
        widths[count], inside[count] = np.mean(found, 0)
    assert widths[3] > 1.15 * widths[FEW]
    assert inside[3] > 0.75
    assert inside[FEW] == pytest.approx(0.9, abs=0.03)


def test_a_task_chooses_among_the_draws_by_its_own_points():
    method = HierarchicalGP().fit(curves(3, 0))
    conditional = method.condition(curves(5, 7))
    assert isinstance(conditional, MixtureConditional)
    assert not torch.allclose(conditional.log_weights[0], conditional.log_weights[1])


@pytest.mark.parametrize("count", [4, FEW])
def test_a_file_brings_it_back(tmp_path, count):
    tasks = curves(count, 2)
    gp = MetaGP(rungs=["hierarchical gp"], progress=False).fit(tasks)
    gp.save(tmp_path / "m.metaprior")
    context, target = tasks.context_target(2, 0)
    again = MetaGP.load(tmp_path / "m.metaprior")
    torch.testing.assert_close(again.predict(context, target).mean, gp.predict(context, target).mean)
    torch.testing.assert_close(again.predict(context, target).sd, gp.predict(context, target).sd)


def test_what_is_known_of_a_task_as_a_whole_moves_its_curve():
    rng = np.random.default_rng(0)
    group = np.repeat([0.0, 1.0], 6)
    pairs = [(x := rng.uniform(0, 1, 5), np.sin(3 * x) + 4 * g + 0.1 * rng.normal(size=5)) for g in group]
    tasks = Tasks.from_pairs(pairs).with_task_x({"group": list(group)})
    method = HierarchicalGP().fit(tasks)
    empty = Tasks.empty(["a", "b"], 1, 1).with_task_x({"group": [0.0, 1.0]}, tasks.columns.task_x)
    low, high = method.condition(empty).at(np.array([[0.5]])).mean[:, 0].tolist()
    assert high - low == pytest.approx(4, abs=0.5)


def test_learning_goes_on_from_what_some_of_the_tasks_taught():
    some, more = curves(60, 0), curves(90, 0)
    start = HierarchicalGP().fit(some)
    went_on, anew = HierarchicalGP().fit_from(start, more), HierarchicalGP().fit(more)
    problems = _Hierarchies([anew.scaler_.scale(more)], [anew.centres_])
    loss, expected = (float(problems.loss(one.learned_.numpy())[0][0]) for one in (went_on, anew))
    assert loss == pytest.approx(expected, abs=2e-3)
    begun = float(problems.loss(problems.start)[0][0])
    assert begun > expected + 0.1  # and it has learned something


def test_a_warped_one_is_as_good_on_values_that_were_bent():
    bent = dataclasses.replace(curves(12, 0), y=curves(12, 0).y.exp())
    context, target = bent.context_target(2, 0)
    plain, warped = HierarchicalGP().fit(bent), Warped(HierarchicalGP()).fit(bent)
    gain = warped.predict(context, target).log_density(target.y) - plain.predict(context, target).log_density(target.y)
    assert float(gain.mean()) > 0.2


def test_a_draw_that_has_no_evidence_is_left_out(monkeypatch):
    plain = _Hierarchies.draws

    def too_far(self, best, count):
        draws, proposed = plain(self, best, count)
        draws[0] = 400.0  # exp(800) is no number
        return draws, proposed

    monkeypatch.setattr(_Hierarchies, "draws", too_far)
    method = HierarchicalGP().fit(curves(4, 0))
    assert method.learned_.max() < 100
    monkeypatch.setattr(
        _Hierarchies, "draws", lambda self, best, count: (best[None] + 400.0, torch.zeros(1, len(best)))
    )
    with pytest.raises(NumericalError, match="no finite value"):
        HierarchicalGP().fit(curves(4, 0))


def test_what_it_cannot_learn_from_is_said():
    with pytest.raises(DataError, match="needs two or more"):
        HierarchicalGP().fit(curves(1))
    with pytest.raises(DataError, match="every task has one point"):
        HierarchicalGP().fit(curves(4, points=(1, 2)))
