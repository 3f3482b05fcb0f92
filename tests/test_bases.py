import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from metaprior import DataError, OptionError, Prior, Tasks, UnknownNameError, condition
from metaprior.priors import (
    AdditiveBasis,
    BasisKernel,
    BasisMean,
    FourierBasis,
    PolynomialBasis,
    SplineBasis,
    TensorBasis,
    described_basis,
    make_basis,
)

BASES = {
    "spline": lambda q: SplineBasis(-1.0, 3.0, np.linspace(-1, 3, q - 2)[1:-1]),
    "uneven spline": lambda q: SplineBasis(-1.0, 3.0, -1 + 4 * np.linspace(0, 1, q - 2)[1:-1] ** 2),
    "linear spline": lambda q: SplineBasis(-1.0, 3.0, np.linspace(-1, 3, q)[1:-1], degree=1),
    "polynomial": lambda q: PolynomialBasis(-1.0, 3.0, q),
    "fourier": lambda q: FourierBasis(-1.0, 3.0, q),
}


def legendre_rule(lower, upper, pieces=2000, nodes=8):
    """Points and weights of a fine composite Gauss rule; kinks inside a piece cost a little."""
    at, weight = np.polynomial.legendre.leggauss(nodes)
    ends = np.linspace(lower, upper, pieces + 1)
    half = np.diff(ends) / 2
    points = (ends[:-1] + half)[:, None] + half[:, None] * at
    return torch.from_numpy(points.ravel()), torch.from_numpy((half[:, None] * weight).ravel())


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("q", [4, 7, 12])
def test_a_basis_is_orthonormal(name, q):
    basis = BASES[name](q)
    x, weight = legendre_rule(-1.0, 3.0)
    values = basis(x[:, None])
    assert values.shape == (len(x), q)
    assert (values.mT @ (weight[:, None] * values)).numpy() == pytest.approx(np.eye(q), abs=1e-6)


def test_splines_are_those_of_scipy():
    knots = [0.2, 0.5, 0.55]
    basis = SplineBasis(0.0, 1.0, knots)
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    everything = np.array([0.0] * 4 + knots + [1.0] * 4)
    expected = BSpline.design_matrix(x.numpy(), everything, 3).toarray()
    assert basis._plain(x).numpy() == pytest.approx(expected, abs=1e-12)


def test_beyond_its_domain_a_basis_keeps_its_value_at_the_edge():
    for make in BASES.values():
        basis = make(5)
        inside, outside = basis(torch.tensor([[-1.0], [3.0]]).double()), basis(torch.tensor([[-9.0], [50.0]]).double())
        assert torch.equal(inside, outside)


def test_a_tensor_product_is_orthonormal_in_the_plane():
    basis = TensorBasis(PolynomialBasis(0.0, 2.0, 3), FourierBasis(-1.0, 1.0, 4))
    (x, wx), (y, wy) = legendre_rule(0.0, 2.0, 20), legendre_rule(-1.0, 1.0, 20)
    points, weight = torch.cartesian_prod(x, y), torch.outer(wx, wy).flatten()
    values = basis(points)
    assert (values.mT @ (weight[:, None] * values)).numpy() == pytest.approx(np.eye(12), abs=1e-9)


def additive():
    splines = SplineBasis(0.0, 2.0, [0.4, 0.6], degree=2)  # knots where pieces of the rule end
    return AdditiveBasis([splines, PolynomialBasis(-1.0, 2.0, 3), FourierBasis(3.0, 4.0, 3)])


def test_sums_of_curves_are_orthonormal_in_space():
    basis = additive()
    assert basis.size == 1 + 4 + 2 + 2
    rules = [legendre_rule(lower, upper, 10, 6) for lower, upper in ((0.0, 2.0), (-1.0, 2.0), (3.0, 4.0))]
    points = torch.cartesian_prod(*(x for x, _ in rules))
    weight = torch.cartesian_prod(*(w for _, w in rules)).prod(1)
    values = basis(points)
    assert (values.mT @ (weight[:, None] * values)).numpy() == pytest.approx(np.eye(9), abs=1e-9)


def test_sums_of_curves_hold_any_sum_and_are_made_again_from_their_description():
    basis, random = additive(), np.random.default_rng(0)
    x = torch.from_numpy(random.uniform([0, -1, 3], [2, 2, 4], (60, 3)))
    y = 3 - x[:, 0] ** 2 + 2 * x[:, 1] + (2 * np.pi * x[:, 2]).sin()
    rest = y - basis(x) @ torch.linalg.lstsq(basis(x), y[:, None]).solution[:, 0]
    assert float(rest.abs().max()) < 1e-10
    assert torch.equal(described_basis(basis.described())(x), basis(x))


def test_several_inputs_have_products_of_two_and_sums_of_more():
    x = torch.from_numpy(np.random.default_rng(0).uniform(size=(30, 3)))
    x[:, 2] = x[:, 2].round()  # two values tell two functions apart
    assert make_basis("spline", x[:, :2], 3).size == 9
    assert make_basis("spline", x, 3).size == 1 + 2 + 2 + 1
    assert make_basis("spline", x[:, 1:], 5).size == 5 * 2


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_as_many_splines_as_inputs_pass_through_anything(size):
    x = torch.tensor(np.random.default_rng(size).uniform(size=(size + 1, 1)))
    basis = make_basis("spline", x, size + 1)
    assert basis.size == size + 1
    assert int(torch.linalg.matrix_rank(basis(x))) == size + 1


def test_what_a_basis_refuses():
    x = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    with pytest.raises(DataError, match="only 8 distinct inputs: give at most 8"):
        make_basis("spline", x, 9)
    with pytest.raises(OptionError, match="leave the domain from 0 to 1"):
        make_basis("spline", x, 5, knots=[0.5, 1.5])
    with pytest.raises(DataError, match="give fewer knots or functions"):
        make_basis("spline", x, 5, knots=[0.01, 0.02, 0.03, 0.04, 0.05])
    with pytest.raises(DataError, match="the same point"):
        make_basis("fourier", torch.zeros(5, 1).double(), 1)
    with pytest.raises(UnknownNameError, match="wavelet"):
        make_basis("wavelet", x, 5)
    with pytest.raises(OptionError, match="belong to a spline basis of one input"):
        make_basis("fourier", x, 5, knots=[0.5])
    with pytest.raises(OptionError, match="0 functions"):
        PolynomialBasis(0.0, 1.0, 0)
    with pytest.raises(OptionError, match="beginning before its end"):
        FourierBasis(1.0, 1.0, 3)
    with pytest.raises(DataError, match="points with 2 inputs"):
        FourierBasis(0.0, 1.0, 3)(torch.zeros(4, 2).double())


@given(
    name=st.sampled_from(sorted(BASES)),
    q=st.integers(4, 14),
    n=st.integers(1, 25),
    noise=st.floats(-6, 1).map(lambda power: 10.0**power),
    seed=st.integers(0, 10_000),
)
def test_the_proposition(name, q, n, noise, seed):
    """A GP with mean bᵀθ and kernel bᵀb has the posterior of the mixed model (eq:fpca_mu, eq:fpca_sigma)."""
    rng = np.random.default_rng(seed)
    basis = BASES[name](q)
    theta = torch.tensor(rng.normal(size=(q, 1)))
    x, star = (torch.tensor(rng.uniform(-1, 3, (count, 1))) for count in (n, 6))
    y = torch.tensor(rng.normal(size=(n, 1)))
    prior = Prior(BasisMean(basis, theta), BasisKernel(basis), noise, learn=())
    posterior = condition(prior, Tasks.from_pairs([(x, y)])).at(Tasks.from_inputs([star]))
    with torch.no_grad():
        B, B_star, eye = basis(x), basis(star), torch.eye(q, dtype=torch.float64)
        gamma = torch.linalg.inv(eye + B.mT @ B / noise)
        beta = theta + torch.linalg.solve(B.mT @ B + noise * eye, B.mT @ (y - B @ theta))
        mean, covariance = B_star @ beta, noise * torch.eye(6, dtype=torch.float64) + B_star @ gamma @ B_star.mT
    scale = float((B_star @ B_star.mT).diagonal().max())  # of the prior, whose cancellation leaves the posterior
    assert posterior.mean.numpy() == pytest.approx(mean.numpy(), rel=1e-8, abs=1e-8 * float(mean.abs().max()))
    assert posterior.covariances()[0][0].numpy() == pytest.approx(covariance.numpy(), abs=1e-8 * scale)
