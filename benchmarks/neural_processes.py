"""`auto` beside conditional neural processes: error, log density, coverage and seconds on tables and on drawn tasks.

    pip install -c constraints.txt -e '.[benchmark]'
    python benchmarks/neural_processes.py
    python benchmarks/neural_processes.py --tables '' --drawn 10000 --members 1 --widths 128 --steps 20000

Tables are those of `benchmarks/practice.py`, with its tasks held out and its contexts: 1, 3 and 5 points, the first
ones and random ones. Drawn tasks are functions of a Gaussian process, and sinusoids of random amplitude, phase and
frequency: 20 noisy points each, 50 or 1,000 tasks to learn from, 300 new ones. ▲ and ▼ are better and worse than `auto`
by more than two standard errors, paired over the tasks. Seconds are the processor's, with one thread.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from small_tables import neural_process, ours
from small_tables.protocol import (
    CONTEXTS,
    METRICS,
    SIZES,
    Array,
    Fit,
    Gaussian,
    Pair,
    Predict,
    Split,
    asked,
    read_table,
    scores,
    splits,
)
from small_tables.sources import table_names, write_tables

TABLES = ("chickweight", "elnino", "storms", "laborsupply")
POINTS, NEW, NOISE, LENGTH = 20, 300, 0.1, 0.5
"""Of drawn tasks: points, new tasks, deviation of the noise, lengthscale of the Gaussian process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES), help="of practice.py; none with ''")
    parser.add_argument("--drawn", default="50,1000", help="numbers of drawn tasks to learn from; none with ''")
    parser.add_argument("--members", type=int, default=neural_process.MEMBERS, help="networks of a neural process")
    parser.add_argument(
        "--widths", default=",".join(map(str, neural_process.WIDTHS)), help="units of their layers to choose from"
    )
    parser.add_argument("--steps", type=int, default=neural_process.STEPS, help="of their learning, at most")
    arguments = parser.parse_args()
    tables = [name for name in arguments.tables.split(",") if name]
    if unknown := set(tables) - set(table_names()):
        parser.error(f"no table {', '.join(sorted(unknown))}: there are {', '.join(table_names())}.")
    torch.set_num_threads(1)
    print("| tasks | to learn from | method | log density, 1, 3, 5 known | error, 1, 3, 5 known | 90% hold | fit, s |")
    print("|---|---:|---|---|---|---:|---:|")
    sizes = [int(m) for m in arguments.drawn.split(",") if m]
    for name, found in chain(_of_tables(tables), _drawn(sizes)):
        for line in _lines(name, found, _methods(name, arguments)):
            print(line, flush=True)


def _methods(name: str, arguments: argparse.Namespace) -> dict[str, Fit]:
    widths = [int(width) for width in arguments.widths.split(",")]
    process = partial(neural_process.fit, members=arguments.members, widths=widths, steps=arguments.steps)
    methods: dict[str, Fit] = {"auto": partial(ours.fit, "auto"), "neural process": process}
    return methods | ({"the process itself": _true_process} if name == "gaussian process" else {})


def _of_tables(names: Sequence[str]) -> Iterator[tuple[str, list[Split]]]:
    with tempfile.TemporaryDirectory() as folder:
        write_tables(names, Path(folder))
        for name in names:
            yield name, splits(name, read_table(Path(folder, f"{name}.csv")))


def _drawn(sizes: Sequence[int]) -> Iterator[tuple[str, list[Split]]]:
    for name, draw in DRAWN.items():
        new = {f"new {k}": draw(np.random.default_rng([k, 1])) for k in range(NEW)}
        for m in sizes:
            yield name, [Split([draw(np.random.default_rng([k, 0])) for k in range(m)], new)]


def _of_process(rng: np.random.Generator) -> Pair:
    x = np.sort(rng.uniform(-2, 2, POINTS))[:, None]
    root = np.linalg.cholesky(_covariance(x, x) + 1e-9 * np.eye(POINTS))
    return x, root @ rng.normal(size=POINTS) + NOISE * rng.normal(size=POINTS)


def _sinusoid(rng: np.random.Generator) -> Pair:
    x = np.sort(rng.uniform(-2, 2, POINTS))[:, None]
    amplitude, phase, frequency = rng.uniform(0.5, 2), rng.uniform(0, 2 * math.pi), rng.uniform(1, 4)
    return x, amplitude * np.sin(frequency * x[:, 0] + phase) + NOISE * rng.normal(size=POINTS)


DRAWN: dict[str, Callable[[np.random.Generator], Pair]] = {"gaussian process": _of_process, "sinusoids": _sinusoid}


def _covariance(a: Array, b: Array) -> Array:
    return np.asarray(np.exp(-0.5 * ((a - b.T) / LENGTH) ** 2))


def _true_process(train: Sequence[Pair]) -> Predict:
    """What nothing can beat: the process that the tasks were drawn from, conditioned."""

    def one(context: Pair, at: Array) -> tuple[Array, Array]:
        x, y = context
        gain = np.linalg.solve(_covariance(x, x) + NOISE**2 * np.eye(len(y)), _covariance(x, at)).T
        return gain @ y, 1 + NOISE**2 - np.sum(gain * _covariance(at, x), 1)

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Gaussian:
        found = [one(*each) for each in zip(contexts, inputs, strict=True)]
        return Gaussian(np.concatenate([mean for mean, _ in found]), np.concatenate([var for _, var in found]))

    return predict


Cells = dict[tuple[str, str], dict[str, float]]
"""By context and metric: each task's value."""


def _judged(fit: Fit, name: str, found: Sequence[Split]) -> tuple[Cells, float]:
    """Scores of all held-out tasks, and the processor's seconds of learning."""
    cells: Cells = {(context, metric): {} for context in CONTEXTS for metric in METRICS}
    seconds = 0.0
    for split in found:
        unit = float(np.concatenate([y for _, y in split.train]).std())
        start = time.process_time()
        predict = fit(split.train)
        seconds += time.process_time() - start
        for context in CONTEXTS:
            held = asked(name, split.held, context)
            if not held:
                continue
            said = predict([one.context for one in held.values()], [one.x for one in held.values()])
            for metric, values in scores(said, [one.y for one in held.values()], unit).items():
                whole = [math.nan if value is None else value for value in values]
                cells[context, metric] |= dict(zip(held, whole, strict=True))
    return cells, seconds


def _lines(name: str, found: Sequence[Split], methods: dict[str, Fit]) -> Iterator[str]:
    """A row for each method."""
    first: Cells = {}
    learned_from = " / ".join(str(len(split.train)) for split in found)
    for method, fit in methods.items():
        cells, seconds = _judged(fit, name, found)
        first = first or cells
        density, error = (
            ", ".join(_cell(cells, first, metric, size, sign) for size in SIZES)
            for metric, sign in (("log_density", -1), ("error", 1))
        )
        held = np.mean([value for context in CONTEXTS for value in cells[context, "coverage"].values()])
        yield f"| {name} | {learned_from} | {method} | {density} | {error} | {held:.2f} | {seconds:.0f} |"


def _cell(cells: Cells, first: Cells, metric: str, size: int, sign: int) -> str:
    """The mean over tasks and both ways to know points, beside the first method's on the same tasks."""
    ways = [context for context in CONTEXTS if context.endswith(f" {size}")]
    values, others = (_by_task(one, metric, ways) for one in (cells, first))
    if not len(values):
        return "–"
    gap = sign * (values - others)
    sure = abs(gap.mean()) > 2 * gap.std(ddof=1) / math.sqrt(len(gap))
    return f"{('▼ ' if gap.mean() > 0 else '▲ ') if sure else ''}{values.mean():.3f}"


def _by_task(cells: Cells, metric: str, ways: Sequence[str]) -> Array:
    return np.array([np.mean([cells[way, metric][task] for way in ways]) for task in sorted(cells[ways[0], metric])])


if __name__ == "__main__":
    main()
