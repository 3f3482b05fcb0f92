"""L-BFGS on many problems at once, against the textbook's, one problem after the other."""

import math
from collections import deque

import numpy as np
import pytest

from metaprior.learning.lbfgs import ENOUGH_DECREASE, HISTORY, REFUSED, _Updates, learn_together

ALL = np.ones(4, bool)


class Valleys:
    """Curved valleys of several widths, each with its least value of nothing at 1."""

    def __init__(self, widths, wall=math.inf):
        self.widths, self.wall = np.asarray(widths, float), wall

    @property
    def entries(self):
        return 4 * len(self.widths)

    def loss(self, values):
        first, last = values[:, :-1], values[:, 1:]
        bend, w = last - first**2, self.widths[:, None]
        loss = (w * bend**2 + (1 - first) ** 2).sum(1)
        slopes = np.zeros_like(values)
        slopes[:, :-1] = -4 * w * bend * first - 2 * (1 - first)
        slopes[:, 1:] += 2 * w * bend
        return np.where(values.max(1) > self.wall, np.nan, loss), slopes

    def judged(self, values, loss):
        return -loss

    def select(self, which):
        return Valleys(self.widths[list(which)], self.wall)


class Ridges(Valleys):
    """Two hollows with a ridge between them, on which the curvature does not tell how far to go."""

    def loss(self, values):
        w, above = self.widths[:, None], values**2 - 1
        return (w * above**2).sum(1), 4 * w * above * values

    def select(self, which):
        return Ridges(self.widths[list(which)])


def textbook(problem, x, steps):
    """Nocedal and Wright's two loops with backtracking: the path of one problem, and its refused steps in a row."""
    pairs = deque(maxlen=HISTORY)

    def evaluated(x):
        loss, g = problem.loss(x[None])
        return float(loss[0]), g[0]

    loss, g = evaluated(x)
    d, t, refused, path = -g, 1 / max(np.abs(g).sum(), 1.0), 0, []
    for _ in range(steps):
        trial = x + t * d
        new, slopes = evaluated(trial)
        slope = g @ d
        if math.isfinite(new) and new <= loss + ENOUGH_DECREASE * t * slope:
            s, y = trial - x, slopes - g
            x, loss, g, refused = trial, new, slopes, 0
            pairs.append((s, y) if s @ y > 1e-12 * (y @ y) else None)
            known = [one for one in pairs if one is not None]
            d, t = -two_loops(g, known), 1.0 if known else 1 / max(np.abs(g).sum(), 1.0)
        else:
            refused += 1
            shorter = -0.5 * slope * t**2 / (new - loss - slope * t) if math.isfinite(new) else 0.0
            pairs.append(None)  # a trial that is refused takes a place too
            t = min(max(shorter, 0.1 * t), 0.5 * t)
        path.append((x, loss, refused))
    return path


def two_loops(g, pairs):
    q, weights = g.copy(), []
    for s, y in reversed(pairs):
        weights.append(s @ q / (s @ y))
        q = q - weights[-1] * y
    r = q * (pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1.0)
    for (s, y), a in zip(pairs, reversed(weights), strict=True):
        r = r + s * (a - y @ r / (s @ y))
    return r


WIDTHS = [0.5, 3.0, 10.0]


@pytest.mark.parametrize("problems", [Valleys(WIDTHS), Valleys(WIDTHS, wall=1.6), Ridges(WIDTHS)])
def test_each_problem_takes_the_textbooks_steps(problems):
    start = np.random.default_rng(0).normal(size=(3, 4)) * 0.4
    if isinstance(problems, Ridges):
        start[[0, 2]] += 1.0
        start[1] = [0.1, -0.05, 0.08, 0.06]  # it alone begins on the ridge
    updates = _Updates(problems, start, ALL)
    paths = [textbook(problems.select([k]), start[k], 25) for k in range(3)]
    for step in range(25):
        updates.step(problems)
        for k, path in enumerate(paths):
            x, loss, refused = path[step]
            assert updates.x[k] == pytest.approx(x, abs=1e-3), (step, k)
            assert updates.loss[k] == pytest.approx(loss, abs=1e-3, rel=1e-2)
            if loss > 1e-3:
                assert updates.refused[k] == refused
    assert (updates.loss < 0.2).all()


def test_a_direction_that_does_not_go_down_is_given_up_with_what_led_there():
    problems = Valleys(WIDTHS)
    updates = _Updates(problems, np.random.default_rng(0).normal(size=(3, 4)) * 0.4, ALL)
    updates.step(problems)
    assert updates.known.any(1).all()
    steps = updates.basis[1][[0, HISTORY]].astype(float)
    updates.g[1] = np.linalg.svd(steps)[2][-1]  # along neither the step nor the change of slopes: H is γ there
    updates.curvature[1] = -0.5
    plain, others = -updates.g[1], [0, 2]
    d, slope = updates._direction()
    assert d[1] == pytest.approx(plain)
    assert slope == pytest.approx((updates.g * d).sum(1))
    assert not updates.known[1].any()
    assert updates.known[others].any(1).all()
    assert (slope < 0).all()


def test_a_first_step_goes_down_by_one_in_all_at_most():
    problems = Valleys([1.0, 1e-9])
    start = np.array([[3.0] * 4, [1.1] * 4])
    updates = _Updates(problems, start, ALL)
    before = updates.g.copy()
    updates.step(problems)
    assert updates.x[0] == pytest.approx(start[0] - before[0] / np.abs(before[0]).sum())
    assert _Updates(problems, start, ALL).t[1] == 1.0  # its slopes are less than one in all


def test_what_does_not_move_stays():
    start = np.full((2, 4), 0.3)
    moves = np.array([True, False, True, True])
    ended = learn_together(Valleys([1.0, 2.0]), start, moves, max_epochs=30, check_every=5, patience=9, tolerance=0.0)
    for one in ended:
        assert one.values[1] == 0.3
        assert abs(one.values[0] - 0.3) > 1e-3


def test_a_problem_does_not_depend_on_those_beside_it():
    options = {"max_epochs": 60, "check_every": 4, "patience": 3, "tolerance": 1e-6}
    start = np.random.default_rng(1).normal(size=(4, 4)) * 0.5
    problems = Valleys([0.1, 1.0, 5.0, 20.0])
    together = learn_together(problems, start, ALL, **options)
    for k, one in enumerate(together):
        (alone,) = learn_together(problems.select([k]), start[[k]], ALL, **options)
        assert one.values == pytest.approx(alone.values, abs=1e-4)
        assert one.stopped == alone.stopped


def test_when_it_ends_and_what_is_kept():
    start = np.full((1, 4), 0.5)
    few = learn_together(Valleys([1.0]), start, ALL, max_epochs=7, check_every=3, patience=5, tolerance=0.0)[0]
    assert [look.epoch for look in few.looks] == [0, 3, 6, 7]
    assert few.stopped == "reached 7 epochs"
    assert few.best == few.looks[-1]
    assert few.best.judged == pytest.approx(-few.best.loss)
    assert math.isnan(few.looks[0].loss)
    assert (start == 0.5).all()  # which is the caller's
    patient = learn_together(Valleys([1.0]), start, ALL, max_epochs=900, check_every=3, patience=4, tolerance=1e9)[0]
    assert patient.stopped == "converged: no rise above 1000000000.0 in 4 checks"
    assert patient.looks[-1].epoch == 12
    assert patient.best.judged == max(look.judged for look in patient.looks)
    at_the_end = np.ones((1, 4))
    flat = learn_together(Valleys([1.0]), at_the_end, ALL, max_epochs=90, check_every=3, patience=4, tolerance=0.0)[0]
    assert (flat.stopped, flat.looks[-1].epoch) == ("converged: no rise above 0.0 in 4 checks", 12)
    stuck = learn_together(Valleys([1.0]), at_the_end, ALL, max_epochs=900, check_every=3, patience=999, tolerance=0.0)[
        0
    ]
    assert stuck.values.tolist() == [1.0] * 4


def test_steps_that_nobody_takes_are_an_end():
    class Misleading(Valleys):
        """Its slopes point the wrong way."""

        def loss(self, values):
            loss, slopes = super().loss(values)
            return loss, -slopes

    (ended,) = learn_together(
        Misleading([1.0]), np.full((1, 4), 0.5), ALL, max_epochs=900, check_every=1, patience=999, tolerance=0.0
    )
    assert ended.stopped == "converged: no step lowers the loss any more"
    assert ended.looks[-1].epoch == REFUSED
    assert ended.skipped == 0


def test_steps_into_nothing_are_counted():
    (ended,) = learn_together(
        Valleys([1.0], wall=0.5), np.full((1, 4), 0.49), ALL, max_epochs=12, check_every=4, patience=99, tolerance=0.0
    )
    assert ended.skipped > 3
    assert np.isfinite(ended.values).all()
