"""Warped targets: any method on `g(y)`, where g is learned with a prior through the Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.arrays import Array
from metaprior.files import State
from metaprior.inference import Conditional, KeptMethod, Method, StackedTasks, WarpedConditional, stacked_evidence
from metaprior.learning import learn_together
from metaprior.priors import WARPS, Warp, make_prior, make_warp, stacked
from metaprior.splits import some_of
from metaprior.tasks import Scaler, Tasks, TrainedOn

SOME = 300
"""Tasks that the two numbers of a warp are learned from."""

STEPS, CHECK, TOLERANCE = 60, 5, 1e-3
"""Epochs in which they are learned, and when the evidence is looked at: where it rises by less, they are as good."""


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
        self._learned_from(tasks)
        return self

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks], warps: Sequence[Warp] | None = None) -> None:
        """All warps together (where they are not known), and then the methods."""
        if len({one.warp for one in methods}) > 1 or len({type(one.method) for one in methods}) > 1:
            for one, own in zip(methods, tasks, strict=True):
                cls.fit_many([one], [own])
            return
        warps = warps or learned_warps(methods[0].warp, tasks, [one.seed for one in methods])
        inside = [warped(own, warp) for own, warp in zip(tasks, warps, strict=True)]
        type(methods[0].method).fit_many([one.method for one in methods], inside)
        for one, warp, own in zip(methods, warps, tasks, strict=True):
            one.warp_ = warp
            one._learned_from(own)

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """The warp as it was learned from some of the tasks, bent within the range of all."""
        self.warp_ = earlier.warp_.within(tasks.y.amin(0), tasks.y.amax(0))
        self.warp_.check(tasks)
        self.method.fit_from(earlier.method, warped(tasks, self.warp_))
        self._learned_from(tasks)
        return self

    def _learned_from(self, tasks: Tasks) -> None:
        self.trained_on_ = TrainedOn.of(tasks, task_x=bool(self.method.trained_on_.columns.task_x))  # type: ignore[attr-defined]

    def condition(self, context: Tasks) -> WarpedConditional:
        """The method with what is known, warped."""
        return self.around(context, self.method.condition)

    def around(self, context: Tasks, condition: Callable[[Tasks], Conditional[Any]]) -> WarpedConditional:
        """What is made of the warped context, taken back."""
        self._check_fitted()
        self.warp_.check(context)
        inner = condition(warped(context, self.warp_))
        return WarpedConditional(inner, self.warp_, context, summed_slopes(context, self.warp_))

    def to(self, device: str) -> Self:
        """Learn and answer there from now on."""
        if isinstance(self.method, KeptMethod):
            self.method.to(device)
        return super().to(device)

    def state(self) -> State:
        """The warp and the method, for a file."""
        self._check_fitted()
        tensors = {f"warp.{name}": value for name, value in self.warp_.tensors.items()}
        return State(self.saved_as, {"warp": self.warp_.name}, tensors).with_parts({"method": self.method.state()})  # type: ignore[attr-defined]

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The same again."""
        warp = str(state.structure["warp"])
        found = cls(state.method("method"), warp)
        found.warp_ = WARPS[warp](**state.part("warp."))
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
    return learned_warps(name, [tasks], [seed])[0]


def learned_warps(name: str, tasks: Sequence[Tasks], seeds: Sequence[int]) -> list[Warp]:
    """The same for each of several sets of tasks, all together."""
    warps = [make_warp(name, own.y) for own in tasks]
    for warp, own in zip(warps, tasks, strict=True):
        warp.check(own)
    if not warps[0].learns:
        return warps
    problems = _Warps(warps, [some_of(own, SOME, seed) for own, seed in zip(tasks, seeds, strict=True)])
    start = problems.start
    ends = learn_together(
        problems,
        start,
        np.ones(start.shape[1], bool),
        max_epochs=STEPS,
        check_every=CHECK,
        patience=1,
        tolerance=TOLERANCE,
    )
    return [warp.bent_by(*problems.learned(end.values[None])[:, 0]) for warp, end in zip(warps, ends, strict=True)]


class _Warps:
    """Warps and the plain priors they are learned with, as `Problems`: a row holds the warp's parameters, then theirs.

    What a plain prior says of warped values is compared in the units of y: with the Jacobian, and after bringing the
    warped values to mean 0 and deviation 1, which it starts from.
    """

    def __init__(self, warps: Sequence[Warp], tasks: Sequence[Tasks]) -> None:
        self.warps, self.tasks = list(warps), list(tasks)
        scaled = [Scaler.fit(own).scale(own) for own in tasks]
        priors = [make_prior("constant", "matern", d=own.d, p=own.p, seed=0) for own in scaled]
        together = stacked(priors)
        assert together is not None  # a constant and a Matérn kernel have their formulas
        self.stack, self.laid_out = together, StackedTasks.of(scaled, whole=True)
        self.y = torch.cat([own.y for own in tasks])
        self.owner = torch.arange(len(tasks)).repeat_interleave(torch.tensor([len(own.y) for own in tasks]))
        self.count = torch.tensor([[float(len(own.y))] for own in tasks], dtype=torch.float64)
        known = [torch.stack([warp.tensors[name] for warp in warps])[self.owner] for name in ("unit", "lower", "upper")]
        self.warp = type(warps[0])(*known)  # of every value, the one of its tasks
        self.own = len(warps[0].learns) * len(warps[0].unit)

    @property
    def start(self) -> Float[Array, "B P"]:
        """Warps that bend nothing, and the priors as they are made."""
        return np.concatenate([np.zeros((len(self.warps), self.own)), self.stack.start], 1)

    def learned(self, values: Float[Array, "B P"]) -> Float[Tensor, "k B p"]:
        """What bends the warps, in the order in which they learn it."""
        own = torch.from_numpy(values[:, : self.own])
        return own.reshape(len(own), len(self.warp.learns), -1).movedim(1, 0)

    @property
    def entries(self) -> int:
        """Covariance entries."""
        return self.laid_out.entries

    def loss(self, values: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
        """The negative evidence of y per value, and its slopes."""
        own = self.learned(values).requires_grad_()
        with torch.enable_grad():
            standard, jacobian = self._standard(self.warp.bent_by(*own[:, self.owner]))
        total, slopes, along, _ = stacked_evidence(
            self.stack, values[:, self.own :], self.laid_out, standard.detach().numpy(), sloped=True
        )
        assert slopes is not None
        assert along is not None
        with torch.enable_grad():  # a scalar: slopes that are given to autograd make torch import sympy, a second
            whole = (standard * torch.from_numpy(along)).sum() + jacobian.sum()
        (bent,) = torch.autograd.grad(whole, own)
        found = np.concatenate([bent.movedim(0, 1).flatten(1).numpy(), slopes], 1)
        return -(total + jacobian.detach().numpy()) / self.laid_out.values, -found / self.laid_out.values[:, None]

    def _standard(self, warp: Warp) -> tuple[Float[Tensor, "N p"], Float[Tensor, " B"]]:
        """The warped values as a plain prior sees them, and the log of what that does to densities."""
        t, slope = warp.bent(self.y), warp.bent_log_slope(self.y)
        middle = self._sums(t) / self.count
        gap = t - middle[self.owner]
        spread = (self._sums(gap.square()) / (self.count - 1)).sqrt()
        jacobian = (self._sums(slope) - self.count * spread.log()).sum(1)
        return gap / spread[self.owner], jacobian

    def _sums(self, values: Float[Tensor, "N p"]) -> Float[Tensor, "B p"]:
        return values.new_zeros(len(self.tasks), values.shape[1]).index_add(0, self.owner, values)

    def judged(self, values: Float[Array, "B P"], loss: Float[Array, " B"]) -> Float[Array, " B"]:
        """The evidence itself: two numbers are not learned by heart."""
        return -loss

    def select(self, which: Sequence[int]) -> _Warps:
        """Some of them."""
        return _Warps([self.warps[k] for k in which], [self.tasks[k] for k in which])
