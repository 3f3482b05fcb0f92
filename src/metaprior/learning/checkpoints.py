"""Checkpoints: a training that was stopped goes on where it was and ends with the same result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from metaprior.errors import DataError, MetapriorError
from metaprior.files import UNREADABLE, State, read_state, write_state
from metaprior.tasks import Tasks

CHECKPOINT = "checkpoint"
EVERY = 5.0
"""Seconds between two writings of a checkpoint, at least."""


class Checkpoint:
    """A file that holds a training's state. fingerprint: of everything that decides on the training's result."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint, self.written = path, fingerprint, time.perf_counter()
        self.resumed = False

    def due(self) -> bool:
        """Whether the last writing is long enough ago."""
        return time.perf_counter() - self.written >= EVERY

    def write(self, values: Mapping[str, Any]) -> None:
        """Keep some values: numbers, text, tensors, and lists and dicts of them."""
        tensors: dict[str, Tensor] = {}
        structure = {"fingerprint": self.fingerprint, "values": _taken_apart(dict(values), tensors)}
        write_state(self.path, State(CHECKPOINT, structure, tensors))
        self.written = time.perf_counter()

    def read(self) -> dict[str, Any] | None:
        """What was kept; None where nothing was, an error where it belongs to another training."""
        if not self.path.exists():
            return None
        state = read_state(self.path)
        if state.saved_as != CHECKPOINT:
            raise DataError(f"{self.path} is a model, not a checkpoint: choose another file for it.")
        if state.structure.get("fingerprint") != self.fingerprint:
            raise DataError(
                f"the checkpoint {self.path} belongs to another training (other data, options or seed). Give the same, "
                "or remove the file to start anew."
            )
        self.resumed = True
        with going_on(self):
            values: dict[str, Any] = _put_together(state.structure["values"], state.tensors)
        return values

    def remove(self) -> None:
        """The training is over."""
        self.path.unlink(missing_ok=True)


@contextmanager
def going_on(checkpoint: Checkpoint | None) -> Iterator[None]:
    """What goes wrong in a training that goes on from a file, and not by the user's data, is the file's fault."""
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, MetapriorError) or checkpoint is None or not checkpoint.resumed:
            raise
        said = " ".join(str(error).split())
        raise DataError(
            f"the training cannot go on from {checkpoint.path}, which was altered ({type(error).__name__}: {said}). "
            "Remove the file to start anew."
        ) from error


def fingerprint_of(parts: Iterable[Tasks], *others: object) -> str:
    """Of tasks and of whatever else decides, by its `repr`."""
    digest = hashlib.sha256(repr(others).encode())
    for tasks in parts:
        for values in (tasks.x, tasks.y, tasks.offsets, tasks.covariates, tasks.clusters):
            digest.update(b"" if values is None else values.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _taken_apart(value: Any, tensors: dict[str, Tensor]) -> Any:
    """As JSON has it, with tensors set aside; floats as hexadecimal text, to the last bit."""
    if isinstance(value, Tensor):
        tensors[name := f"tensor {len(tensors)}"] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"pairs": [[_taken_apart(k, tensors), _taken_apart(v, tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_taken_apart(part, tensors) for part in value]}
    if isinstance(value, float):
        return {"float": value.hex()}
    return value


def _put_together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((what, content),) = value.items()
    if what == "tensor":
        return tensors[content]
    if what == "pairs":
        return {_put_together(k, tensors): _put_together(v, tensors) for k, v in content}
    if what == "list":
        return [_put_together(part, tensors) for part in content]
    return float.fromhex(content)
