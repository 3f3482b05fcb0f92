"""Write one model file for each method and one recalibrated ensemble, with their predictions.

    python tests/files/write_models.py tests/files/methods

The files in `methods/` were written by version 0.2.0. Later versions must open them and predict the same
(`tests/test_files.py`), so this script is not run again for them; it says how they were made.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from metaprior import MetaGP, Tasks
from metaprior.methods import METHODS, make_method

CONTEXT = ([0.1, 0.5], [2.2, 1.7])
POINTS = [0.0, 0.3, 0.9, 1.4]


def curves(seed: int, n_tasks: int = 24, n_points: int = 8) -> Tasks:
    """Positive, skewed curves of one input."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(n_tasks):
        x = np.sort(rng.random(n_points))
        level, phase = rng.normal(0.5, 0.4), rng.normal(0, 0.3)
        pairs.append((x, np.exp(level + 0.5 * np.sin(4 * x + phase) + 0.1 * rng.normal(size=n_points))))
    return Tasks.from_pairs(pairs)


def seizures(seed: int, n_tasks: int = 40, n_points: int = 6) -> Tasks:
    """Counts with a treatment, a covariate of the task."""
    rng = np.random.default_rng(seed)
    treated = rng.integers(0, 2, n_tasks)
    pairs = []
    for group in treated:
        x = np.sort(rng.random(n_points))
        pairs.append((x, rng.poisson(np.exp(1.2 + rng.normal(0, 0.5) - 0.6 * group * x)).astype(float)))
    tasks = Tasks.from_pairs(pairs).with_task_x({"treated": treated.astype(float)})
    return tasks.with_possible((0, None), integer=True)


def predictions(model: MetaGP, y=CONTEXT[1], **known) -> dict[str, list[float]]:
    """Moments, quantiles and densities at `POINTS`, given two points of a task."""
    posterior = model.condition(CONTEXT[0], y, **known).at(POINTS)
    lower, upper = posterior.interval(0.9)
    values = torch.full((len(POINTS), 1), 2.0, dtype=torch.float64)
    found = {
        "mean": posterior.mean, "sd": posterior.sd, "lower": lower, "upper": upper,
        "log_density": posterior.log_density(values), "cdf": posterior.cdf(values),
    }  # fmt: skip
    return {name: torch.as_tensor(value).reshape(-1).tolist() for name, value in found.items()}


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    found = {}
    warnings.simplefilter("ignore")
    for name, entry in METHODS.items():
        if entry.make is None:
            continue
        tasks = curves(0)
        model = MetaGP.of(make_method(name, tasks).fit(tasks)) if name != "auto" else MetaGP(progress=False).fit(tasks)
        file = f"{name.replace(' ', '-')}.metaprior"
        model.save(folder / file)
        found[file] = predictions(MetaGP.load(folder / file))
    model = MetaGP(progress=False).fit(seizures(1))
    model.save(folder / "counts.metaprior")
    found["counts.metaprior"] = predictions(
        MetaGP.load(folder / "counts.metaprior"), y=[3.0, 2.0], task_x={"treated": 1.0}
    )
    (folder / "predictions.json").write_text(json.dumps(found, indent=1) + "\n")


main(Path(sys.argv[1]))
