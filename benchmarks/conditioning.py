"""What a second question costs, once a context is conditioned on: `python benchmarks/conditioning.py`.

One task of 1,500 known points, asked at 10, constant mean and Matérn kernel, one thread: the first answer (condition
and ask) against the second (ask again), and against GPyTorch's `ExactGP` in the same run, which caches as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from metaprior import MetaGP, Tasks

KNOWN, ASKED, REPEATS = 1_500, 10, 7


def main() -> None:
    """The table."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    past = Tasks.from_pairs(
        [(x := np.sort(rng.uniform(0, 9, 12)), np.sin(x) + 0.3 * rng.normal(size=12)) for _ in range(20)]
    )
    gp = MetaGP("constant", "matern", max_epochs=20, progress=False).fit(past)
    x = np.sort(rng.uniform(0, 9, KNOWN))
    y, wanted, other = np.sin(x) + 0.3 * rng.normal(size=KNOWN), np.linspace(0, 9, ASKED), np.linspace(0.1, 8, ASKED)
    gp.condition(x[:50], y[:50]).at(wanted)  # whatever is slow the first time only
    ours, theirs = [], []
    for _ in range(REPEATS):  # in turn, so that a busy machine is busy for both
        conditional, first = timed(lambda: gp.condition(x, y))
        _, asked = timed(lambda conditional=conditional: conditional.at(wanted).mean)  # type: ignore[misc]
        _, again = timed(lambda conditional=conditional: conditional.at(other).mean)  # type: ignore[misc]
        ours.append((first + asked, again))
        model, first = timed(lambda: gp.to_gpytorch(x, y))
        _, asked = timed(lambda model=model: answer(model, wanted))  # type: ignore[misc]
        _, again = timed(lambda model=model: answer(model, other))  # type: ignore[misc]
        theirs.append((first + asked, again))
    print(f"{KNOWN:,} known points, asked at {ASKED}, one thread; medians of {REPEATS}\n")
    print(f"{'':<22}{'first':>12}{'again':>12}{'ratio':>8}")
    for name, found in (("ours", ours), ("GPyTorch's ExactGP", theirs)):
        first, again = (statistics.median(part) for part in zip(*found, strict=True))
        print(f"{name:<22}{1e3 * first:>9.1f} ms{1e3 * again:>9.2f} ms{first / again:>7.0f}×")


def answer(model: torch.nn.Module, points: np.ndarray) -> object:  # type: ignore[type-arg]
    """Mean and variance of an `ExactGP` at some points."""
    with torch.no_grad():
        found = model(torch.from_numpy(points)[:, None])
        return found.mean, found.variance


def timed(work: Callable[[], object]) -> tuple[object, float]:
    """What some work gives, and its seconds."""
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


if __name__ == "__main__":
    main()
