"""In the user's units: the scaler's own numbers, and what `MetaGP` says of tables in extreme ones."""

from __future__ import annotations

import numpy as np
from mpmath import mp, mpf

from campaign.numerics.ahead import wanted
from campaign.numerics.drawn import Group, model_of
from campaign.numerics.exact import DIGITS, Number
from campaign.numerics.judged import Outcome
from campaign.numerics.wanted import Values
from metaprior import MetaGP, NumericalError, Tasks
from metaprior.arrays import Array
from metaprior.tasks import Scaler

CONSTANT = 1e-12
"""Of its magnitude: a column that deviates by no more is scaled by the magnitude."""


def judge_units(seed: int, outcome: Outcome) -> None:
    """A small model in random units: how it scales, and what it answers."""
    rng = np.random.default_rng(seed)
    unit_x, unit_y = 10.0 ** rng.uniform(-150, 150, 2)
    offset_x, offset_y = rng.choice([0.0, 1.0, 1e9], 2)
    kind = int(rng.integers(3))

    def task(n: int) -> tuple[Array, Array]:
        x = rng.uniform(-1, 1, size=(n, 1))
        curve = (np.sin(3 * x) + rng.normal(size=(1, 1)), np.full((n, 1), 0.7), rng.choice([-1.0, 1.0], (n, 1)))[kind]
        return unit_x * (offset_x + x), unit_y * (offset_y + curve)

    past, (x, y), (at, y_at) = Tasks.from_pairs([task(5) for _ in range(6)]), task(4), task(3)
    told = f"seed {seed}: x {unit_x:.0e} × ({offset_x:g} ± 1), y {unit_y:.0e} × ({offset_y:g} + kind {kind})"
    gp = MetaGP("constant", str(rng.choice(["rbf", "matern", "exponential"])), max_epochs=2, progress=False, seed=0)
    try:
        gp.fit(past)
    except NumericalError:
        outcome.counts["models refused"] += 1
        return
    outcome.counts["models"] += 1
    scaler: Scaler = gp.scaler_
    with mp.workdps(DIGITS):
        for name, column, shift, scale in (
            ("x", past.x, scaler.x_shift, scaler.x_scale), ("y", past.y, scaler.y_shift, scaler.y_scale),
        ):  # fmt: skip
            _judge_scaler(name, column[:, 0].numpy(), float(shift[0]), float(scale[0]), told, outcome)
        _judge_scaled(scaler, Tasks.from_pairs([(x, y)]), told, outcome)
        _judge_answers(gp, Tasks.from_pairs([(x, y)]), Tasks.from_pairs([(at, y_at)]), told, outcome)


def _judge_scaler(name: str, column: Array, shift: float, scale: float, told: str, outcome: Outcome) -> None:
    values = [mpf(float(value)) for value in column]
    middle, largest = mp.fsum(values) / len(values), max(map(abs, values))
    deviation = mp.sqrt(mp.fsum((value - middle) ** 2 for value in values) / len(values))
    if deviation <= CONSTANT * abs(middle):
        deviation = abs(middle) if middle else mpf(1)
    condition = float(largest / deviation)
    outcome.compare(f"shift of {name} | scaler", np.array([shift]), _values(middle, largest, 1.0), told)
    outcome.compare(f"scale of {name} | scaler", np.array([scale]), _values(deviation, deviation, condition), told)


def _values(value: Number, scale: Number, condition: float) -> Values:
    return Values(np.array([value], dtype=object), np.array([scale], dtype=object), condition)


def _judge_answers(gp: MetaGP, context: Tasks, points: Tasks, told: str, outcome: Outcome) -> None:
    """What the prior says exactly of the scaled task, taken back to the user's units."""
    conditional = gp.condition(context)
    posterior = conditional.at(points)
    joint = posterior.joint_log_density(points.y)
    scaled = Group(gp.prior_, model_of(gp.prior_), gp.scaler_.scale(context), gp.scaler_.scale(points), told)
    evidence, covariances = posterior.evidence, posterior.covariances()
    assert evidence is not None
    assert covariances is not None
    exact = wanted(scaled, 0, evidence.jitter, 0.0)
    if not exact.values or posterior.jitter > evidence.jitter:
        return
    found = {
        "mean": posterior.mean, "variance": posterior.sd.square(), "covariance": covariances[0],
        "evidence": evidence.total, "joint density": joint,
    }  # fmt: skip
    for name, values in exact.values.items():
        if name in found:
            back = _back(name, values, gp.scaler_, len(context.x), len(points.x))
            outcome.compare(f"{name} | MetaGP", found[name].flatten().numpy(), back, told)


def _back(name: str, values: Values, scaler: Scaler, n: int, k: int) -> Values:
    """Exact values of a scaled task, in the user's units."""
    shift, scale = mpf(float(scaler.y_shift[0])), mpf(float(scaler.y_scale[0]))
    value, size, condition = values
    if name == "mean":
        return Values(value * scale + shift, size * scale + abs(shift), condition)
    if name in ("variance", "covariance"):
        return Values(value * scale**2, size * scale**2, condition)
    moved = (n if name == "evidence" else k) * mp.log(scale)
    return Values(value - moved, size + abs(moved), condition)


def _judge_scaled(scaler: Scaler, tasks: Tasks, told: str, outcome: Outcome) -> None:
    """Each value, less the shift, over the scale."""
    found = scaler.scale(tasks)
    columns = (
        ("x", tasks.x, found.x, scaler.x_shift, scaler.x_scale),
        ("y", tasks.y, found.y, scaler.y_shift, scaler.y_scale),
    )
    for name, raw, said, shift, scale in columns:
        value = [(mpf(float(one)) - mpf(float(shift[0]))) / mpf(float(scale[0])) for one in raw[:, 0]]
        exact = np.array(value, dtype=object)
        outcome.compare(f"scaled {name} | scaler", said[:, 0].numpy(), Values(exact, abs(exact), 1.0), told)
