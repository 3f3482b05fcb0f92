"""One property test for every class that answers as a posterior, and for what they make of each other.

Whatever a posterior is made of, its answers are of one distribution: quantiles invert the cdf, moments and draws are
its own, the joint density of one point is its marginal, draws of different tasks have nothing in common.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch

from metaprior import FPCA, Auto, Combination, HyperPosterior, LearnedPrior, Method, Mixture, Posterior, Tasks, Warped
from metaprior.inference import (
    CalibratedConditional,
    Calibration,
    Gathered,
    GaussianMarginals,
    InUnits,
    MovedPosterior,
    WithinPossible,
)
from metaprior.inference.posterior import Around
from metaprior.methods import GPPerTask, HierarchicalGP, LastValue
from metaprior.tasks import Possible, Scaler

CALIBRATION = Calibration((0.5, 1.2, 1.7, 2.3))
"""Narrow in the middle, wide outside: what it does to a skewed distribution moves its mean."""

WIDE = Calibration((0.7, 1.4, 1.9, 4.5))
"""As outliers among the held-out values make it."""

QUICK = {"max_epochs": 15, "hidden": (6,), "progress": False}


def past(count=24, seed=0, n=9):
    """Positive, skewed curves of two kinds."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        x = np.sort(rng.uniform(0, 2, n))
        log = (0.9 if k % 2 else 0.1) + 0.4 * rng.normal() + 0.5 * np.sin(3 * x) + 0.15 * rng.normal(size=n)
        pairs.append((x, np.exp(log)))
    return Tasks.from_pairs(pairs)


def asked(far=0.0):
    """Contexts of 0 to 3 points, far above the past where that is wanted, and a point or two of each task."""
    tasks = past(4, seed=5)
    context, target = tasks.context_target(where=lambda x: torch.arange(len(x)) % 9 < (torch.arange(len(x)) // 9))
    context = Tasks(context.x, context.y + far, context.offsets, context.ids, context.columns)
    return context, Tasks.from_inputs([target[i].x[: 1 + i % 2] for i in range(4)], target.ids)


class Calibrated(Method):
    """Any method with its distributions put right."""

    def __init__(self, method, calibration=CALIBRATION):
        self.method, self.calibration = method, calibration

    def fit(self, tasks):
        self.method.fit(tasks)
        return self

    def condition(self, context):
        return CalibratedConditional(self.method.condition(context), self.calibration)


def learned(**options):
    return LearnedPrior("constant", "rbf", **{key: value for key, value in QUICK.items() if key != "hidden"}, **options)


def student():
    """With tails that have a variance: few steps, so that its degrees of freedom stay near where they start."""
    return LearnedPrior("constant", "rbf", degrees=8.0, max_epochs=2, progress=False)


FAMILIES = {
    "gaussian": lambda: learned(),
    "student": lambda: student(),
    "functional PCA": lambda: FPCA(size=5, rank=2),
    "gp per task": lambda: GPPerTask(),
    "independent": lambda: LastValue(held_out=0.5),
    "in the user's units": lambda: InUnits(FPCA(size=4, rank=1), Scaler.fit(past())),
    "log": lambda: Warped(learned(), "log"),
    "yeo-johnson": lambda: Warped(learned(), "yeo-johnson"),
    "kinds": lambda: Mixture(2, rank=1, size=5),
    "members": lambda: HyperPosterior(members=2, **{k: v for k, v in QUICK.items() if k != "progress"}),
    "combination": lambda: Combination([FPCA(size=5, rank=2), GPPerTask()], [0.6, 0.4]),
    "calibrated": lambda: Calibrated(learned()),
    "hierarchy": lambda: HierarchicalGP(),
    "what can be": lambda: WithinPossible(learned(), [Possible(-1e9, 1e9)]),  # where it is cut: tests/test_possible.py
}

COMPOSITIONS = {
    "warped student": lambda: Warped(student(), "log"),
    "warped kinds": lambda: Warped(Mixture(2, rank=1, size=5), "log"),
    "calibrated student": lambda: Calibrated(student()),
    "calibrated warp": lambda: Calibrated(Warped(learned(), "log")),
    "calibrated kinds": lambda: Calibrated(Mixture(2, rank=1, size=5)),
    "calibrated combination of a warp": lambda: Calibrated(
        Combination([FPCA(size=5, rank=2), Warped(learned(), "log")], [0.5, 0.5])
    ),
    "combination of kinds and warped students": lambda: Combination(
        [Mixture(2, rank=1, size=5), Warped(student(), "yeo-johnson")], [0.3, 0.7]
    ),
    "combination of what is warped alike": lambda: Combination(
        [Warped(learned(), "log"), Warped(GPPerTask(), "log")], [0.5, 0.5]
    ),
    "warp of a combination": lambda: Warped(Combination([learned(), GPPerTask()], [0.5, 0.5]), "log"),
    "calibrated in units": lambda: Calibrated(InUnits(Warped(FPCA(size=4, rank=1), "yeo-johnson"), Scaler.fit(past()))),
    "calibrated for outliers": lambda: Calibrated(learned(), WIDE),
    "kinds calibrated for outliers": lambda: Calibrated(Mixture(2, rank=1, size=5), WIDE),
    "chosen": lambda: Auto(rungs=("gp per task", "fpca", "warped fpca"), progress=False),
}


@cache
def fitted(name):
    return (FAMILIES | COMPOSITIONS)[name]().fit(past())


@pytest.fixture(scope="module", params=[*FAMILIES, *COMPOSITIONS])
def method(request):
    return fitted(request.param)


@pytest.fixture(scope="module", params=["near", "far"])
def posterior(request, method):
    context, points = asked(far=40.0 if request.param == "far" else 0.0)
    return method.condition(context).at(points)


def everything(cls):
    return {cls}.union(*(everything(sub) for sub in cls.__subclasses__()))


def made_of(posterior):
    """The classes that a posterior is made of."""
    found, parts = {type(posterior)}, []
    for name in ("posterior", "warped", "scaled", "gaussian"):
        parts += [getattr(posterior, name)] if hasattr(posterior, name) else []
    parts += list(getattr(posterior, "components", ()))
    parts += [part for _, part in posterior.parts] if isinstance(posterior, Gathered) else []
    return found.union(*(made_of(part) for part in parts if isinstance(part, Posterior)))


def test_every_class_that_answers_as_a_posterior_is_here():
    context, points = asked()
    seen = set()
    for name in FAMILIES | COMPOSITIONS:
        seen |= made_of(fitted(name).condition(context).at(points))
    abstract = {Posterior, GaussianMarginals, Around, MovedPosterior}  # the last: tests/test_pretended.py
    assert seen == {cls for cls in everything(Posterior) if cls.__module__.startswith("metaprior.")} - abstract
    assert len(COMPOSITIONS) >= 6


def test_quantiles_invert_the_cdf(posterior):
    levels = [0.0001, 0.001, 0.05, 0.3, 0.5, 0.8, 0.99, 0.9999]
    found = posterior.quantiles(levels)
    assert torch.isfinite(found).all()
    for level, value in zip(levels, found, strict=True):
        assert posterior.cdf(value).numpy() == pytest.approx(level, abs=1e-8)
    assert (found.diff(dim=0) > 0).all()
    u = torch.rand(3, *posterior.mean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(posterior.cdf(posterior.inverse_cdf(u)), u, atol=1e-8)


def test_an_interval_holds_its_level(posterior):
    for level in (0.5, 0.9):
        lower, upper = posterior.interval(level)
        assert (posterior.cdf(upper) - posterior.cdf(lower)).numpy() == pytest.approx(level, abs=1e-8)
        assert (upper > lower).all()


def by_integration(posterior):
    """Mean and deviation of each value, from the cdf alone: `∫ y dF` over many small steps of probability."""
    score = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    edges = posterior.quantiles(torch.special.ndtr(score).clamp(1e-15, 1 - 1e-15).tolist())
    share = posterior.cdf(edges).diff(dim=0)
    middle = (edges[1:] + edges[:-1]) / 2
    mean = (share * middle).sum(0) / share.sum(0)
    return mean, ((share * (middle - mean).square()).sum(0) / share.sum(0)).sqrt()


def test_mean_and_deviation_are_those_of_the_distribution(posterior):
    mean, sd = by_integration(posterior)
    assert ((posterior.mean - mean).abs() / sd).numpy() == pytest.approx(0.0, abs=0.01)
    assert (posterior.sd / sd).numpy() == pytest.approx(1.0, abs=0.02)


def test_the_density_is_the_slope_of_the_cdf(posterior):
    for level in (0.15, 0.45, 0.8):  # not where a recalibrated density has steps, or a combination a gap (at 0.4)
        y = posterior.quantiles([level])[0]
        lower, upper = posterior.interval(0.5)
        step = 1e-5 * (upper - lower)
        slope = (posterior.cdf(y + step) - posterior.cdf(y - step)) / (2 * step)
        assert (posterior.log_density(y) - slope.log()).numpy() == pytest.approx(0.0, abs=2e-3)


def test_draws_follow_the_cdf(posterior):
    """Probabilities of draws are uniform: Kolmogorov's distance at every point."""
    count = 4000
    probabilities = posterior.cdf(posterior.samples(count, seed=3)).flatten(1).sort(0).values
    expected = (torch.arange(count, dtype=torch.float64) + 0.5)[:, None] / count
    assert float((probabilities - expected).abs().max()) < 2.2 / math.sqrt(count)


def test_draws_of_different_tasks_are_independent(posterior):
    scores = torch.special.ndtri(posterior.cdf(posterior.samples(4000, seed=7)).clamp(1e-9, 1 - 1e-9)).flatten(1)
    correlation = torch.corrcoef(scores.mT)
    owner = posterior.points.task_of_row.repeat_interleave(posterior.mean.shape[1])
    apart = owner[:, None] != owner[None, :]
    assert float(correlation[apart].abs().max()) < 0.09  # five standard errors, and some


def test_the_joint_density_of_one_point_is_its_marginal(method):
    for far in (0.0, 40.0):
        context, points = asked(far)
        single = Tasks.from_inputs([task.x[:1] for task in points], points.ids)
        posterior = method.condition(context).at(single)
        for level in (0.2, 0.7):
            y = posterior.quantiles([level])[0]
            found = posterior.joint_log_density(y)
            assert found.numpy() == pytest.approx(posterior.log_density(y).sum(1).numpy(), abs=1e-4)


def test_everything_is_finite_far_outside_the_range_of_past_targets(posterior):
    far = torch.full_like(posterior.mean, 1e4)
    assert torch.isfinite(posterior.mean).all()
    assert torch.isfinite(posterior.sd).all()
    assert (posterior.sd > 0).all()
    assert torch.isfinite(posterior.log_density(far)).all()
    assert torch.isfinite(posterior.joint_log_density(posterior.quantiles([0.3])[0])).all()
    assert torch.isfinite(posterior.samples(50, seed=0)).all()
    assert torch.isfinite(posterior.crps(far)).all()
    assert posterior.cdf(far).numpy() == pytest.approx(1.0, abs=0.01)


def test_what_it_can_do_is_declared(posterior):
    assert isinstance(posterior, Posterior)
    assert isinstance(posterior.function, Posterior)
    assert isinstance(posterior.is_gaussian, bool)
    assert isinstance(posterior.jitter, float)
    assert posterior.evidence is None or posterior.evidence.total.shape == (4,)
    covariances = posterior.covariances()
    if covariances is not None:
        sd = torch.cat([C.diagonal(dim1=1, dim2=2).mT for C in covariances]).sqrt()
        assert torch.allclose(sd, posterior.sd, rtol=1e-6)


def test_what_has_no_say_in_a_task_does_not_move_its_moments():
    """Kinds far from 0, under a calibration with a wide tail: a task alone, and beside one that may be of any kind."""
    far = past()
    far = Tasks(far.x, far.y + 1000.0, far.offsets, far.ids, far.columns)
    method = Calibrated(Mixture(2, rank=1, size=5), WIDE).fit(far)
    context, points = asked(far=1000.0)
    together = method.condition(context).at(points)
    drawn = together.samples(4000, seed=0)
    assert ((together.mean - drawn.mean(0)).abs() / together.sd).max() < 0.1
    assert (together.sd / drawn.std(0)).numpy() == pytest.approx(1.0, abs=0.1)
    alone = method.condition(context.select([3])).at(points.select([3]))
    assert torch.allclose(together.mean[-2:], alone.mean, rtol=1e-9)
    assert torch.allclose(together.sd[-2:], alone.sd, rtol=1e-3)


def test_covariances_are_those_of_draws():
    """Of a mixture: within its components and between them."""
    context, points = asked()
    grid = Tasks.from_inputs([[0.2, 1.0, 1.8]] * 4, points.ids)
    posterior = fitted("kinds").condition(context).at(grid)
    drawn = posterior.samples(20_000, seed=0)[:, :, 0]
    for i, C in enumerate(posterior.covariances()):
        found = torch.cov(drawn[:, 3 * i : 3 * i + 3].mT)
        assert found.numpy() == pytest.approx(C[0].numpy(), abs=0.05 * float(C.max()))


def test_a_calibrated_joint_density_is_finite_far_out():
    context, points = asked()
    posterior = fitted("calibrated").condition(context).at(points)
    for far in (-1e3, 1e3):
        y = posterior.mean + far * posterior.sd
        assert posterior.joint_log_density(y).isfinite().all()
