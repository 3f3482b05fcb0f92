"""One marginal likelihood over many datasets: the kernel and the noise that all of them share.

    python examples/one_likelihood_many_datasets.py --out docs/figures/one-likelihood.png

Datasets of 4 to 12 points are draws of one Gaussian process. Each alone says little of its kernel; the sum of their
log marginal likelihoods, which `MetaGP.fit` maximises, says the more the more there are. What is found is compared with
the truth, and a completely new dataset is predicted from three points.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from metaprior import MetaGP, Tasks, evidence

LENGTHSCALE, DEVIATION, NOISE = 0.6, 1.5, 0.2
"""Of the true process."""

COUNTS, REPEATS, GRID = (1, 4, 16, 64), 6, np.linspace(0, 5, 101)

Array = np.ndarray[Any, Any]


def drawn(rng: np.random.Generator, x: Array) -> Array:
    """A function of the true process at these points."""
    gaps = (x[:, None] - x[None, :]) / LENGTHSCALE
    covariance = DEVIATION**2 * np.exp(-0.5 * gaps**2) + 1e-9 * np.eye(len(x))
    return np.linalg.cholesky(covariance) @ rng.normal(size=len(x))


def datasets(rng: np.random.Generator, count: int) -> Tasks:
    """Each with points of its own, as many as it happens to have."""
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 5, rng.integers(4, 13)))
        pairs.append((x, drawn(rng, x) + rng.normal(0, NOISE, len(x))))
    return Tasks.from_pairs(pairs)


def learned(tasks: Tasks) -> MetaGP:
    """One kernel and one noise, from the summed log marginal likelihood of all datasets."""
    return MetaGP("zero", "rbf", held_out=None, progress=False).fit(tasks)


def found(gp: MetaGP) -> list[float]:
    """Lengthscale, deviation and noise in the units of the data."""
    x_unit, y_unit = float(gp.scaler_.x_scale[0]), float(gp.scaler_.y_scale[0])
    kernel, noise = gp.prior_.kernel, gp.prior_.noise(torch.zeros(1, 1, dtype=torch.float64))
    deviation, spread = float(kernel.outputscale.detach()) ** 0.5, float(noise.detach().mean()) ** 0.5
    return [float(kernel.base_kernel.lengthscale.detach()) * x_unit, deviation * y_unit, spread * y_unit]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("one-likelihood.png"))
    arguments = parser.parse_args()
    print(f"{'datasets':>8}{'lengthscale':>20}{'deviation':>20}{'noise':>20}")
    gp = None
    for count in COUNTS:
        values = []
        for repeat in range(REPEATS):
            gp = learned(datasets(np.random.default_rng([repeat, count]), count))
            values.append(found(gp))
        low, high = np.min(values, axis=0), np.max(values, axis=0)
        print(f"{count:>8}" + "".join(f"{f'{a:.2f} to {b:.2f}':>20}" for a, b in zip(low, high, strict=True)))
    assert gp is not None
    print(f"{'truth':>8}" + "".join(f"{value:>20.2f}" for value in (LENGTHSCALE, DEVIATION, NOISE)))
    draw(gp, arguments.out)


def draw(gp: MetaGP, path: Path) -> None:
    """A new dataset from three points, and the evidence of new datasets by lengthscale."""
    rng = np.random.default_rng(7)
    function, known = drawn(rng, GRID), np.array([12, 40, 66])
    y = function[known] + rng.normal(0, NOISE, len(known))
    posterior = gp.condition(GRID[known], y).at(GRID).function
    lower, upper = (bound[:, 0].numpy() for bound in posterior.interval(0.9))
    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.fill_between(GRID, lower, upper, color="#0072b2", alpha=0.2, lw=0, label="90% of the function")
    left.plot(GRID, posterior.mean[:, 0].numpy(), color="#0072b2", label="mean")
    left.plot(GRID, function, color="0.3", lw=1, ls="--", label="truth")
    left.plot(GRID[known], y, "ko", ms=4)
    left.set(title="a new dataset, from three points", xlabel="x", ylabel="y")
    left.legend(frameon=False, fontsize=8)
    right.plot(*by_lengthscale(gp, datasets(rng, 64)), color="#d55e00")
    right.axvline(LENGTHSCALE, color="0.3", lw=1, ls="--")
    right.set(title="64 datasets together", xlabel="lengthscale", ylabel="log marginal likelihood")
    figure.savefig(path, dpi=130)


def by_lengthscale(gp: MetaGP, tasks: Tasks) -> tuple[Array, list[float]]:
    """The summed evidence with other lengthscales in the place of the learned one."""
    prior, scaled = gp.prior_, gp.scaler_.scale(tasks)
    lengthscales, found = np.geomspace(0.2, 2, 41), []
    learned_one = prior.kernel.base_kernel.lengthscale.detach().clone()
    for one in lengthscales:
        prior.kernel.base_kernel.lengthscale = float(one) / float(gp.scaler_.x_scale[0])
        with torch.no_grad():
            found.append(float(evidence(prior, scaled).total.sum()))
    prior.kernel.base_kernel.lengthscale = learned_one
    return lengthscales, found


if __name__ == "__main__":
    main()
