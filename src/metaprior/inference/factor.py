"""Cholesky factors of many covariance matrices at once, with stated jitter and failures that name the task."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.errors import NumericalError

JITTER = (0.0, 1e-10, 1e-8, 1e-6)
"""Added to the diagonal where a factorisation fails, relative to the scale of the matrix: the first that works."""


_trusted: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trusting() -> Iterator[None]:
    """On a GPU, look at nothing on the way: a look waits for all that was asked for before it.

    What goes wrong is NaN in the end. Whoever finds that asks again without this, and is told which task it was.
    """
    before = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(before)


def is_trusted(A: Tensor) -> bool:
    """Whether nothing is looked at in what is computed of these."""
    return A.is_cuda and _trusted.get()


SMALL = 128
"""Matrices of this many points or fewer are inverted by triangular solves."""


class Factor(NamedTuple):
    """`L` with `L Lᵀ = A + jitter · scale · I`, the scale being that of each matrix."""

    L: Float[Tensor, "b n n"]
    jitter: Float[Tensor, " b"]


def factor(
    A: Float[Tensor, "b n n"], names: Sequence[Hashable] | None = None, scale: Float[Tensor, " b"] | None = None
) -> Factor:
    """Factor each matrix. names: the tasks' ids, for the error message. scale: default the mean of each diagonal."""
    if A.shape[-1] == 0:
        return Factor(A, A.new_zeros(len(A)))
    if not bool(torch.isfinite(A.sum())):  # one pass; the second one, which names the task, is rare
        finite = torch.isfinite(A).flatten(1).all(1)
        if not bool(finite.all()):
            raise NumericalError(_not_finite(_named(names, finite), int((~finite).sum())))
    L, jitter, info = _jittered(A, scale)
    if bool(info.any()):
        raise NumericalError(_not_definite(_named(names, info == 0), int((info != 0).sum())))
    return Factor(L, jitter)


def attempt(
    A: Float[Tensor, "b n n"], scale: Float[Tensor, " b"] | None = None
) -> tuple[Float[Tensor, "b n n"], Float[Tensor, " b"], Bool[Tensor, " b"]]:
    """The factor of each matrix with the jitter that it needs, and which of them have none: I stands there.

    scale: what jitter is relative to; default the mean of each diagonal.
    """
    L, jitter, info = _jittered(A, scale)
    failed = (info != 0) | ~L.diagonal(dim1=-2, dim2=-1).sum(-1).isfinite()
    if bool(failed.any()):
        L[failed] = torch.eye(A.shape[-1], dtype=A.dtype)
    return L, jitter, failed


def _jittered(A: Float[Tensor, "b n n"], scale: Float[Tensor, " b"] | None) -> tuple[Tensor, Tensor, Tensor]:
    """L, the jitter of each, and where even the most was not enough."""
    L, info = torch.linalg.cholesky_ex(A)
    jitter = A.new_zeros(len(A))
    for step in JITTER[1:]:
        failed = torch.nonzero(info)[:, 0]
        if len(failed) == 0:
            break
        unit = (A.diagonal(dim1=-2, dim2=-1).mean(-1) if scale is None else scale)[failed]
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        L[failed], info[failed] = torch.linalg.cholesky_ex(A[failed] + (step * unit)[:, None, None] * eye)
        jitter[failed] = step
    return L, jitter, info


def inverse(L: Float[Tensor, "b n n"]) -> Float[Tensor, "b n n"]:
    """`A⁻¹` from the factor of each matrix.

    LAPACK's own inverse lets threads wait for each other on every matrix, however small: where a core is busy, many
    small ones took thirty times as long as by triangular solves.
    """
    if L.shape[-1] > SMALL:
        return torch.cholesky_inverse(L)
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    half: Tensor = torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    return half.mT @ half


def padded_identity(A: Float[Tensor, "b n n"], mask: Bool[Tensor, "b n"]) -> Float[Tensor, "b n n"]:
    """A with padded points independent of all others, with variance 1: they change no determinant and no solve."""
    both = mask[:, :, None] & mask[:, None, :]
    return torch.where(both, A, torch.diag_embed(~mask))


def mean_over(values: Float[Tensor, "b n"], mask: Bool[Tensor, "b n"]) -> Float[Tensor, " b"]:
    """The mean of each row over the points that are no padding."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


def _named(names: Sequence[Hashable] | None, good: Tensor) -> str:
    position = int(torch.nonzero(~good)[0, 0])
    if names is None or len(names) != len(good):
        return f"batch element {position}" if names is None else f"the tasks like {names[0]!r}"
    return f"task {names[position]!r}"


def _not_finite(first: str, count: int) -> str:
    return (
        f"the covariance of {first} ({count} in all) is not finite. Likely causes: (a) inputs so large that the "
        "kernel overflows: scale them; (b) a kernel or noise parameter that has become infinite or NaN."
    )


def _not_definite(first: str, count: int) -> str:
    return (
        f"the covariance of {first} ({count} in all) is not positive definite, even with jitter of {JITTER[-1]} "
        "times its scale. Likely causes: (a) repeated inputs with different targets and no noise: give noise a "
        "variance above 0; (b) a kernel that is not positive definite."
    )
