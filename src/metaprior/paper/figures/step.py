"""The figure of the step experiment that shows functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metaprior.report import GREY, Curves, Row, colour_of, key_line, key_patch, named, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

DARK = "#3c4048"
CONTEXT: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4.5, "color": "black", "mec": "white", "mew": 0.6}


def reconstructions(rows: list[Row], curves: Curves) -> Figure | None:
    """A Heaviside step as each prior sees it from ñ points: mean ± 2 standard deviations of the function."""
    methods, sizes = named(curves, "mean")
    if not methods:
        return None
    figure = new_figure(9.0, 1.9 * len(methods) + 0.7)
    grid = figure.subplots(len(methods), len(sizes), sharex=True, sharey=True, squeeze=False)
    for line, method in zip(grid, methods, strict=True):
        for axes, n in zip(line, sizes, strict=True):
            _reconstruction(axes, curves, method, n)
        line[0].set_ylabel(method)
    for axes, n in zip(grid[0], sizes, strict=True):
        axes.set_title(f"ñ = {n}")
    for axes in grid[-1]:
        axes.set_xlabel("x")
    figure.legend(handles=_legend(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def _reconstruction(axes: Axes, curves: Curves, method: str, n: str) -> None:
    x, mean, sd = curves["x"], curves[f"{method} {n} mean"], curves[f"{method} {n} sd"]
    colour = colour_of(method)
    axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.22, lw=0)
    axes.plot(x, np.where(x >= 0, 1.0, 0.0), color=GREY, lw=1.2)
    axes.plot(x, mean, color=colour, lw=1.8)
    axes.plot(curves[f"{n} context x"], curves[f"{n} context y"], **CONTEXT, zorder=5)
    axes.set_ylim(-1.1, 2.1)


def _legend() -> list[Line2D | Patch]:
    """In one dark colour, as each method has its own."""
    return [
        key_line(color=GREY, lw=1.2, label="step"),
        key_line(color=DARK, lw=1.8, label="posterior mean"),
        key_patch(color=DARK, alpha=0.22, lw=0, label="±2 standard deviations"),
        key_line(**CONTEXT, label="context"),
    ]
