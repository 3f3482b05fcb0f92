"""GPBoost: trees for the mean, and for each task a level and a Gaussian process of its own.

As its documentation has it: `cluster_ids` make the tasks independent, trees and covariance are learned together, and
number, size and weight of the trees are chosen by its grid search, in folds over tasks. A new task is a new cluster:
the learned covariance is conditioned on what the trees' mean leaves of the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpboost
import numpy as np

from small_tables.protocol import Array, Gaussian, Pair, Predict
from small_tables.units import Units

TREES = {"leaves_newton_update": True, "max_depth": 3, "num_threads": 1, "verbose": -1, "seed": 0}
"""Newton's step in the leaves: without it the trees overshoot, as mean and covariance are of the same inputs."""
GRID = {"learning_rate": [0.1, 0.3], "min_data_in_leaf": [2, 20]}
MOST, PATIENCE, FOLDS = 300, 30, 3


def fit(train: Sequence[Pair]) -> Predict:
    units = Units.of(train)
    longest = sorted(train, key=lambda pair: -len(pair[1]))  # it takes a first range from the first cluster's distances
    x, y, task = _rows(units.scaled(longest))
    tried = gpboost.grid_search_tune_parameters(
        param_grid=GRID,
        params=TREES,
        folds=_folds(task),
        gp_model=_process(x, task),
        train_set=gpboost.Dataset(x, y),
        num_boost_round=MOST,
        early_stopping_rounds=PATIENCE,
        verbose_eval=0,
    )
    process = _process(x, task)
    booster = gpboost.train(
        TREES | tried["best_params"], gpboost.Dataset(x, y), tried["best_iter"], gp_model=process, verbose_eval=False
    )
    covariance = np.asarray(process.get_cov_pars(format_pandas=False)).ravel()

    def mean(at: Array) -> Array:
        return np.asarray(booster.predict(at, ignore_gp_model=True), float)

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Gaussian:
        x, y, task = _rows(units.scaled(contexts))
        at = np.concatenate([units.x(one) for one in inputs])
        of = np.repeat(np.arange(len(inputs)), [len(one) for one in inputs])
        found = _process(x, task).predict(
            y=y - mean(x),
            cov_pars=covariance,
            group_data_pred=of,
            gp_coords_pred=at,
            cluster_ids_pred=of,
            predict_var=True,
        )
        return units.back(mean(at) + found["mu"], found["var"])

    return predict


def _process(x: Array, task: Array) -> Any:
    return gpboost.GPModel(
        group_data=task, gp_coords=x, cluster_ids=task, cov_function="matern", cov_fct_shape=1.5, num_parallel_threads=1
    )


def _rows(tasks: Sequence[Pair]) -> tuple[Array, Array, Any]:
    x, y = (np.concatenate(values) for values in zip(*tasks, strict=True))
    return x, y, np.repeat(np.arange(len(tasks)), [len(one) for _, one in tasks])


def _folds(task: Any) -> list[tuple[Any, Any]]:
    """Rows to learn from and to judge by, a task on one side only."""
    fold = (np.random.default_rng(0).permutation(task.max() + 1) % FOLDS)[task]
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
