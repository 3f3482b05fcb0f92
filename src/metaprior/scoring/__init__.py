"""How good it is: errors, likelihoods, calibration, paired differences."""

from metaprior.scoring.by_setting import scores_by_setting
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
    "recorded_density", "rounded_density", "score", "scores_by_setting", "summarise",
]  # fmt: skip
