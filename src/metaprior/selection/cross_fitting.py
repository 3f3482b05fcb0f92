"""Cross-fitting: what an ensemble predicts of held-out tasks that chose neither its weights nor its recalibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.inference import Calibration
from metaprior.seeds import generator_of
from metaprior.selection.stacking import combined_weights
from metaprior.selection.trying import Seen, Values, combined

PARTS = 5
"""Parts of the held-out tasks where all of them are of one fold."""


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Ensemble predictions of every held-out value: a fold's weights and recalibration are those of the other folds."""

    ensemble: Seen
    recalibrated: Seen


def fitted_ensemble(seen: Mapping[str, Seen], values: Values, seed: int) -> tuple[dict[str, float], Calibration]:
    """Ensemble weights, of the candidates that have some, and the recalibration of that ensemble."""
    if len(values.y) == 0:
        return dict.fromkeys(seen, 1 / len(seen)), Calibration.identity()
    shares = zip(seen, combined_weights(seen, values, seed).tolist(), strict=True)
    weights = {name: weight for name, weight in shares if weight > 0}
    probabilities = Calibration.pit_nodes(*combined(seen, weights).pit)
    return weights, Calibration.of(probabilities, values.weight, int(values.task.unique().numel()))


def cross_fitted(seen: Mapping[str, Seen], values: Values, seed: int) -> CrossFitted:
    """Predictions of each fold by the ensemble that the other folds choose and recalibrate.

    Where all held-out tasks are of one fold, as with many tasks, they are divided into `PARTS`. A fold that is alone is
    predicted with equal weights and without recalibration.

    Two things remain, as in every cross-validation. The candidates that predict the other folds have learned from the
    tasks of this fold. And with 100 to 600 tasks, where candidates are tried fold by fold, it is all folds so far that
    decide which are given up and whether there are further folds.
    """
    folds = _folds(values, seed)
    before, after = [], []
    for fold in folds.unique():
        here = folds == fold
        others = {name: predicted.some(~here) for name, predicted in seen.items()}
        weights, calibration = fitted_ensemble(others, values.some(~here), seed)
        ensemble = combined({name: seen[name].some(here) for name in weights}, weights)
        before.append(ensemble)
        after.append(ensemble.calibrated(calibration))
    back = torch.cat([torch.nonzero(folds == fold)[:, 0] for fold in folds.unique()]).argsort()
    return CrossFitted(_in_order(before, back), _in_order(after, back))


def _folds(values: Values, seed: int) -> Int[Tensor, " N"]:
    """The fold of each value; parts of the tasks (or clusters) where there is one fold only."""
    if len(values.fold.unique()) > 1:
        return values.fold
    tasks, place = values.task.unique(return_inverse=True)
    order = torch.randperm(len(tasks), generator=generator_of(seed))
    return (order % PARTS)[place]


def _in_order(parts: list[Seen], back: Int[Tensor, " N"]) -> Seen:
    """The rows of all parts in their first order; each context's evidence is as any part has it."""
    rows: dict[str, Float[Tensor, " N"]] = {
        one.name: torch.cat([getattr(part, one.name) for part in parts])[back]
        for one in fields(Seen)
        if one.name != "evidence"
    }
    return Seen(**rows, evidence=parts[0].evidence)
