"""Many small trainings as one: L-BFGS on several problems at once, each with steps and an end of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np
from jaxtyping import Bool, Float

from metaprior.arrays import Array, product

HISTORY = 10
"""Steps that the curvature is known from."""

ENOUGH_DECREASE = 1e-4
"""Of what the slope promises: a step that lowers the loss by less is shortened."""

REFUSED = 20
"""Shortened steps in a row after which a problem is at its end."""

ORDERS = [
    np.array([half + (slot + k) % HISTORY for half in (0, HISTORY) for k in range(HISTORY)]) for slot in range(HISTORY)
]
"""Where what is kept stands, the oldest first, by the slot that is next to be written; and the way back."""

BACK = [order.argsort() for order in ORDERS]


class Problems(Protocol):
    """Several problems, whose parameters are the rows of one matrix."""

    @property
    def entries(self) -> int:
        """Matrix entries that an evaluation goes through, of all problems together."""

    def loss(self, values: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
        """What each minimises, and its slopes."""

    def judged(self, values: Float[Array, "B P"], loss: Float[Array, " B"]) -> Float[Array, " B"]:
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

    values: Float[Array, " P"]
    looks: tuple[Look, ...]
    best: Look
    stopped: str
    skipped: int


@np.errstate(all="ignore")  # a step that goes too far is taken back
def learn_together(
    problems: Problems,
    start: Float[Array, "B P"],
    moves: Bool[Array, " P"],
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
    updates, best = _Updates(problems, start, moves), start.copy()
    judged = problems.judged(updates.x, updates.loss)
    looks = [[Look(0, math.nan, value, 0.0)] for value in judged.tolist()]
    tops, ended = [own[0] for own in looks], [("", 0)] * len(start)
    alive, reference = list(range(len(start))), judged
    without, epoch = np.zeros(len(start), int), 0
    while alive:
        run = min(check_every, max_epochs - epoch)
        for _ in range(run):
            updates.step(problems)
        epoch += run
        judged = problems.judged(updates.x, updates.loss)
        judged = np.where(np.isfinite(judged), judged, -np.inf)
        risen = judged > reference + tolerance
        reference, without = np.where(risen, judged, reference), np.where(risen, 0, without + 1)
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
    products with all problems' histories, instead of a loop over them. In NumPy, whose calls are quicker than torch's:
    of problems as small as these, that is what an update costs.
    """

    def __init__(self, problems: Problems, start: Float[Array, "B P"], moves: Bool[Array, " P"]) -> None:
        B, P = start.shape
        self.moves = None if moves.all() else moves.astype(float)
        self.x = start.copy()
        self.loss, self.g = self._evaluated(problems, self.x)
        # steps s, then changes y of the gradient: read twice in every epoch, and digits matter little to a direction
        self.basis = np.zeros((B, 2 * HISTORY, P), np.float32)
        self.gram = np.zeros((B, 2 * HISTORY, 2 * HISTORY))
        self.known = np.zeros((B, HISTORY), bool)
        self.curvature = np.ones(B)  # γ
        self.refused, self.skipped = np.zeros(B, int), np.zeros(B, int)
        self.slot = 0
        self.d, self.t = -self.g, self._first_length()
        self.slope = _dots(self.g, self.d)

    def _first_length(self) -> Float[Array, " B"]:
        found: Array = np.minimum(1 / np.maximum(np.abs(self.g).sum(1), 1e-300), 1.0)
        return found

    def select(self, which: Sequence[int]) -> _Updates:
        """Those of some of the problems."""
        some = object.__new__(_Updates)
        for name, value in vars(self).items():
            setattr(some, name, value if name in ("moves", "slot") else value[list(which)])
        return some

    def _evaluated(self, problems: Problems, x: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
        loss, slopes = problems.loss(x)
        return loss, slopes if self.moves is None else slopes * self.moves

    def step(self, problems: Problems) -> None:
        """One evaluation: of every problem, a trial step."""
        trial = self.x + self.t[:, None] * self.d
        loss, g = self._evaluated(problems, trial)
        finite = np.isfinite(loss + g.sum(1))
        taken = finite & (loss <= self.loss + ENOUGH_DECREASE * self.t * self.slope)
        s, y = trial - self.x, g - self.g
        if taken.all():
            self.x, self.loss, self.g = trial, loss, g
            self.refused[:] = 0
            self._remember(s, y, taken)
            self.d, self.slope = self._direction()
            self.t = self._length()
            return
        self.skipped += ~finite
        self.refused = np.where(taken, 0, self.refused + 1)
        with np.errstate(all="ignore"):
            shorter = -0.5 * self.slope * self.t**2 / (loss - self.loss - self.slope * self.t)
        shorter = np.clip(np.where(finite, shorter, 0.0), 0.1 * self.t, 0.5 * self.t)
        moved = taken[:, None]
        self.x, self.loss = np.where(moved, trial, self.x), np.where(taken, loss, self.loss)
        self.g = np.where(moved, g, self.g)
        self._remember(s, y, taken)
        d, slope = self._direction()
        self.d, self.slope = np.where(moved, d, self.d), np.where(taken, slope, self.slope)
        self.t = np.where(taken, self._length(), shorter)

    def _length(self) -> Float[Array, " B"]:
        """Of the next step: whole, or careful where nothing is known of the curvature."""
        aware = self.known.any(1)
        return np.ones_like(self.loss) if aware.all() else np.where(aware, 1.0, self._first_length())

    def _remember(self, s: Float[Array, "B P"], y: Float[Array, "B P"], taken: Bool[Array, " B"]) -> None:
        sy, yy = _dots(s, y), _dots(y, y)
        fine = taken & (sy > 1e-12 * yy) & (np.minimum(sy, yy) > 1e-30)  # single precision loses what is less
        k = self.slot
        self.slot = (k + 1) % HISTORY
        self.known[:, k] = fine
        self.basis[:, k], self.basis[:, HISTORY + k] = s, y
        self.curvature = np.where(fine, sy / np.where(fine, yy, 1.0), self.curvature)

    def _direction(self) -> tuple[Float[Array, "B P"], Float[Array, " B"]]:
        """`−H g`, and the slope along it."""
        k = (self.slot - 1) % HISTORY
        latest = np.stack([self.basis[:, k], self.basis[:, HISTORY + k], self.g.astype(np.float32)], 1)
        products = product(latest, self.basis.swapaxes(1, 2)).astype(float)
        for row, place in ((0, k), (1, HISTORY + k)):
            self.gram[:, place] = self.gram[:, :, place] = products[:, row]
        order = ORDERS[self.slot]
        ordered, along = self.gram[:, order[:, None], order], products[:, 2, order]
        sy, yy = ordered[:, :HISTORY, HISTORY:], ordered[:, HISTORY:, HISTORY:]
        sg, yg = along[:, :HISTORY, None], along[:, HISTORY:, None]
        known = self.known[:, order[:HISTORY]]
        if not known.all():  # what is not known has no part in it
            both = known[:, :, None] & known[:, None, :]
            sy, yy = np.where(both, sy, np.eye(HISTORY)), np.where(both, yy, 0.0)
            sg, yg = sg * known[..., None], yg * known[..., None]
        R, gamma = np.triu(sy), self.curvature[:, None, None]
        R_inverse = np.linalg.inv(R)
        w = R_inverse @ sg
        inner = R.diagonal(0, 1, 2)[..., None] * w + gamma * (yy @ w - yg)
        a = R_inverse.swapaxes(1, 2) @ inner
        coefficients = np.concatenate([-a, gamma * w], 1)[:, BACK[self.slot], 0].astype(np.float32)
        d = product(coefficients[:, None], self.basis)[:, 0] - self.curvature[:, None] * self.g
        slope = _dots(self.g, d)
        misled = ~(slope < 0)
        if misled.any():  # what is known of the curvature is of no use: forget it
            self.known[misled] = False
            d[misled] = -self.g[misled]
            slope = _dots(self.g, d)
        return d, slope


def _dots(a: Float[Array, "B P"], b: Float[Array, "B P"]) -> Float[Array, " B"]:
    """The inner product of each row with its like."""
    found: Array = np.einsum("ij,ij->i", a, b)
    return found
