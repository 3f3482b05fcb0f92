"""The methods that a user can choose from, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from metaprior.baselines import FPCA, MAML, Contexts, GPPerTask, LastValue, NeuralNetwork
from metaprior.errors import UnknownNameError
from metaprior.inference import Method
from metaprior.methods import LearnedPrior
from metaprior.priors import CONFIGURATIONS
from metaprior.selection.splits import ContextsBySetting
from metaprior.tasks import Tasks, TrainedOn

SIMPLE = ("last value", "gp per task")
"""What needs no other tasks: a learned prior has to beat both."""

EPISODES = 2_000
"""Tasks that MAML is trained on in all, with repetition."""


class Choosable(Method, Protocol):
    """A method that can be kept in a file."""

    trained_on_: TrainedOn
    scores_: dict[str, Any]

    def save(self, path: str | Path) -> None: ...


Maker = Callable[[Tasks, int, Contexts | None], Choosable]
"""A method that is about to learn from these tasks, with this seed, to be asked from such contexts."""


def _prior(mean: str, kernel: str) -> Maker:
    return lambda tasks, seed, _: LearnedPrior(
        mean, kernel, max_epochs=300, held_out=spare(tasks), seed=seed, progress=False
    )


def _maml(tasks: Tasks, seed: int, contexts: Contexts | None) -> MAML:
    epochs, share = min(max(EPISODES // len(tasks), 1), 200), spare(tasks) or 0.5
    return MAML(contexts=contexts, max_epochs=epochs, patience=20, held_out=share, seed=seed, progress=False)


def _network(tasks: Tasks, seed: int, contexts: Contexts | None) -> NeuralNetwork:
    share = spare(tasks) or 0.5
    return NeuralNetwork(contexts=contexts, max_epochs=300, held_out=share, seed=seed, progress=False)


METHODS: dict[str, Maker] = {
    **{name: _prior(*parts) for name, parts in CONFIGURATIONS.items()},
    "fpca": lambda tasks, seed, _: FPCA(seed=seed),
    "maml": _maml,
    "neural network": _network,
    "shared gp": _prior("constant", "matern"),
    "last value": lambda tasks, seed, contexts: LastValue(contexts=contexts, held_out=spare(tasks) or 0.5, seed=seed),
    "gp per task": lambda tasks, seed, _: GPPerTask(),
}


def make_method(name: str, tasks: Tasks, seed: int = 0, contexts: ContextsBySetting | None = None) -> Choosable:
    """A method by name, ready to learn from these tasks.

    contexts: how it will be asked. Where that is not at random, methods that predict single values take their variance
    from held-out tasks split so, and MAML trains on such splits.
    """
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    if contexts is None or contexts.at_random:
        return METHODS[name](tasks, seed, None)
    return METHODS[name](tasks, seed, lambda given: list(contexts(given).values()))


def spare(tasks: Tasks) -> float | None:
    """The share of the tasks to stop by: a tenth, more where that is less than five, none where there are but two."""
    if len(tasks) < 3:
        return None
    return min(max(0.1, 5 / len(tasks)), 0.34)
