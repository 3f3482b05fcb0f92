"""Learn a Gaussian-process prior from many small related tasks; predict a new one from a few points."""

from metaprior.data import Shards, shard
from metaprior.errors import (
    DataError,
    MetapriorError,
    MetapriorWarning,
    NotFittedError,
    NumericalError,
    OptionError,
    OutputError,
    UnknownNameError,
)
from metaprior.inference import Conditional, Evidence, Method, Posterior, Suggestion, condition, evidence
from metaprior.learning import Training, TrainingSpec, meta_train
from metaprior.methods import FPCA, MAML, Combination, HierarchicalGP, HyperPosterior, LearnedPrior, Mixture, Warped
from metaprior.model import MetaGP, load
from metaprior.priors import (
    CONFIGURATIONS,
    DeepKernel,
    DeepMean,
    FixedMean,
    FixedNoise,
    HyperPrior,
    LearnedNoise,
    Prior,
    PriorSpec,
    make_prior,
)
from metaprior.scoring import Scores, Summary, paired_difference, score
from metaprior.selection import Auto
from metaprior.tasks import Covariate, Scaler, Task, Tasks

__version__ = "0.2.0"

__all__ = [
    "CONFIGURATIONS", "FPCA", "MAML", "Auto", "Combination", "Conditional", "Covariate", "DataError", "DeepKernel",
    "DeepMean", "Evidence", "FixedMean", "FixedNoise", "HierarchicalGP", "HyperPosterior", "HyperPrior", "LearnedNoise",
    "LearnedPrior",
    "MetaGP", "MetapriorError", "MetapriorWarning", "Method", "Mixture", "NotFittedError", "NumericalError",
    "OptionError", "OutputError", "Posterior", "Prior", "PriorSpec", "Scaler", "Scores", "Shards", "Suggestion",
    "Summary", "Task", "Tasks", "Training", "TrainingSpec", "UnknownNameError", "Warped", "condition", "evidence",
    "load", "make_prior", "meta_train", "paired_difference", "score", "shard",
]  # fmt: skip
