"""What the paper says of its experiments, and whether it holds."""

from metaprior.paper.claims.statements import CLAIMS, judge

__all__ = ["CLAIMS", "judge"]
