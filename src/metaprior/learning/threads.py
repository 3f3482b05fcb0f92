"""As many threads as a problem is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch

from metaprior.tasks import Batch

SMALL = 50_000
"""Updates over fewer covariance entries than this gain nothing from a second thread."""


def entries_of(laid_out: Iterable[Batch]) -> int:
    """Covariance entries of some batches."""
    return sum(batch.inputs.index.numel() * batch.inputs.index.shape[-1] for batch in laid_out)


@contextmanager
def threads_for(entries: int) -> Iterator[None]:
    """One thread while the problem is small, the user's number otherwise; theirs again afterwards.

    Where a core is busy, a second thread makes small updates several times slower: each waits for the other to be
    scheduled. What is not small leaves the number alone: it is the process's, and something small may run meanwhile.
    """
    with nullcontext() if entries >= SMALL else one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread; as many as there were again afterwards. What is computed meanwhile has the same bits anywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
