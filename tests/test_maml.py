import copy

import numpy as np
import pytest
import torch

from metaprior import OptionError, Tasks, score
from metaprior.methods import MAML
from metaprior.methods.maml import Episode, GivenEpisodes, MetaUpdates, RandomEpisodes, Start
from metaprior.priors import Network
from metaprior.splits import Given
from tests.problems import ragged


def levels(count=200, seed=0, n=8) -> Tasks:
    """Constant functions: one point tells all."""
    rng = np.random.default_rng(seed)
    return Tasks.from_pairs([(rng.uniform(-1, 1, n), np.full(n, rng.normal())) for _ in range(count)])


def start_of(steps=3, rate=0.1, learn_rates=True, first_order=False, hidden=(6, 5), d=1, p=1, seed=0) -> Start:
    network = Network(d, p, seed=seed, hidden=hidden, activation="tanh", dtype=torch.float64)
    return Start(network, rate, steps, learn_rates=learn_rates, first_order=first_order)


def slow_adapted(start: Start, x, y) -> Network:
    """Plain gradient descent on a copy of the network, with torch's own autograd."""
    network = copy.deepcopy(start.network)
    for _ in range(start.steps):
        error = (network(x) - y).square().mean()
        grads = torch.autograd.grad(error, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient, rate in zip(network.parameters(), grads, start.log_rates.exp(), strict=True):
                parameter -= rate * gradient
    return network


def test_adapting_is_gradient_descent_on_each_context():
    tasks = ragged(d=2, p=2, count=7)
    maml = MAML(hidden=(6, 5), activation="tanh", dtype=torch.float64, max_epochs=1, progress=False).fit(tasks)
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 0.3)
    found = maml.values(context, target)
    for i in range(len(tasks)):
        given, wanted = (maml.scaler_.scale(part.select([i])) for part in (context, target))
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        network = slow_adapted(maml.start_, given.x, given.y) if len(given.x) else maml.start_.network
        expected = maml.scaler_.unscale_mean(network(wanted.x).detach())
        assert found[rows].numpy() == pytest.approx(expected.numpy(), abs=1e-9)


@pytest.mark.parametrize("first_order", [False, True])
def test_the_meta_gradient(first_order):
    """Second-order: against finite differences through the adaptation. First-order: the gradient where it ends."""
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.normal(size=(3, 6, 1))) for _ in range(2))
    context = torch.tensor(rng.uniform(size=(3, 6)) < 0.5)
    start = start_of(first_order=first_order)
    updates = MetaUpdates(start, RandomEpisodes(ragged(), 3, 0), 1e-3)
    episode = Episode(x, y, context, ~context)
    updates.error(episode).backward()
    parameter = start.network.layers[0].weight
    found = parameter.grad.clone()
    if first_order:
        expected = torch.zeros_like(found)
        for i in range(3):
            network = slow_adapted(start, x[i][context[i]], y[i][context[i]])
            error = (network(x[i][~context[i]]) - y[i][~context[i]]).square().mean()
            expected += torch.autograd.grad(error, network.layers[0].weight)[0] / 3
        assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-7)
        return
    for index in [(0, 0), (3, 0)]:
        step = torch.zeros_like(parameter)
        step[index] = 1e-6
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step
            ends.append(float(updates.error(episode).detach()))
            with torch.no_grad():
                parameter -= sign * step
        assert float(found[index]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


def test_the_rates_are_learned_if_asked():
    learned = MAML(hidden=(8,), max_epochs=2, progress=False).fit(levels(80))
    fixed = MAML(hidden=(8,), max_epochs=2, learn_rates=False, progress=False).fit(levels(80))
    assert float((learned.start_.log_rates.detach() - np.log(0.03)).abs().min()) > 1e-4
    assert fixed.start_.log_rates.exp().detach().numpy() == pytest.approx(0.03)


@pytest.mark.parametrize("first_order", [False, True])
def test_it_learns_to_learn(first_order):
    """Levels: blind, the error is their variance of 1; from one point it should nearly vanish."""
    maml = MAML(hidden=(16,), max_epochs=40, first_order=first_order, seed=1, progress=False).fit(levels(600))
    context, target = levels(200, seed=5).context_target(1, seed=0)
    assert score(maml.predict(context, target), target).summary("mse").mean < 0.1
    blind = Tasks.empty(target.ids, 1, 1)
    assert 0.7 < score(maml.predict(blind, target), target).summary("mse").mean < 1.4


def test_random_episodes_are_parts_of_tasks():
    tasks = ragged(count=30, largest=9)
    seen = set()
    for x, _, context, target in RandomEpisodes(tasks, 8, seed=0):
        assert not bool((context & target).any())
        for row in range(len(x)):
            used = context[row] | target[row]
            values = sorted(x[row][used][:, 0].tolist())
            owners = [i for i, task in enumerate(tasks) if sorted(task.x[:, 0].tolist()) == values]
            assert len(owners) == 1
            seen |= set(owners)
            n = int(tasks.sizes[owners[0]])
            assert int(context[row].sum()) in (range(1, n) if n > 1 else (0,))
    assert seen == set(range(30))


def test_given_episodes_are_the_given_splits():
    tasks = ragged(count=10)
    split = tasks.context_target(where=lambda x: x[:, 0] < 0)
    (episode,) = GivenEpisodes([split], 16, seed=0)
    total = sum(float((episode.y[..., 0] * mask).sum()) for mask in (episode.context, episode.target))
    assert total == pytest.approx(float(tasks.y.sum()))
    assert sorted(episode.context.sum(1).tolist()) == sorted(split.context.sizes.tolist())
    known = {tuple(part.x[:, 0].tolist()) for part in split.context}
    assert {tuple(x[mask][:, 0].tolist()) for x, mask in zip(episode.x, episode.context, strict=True)} == known


def test_where_contexts_are_given_it_trains_on_those():
    calls = []

    def first_half(tasks):
        calls.append(len(tasks))
        return {"half": tasks.context_target(where=lambda x: x[:, 0] < 0)}

    MAML(hidden=(4,), max_epochs=1, contexts=Given(first_half), progress=False).fit(levels(50))
    assert sorted(set(calls)) == [5, 45]


def test_what_maml_refuses():
    with pytest.raises(OptionError, match="-1 inner steps"):
        MAML(inner_steps=-1, progress=False).fit(levels(20))
    with pytest.raises(
        OptionError, match="give 0 to 1,000 steps"
    ):  # a file could ask for 10¹², and predicting never end
        MAML(inner_steps=1001, progress=False).fit(levels(20))
    with pytest.raises(OptionError, match="of size 0"):
        MAML(inner_rate=0.0, progress=False).fit(levels(20))
