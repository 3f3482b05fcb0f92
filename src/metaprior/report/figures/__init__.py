"""The figures, drawn from an experiment's rows and curves alone, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from metaprior.report.figures import few, icu, mnist, sinusoid, step, theory
from metaprior.report.figures.common import Curves, write_figure
from metaprior.report.figures.performance import performance
from metaprior.report.methods import Row

FIGURES: dict[str, dict[str, Callable[[list[Row], Curves], Figure | None]]] = {
    "step": {"performance": performance, "reconstructions": step.reconstructions},
    "sinusoid": {"samples": sinusoid.samples},
    "mnist": {"performance": performance, "reconstructions": mnist.reconstructions},
    "icu": {"residuals": icu.residuals, "patients": icu.patients},
    "compare": {"performance": performance},
    "few": {"by-number": few.by_number},
    "theory": {
        "overfitting": theory.overfitting,
        "counter-example": theory.counter_example,
        "parameterisations": theory.parameterisations,
        "components": theory.components,
    },
}
"""Each experiment's figures by file name: drawn, or None where rows or curves lack what it takes."""


def draw_figures(experiment: str, rows: list[Row], curves: Curves, folder: Path) -> list[Path]:
    """Every figure of an experiment that its rows and curves suffice for, as PNG and SVG.

    One that they do not suffice for is removed if an earlier run left it there.
    """
    written = []
    for name, draw in FIGURES.get(experiment, {}).items():
        figure = draw(rows, curves)
        for path in (folder / f"{name}.png", folder / f"{name}.svg"):
            if figure is None:
                path.unlink(missing_ok=True)
            else:
                write_figure(figure, path, 150)
                written.append(path)
    return written
