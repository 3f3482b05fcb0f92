"""How good it is: errors, likelihoods, calibration, paired differences."""

from metaprior.scoring.scores import (
    LEVELS,
    METRICS,
    Metric,
    Scores,
    Summary,
    evaluate,
    joined_scores,
    paired_difference,
    recorded_density,
    rounded_density,
    score,
    summarise,
)

__all__ = [
    "LEVELS", "METRICS", "Metric", "Scores", "Summary", "evaluate", "joined_scores", "paired_difference",
    "recorded_density", "rounded_density", "score", "summarise",
]  # fmt: skip
