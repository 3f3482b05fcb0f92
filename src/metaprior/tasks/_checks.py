"""What makes arrays unusable as tasks, found all at once and said with the column, the task and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.errors import DataError, OptionError

Missing = Literal["error", "drop"]

MISSING: tuple[Missing, ...] = ("error", "drop")


def check_missing_option(missing: str) -> None:
    if missing not in MISSING:
        raise OptionError(f"missing={missing!r} is not an option; use one of {', '.join(MISSING)}.")


def as_matrix(values: object, what: str) -> Float[Tensor, "n k"]:
    """A float64 matrix of its own (a copy) from an array, a tensor or a list; a vector becomes one column."""
    try:
        if isinstance(values, Tensor):
            matrix = values.detach().to("cpu", torch.float64, copy=True)
        else:
            array = np.asarray(values)
            if array.dtype.kind not in "fiub" and array.size:
                raise TypeError(f"it holds {array.dtype}")
            matrix = torch.from_numpy(np.array(np.ma.filled(np.ma.array(values, dtype=np.float64), np.nan)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not an array of numbers: {error}.") from None
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise DataError(f"{what} has {matrix.ndim} dimensions; give points × columns (or a vector).")
    return matrix


def usable_rows(
    x: Float[Tensor, "N d"],
    y: Float[Tensor, "N p"],
    columns: Sequence[str],
    task_of_row: Sequence[object],
    rows: np.ndarray[Any, Any],
    missing: Missing,
) -> tuple[Bool[Tensor, " N"], tuple[str, ...]]:
    """Which rows are finite, and notes on the rest; with `missing="error"` the rest is an error."""
    keep = torch.isfinite(x).all(1) & torch.isfinite(y).all(1)
    if bool(keep.all()):
        return keep, ()
    bad = ~torch.isfinite(torch.cat([x, y], 1))
    findings = []
    for k, column in enumerate(columns):
        where = torch.nonzero(bad[:, k])[:, 0].tolist()
        if where:
            first = ", ".join(f"row {rows[i]} of task {task_of_row[i]!r}" for i in where[:3])
            more = ", …" if len(where) > 3 else ""
            findings.append(f"column {column!r}: {len(where)} ({first}{more})")
    said = f"NaN or infinity in {'; '.join(findings)}"
    if missing == "error":
        raise DataError(f"{said}. Put them right, or leave those rows out with missing='drop'.")
    return keep, (f"dropped {int((~keep).sum())} of {len(keep)} rows: {said}",)
