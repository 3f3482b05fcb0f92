"""Which one to use: methods by name, scored on tasks that they have not seen."""

from metaprior.selection.auto import Auto
from metaprior.selection.compare import Comparison, compare
from metaprior.selection.methods import METHODS, SIMPLE, make_method, spare
from metaprior.selection.splits import ContextsBySetting, contexts_until, default_sizes, random_sizes

__all__ = [
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
