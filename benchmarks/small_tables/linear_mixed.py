"""statsmodels' MixedLM: a spline mean, and for each task a random level and slope.

The mean is a natural cubic spline of the first input (with further inputs linear). Covariance and noise are those of
restricted maximum likelihood; a new task is conditioned on in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from patsy import build_design_matrices, dmatrix
from statsmodels.regression.mixed_linear_model import MixedLM

from small_tables.protocol import Array, Gaussian, Pair, Predict
from small_tables.units import Units

FREEDOM = 5
"""Degrees of freedom of the spline, where the inputs have so many different values."""


def fit(train: Sequence[Pair]) -> Predict:
    units = Units.of(train)
    tasks = units.scaled(train)
    x, y = (np.concatenate(values) for values in zip(*tasks, strict=True))
    low, high = x.min(0), x.max(0)
    freedom = min(FREEDOM, len(np.unique(x[:, 0])) - 1)
    spline = dmatrix(f"cr(x, df={freedom}) - 1" if freedom >= 3 else "x", {"x": x[:, 0]})

    def mean_design(at: Array) -> Array:
        inside = np.clip(at, low, high)
        (columns,) = build_design_matrices([spline.design_info], {"x": inside[:, 0]})
        return np.concatenate([np.asarray(columns), at[:, 1:]], 1)

    groups = np.repeat(np.arange(len(tasks)), [len(one) for _, one in tasks])
    found = MixedLM(y, mean_design(x), groups, exog_re=_slopes(x)).fit()
    b, covariance, noise = np.asarray(found.fe_params), np.asarray(found.cov_re), float(found.scale)

    def one(context: Pair, at: Array) -> tuple[Array, Array]:
        known, values = units.x(context[0]), units.y(context[1])
        z, ahead = _slopes(known), _slopes(units.x(at))
        gain = np.linalg.solve(z @ covariance @ z.T + noise * np.eye(len(z)), z @ covariance).T
        mean = mean_design(units.x(at)) @ b + ahead @ gain @ (values - mean_design(known) @ b)
        return mean, np.sum((ahead @ (covariance - gain @ z @ covariance)) * ahead, 1) + noise

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Gaussian:
        means, variances = zip(*(one(*asked) for asked in zip(contexts, inputs, strict=True)), strict=True)
        return units.back(np.concatenate(means), np.concatenate(variances))

    return predict


def _slopes(x: Array) -> Array:
    return np.concatenate([np.ones((len(x), 1)), x], 1)
