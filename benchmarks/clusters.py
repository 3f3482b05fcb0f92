"""Tasks that share a fate: coverage and log density on tasks of new clusters, with and without `clusters=`.

    python benchmarks/clusters.py [--seeds 4]

Made-up plots of fields: all plots of a field have its deviation from the common curve. Models learn from some fields
and are asked about one plot each of 300 others, from 1, 3 and 5 of its points.
"""

from __future__ import annotations

import argparse
import math
from statistics import mean

import numpy as np

from metaprior import MetaGP, Tasks

SIZES = (1, 3, 5)


def fields(clusters: int, per: int, seed: int, points: int = 8) -> tuple[Tasks, list[int]]:
    """Plots, and the field of each."""
    rng, pairs, labels = np.random.default_rng(seed), [], []
    for field in range(clusters):
        level, swing, phase = rng.normal(0, 1.0), rng.normal(0, 0.8), rng.uniform(0, 2 * math.pi)
        for _ in range(per):
            x, own = np.sort(rng.uniform(0, 1, points)), rng.normal(0, 0.3)
            pairs.append(
                (x, np.sin(4 * x) + level + swing * np.sin(5 * x + phase) + own + 0.1 * rng.normal(size=points))
            )
            labels.append(field)
    return Tasks.from_pairs(pairs), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    asked = parser.parse_args()
    new, _ = fields(300, 1, 999)
    print("fields × plots   clusters   coverage of 90% from 1, 3, 5 points   log density per value")
    for count, per in ((6, 10), (12, 6), (30, 4)):
        for given in (False, True):
            covers: dict[int, list[float]] = {n: [] for n in SIZES}
            density: dict[int, list[float]] = {n: [] for n in SIZES}
            for seed in range(asked.seeds):
                tasks, labels = fields(count, per, seed)
                gp = MetaGP(progress=False).fit(tasks, clusters=labels if given else None)
                for n in SIZES:
                    context, target = new.context_target(n, 0)
                    found = gp.predict(context, target)
                    lower, upper = found.interval(0.9)
                    covers[n].append(float(((lower <= target.y) & (target.y <= upper)).double().mean()))
                    density[n].append(float(found.log_density(target.y).mean()))
            said = "   ".join(f"{mean(covers[n]):.3f}" for n in SIZES)
            print(f"{count:>6} × {per:<5}   {'given' if given else '–':<10} {said:<38}", end=" ")
            print("   ".join(f"{mean(density[n]):+.2f}" for n in SIZES), flush=True)


if __name__ == "__main__":
    main()
