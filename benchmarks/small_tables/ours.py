"""metaprior as a user has it: nothing is set for a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metaprior import MetaGP, Posterior, Tasks
from small_tables.protocol import LEVEL, Array, Pair, Predict


class Said:
    """A posterior at all targets of a cell."""

    def __init__(self, posterior: Posterior) -> None:
        self.posterior = posterior
        self.mean = _flat(posterior.mean)
        self.interval = tuple(_flat(bound) for bound in posterior.interval(LEVEL))

    def log_density(self, y: Array) -> Array:
        return _flat(self.posterior.log_density(torch.from_numpy(y)))

    def bounds(self) -> tuple[Array, Array]:
        lower, upper = self.interval
        return lower, upper

    def crps(self, y: Array) -> Array:
        return _flat(self.posterior.crps(torch.from_numpy(y)))


def fit(name: str, train: Sequence[Pair]) -> Predict:
    """`auto`, or one rung of its ladder by name."""
    rungs: dict[str, Any] = {} if name == "auto" else {"rungs": [name]}
    gp = MetaGP(progress=False, **rungs).fit(Tasks.from_pairs(train))

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Said:
        return Said(gp.predict(Tasks.from_pairs(contexts), Tasks.from_inputs(inputs)))

    return predict


def _flat(values: Any) -> Array:
    return np.asarray(values.detach().cpu(), float).reshape(-1)
