"""Which one to use: methods by name, scored on tasks that they have not seen."""

from metaprior.selection.auto import Auto
from metaprior.selection.compare import Comparison, compare
from metaprior.selection.methods import COMPARED, METHODS, SIMPLE, make_method
from metaprior.selection.splits import ContextsBySetting, contexts_until, default_sizes, random_sizes, spare

__all__ = [
    "COMPARED",
    "METHODS",
    "SIMPLE",
    "Auto",
    "Comparison",
    "ContextsBySetting",
    "compare",
    "contexts_until",
    "default_sizes",
    "make_method",
    "random_sizes",
    "spare",
]
