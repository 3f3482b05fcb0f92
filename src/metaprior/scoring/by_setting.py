"""Scores of a method on tasks that are split into contexts and targets: the one way to them, whoever asks."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metaprior.inference import Method
from metaprior.scoring.scores import Scores, evaluate
from metaprior.splits import Contexts
from metaprior.tasks import Tasks, resolution


def scores_by_setting(
    method: Method, tasks: Tasks, contexts: Contexts, steps: Float[Tensor, " p"] | None = None
) -> dict[str, Scores]:
    """All metrics of a fitted method, by setting.

    Args:
        method: predicts the targets of each task from its context.
        tasks: the tasks to score.
        contexts: how they are split; an error where none of them can be.
        steps: the step in which each target was recorded; default: as the tasks' own values show.
    """
    steps = resolution(tasks) if steps is None else steps
    return {setting: evaluate(method, *split, steps) for setting, split in contexts(tasks).items()}
