"""What suggested points are worth: the error at a new task's rest after 3 of them, beside evenly spaced or random ones.

    python benchmarks/suggesting.py
    python benchmarks/suggesting.py --table growth.csv --task child --x age --y height_cm

Tasks are held out fold by fold; a model of the others says where to measure each, given its first `--known` points. It
is then conditioned on what was measured there, and asked about all other points of the task. `expected` is the mean
squared error that the model expects of each choice before anything is measured.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from metaprior import MetaGP, MetapriorError, Tasks, paired_difference
from metaprior.cli.common import Screen, read_tasks
from metaprior.cli.given import Given, named_columns
from metaprior.progress import progress_bar
from metaprior.scoring import summarise

Array = np.ndarray[Any, Any]
RANDOM = 10
"""Draws of random points for each task."""


class Case(NamedTuple):
    """One held-out task: what is known of it, and its points by which rows are chosen."""

    x: Array
    y: Array
    known: int

    @property
    def free(self) -> Array:
        return np.arange(self.known, len(self.x))


Chosen = dict[str, list[tuple[int, ...]]]
"""Of each way to choose, the sets of rows that it may be: their errors are averaged."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="elnino", help="a file, or elnino")
    for name in ("--task", "--x", "--y"):
        parser.add_argument(name, help="its column")
    parser.add_argument("--points", type=int, default=3)
    parser.add_argument("--known", type=int, default=0, help="points of each task that are known before")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        given = Given(asked.table)
        columns = named_columns(given, asked.task, asked.x, asked.y)
        tasks = read_tasks(given, columns, missing="drop", delimiter=None, screen=Screen())
    except MetapriorError as error:
        parser.error(str(error))
    tasks = tasks.select(tasks.sizes > asked.known + asked.points)
    if tasks.d != 1 or tasks.p != 1 or len(tasks) < 2 * asked.folds:
        parser.error(f"{len(tasks)} tasks of {tasks.d} inputs: what is evenly spaced needs one input, and folds tasks.")
    found, places = run(tasks, asked.points, asked.known, asked.folds, asked.seed)
    report(found, tasks)
    often, count = places.most_common(1)[0]
    print(f"\nsuggested most often: {tasks.columns.x[0]} {', '.join(f'{place:g}' for place in often)} ({count} tasks)")


def run(
    tasks: Tasks, points: int, known: int, folds: int, seed: int
) -> tuple[dict[str, list[tuple[float, float]]], Counter[tuple[float, ...]]]:
    """Of each way to choose, the squared error at the rest of every task and what was expected of it.

    And how often which places were suggested.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    places: Counter[tuple[float, ...]] = Counter()
    order = torch.randperm(len(tasks), generator=torch.Generator().manual_seed(seed))
    rng = np.random.default_rng(seed)
    with progress_bar("tasks", len(tasks)) as advance:
        for fold in range(folds):
            judged = order[fold::folds]
            others = torch.tensor([i for i in range(len(tasks)) if i not in set(judged.tolist())])
            gp, seen = MetaGP(progress=False, seed=seed).fit(tasks.select(others)), dict[Any, float]()
            for i in judged.tolist():
                case = _case(tasks, i, known)
                chosen = choices(gp, case, points, rng)
                places[tuple(sorted(case.x[list(chosen["suggested"][0])].tolist()))] += 1
                for name, sets in chosen.items():
                    values = [(error(gp, case, rows), expected(gp, case, rows, seen)) for rows in sets]
                    mean_error, mean_expected = np.mean(values, 0).tolist()
                    found.setdefault(name, []).append((mean_error, mean_expected))
                advance()
    return found, places


def _case(tasks: Tasks, i: int, known: int) -> Case:
    x, y = tasks[i].x[:, 0].numpy(), tasks[i].y[:, 0].numpy()
    order = np.argsort(x, kind="stable")
    return Case(x[order], y[order], known)


def choices(gp: MetaGP, case: Case, points: int, rng: np.random.Generator) -> Chosen:
    """Every way to choose points of a task."""
    low, high = case.x[case.free[0]], case.x[-1]
    inside = low + (high - low) * (2 * np.arange(points) + 1) / (2 * points)
    return {
        "suggested": [suggested(gp, case, points)],
        "one by one": [one_by_one(gp, case, points)],
        "evenly, with both ends": nearest(case, np.linspace(low, high, points)),
        "evenly, inside": nearest(case, inside),
        "random": [tuple(rng.choice(case.free, points, replace=False).tolist()) for _ in range(RANDOM)],
    }


def suggested(gp: MetaGP, case: Case, points: int) -> tuple[int, ...]:
    """All at once, from what is known."""
    known = slice(case.known)
    found = gp.condition(case.x[known], case.y[known]).suggest(case.x[case.free], points)
    return tuple(int(np.flatnonzero(case.x == place)[-1]) for place in found.x[:, 0].tolist())


def one_by_one(gp: MetaGP, case: Case, points: int) -> tuple[int, ...]:
    """One at a time: the next is chosen when the last is measured."""
    rows: list[int] = []
    for _ in range(points):
        given = [*range(case.known), *rows]
        left = np.setdiff1d(case.free, rows)
        found = gp.condition(case.x[given], case.y[given]).suggest(case.x[left])
        rows.append(int(np.flatnonzero(case.x == float(found.x))[-1]))
    return tuple(rows)


def nearest(case: Case, places: Sequence[float] | Array) -> list[tuple[int, ...]]:
    """The points nearest to these places; where one lies midway between two, with either of them."""
    sets: list[tuple[int, ...]] = [()]
    for place in places:
        longer = []
        for rows in sets:
            left = np.setdiff1d(case.free, rows)
            away = np.abs(case.x[left] - place)
            longer += [(*rows, int(row)) for row in left[away <= away.min() + 1e-9 * (1 + abs(place))]]
        sets = longer
    return sets


def error(gp: MetaGP, case: Case, rows: tuple[int, ...]) -> float:
    """The mean squared error at the rest of a task, once these rows are known."""
    given = [*range(case.known), *rows]
    rest = np.setdiff1d(case.free, rows)
    mean = gp.condition(case.x[given], case.y[given]).at(case.x[rest]).mean[:, 0].numpy()
    return float(np.square(mean - case.y[rest]).mean())


def expected(gp: MetaGP, case: Case, rows: tuple[int, ...], seen: dict[Any, float]) -> float:
    """The same as the model expects it, before anything is measured. seen: what was asked before."""
    key = (case.x.tobytes(), case.y[: case.known].tobytes(), tuple(sorted(rows)))
    if key not in seen:
        rest = case.x[np.setdiff1d(case.free, rows)]
        conditional = gp.condition(case.x[: case.known], case.y[: case.known])
        now = conditional.at(rest)
        noise = now.sd.square() - now.function.sd.square()
        after = conditional.suggest(case.x[list(rows)], len(rows), about=rest).sd[-1]
        seen[key] = float(after.square().mean() + noise.mean())
    return seen[key]


def report(found: dict[str, list[tuple[float, float]]], tasks: Tasks) -> None:
    """A line for each way to choose, paired over tasks."""
    ours = torch.tensor(found["suggested"], dtype=torch.float64)
    print(f"\n{len(ours)} held-out tasks, mean squared error of {tasks.columns.y[0]} at the rest\n")
    print(f"{'':24} {'error':>17} {'expected':>9}   {'suggested / this':>16}   {'suggested − this':>17}")
    for name, values in found.items():
        this = torch.tensor(values, dtype=torch.float64)
        summary, gap = summarise(this[:, 0]), paired_difference(ours[:, 0], this[:, 0])
        ratio = float(ours[:, 0].mean() / this[:, 0].mean())
        print(
            f"{name:24} {summary.mean:8.4f} ± {summary.stderr:.4f} {float(this[:, 1].mean()):9.4f}   {ratio:16.3f}"
            f"   {gap.mean:+8.4f} ± {gap.stderr:.4f}"
        )


if __name__ == "__main__":
    main()
