"""A past fit as the prior of the next one: a series with a few points, fitted with what earlier ones have taught.

    python examples/past_fit_as_prior.py --out docs/figures/past-fit.png

A series of a few months cannot know its season, so a fit of its own goes astray. The past is fitted once (years of
sea-surface temperatures up to 1989, `elnino`) and kept as one file, without the data. Each later year then starts from
that file: `load(file).condition(months, temperatures)`, again whenever a month has come, in milliseconds. Beside it: a
Gaussian process fitted on the new year alone, and the mean of each month in the past.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metaprior import MetaGP, Tasks, load
from metaprior.data import embedded_table
from metaprior.inference import Method, Posterior
from metaprior.methods import GPPerTask

UNTIL, KNOWN, SHOWN = 1990, (1, 3, 6), 2010

Array = np.ndarray[Any, Any]


def years() -> tuple[Tasks, Tasks]:
    """The past, and what came after it."""
    table = embedded_table("elnino").to_pandas()
    tasks = Tasks.from_table(table, task="year", x="month", y="temperature")
    before = np.array(tasks.ids) < UNTIL
    return tasks.select(before), tasks.select(~before)


def past_fit(past: Tasks, path: Path) -> MetaGP:
    """Fitted once, and read from its file as the next one who needs it would. budget=0: the quick rungs."""
    MetaGP(budget=0).fit(past).save(path)
    return load(path)


def errors(new: Tasks, known: int, methods: dict[str, Method], of_month: Array) -> list[str]:
    """A line for each method, of the months that are not known yet: error, how many in the bounds, their width."""
    context, target = new.context_target(where=lambda x: x[:, 0] <= known)
    y = target.y[:, 0].numpy()
    lines = []
    for name, method in methods.items():
        posterior: Posterior = method.predict(context, target)
        mean, lower, upper = (part[:, 0].numpy() for part in (posterior.mean, *posterior.interval(0.9)))
        inside, width = ((lower <= y) & (y <= upper)).mean(), (upper - lower).mean()
        lines.append(f"{known:>5}  {name:28}{np.abs(mean - y).mean():8.2f}{inside:8.0%}{width:8.2f}")
    month = target.x[:, 0].numpy().astype(int)
    return [*lines, f"{known:>5}  {'the month in the past':28}{np.abs(of_month[month - 1] - y).mean():8.2f}"]


def draw(axes: Axes, method: Method, year: Tasks, known: int) -> None:
    """What a method makes of the first months of a year."""
    context, _ = year.context_target(where=lambda x: x[:, 0] <= known)
    at = np.linspace(1, 12, 111)
    posterior = method.predict(context, at)
    lower, upper = (bound[:, 0] for bound in posterior.interval(0.9))
    axes.fill_between(at, lower, upper, color="#0072b2", alpha=0.2, lw=0)
    axes.plot(at, posterior.mean[:, 0], color="#0072b2")
    axes.plot(year.x[:, 0], year.y[:, 0], "o", color="#6f747c", mfc="none")
    axes.plot(context.x[:, 0], context.y[:, 0], "o", color="black")
    axes.set(xlim=(0.5, 12.5), ylim=(16, 30))


def picture(new: Tasks, methods: dict[str, Method], path: Path) -> None:
    """One year, month by month, by each method: known months are black, those to come are rings."""
    year = new.select([new.ids.index(SHOWN)])
    figure = Figure(figsize=(9, 5), layout="constrained")
    grid = figure.subplots(len(methods), len(KNOWN), sharex=True, sharey=True)
    for row, (name, method) in zip(grid, methods.items(), strict=True):
        for axes, known in zip(row, KNOWN, strict=True):
            draw(axes, method, year, known)
        row[0].set_ylabel(f"{name}\n°C")
    for top, bottom, known in zip(grid[0], grid[-1], KNOWN, strict=True):
        top.set_title(f"{SHOWN}, {known} month{'s' * (known > 1)} known", fontsize=10)
        bottom.set_xlabel("month")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write a picture, such as past-fit.png")
    out = parser.parse_args().out
    past, new = years()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "past.metaprior"
        methods: dict[str, Method] = {
            "a fit of its own": GPPerTask().fit(past),
            "the past as its prior": past_fit(past, file),
        }
        print(f"{len(past)} past years in a file of {file.stat().st_size:,} bytes; {len(new)} new ones")
    of_month = past.y.reshape(len(past), 12).mean(0).numpy()
    print(f"known  {'the rest of the year':28}{'error':>8}{'in 90%':>8}{'width':>8}")
    for known in KNOWN:
        print(*errors(new, known, methods, of_month), sep="\n")
    if out is not None:
        picture(new, methods, out)
        print(out)


if __name__ == "__main__":
    main()
