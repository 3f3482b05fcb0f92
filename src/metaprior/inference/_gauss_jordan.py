"""A Triton kernel. It is imported on a GPU alone: Triton is no dependency."""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def gauss_jordan(matrices, inverses, logdets, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program inverts one matrix in registers, by n symmetric sweeps, whose pivots make `log|A|`.

    Pivots of a positive definite matrix are positive whatever their order; one that is not makes everything NaN.
    Beyond its n rows and columns a matrix goes on as the identity.
    """
    which, places = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    rows, columns = places[:, None], places[None, :]
    inside, at = (rows < n) & (columns < n), which * n * n + rows * n + columns
    A = tl.load(matrices + at, mask=inside, other=0.0)
    A = tl.where((rows == columns) & (rows >= n), 1.0, A)
    logdet = tl.sum(tl.zeros_like(A)) * 0.0
    for k in range(n):
        row = tl.sum(tl.where(rows == k, A, 0.0), 0)
        pivot = tl.sum(tl.where(places == k, row, 0.0))
        pivot = tl.where(pivot > 0, pivot, float("nan"))
        logdet += tl.log(pivot)
        row = tl.where(places == k, -1.0, row)
        A = tl.where((rows == k) | (columns == k), 0.0, A) - (row / pivot)[:, None] * row[None, :]
    tl.store(inverses + at, -A, mask=inside)
    tl.store(logdets + which, logdet)
