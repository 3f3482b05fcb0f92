"""The one table of methods: how each is made, when it is tried, and how it is drawn. A new method is an entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import OptionError, UnknownNameError
from metaprior.inference import KeptMethod
from metaprior.methods.fpca import FPCA
from metaprior.methods.hierarchical import HierarchicalGP
from metaprior.methods.hyper_posterior import HyperPosterior
from metaprior.methods.learned import LearnedPrior
from metaprior.methods.maml import MAML
from metaprior.methods.mixture import Mixture
from metaprior.methods.network import NeuralNetwork
from metaprior.methods.per_task import GPPerTask
from metaprior.methods.simple import ContextMean, LastValue
from metaprior.methods.warped import Warped
from metaprior.priors import CONFIGURATIONS
from metaprior.splits import Contexts, spare
from metaprior.tasks import Tasks

MANY = 400
"""From so many tasks on, patients of few points are the rule: each counts the same, however often it was measured."""

MANY_TASKS: dict[str, Any] = {"weighting": "point", "hidden": (64, 32), "network_dtype": torch.float32}
"""How networks learn from so many: their points are thousands, so they have a quarter of the paper's units and half the
digits. (Compared with the paper's on tables of fewer tasks only.)"""

SOME = 100
"""From so many tasks on, one part of them tells how many functions and components there are."""

FEW_UNITS = (32, 32)
"""Hidden layers where there are fewer: on ten tables' held-out tasks as good as the paper's, and quicker."""

EPISODES = 2_000
"""Tasks that MAML is trained on in all, with repetition."""

MIN_SKEWNESS = 1.0
"""Skewness from which positive targets are also learned on the log scale, if that at least halves it."""

Maker = Callable[[Tasks, int, Contexts | None], KeptMethod]
"""A method that is about to learn from these tasks, with this seed, to be asked from such contexts."""


@dataclass(frozen=True)
class Entry:
    """One method. Its place in the table is its place from simple to rich."""

    make: Maker | None = None  # None: known to an experiment alone, which has figures of it
    colour: str = "#6f747c"  # grey
    rung: bool = False  # whether `auto` tries it …
    least: int = 0  # … with so many tasks or more …
    most: float = math.inf  # … and not with more than so many …
    skewed: bool = False  # … or only where positive targets are strongly skewed
    quick: bool = False  # … whatever the time it is given
    cost: int = 1  # how long that takes, beside others
    compared: bool = False  # whether `compare` runs it where none are named
    takes_task_x: bool = False  # whether it can use what is known of a task as a whole
    alone: bool = False  # whether it needs no other tasks: a learned prior has to beat it
    reference: bool = False  # to compare with, and not up for being the best of a table

    def suits(self, tasks: Tasks) -> bool:
        """Whether `auto` tries it on these tasks."""
        return self.rung and self.least <= len(tasks) <= self.most and (not self.skewed or needs_log_scale(tasks))


def needs_log_scale(tasks: Tasks) -> bool:
    """Whether all targets are positive, strongly skewed, and at most half as skewed on the log scale."""
    if len(tasks.y) == 0 or not bool((tasks.y > 0).all()):
        return False
    skewness, of_logs = _skewness(tasks.y), _skewness(tasks.y.log())
    return bool(((skewness > MIN_SKEWNESS) & (of_logs.abs() <= skewness / 2)).all())


def _skewness(values: Float[Tensor, "N p"]) -> Float[Tensor, " p"]:
    """Third standardised moment of each column; 0 where all values are equal."""
    gaps = values - values.mean(0)
    sd = gaps.square().mean(0).sqrt()
    return torch.where(sd > 0, (gaps / sd.clamp(min=1e-300)).pow(3).mean(0), 0.0)


def _prior(mean: str, kernel: str, **options: Any) -> Maker:
    def make(tasks: Tasks, seed: int, contexts: Contexts | None) -> LearnedPrior:
        many = len(tasks) >= MANY
        chosen: dict[str, Any] = {"max_epochs": 200, "check_every": 5, "patience": 4 if many else 3}
        chosen |= {"tolerance": 1e-3}  # what rises by less per value is as good
        chosen |= MANY_TASKS if many else {"hidden": FEW_UNITS}
        chosen |= {"gain": 1.0}
        chosen |= options
        return LearnedPrior(mean, kernel, held_out=spare(len(tasks)), seed=seed, progress=False, **chosen)

    return make


def _deep(**options: Any) -> Maker:
    """Both deep, with enough features for a task's level, slow drift and quick changes."""
    return _prior("deep", "deep", features=4, **options)


def _plain(name: str) -> Maker:
    """As the paper has it: rough starts, two features, and the patience to learn them."""
    return lambda tasks, seed, contexts: LearnedPrior(
        *CONFIGURATIONS[name], max_epochs=300, held_out=spare(len(tasks)), seed=seed, progress=False
    )


def _warped(make: Maker, warp: str = "yeo-johnson") -> Maker:
    return lambda tasks, seed, contexts: Warped(make(tasks, seed, contexts), warp, seed=seed)


def _fpca(tasks: Tasks, seed: int, contexts: Contexts | None) -> FPCA:
    share = 0.1 if len(tasks) >= MANY else 0.25 if len(tasks) >= SOME else None  # else five folds
    return FPCA(held_out=share, tolerance=1e-4, max_steps=20, seed=seed)  # as the models that sizes are compared by


def _hierarchical(tasks: Tasks, seed: int, contexts: Contexts | None) -> HierarchicalGP:
    return HierarchicalGP(seed=seed)


def _mixture(tasks: Tasks, seed: int, contexts: Contexts | None) -> Mixture:
    return Mixture(seed=seed)


def _maml(tasks: Tasks, seed: int, contexts: Contexts | None) -> MAML:
    epochs = min(max(EPISODES // len(tasks), 1), 200)
    return MAML(max_epochs=epochs, patience=20, progress=False, **_asked(tasks, seed, contexts))


def _network(tasks: Tasks, seed: int, contexts: Contexts | None) -> NeuralNetwork:
    return NeuralNetwork(max_epochs=300, progress=False, **_asked(tasks, seed, contexts))


def _asked(tasks: Tasks, seed: int, contexts: Contexts | None) -> dict[str, Any]:
    """What a method that predicts single values takes: how it will be asked, where that is not at random."""
    given = None if contexts is None or contexts.at_random else contexts
    return {"contexts": given, "held_out": spare(len(tasks)) or 0.5, "seed": seed}


_STUDENT = _deep(degrees=5.0)

# Okabe and Ito's palette for the paper's methods and Tol's muted one for the rest: both safe for the colour-blind.
METHODS: dict[str, Entry] = {
    "last value": Entry(lambda *asked: LastValue(**_asked(*asked)), compared=True, alone=True, reference=True),
    "context mean": Entry(lambda *asked: ContextMean(**_asked(*asked)), "#a9adb3", alone=True, reference=True),
    "gp per task": Entry(lambda *asked: GPPerTask(), "#999933", rung=True, quick=True, compared=True, alone=True),
    "shared gp": Entry(_prior("constant", "matern"), "#44aa99", rung=True, quick=True, compared=True),
    "vanilla": Entry(_plain("vanilla"), "#56b4e9", compared=True),
    "neural network": Entry(_network, "#cc79a7", compared=True),
    "maml": Entry(_maml, "#882255", compared=True),
    "hierarchical gp": Entry(_hierarchical, "#e17055", rung=True, quick=True, cost=2, takes_task_x=True),
    "warped hierarchical gp": Entry(_warped(_hierarchical), "#f0a58f", rung=True, cost=3, takes_task_x=True),
    "log hierarchical gp": Entry(
        _warped(_hierarchical, "log-linear"), "#f7c5b2", rung=True, cost=3, skewed=True, takes_task_x=True
    ),
    "mean and last value": Entry(  # of fewer tasks, the hierarchy says it better
        _prior("deep", "exponential", hidden=(32,)), "#88ccee", rung=True, cost=2, least=100, takes_task_x=True
    ),
    "fpca": Entry(_fpca, "#332288", rung=True, quick=True, cost=3, compared=True),
    "warped fpca": Entry(_warped(_fpca), "#6699cc", rung=True, cost=5),
    "log fpca": Entry(_warped(_fpca, "log-linear"), "#99bbdd", rung=True, cost=5, skewed=True),
    "mixture": Entry(_mixture, "#aa4499", rung=True, cost=8, least=100),  # of fewer, kinds cannot be told apart
    "warped mixture": Entry(_warped(_mixture), "#ee99aa", rung=True, cost=8, least=100),
    "hyper-posterior": Entry(  # of more, one prior is known well enough
        lambda tasks, seed, contexts: HyperPosterior(seed=seed),
        "#bb5566",
        rung=True,
        cost=12,
        most=199,
        takes_task_x=True,
    ),
    "learned kernel": Entry(_plain("learned kernel"), "#009e73", compared=True, takes_task_x=True),
    "learned mean": Entry(_plain("learned mean"), "#e69f00", compared=True, takes_task_x=True),
    # from here on as `auto` learns them, smoother than the paper's; of fewer than 100 tasks, in one form only
    "learned both": Entry(_deep(), "#0072b2", rung=True, cost=8, least=100, compared=True, takes_task_x=True),
    "student": Entry(_STUDENT, "#ddcc77", rung=True, cost=8, least=100, takes_task_x=True),
    "warped": Entry(_warped(_deep()), "#cc6677", rung=True, cost=8, least=100, takes_task_x=True),
    "warped student": Entry(_warped(_STUDENT), "#ee8866", rung=True, cost=8, takes_task_x=True),
    "log student": Entry(_warped(_STUDENT, "log-linear"), "#f6b79f", rung=True, cost=8, skewed=True, takes_task_x=True),
    "eigenfunctions": Entry(
        _prior("deep", "eigenfunctions + deep", gain=None), "#117733", rung=True, cost=8, least=100, takes_task_x=True
    ),
}
"""By name, the simplest first."""


_OURS = frozenset(METHODS)


def add_methods(entries: Mapping[str, Entry]) -> None:
    """More of them, after those that are there; one that was added before is replaced."""
    taken = [name for name in entries if name in _OURS]
    if taken:
        raise OptionError(f"there is a method {taken[0]!r} already: choose another name.")
    METHODS.update(entries)


def make_method(name: str, tasks: Tasks, seed: int = 0, contexts: Contexts | None = None) -> KeptMethod:
    """A method by name, ready to learn from these tasks.

    contexts: how it will be asked. Where that is not at random, methods that predict single values take their variance
    from held-out tasks split so, and MAML trains on such splits.
    """
    make = METHODS[name].make if name in METHODS else None
    if make is None:
        raise UnknownNameError("method", name, named_methods(lambda one: one.make is not None))
    return make(tasks, seed, contexts)


def named_methods(which: Callable[[Entry], bool]) -> tuple[str, ...]:
    """The methods whose entry is such, the simplest first."""
    return tuple(name for name, one in METHODS.items() if which(one))
