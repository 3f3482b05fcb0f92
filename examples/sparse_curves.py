"""Functional PCA of curves that are seen at a few places each, which differ from curve to curve.

    python examples/sparse_curves.py --out docs/figures/sparse-curves.png

Sea-surface temperatures of 61 years, of which five months each are kept, at random. From these alone: the components in
which years differ, the scores of each year with how sure they are, and every year as a whole, put on no grid
first. Beside it, the same from all twelve months.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metaprior import FPCA, Tasks
from metaprior.data import load_elnino
from metaprior.inference import Posterior

KEPT, SHOWN = 5, (1957, 1983, 1999)
MONTHS = torch.linspace(1, 12, 111, dtype=torch.float64)[:, None]
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a9099"


def draw_components(axes: Axes, sparse: FPCA, whole: FPCA) -> None:
    """The first components of both; which way one points is arbitrary."""
    found, known = sparse.eigenfunctions(MONTHS), whole.eigenfunctions(MONTHS)
    for k, colour in zip(range(min(found.shape[1], 2)), (BLUE, ORANGE), strict=False):
        turned = found[:, k] * (found[:, k] @ known[:, k]).sign()
        axes.plot(MONTHS, turned, color=colour, lw=2, label=f"component {k + 1} ({float(sparse.explained_[k]):.0%})")
        axes.plot(MONTHS, known[:, k], color=colour, lw=1.2, ls="--")
    axes.plot([], [], color=GREY, lw=1.2, ls="--", label="from all twelve months")
    axes.set(title="How years differ", xlabel="month")
    axes.legend(frameon=False, fontsize=7)


def draw_scores(axes: Axes, sparse: FPCA, few: Tasks, whole: FPCA, years: Tasks) -> float:
    """The first score of each year with its deviation, against that from all months; how they correlate."""
    found, known = sparse.scores(few), whole.scores(years).mean[:, 0, 0]
    same = (sparse.eigenfunctions(MONTHS)[:, 0] @ whole.eigenfunctions(MONTHS)[:, 0]).sign()
    mean, sd = found.mean[:, 0, 0] * same, found.sd[:, 0, 0]
    axes.errorbar(known, mean, sd, fmt="o", color=BLUE, ms=3, lw=0.8, alpha=0.7)
    axes.axline((0.0, 0.0), slope=1, color=GREY, lw=1, ls="--")
    axes.set(title="First score of each year", xlabel="from all twelve months", ylabel=f"from {KEPT} months")
    return float(np.corrcoef(mean.numpy(), known.numpy())[0, 1])


def draw_years(axes: Axes, posterior: Posterior, few: Tasks, years: Tasks) -> None:
    """Some years as a whole, predicted from their few months."""
    lower, upper = posterior.interval(0.9)
    for year, colour in zip(SHOWN, (BLUE, ORANGE, GREEN), strict=True):
        i = years.ids.index(year)
        rows = posterior.points.task_of_row == i
        axes.fill_between(MONTHS[:, 0], lower[rows, 0], upper[rows, 0], color=colour, alpha=0.15, lw=0)
        axes.plot(MONTHS[:, 0], posterior.mean[rows, 0], color=colour, lw=1.8, label=str(year))
        axes.plot(years[i].x[:, 0], years[i].y[:, 0], "o", mfc="none", color=colour, ms=4)
        axes.plot(few[i].x[:, 0], few[i].y[:, 0], "o", color=colour, ms=5)
    axes.set(title="Years as a whole (filled: known)", xlabel="month", ylabel="temperature (°C)")
    axes.legend(frameon=False, fontsize=7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sparse-curves.png"))
    arguments = parser.parse_args()
    years = load_elnino()
    few, hidden = years.context_target(KEPT, seed=0)
    sparse, whole = FPCA().fit(few), FPCA().fit(years)
    at_hidden = sparse.predict(few, hidden)
    lower, upper = at_hidden.interval(0.9)
    error = float((at_hidden.mean - hidden.y).square().mean().sqrt())
    inside = float(((lower <= hidden.y) & (hidden.y <= upper)).double().mean())
    mean = sparse.mean_function(hidden.x)
    shares = ", ".join(f"{share:.0%}" for share in sparse.explained_.tolist())
    figure = Figure(figsize=(11.5, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    draw_components(left, sparse, whole)
    correlation = draw_scores(middle, sparse, few, whole, years)
    draw_years(right, sparse.predict(few, MONTHS), few, years)
    print(f"{sparse.rank_} components with {shares} of the variance; first scores correlate {correlation:.2f}", end=" ")
    print("with those from all months")
    print(
        f"the hidden months: error {error:.2f} °C (mean year: {float((mean - hidden.y).square().mean().sqrt()):.2f}),",
        end=" ",
    )
    print(f"{inside:.0%} of them within the 90% interval")
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
