"""What can be learned from tasks and asked of new ones: priors, kinds of tasks, networks, and what is simpler."""

from metaprior.methods.combined import Combination
from metaprior.methods.fit_on_target import MeanFitOnTarget
from metaprior.methods.fpca import FPCA, ComponentScores
from metaprior.methods.hierarchical import HierarchicalGP
from metaprior.methods.hyper_posterior import FEW_TASKS, HyperPosterior
from metaprior.methods.kinds import UNLIKELY
from metaprior.methods.learned import LearnedPrior
from metaprior.methods.maml import MAML, MetaUpdates, RandomEpisodes, Start
from metaprior.methods.mixture import Mixture
from metaprior.methods.network import NeuralNetwork
from metaprior.methods.per_task import GPPerTask, grid_of_kernels
from metaprior.methods.points import PointMethod, VarianceBySize
from metaprior.methods.refitted import RefittedRBF
from metaprior.methods.simple import ContextMean, LastValue
from metaprior.methods.streaming import OF_ONE, SAMPLE, All, Begun, fit_parts, go_on
from metaprior.methods.table import METHODS, Entry, add_methods, make_method, named_methods
from metaprior.methods.warped import Warped, learned_warp, learned_warps

__all__ = [
    "FEW_TASKS", "FPCA", "MAML", "METHODS", "OF_ONE", "SAMPLE", "UNLIKELY", "All", "Begun", "Combination",
    "ComponentScores", "ContextMean", "Entry", "GPPerTask", "HierarchicalGP", "HyperPosterior", "LastValue",
    "LearnedPrior", "MeanFitOnTarget", "MetaUpdates", "Mixture", "NeuralNetwork", "PointMethod", "RandomEpisodes",
    "RefittedRBF", "Start", "VarianceBySize", "Warped", "add_methods", "fit_parts", "go_on", "grid_of_kernels",
    "learned_warp", "learned_warps", "make_method", "named_methods",
]  # fmt: skip
