"""What is learned: networks, means, kernels, noise, and the prior that joins them."""

from metaprior.priors.kernels import KERNELS, DeepKernel
from metaprior.priors.means import MEANS, DeepMean, DeepMeans, FixedMean
from metaprior.priors.networks import ACTIVATIONS, Network, NetworkOptions
from metaprior.priors.noise import FixedNoise, LearnedNoise
from metaprior.priors.prior import CONFIGURATIONS, AtPoints, Prior, make_prior

__all__ = [
    "ACTIVATIONS",
    "CONFIGURATIONS",
    "KERNELS",
    "MEANS",
    "AtPoints",
    "DeepKernel",
    "DeepMean",
    "DeepMeans",
    "FixedMean",
    "FixedNoise",
    "LearnedNoise",
    "Network",
    "NetworkOptions",
    "Prior",
    "make_prior",
]
