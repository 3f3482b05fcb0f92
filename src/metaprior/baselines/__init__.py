"""What a learned prior is up against."""

from metaprior.baselines.fit_on_target import MeanFitOnTarget
from metaprior.baselines.fpca import FPCA, ComponentScores
from metaprior.baselines.maml import MAML, MetaUpdates, RandomEpisodes, Start
from metaprior.baselines.network import NeuralNetwork
from metaprior.baselines.per_task import GPPerTask
from metaprior.baselines.points import PointMethod, VarianceBySize
from metaprior.baselines.refitted import RefittedRBF
from metaprior.baselines.simple import ContextMean, LastValue

__all__ = [
    "FPCA",
    "MAML",
    "ComponentScores",
    "ContextMean",
    "GPPerTask",
    "LastValue",
    "MeanFitOnTarget",
    "MetaUpdates",
    "NeuralNetwork",
    "PointMethod",
    "RandomEpisodes",
    "RefittedRBF",
    "Start",
    "VarianceBySize",
]
