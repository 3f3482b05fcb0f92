"""What can go wrong, in words a user can act on.

Every error a user can cause is a `MetapriorError`; the command line turns it into one message and exit code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


class MetapriorError(Exception):
    """Something the user can put right. The message says what was seen and what to do."""


class DataError(MetapriorError, ValueError):
    """Tasks, tables or points that cannot be used as they are."""


class NumericalError(MetapriorError, ArithmeticError):
    """A computation that has no finite answer for these tasks and this prior."""


class UnknownNameError(MetapriorError, ValueError):
    """A name that is none of the known ones."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = list(known)
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}.")


class OptionError(MetapriorError, ValueError):
    """An option whose value makes no sense."""


class OutputError(MetapriorError, OSError):
    """A folder or file that cannot be written."""


class DeviceMemoryError(MetapriorError, MemoryError):
    """A GPU, or a machine, whose memory is too small for what was asked."""


class NotFittedError(MetapriorError, RuntimeError):
    """A model asked to predict before it was fitted."""


class NotInstalledError(MetapriorError, ImportError):
    """Something that needs a library which comes with an extra."""


class WorkerError(MetapriorError, RuntimeError):
    """A process that ended before its work was done."""


def short_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no more memory: Python's, Arrow's, or torch's, which has no class for it."""
    words = ("llocate memory", "bad alloc", "bad_alloc", "can't start new thread", "PyObject pointer is null")
    return isinstance(error, MemoryError) or any(said in str(error) for said in words)


class MetapriorWarning(UserWarning):
    """What a user should know of a result, in the words of the command line's notes.

    `warnings.simplefilter("ignore", MetapriorWarning)` silences all of them; the start of a message selects some.
    """


@contextmanager
def numerical(what: str) -> Iterator[None]:
    """A failure of torch's linear algebra inside becomes a `NumericalError` that says what was being computed.

    `with numerical("the components of the curves"): …`, or `@numerical("…")` on a function.
    """
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise NumericalError(
            f"{what} cannot be computed: {str(error).rstrip('.')}. Likely (a) values so large or so small that their "
            "products overflow or vanish: use other units; (b) tasks or points that repeat each other, which leaves "
            "something undetermined: leave repeats out, or allow more noise."
        ) from error
