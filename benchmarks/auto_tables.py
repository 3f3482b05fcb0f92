"""`auto` against the simple methods on small real tables: is it ever much worse than the best of them?

    python benchmarks/auto_tables.py --data FOLDER [--tables growth,oxboys] [--out FILE]

Five folds over tasks; contexts of 1, 3 and 5 points, the first ones and random ones; mean squared error and log
density: twelve cells for each table. A cell holds if `auto` is within two paired standard errors of the best of the
others.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from pyarrow import csv

from metaprior import MetaGP, Method, Tasks, paired_difference
from metaprior.methods import make_method
from metaprior.scoring import evaluate
from metaprior.splits import first_sizes, k_folds, random_sizes

TABLES = {
    "growth": ("child", "age", "height_cm"),
    "oxboys": ("Subject", "age", "height"),
    "chickweight": ("Chick", "Time", "weight"),
    "cd4": ("subject", "month", "cd4_count"),
}
RIVALS = ("last value", "gp per task", "shared gp", "fpca")
SIZES, FOLDS = (1, 3, 5), 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with growth.csv, oxboys.csv, …")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--out", type=Path, help="a JSON file for the cells")
    arguments = parser.parse_args()
    cells = []
    for name in arguments.tables.split(","):
        cells += table_cells(name, arguments.data)
        if arguments.out:
            arguments.out.write_text(json.dumps(cells, indent=1))
    held = sum(cell["holds"] for cell in cells)
    worst = max(cell["ratio"] for cell in cells if cell["metric"] == "mse")
    print(f"{held} of {len(cells)} cells hold; the highest MSE is {worst:.3f} × the best of the others")


def table_cells(name: str, folder: Path) -> list[dict[str, Any]]:
    task, x, y = TABLES[name]
    tasks = Tasks.from_table(csv.read_csv(folder / f"{name}.csv"), task=task, x=x, y=y)
    scores: dict[tuple[str, str, str], list[torch.Tensor]] = {}
    for k, fold in enumerate(k_folds(tasks, FOLDS, 0)):
        rest = tasks.select(fold.train)
        start = time.perf_counter()
        auto = MetaGP(progress=False).fit(rest)
        print(f"{name}, fold {k + 1}: {auto.method_.chosen_}, {time.perf_counter() - start:.0f} s", flush=True)
        methods: dict[str, Method] = {"auto": auto}
        methods |= {rival: make_method(rival, rest).fit(rest) for rival in RIVALS}
        judged = tasks.select(fold.judge)
        for contexts in (random_sizes(SIZES, 0), first_sizes(SIZES)):
            for setting, split in contexts(judged).items():
                for label, method in methods.items():
                    found = evaluate(method, *split)
                    for metric in ("mse", "log_likelihood"):
                        scores.setdefault((setting, metric, label), []).append(found.values[metric])
    joined = {key: torch.cat(values) for key, values in scores.items()}
    return [
        _cell(name, setting, metric, joined)
        for setting in dict.fromkeys(key[0] for key in joined)
        for metric in ("mse", "log_likelihood")
    ]


def _cell(name: str, setting: str, metric: str, joined: dict[tuple[str, str, str], torch.Tensor]) -> dict[str, Any]:
    sign = 1 if metric == "mse" else -1
    found = {label: joined[setting, metric, label] for label in ("auto", *RIVALS)}
    best = min(RIVALS, key=lambda label: sign * float(found[label].mean()))
    worse = paired_difference(sign * found["auto"], sign * found[best])
    holds = worse.mean <= 2 * (worse.stderr or 0.0)
    ours, theirs = float(found["auto"].mean()), float(found[best].mean())
    mark = "holds" if holds else "FAILS"
    print(f"  {name}, {setting}, {metric}: auto {ours:.4g}, {best} {theirs:.4g}; worse by {worse.mean:.3g} ± {worse.stderr:.2g}: {mark}", flush=True)  # fmt: skip  # noqa: E501
    return {
        "table": name,
        "setting": setting,
        "metric": metric,
        "auto": ours,
        "best": best,
        "value": theirs,
        "worse": worse.mean,
        "stderr": worse.stderr,
        "holds": holds,
        "ratio": ours / theirs,
    }


if __name__ == "__main__":
    main()
