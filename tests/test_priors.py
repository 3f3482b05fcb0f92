import gpytorch
import numpy as np
import pytest
import torch

from metaprior import (
    CONFIGURATIONS,
    DataError,
    DeepKernel,
    DeepMean,
    FixedMean,
    FixedNoise,
    LearnedNoise,
    OptionError,
    Prior,
    UnknownNameError,
    make_prior,
)
from metaprior.priors import Network, kernel_matrix, make_kernel
from metaprior.tasks import Inputs

X = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(
    ("activation", "function"), [("sigmoid", torch.sigmoid), ("tanh", torch.tanh), ("relu", torch.relu)]
)
def test_deep_mean_is_the_papers_equation(activation, function):
    mean = DeepMean(1, hidden=(5, 3), activation=activation, seed=0)
    (w1, b1), (w2, b2), (w3, b3) = [(m.weight, m.bias) for m in mean.network.layers if hasattr(m, "weight")]
    by_hand = function(function(X @ w1.mT + b1) @ w2.mT + b2) @ w3.mT + b3
    assert torch.allclose(mean(X), by_hand, rtol=1e-14)


def test_networks_are_repeatable_and_leave_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again, other = (Network(2, 1, hidden=(4,), activation="tanh", seed=s) for s in (0, 0, 1))
    x = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first(x), again(x))
    assert not torch.equal(first(x), other(x))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_starts_the_same_on_raw_inputs_as_on_scaled_ones():
    raw = 1000 + 50 * X
    scaled = (raw - raw.mean(0)) / raw.std(0, correction=0)
    moved = Network(1, 2, hidden=(6,), activation="sigmoid", seed=0, like=raw)
    assert torch.allclose(moved(raw), Network(1, 2, hidden=(6,), activation="sigmoid", seed=0)(scaled))


def test_float32_network_under_a_float64_covariance():
    prior = make_prior("deep", "deep", d=1, hidden=(4,), seed=0, network_dtype=torch.float32)
    assert {p.dtype for p in prior.mean.parameters()} == {torch.float32}
    z = prior.at(X)
    assert z.mean.dtype == z.features.dtype == prior.covariance(z, z).dtype == torch.float64


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_papers_four_configurations(name):
    prior = make_prior(*CONFIGURATIONS[name], d=1, seed=0)
    assert isinstance(prior.mean, DeepMean) == (name in ("learned mean", "learned both"))
    assert isinstance(prior.kernel, DeepKernel) == (name in ("learned kernel", "learned both"))
    z = prior.at(X)
    assert z.features.shape[-1] == (2 if isinstance(prior.kernel, DeepKernel) else 1)
    if not isinstance(prior.mean, DeepMean):
        assert z.mean.abs().max() == 0


def test_only_what_is_named_is_learned():
    prior = make_prior("deep", "rbf", d=1, hidden=(4,), learn=["mean"], seed=0)
    assert {p.requires_grad for p in prior.mean.parameters()} == {True}
    assert {p.requires_grad for p in (*prior.kernel.parameters(), *prior.noise.parameters())} == {False}
    assert len(prior.learned_parameters()) == 4
    with pytest.raises(UnknownNameError, match="Did you mean 'kernel'"):
        make_prior("zero", "rbf", d=1, learn=["kernal"], seed=0)


def test_noise_has_a_floor_and_fixed_noise_may_be_zero():
    noise = LearnedNoise(initial=0.5, floor=0.2)
    assert noise(X).tolist() == pytest.approx([0.5] * 7)
    with torch.no_grad():
        noise.raw.fill_(-1e6)
    assert noise(X).tolist() == [0.2] * 7
    assert FixedNoise(0)(X).tolist() == [0.0] * 7
    with pytest.raises(OptionError, match="needs a floor above 0"):
        LearnedNoise(floor=0.0)
    with pytest.raises(OptionError, match="0 or more"):
        FixedNoise(-1.0)
    assert LearnedNoise(initial=1000.0)(X).tolist() == pytest.approx([1000.0] * 7)
    with pytest.raises(OptionError, match="initial noise"):
        LearnedNoise(initial=float("nan"))


def test_float32_modules_of_gpytorch_plug_in_as_they_are():
    prior = make_prior(
        gpytorch.means.LinearMean(1), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), d=1, seed=0
    )
    assert {p.dtype for p in prior.parameters()} == {torch.float64}
    assert prior.at(X).mean.dtype == torch.float64


def test_numpy_integers_are_seeds_and_other_things_are_not():
    assert torch.equal(*(make_prior("deep", "rbf", d=1, seed=s).at(X).mean for s in (1, np.int64(1))))
    with pytest.raises(OptionError, match="whole number from 0"):
        make_prior("deep", "rbf", d=1, seed=-1)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("mean", ["zero", "constant", "linear", "deep"])
def test_each_output_has_its_own_mean(mean, p):
    prior = make_prior(mean, "rbf", d=1, p=p, hidden=(4,), seed=0)
    assert prior.at(X).mean.shape == (7, p)
    assert prior.at(X[None].expand(2, 7, 1)).mean.shape == (2, 7, p)


def test_any_gpytorch_mean_and_any_callable():
    quadratic = Prior(lambda x: x[..., 0] ** 2, gpytorch.kernels.RBFKernel().double(), 0.1, learn=())
    assert isinstance(quadratic.mean, FixedMean)
    assert torch.equal(quadratic.at(X).mean, X**2)
    constant = gpytorch.means.ConstantMean().double()
    assert make_prior(constant, "rbf", d=1, seed=0).mean is constant
    wrong = Prior(lambda x: x.sum(), gpytorch.kernels.RBFKernel().double(), 0.1, learn=())
    with pytest.raises(DataError, match="one value, or one row of outputs, per point"):
        wrong.at(X)


def test_deep_kernel_is_the_base_kernel_on_features():
    base = gpytorch.kernels.MaternKernel(nu=1.5).double()
    kernel = DeepKernel(1, 3, base=base, hidden=(4,), seed=0)
    z = kernel.features(X)
    assert z.shape == (7, 3)
    assert torch.allclose(kernel(X).to_dense(), base(z).to_dense())
    prior = Prior(gpytorch.means.ZeroMean(), kernel, 0.1, learn=())
    at = prior.at(X)
    assert torch.allclose(prior.covariance(at, at), base(z).to_dense())
    assert torch.allclose(prior.variance(at), torch.ones(7).double())


def test_distinct_points_once_is_the_same_as_every_point():
    x = torch.tensor([[0.0, 1.0, 0.0], [1.0, 2.0, 2.0]], dtype=torch.float64)[..., None]
    inputs = Inputs.of(x)
    assert len(inputs.distinct) == 3
    prior = make_prior("deep", "deep", d=1, p=2, hidden=(4,), seed=0)
    once, each = prior.at(inputs.distinct).gather(inputs.index), prior.at(x)
    for part in ("mean", "features", "noise"):
        assert torch.allclose(getattr(once, part), getattr(each, part), rtol=1e-13)


def test_covariances_looked_up_among_distinct_pairs_are_the_same():
    x = torch.randn(6, 5, 1, generator=torch.Generator().manual_seed(0)).round().double()
    inputs = Inputs.of(x)
    assert 2 * len(inputs.distinct) ** 2 <= x.shape[0] * x.shape[1] ** 2  # so that it does look them up
    prior = make_prior("deep", "deep", d=1, hidden=(4,), seed=0)
    with torch.no_grad():
        looked_up = prior.at(inputs.distinct).gather(inputs.index)
        each = prior.at(x)
        expected = prior.covariance(each, each)
        assert prior.covariance(looked_up, looked_up) == pytest.approx(expected, rel=1e-13)
        some = looked_up.of_tasks(torch.tensor([3, 1, 5, 0]))
        assert prior.covariance(some, some) == pytest.approx(expected[[3, 1, 5, 0]], rel=1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": "dep", "kernel": "rbf"}, "unknown mean 'dep'. Did you mean 'deep'"),
        ({"mean": "zero", "kernel": "matrn"}, "unknown kernel 'matrn'. Did you mean 'matern'"),
        ({"mean": "deep", "kernel": "rbf", "activation": "sigmod"}, "Did you mean 'sigmoid'"),
        ({"mean": "deep", "kernel": "rbf", "hidden": (0,)}, "each needs one or more"),
    ],
)
def test_bad_names_and_sizes(options, message):
    with pytest.raises((UnknownNameError, OptionError), match=message):
        make_prior(d=1, seed=0, **options)


@pytest.mark.parametrize("name", ["rbf", "matern", "exponential"])
@pytest.mark.parametrize("q", [1, 3, 20])
def test_slopes_of_stationary_kernels_are_those_that_gpytorch_traces(name, q):
    kernel = make_kernel(name, d=q, seed=0).double()
    kernel.base_kernel.lengthscale = 0.8 * q**0.5
    random = torch.Generator().manual_seed(q)
    z1, z2 = (torch.randn(4, n, q, generator=random, dtype=torch.float64, requires_grad=True) for n in (6, 5))
    parameters = list(kernel.parameters())
    for pair in ((z1, z1), (z1, z2)):
        weight = torch.randn(4, 6, len(pair[1][0]), generator=random, dtype=torch.float64)
        ours, theirs = kernel_matrix(kernel, *pair), kernel(*pair).to_dense()
        torch.testing.assert_close(ours, theirs)
        inside = [*dict.fromkeys(pair), *parameters]
        found, expected = (torch.autograd.grad((weight * one).sum(), inside) for one in (ours, theirs))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # GPyTorch's distances are of products
