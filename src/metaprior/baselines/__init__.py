"""What a learned prior is up against."""

from metaprior.baselines.fit_on_target import MeanFitOnTarget
from metaprior.baselines.network import NeuralNetwork
from metaprior.baselines.points import IndependentGaussians, PointMethod, VarianceBySize
from metaprior.baselines.refitted import RefittedRBF
from metaprior.baselines.simple import ContextMean, LastValue

__all__ = [
    "ContextMean",
    "IndependentGaussians",
    "LastValue",
    "MeanFitOnTarget",
    "NeuralNetwork",
    "PointMethod",
    "RefittedRBF",
    "VarianceBySize",
]
