"""The methods that a user can choose from, by name."""

from __future__ import annotations

from collections.abc import Callable

from metaprior.baselines import FPCA, MAML, GPPerTask, LastValue, NeuralNetwork
from metaprior.errors import UnknownNameError
from metaprior.inference import KeptMethod
from metaprior.methods import LearnedPrior
from metaprior.priors import CONFIGURATIONS
from metaprior.selection.auto import Auto
from metaprior.selection.ladder import LADDER
from metaprior.splits import Contexts, spare
from metaprior.tasks import Tasks

SIMPLE = ("last value", "gp per task")
"""What needs no other tasks: a learned prior has to beat both."""

EPISODES = 2_000
"""Tasks that MAML is trained on in all, with repetition."""


Maker = Callable[[Tasks, int, Contexts | None], KeptMethod]
"""A method that is about to learn from these tasks, with this seed, to be asked from such contexts."""


def _prior(mean: str, kernel: str) -> Maker:
    return lambda tasks, seed, _: LearnedPrior(
        mean, kernel, max_epochs=300, held_out=spare(len(tasks)), seed=seed, progress=False
    )


def _maml(tasks: Tasks, seed: int, contexts: Contexts | None) -> MAML:
    epochs, share = min(max(EPISODES // len(tasks), 1), 200), spare(len(tasks)) or 0.5
    return MAML(contexts=_given(contexts), max_epochs=epochs, patience=20, held_out=share, seed=seed, progress=False)


def _network(tasks: Tasks, seed: int, contexts: Contexts | None) -> NeuralNetwork:
    share = spare(len(tasks)) or 0.5
    return NeuralNetwork(contexts=_given(contexts), max_epochs=300, held_out=share, seed=seed, progress=False)


def _last_value(tasks: Tasks, seed: int, contexts: Contexts | None) -> LastValue:
    return LastValue(contexts=_given(contexts), held_out=spare(len(tasks)) or 0.5, seed=seed)


def _given(contexts: Contexts | None) -> Contexts | None:
    """How a method will be asked, where that is not at random."""
    return None if contexts is None or contexts.at_random else contexts


def _rung(name: str) -> Maker:
    return lambda tasks, seed, _: LADDER[name](tasks, seed)


COMPARED: dict[str, Maker] = {
    **{name: _prior(*parts) for name, parts in CONFIGURATIONS.items()},
    "fpca": lambda tasks, seed, _: FPCA(seed=seed),
    "maml": _maml,
    "neural network": _network,
    "shared gp": _prior("constant", "matern"),
    "last value": _last_value,
    "gp per task": lambda tasks, seed, _: GPPerTask(),
}
"""The paper's methods and the simple ones: what is compared unless others are asked for."""

METHODS: dict[str, Maker] = {
    **COMPARED,
    **{name: _rung(name) for name in LADDER if name not in COMPARED},
    "auto": lambda tasks, seed, contexts: Auto(contexts=contexts, seed=seed, progress=False),
}
"""With the rungs that `auto` chooses from, and the choice itself."""


def make_method(name: str, tasks: Tasks, seed: int = 0, contexts: Contexts | None = None) -> KeptMethod:
    """A method by name, ready to learn from these tasks.

    contexts: how it will be asked. Where that is not at random, methods that predict single values take their variance
    from held-out tasks split so, and MAML trains on such splits.
    """
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    return METHODS[name](tasks, seed, contexts)
