"""What all figures share: an empty figure, and the names that curves carry in their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Curves = dict[str, np.ndarray[Any, Any]]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, outside pyplot's global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def named(curves: Curves, last: str) -> tuple[list[str], list[str]]:
    """The methods and the settings that have a curve `METHOD SETTING LAST`, each in order of appearance."""
    pairs = [key.rsplit(" ", 2)[:2] for key in curves if key.count(" ") >= 2 and key.endswith(f" {last}")]
    return list(dict.fromkeys(pair[0] for pair in pairs)), list(dict.fromkeys(pair[1] for pair in pairs))
