"""Many small trainings as one: L-BFGS on several problems at once, each with steps and an end of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

HISTORY = 10
"""Steps that the curvature is known from."""

ENOUGH_DECREASE = 1e-4
"""Of what the slope promises: a step that lowers the loss by less is shortened."""

REFUSED = 20
"""Shortened steps in a row after which a problem is at its end."""


ORDERS = [
    torch.tensor([half + (slot + k) % HISTORY for half in (0, HISTORY) for k in range(HISTORY)])
    for slot in range(HISTORY)
]
"""Where what is kept stands, the oldest first, by the slot that is next to be written; and the way back."""

BACK = [order.argsort() for order in ORDERS]


class Problems(Protocol):
    """Several problems, whose parameters are the rows of one matrix."""

    @property
    def entries(self) -> int:
        """Matrix entries that an evaluation goes through, of all problems together."""

    def loss(self, values: Float[Tensor, "B P"]) -> Float[Tensor, " B"]:
        """What each minimises."""

    def judged(self, values: Float[Tensor, "B P"], loss: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """What each is judged by, the higher the better; the loss at these parameters is known."""

    def select(self, which: Sequence[int]) -> Self:
        """Some of them."""


class Look(NamedTuple):
    """How a problem stood when it was judged."""

    epoch: int
    loss: float
    judged: float
    seconds: float


class Ended(NamedTuple):
    """The parameters that were judged best, how things went, and why it stopped."""

    values: Float[Tensor, " P"]
    looks: tuple[Look, ...]
    best: Look
    stopped: str
    skipped: int


def learn_together(
    problems: Problems,
    start: Float[Tensor, "B P"],
    moves: Bool[Tensor, " P"],
    *,
    max_epochs: int,
    check_every: int,
    patience: int,
    tolerance: float,
) -> list[Ended]:
    """Each problem until it is judged no better any more; an epoch is one evaluation of the loss.

    What one of them does depends on nothing but itself. Those that have ended leave the batch.
    """
    began = time.perf_counter()
    updates, best = _Updates(problems, start, moves), start.clone()
    judged = problems.judged(updates.x, updates.loss)
    looks = [[Look(0, math.nan, value, 0.0)] for value in judged.tolist()]
    tops, ended = [own[0] for own in looks], [("", 0)] * len(start)
    alive, reference = list(range(len(start))), judged.clone()
    without, epoch = torch.zeros_like(updates.refused), 0
    while alive:
        run = min(check_every, max_epochs - epoch)
        for _ in range(run):
            updates.step(problems)
        epoch += run
        judged = problems.judged(updates.x, updates.loss)
        judged = torch.where(judged.isfinite(), judged, -torch.inf)
        risen = judged > reference + tolerance
        reference, without = torch.where(risen, judged, reference), torch.where(risen, 0, without + 1)
        seconds, kept = time.perf_counter() - began, []
        for place, k in enumerate(alive):
            looks[k].append(Look(epoch, float(updates.loss[place]), float(judged[place]), seconds))
            if looks[k][-1].judged > tops[k].judged:
                tops[k], best[k] = looks[k][-1], updates.x[place]
            stopped = ""
            if int(without[place]) >= patience:
                stopped = f"converged: no rise above {tolerance} in {patience} checks"
            elif int(updates.refused[place]) >= REFUSED:
                stopped = "converged: no step lowers the loss any more"
            elif epoch >= max_epochs:
                stopped = f"reached {max_epochs} epochs"
            if stopped:
                ended[k] = (stopped, int(updates.skipped[place]))
            else:
                kept.append(place)
        if len(kept) < len(alive):
            alive = [alive[place] for place in kept]
            reference, without = reference[kept], without[kept]
            if alive:
                problems, updates = problems.select(kept), updates.select(kept)
    return [Ended(best[k], tuple(looks[k]), tops[k], *ended[k]) for k in range(len(start))]


class _Updates:
    """L-BFGS with backtracking (Nocedal and Wright, alg. 7.4), row by row.

    Every evaluation is a trial step of each problem: one that is taken is followed by a new direction, one that is
    refused by a shorter step. The direction is `H g` in the compact form of Byrd, Nocedal and Schnabel (1994): a few
    products with all problems' histories, instead of a loop over them.
    """

    def __init__(self, problems: Problems, start: Float[Tensor, "B P"], moves: Bool[Tensor, " P"]) -> None:
        B, P = start.shape
        self.moves = None if bool(moves.all()) else moves.double()
        self.x = start.clone()
        self.loss, self.g = self._evaluated(problems, self.x)
        # steps s, then changes y of the gradient: read twice in every epoch, and digits matter little to a direction
        self.basis = torch.zeros(B, 2 * HISTORY, P, dtype=torch.float32)
        self.gram = start.new_zeros(B, 2 * HISTORY, 2 * HISTORY)
        self.curvature = start.new_ones(B)  # γ
        self.slot = 0
        self.known = torch.zeros(B, HISTORY, dtype=torch.bool)
        self.refused = torch.zeros(B, dtype=torch.int64)
        self.skipped = torch.zeros(B, dtype=torch.int64)
        self.aware = self.whole = False  # whether all have known their last step, and all steps that are kept
        self.d = -self.g
        self.t = self._first_length()
        self.slope = (self.g * self.d).sum(1)

    def _first_length(self) -> Float[Tensor, " B"]:
        return (1 / self.g.abs().sum(1).clamp(min=1e-300)).clamp(max=1.0)

    def select(self, which: Sequence[int]) -> _Updates:
        """Those of some of the problems."""
        some, chosen = object.__new__(_Updates), torch.tensor(which)
        for name, value in vars(self).items():
            whole = name in ("moves", "slot", "aware", "whole")
            setattr(some, name, value if whole else value[chosen])
        return some

    def _evaluated(self, problems: Problems, x: Float[Tensor, "B P"]) -> tuple[Tensor, Tensor]:
        values = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = problems.loss(values)
            (gradient,) = torch.autograd.grad(loss.nan_to_num(0.0, 0.0, 0.0).sum(), values)
        if self.moves is not None:
            gradient = gradient * self.moves
        return loss.detach(), gradient

    @torch.no_grad()
    def step(self, problems: Problems) -> None:
        """One evaluation: of every problem, a trial step."""
        trial = torch.addcmul(self.x, self.d, self.t[:, None])
        loss, g = self._evaluated(problems, trial)
        finite = (loss + g.sum(1)).isfinite()
        taken = finite & (loss <= self.loss + ENOUGH_DECREASE * self.t * self.slope)
        s, y = trial - self.x, g - self.g
        if bool(taken.all()):
            self.x, self.loss, self.g = trial, loss, g
            self.refused.zero_()
            self._remember(s, y, taken)
            self.d, self.slope = self._direction()
            self.t = self._length()
            return
        self.skipped += ~finite
        self.refused = torch.where(taken, 0, self.refused + 1)
        rise = loss - self.loss - self.slope * self.t
        shorter = (-0.5 * self.slope * self.t.square() / rise).nan_to_num(0.0, 0.0, 0.0)
        shorter = torch.where(finite, shorter.clamp(0.1 * self.t, 0.5 * self.t), 0.1 * self.t)
        moved = taken[:, None]
        self.x, self.loss = torch.where(moved, trial, self.x), torch.where(taken, loss, self.loss)
        self.g = torch.where(moved, g, self.g)
        self._remember(s, y, taken)
        d, slope = self._direction()
        self.d, self.slope = torch.where(moved, d, self.d), torch.where(taken, slope, self.slope)
        self.t = torch.where(taken, self._length(), shorter)

    def _length(self) -> Float[Tensor, " B"]:
        """Of the next step: whole, or careful where nothing is known of the curvature."""
        if self.aware:
            return torch.ones_like(self.loss)
        return torch.where(self.known.any(1), 1.0, self._first_length())

    def _remember(self, s: Tensor, y: Tensor, taken: Bool[Tensor, " B"]) -> None:
        sy, yy = torch.linalg.vecdot(s, y), torch.linalg.vecdot(y, y)
        fine = taken & (sy > 1e-12 * yy) & (yy > 0)
        k = self.slot
        self.slot = (k + 1) % HISTORY
        self.known[:, k] = fine
        self.basis[:, k], self.basis[:, HISTORY + k] = s, y
        self.curvature = torch.where(fine, sy / yy, self.curvature)
        self.aware = bool(fine.all())
        self.whole = bool(self.known.all())

    def _direction(self) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"]]:
        """`−H g`, and the slope along it."""
        k = (self.slot - 1) % HISTORY
        latest = torch.stack([self.basis[:, k], self.basis[:, HISTORY + k], self.g.float()], 1)
        products = (latest @ self.basis.mT).double()
        for row, place in ((0, k), (1, HISTORY + k)):
            self.gram[:, place] = products[:, row]
            self.gram[:, :, place] = products[:, row]
        order = ORDERS[self.slot]
        ordered = self.gram.index_select(1, order).index_select(2, order)
        along = products[:, 2].index_select(1, order)[..., None]
        sy, yy = ordered[:, :HISTORY, HISTORY:], ordered[:, HISTORY:, HISTORY:]
        sg, yg = along[:, :HISTORY], along[:, HISTORY:]
        if not self.whole:  # what is not known has no part in it
            known = self.known[:, order[:HISTORY]]
            both = known[:, :, None] & known[:, None, :]
            sy = torch.where(both, sy, torch.eye(HISTORY, dtype=sy.dtype))
            yy, sg, yg = torch.where(both, yy, 0.0), sg * known[..., None], yg * known[..., None]
        R, gamma = sy.triu(), self.curvature[:, None, None]
        w = torch.linalg.solve_triangular(R, sg, upper=True)
        inner = R.diagonal(dim1=-2, dim2=-1)[..., None] * w + gamma * (yy @ w - yg)
        a = torch.linalg.solve_triangular(R.mT, inner, upper=False)
        coefficients = torch.cat([-a, gamma * w], 1).mT.float().index_select(2, BACK[self.slot])
        d = torch.addcmul((coefficients @ self.basis)[:, 0], gamma[:, 0], self.g, value=-1)
        slope = torch.linalg.vecdot(self.g, d)
        misled = ~(slope < 0)
        if bool(misled.any()):  # what is known of the curvature is of no use: forget it
            self.known[misled] = False
            self.aware = self.whole = False
            d = torch.where(misled[:, None], -self.g, d)
            slope = torch.linalg.vecdot(self.g, d)
        return d, slope
