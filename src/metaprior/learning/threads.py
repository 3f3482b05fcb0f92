"""As many threads as a problem is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import TypeVar

import torch

from metaprior.tasks import Batch

Result = TypeVar("Result")

SMALL = 50_000
"""Updates over fewer covariance entries than this gain nothing from a second thread."""

_changing = Lock()


def entries_of(laid_out: Iterable[Batch]) -> int:
    """Covariance entries of some batches."""
    return sum(batch.inputs.index.numel() * batch.inputs.index.shape[-1] for batch in laid_out)


@contextmanager
def threads_for(entries: int) -> Iterator[None]:
    """One thread while the problem is small, the user's number otherwise; theirs again afterwards.

    Where a core is busy, a second thread makes small updates several times slower: each waits for the other to be
    scheduled.
    """
    with nullcontext() if entries >= SMALL else one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread; as many as there were again afterwards. What is computed meanwhile has the same bits anywhere.

    Other Python threads keep their numbers, and so do those that start meanwhile: uses may overlap.
    """
    before = torch.get_num_threads()
    _set_threads_here(1)
    try:
        yield
    finally:
        _set_threads_here(before)


def _set_threads_here(number: int) -> None:
    """Set the number of threads of this Python thread alone; torch's setter also sets what new threads start with."""
    if torch.get_num_threads() == number:
        return
    with _changing:
        of_new = _in_new_thread(torch.get_num_threads)
        torch.set_num_threads(number)
        if of_new != number:
            _in_new_thread(partial(torch.set_num_threads, of_new))


def _in_new_thread(function: Callable[[], Result]) -> Result:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
