"""How it is learned: Algorithm 1 and faster ways to the same optimum, stopping on held-out tasks."""

from metaprior.learning.checkpoints import CHECKPOINT, Checkpoint, fingerprint_of
from metaprior.learning.em import UNKNOWNS, Designs, Fit, MixedEffects, design_of, evidence_of, fit_em, start_of
from metaprior.learning.lbfgs import learn_together
from metaprior.learning.meta_train import Check, Training, meta_train, meta_train_many, train
from metaprior.learning.mixtures import KindsFit, TaskDesigns, fit_kinds, k_means, kind_evidences
from metaprior.learning.objective import OBJECTIVES, WEIGHTINGS, HeldOut, Objective, Weighting, evidence_loss
from metaprior.learning.spec import OptimizerName, TrainingSpec
from metaprior.learning.threads import threads_for
from metaprior.learning.updates import LBFGS, RATES, Stochastic, make_updates

OPTIMIZERS = tuple(RATES)

__all__ = [
    "CHECKPOINT", "LBFGS", "OBJECTIVES", "OPTIMIZERS", "RATES", "UNKNOWNS", "WEIGHTINGS", "Check", "Checkpoint",
    "Designs", "Fit", "HeldOut", "KindsFit", "MixedEffects", "Objective", "OptimizerName", "Stochastic", "TaskDesigns",
    "Training", "TrainingSpec", "Weighting", "design_of", "evidence_loss", "evidence_of", "fingerprint_of", "fit_em",
    "fit_kinds", "k_means", "kind_evidences", "learn_together", "make_updates", "meta_train", "meta_train_many",
    "start_of", "threads_for", "train",
]  # fmt: skip
