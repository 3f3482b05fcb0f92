"""What comes in: ragged tasks, tables, scaling, splits, batches."""

from metaprior.tasks._checks import Missing
from metaprior.tasks.batches import Batch, Inputs, Padded, SharedInputs, batches, on_one_grid
from metaprior.tasks.covariates import Covariate
from metaprior.tasks.scaling import Scaler
from metaprior.tasks.tables import as_tasks
from metaprior.tasks.tasks import Columns, ContextTarget, Task, Tasks, check_task_x
from metaprior.tasks.trained_on import TrainedOn

__all__ = [
    "Batch",
    "Columns",
    "ContextTarget",
    "Covariate",
    "Inputs",
    "Missing",
    "Padded",
    "Scaler",
    "SharedInputs",
    "Task",
    "Tasks",
    "TrainedOn",
    "as_tasks",
    "batches",
    "check_task_x",
    "on_one_grid",
]
