"""The figure of the MNIST experiment that shows images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metaprior.report import Curves, Row, named, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNOBSERVED = "#3f6fb5"
MOST_DIGITS = 3
GAP, WIDE_GAP = 1, 4
"""Pixels between images, and between digits."""

IMAGE = 0.85
"""Inches across one image."""

LEFT, TOP = 1.45, 0.3
"""Inches for the names of methods and for ñ."""

Image = np.ndarray[Any, Any]


def reconstructions(rows: list[Row], curves: Curves) -> Figure | None:
    """Digits as each method completes them from ñ pixels: a line per method, below the context, above the truth."""
    methods, sizes = named(curves, "mean")
    sizes = [n for n in sizes if f"{n} mask" in curves]
    if "truth" not in curves or not methods or not sizes:
        return None
    truth = curves["truth"][:MOST_DIGITS]
    columns = [(k, n) for k in range(len(truth)) for n in sizes]
    lines = {"context": [_context(truth[k], curves[f"{n} mask"][k]) for k, n in columns]}
    for method in methods:
        lines[method] = [_completed(curves, method, n, k) for k, n in columns]
    lines["truth"] = [_grey(truth[k]) for k, _ in columns]
    return _mosaic(lines, [f"ñ = {n}" for _, n in columns], len(sizes))


def _mosaic(lines: dict[str, list[Image]], titles: list[str], together: int) -> Figure:
    """Images of one size on white, in groups of so many columns."""
    height, width = next(iter(lines.values()))[0].shape[:2]
    tops = [k * (height + GAP) for k in range(len(lines))]
    lefts = [k * (width + GAP) + (k // together) * (WIDE_GAP - GAP) for k in range(len(titles))]
    canvas = np.ones((tops[-1] + height, lefts[-1] + width, 3))
    for top, images in zip(tops, lines.values(), strict=True):
        for left, image in zip(lefts, images, strict=True):
            canvas[top : top + height, left : left + width] = image
    across, down = canvas.shape[1] * IMAGE / width, canvas.shape[0] * IMAGE / width
    figure = new_figure(LEFT + across + 0.1, TOP + down + 0.1)
    figure.set_layout_engine("none")  # pixels stay square and names fit: the places are given here
    total_across, total_down = figure.get_size_inches()
    axes = figure.add_axes((LEFT / total_across, 0.1 / total_down, across / total_across, down / total_down))
    axes.imshow(canvas, interpolation="nearest")
    axes.set_xticks([left + (width - 1) / 2 for left in lefts], titles, fontsize=9)
    axes.set_yticks([top + (height - 1) / 2 for top in tops], list(lines), fontsize=10)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _context(truth: Image, mask: Image) -> Image:
    from matplotlib.colors import to_rgb

    return np.where(mask.astype(bool)[..., None], _grey(truth), np.array(to_rgb(UNOBSERVED)))


def _completed(curves: Curves, method: str, n: str, k: int) -> Image:
    """White where the method has no image for this ñ."""
    mean = curves.get(f"{method} {n} mean")
    return _grey(np.ones_like(curves["truth"][k]) if mean is None else mean[k])


def _grey(image: Image) -> Image:
    return np.repeat(np.clip(image, 0, 1)[..., None], 3, axis=-1)
