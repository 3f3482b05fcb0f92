"""What tables and figures know about methods by their names: which are references, and each one's colour."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
"""One line of a result file's `rows`."""

REFERENCES = ("bayes limit", "linear limit", "last value", "context mean")
"""Rows to compare with that are not up for being the best."""

GREY = "#6f747c"

# Okabe and Ito's palette for the paper's methods and Tol's muted one for the rest: both safe for the colour-blind.
COLOURS = {
    "vanilla": "#56b4e9",
    "learned kernel": "#009e73",
    "learned mean": "#e69f00",
    "learned both": "#0072b2",
    "mean fit on target": "#d55e00",
    "neural network": "#cc79a7",
    "zero mean": "#56b4e9",
    "true mean": "#000000",
    "maml": "#882255",
    "fpca": "#332288",
    "gp per task": "#999933",
    "shared gp": "#44aa99",
    "eigenfunctions": "#117733",
    "mixture": "#aa4499",
    "warped": "#cc6677",
    "auto": "#661100",
    "map": "#a0b000",
    "hyper-posterior": "#bb5566",
    "bayes limit": "#000000",
    "linear limit": "#6f747c",
    "last value": "#6f747c",
    "context mean": "#a9adb3",
}
"""One colour per method, the same in every figure."""


def colour_of(method: str) -> str:
    """The method's colour; a refitted variant has its method's, a method without one is grey."""
    return COLOURS.get(method.removesuffix(" refitted"), GREY)
