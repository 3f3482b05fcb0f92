"""What can be learned from tasks and asked of new ones: a learned prior, warped targets."""

from metaprior.methods.learned import LearnedPrior
from metaprior.methods.warped import Warped, learned_warp

__all__ = ["LearnedPrior", "Warped", "learned_warp"]
