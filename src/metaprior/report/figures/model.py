"""Pictures of one fitted model, from its arrays and its held-out scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metaprior.report.figures.common import Curves, new_figure, plain
from metaprior.report.methods import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE = "#0072b2", "#d55e00"

CAPTIONS = {
    "prior": "The learned mean, draws of whole functions, and the interval that holds 90% of them at each point.",
    "kernel": "Left: the correlation of any two points. Right: that of all points with three of them.",
    "eigenfunctions": "The directions in which tasks differ most from the mean.",
    "learning": "Evidence of held-out tasks per value while learning; the best parameters are kept.",
    "held-out": (
        "On held-out tasks. Left: how many values fall into intervals of each size; on the dashed line they are as "
        "wide as they say. Right: the mean squared error by context, with standard errors."
    ),
}
"""Below each picture of a model."""


def model_figures(curves: Curves, scores: dict[str, Any], names: tuple[str, str]) -> dict[str, Figure]:
    """Every picture that there is something to draw for. names: of the input and of the target column."""
    figures, names = {}, (plain(names[0]), plain(names[1]))
    if "mean" in curves:
        figures["prior"] = _prior(curves, names)
        figures["kernel"] = _kernel(curves, names[0])
        figures["eigenfunctions"] = _eigenfunctions(curves, names[0])
    if len(curves.get("epochs", ())) > 1:
        figures["learning"] = _learning(curves)
    settings = {n: found for n, found in scores.items() if isinstance(found, dict) and "coverage" in found}
    if settings:
        figures["held-out"] = _held_out(settings)
    return figures


def task_figure(curves: Curves, title: str, names: tuple[str, str], level: float) -> Figure:
    """One task: its points, the predicted mean, and the band."""
    figure = new_figure(6.0, 3.4)
    axes = figure.subplots()
    x = curves["x"]
    axes.fill_between(x, curves["lower"], curves["upper"], color=BLUE, alpha=0.2, lw=0, label=f"{level:.0%} interval")
    axes.plot(x, curves["mean"], color=BLUE, lw=1.8, label="mean")
    axes.plot(curves["context x"], curves["context y"], "o", color="black", ms=4, label="known")
    axes.set(title=plain(title), xlabel=plain(names[0]), ylabel=plain(names[1]))
    axes.legend(fontsize=8, frameon=False)
    return figure


def suggestion_figure(curves: Curves, title: str, names: tuple[str, str], level: float) -> Figure:
    """One task: what its curve may be now, where to measure it next, and what it may be then.

    The curve itself will move with what is measured; how wide the band will be is expected.
    """
    figure = new_figure(6.0, 3.4)
    axes = figure.subplots()
    x = curves["x"]
    now, then = f"{level:.0%} band of the curve now", "its expected width then"
    axes.fill_between(x, curves["lower"], curves["upper"], color=BLUE, alpha=0.15, lw=0, label=now)
    axes.fill_between(x, curves["lower then"], curves["upper then"], color=BLUE, alpha=0.4, lw=0, label=then)
    axes.plot(x, curves["mean"], color=BLUE, lw=1.8, label="mean")
    axes.plot(curves["context x"], curves["context y"], "o", color="black", ms=4, label="known")
    for order, (place, height) in enumerate(zip(curves["chosen x"], curves["chosen y"], strict=True), 1):
        axes.axvline(place, color=ORANGE, lw=1.0, ls=":")
        axes.plot(place, height, "o", color=ORANGE, ms=13)
        axes.annotate(str(order), (place, height), color="white", ha="center", va="center", fontsize=8, weight="bold")
    axes.plot([], [], "o", color=ORANGE, ms=6, label="to measure, in this order")
    axes.set(title=f"{plain(title)}: where to measure next", xlabel=plain(names[0]), ylabel=plain(names[1]))
    axes.legend(fontsize=7, frameon=False)
    return figure


def _prior(curves: Curves, names: tuple[str, str]) -> Figure:
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    x = curves["x"]
    axes.fill_between(x, curves["lower"], curves["upper"], color=BLUE, alpha=0.15, lw=0, label="90% interval")
    axes.plot(x, curves["draws"].T, color=GREY, lw=0.8, alpha=0.7)
    axes.plot([], [], color=GREY, lw=0.8, label="draws")
    axes.plot(x, curves["mean"], color=BLUE, lw=2.2, label="mean")
    axes.set(xlabel=names[0], ylabel=names[1], title="The prior: what a new task looks like before it is seen")
    axes.legend(fontsize=8, frameon=False)
    return figure


def _kernel(curves: Curves, name: str) -> Figure:
    figure = new_figure(9.6, 3.8)
    heat, lines = figure.subplots(1, 2)
    x, correlation = curves["x"], curves["correlation"]
    image = heat.imshow(
        correlation, origin="lower", extent=(x[0], x[-1], x[0], x[-1]), vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto"
    )
    figure.colorbar(image, ax=heat, label="correlation")
    heat.set(xlabel=name, ylabel=name, title="Which points go together")
    for share, colour in ((0.1, "#009e73"), (0.5, BLUE), (0.9, ORANGE)):
        k = round(share * (len(x) - 1))
        lines.plot(x, correlation[k], color=colour, lw=1.6, label=f"with {name} = {x[k]:.3g}")
    lines.axhline(0, color=GREY, lw=0.6)
    lines.set(xlabel=name, ylabel="correlation", title="Correlation with a point")
    lines.legend(fontsize=8, frameon=False)
    return figure


def _eigenfunctions(curves: Curves, name: str) -> Figure:
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    total = max(float(np.trace(curves["covariance"])), 1e-300)
    for value, function in zip(curves["eigenvalues"], curves["eigenfunctions"], strict=True):
        axes.plot(curves["x"], function, lw=1.6, label=f"{value / total:.0%} of variance")
    axes.axhline(0, color=GREY, lw=0.6)
    axes.set(xlabel=name, title="Leading eigenfunctions of the covariance", yticks=[])
    axes.legend(fontsize=8, frameon=False)
    return figure


def _learning(curves: Curves) -> Figure:
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    axes.plot(curves["epochs"], curves["held-out evidence"], "o-", color=BLUE, ms=3, lw=1.4)
    best = int(np.argmax(curves["held-out evidence"]))
    axes.plot(curves["epochs"][best], curves["held-out evidence"][best], "o", color=ORANGE, ms=8, label="kept")
    axes.set(xlabel="epoch", ylabel="per value", title="Evidence of held-out tasks while learning")
    low, high = np.quantile(curves["held-out evidence"], 0.1), curves["held-out evidence"][best]
    axes.set_ylim(low - 0.1 * (high - low) - 1e-3, high + 0.1 * (high - low) + 1e-3)  # the first steps are far below
    axes.legend(fontsize=8, frameon=False)
    return figure


def _held_out(settings: dict[str, Any]) -> Figure:
    figure = new_figure(9.6, 3.6)
    calibration, errors = figure.subplots(1, 2)
    for n, found in settings.items():
        levels = [int(level) / 100 for level in found["coverage"]]
        calibration.plot(levels, list(found["coverage"].values()), "o-", ms=3, lw=1.4, label=_label(n))
    calibration.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    calibration.set(xlabel="interval", ylabel="share of values inside", title="Calibration on held-out tasks")
    calibration.legend(fontsize=8, frameon=False)
    _errors(errors, settings)
    return figure


def _errors(axes: Axes, settings: dict[str, Any]) -> None:
    for random in (True, False):  # a line through the sizes of one kind of context
        places = [k for k, n in enumerate(settings) if n.isdigit() == random]
        found = [list(settings.values())[k]["mse"] for k in places]
        bars = [one["stderr"] or 0.0 for one in found]
        axes.errorbar(places, [one["mean"] for one in found], bars, marker="o", color=BLUE, capsize=3, lw=1.6)
    axes.set_xticks(range(len(settings)), [_label(n) for n in settings])
    axes.set(title="Error on held-out tasks by context", ylabel="mean squared error", ylim=(0, None))


def _label(setting: str) -> str:
    return f"ñ = {setting}" if setting.isdigit() else setting
