"""What all figures share: an empty figure, its file, and the names that curves carry in their keys."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaprior.output import write_whole

if TYPE_CHECKING:  # half a second, for those who draw
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

Curves = dict[str, np.ndarray[Any, Any]]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, outside pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def key_line(**style: Any) -> Line2D:
    """A line of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


def key_patch(**style: Any) -> Patch:
    """A surface of a legend."""
    from matplotlib.patches import Patch

    return Patch(**style)


def write_figure(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure in the format that the file's name ends with.

    Signs that the font lacks are boxes, as anyone sees: no need to warn of each.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        write_whole(path, partial(figure.savefig, format=path.suffix[1:], dpi=dpi))


def drawn_before(path: Path) -> bool:
    """Whether a file is a figure as these are, which another may take the place of."""
    with path.open("rb") as file:
        return b"Matplotlib" in file.read(300)


def plain(name: str) -> str:
    """A user's name for a figure: dollars in it are no mathematics."""
    return name.replace("$", r"\$")


def named(curves: Curves, last: str) -> tuple[list[str], list[str]]:
    """The methods and the settings that have a curve `METHOD SETTING LAST`, each in order of appearance."""
    pairs = [key.rsplit(" ", 2)[:2] for key in curves if key.count(" ") >= 2 and key.endswith(f" {last}")]
    return list(dict.fromkeys(pair[0] for pair in pairs)), list(dict.fromkeys(pair[1] for pair in pairs))
