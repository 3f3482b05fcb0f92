"""Which one to use: methods by name, scored on tasks that they have not seen."""

from metaprior.selection.auto import Auto
from metaprior.selection.compare import Comparison, compare
from metaprior.selection.methods import COMPARED, METHODS, SIMPLE, make_method
from metaprior.selection.portrait import described_scores, held_out_scores, portrait

__all__ = [
    "COMPARED",
    "METHODS",
    "SIMPLE",
    "Auto",
    "Comparison",
    "compare",
    "described_scores",
    "held_out_scores",
    "make_method",
    "portrait",
]
