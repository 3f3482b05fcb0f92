"""How the ICU priors are best trained, by cross-validation over the patients of set-a; set-b is not looked at.

    python benchmarks/icu_recipes.py [VARIABLE ...]

For each recipe: the MSE of `learned both` from the first day to the second, how much lower it is than the last value's
(paired over patients), and the log likelihood. Takes some minutes per variable; the data are found as by
`metaprior reproduce icu`.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from metaprior import MetaGP, Tasks, paired_difference, score
from metaprior.data import load_physionet
from metaprior.methods import LastValue
from metaprior.paper.experiments.icu import DAYS, VARIABLES, split_days
from metaprior.seeds import generator_of

FOLDS = 3
LBFGS: dict[str, Any] = {"optimizer": "lbfgs", "max_epochs": 200, "check_every": 5, "patience": 10}
ADAM: dict[str, Any] = {
    "optimizer": "adam", "learning_rate": 3e-3, "batch_size": 256, "max_epochs": 100, "check_every": 1, "patience": 10
}  # fmt: skip
RECIPES = {
    "lbfgs, gain 1, 2 features, by task": LBFGS | {"gain": 1.0},
    "lbfgs, gain 1, 2 features": LBFGS | {"gain": 1.0, "weighting": "point"},
    "lbfgs, gain 1, 3 features": LBFGS | {"gain": 1.0, "features": 3, "weighting": "point"},
    "lbfgs, gain 1, 4 features": LBFGS | {"gain": 1.0, "features": 4, "weighting": "point"},
    "adam, gain 4, 2 features": ADAM | {"gain": 4.0, "weighting": "point"},
    "adam, gain 4, 4 features": ADAM | {"gain": 4.0, "features": 4, "weighting": "point"},
}
"""Patients count alike, however often they were measured, except in the first."""


def cross_validate(patients: Tasks, recipe: dict[str, Any]) -> str:
    """One line of the table."""
    order = torch.randperm(len(patients), generator=generator_of(1)).chunk(FOLDS)
    errors, last, likelihood = [], [], []
    for fold in range(FOLDS):
        training = patients.select(torch.cat([part for k, part in enumerate(order) if k != fold]))
        context, target = split_days(patients.select(order[fold]))
        scores = score(MetaGP("deep", "deep", progress=False, **recipe).fit(training).predict(context, target), target)
        simple = LastValue(contexts=DAYS).fit(training)
        errors.append(scores.values["mse"])
        likelihood.append(scores.values["log_likelihood"])
        last.append(score(simple.predict(context, target), target).values["mse"])
    gain = paired_difference(torch.cat(last), torch.cat(errors))
    mse, density = float(torch.cat(errors).mean()), float(torch.cat(likelihood).mean())
    return f"{mse:10.4g}   {gain.mean:8.3g} ± {gain.stderr:<8.2g} {density:8.3f}"


def main() -> None:
    """The table, variable by variable."""
    wanted = sys.argv[1:] or list(VARIABLES)
    found = load_physionet("set-a", wanted)
    for variable in wanted:
        print(f"\n{variable:<36} {'MSE':>10}   below the last value's   log likelihood")
        for name, recipe in RECIPES.items():
            print(f"{name:<36} {cross_validate(found[variable], recipe)}", flush=True)


if __name__ == "__main__":
    main()
