"""Warped targets: any method on `g(y)`, where g is learned with a prior through the Jacobian."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.files import State
from metaprior.inference import KeptMethod, Method, WarpedConditional, summed_evidence
from metaprior.learning import LBFGS
from metaprior.priors import Warp, make_prior, make_warp
from metaprior.splits import some_of
from metaprior.tasks import Padded, Scaler, Tasks, TrainedOn, padded

SOME = 300
"""Tasks that the two numbers of a warp are learned from."""

STEPS = 60


class Warped(KeptMethod):
    """A method on warped targets; means, bounds and densities come back in the user's units.

    The warp is learned together with a plain prior (a constant mean and a Matérn kernel) by the evidence of `g(y)` plus
    `Σ log g'(y)`, the Jacobian; then the method learns from the warped tasks. warp: "identity", "log", "box-cox"
    (values above 0) or "yeo-johnson" (any values).
    """

    saved_as = "warped"
    fitted_as = "warp_"
    warp_: Warp

    def __init__(self, method: Method, warp: str = "yeo-johnson", *, seed: int = 0) -> None:
        self.method, self.warp, self.seed = method, warp, seed

    def fit(self, tasks: Tasks) -> Self:
        """Learn the warp, then the method on what it makes of the tasks."""
        self.warp_ = learned_warp(self.warp, tasks, self.seed)
        self.method.fit(warped(tasks, self.warp_))
        self.trained_on_ = TrainedOn.of(tasks, task_x=bool(self.method.trained_on_.columns.task_x))  # type: ignore[attr-defined]
        return self

    def condition(self, context: Tasks) -> WarpedConditional:
        """The method with what is known, warped."""
        self._check_fitted()
        self.warp_.check(context)
        inner = self.method.condition(warped(context, self.warp_))
        return WarpedConditional(inner, self.warp_, context, summed_slopes(context, self.warp_))

    def state(self) -> State:
        """The warp and the method, for a file."""
        self._check_fitted()
        tensors = {f"warp.{name}": value for name, value in self.warp_.state_dict().items()}
        return State(self.saved_as, {"warp": self.warp_.name}, tensors).with_parts({"method": self.method.state()})  # type: ignore[attr-defined]

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        warp = str(state.structure["warp"])
        found = cls(state.method("method"), warp)
        found.warp_ = make_warp(warp, state.tensor("warp.unit")[None]).requires_grad_(False)
        found.warp_.load_state_dict(state.part("warp."))
        return found


@torch.no_grad()
def warped(tasks: Tasks, warp: Warp) -> Tasks:
    """The tasks with `g(y)` in the place of y."""
    return replace(tasks, y=warp(tasks.y))


@torch.no_grad()
def summed_slopes(tasks: Tasks, warp: Warp) -> Float[Tensor, " m"]:
    """`Σ log g'(y)` of each task."""
    return tasks.summed(warp.log_slope(tasks.y).sum(1))


def learned_warp(name: str, tasks: Tasks, seed: int = 0) -> Warp:
    """The warp under which a plain prior has the highest evidence of y itself."""
    warp = make_warp(name, tasks.y)
    warp.check(tasks)
    if not list(warp.parameters()):
        return warp
    some = some_of(tasks, SOME, seed)
    scaled = Scaler.fit(some).scale(some)
    prior = make_prior("constant", "matern", d=some.d, p=some.p, seed=seed)
    laid_out = [(batch, _rows(some, batch)) for batch in padded(scaled)]

    def objective() -> Tensor:
        values = warp(some.y)
        spread = values.std(0)
        values = (values - values.mean(0)) / spread
        again = [replace(batch, y=torch.where(batch.mask[..., None], values[rows], 0.0)) for batch, rows in laid_out]
        jacobian = (warp.log_slope(some.y) - spread.log()).sum()
        total: Tensor = summed_evidence(prior, again, some.ids).total + jacobian
        return -total / some.y.numel()

    LBFGS([*prior.learned_parameters(), *warp.parameters()], objective).run(STEPS)
    return warp.requires_grad_(False)


def _rows(tasks: Tasks, batch: Padded) -> Int[Tensor, "b n"]:
    """Which row of the tasks stands at each place of a batch; any row where there is padding."""
    column = torch.arange(batch.mask.shape[1])
    return torch.where(batch.mask, tasks.offsets[batch.tasks][:, None] + column, 0)
