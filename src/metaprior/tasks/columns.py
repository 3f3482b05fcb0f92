"""What the columns of tasks are called."""

from __future__ import annotations

from typing import NamedTuple

from metaprior.tasks.covariates import Covariate


class Columns(NamedTuple):
    """What the columns are called in the user's table."""

    task: tuple[str, ...]
    x: tuple[str, ...]
    y: tuple[str, ...]
    task_x: tuple[Covariate, ...] = ()

    @property
    def roles(self) -> dict[str, list[str]]:
        """What each column is named as."""
        about = tuple(one.name for one in self.task_x)
        found: dict[str, list[str]] = {}
        for role, names in (("task", self.task), ("x", self.x), ("y", self.y), ("task_x", about)):
            for name in names:
                found.setdefault(name, []).append(role)
        return found


def default_columns(d: int, p: int) -> Columns:
    """Names for columns that came without."""
    names_x = ("x",) if d == 1 else tuple(f"x{k + 1}" for k in range(d))
    names_y = ("y",) if p == 1 else tuple(f"y{k + 1}" for k in range(p))
    return Columns(("task",), names_x, names_y)
