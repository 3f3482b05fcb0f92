"""Inverses of many small matrices on a GPU, one block of threads each: what a library does in three passes, in one.

Triton comes with CUDA builds of torch. Where it is not there, `inverse_and_logdet` is the plain way, and its oracle.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST = 64
"""Points of the largest matrices for which this pays: one is held in the registers of a block."""


def fits(A: Float[Tensor, "b n n"]) -> bool:
    """Whether these are inverted here."""
    return A.is_cuda and A.shape[-1] <= LARGEST and len(A) > 0 and find_spec("triton") is not None


def inverse_and_logdet(A: Float[Tensor, "b n n"]) -> tuple[Float[Tensor, "b n n"], Float[Tensor, " b"]]:
    """`A⁻¹` and `log|A|` of positive definite matrices; NaN where one is not, and nothing is waited for."""
    if not fits(A):
        L, info = torch.linalg.cholesky_ex(A)
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        half = torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return half.mT @ half, torch.where(info == 0, logdet, torch.nan)
    A = A.contiguous()
    inverse, logdet = torch.empty_like(A), A.new_empty(len(A))
    n = A.shape[-1]
    block = max(16, 1 << (n - 1).bit_length())
    _gauss_jordan()[(len(A),)](A, inverse, logdet, n, block, num_warps=1)
    return inverse, logdet


@cache
def _gauss_jordan() -> Any:
    """The kernel, which needs Triton."""
    return import_module("metaprior.inference._gauss_jordan").gauss_jordan
