"""What is learned from tasks and asked of new ones: a prior, kinds of tasks, warped targets, methods as one."""

from metaprior.methods.combined import Combination
from metaprior.methods.hyper_posterior import FEW_TASKS, HyperPosterior
from metaprior.methods.learned import LearnedPrior
from metaprior.methods.mixture import Mixture
from metaprior.methods.warped import Warped, learned_warp

__all__ = ["FEW_TASKS", "Combination", "HyperPosterior", "LearnedPrior", "Mixture", "Warped", "learned_warp"]
