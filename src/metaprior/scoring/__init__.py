"""How good it is: errors, likelihoods, calibration, paired differences."""

from metaprior.scoring.scores import (
    LEVELS,
    Scores,
    Summary,
    evaluate,
    paired_difference,
    recorded_density,
    rounded_density,
    score,
    summarise,
)

__all__ = [
    "LEVELS",
    "Scores",
    "Summary",
    "evaluate",
    "paired_difference",
    "recorded_density",
    "rounded_density",
    "score",
    "summarise",
]
