"""How each method's error and likelihood change with the number of context points, beside the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaprior.report.figures.common import Curves, key_line, new_figure
from metaprior.report.methods import Row, colour_of, references

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PANELS = {
    "mse": "Mean squared error (lower is better)",
    "joint_log_likelihood": "Joint log likelihood per point (higher is better)",
}
MARKERS = "osD^vhp<>dPX"


def performance(rows: list[Row], curves: Curves) -> Figure | None:
    """A panel for each metric, a line for each method with error bars; the paper's figures hollow and dashed."""
    shown = [row for row in rows if row["metric"] in PANELS and row["setting"].isdigit()]
    metrics = [metric for metric in PANELS if any(row["metric"] == metric for row in shown)]
    if not metrics:
        return None
    markers = dict(zip(dict.fromkeys(row["method"] for row in shown), MARKERS * len(shown), strict=False))
    figure = new_figure(4.4 * len(metrics) + 1.6, 3.8)
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        for method, marker in markers.items():
            chosen = [row for row in shown if (row["method"], row["metric"]) == (method, metric)]
            _lines(axes, chosen, method, marker)
        _dress(axes, metric, sorted({int(row["setting"]) for row in shown}))
    published = any(row["paper_mean"] is not None for row in shown)
    figure.legend(handles=_legend(markers, published), loc="outside right center", frameon=False, fontsize=9)
    return figure


def _lines(axes: Axes, rows: list[Row], method: str, marker: str) -> None:
    """Ours and the paper's, each where it has figures."""
    colour, line = colour_of(method), ":" if method in references() else "-"
    paper = [row for row in rows if row["paper_mean"] is not None]
    x, y = [int(row["setting"]) for row in paper], [row["paper_mean"] for row in paper]
    axes.plot(x, y, color=colour, ls="--", lw=1, marker=marker, ms=8, mfc="none", mew=1, alpha=0.8)
    ours = [row for row in rows if row["mean"] is not None]
    x, y = [int(row["setting"]) for row in ours], [row["mean"] for row in ours]
    error = [row["stderr"] or 0.0 for row in ours]
    axes.errorbar(x, y, error, color=colour, ls=line, lw=1.8, marker=marker, ms=4.5, capsize=2)


def _dress(axes: Axes, metric: str, sizes: list[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("context points ñ")
    axes.set_title(PANELS[metric], fontsize=10)
    if metric == "mse":  # errors compare by their ratios
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = [digit * 10.0**power for power in range(-5, 6) for digit in (1, 2, 5)]
        axes.set_yticks([tick for tick in ticks if low <= tick <= high])
        axes.set_yticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(markers: dict[str, str], published: bool) -> list[Line2D]:
    handles = [
        key_line(color=colour_of(name), ls=":" if name in references() else "-", marker=marker, ms=4.5, label=name)
        for name, marker in markers.items()
    ]
    paper = key_line(color="black", ls="--", lw=1, marker="o", ms=8, mfc="none", label="the paper's figure")
    return [*handles, paper] if published else handles
