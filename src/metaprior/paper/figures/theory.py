"""The figures of the paper's theory: overfitting, the counter-example, parameterisations, functional PCA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metaprior.report import GREY, Curves, Row, colour_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TERMS = {"data_fit": ("data fit", "-"), "complexity": ("complexity", "--")}
MONTHS = (1, 3, 5, 7, 9, 11)
WRITTEN = {"own": ("as it is", "-", 3.2), "rescaled": ("rescaled", "-", 1.6), "permuted": ("permuted", ":", 2.2)}
WRITTEN_COLOURS = {"own": "#a9adb3", "rescaled": "#d55e00", "permuted": "#000000"}


def overfitting(rows: list[Row], curves: Curves) -> Figure | None:
    """Terms and error while a mean is fitted or learned; error by context size and by number of meta-tasks."""
    if "overfitting steps" not in curves:
        return None
    figure = new_figure(10.5, 7.2)
    (terms, errors), (sizes, counts) = figure.subplots(2, 2)
    steps = curves["overfitting steps"]
    for name in ("mean fit on target", "learned mean"):
        for term, (label, line) in TERMS.items():
            values = curves[f"overfitting {name} {term}"]
            terms.plot(steps, values, line, color=colour_of(name), lw=1.8, label=f"{name}: {label}")
    terms.set_title("Evidence of a target's context, per value")
    terms.legend(fontsize=8, frameon=False)
    _errors(errors, rows, "steps", "Error on the target's other points")
    _errors(sizes, rows, "ñ", "Error by context points ñ")
    _errors(counts, rows, "m", "Error by number of meta-tasks m")
    _reference(counts, rows)
    for axes, label in ((terms, "steps of Adam"), (errors, "steps of Adam"), (sizes, "ñ"), (counts, "m")):
        axes.set_xlabel(label)
    for axes in (terms, errors):
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(-0.3, 1.5 * float(steps[-1]))
        shown = [step for step in steps.tolist() if step in (0, 1, 10, 100, 400)]
        axes.set_xticks(shown, [f"{step:g}" for step in shown])
    return figure


def _errors(axes: Axes, rows: list[Row], varied: str, title: str) -> None:
    """Mean squared error with standard errors against one of the settings."""
    chosen = [row for row in rows if row["metric"] == "mse" and row["setting"].startswith(f"{varied} = ")]
    for name in dict.fromkeys(row["method"] for row in chosen):
        own = [row for row in chosen if row["method"] == name]
        x = [int(row["setting"].rpartition(" = ")[2]) for row in own]
        y, error = [row["mean"] for row in own], [row["stderr"] or 0.0 for row in own]
        axes.errorbar(x, y, error, color=colour_of(name), marker="o", ms=4, lw=1.6, capsize=2, label=name)
    axes.set(title=title, ylabel="mean squared error", yscale="log")
    if varied != "steps":
        axes.set_xscale("log")
    ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in ticks if low <= tick <= high], minor=False)
    axes.set_yticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize=8, frameon=False)


def _reference(axes: Axes, rows: list[Row]) -> None:
    """Where a mean fit on the target ends, which knows no meta-tasks."""
    found = [row for row in rows if (row["method"], row["metric"]) == ("mean fit on target", "mse")]
    level = [row["mean"] for row in found if row["setting"] == "ñ = 5"]
    if level:
        axes.axhline(level[0], color=colour_of("mean fit on target"), ls="--", lw=1.2, label="mean fit on target")
        axes.legend(fontsize=8, frameon=False)


def counter_example(rows: list[Row], curves: Curves) -> Figure | None:
    """What a zero mean and the true mean make of points where the function is zero; then of points anywhere."""
    if "counter x" not in curves:
        return None
    figure = new_figure(11.0, 3.7)
    zero, true, growth = figure.subplots(1, 3)
    x, truth, seen = curves["counter x"], curves["counter truth"], curves["counter context"]
    kernels = [key[len("counter zero mean ") : -len(" mean")] for key in curves if key.startswith("counter zero mean ")]
    kernels = [name for name in dict.fromkeys(kernels) if f"counter zero mean {name} sd" in curves]
    for axes, name in ((zero, "zero mean"), (true, "true mean")):
        for kernel in kernels:
            mean, sd = (curves[f"counter {name} {kernel} {what}"] for what in ("mean", "sd"))
            if kernel == "RBF":
                axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour_of(name), alpha=0.15, lw=0)
            axes.plot(x, mean, color="#0072b2", lw=1.4, alpha=0.7)
        axes.plot(x, truth, color="black", lw=1.2, ls="--")
        axes.plot(seen, np.zeros_like(seen), "o", color="black", ms=5, mec="white", zorder=5)
        axes.set(title=f"{name}, {len(kernels)} kernels", ylim=(-2.2, 2.2), xlabel="x")
    zero.plot([], [], color="#0072b2", label="posterior means")
    zero.plot([], [], color="black", ls="--", label="the known function")
    zero.plot([], [], "o", color="black", mec="white", label="observed, σ² = 0")
    zero.legend(fontsize=8, frameon=False, loc="upper left")
    own = [row for row in rows if row["method"] == "zero mean" and row["setting"].startswith("points anywhere = ")]
    n = [int(row["setting"].rpartition(" = ")[2]) for row in own]
    growth.plot(n, [row["mean"] for row in own], "o-", color=colour_of("zero mean"), ms=4, label="zero mean")
    growth.plot([], [], " ", label="true mean: exactly 0")
    growth.set(title="Points anywhere, Matérn 5/2", xlabel="points", ylabel="mean squared error")
    growth.set(xscale="log", yscale="log")
    growth.set_xticks(n, [str(count) for count in n])
    growth.set_xticks([], minor=True)
    growth.legend(fontsize=8, frameon=False)
    return figure


def parameterisations(rows: list[Row], curves: Curves) -> Figure | None:
    """One start function written in three ways: what MAML makes of it, what a GP makes of it, and averages."""
    if "parameters x" not in curves:
        return None
    figure = new_figure(11.0, 3.6)
    maml, mean, average = figure.subplots(1, 3, sharey=True)
    x, start = curves["parameters x"], curves["parameters start"]
    for axes, key, title in ((maml, "maml", "MAML, adapted to the context"), (mean, "mean", "GP around the same mean")):
        axes.plot(x, start, color=GREY, lw=1, ls="--", label="start function")
        for name, (label, line, width) in WRITTEN.items():
            values = curves[f"parameters {key} {name}"]
            axes.plot(x, values, line, color=WRITTEN_COLOURS[name], lw=width, label=label)
        seen = curves["parameters context x"], curves["parameters context y"]
        axes.plot(*seen, "o", color="black", ms=5, mec="white", zorder=5, label="context")
        axes.set_title(title)
    average.plot(x, start, color=WRITTEN_COLOURS["own"], lw=3.2, label="average of the two functions")
    average.plot(x, curves["parameters average"], color="#d55e00", lw=1.6, label="average of their parameters")
    average.set_title("Halfway between two permuted copies")
    for axes in (maml, mean, average):
        axes.set_xlabel("x")
    maml.legend(fontsize=8, frameon=False)
    average.legend(fontsize=8, frameon=False)
    return figure


def components(rows: list[Row], curves: Curves) -> Figure | None:
    """Mean ± each component, the scores, and years reconstructed from three months."""
    if "fpca x" not in curves:
        return None
    figure = new_figure(11.5, 6.4)
    (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False)
    shown = min(len(curves["fpca eigenvalues"]), 3)
    panels = top.subplots(1, shown + 1)
    for k, axes in enumerate(panels[:-1]):
        _component(axes, curves, k)
    _scores(panels[-1], curves)
    years = [key.split()[2] for key in curves if key.startswith("fpca year ") and key.endswith(" mean")]
    for axes, year in zip(bottom.subplots(1, len(years), sharey=True), years, strict=True):
        _year(axes, curves, year)
    return figure


def _component(axes: Axes, curves: Curves, k: int) -> None:
    x, mean, values = curves["fpca x"], curves["fpca mean"], curves["fpca eigenvalues"]
    effect = 2 * np.sqrt(values[k]) * curves["fpca functions"][:, k]
    axes.plot(x, mean, color="black", lw=1.6)
    for sign, colour in ((1, "#d55e00"), (-1, "#0072b2")):
        axes.plot(x, mean + sign * effect, color=colour, lw=1.4, label="mean + 2 sd" if sign > 0 else "mean − 2 sd")
    axes.set(title=f"Component {k + 1}: {values[k] / values.sum():.0%} of variance", xlabel="month")
    axes.set_ylabel("sea surface, °C" if k == 0 else "")
    axes.set_xticks(MONTHS)
    axes.legend(fontsize=8, frameon=False)


def _scores(axes: Axes, curves: Curves) -> None:
    scores = curves["fpca scores"]
    second = scores[:, 1] if scores.shape[1] > 1 else np.zeros(len(scores))
    axes.axhline(0, color=GREY, lw=0.6)
    axes.axvline(0, color=GREY, lw=0.6)
    axes.plot(scores[:, 0], second, "o", color=colour_of("fpca"), ms=4, alpha=0.7)
    axes.set(title="Scores, one point per year", xlabel="component 1", ylabel="component 2")


def _year(axes: Axes, curves: Curves, year: str) -> None:
    x, label, colour = curves["fpca x"], f"fpca year {year}", colour_of("fpca")
    axes.fill_between(x, curves[f"{label} lower"], curves[f"{label} upper"], color=colour, alpha=0.2, lw=0)
    axes.plot(x, curves[f"{label} mean"], color=colour, lw=1.6)
    axes.plot(curves[f"{label} target x"], curves[f"{label} target y"], "o", mfc="white", mec="black", ms=4)
    axes.plot(curves[f"{label} context x"], curves[f"{label} context y"], "o", color="black", ms=5)
    axes.set(title=f"{year}, from three months", xlabel="month")
    axes.set_xticks(MONTHS)
