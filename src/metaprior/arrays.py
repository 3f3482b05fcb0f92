"""NumPy's arrays, with torch's threads."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float

Array: TypeAlias = np.ndarray


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
