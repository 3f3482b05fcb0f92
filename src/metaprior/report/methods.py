"""What tables and figures know about methods by their names."""

from __future__ import annotations

from typing import Any

from metaprior.methods import METHODS, Entry, named_methods

GREY = Entry().colour
"""Of whatever has no colour of its own."""

Row = dict[str, Any]
"""One line of a result file's `rows`."""


def references() -> tuple[str, ...]:
    """Methods to compare with that are not up for being the best."""
    return named_methods(lambda one: one.reference)


def colour_of(method: str) -> str:
    """The method's colour; a refitted variant has its method's, a method without one is grey."""
    return METHODS.get(method.removesuffix(" refitted"), Entry()).colour
