"""Tables out: predictions and suggestions as the kind of table that came in, of a whole table or batch after batch."""

from metaprior.frames.asked import check_known_values
from metaprior.frames.streams import Stream, predict_batches
from metaprior.frames.suggested import Measuring, Suggested, new_task, suggest_table, suggest_tasks, suggested_header
from metaprior.frames.tables import IMPLAUSIBLE, Wanted, in_slices, notes_on, predict_table, strange_of
from metaprior.frames.written import header_of

__all__ = [
    "IMPLAUSIBLE", "Measuring", "Stream", "Suggested", "Wanted", "check_known_values", "header_of", "in_slices",
    "new_task", "notes_on", "predict_batches", "predict_table", "strange_of", "suggest_table",
    "suggest_tasks", "suggested_header",
]  # fmt: skip
