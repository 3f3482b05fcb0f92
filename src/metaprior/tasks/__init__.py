"""What comes in: ragged tasks, tables, dates, scaling, rounding, batches."""

from metaprior.tasks._checks import Missing, NothingLeftError
from metaprior.tasks.arrow import arrow_of, as_frame, is_table
from metaprior.tasks.batches import (
    CHUNK,
    LEAST_SHARED,
    MAX_ENTRIES,
    Batch,
    Inputs,
    Padded,
    SharedInputs,
    batches,
    buckets,
    distinct_rows,
    groups_of_inputs,
    in_order,
    on_one_grid,
    pad,
    padded,
    same_inputs,
)
from metaprior.tasks.columns import Columns
from metaprior.tasks.covariates import Covariate
from metaprior.tasks.dates import Form, form_of
from metaprior.tasks.oddities import duplicate_rows, oddities, oddities_of_past, support_hints
from metaprior.tasks.parts import Parts
from metaprior.tasks.patterns import Pattern, looks_wide
from metaprior.tasks.possible import Possible, Support, check_possible, read_support
from metaprior.tasks.rounding import resolution, rounding_variance
from metaprior.tasks.scaling import Scaler
from metaprior.tasks.tables import (
    check_known,
    dropped_zones,
    holds_dates,
    holds_times,
    in_days,
    in_numbers,
    task_columns,
    task_ids,
    task_owners,
    with_dates,
)
from metaprior.tasks.tasks import ContextTarget, Task, Tasks, as_tasks, check_targets, check_task_x, offsets_of
from metaprior.tasks.trained_on import ASKED, KNOWN, TrainedOn, as_written
from metaprior.tasks.wide import ROW, long_table, wide_columns

__all__ = [
    "ASKED", "CHUNK", "KNOWN", "LEAST_SHARED", "MAX_ENTRIES", "ROW", "Batch", "Columns", "ContextTarget", "Covariate",
    "Form", "Inputs", "Missing", "NothingLeftError", "Padded", "Parts", "Pattern", "Possible", "Scaler",
    "SharedInputs", "Support", "Task", "Tasks", "TrainedOn", "arrow_of", "as_frame", "as_tasks", "as_written",
    "batches", "buckets", "check_known", "check_possible", "check_targets", "check_task_x", "distinct_rows",
    "dropped_zones", "duplicate_rows", "form_of", "groups_of_inputs", "holds_dates", "holds_times", "in_days",
    "in_numbers", "in_order", "is_table", "long_table", "looks_wide", "oddities", "oddities_of_past", "offsets_of",
    "on_one_grid", "pad", "padded", "read_support", "resolution", "rounding_variance", "same_inputs", "support_hints",
    "task_columns", "task_ids", "task_owners", "wide_columns", "with_dates",
]  # fmt: skip
