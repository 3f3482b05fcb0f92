"""The paper's arguments: exact where they are exact, and the experiment that runs them."""

import json

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaprior import Prior, Tasks, condition
from metaprior.paper import CHAPTERS, Options, run_experiment, write_page
from metaprior.paper.experiments.theory import PARTS
from metaprior.paper.experiments.theory.components import BASES, identity_gap
from metaprior.paper.experiments.theory.counter_example import KERNELS, draw_points, posterior, truth
from metaprior.paper.experiments.theory.parameterisations import adapted, averaged, permuted, rescaled
from metaprior.priors import FixedMean, Network
from metaprior.report import draw_figures


@given(
    kernel=st.sampled_from(sorted(KERNELS)),
    n=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    scale=st.floats(0.05, 20.0),
)
def test_no_kernel_knows_what_a_zero_mean_does_not(kernel, n, seed, scale):
    x = draw_points(3, n, 1.0, seed)
    at = torch.linspace(-2, 2, 33, dtype=torch.float64)[:, None]
    zero, _ = posterior("zero mean", kernel, x, at, seed)
    exact, _ = posterior("true mean", kernel, x, at, seed)
    assert not bool(zero.any())
    assert torch.equal(exact, truth(at)[:, 0].expand_as(exact))
    # and with a lengthscale and a variance of their own
    own = gpytorch.kernels.ScaleKernel(KERNELS[kernel](seed)).double()
    own.outputscale = scale
    prior = Prior(FixedMean(torch.zeros_like), own, 0.0, learn=())
    found = condition(prior, Tasks.from_pairs([(x[0], truth(x[0]))])).at(Tasks.from_inputs([at]))
    assert not bool(found.mean.any())


def test_the_truth_is_zero_where_it_is_seen_and_nowhere_else():
    x = torch.linspace(-2, 2, 401, dtype=torch.float64)[:, None]
    inside = x[:, 0].abs() <= 1
    assert not bool(truth(x)[inside].any())
    assert bool((truth(x[~inside][1:-1]) != 0).all())


@pytest.fixture(scope="module")
def network():
    return Network(1, 1, seed=4, hidden=(10, 9), activation="relu")


def test_rescaling_and_permuting_change_parameters_and_no_function(network):
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    for other in (rescaled(network, 3.0), permuted(network, 0)):
        assert other(x).detach().numpy() == pytest.approx(network(x).detach().numpy(), abs=1e-12)
        first, second = (torch.cat([p.flatten() for p in one.parameters()]) for one in (network, other))
        assert float((first - second).detach().abs().max()) > 0.1


def test_maml_sees_a_rescaling_and_no_permutation(network):
    rng = np.random.default_rng(0)
    context = Tasks.from_pairs([(rng.normal(size=5), rng.normal(size=5)) for _ in range(4)])
    x = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
    own = adapted(network, context, x)
    assert adapted(permuted(network, 1), context, x).numpy() == pytest.approx(own.numpy(), abs=1e-12)
    assert float((adapted(rescaled(network, 3.0), context, x) - own).abs().max()) > 1e-2


def test_halfway_between_permuted_copies_is_another_function(network):
    x = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
    middle = averaged(network, permuted(network, 1))
    assert float((middle(x) - network(x)).detach().abs().max()) > 1e-2
    assert averaged(network, network)(x).detach().numpy() == pytest.approx(network(x).detach().numpy())


@pytest.mark.parametrize("basis", BASES)
def test_the_identity_of_the_report(basis):
    assert float(torch.stack([identity_gap(BASES[basis], seed) for seed in range(20)]).max()) < 1e-8


@pytest.fixture(scope="module")
def quick():
    return run_experiment("theory", Options(quick=True, progress=False))


def test_the_quick_experiment_has_every_part(quick):
    assert set(quick.seconds) == set(PARTS)
    kinds = {row["setting"].rpartition(" = ")[0] for row in quick.rows}
    assert kinds == {"steps", "ñ", "m", "kernel", "points anywhere", "written", "basis", "known months"}
    held = {claim["id"]: claim["holds"] for claim in quick.claims}
    for name in ("zero-mean-stays-zero", "true-mean-is-exact", "maml-sees-scale", "maml-blind-to-order"):
        assert held[f"theory-{name}"]
    for name in ("average-of-parameters", "average-of-functions", "mean-independent", "fpca-is-a-gp"):
        assert held[f"theory-{name}"]


def test_a_part_can_be_run_alone():
    alone = run_experiment("theory", Options(quick=True, progress=False, methods=("counter-example",)))
    assert set(alone.seconds) == {"counter-example"}
    assert {claim["id"] for claim in alone.claims} >= {"theory-zero-mean-stays-zero", "theory-true-mean-is-exact"}


def test_its_figures_and_page(quick, tmp_path):
    quick.write(tmp_path)
    names = {path.stem for path in draw_figures(CHAPTERS["theory"], quick.rows, quick.curves, tmp_path)}
    assert names == {"overfitting", "counter-example", "parameterisations", "components"}
    write_page([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png") == 4
    assert "by kernel" in page
    assert "by written" in page
    assert json.loads((tmp_path / "results.json").read_text())["experiment"] == "theory"
