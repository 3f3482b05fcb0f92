"""Draw the two sketches of `docs/theory.md`: the framework, and MAML beside mean learning.

make docs
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

FIGURES = Path(__file__).parent / "figures"
BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#8a9099", "#1c2127"


def main() -> None:
    for name, figure in (("sketch-framework", framework()), ("sketch-maml", maml())):
        figure.savefig(FIGURES / f"{name}.png", dpi=130, facecolor="white")


def framework() -> Figure:
    """Past tasks teach a prior; a new task's few points turn it into a posterior."""
    figure = Figure(figsize=(11, 3.6))
    canvas = figure.add_axes((0, 0, 1, 1))
    canvas.set(xlim=(0, 11), ylim=(0, 3.6))
    canvas.axis("off")
    x = np.linspace(-2, 2, 81)
    rng = np.random.default_rng(1)
    mean = 0.8 * np.sin(1.6 * x)
    for k in range(3):
        axes = _panel(figure, 0.25, 2.45 - 1.05 * k, 1.9, 0.85)
        curve = mean + 0.5 * rng.normal() + 0.35 * rng.normal() * np.cos(2 * x)
        at = np.sort(rng.choice(81, 7 - k, replace=False))
        axes.plot(x[at], curve[at], "o", color=GREY, ms=4)
    canvas.text(1.2, 3.42, "meta-tasks", ha="center", va="center", weight="bold", color=INK)
    prior = _panel(figure, 3.6, 0.75, 2.7, 1.9)
    prior.fill_between(x, mean - 1, mean + 1, color=BLUE, alpha=0.18, lw=0)
    prior.plot(x, mean, color=BLUE, lw=2.2)
    canvas.text(4.95, 2.98, "learned prior", ha="center", weight="bold", color=INK)
    canvas.text(4.95, 2.73, "mean $m_\\phi$ and kernel $k_\\theta$: networks", ha="center", fontsize=8.5, color=INK)
    target = _panel(figure, 3.6, 0.05, 2.7, 0.5)
    known = [18, 30, 52]
    truth = mean + 0.75 - 0.3 * x
    target.plot(x[known], truth[known], "o", color=INK, ms=5)
    target.set(xlim=prior.get_xlim(), ylim=(-2, 3))
    posterior = _panel(figure, 7.9, 0.75, 2.8, 1.9)
    after, sd = _posterior(x, mean, x[known], truth[known])
    posterior.fill_between(x, after - 2 * sd, after + 2 * sd, color=ORANGE, alpha=0.2, lw=0)
    posterior.plot(x, after, color=ORANGE, lw=2.2)
    posterior.plot(x, truth, color=GREY, ls="--", lw=1.2)
    posterior.plot(x[known], truth[known], "o", color=INK, ms=5)
    canvas.text(9.3, 2.98, "posterior of the new task", ha="center", weight="bold", color=INK)
    canvas.text(9.3, 2.73, "exact, closed form", ha="center", fontsize=8.5, color=INK)
    _arrow(canvas, (2.25, 1.7), (3.5, 1.7))
    canvas.text(2.88, 1.83, "maximise\nsummed evidence", ha="center", va="bottom", fontsize=8.5, color=INK)
    _arrow(canvas, (6.4, 1.7), (7.8, 1.7))
    canvas.text(7.1, 1.8, "condition", ha="center", va="bottom", fontsize=9, color=INK)
    _arrow(canvas, (6.4, 0.3), (7.8, 0.95))
    canvas.text(6.45, 0.05, "a new task's few points", ha="left", va="bottom", fontsize=8.5, color=INK)
    return figure


def maml() -> Figure:
    """Two parameter spaces with their own geometry, and the function space that both map to."""
    figure = Figure(figsize=(11, 3.5))
    spaces = [figure.add_axes((0.02 + 0.335 * k, 0.06, 0.29, 0.76)) for k in range(3)]
    titles = (
        "MAML in parameters $\\Theta_1$",
        "MAML in parameters $\\Theta_2$",
        "mean learning in functions $\\mathcal{F}$",
    )
    starts = ((0.32, 0.35), (0.55, 0.62), (0.5, 0.45))
    ends = (
        ((0.25, 0.8), (0.62, 0.72), (0.78, 0.3)),
        ((0.2, 0.3), (0.52, 0.2), (0.86, 0.5)),
        ((0.3, 0.82), (0.72, 0.78), (0.8, 0.22)),
    )
    for k, (axes, title, start, targets) in enumerate(zip(spaces, titles, starts, ends, strict=True)):
        colour, letter = (BLUE, "f") if k == 2 else (ORANGE, "\\theta")
        above = "" if k == 2 else f"^{{{k + 1}}}"
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.set_title(title, fontsize=11, color=INK)
        for i, end in enumerate(targets, 1):
            _arrow(axes, start, end, colour)
            axes.plot(*end, "o", color=colour, ms=7)
            axes.text(end[0] + 0.03, end[1] + 0.03, f"$\\hat{{{letter}}}_{i}{above}$", fontsize=12, color=INK)
        axes.plot(*start, "o", color=INK, ms=9)
        axes.text(start[0] - 0.04, start[1] + 0.03, f"$\\hat{{{letter}}}_0{above}$", ha="right", fontsize=12, color=INK)
    figure.text(0.33, 0.93, "the same network written in two ways: other starts, other steps", ha="center", color=INK)
    figure.text(0.835, 0.93, "one function, however it is written", ha="center", color=INK)
    return figure


def _posterior(x: np.ndarray, mean: np.ndarray, at: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2)
        return values

    weights = np.linalg.solve(kernel(at, at) + 1e-3 * np.eye(len(at)), kernel(at, x))
    after = mean + weights.T @ (y - np.interp(at, x, mean))
    return after, np.sqrt(np.clip(1 - np.einsum("ij,ij->j", kernel(at, x), weights), 0, None)) / 2


def _panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    axes = figure.add_axes((left / 11, bottom / 3.6, width / 11, height / 3.6))
    axes.set(xticks=[], yticks=[])
    axes.margins(0.08)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    return axes


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=colour, lw=1.4))


if __name__ == "__main__":
    main()
