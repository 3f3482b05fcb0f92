"""NumPy's arrays, with torch's threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float

Array: TypeAlias = np.ndarray


def writable(values: Any) -> Any:
    """Values for torch, which warns of arrays that may not be written to, as pandas hands them out: a copy of those."""
    return np.require(values, requirements="W") if isinstance(values, np.ndarray) else values


SMALL = 200_000
"""Multiplications in one product of matrices up to which NumPy's library takes one thread, and the least time."""


def product(a: Float[Array, "*b n k"], b: Float[Array, "*b k m"]) -> Float[Array, "*b n m"]:
    """`a @ b`, if it is not small by torch, on as many threads as torch has been given.

    NumPy has a pool of threads of its own, which nobody here can limit; where a core is busy they wait for each other,
    and products took ten times as long.
    """
    if a.shape[-2] * a.shape[-1] * b.shape[-1] <= SMALL:
        found: Array = a @ b
    else:
        found = torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return found


MANY = 50_000
"""Values from which on a function of each is worth several threads."""


def by_threads(
    function: Callable[[Array, Array], Array], of_rows: Float[Array, "N 1"], values: Float[Array, "*k #N p"]
) -> Float[Array, "*k N p"]:
    """A NumPy function of each value and of what belongs to its row, on as many threads as torch has been given."""
    threads = torch.get_num_threads()
    if values.size < MANY or threads == 1:
        return function(of_rows, values)
    whole = np.broadcast_to(values, (*values.shape[:-2], len(of_rows), values.shape[-1]))
    found = np.empty(whole.shape)
    ends = np.linspace(0, len(of_rows), threads + 1).astype(int)

    def part(start: int, end: int) -> None:
        found[..., start:end, :] = function(of_rows[start:end], whole[..., start:end, :])

    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(part, *each) for each in pairwise(ends.tolist())]:
            one.result()
    return found
