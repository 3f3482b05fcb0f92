"""How good it is: errors, likelihoods, calibration, paired differences."""

from metaprior.scoring.by_setting import scores_by_setting
from metaprior.scoring.scores import (
    LEVELS,
    METRICS,
    Metric,
    Scores,
    Summary,
    covers,
    evaluate,
    joined_scores,
    paired_difference,
    pit_share,
    score,
    summarise,
)

__all__ = [
    "LEVELS", "METRICS", "Metric", "Scores", "Summary", "covers", "evaluate", "joined_scores", "paired_difference",
    "pit_share", "score", "scores_by_setting", "summarise",
]  # fmt: skip
