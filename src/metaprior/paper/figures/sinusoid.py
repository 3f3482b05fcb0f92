"""The figure of the sinusoid experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metaprior.report import GREY, Curves, Row, colour_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def samples(rows: list[Row], curves: Curves) -> Figure | None:
    """Samples of the process around its mean, and the mean that was learned from such samples."""
    if not {"x", "samples"} <= curves.keys():
        return None
    figure = new_figure(7.0, 3.6)
    axes = figure.add_subplot()
    x = curves["x"]
    for k, sample in enumerate(curves["samples"]):
        axes.plot(x, sample, color=GREY, lw=0.9, alpha=0.5, label="samples" if k == 0 else None)
    axes.plot(x, np.sin(x), color=colour_of("true mean"), lw=1.8, label="true mean sin(x)")
    if "learned mean" in curves:
        axes.plot(x, curves["learned mean"], color=colour_of("learned mean"), lw=1.8, ls="--", label="learned mean")
    axes.set(xlabel="x", ylabel="f(x)", title="Samples from the sinusoid process")
    axes.legend(loc="upper right", ncols=3, frameon=False, fontsize=8)
    axes.set_ylim(top=axes.get_ylim()[1] + 0.9)
    return figure
