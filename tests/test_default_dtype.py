"""No number depends on torch's default dtype: a fit and a prediction under each have the same bits."""

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch

import metaprior
from metaprior import Auto, Combination, MetaGP, Tasks
from metaprior.inference import IndependentGaussians, PossiblePosterior
from metaprior.methods import MAML, LastValue, make_method, named_methods
from metaprior.priors import KERNELS, MEANS
from metaprior.tasks import Possible

DEFAULTS = (torch.float64, torch.bfloat16)
"""Beside float32. With 8 bits, bfloat16 shows every number that was not given a dtype."""


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def curves(count=12, n=7, seed=0):
    """Positive, skewed curves, recorded to a tenth."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        x = np.sort(rng.uniform(0, 2, n)).round(2)
        log = 0.1 + 0.8 * (k % 2) + 0.4 * rng.normal() + 0.5 * np.sin(3 * x) + 0.15 * rng.normal(size=n)
        pairs.append((x, np.exp(log).round(1)))
    return Tasks.from_pairs(pairs)


def answers(method):
    """Everything that a fitted method says of new tasks, and its evidence of their contexts."""
    context, target = curves(3, seed=5).context_target(3, seed=0)
    conditional = method.condition(context)
    posterior = conditional.at(target)
    found = [posterior.mean, posterior.sd, posterior.function.mean, *posterior.interval(0.9), posterior.cdf(1.1)]
    found += [posterior.log_density(target.y), posterior.joint_log_density(target.y), posterior.crps(target.y)]
    found += [posterior.samples(3, seed=0)]
    return found + ([] if conditional.evidence is None else [conditional.evidence.total])


def check(fitted):
    """The same answers, bit for bit, of what is fitted and asked under each default."""
    expected = answers(fitted())
    assert all(found.dtype == torch.float64 for found in expected)
    for dtype in DEFAULTS:
        with default_dtype(dtype):
            found = answers(fitted())
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True)), dtype


@pytest.mark.parametrize("name", named_methods(lambda one: one.make is not None))
def test_each_method(name):
    quick = {"maml": MAML(max_epochs=2, progress=False)}
    check(lambda: (quick[name] if name in quick else make_method(name, curves(), seed=1)).fit(curves()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_kernel(kernel):
    check(lambda: MetaGP("constant", kernel, max_epochs=3, hidden=(4,), progress=False).fit(curves()))


@pytest.mark.parametrize("mean", MEANS)
def test_each_mean(mean):
    check(lambda: MetaGP(mean, "rbf", max_epochs=3, hidden=(4,), progress=False).fit(curves()))


@pytest.mark.parametrize(
    "options", [{"noise": "deep"}, {"noise": 0.1}, {"degrees": 4.0}, {"network_dtype": torch.float32}, {"gain": 0.7}]
)
def test_options_of_a_prior(options):
    check(lambda: MetaGP("deep", "deep", max_epochs=3, hidden=(4,), progress=False, **options).fit(curves()))


def test_the_automatic_choice_and_its_scores():
    def fitted():
        return Auto(rungs=("gp per task", "fpca", "warped fpca"), progress=False).fit(curves())

    check(fitted)
    expected = fitted()
    with default_dtype(torch.float64):
        found = fitted()
    assert (found.coverage_, found.scores_) == (expected.coverage_, expected.scores_)


def frame(tasks):
    table = pd.DataFrame({"t": tasks.x[:, 0], "y": tasks.y[:, 0], "curve": tasks.task_of_row})
    return table.assign(group=table["curve"] % 2 / 10)


def test_tables_a_file_and_suggestions(tmp_path):
    """With a support whose ends are not exact in binary, and a task covariate."""

    def asked(path):
        columns = {"task": "curve", "x": "t", "y": "y", "task_x": "group"}
        gp = MetaGP("deep", "deep", max_epochs=3, hidden=(4,), progress=False)
        gp.fit(frame(curves()), support=(0.1, 20.3), **columns).save(path)
        gp, new = metaprior.load(path), frame(curves(3, seed=5))
        ahead = gp.predict(new[new["t"] < 1], [1.1, 1.3, 1.7], quantiles=[0.2], samples=2)
        places = gp.suggest(new[new["t"] < 1], [1.1, 1.3, 1.7], points=2)
        return ahead, places, gp.score(new, context=2).values

    ahead, places, scores = asked(tmp_path / "single.metaprior")
    for dtype in DEFAULTS:
        with default_dtype(dtype):
            other = asked(tmp_path / "other.metaprior")
        pd.testing.assert_frame_equal(other[0], ahead, check_exact=True)
        pd.testing.assert_frame_equal(other[1], places, check_exact=True)
        assert all(torch.equal(other[2][metric], values) for metric, values in scores.items())
        assert (tmp_path / "other.metaprior").read_bytes() == (tmp_path / "single.metaprior").read_bytes()
        (tmp_path / "other.metaprior").unlink()


def test_bounds_and_weights_have_all_their_digits():
    points = Tasks.from_inputs([np.arange(2.0)])
    inner = IndependentGaussians(points, torch.zeros(2, 1).double(), torch.ones(2, 1).double())
    posterior = PossiblePosterior.of(inner, [Possible(0.1, 0.7)])
    assert posterior.log_density([0.1, 0.7]).isfinite().all()
    assert posterior.interval(0.9).lower.tolist() == [[0.1], [0.1]]
    assert posterior.samples(50, seed=0).unique()[[0, -1]].tolist() == [0.1, 0.7]
    assert Combination([LastValue(), LastValue()], [0.1, 0.9]).weights == pytest.approx([0.1, 0.9], rel=1e-15)
