"""Tables out: predictions as the kind of table that came in, of a whole table or of one batch after another."""

from metaprior.frames.streams import Stream, predict_batches
from metaprior.frames.tables import IMPLAUSIBLE, Wanted, in_slices, predict_table
from metaprior.frames.written import header_of

__all__ = ["IMPLAUSIBLE", "Stream", "Wanted", "header_of", "in_slices", "predict_batches", "predict_table"]
