"""Stop training early, by what past studies have come to.

    pip install 'metaprior[optuna,sklearn]'
    python examples/learning_curves.py --out docs/figures/learning-curves.png

Three small studies of networks are the past: wine, iris and the parity of digits. From their learning curves a pruner
is learned and kept in a file. A new study, of tumours, then stops the networks that will hardly be the best. The
picture shows the moments at which some of them were stopped.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.figure import Figure
from optuna.trial import TrialState
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from metaprior.adapters.optuna import LearnedPruner

EPOCHS, PAST, NEW, ROWS = 20, 20, 30, 200


def study_of(name: str, x: Any, y: Any, trials: int, pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """Networks of random settings; each reports the validation's log loss after every epoch."""
    rows = np.random.default_rng(0).permutation(len(x))[:ROWS]
    train_x, test_x, train_y, test_y = train_test_split(x[rows], y[rows], test_size=0.4, random_state=0)
    scaler, classes = StandardScaler().fit(train_x), np.unique(y)
    train_x, test_x = scaler.transform(train_x), scaler.transform(test_x)

    def objective(trial: optuna.Trial) -> float:
        model = MLPClassifier(
            hidden_layer_sizes=(trial.suggest_int("width", 4, 64, log=True),),
            learning_rate_init=trial.suggest_float("rate", 1e-4, 1e-1, log=True),
            alpha=trial.suggest_float("alpha", 1e-5, 1, log=True),
            batch_size=trial.suggest_int("batch", 16, 64, log=True),
            random_state=trial.number,
        )
        loss = np.nan
        for epoch in range(1, EPOCHS + 1):
            model.partial_fit(train_x, train_y, classes=classes)
            loss = log_loss(test_y, model.predict_proba(test_x), labels=classes)
            trial.report(loss, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study = optuna.create_study(study_name=name, pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=len(name)))
    study.optimize(objective, n_trials=trials)
    return study


def past_studies() -> list[optuna.Study]:
    wine, iris, digits = datasets.load_wine(), datasets.load_iris(), datasets.load_digits()
    tables = {
        "wine": (wine.data, wine.target),
        "iris": (iris.data, iris.target),
        "parity of digits": (digits.data, digits.target % 2),
    }
    return [study_of(name, x, y, PAST, optuna.pruners.NopPruner()) for name, (x, y) in tables.items()]


def draw(axes: Any, study: optuna.Study, pruner: LearnedPruner, trial: optuna.trial.FrozenTrial) -> None:
    """A trial when it was stopped: what was known of it, what was expected of it, and what it had to beat."""
    before = optuna.create_study()
    before.add_trials(
        [one for one in study.trials[: trial.number] if one.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    )
    seen = optuna.trial.create_trial(intermediate_values=trial.intermediate_values, state=TrialState.RUNNING)
    before.add_trial(seen)
    asked, best = before.trials[-1], before.best_trial
    for one in before.trials[:-1]:
        axes.plot(*zip(*one.intermediate_values.items(), strict=True), color="0.8", lw=0.8)
    axes.plot(*zip(*best.intermediate_values.items(), strict=True), color="#009e73", label="the best so far")
    known = sorted(trial.intermediate_values)
    steps = range(known[-1], EPOCHS + 1)
    low, middle, high = pruner.quantiles(before, asked, steps, [0.05, 0.5, 0.95])
    axes.fill_between(steps, low, high, color="#0072b2", alpha=0.2, lw=0, label="where it would go (90%)")
    axes.plot(steps, middle, color="#0072b2", lw=1)
    axes.plot(known, [trial.intermediate_values[k] for k in known], "o-", color="#0072b2", ms=4, label="this trial")
    chance = pruner.chance_of(before, asked)
    assert chance is not None
    axes.set_title(f"trial {trial.number}, stopped after {len(known)}: {chance:.1%} to be the best", fontsize=9)
    axes.set(xlabel="epoch", yscale="log", xticks=range(0, EPOCHS + 1, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("learning-curves.png"))
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", ConvergenceWarning)  # a network of one epoch has not converged
    with tempfile.TemporaryDirectory() as folder:
        LearnedPruner.from_studies(past_studies(), budget=0).save(Path(folder, "curves.metaprior"))
        pruner = LearnedPruner.load(Path(folder, "curves.metaprior"))
    tumours = datasets.load_breast_cancer()
    print(f"{NEW} networks of at most {EPOCHS} epochs{'epochs':>14}{'best loss':>12}")
    studies = {}
    for name, one in {"to the end": optuna.pruners.NopPruner(), "learned from the past": pruner}.items():
        study = studies[name] = study_of("tumours", tumours.data, tumours.target, NEW, one)
        epochs = sum(len(trial.intermediate_values) for trial in study.trials)
        print(f"{name:<36}{epochs:>14}{study.best_value:>12.4f}")
    study = studies["learned from the past"]
    stopped = sorted(
        (one for one in study.trials if one.state is TrialState.PRUNED), key=lambda one: len(one.intermediate_values)
    )
    some = [stopped[k * (len(stopped) - 1) // 2] for k in range(3)]
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    every = figure.subplots(1, len(some), sharey=True, squeeze=False)
    for axes, trial in zip(every[0], some, strict=True):
        draw(axes, study, pruner, trial)
    every[0][0].set_ylabel("log loss of the validation")
    every[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
