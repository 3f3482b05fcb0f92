"""The figure of few meta-tasks: error, density and coverage against their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaprior.report import GREY, Curves, Row, colour_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "mse": "Mean squared error (lower is better)",
    "log_likelihood": "Log likelihood per point (higher is better)",
    "coverage_90": "Coverage of the 90% interval",
}
LOWEST = -2.0
"""Log likelihoods below this are not drawn: a prior learned by heart goes down without end."""


def by_number(rows: list[Row], curves: Curves) -> Figure | None:
    """A panel for each metric, a line for each method over the number of meta-tasks."""
    shown = [row for row in rows if row["metric"] in PANELS and row["setting"].startswith("m = ")]
    if not shown:
        return None
    figure = new_figure(13.0, 3.9)
    counts = sorted({_count(row) for row in shown})
    for axes, (metric, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for method in dict.fromkeys(row["method"] for row in shown):
            own = [
                row for row in shown if (row["method"], row["metric"]) == (method, metric) and row["mean"] is not None
            ]
            x, y, error = (
                [_count(row) for row in own],
                [row["mean"] for row in own],
                [row["stderr"] or 0.0 for row in own],
            )
            axes.errorbar(x, y, error, color=colour_of(method), marker="o", ms=4, lw=1.7, capsize=2, label=method)
        axes.set(title=title, xscale="log", xlabel="meta-tasks m")
        axes.set_xticks(counts, [str(count) for count in counts], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.grid(axis="y", alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if metric == "mse":
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            ticks = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
            axes.set_yticks([tick for tick in ticks if low <= tick <= high], minor=False)
            axes.set_yticks([], minor=True)
            axes.yaxis.set_major_formatter("{x:g}")
        if metric == "log_likelihood":
            values = [row["mean"] for row in shown if row["metric"] == metric and row["mean"] is not None]
            axes.set_ylim(max(min(values) - 0.1, LOWEST), max(values) + 0.1)
        if metric == "coverage_90":
            axes.axhline(0.9, color=GREY, ls="--", lw=1)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _count(row: Row) -> int:
    return int(row["setting"].rpartition(" = ")[2])
