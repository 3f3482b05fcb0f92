"""Task covariates: what is known of a task as a whole (age, diet, type), as numbers that a prior can take in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError


class Covariate(NamedTuple):
    """A column that is constant within a task: a number (no levels), or text with the levels that past tasks had.

    levels is None while no task has been seen.
    """

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """How many numbers it takes: one, or one for each level."""
        return len(self.levels or ()) or 1

    def encoded(self, values: Sequence[Any], ids: Sequence[Hashable]) -> Float[Tensor, "m w"]:
        """Each task's value as numbers; one that this covariate cannot have is told with its task."""
        known = self.levels or ()
        place = {level: k for k, level in enumerate(known)}
        found = torch.zeros(len(values), self.width, dtype=torch.float64)
        for i, value in enumerate(values):
            if known and isinstance(value, str):
                if value not in place:
                    raise DataError(
                        f"task column {self.name!r} is {value!r} for task {ids[i]!r}, which no past task had; known "
                        f"are {', '.join(map(repr, known))}. Leave such tasks out, or learn with some of them."
                    )
                found[i, place[value]] = 1.0
            elif known or isinstance(value, str):
                kinds = ("text", "a number") if known else ("numbers", "text")
                raise DataError(
                    f"task column {self.name!r} was {kinds[0]} when the prior was learned, and is {kinds[1]} "
                    f"({value!r}) for task {ids[i]!r}."
                )
            else:
                found[i, 0] = float(value)
        if not bool(found.isfinite().all()):
            bad = int(torch.nonzero(~found.isfinite())[0, 0])
            raise DataError(f"task column {self.name!r} is not a finite number for task {ids[bad]!r}.")
        return found


def covariate_of(name: str, values: Sequence[Any]) -> Covariate:
    """What a column of these values is: a number, or text with its levels in order."""
    if any(isinstance(value, str) for value in values):
        return Covariate(name, tuple(sorted({value for value in values if isinstance(value, str)})))
    return Covariate(name, ())


def encode(
    columns: Mapping[str, Sequence[Any]], ids: Sequence[Hashable], known: Sequence[Covariate] = ()
) -> tuple[tuple[Covariate, ...], Float[Tensor, "m c"]]:
    """Covariates of some tasks, one value per task in each column; known: as earlier tasks had them."""
    described = {one.name: one for one in known if one.levels is not None}
    found, parts = [], []
    for name, values in columns.items():
        if len(values) != len(ids):
            raise DataError(f"task column {name!r} has {len(values)} values for {len(ids)} tasks: give one for each.")
        plain = [value.item() if isinstance(value, (np.generic, Tensor)) else value for value in values]
        found.append(described.get(name) or covariate_of(name, plain))
        parts.append(found[-1].encoded(plain, ids))
    return tuple(found), torch.cat(parts, 1)
