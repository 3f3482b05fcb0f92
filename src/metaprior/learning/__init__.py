"""How it is learned: Algorithm 1 and faster ways to the same optimum, stopping on held-out tasks."""

from metaprior.learning.checkpoints import CHECKPOINT, Checkpoint, fingerprint_of
from metaprior.learning.em import UNKNOWNS, Designs, Fit, MixedEffects, design_of, evidence_of, fit_em, start_of
from metaprior.learning.grids import GridDesigns, GridKind
from metaprior.learning.meta_train import Check, Training, meta_train, train
from metaprior.learning.mixtures import AnyDesigns, KindsEM, KindsFit, designs_of, k_means
from metaprior.learning.objective import OBJECTIVES, WEIGHTINGS, HeldOut, Objective, Weighting, evidence_loss
from metaprior.learning.spec import OptimizerName, TrainingSpec
from metaprior.learning.updates import LBFGS, RATES, Stochastic, make_updates

OPTIMIZERS = tuple(RATES)

__all__ = [
    "CHECKPOINT", "LBFGS", "OBJECTIVES", "OPTIMIZERS", "RATES", "UNKNOWNS", "WEIGHTINGS", "AnyDesigns", "Check",
    "Checkpoint", "Designs", "Fit", "GridDesigns", "GridKind", "HeldOut", "KindsEM", "KindsFit", "MixedEffects",
    "Objective", "OptimizerName", "Stochastic", "Training", "TrainingSpec", "Weighting", "design_of", "designs_of",
    "evidence_loss", "evidence_of", "fingerprint_of", "fit_em", "k_means", "make_updates", "meta_train", "start_of",
    "train",
]  # fmt: skip
