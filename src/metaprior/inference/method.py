"""The one contract of methods: fit on meta-tasks, then condition on the contexts of target tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import torch

from metaprior.devices import device_of
from metaprior.errors import DataError
from metaprior.files import Saved
from metaprior.inference.conditional import Conditional
from metaprior.inference.posterior import Posterior
from metaprior.tasks import Tasks


class Method(ABC):
    """Anything that learns from meta-tasks and predicts a target task from its context."""

    @abstractmethod
    def fit(self, tasks: Tasks) -> Self:
        """Learn from the meta-tasks."""

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """Fit several of this class, each on tasks of its own: one by one, where they cannot be learned together."""
        for method, own in zip(methods, tasks, strict=True):
            method.fit(own)

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """Fit, given one like it that has learned from some of the tasks: by default anew."""
        type(self).fit_many([self], [tasks])
        return self

    @abstractmethod
    def condition(self, context: Tasks) -> Conditional[Any]:
        """The method with what is known of some target tasks, each of which it has looked at once."""

    def predict(self, context: Tasks, at: Any) -> Posterior:
        """The posterior at points of the target tasks, given their contexts: the same tasks in the same order.

        at: `Tasks`, or one array of points for every task. Task covariates may be those of either.
        """
        return posterior_of(self, context, at)


def posterior_of(method: Method, context: Tasks, at: Any) -> Posterior:
    """What `Method.predict` gives, without what a method of its own may say to a user about it."""
    if isinstance(at, Tasks) and at.covariates is not None:
        if context.covariates is None:
            columns = context.columns._replace(task_x=at.columns.task_x)
            context = replace(context, covariates=at.covariates, columns=columns)
        elif not torch.equal(context.covariates, at.covariates):
            raise DataError("the points say something else of a task as a whole than its context: give it once.")
    found: Posterior = method.condition(context).at(at)
    return found


class KeptMethod(Method, Saved):
    """A method that can be kept in a file."""

    def to(self, device: str) -> Self:
        """Learn and answer there from now on: "cpu", "cuda" or "auto". What gains nothing from a GPU stays as it is."""
        device_of(device)
        return self
