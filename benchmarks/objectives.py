"""Evidence or predictive objective: which prior predicts new tasks better, and are its bounds as wide as they say?

    python benchmarks/objectives.py --data FOLDER

Five folds over the tasks of small real tables; priors from plain to deep, learned by the evidence of whole tasks and by
the density of random targets given random contexts; asked from 1, 3 and 5 random points.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from pyarrow import csv

from auto_tables import FOLDS, SIZES, TABLES
from metaprior import LearnedPrior, Tasks, paired_difference
from metaprior.learning import OBJECTIVES
from metaprior.scoring import evaluate
from metaprior.splits import k_folds, random_sizes, spare

PRIORS = (("zero", "rbf"), ("deep", "matern"), ("deep", "deep"))
METRICS = ("mse", "log_likelihood", "coverage_90")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with growth.csv, oxboys.csv, …")
    parser.add_argument("--tables", default=",".join(TABLES))
    arguments = parser.parse_args()
    print(
        "| table | prior | from | MSE: evidence | predictive | gain in log density | 90% hold: evidence | predictive |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for name in arguments.tables.split(","):
        task, x, y = TABLES[name]
        tasks = Tasks.from_table(csv.read_csv(arguments.data / f"{name}.csv"), task=task, x=x, y=y)
        for mean, kernel in PRIORS:
            for line in lines(name, mean, kernel, tasks):
                print(line, flush=True)


def lines(name: str, mean: str, kernel: str, tasks: Tasks) -> list[str]:
    scores: dict[tuple[str, str, str], list[torch.Tensor]] = {}
    for fold in k_folds(tasks, FOLDS, 0):
        rest, judged = tasks.select(fold.train), tasks.select(fold.judge)
        for objective in OBJECTIVES:
            gp = LearnedPrior(
                mean, kernel, objective=objective, gain=1.0, held_out=spare(len(rest)), max_epochs=300, progress=False
            ).fit(rest)
            for setting, split in random_sizes(SIZES, 0)(judged).items():
                found = evaluate(gp, *split)
                for metric in METRICS:
                    scores.setdefault((objective, setting, metric), []).append(found.values[metric])
    joined = {key: torch.cat(values) for key, values in scores.items()}
    said = []
    for setting in dict.fromkeys(key[1] for key in joined):
        mse, density, inside = ([joined[one, setting, metric] for one in OBJECTIVES] for metric in METRICS)
        gain = paired_difference(density[1], density[0])
        said.append(
            f"| {name} | {mean}, {kernel} | {setting} | {mse[0].mean():.4g} | {mse[1].mean():.4g} | {gain.mean:+.3f} ± "
            f"{gain.stderr:.3f} | {inside[0].mean():.2f} | {inside[1].mean():.2f} |"
        )
    return said


if __name__ == "__main__":
    main()
