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
import torch

from metaprior.adapters.learning_curves import COLUMNS, Curve, Yardstick, as_inputs, replayed
from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.extras import needs
from metaprior.model import MetaGP
from metaprior.splits import FirstSizes

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
    study's best one, step by step, in the study's own unit. So past studies may have other levels, scales and
    directions than the one to come. In a new study the prior meets the values that a trial has reported so far, which
    takes about a hundredth of a second, and a trial is stopped where its chance is small.

    gp: a prior that was learned so, `pruner.gp`. chance: of ending better than the best, below which a trial is
    stopped. n_startup_trials: so many trials come to their end before any is stopped, at least 1. n_warmup_steps: no
    trial is stopped before this step. interval_steps: steps between looks at a trial. n_steps: the last step of a
    trial; by default that of the best one. A value that is not finite says nothing, and a trial that has no
    other is stopped.
    """

    def __init__(
        self,
        gp: MetaGP,
        *,
        chance: float = 0.05,
        n_startup_trials: int = 4,
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

        Trials are taken in their order, each against the best one before it. Where there are three studies or more,
        whole ones are held out, so that chances are right for new ones. budget, seed, progress: as `MetaGP` has them.
        options: those of the pruner.
        """
        tasks = replayed([_curves_of(study) for study in studies])
        if tasks is None or int(tasks.sizes.max()) < 2 or len(tasks) < 2:
            raise DataError(_nothing_learned(studies))
        half = max(int(tasks.sizes.max()) // 2, 1)
        asked = FirstSizes(tuple(2**k for k in range(half.bit_length())))
        shown = "learning from past curves" if progress else False
        return cls(MetaGP(contexts=asked, budget=budget, seed=seed, progress=shown).fit(tasks), **options)

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
        sign = _sign(study)
        others = [one for one in study.get_trials(deepcopy=False, states=FINISHED) if one.number != trial.number]
        if sum(one.state is TrialState.COMPLETE for one in others) < self.n_startup_trials:
            return False
        curve = _curve_of(trial, sign)
        if not len(curve.values):
            return True
        chance = self._chance(curve, [_curve_of(one, sign) for one in others])
        return chance is not None and chance < self.chance

    def chance_of(self, study: Study, trial: FrozenTrial) -> float | None:
        """The chance that a trial ends better than the best one of the study; None where there is none to beat yet."""
        sign = _sign(study)
        others = [one for one in study.get_trials(deepcopy=False, states=FINISHED) if one.number != trial.number]
        return self._chance(_curve_of(trial, sign), [_curve_of(one, sign) for one in others])

    def _chance(self, curve: Curve, others: Sequence[Curve]) -> float | None:
        best = None
        for one in others:
            if len(one.values) and one.beats(best):
                best = one
        if best is None or not len(curve.values):
            return None
        end = best.steps[-1] if self.n_steps is None else float(self.n_steps)
        if curve.steps[-1] >= end:
            return None  # there is nothing left to predict
        yardstick = Yardstick.of(best, [float(one.values[0]) for one in (*others, curve) if len(one.values)])
        posterior = self.gp.condition(as_inputs(curve.steps), yardstick.behind(curve)).at(as_inputs([end]))
        return float(posterior.cdf(torch.zeros(1, 1, dtype=torch.float64)))

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
    sign = _sign(study)
    return [_curve_of(trial, sign) for trial in study.get_trials(deepcopy=False, states=FINISHED)]


def _curve_of(trial: FrozenTrial, sign: float) -> Curve:
    """The finite values of a trial in the order of its steps. sign: -1 where more is better."""
    pairs = sorted((step, sign * value) for step, value in trial.intermediate_values.items() if np.isfinite(value))
    steps, values = np.array(pairs, float).reshape(-1, 2).T
    ended = trial.state is TrialState.COMPLETE and trial.value is not None and np.isfinite(trial.value)
    return Curve(steps, values, sign * float(trial.value) if ended and trial.value is not None else None)


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
