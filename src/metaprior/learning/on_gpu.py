"""A training on a GPU as `Problems`: the same steps as elsewhere, each evaluation one recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaprior.arrays import Array
from metaprior.inference import check_fits
from metaprior.learning.objective import evidence_loss, with_hyper_prior
from metaprior.learning.recording import recording, with_slopes
from metaprior.learning.spec import TrainingSpec
from metaprior.learning.threads import entries_of
from metaprior.priors import HyperPrior, Prior
from metaprior.tasks import Tasks, batches


class PriorOnGPU:
    """A prior that learns from tasks and is judged by others, its parameters as one row of numbers.

    Its numbers come and its slopes go in one copy each.
    """

    def __init__(
        self, prior: Prior, training: Tasks, judge: Tasks | None, how: TrainingSpec, law: HyperPrior | None
    ) -> None:
        check_fits(prior, training)
        self.parameters = prior.learned_parameters()
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = self._read()
        loss = evidence_loss(prior, how.weighting)
        whole = loss if law is None else with_hyper_prior(loss, law, len(training))
        laid_out, by = batches(training, prior.like), training if judge is None else judge
        self.entries = entries_of(laid_out)
        held_out, judging = (laid_out, whole) if judge is None else (batches(by, prior.like), loss)
        values = by.y.numel() if how.weighting == "task" else len(by) * by.p

        def evaluated() -> Tensor:
            self._write()
            with torch.no_grad():
                judged = -judging(held_out, by.ids) / values
            value, slopes = with_slopes(lambda: whole(laid_out, training.ids) / len(training), self.parameters)
            return torch.cat([part.flatten().double() for part in (judged, value, *slopes)])

        self._evaluated = recording(evaluated)

    @property
    def start(self) -> Float[Array, "1 P"]:
        """Where it stands."""
        found: Array = self._read().cpu().numpy()[None]
        return found

    @property
    def moves(self) -> Bool[Array, " P"]:
        """Which parameters learn: all that are there."""
        return np.ones(len(self.flat), bool)

    def loss(self, values: Float[Array, "1 P"]) -> tuple[Float[Array, " 1"], Float[Array, "1 P"]]:
        """The negative evidence (and log density of the parameters) per task, and its slopes."""
        found = self._at(values)
        return found[:, 1], found[:, 2:]

    def judged(self, values: Float[Array, "1 P"], loss: Float[Array, " 1"]) -> Float[Array, " 1"]:
        """The evidence per value of the tasks to stop by."""
        return self._at(values)[:, 0]

    def select(self, which: Sequence[int]) -> Self:
        """It is the only one."""
        return self

    def write(self, values: Float[Array, "1 P"]) -> None:
        """What was learned, into the prior."""
        self._take(values)
        self._write()

    def _at(self, values: Float[Array, "1 P"]) -> Float[Array, "1 P+2"]:
        """What it is judged by, the loss, and its slopes: to record two graphs takes longer than to compute all."""
        self._take(values)
        found: Array = self._evaluated().cpu().numpy()[None]
        return found

    def _take(self, values: Float[Array, "1 P"]) -> None:
        self.flat.copy_(torch.from_numpy(values[0]))

    @torch.no_grad()
    def _read(self) -> Float[Tensor, " P"]:
        return torch.cat([parameter.flatten().double() for parameter in self.parameters])

    @torch.no_grad()
    def _write(self) -> None:
        for parameter, values in zip(self.parameters, self.flat.split(self.sizes), strict=True):
            parameter.copy_(values.view_as(parameter))
