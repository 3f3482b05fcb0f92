"""A method with what is known of some tasks: each context is factored once, and everything else is a view of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.devices import within_memory
from metaprior.errors import DataError
from metaprior.inference.evidence import Evidence
from metaprior.inference.posterior import Posterior
from metaprior.inference.suggesting import Suggestion, places_of, suggestion
from metaprior.tasks import Tasks

Answer = TypeVar("Answer", bound=Posterior, covariant=True)


class Conditional(ABC, Generic[Answer]):
    """A method conditioned on the contexts of some tasks. `at` gives the posterior at points of those tasks."""

    context: Tasks

    def at(self, points: Any) -> Answer:
        """The posterior at these points: `Tasks` with the same ids, or one array of points for every task.

        The points' own y, if any, is not looked at.
        """
        if not isinstance(points, Tasks):
            points = self.context.at_points(points)
        if points.d != self.context.d:
            raise DataError(
                f"the points have {points.d} input columns, but the context has {self.context.d}; "
                "predict at points of the same dimension."
            )
        if points.ids != self.context.ids:
            raise DataError("points and context must hold the same tasks in the same order.")
        if not torch.isfinite(points.x).all():
            raise DataError("NaN or infinity among the points to predict at.")
        few = (
            "Predict fewer tasks or points at a time, give a table (which is predicted in slices), or use device='cpu'."
        )
        with torch.no_grad(), within_memory(f"predicting {len(points.x):,} points of {len(points):,} tasks", few):
            return self.posterior(points)

    def suggest(self, at: Any, points: int = 1, *, about: Any = None, seed: int = 0) -> Suggestion:
        """Where to measure one task next: `points` of those `at` which it may be measured that leave least open.

        About its curve at all of them, or at the points `about`. Those that are known are not suggested again.
        """
        if len(self.context) != 1:
            raise DataError(f"{len(self.context)} tasks: suggest for each by itself, or ask gp.suggest(tasks, at).")
        wanted = self.context.at_points(at).x
        asked = None if about is None else self.context.at_points(about).x
        places = places_of(self.context, wanted, asked, points)
        with torch.no_grad():
            return suggestion(self.at(places.x), places, points, seed)

    @abstractmethod
    def posterior(self, points: Tasks) -> Answer:
        """The posterior at points that have been checked."""

    @property
    def device(self) -> torch.device:
        """Where its answers lie."""
        return torch.device("cpu")

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of each task's context, where the method has one."""
        return None

    @property
    def plausibility(self) -> Float[Tensor, " m"] | None:
        """How usual each context is among those of past tasks, from 0 to 1, where the method can tell."""
        return None
