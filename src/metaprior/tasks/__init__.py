"""What comes in: ragged tasks, tables, scaling, splits, batches."""

from metaprior.tasks.batches import Batch, Inputs, Padded, SharedInputs, batches, on_one_grid
from metaprior.tasks.scaling import Scaler
from metaprior.tasks.tasks import Columns, ContextTarget, Task, Tasks

__all__ = [
    "Batch",
    "Columns",
    "ContextTarget",
    "Inputs",
    "Padded",
    "Scaler",
    "SharedInputs",
    "Task",
    "Tasks",
    "batches",
    "on_one_grid",
]
