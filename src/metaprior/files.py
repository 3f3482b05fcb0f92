"""The model file: named tensors and a JSON header in safetensors' format. Nothing in it is ever executed.

A file holds what one method has learned (`State`) and a note on what it was learned from. Its checksum covers both, so
a file that was cut short or altered is refused before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from metaprior.errors import DataError, MetapriorError, NotFittedError
from metaprior.output import write_whole
from metaprior.tasks import TrainedOn

FORMAT = 2
"""Of the files that this version writes and reads."""

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""How it shows that what a file says makes no sense: `RecursionError` where it is too deep is a `RuntimeError`."""

DTYPES = {
    torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
"""What numbers may be, as safetensors names it, in the order in which it lays them out."""


@dataclass(frozen=True)
class State:
    """What a method has learned: the name its class is saved as, its structure (as JSON has it), and its numbers."""

    saved_as: str
    structure: dict[str, Any]
    tensors: dict[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)  # what it was learned from, its scores

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """One of its tensors, if it is there and has this shape."""
        found = self.tensors.get(name)
        if found is None or (shape is not None and tuple(found.shape) != shape):
            seen = "missing" if found is None else f"of shape {tuple(found.shape)} instead of {shape}"
            raise DataError(f"the model file does not fit together: {name} is {seen}. Fit the model again.")
        return found

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Those of its tensors whose names begin so, without that beginning."""
        return {name[len(prefix) :]: value for name, value in self.tensors.items() if name.startswith(prefix)}

    def with_parts(self, parts: Mapping[str, State]) -> State:
        """The same with what other methods have learned, each under a name: `method(name)` makes it again."""
        held = {
            name: {"kind": part.saved_as, "structure": part.structure, "about": part.about}
            for name, part in parts.items()
        }
        tensors = {f"{name}/{key}": value for name, part in parts.items() for key, value in part.tensors.items()}
        return State(self.saved_as, self.structure | {"parts": held}, self.tensors | tensors, self.about)

    def method(self, name: str) -> Any:
        """One of the methods it holds, from the closed list of them."""
        held = dict(self.structure["parts"])[name]
        return _class_of(str(held["kind"])).from_state(
            State(held["kind"], dict(held["structure"]), self.part(f"{name}/"), dict(held["about"]))
        )


def write_state(path: Path, state: State) -> None:
    """Write a model file, whole or not at all: the file that was there stays until the new one is complete."""
    versions = {"metaprior": version("metaprior"), "torch": version("torch")}
    header = {
        "format": FORMAT,
        "kind": state.saved_as,
        "structure": state.structure,
        "about": state.about | {"versions": versions},
    }
    text = json.dumps(header, allow_nan=False)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.tensors.items()}
    metadata = {"metaprior": f"{text}\n{_checksum(text, tensors)}"}  # one entry: of several, the order would be random
    write_whole(path, lambda part: _write(part, tensors, metadata))


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """As safetensors writes it, byte for byte. Its own writing ends the process where there is too little memory, and
    leaves a file of an unknown name where it is killed."""
    order = sorted(tensors, key=lambda name: (list(DTYPES).index(tensors[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name in order:
        value, stop = tensors[name], start + tensors[name].nbytes
        header[name] = {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(tensors[name].flatten().numpy().data)


def read_state(path: Path) -> State:
    """Read a model file. Sizes are checked against the file's before anything is allocated."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a model file.")
    if not path.exists():
        raise DataError(f"there is no model file {path}; `metaprior fit TABLE … --out {path}` makes one.")
    if not path.is_file():  # reading a pipe would wait for its writer
        raise DataError(f"{path} is a pipe or a device, not a model file: write the model to a regular file first.")
    try:
        with path.open("rb") as file:  # read, not mapped: one that is cut short meanwhile would end the process
            length = _length(file)
            file.seek(0)
            content = file.read()
        read = load(content)
        metadata = _metadata(content[8 : 8 + length])
        if "metaprior" not in metadata:
            raise DataError(f"{path} is a safetensors file of another kind, not a metaprior model.")
        text, _, checksum = metadata["metaprior"].partition("\n")
        header = _header(path, text)
        # copies lie where any new tensor does: the last bits of a product depend on how its parts are aligned
        tensors = {name: value.clone() for name, value in read.items()}
    except PermissionError:
        raise DataError(f"{path} may not be read by this user: change its permissions, or copy it.") from None
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} is not a metaprior model, or it was cut short ({error}). Fit the model again, or copy it again."
        ) from None
    if (checksum or metadata.get("sha256")) != _checksum(text, tensors):
        raise DataError(f"{path} was altered after it was written: its checksum does not match. Fit the model again.")
    return State(header["kind"], header["structure"], tensors, header["about"])


def saved_in(path: Path) -> str | None:
    """What a file of ours holds, by its header alone; None where it is no such file."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                metadata = _metadata(file.read(_length(file)))
            return str(json.loads(metadata["metaprior"].partition("\n")[0])["kind"])
    except (SafetensorError, OSError, *UNREADABLE):
        pass
    return None


def _length(file: BinaryIO) -> int:
    """Of the header that a safetensors file begins with, if there can be one."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > os.fstat(file.fileno()).st_size - 8:
        raise SafetensorError("no header")
    return length


def _metadata(header: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(header).get("__metadata__") or {}
    return found


def _header(path: Path, text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
        number, kind = int(header["format"]), header["kind"]
        if not all(isinstance(one, dict) for one in (header["structure"], header["about"])) or type(kind) is not str:
            raise TypeError(kind)
    except UNREADABLE:
        raise DataError(f"{path} has a header that cannot be read. Fit the model again.") from None
    if number != FORMAT:
        versions = header["about"].get("versions")
        wrote = versions.get("metaprior") if isinstance(versions, dict) else None
        by = f"metaprior {wrote}" if wrote else "a version that it does not name"
        do = "install a newer metaprior" if number > FORMAT else "fit the model again, or install that version"
        raise DataError(f"{path} was written by {by}, in format {number}; this version reads format {FORMAT}: {do}.")
    found: dict[str, Any] = header
    return found


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


_SAVED: dict[str, type[Saved]] = {}
"""What a file may hold: the classes of this package that say what they are saved as."""


def _class_of(name: str) -> type[Saved]:
    if name not in _SAVED:
        raise DataError(f"the file holds a {name!r}, which is no model that this version knows.")
    return _SAVED[name]


def load_method(path: str | Path) -> Any:
    """The method that a model file holds, whatever it is."""
    return method_of(read_state(Path(path)), path)


def method_of(state: State, path: str | Path) -> Any:
    """The method that was described so. path: what errors call it."""
    return _class_of(state.saved_as).restored(state, path)


class Saved(ABC):
    """A method that can be kept in a file. `trained_on_` and `scores_`, where it has them, go with it."""

    saved_as: ClassVar[str]
    fitted_as: ClassVar[str]  # the attribute that it has from learning on

    def __init_subclass__(cls) -> None:
        if "saved_as" in vars(cls):
            _SAVED[cls.saved_as] = cls

    trained_on_: TrainedOn
    scores_: dict[str, Any]

    def _check_fitted(self) -> None:
        if not hasattr(self, self.fitted_as):
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit(tasks) first.")

    @abstractmethod
    def state(self) -> State:
        """What it has learned."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The same method again."""

    def save(self, path: str | Path) -> None:
        """Write it to a file; the one that was there stays until the new one is complete."""
        write_state(Path(path), self.whole_state())

    def whole_state(self) -> State:
        """What it has learned, what from, and how it scored."""
        state = self.state()
        about = dict(state.about)
        tensors = dict(state.tensors)
        if hasattr(self, "trained_on_"):
            about["trained_on"] = self.trained_on_.as_json()
            tensors["trained_on.hashes"] = self.trained_on_.hashes
        about["scores"] = getattr(self, "scores_", {})
        return State(self.saved_as, state.structure, tensors, about)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read it back from a file of its own."""
        state = read_state(Path(path))
        if state.saved_as != cls.saved_as:
            raise DataError(f"{path} holds a {state.saved_as!r}, not a {cls.saved_as!r}: use metaprior.load(path).")
        return cls.restored(state, path)

    @classmethod
    def restored(cls, state: State, path: str | Path) -> Self:
        """From a state that was read from a file."""
        try:
            found = cls.from_state(state)
            if "trained_on" in state.about:
                hashes = state.tensor("trained_on.hashes")
                found.trained_on_ = TrainedOn.from_json(state.about["trained_on"], hashes)
            found.scores_ = _scores(state.about.get("scores", {}))
        except UNREADABLE as error:
            if isinstance(error, MetapriorError):
                raise
            raise DataError(f"{path} does not describe a {state.saved_as!r} ({error}). Fit it again.") from None
        return found


def _scores(found: Any) -> dict[str, Any]:
    """How a model scored, if that is what the file says: in each setting, of each metric, some numbers by name."""
    for metrics in found.values():
        known = [metrics[name][part] for name in ("mse", "log_likelihood") for part in ("mean", "stderr")]
        check_numbers([*known, *(value for numbers in metrics.values() for value in numbers.values())])
    return dict(found)


def check_numbers(found: Iterable[Any]) -> None:
    """Whether what a file says are numbers, or nothing: a reader is shown them as such."""
    for value in found:
        if value is not None and type(value) not in (int, float):
            raise TypeError(f"{value!r} is no number")
