"""How it is learned: Algorithm 1 and faster ways to the same optimum, stopping on held-out tasks."""

from metaprior.learning.meta_train import Check, OptimizerName, Training, meta_train, train
from metaprior.learning.objective import OBJECTIVES, WEIGHTINGS, HeldOut, Objective, Weighting, evidence_loss
from metaprior.learning.updates import LBFGS, RATES, make_updates

OPTIMIZERS = tuple(RATES)

__all__ = [
    "LBFGS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "RATES",
    "WEIGHTINGS",
    "Check",
    "HeldOut",
    "Objective",
    "OptimizerName",
    "Training",
    "Weighting",
    "evidence_loss",
    "make_updates",
    "meta_train",
    "train",
]
