"""Tables of a few tasks, some of them odd: every method learns and predicts, or says what it lacks."""

import numpy as np
import pytest
import torch

from metaprior import MetapriorError, Tasks
from metaprior.methods import FPCA, GPPerTask, HyperPosterior, Mixture, Warped

METHODS = {
    "mixture": Mixture,
    "fpca": FPCA,
    "warped fpca": lambda: Warped(FPCA()),
    "warped mixture": lambda: Warped(Mixture()),
    "gp per task": GPPerTask,
    "hyper-posterior": lambda: HyperPosterior(members=2, max_epochs=5),
}


def own_inputs(count, rng, n=7, d=1, p=1):
    return [(rng.uniform(0, 1, (n, d)), rng.normal(size=(n, p)).cumsum(0)) for _ in range(count)]


def one_grid(count, rng):
    x = np.linspace(0, 1, 6)
    return [(x, np.sin(3 * x) + rng.normal() + 0.1 * rng.normal(size=6)) for _ in range(count)]


def constant(count, rng):
    return [(x, np.full(len(x), 3.0)) for x, _ in own_inputs(count, rng)]


def repeated_inputs(count, rng):
    return [(np.repeat(x[:3], 2, 0), y[:6]) for x, y in own_inputs(count, rng)]


def one_much_longer(count, rng):
    return own_inputs(count - 1, rng) + own_inputs(1, rng, n=150)


def two_inputs(count, rng):
    return own_inputs(count, rng, d=2)


def two_outputs(count, rng):
    return own_inputs(count, rng, p=2)


def the_same_twice(count, rng):
    return own_inputs(1, rng) * count


SHAPES = (own_inputs, one_grid, constant, repeated_inputs, one_much_longer, two_inputs, two_outputs, the_same_twice)


def log_densities(method, pairs, new):
    """Log densities of every other point of new tasks, given the points between."""
    fitted = method.fit(Tasks.from_pairs(pairs))
    context, target = Tasks.from_pairs(new).context_target(where=lambda x: torch.arange(len(x)) % 2 == 0)
    return fitted.predict(context, target).log_density(target.y)


CASES = [
    pytest.param(name, shape, count, id=f"{name}, {count} {shape.__name__}")
    for name in METHODS
    for shape in SHAPES
    for count in ((2, 3, 4, 5, 7) if name == "mixture" else (2, 5))
]


@pytest.mark.parametrize(("name", "shape", "count"), CASES)
def test_a_method_learns_from_a_few_tasks_or_says_what_it_lacks(name, shape, count):
    pairs, new = shape(count, np.random.default_rng(count)), shape(3, np.random.default_rng(99))
    try:
        found = log_densities(METHODS[name](), pairs, new)
    except MetapriorError:
        return
    assert found.isfinite().all()


@pytest.mark.parametrize("count", [4, 5])
@pytest.mark.parametrize("name", ["mixture", "warped mixture"])
def test_a_mixture_learns_from_four_or_five_ordinary_tasks(name, count):
    for seed in range(2):
        for shape in (own_inputs, one_grid):
            pairs, new = shape(count, np.random.default_rng(seed)), shape(3, np.random.default_rng(99))
            assert log_densities(METHODS[name](), pairs, new).isfinite().all()
