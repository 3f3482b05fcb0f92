"""`Rows`: observations one after another, each with its task, as they come from arrays or from a table."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.errors import DataError
from metaprior.tasks._checks import Missing, NothingLeftError
from metaprior.tasks.columns import Columns


class Rows(NamedTuple):
    """Points with their targets, those of each task together."""

    x: Float[Tensor, "N d"]
    y: Float[Tensor, "N p"]
    owner: np.ndarray[Any, Any]  # the position of each row's task, which never falls
    ids: Sequence[Hashable]
    columns: Columns
    numbers: np.ndarray[Any, Any]  # what the user would call each row

    def usable(self, missing: Missing) -> tuple[Rows, tuple[str, ...]]:
        """Those that are finite, and notes on the rest; with `missing="error"` the rest is an error."""
        keep = torch.isfinite(self.x).all(1) & torch.isfinite(self.y).all(1)
        if bool(keep.all()):
            return self, ()
        said = self._not_finite()
        if missing == "error":
            raise DataError(f"{said}. Put them right, or leave those rows out with missing='drop'.")
        kept, note = self._only(keep), f"dropped {int((~keep).sum())} of {len(keep)} rows: {said}"
        if not kept.ids:
            raise NothingLeftError(f"no task has a usable row. {note}.")
        if len(kept.ids) == len(self.ids):
            return kept, (note,)
        gone = np.setdiff1d(np.arange(len(self.ids)), self.owner[keep.numpy()])
        named = ", ".join(repr(self.ids[i]) for i in gone[:3])
        return kept, (note, f"dropped {len(gone)} of {len(self.ids)} tasks with no usable row: {named}")

    def _not_finite(self) -> str:
        """Where there is NaN or infinity: how often in each column, and the first places."""
        bad, findings = ~torch.isfinite(torch.cat([self.x, self.y], 1)), []
        for k, column in enumerate(self.columns.x + self.columns.y):
            where = torch.nonzero(bad[:, k])[:, 0].tolist()
            if where:
                first = ", ".join(f"row {self.numbers[i]} of task {self.ids[self.owner[i]]!r}" for i in where[:3])
                more = ", …" if len(where) > 3 else ""
                findings.append(f"column {column!r}: {len(where)} ({first}{more})")
        return f"NaN or infinity in {'; '.join(findings)}"

    def _only(self, keep: Bool[Tensor, " N"]) -> Rows:
        """These rows, and the tasks that have some of them."""
        chosen = keep.numpy()
        left, owner = np.unique(self.owner[chosen], return_inverse=True)
        ids = [self.ids[i] for i in left]
        return Rows(self.x[keep], self.y[keep], owner, ids, self.columns, self.numbers[chosen])
