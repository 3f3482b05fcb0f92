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
        self.d = -self.g
        self.t = self._first_length()
        self.slope = (self.g * self.d).sum(1)

    def _first_length(self) -> Float[Tensor, " B"]:
        return (1 / self.g.abs().sum(1).clamp(min=1e-300)).clamp(max=1.0)

    def select(self, which: Sequence[int]) -> _Updates:
        """Those of some of the problems."""
        some, chosen = object.__new__(_Updates), torch.tensor(which)
        for name, value in vars(self).items():
            whole = name in ("moves", "slot")
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
        finite = loss.isfinite() & g.sum(1).isfinite()
        taken = finite & (loss <= self.loss + ENOUGH_DECREASE * self.t * self.slope)
        self.skipped += ~finite
        self.refused = torch.where(taken, 0, self.refused + 1)
        rise = loss - self.loss - self.slope * self.t
        shorter = (-0.5 * self.slope * self.t.square() / rise).nan_to_num(0.0, 0.0, 0.0)
        shorter = torch.where(finite, shorter.clamp(0.1 * self.t, 0.5 * self.t), 0.1 * self.t)
        s, y = trial - self.x, g - self.g
        moved = taken[:, None]
        self.x, self.loss = torch.where(moved, trial, self.x), torch.where(taken, loss, self.loss)
        self.g = torch.where(moved, g, self.g)
        self._remember(s, y, taken)
        new = self._direction()
        slope = (self.g * new).sum(1)
        bad = ~(slope < 0) | ~slope.isfinite()
        again = taken & bad
        if bool(again.any()):  # what is known of the curvature misleads: forget it
            self.known[again] = False
            new = torch.where(again[:, None], -self.g, new)
            slope = (self.g * new).sum(1)
        blind = ~self.known.any(1)
        whole = torch.where(blind, self._first_length(), 1.0)
        self.d = torch.where(moved, new, self.d)
        self.slope = torch.where(taken, slope, self.slope)
        self.t = torch.where(taken, whole, shorter)

    def _remember(self, s: Tensor, y: Tensor, taken: Bool[Tensor, " B"]) -> None:
        sy, yy = (s * y).sum(1), y.square().sum(1)
        fine = taken & (sy > 1e-12 * yy) & (yy > 0)
        k = self.slot
        self.slot = (k + 1) % HISTORY
        self.known[:, k] = fine
        self.basis[:, k] = torch.where(fine[:, None], s, 0.0)
        self.basis[:, HISTORY + k] = torch.where(fine[:, None], y, 0.0)
        self.curvature = torch.where(fine, sy / yy.clamp(min=1e-300), self.curvature)

    def _direction(self) -> Float[Tensor, "B P"]:
        """`−H g`."""
        k = (self.slot - 1) % HISTORY
        latest = torch.stack([self.basis[:, k], self.basis[:, HISTORY + k], self.g.float()], 1)
        products = (latest @ self.basis.mT).double()
        self.gram[:, :, k] = self.gram[:, k] = products[:, 0]
        self.gram[:, :, HISTORY + k] = self.gram[:, HISTORY + k] = products[:, 1]
        order = torch.arange(self.slot, self.slot + HISTORY) % HISTORY
        both = self.known[:, order]
        valid = both[:, :, None] & both[:, None, :]
        eye = torch.eye(HISTORY, dtype=self.g.dtype)
        sy = torch.where(valid, self.gram[:, order][:, :, HISTORY + order], eye)
        yy = torch.where(valid, self.gram[:, HISTORY + order][:, :, HISTORY + order], 0.0)
        sg = torch.where(both, products[:, 2, order], 0.0)[..., None]
        yg = torch.where(both, products[:, 2, HISTORY + order], 0.0)[..., None]
        R, gamma = sy.triu(), self.curvature[:, None, None]
        w = torch.linalg.solve_triangular(R, sg, upper=True)
        inner = R.diagonal(dim1=-2, dim2=-1)[..., None] * w + gamma * (yy @ w - yg)
        a = torch.linalg.solve_triangular(R.mT, inner, upper=False)
        coefficients = self.g.new_zeros(len(self.g), 1, 2 * HISTORY)
        coefficients[:, 0, order] = -a[..., 0]
        coefficients[:, 0, HISTORY + order] = (gamma * w)[..., 0]
        return (coefficients.float() @ self.basis)[:, 0] - gamma[:, 0] * self.g
