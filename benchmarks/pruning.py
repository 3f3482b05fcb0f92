"""What pruning by past studies saves: `python benchmarks/pruning.py --cache FOLDER`.

A family of scikit-learn models has past studies, of 60 trials each, on five datasets (`learning_curves.PAST`), and new
ones on three others (`NEW`). Each new study is 50 trials at random, replayed through Optuna with every pruner in the
same order, 20 times. Curves are computed once and kept in the folder (ten minutes on one core), and so are the priors
that are learned from the past ones. For what was tried while the pruner was made: --held-out iris takes a
past dataset as the new one, and leaves it out of the past.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna
import torch
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner

from learning_curves import EPOCHS, FAMILIES, METRICS, NEW, PAST, Curves, Direction, study_curves
from metaprior.adapters.optuna import LearnedPruner
from metaprior.output import prepare_folder
from metaprior.progress import progress_bar

TRIALS, SEEDS, PAST_TRIALS = 50, 20, 60


class Outcome(NamedTuple):
    """What a study came to: epochs that were computed, and the best final value."""

    epochs: int
    best: float


def replay(curves: Curves, direction: Direction, pruner: BasePruner) -> Outcome:
    """A study whose trials have these curves, one after another."""
    study = optuna.create_study(
        direction=direction, pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0), study_name="replayed"
    )
    epochs = 0
    for curve in curves:
        trial = study.ask()
        state, value = optuna.trial.TrialState.COMPLETE, float(curve[-1])
        for step, reported in enumerate(curve.tolist(), start=1):
            epochs += 1
            trial.report(reported, step)
            if step < EPOCHS and trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        if state is optuna.trial.TrialState.COMPLETE and not np.isfinite(value):
            state = optuna.trial.TrialState.FAIL
        study.tell(trial, value if state is optuna.trial.TrialState.COMPLETE else None, state)
    return Outcome(epochs, study.best_value)


def past_study(curves: Curves, direction: Direction) -> optuna.Study:
    """The first trials of a study, none of which was stopped."""
    study = optuna.create_study(direction=direction)
    for curve in curves[:PAST_TRIALS]:
        if np.isfinite(curve[-1]):
            values = {step: float(value) for step, value in enumerate(curve, start=1)}
            study.add_trial(optuna.trial.create_trial(value=float(curve[-1]), intermediate_values=values))
    return study


def learned(metric: str, family: str, past: Sequence[str], chance: float, cache: Path) -> LearnedPruner:
    """The pruner that past studies of a family make, from the cache where it is there."""
    words = (metric, family, *past)
    file = cache / f"{'-'.join(words).replace(' ', '-')}.metaprior"
    if not file.exists():
        curves = [study_curves(family, name, cache)[metric] for name in past]
        LearnedPruner.from_studies([past_study(found, METRICS[metric]) for found in curves]).save(file)
    return LearnedPruner.load(file, chance=chance)


def table(
    past: Sequence[str], new: Sequence[str], metric: str, chance: float, cache: Path
) -> list[dict[str, list[Outcome]]]:
    """Of every new study, what each pruner came to in each replay; a line is printed for each study."""
    makers: dict[str, Callable[[], BasePruner]] = {
        "none": NopPruner,
        "median": MedianPruner,
        "hyperband": lambda: HyperbandPruner(min_resource=1, max_resource=EPOCHS),
    }
    found = []
    for family in FAMILIES:
        pruner = learned(metric, family, past, chance, cache)
        makers["learned"] = lambda pruner=pruner: pruner  # type: ignore[misc]
        for name in new:
            curves = study_curves(family, name, cache)[metric]
            outcomes: dict[str, list[Outcome]] = {one: [] for one in makers}
            with progress_bar(f"{family} on {name}", SEEDS) as advance:
                for seed in range(SEEDS):
                    order = np.random.default_rng(seed).permutation(len(curves))[:TRIALS]
                    for one, make in makers.items():
                        outcomes[one].append(replay(curves[order], METRICS[metric], make()))
                    advance()
            print(line(f"{family}, {name}", [outcomes], [spread(curves)], METRICS[metric]), flush=True)
            found.append(outcomes)
    return found


def spread(curves: Curves) -> float:
    """Between the quartiles of what models come to, or their deviation where these are one: the unit of losses."""
    return float(np.subtract(*np.nanquantile(curves[:, -1], [0.75, 0.25])) or np.nanstd(curves[:, -1]))


def line(name: str, studies: Sequence[dict[str, list[Outcome]]], units: Sequence[float], direction: Direction) -> str:
    """Epochs of each pruner, those of the learned one as part of the median's, and how far behind others it ended.

    Behind: a paired difference of best values, in the study's unit, with its standard error over the replays.
    """
    epochs = {one: np.mean([[o.epochs for o in study[one]] for study in studies]) for one in studies[0]}
    sign = 1.0 if direction == "minimize" else -1.0
    shown = "".join(f"{epochs[one]:>11.0f}" for one in epochs) + f"{epochs['learned'] / epochs['median']:>10.2f}"
    for other in ("median", "hyperband", "none"):
        gaps = [
            [sign * (a.best - b.best) / unit for a, b in zip(study["learned"], study[other], strict=True)]
            for study, unit in zip(studies, units, strict=True)
        ]
        over = np.mean(gaps, axis=0)  # one value for each seed
        shown += f"{over.mean():>+10.3f} ± {over.std(ddof=1) / np.sqrt(len(over)):.3f}"
    return f"{name:<26}{shown}"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder for curves and priors")
    parser.add_argument("--held-out", choices=PAST, help="a past dataset to take as the new one")
    parser.add_argument("--metric", choices=METRICS, nargs="+", default=list(METRICS))
    parser.add_argument("--chance", type=float, default=0.05, help="below which the learned pruner stops a trial")
    options = parser.parse_args()
    prepare_folder(options.cache, "--cache")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(1)
    past = [name for name in PAST if name != options.held_out]
    new = [options.held_out] if options.held_out else list(NEW)
    for metric in options.metric:
        print(f"\n{metric} ({METRICS[metric]}): epochs of {TRIALS} trials, mean of {SEEDS} orders")
        print(f"{'':<26}{'none':>11}{'median':>11}{'hyperband':>11}{'learned':>11}{'of median':>10}", end="")
        print("".join(f"{f'behind {one}':>18}" for one in ("median", "hyperband", "none")))
        found = table(past, new, metric, options.chance, options.cache)
        units = [spread(study_curves(family, name, options.cache)[metric]) for family in FAMILIES for name in new]
        print(line("all", found, units, METRICS[metric]), flush=True)


if __name__ == "__main__":
    main()
