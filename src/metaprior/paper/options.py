"""What every experiment can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metaprior.devices import device_of
from metaprior.errors import UnknownNameError
from metaprior.learning import OPTIMIZERS, OptimizerName
from metaprior.report import Results
from metaprior.seeds import generator_of


def _nothing(results: Results) -> None:
    """Nothing is kept before the experiment has come to its end."""


@dataclass(frozen=True)
class Options:
    """seed: of everything random. methods: rows to run, none means all. quick: a few seconds, for trying.

    optimizer: how the priors are learned; none means the experiment's own choice.
    data: the folder with the data files, where it is neither in METAPRIOR_DATA nor in the cache. device: where methods
    that gain from a GPU learn and answer. earlier: results that the run goes on from: what is complete there is not run
    again. keep: takes the results whenever a part of the experiment is complete.
    """

    seed: int = 0
    methods: tuple[str, ...] = ()
    optimizer: OptimizerName | None = None
    quick: bool = False
    progress: bool = True
    data: Path | None = None
    device: str = "cpu"
    earlier: Results | None = None
    keep: Callable[[Results], None] = _nothing

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, OPTIMIZERS)
        generator_of(self.seed)  # refuses what is no seed
        device_of(self.device)

    @property
    def learned_by(self) -> OptimizerName:
        """The optimizer where the experiment has no choice of its own."""
        return self.optimizer or "lbfgs"

    def chosen(self, known: Sequence[str]) -> tuple[str, ...]:
        """The methods to run, in the experiment's order."""
        for name in self.methods:
            if name not in known:
                raise UnknownNameError("method", name, known)
        return tuple(name for name in known if not self.methods or name in self.methods)


def derived_seeds(seed: int, names: Iterable[str]) -> dict[str, int]:
    """An independent seed for each purpose, all from one."""
    names = list(names)
    drawn = np.random.SeedSequence(seed).generate_state(len(names))
    return {name: int(value) for name, value in zip(names, drawn, strict=True)}
