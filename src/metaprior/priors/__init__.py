"""What is learned: networks, bases, means, kernels, noise, and the prior that joins them."""

from metaprior.priors.bases import (
    BASES,
    AdditiveBasis,
    Basis,
    FourierBasis,
    PolynomialBasis,
    SplineBasis,
    TensorBasis,
    described_basis,
    make_basis,
)
from metaprior.priors.hyperprior import HyperPrior
from metaprior.priors.kernels import (
    KERNELS,
    BasisKernel,
    DeepKernel,
    DirectKernel,
    EigenfunctionKernel,
    FeatureKernel,
    InnerProduct,
    Shape,
    kernel_features,
    kernel_matrix,
    make_kernel,
    shape_name,
    squared_distances,
    squares_in_lengthscales,
)
from metaprior.priors.means import MEANS, BasisMean, DeepMean, DeepMeans, FixedMean, make_mean, mean_values
from metaprior.priors.networks import ACTIVATIONS, MadeFor, Network, NetworkOptions
from metaprior.priors.noise import DeepNoise, FixedNoise, LearnedNoise
from metaprior.priors.prior import AtPoints, Prior
from metaprior.priors.shared_curve import JITTER, HierarchicalKernel, SharedCurve, SharedMean, matern_3, matern_5
from metaprior.priors.spec import CONFIGURATIONS, DTYPES, PriorSpec, make_prior
from metaprior.priors.stack import Stack, stacked, structure_of
from metaprior.priors.tails import Degrees
from metaprior.priors.warps import WARPS, Warp, make_warp

__all__ = [
    "ACTIVATIONS",
    "BASES",
    "CONFIGURATIONS",
    "DTYPES",
    "JITTER",
    "KERNELS",
    "MEANS",
    "WARPS",
    "AdditiveBasis",
    "AtPoints",
    "Basis",
    "BasisKernel",
    "BasisMean",
    "DeepKernel",
    "DeepMean",
    "DeepMeans",
    "DeepNoise",
    "Degrees",
    "DirectKernel",
    "EigenfunctionKernel",
    "FeatureKernel",
    "FixedMean",
    "FixedNoise",
    "FourierBasis",
    "HierarchicalKernel",
    "HyperPrior",
    "InnerProduct",
    "LearnedNoise",
    "MadeFor",
    "Network",
    "NetworkOptions",
    "PolynomialBasis",
    "Prior",
    "PriorSpec",
    "Shape",
    "SharedCurve",
    "SharedMean",
    "SplineBasis",
    "Stack",
    "TensorBasis",
    "Warp",
    "described_basis",
    "kernel_features",
    "kernel_matrix",
    "make_basis",
    "make_kernel",
    "make_mean",
    "make_prior",
    "make_warp",
    "matern_3",
    "matern_5",
    "mean_values",
    "shape_name",
    "squared_distances",
    "squares_in_lengthscales",
    "stacked",
    "structure_of",
]  # fmt: skip
