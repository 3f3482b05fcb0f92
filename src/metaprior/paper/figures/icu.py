"""The figures of the ICU experiment: what its intervals cover, and patients."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from metaprior.report import GREY, Curves, Row, colour_of, key_line, key_patch, named, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

JUDGED = "learned both"
BOUND = NormalDist().inv_cdf(0.95)
"""A 90% interval of a Gaussian ends so many standard deviations from its mean."""

LINEAR_TO = 4.0
UNITS = {"GCS": "points", "Urine": "mL", "HCT": "%", "Creatinine": "mg/dL", "BUN": "mg/dL"}
EXAMPLES = range(3)
DAY = 24.0


def residuals(rows: list[Row], curves: Curves) -> Figure | None:
    """Quantiles of the standardised residuals against the standard normal's: on the diagonal a method is calibrated."""
    methods, variables = named(curves, "z")
    if "z probabilities" not in curves or not methods:
        return None
    normal = np.array([NormalDist().inv_cdf(p) for p in curves["z probabilities"].tolist()])
    across = min(3, len(variables) + 1)
    down = -(-(len(variables) + 1) // across)  # one place is the legend's
    figure = new_figure(3.4 * across, 3.1 * down)
    places = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, variable in zip(places, variables, strict=False):
        for method in methods:
            if (z := curves.get(f"{method} {variable} z")) is not None:
                axes.plot(normal, z, color=colour_of(method), lw=1.8)
        _normal_axes(axes, variable, _coverage(rows, variable), (normal[0], normal[-1]))
    for axes in places[len(variables) :]:
        axes.set_axis_off()
    places[-1].legend(handles=_residual_legend(methods), loc="center", frameon=False, fontsize=9)
    figure.supxlabel("quantile of the standard normal", fontsize=10)
    figure.supylabel("quantile of (y − mean) / sd", fontsize=10)
    return figure


def _normal_axes(axes: Axes, variable: str, coverage: float | None, ends: tuple[float, float]) -> None:
    """What a calibrated method would give: the diagonal, which leaves the band where the dotted lines are."""
    axes.axhspan(-BOUND, BOUND, color=GREY, alpha=0.15, lw=0)
    for bound in (-BOUND, BOUND):
        axes.axvline(bound, color=GREY, lw=0.8, ls=":")
    axes.plot(ends, ends, color="black", lw=0.9, ls="--")
    axes.set_yscale("symlog", linthresh=LINEAR_TO, linscale=2.0)
    reach = max(LINEAR_TO, *(abs(limit) for limit in axes.get_ylim()))
    axes.set_ylim(-reach, reach)
    ticks = [-LINEAR_TO, -2.0, 0.0, 2.0, LINEAR_TO]
    beyond = [10.0**k for k in range(1, 7) if 10.0**k <= reach]
    ticks = [*(-tick for tick in reversed(beyond)), *ticks, *beyond]
    axes.set_yticks(ticks, [f"{tick:,.0f}".replace("-", "−") for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title(variable, fontsize=10)
    if coverage is not None:
        text = f"90% interval of\n{JUDGED}\ncovers {100 * coverage:.1f}%"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(0.04, 0.96, text, transform=axes.transAxes, va="top", fontsize=8, bbox=box)


def _coverage(rows: list[Row], variable: str) -> float | None:
    for row in rows:
        if (row["method"], row["setting"], row["metric"]) == (JUDGED, variable, "coverage_90"):
            return None if row["mean"] is None else float(row["mean"])
    return None


def _residual_legend(methods: list[str]) -> list[Line2D | Patch]:
    return [
        *(key_line(color=colour_of(method), lw=1.8, label=method) for method in methods),
        key_line(color="black", lw=0.9, ls="--", label="calibrated"),
        key_patch(color=GREY, alpha=0.15, lw=0, label="inside the 90% interval"),
        key_line(color=GREY, lw=0.8, ls=":", label="where a calibrated line leaves it"),
    ]


def patients(rows: list[Row], curves: Curves) -> Figure | None:
    """Three patients per variable: their first day, what it lets us expect, and their second day."""
    variables = list(dict.fromkeys(key.split(" example ")[0] for key in curves if key.endswith(" example 0 hours")))
    if not variables:
        return None
    figure = new_figure(9.0, 1.75 * len(variables) + 0.7)
    grid = figure.subplots(len(variables), len(EXAMPLES), sharex=True, sharey="row", squeeze=False)
    for line, variable in zip(grid, variables, strict=True):
        for axes, j in zip(line, EXAMPLES, strict=True):
            _patient(axes, curves, f"{variable} example {j}")
        unit = UNITS.get(variable)
        line[0].set_ylabel(f"{variable} ({unit})" if unit else variable)
    for axes in grid[-1]:
        axes.set(xlabel="hours since admission", xlim=(0, 2 * DAY), xticks=np.arange(0, 49, 12))
    figure.align_ylabels()
    figure.legend(handles=_patient_legend(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def _patient(axes: Axes, curves: Curves, name: str) -> None:
    axes.axvline(DAY, color=GREY, lw=0.9)
    if f"{name} hours" not in curves:
        return
    hours, mean, lower, upper = (curves[f"{name} {key}"] for key in ("hours", "mean", "lower", "upper"))
    x, y = curves[f"{name} x"], curves[f"{name} y"]
    colour, first = colour_of(JUDGED), x < DAY
    axes.fill_between(hours, lower, upper, color=colour, alpha=0.2, lw=0)
    axes.plot(hours, mean, color=colour, lw=1.6)
    axes.plot(x[first], y[first], "o", color="black", ms=4, mec="white", mew=0.5)
    axes.plot(x[~first], y[~first], "o", mfc="white", mec="black", ms=4, mew=0.9)


def _patient_legend() -> list[Line2D | Patch]:
    colour = colour_of(JUDGED)
    return [
        key_line(ls="", marker="o", color="black", ms=4, label="first day: context"),
        key_line(ls="", marker="o", mfc="white", mec="black", ms=4, label="second day: to predict"),
        key_line(color=colour, lw=1.6, label=f"{JUDGED}: mean"),
        key_patch(color=colour, alpha=0.2, lw=0, label="90% interval"),
        key_line(color=GREY, lw=0.9, label="24 hours"),
    ]
