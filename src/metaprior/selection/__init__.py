"""Which one to use: methods scored on tasks that they have not seen."""

from metaprior.selection.auto import NEAREST, Auto, check_several
from metaprior.selection.compare import Comparison, compare
from metaprior.selection.portrait import described_scores, held_out_scores, portrait

__all__ = [
    "NEAREST", "Auto", "Comparison", "check_several", "compare", "described_scores", "held_out_scores", "portrait",
]  # fmt: skip
