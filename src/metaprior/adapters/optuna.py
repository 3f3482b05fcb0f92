"""A pruner for Optuna that has learned from past studies what learning curves come to.

pruner = LearnedPruner.from_storage("sqlite:///past.db")
study = optuna.create_study(direction="minimize", pruner=pruner)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from metaprior.adapters.learning_curves import COLUMNS, Curve, Yardstick, as_inputs, replayed
from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.extras import needs
from metaprior.inference import Conditional, Posterior
from metaprior.model import MetaGP
from metaprior.tasks import Tasks

with needs("metaprior.adapters.optuna", "optuna"):
    import optuna
    from optuna.pruners import BasePruner
    from optuna.storages import BaseStorage
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class LearnedPruner(BasePruner):
    """Stops a trial that will hardly end better than the best one of its study, by what past learning curves came to.

    From past studies (`from_storage`, `from_studies`) a prior over curves is learned: how far a trial is behind its
    study's best one, step by step, in units of how far trials of that study usually are. So past studies may have other
    levels, scales and directions than the one to come; their steps are to mean the same. In a new study the prior meets
    the values that a trial has reported so far, which takes about two hundredths of a second, and a trial is stopped
    where its chance is small. One that is not behind the best trial at its last step is never stopped.

    gp: a prior that was learned so, `pruner.gp`. chance: of ending better than the best, below which a trial is
    stopped. n_startup_trials: so many trials with curves come to their end before any is stopped, at least 1.
    n_warmup_steps: no trial is stopped before this step. interval_steps: steps between looks at a trial. n_steps: the
    last step of a trial; by default that of the best one. A value that is not finite says nothing, and a trial that
    has no other is stopped.
    """

    def __init__(
        self,
        gp: MetaGP,
        *,
        chance: float = 0.05,
        n_startup_trials: int = 3,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        n_steps: int | None = None,
    ) -> None:
        if not 0 < chance < 1:
            raise OptionError(f"chance={chance} must lie between 0 and 1; 0.05 is one in twenty.")
        for name, value, least in (
            ("n_startup_trials", n_startup_trials, 1),
            ("n_warmup_steps", n_warmup_steps, 0),
            ("interval_steps", interval_steps, 1),
            ("n_steps", 1 if n_steps is None else n_steps, 1),
        ):
            if value < least:
                raise OptionError(f"{name}={value}: give {least} or more.")
        _check_of_curves(gp)
        self.gp, self.chance, self.n_steps = gp, chance, n_steps
        self.n_startup_trials, self.n_warmup_steps = n_startup_trials, n_warmup_steps
        self.interval_steps = interval_steps

    @classmethod
    def from_storage(
        cls,
        storage: str | BaseStorage,
        study_names: Sequence[str] | None = None,
        *,
        budget: float | None = None,
        seed: int = 0,
        progress: bool = True,
        **options: Any,
    ) -> Self:
        """Learn from studies of a storage: those of these names, or all of one objective that have curves.

        storage: as Optuna has it, such as "sqlite:///past.db". Everything else as in `from_studies`.
        """
        studies = _studies_in(storage, study_names)
        return cls.from_studies(studies, budget=budget, seed=seed, progress=progress, **options)

    @classmethod
    def from_studies(
        cls,
        studies: Sequence[Study],
        *,
        budget: float | None = None,
        seed: int = 0,
        progress: bool = True,
        **options: Any,
    ) -> Self:
        """Learn from past studies: every trial that came to its end, or was pruned, is a curve.

        Trials are taken in their order, each against those before it, as a new study will have them. budget, seed,
        progress: as `MetaGP` has them. options: those of the pruner.
        """
        past = replayed([_curves_of(study) for study in studies])
        if past is None:
            raise DataError(_nothing_learned(studies))
        shown = "learning from past curves" if progress else False
        gp = MetaGP(contexts=past.asked, budget=budget, seed=seed, progress=shown).fit(past.tasks)
        return cls(gp, **options)

    def save(self, path: str | Path) -> None:
        """Keep what was learned in a file, which holds no curves; options are given anew to `load`."""
        self.gp.save(path)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """The pruner of a file. options: those of the pruner."""
        return cls(MetaGP.load(path), **options)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial's chance to end better than the best one so far is too small. Called by Optuna."""
        if not self._is_time(trial):
            return False
        others = _curves_of(study)
        if sum(one.value is not None for one in others) < self.n_startup_trials:
            return False
        curve = _curve_of(trial, _sign(study))
        if curve is None:
            return True
        yardstick = Yardstick.of(others)
        if yardstick is None or yardstick.behind(curve)[-1] <= 0:
            return False
        chance = self._chance(curve, yardstick)
        return chance is not None and chance < self.chance

    def chance_of(self, study: Study, trial: FrozenTrial) -> float | None:
        """The chance that a running trial ends better than the best one of its study, by what it has reported so far.

        None where there is nothing to tell: no other trial has come to its end, or nothing was reported, or this trial
        is at its last step.
        """
        curve, yardstick = _curve_of(trial, _sign(study)), Yardstick.of(_curves_of(study))
        return None if curve is None or yardstick is None else self._chance(curve, yardstick)

    def quantiles(
        self, study: Study, trial: FrozenTrial, steps: Sequence[int], probabilities: Sequence[float]
    ) -> Float[np.ndarray, "k n"]:
        """The values below which a running trial will lie at these steps with these probabilities, in study units."""
        sign = _sign(study)
        curve, yardstick = _curve_of(trial, sign), Yardstick.of(_curves_of(study))
        if curve is None or yardstick is None:
            raise DataError(
                f"trial {trial.number} cannot be predicted yet: it needs a reported value, and a complete trial with a "
                "learning curve beside it."
            )
        wanted = [p if sign > 0 else 1 - p for p in probabilities]
        behind = self._conditioned(curve, yardstick).at(as_inputs(steps)).quantiles(wanted)
        return sign * yardstick.values_at(np.asarray(steps, float), behind[..., 0].numpy())

    def _chance(self, curve: Curve, yardstick: Yardstick) -> float | None:
        end = yardstick.best.steps[-1] if self.n_steps is None else float(self.n_steps)
        if curve.steps[-1] >= end:
            return None
        posterior = self._conditioned(curve, yardstick).at(as_inputs([end]))
        return float(posterior.cdf(0.0))

    def _conditioned(self, curve: Curve, yardstick: Yardstick) -> Conditional[Posterior]:
        known = Tasks.from_pairs([(as_inputs(curve.steps), yardstick.behind(curve))])
        return self.gp.condition(known)  # of Tasks nothing is said in warnings: steps are no inputs that a user knows

    def _is_time(self, trial: FrozenTrial) -> bool:
        """Whether this is the first report since the last step at which the trial should be looked at."""
        step = trial.last_step
        if step is None or step < self.n_warmup_steps:
            return False
        since = step - (step - self.n_warmup_steps) % self.interval_steps
        return all(one < since for one in trial.intermediate_values if one != step)


def _sign(study: Study) -> float:
    if len(study.directions) > 1:
        raise DataError(
            f"study {study.study_name!r} has {len(study.directions)} objectives: a learning curve is of one."
        )
    return -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0


def _curves_of(study: Study) -> list[Curve]:
    """Those of trials that came to an end, or were stopped, and have reported some finite value."""
    sign = _sign(study)
    found = [_curve_of(trial, sign) for trial in study.get_trials(deepcopy=False, states=FINISHED)]
    return [curve for curve in found if curve is not None]


def _curve_of(trial: FrozenTrial, sign: float) -> Curve | None:
    """The finite values of a trial in the order of its steps; None where it has none. sign: -1 where more is better."""
    pairs = sorted((step, sign * value) for step, value in trial.intermediate_values.items() if np.isfinite(value))
    if not pairs:
        return None
    steps, values = np.array(pairs, float).T
    value = trial.value if trial.state is TrialState.COMPLETE else None
    return Curve(steps, values, sign * value if value is not None and np.isfinite(value) else None)


def _studies_in(storage: str | BaseStorage, names: Sequence[str] | None) -> list[Study]:
    _check_exists(storage)
    known = optuna.get_all_study_summaries(storage)
    if names is None:
        names = [one.study_name for one in known if len(one.directions) == 1]
    every = [one.study_name for one in known]
    for name in names:
        if name not in every:
            raise UnknownNameError("study", name, every) if every else DataError(f"{storage} has no studies.")
    return [optuna.load_study(study_name=name, storage=storage) for name in names]


def _check_exists(storage: str | BaseStorage) -> None:
    """Optuna would make an empty database where there is none."""
    if isinstance(storage, str) and storage.startswith("sqlite:///"):
        path = Path(storage.removeprefix("sqlite:///").partition("?")[0])
        if str(path) != ":memory:" and not path.is_file():
            raise DataError(f"there is no database {path} (looked in {os.getcwd()}): give the storage of past studies.")


def _nothing_learned(studies: Sequence[Study]) -> str:
    if not studies:
        return "no past studies: give some that have reported values (trial.report) and have come to an end."
    counts = []
    for study in studies:
        trials = study.get_trials(deepcopy=False)
        ended = sum(one.state is TrialState.COMPLETE for one in trials)
        reported = sum(len(one.intermediate_values) > 1 for one in trials)
        counts.append(f"{study.study_name!r} has {len(trials)} trials, {ended} complete, {reported} with a curve")
    return (
        f"nothing to learn from: {'; '.join(counts[:5])}. A past study needs a complete trial with reported values "
        "(trial.report at two steps or more), and others after it."
    )


def _check_of_curves(gp: MetaGP) -> None:
    if not hasattr(gp, "trained_on_") or gp.trained_on_.columns != COLUMNS:
        raise DataError(
            "this model was not learned from studies: LearnedPruner.from_storage(...) learns one; its save and load "
            "keep it in a file."
        )
