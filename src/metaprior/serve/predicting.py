"""A request to predict: rows, where, and what is wanted; the same table as `metaprior predict` makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metaprior.errors import DataError, OptionError
from metaprior.frames import Wanted, check_known_values, predict_table
from metaprior.options import check_removed
from metaprior.points import points_at
from metaprior.serve.models import Served
from metaprior.serve.refusals import Refusal
from metaprior.serve.settings import Settings
from metaprior.serve.tables import JSON, parsed, table_of_body, table_of_rows
from metaprior.serve.work import Stop
from metaprior.tasks import Tasks

OPTIONS = ("at", "level", "latent", "quantiles", "samples", "seed", "missing")
"""What a request may say beside its rows; the model's name aside."""

WIDE = 20
"""Values for each point that may be asked for, times the number of points that may."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    at: Any
    wanted: Wanted


def read_request(
    body: bytes, kind: str, query: Mapping[str, str], served: Served, settings: Settings
) -> tuple[pa.Table, Asked]:
    """The rows and what is asked: options are in the JSON, or in the address where the body is a table."""
    optional = [one.name for one in served.columns.task_x]
    if kind != JSON:
        table = table_of_body(body, kind, served.columns, optional, settings.max_rows)
        return table, _asked(dict(query), served)
    given = parsed(body)
    if not isinstance(given, Mapping):
        raise DataError('the body is a JSON object: {"rows": […], "at": "1:12:1"}.')
    options = {name: value for name, value in given.items() if name not in ("rows", "columns", "model")}
    if ("rows" in given) == ("columns" in given):
        raise DataError('give the known rows as "rows" (objects) or as "columns" (lists).')
    rows = given["rows"] if "rows" in given else given["columns"]
    return table_of_rows(rows, served.columns, optional, settings.max_rows), _asked(dict(query) | options, served)


def _asked(options: dict[str, Any], served: Served) -> Asked:
    options.pop("model", None)
    check_removed(options)
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise OptionError(f"no option {unknown[0]!r}: there are {', '.join(OPTIONS)}.")
    wanted = Wanted(
        level=number(options.get("level", 0.9), "level"),
        latent=truth(options.get("latent", False), "latent"),
        quantiles=_numbers(options.get("quantiles", ()), "quantiles"),
        samples=_whole(options.get("samples", 0), "samples"),
        seed=_whole(options.get("seed", 0), "seed"),
        missing=_missing(options.get("missing", "error")),
    )
    wanted.check()
    return Asked(_where(options.get("at", "missing"), served), wanted)


def _where(at: Any, served: Served) -> Any:
    if at == "missing":
        return at
    columns = served.columns
    if isinstance(at, str):
        return points_at(at, columns.x, served.gp.trained_on_.dated)
    if isinstance(at, list) and at and all(isinstance(one, Mapping) for one in at):
        optional = [*columns.y, *(one.name for one in columns.task_x)]
        return table_of_rows(at, columns, optional, len(at))
    try:
        points = np.zeros(()) if _has_truth(at) else np.asarray(at, dtype=float)
    except (TypeError, ValueError, OverflowError):
        points = np.zeros(())
    points = points[:, None] if points.ndim == 1 and len(columns.x) == 1 else points
    if points.ndim != 2 or points.shape[1] != len(columns.x) or not np.isfinite(points).all():
        raise OptionError(
            'at: give points as the command line does ("1:12:1"), as numbers ([1, 2, 3], or rows of all inputs), as '
            'objects with task and inputs, or "missing" for the rows without target.'
        )
    return points


def _has_truth(at: Any) -> bool:
    """Whether there is true or false among some points: either would count as a number."""
    return any(map(_has_truth, at)) if isinstance(at, list) else isinstance(at, bool)


def points_of(table: pa.Table, asked: Asked, served: Served, settings: Settings) -> int:
    """How much a request is to compute, about in rows and points, if it is not too much."""
    names, wanted = list(served.columns.task), asked.wanted
    y = table[served.columns.y[0]]
    known = pc.fill_null(pc.is_finite(y) if pa.types.is_floating(y.type) else pc.is_valid(y), False)
    counted = pa.table([known, *(table[name] for name in names)], ["known", *(f"task {k}" for k in range(len(names)))])
    sizes = counted.group_by(counted.column_names[1:]).aggregate([("known", "sum")])
    largest = int(pc.max(sizes["known_sum"]).as_py() or 0)
    if largest > settings.max_known:
        said = f"{largest:,} known rows of one task: {settings.max_known:,} are the most (--max-known)."
        raise Refusal(413, "too large", said, "body")
    points = table.num_rows if isinstance(asked.at, str) else len(asked.at)
    of_one = points  # at most
    points *= sizes.num_rows if isinstance(asked.at, np.ndarray) else 1
    columns = len(wanted.quantiles) + wanted.samples
    values = points * (4 + columns)
    if points > settings.max_points or values > WIDE * settings.max_points:
        raise Refusal(
            413, "too large", f"{points:,} points, and {values:,} values of them: ask for less (--max-points).", "at"
        )
    together = largest**2 + (of_one**2 if wanted.samples else 0)  # entries of one task's covariance matrices
    return int(table.num_rows) + points * (1 + columns // 10) + together // 100


def predicted(table: pa.Table, asked: Asked, served: Served, stop: Stop) -> tuple[pa.Table, list[str]]:
    """The predictions and what a reader of them should know."""

    def between(context: Tasks, points: Tasks) -> None:
        stop.check()

    method = served.gp
    stop.check()
    found, notes, _ = predict_table(method, served.columns, table, asked.at, asked.wanted, between)
    return found, [*served.notes, *notes]


def tasks_of(table: pa.Table, served: Served) -> tuple[list[dict[str, Any]], list[str]]:
    """The tasks of a table, as a page shows them, and what to know of them: rows without a target are left out."""
    tasks = Tasks.from_table(table, **served.columns._asdict(), missing="drop")
    check_known_values(nw.from_native(table), served.columns, served.gp.trained_on_.possible)
    served.gp.trained_on_.check_inputs(tasks)
    found = []
    for task, size in zip(tasks, tasks.sizes.tolist(), strict=True):
        name = " ".join(map(str, task.id)) if isinstance(task.id, tuple) else str(task.id)
        found.append({"id": name, "n": size, "x": task.x.tolist(), "y": task.y.tolist()})
    if tasks.covariates is not None:
        for one, row in zip(found, tasks.covariates.tolist(), strict=True):
            one["about"] = row
    return found, [*served.notes, *(note for note in tasks.notes if note.startswith("dropped"))]


def number(value: Any, name: str) -> float:
    """What an option says, as a number."""
    try:
        if isinstance(value, bool):
            raise ValueError(value)
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"{name} {value!r}: give a number.") from None


def _numbers(value: Any, name: str) -> tuple[float, ...]:
    parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) > 1000:
        raise OptionError(f"{name}: give a list of numbers, such as 0.1,0.5,0.9.")
    return tuple(number(part, name) for part in parts)


def _whole(value: Any, name: str) -> int:
    found = number(value, name)
    if not math.isfinite(found) or found != int(found) or abs(found) > 2**53:
        raise OptionError(f"{name} {value!r}: give a whole number.")
    return int(found)


def truth(value: Any, name: str) -> bool:
    """What an option says, as true or false."""
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise OptionError(f"{name} {value!r}: give true or false.")
    return found


def _missing(value: Any) -> Any:
    if value not in ("error", "drop"):
        raise OptionError(f"missing {value!r}: give error or drop.")
    return value
