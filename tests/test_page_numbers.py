"""The page's own arithmetic: means and bounds in the browser against Python's, for every kind of model there is."""

import copy
import json

import numpy as np
import pytest
import torch

from metaprior import MetaGP, Tasks
from metaprior.methods import FPCA, MAML, METHODS, Combination, Warped, make_method, named_methods
from metaprior.priors import KERNELS, MEANS, WARPS
from metaprior.report import live_page

EXACT, SEARCHED, SINGLE_PRECISION = 1e-6, 1e-4, 1e-4
"""In standard deviations: single priors, quantiles of mixtures, and models that were learned in float32."""

QUICK = {"hidden": (6, 5), "max_epochs": 8, "progress": False}
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
MIXTURES = ("mixture", "hierarchical", "hyper-posterior", "auto")


def curves(m=9, n=10, d=1, p=1, of=lambda y: y):
    """Waves of their own height and place, noisy."""
    random = np.random.default_rng(3)
    tasks = []
    for _ in range(m):
        x, own = np.sort(random.uniform(0, 10, (n, d)), 0), random.normal()
        wave = 2 * np.sin(x[:, 0] + 0.3 * own) + own + 0.2 * x.sum(1)
        y = np.stack([wave + c + 0.1 * random.normal(size=n) for c in range(p)], 1)
        tasks.append((x, of(y)))
    return Tasks.from_pairs(tasks)


def two_kinds(m=110, n=8):
    """Waves, and every third task a line."""
    random = np.random.default_rng(5)
    x = np.sort(random.uniform(0, 10, (m, n, 1)), 1)
    shape = np.where(np.arange(m)[:, None, None] % 3 == 0, 0.6 * x - 2, 2 * np.sin(x))
    y = shape + 0.5 * random.normal(size=(m, 1, 1)) + 0.1 * random.normal(size=(m, n, 1))
    return Tasks.from_pairs(zip(x, y, strict=True))


def contexts(d=1, p=1, of=lambda y: y):
    """Nothing known; one point; two of three at one place; more points than a basis has functions."""
    x = np.stack([np.linspace(0.3, 9.7, 31)] * d, 1)
    y = of(np.stack([np.sin(x[:, 0]) + 0.5 * c for c in range(p)], 1))
    return [(x[k], y[k]) for k in ([], [7], [4, 18, 18], range(31))]


def fitted(name, tasks):
    """A method by name; one that takes long is learned badly, which its arithmetic does not mind."""
    method = MAML(max_epochs=2, progress=False) if name == "maml" else make_method(name, tasks, 0)
    return MetaGP.of(method.fit(tasks))


def opened(browser, html):
    page = browser.new_page()
    page.set_content(html)
    return page


def in_browser(browser, gp, jobs):
    page = opened(browser, live_page(gp.method_, gp.trained_on_, "model.metaprior"))
    ask = "jobs => jobs.map(([x, y, at, options]) => metaprior.predict(x, y, at, options))"
    found = page.evaluate(ask, json.loads(json.dumps(jobs)))
    page.close()
    return found


def check(browser, gp, given, at, tolerance, task_x=None, about=None, page_of=None):
    """Everything that the page says of these contexts at these places, and Python says the same."""
    options = {"levels": LEVELS} | ({"about": about} if about else {})
    kinds = [(x, y, latent) for x, y in given for latent in (False, True)]
    asked = [(x.tolist(), y.tolist(), at.tolist(), options | {"latent": latent}) for x, y, latent in kinds]
    for (x, y, latent), found in zip(kinds, in_browser(browser, page_of or gp, asked), strict=True):
        conditional = gp.condition(x, y, task_x=task_x)
        posterior = conditional.at(at).function if latent else conditional.at(at)
        sd = posterior.sd.flatten()

        def apart(there, here, sd=sd):
            return float(((torch.tensor(there, dtype=torch.float64) - here.flatten()).abs() / sd).max())

        assert apart(found["mean"], posterior.mean) < tolerance
        assert apart(found["sd"], posterior.sd) < tolerance
        for there, here in zip(found["quantiles"], posterior.quantiles(LEVELS), strict=True):
            assert apart(there, here) < tolerance
        assert np.isfinite(found["draws"]).all()
        if conditional.evidence is not None:
            assert found["evidence"] == pytest.approx(float(conditional.evidence.total[0]), abs=1e-4 + tolerance)
        if conditional.plausibility is not None and len(x):
            assert found["plausibility"] == pytest.approx(float(conditional.plausibility[0]))


AT = np.linspace(-0.5, 10.5, 45)[:, None]


@pytest.mark.parametrize("name", named_methods(lambda one: one.make is not None))
def test_every_method_that_compare_can_write(name, browser):
    positive = {"of": lambda y: np.exp(0.3 * y)} if METHODS[name].skewed else {}
    gp = fitted(name, two_kinds() if METHODS[name].least >= 100 else curves(**positive))
    if "mixture" in name:
        assert len(getattr(gp.method_, "method", gp.method_).priors_) == 2
    tolerance = SEARCHED if any(word in name for word in MIXTURES) else SINGLE_PRECISION if name == "maml" else EXACT
    check(browser, gp, contexts(**positive), AT, tolerance)


@pytest.mark.parametrize(
    ("mean", "kernel"), [*zip(["linear", *MEANS, "constant"], KERNELS, strict=True), ("deep", "deep")]
)
def test_every_mean_and_kernel_that_fit_can_learn(mean, kernel, browser):
    check(browser, MetaGP(mean, kernel, **QUICK).fit(curves()), contexts(), AT, EXACT)


@pytest.mark.parametrize(
    "options", [{"noise": "deep"}, {"noise": 0.02}, {"degrees": 4.0}, {"activation": "relu"}], ids=str
)
def test_options_of_a_prior(options, browser):
    check(browser, MetaGP("deep", "deep", **QUICK, **options).fit(curves()), contexts(), AT, EXACT)


def test_networks_in_float32(browser):
    """The page computes in float64 with their weights: what it differs by is Python's own rounding."""
    gp = MetaGP("deep", "deep", **QUICK, network_dtype=torch.float32).fit(curves())
    check(browser, gp, contexts(), AT, SINGLE_PRECISION)
    exact = copy.deepcopy(gp)
    exact.method_.prior_.double()
    check(browser, exact, contexts(), AT, EXACT, page_of=gp)


@pytest.mark.parametrize("warp", sorted(WARPS))
def test_every_warp(warp, browser):
    grown = {"of": lambda y: np.exp(0.3 * y)}
    gp = MetaGP.of(Warped(FPCA(), warp).fit(curves(**grown)))
    below = [(np.array([[2.0]]), np.array([[0.0]]))] if warp == "log-linear" else []  # where it is straight
    check(browser, gp, contexts(**grown) + below, AT, EXACT)


@pytest.mark.parametrize("basis", ["polynomial", "fourier"])
def test_every_basis(basis, browser):
    check(browser, MetaGP.of(FPCA(basis, size=5).fit(curves())), contexts(), AT, EXACT)


@pytest.mark.parametrize("name", ["fpca", "warped student", "hierarchical gp", "gp per task", "maml", "last value"])
def test_several_targets(name, browser):
    tasks = curves(p=2)
    check(browser, fitted(name, tasks), contexts(p=2), AT, SEARCHED)


@pytest.mark.parametrize("name", ["fpca", "warped student", "hierarchical gp", "gp per task"])
def test_several_inputs(name, browser):
    tasks, at = curves(n=14, d=2), np.random.default_rng(0).uniform(0, 10, (30, 2))
    method = FPCA(size=3) if name == "fpca" else make_method(name, tasks, 0)
    check(browser, MetaGP.of(method.fit(tasks)), contexts(d=2), at, SEARCHED)


def test_sums_of_curves(browser):
    tasks, at = curves(n=14, d=3), np.random.default_rng(0).uniform(0, 10, (30, 3))
    check(browser, MetaGP.of(FPCA(size=4).fit(tasks)), contexts(d=3), at, EXACT)


@pytest.mark.parametrize("name", ["hyper-posterior", "hierarchical gp"])
def test_task_covariates(name, browser):
    tasks = curves()
    known = {"age": np.linspace(0, 1, len(tasks)).tolist(), "diet": [("a", "b", "c")[i % 3] for i in range(len(tasks))]}
    tasks = tasks.with_task_x(known)
    gp = fitted(name, tasks)
    check(browser, gp, contexts(), AT, SEARCHED, task_x={"age": 0.3, "diet": "b"}, about=[0.3, 0, 1, 0])


@pytest.mark.parametrize("whole", [True, False])
def test_possible_values(whole, browser):
    cut = {"of": lambda y: np.maximum(np.round(2 * y), 0)}
    tasks = curves(**cut).with_possible((0, 12), whole)
    gp = MetaGP(rungs=["fpca", "warped student"], progress=False).fit(tasks)
    check(browser, gp, contexts(**cut), AT, SEARCHED)
    check(browser, MetaGP("constant", "matern", **QUICK).fit(tasks), contexts(**cut), AT, EXACT)


def test_a_combination_of_given_methods(browser):
    tasks = curves()
    both = Combination([make_method(name, tasks, 0) for name in ("fpca", "last value")], [0.7, 0.3]).fit(tasks)
    check(browser, MetaGP.of(both), contexts(), AT, SEARCHED)
