"""Errors that are put in on purpose: whoever looks for faults has to find them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metaprior import output
from metaprior.learning import checkpoints, updates


def in_place() -> None:
    """Files are written under their own name, not beside it."""
    written = output.write_whole

    def write_in_place(path: Path, write: Callable[[Path], Any]) -> None:
        write(path)

    for module in [one for name, one in sys.modules.items() if name.startswith("metaprior")]:
        for name, value in list(vars(module).items()):
            if value is written:
                setattr(module, name, write_in_place)


def forgotten_generator() -> None:
    """A training goes on with the order of its tasks from the start, not from where it was."""
    restored = updates.Stochastic.restored

    def without(self: updates.Stochastic, kept: dict[str, Any]) -> None:
        state = self.generator.get_state()
        restored(self, kept)
        self.generator.set_state(state)

    updates.Stochastic.restored = without  # type: ignore[method-assign]


def removed_too_soon() -> None:
    """A checkpoint is removed by whoever reads it, not when the model is there."""
    read = checkpoints.Checkpoint.read

    def once(self: checkpoints.Checkpoint) -> dict[str, Any] | None:
        found = read(self)
        self.remove()
        return found

    checkpoints.Checkpoint.read = once  # type: ignore[method-assign]


PLANTED: dict[str, tuple[Callable[[], None], str]] = {
    "a resume that ignores its checkpoint's generator": (forgotten_generator, "fit by Adam"),
    "a writer that writes in place": (in_place, "compare"),
    "a checkpoint that is removed when it is read": (removed_too_soon, "fit auto"),
}
"""With the job that has to notice it."""
