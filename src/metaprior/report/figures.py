"""The paper's figures, drawn from an experiment's curves alone, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from metaprior.output import write_whole

Curves = dict[str, np.ndarray[Any, Any]]

BLUE, ORANGE, GREY = "#2464a8", "#d1661a", "#8a8f98"


def sinusoid_samples(curves: Curves) -> Figure:
    """Samples of the process around its mean, and the mean that was learned from such samples."""
    figure = _figure(7.0, 3.6)
    axes = figure.add_subplot()
    x = curves["x"]
    for k, sample in enumerate(curves["samples"]):
        axes.plot(x, sample, color=GREY, lw=0.9, alpha=0.7, label="samples" if k == 0 else None)
    axes.plot(x, np.sin(x), color="black", lw=1.8, label="true mean sin(x)")
    if "learned mean" in curves:
        axes.plot(x, curves["learned mean"], color=ORANGE, lw=1.8, ls="--", label="learned mean")
    axes.set(xlabel="x", ylabel="f(x)", title="Samples from the sinusoid process")
    axes.legend(loc="upper right", ncols=3, frameon=False, fontsize=8)
    axes.set_ylim(top=axes.get_ylim()[1] + 0.9)
    return figure


def step_reconstructions(curves: Curves) -> Figure:
    """A Heaviside step as each prior sees it from ñ points: mean ± 2 standard deviations of the function."""
    methods = list(dict.fromkeys(key.rsplit(" ", 2)[0] for key in curves if key.endswith(" mean")))
    sizes = list(dict.fromkeys(key.rsplit(" ", 2)[1] for key in curves if key.endswith(" mean")))
    figure = _figure(9.0, 1.9 * len(methods) + 0.7)
    grid = figure.subplots(len(methods), len(sizes), sharex=True, sharey=True, squeeze=False)
    for line, method in zip(grid, methods, strict=True):
        for axes, n in zip(line, sizes, strict=True):
            _reconstruction(axes, curves, method, n)
        line[0].set_ylabel(method)
    for axes, n in zip(grid[0], sizes, strict=True):
        axes.set_title(f"ñ = {n}")
    for axes in grid[-1]:
        axes.set_xlabel("x")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def _reconstruction(axes: Axes, curves: Curves, method: str, n: str) -> None:
    x, mean, sd = curves["x"], curves[f"{method} {n} mean"], curves[f"{method} {n} sd"]
    axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=BLUE, alpha=0.18, lw=0, label="±2 standard deviations")
    axes.plot(x, np.where(x >= 0, 1.0, 0.0), color=GREY, lw=1.2, label="step")
    axes.plot(x, mean, color=BLUE, lw=1.6, label="posterior mean")
    context = curves[f"{n} context x"], curves[f"{n} context y"]
    axes.plot(*context, "o", color=ORANGE, ms=4, mec="white", mew=0.5, label="context", zorder=5)
    axes.set_ylim(-1.1, 2.1)


FIGURES: dict[str, dict[str, Callable[[Curves], Figure]]] = {
    "sinusoid": {"samples": sinusoid_samples},
    "step": {"reconstructions": step_reconstructions},
}
"""Each experiment's figures by file name."""


def draw_figures(experiment: str, curves: Curves, folder: Path) -> list[Path]:
    """Every figure of an experiment that its curves suffice for, as PNG and SVG."""
    written = []
    for name, draw in FIGURES[experiment].items():
        if not any(key.endswith(("mean", "samples")) for key in curves):
            continue
        figure = draw(curves)
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            write_whole(path, partial(figure.savefig, format=suffix, dpi=150))
            written.append(path)
    return written


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no global pyplot state
    return figure
