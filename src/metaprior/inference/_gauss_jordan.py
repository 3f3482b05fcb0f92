"""A Triton kernel. It is imported on a GPU alone: Triton is no dependency."""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def gauss_jordan(matrices, inverses, logdets, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program inverts one matrix in place, in registers: n steps of elimination, whose pivots make `log|A|`.

    Pivots of a positive definite matrix are positive whatever the order. One that is not makes everything NaN.
    Beyond its n rows and columns a matrix goes on as the identity.
    """
    which = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (rows < n) & (columns < n)
    at = which * n * n + rows * n + columns
    A = tl.load(matrices + at, mask=inside, other=0.0)
    A = tl.where((rows == columns) & (rows >= n), 1.0, A)
    logdet = tl.sum(tl.zeros_like(A)) * 0.0
    for k in range(n):
        column = tl.sum(tl.where(columns == k, A, 0.0), 1)[:, None]
        row = tl.sum(tl.where(rows == k, A, 0.0), 0)[None, :]
        pivot = tl.sum(tl.where((rows == k) & (columns == k), A, 0.0))
        pivot = tl.where(pivot > 0, pivot, float("nan"))
        logdet += tl.log(pivot)
        share = 1.0 / pivot
        A = A - column * row * share
        A = tl.where(rows == k, row * share, A)
        A = tl.where(columns == k, -column * share, A)
        A = tl.where((rows == k) & (columns == k), share, A)
    tl.store(inverses + at, A, mask=inside)
    tl.store(logdets + which, logdet)
