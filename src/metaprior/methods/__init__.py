"""What can be learned from tasks and asked of new ones: a learned prior, warped targets, several methods as one."""

from metaprior.methods.combined import Combination
from metaprior.methods.learned import LearnedPrior
from metaprior.methods.warped import Warped, learned_warp

__all__ = ["Combination", "LearnedPrior", "Warped", "learned_warp"]
