"""What a learned prior is up against."""

from metaprior.baselines.refitted import RefittedRBF

__all__ = ["RefittedRBF"]
