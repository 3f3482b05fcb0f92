"""How it is learned: Algorithm 1 and faster ways to the same optimum, stopping on held-out tasks."""

from metaprior.learning.checkpoints import CHECKPOINT, Checkpoint, fingerprint_of, going_on
from metaprior.learning.designs import Designs, design_of
from metaprior.learning.em import UNKNOWNS, Fit, MixedEffects, Statistics, check_rank, evidence_of, fit_em, start_of
from metaprior.learning.grid_kinds import GridDesigns, GridKind
from metaprior.learning.grids import Grids
from metaprior.learning.lbfgs import learn_together
from metaprior.learning.meta_train import Check, Training, meta_train, meta_train_many, train
from metaprior.learning.mixtures import AnyDesigns, KindsEM, KindsFit, TaskDesigns, designs_of, fit_kinds, k_means
from metaprior.learning.objective import OBJECTIVES, WEIGHTINGS, HeldOut, Objective, Weighting, evidence_loss
from metaprior.learning.ranks import Ranks
from metaprior.learning.spec import OptimizerName, TrainingSpec
from metaprior.learning.stacks import Curves, StackedCurves
from metaprior.learning.streaming import Going, em_over_parts, learn_over_parts
from metaprior.learning.threads import one_thread, threads_for
from metaprior.learning.together import (
    NO_BASIS,
    NO_SCORES,
    NOT_FINITE,
    Learned,
    Models,
    error_of,
    evidence_together,
    fit_together,
    starts,
)
from metaprior.learning.updates import LBFGS, RATES, Stochastic, make_updates

OPTIMIZERS = tuple(RATES)

__all__ = [
    "CHECKPOINT", "LBFGS", "NOT_FINITE", "NO_BASIS", "NO_SCORES", "OBJECTIVES", "OPTIMIZERS", "RATES", "UNKNOWNS",
    "WEIGHTINGS", "AnyDesigns", "Check", "Checkpoint", "Curves", "Designs", "Fit", "Going", "GridDesigns",
    "GridKind", "Grids", "HeldOut", "KindsEM", "KindsFit", "Learned", "MixedEffects", "Models", "Objective",
    "OptimizerName", "Ranks", "StackedCurves", "Statistics", "Stochastic", "TaskDesigns", "Training",
    "TrainingSpec", "Weighting", "check_rank", "design_of", "designs_of", "em_over_parts", "error_of",
    "evidence_loss", "evidence_of", "evidence_together", "fingerprint_of", "fit_em", "fit_kinds", "fit_together",
    "going_on", "k_means", "learn_over_parts", "learn_together", "make_updates", "meta_train", "meta_train_many",
    "one_thread", "start_of", "starts", "threads_for", "train",
]  # fmt: skip
