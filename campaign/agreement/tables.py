"""Twenty small tables of many kinds: what a model learns from, what is known of new tasks, and where they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from campaign.known import KNOWN
from metaprior.data import embedded_table

At: TypeAlias = str | dict[str, list[Any]] | pd.DataFrame
"""Where a table is asked: "missing", the values of each input (all combinations), or rows of another table."""

FAST: dict[str, Any] = {"mean": "constant", "kernel": "matern", "max_epochs": 5, "progress": False}
CHOSEN: dict[str, Any] = {"rungs": ["fpca"], "progress": False}
COLUMNS: Mapping[str, Any] = {"task": "who", "x": "t", "y": "y"}
NOTHING: Mapping[str, Any] = {}
EXACT, SEARCHED = 1e-6, 1e-4
"""Tolerances of the page, in standard deviations: of one prior, and of quantiles that are searched for."""


class Case(NamedTuple):
    """One table, and how it is learned from and asked."""

    past: pd.DataFrame
    new: pd.DataFrame
    at: At
    columns: Mapping[str, Any] = COLUMNS
    options: Mapping[str, Any] = FAST
    possible: Mapping[str, Any] = NOTHING  # support and integer
    missing: str = "error"
    adapter: bool = True  # whether scikit-learn's X and y can hold it
    tolerance: float = EXACT

    def names(self, role: str) -> list[str]:
        """The columns of a role; those of a wide table are `t` and `value`, by number and content."""
        found = self.columns.get(role, [])
        return [found] if isinstance(found, str) else list(found)

    @property
    def wide(self) -> str | None:
        return self.columns.get("wide")


def waves(
    tasks: int, rng: np.random.Generator, first: int = 0, points: int = 7, of: Callable[[Any], Any] = lambda y: y
) -> pd.DataFrame:
    """Waves of their own height and place."""
    parts = []
    for k in range(tasks):
        t = np.sort(rng.uniform(0, 10, points)).round(2)
        y = 2 * np.sin(t + 0.3 * rng.normal()) + rng.normal() + 0.1 * rng.normal(size=points)
        parts.append(pd.DataFrame({"who": f"p{first + k}", "t": t, "y": of(y)}))
    return pd.concat(parts, ignore_index=True)


def _both(rng: np.random.Generator, **how: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    return waves(9, rng, **how), waves(3, rng, first=50, points=3, **how)


AT: dict[str, list[Any]] = {"t": [1.0, 4.25, 9.0, 12.5]}


def _law(name: str) -> Callable[[np.random.Generator], Case]:
    def table(count: int, rng: np.random.Generator, first: int) -> pd.DataFrame:
        x, y = KNOWN[name].drawn(count, rng)
        who = np.repeat([f"p{first + k}" for k in range(count)], x.shape[1])
        return pd.DataFrame({"who": who, "t": x.flatten(), "y": y.flatten()})

    def made(rng: np.random.Generator) -> Case:
        new = table(4, rng, 50).groupby("who").head(4)
        chosen: dict[str, Mapping[str, Any]] = {"few components": CHOSEN, "skewed": CHOSEN | {"rungs": ["warped fpca"]}}
        structure: dict[str, dict[str, Any]] = {
            "three kinds": {"degrees": 4.0},
            "random walk": {"kernel": "exponential"},
        }
        options = chosen.get(name) or FAST | structure.get(name, {"kernel": "rbf"})
        return Case(table(12, rng, 0), new, AT, options=options, tolerance=SEARCHED)

    return made


def sea(rng: np.random.Generator) -> Case:
    table = embedded_table("elnino").to_pandas()
    past, new = table[table["year"] < 1990], table[(table["year"] >= 1990) & (table["month"] < 4)]
    columns = {"task": "year", "x": "month", "y": "temperature"}
    return Case(past, new, {"month": [1.0, 6.5, 13.0]}, columns, CHOSEN, tolerance=SEARCHED)


def counts(rng: np.random.Generator) -> Case:
    past, new = _both(rng, of=lambda y: np.maximum(np.round(2 + 2 * y), 0.0))
    return Case(past, new, AT, possible={"support": (0, None), "integer": True}, tolerance=SEARCHED)


def shares(rng: np.random.Generator) -> Case:
    past, new = _both(rng, of=lambda y: np.clip(0.5 + y / 6, 0.0, 1.0))
    return Case(past, new, AT, possible={"support": (0, 1)}, tolerance=SEARCHED)


def skewed(rng: np.random.Generator) -> Case:
    past, new = _both(rng, of=lambda y: np.exp(y / 2))
    return Case(past, new, AT, options=CHOSEN | {"rungs": ["log fpca"]}, tolerance=SEARCHED)


def _dated(rng: np.random.Generator, zone: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    start = pd.Timestamp("2024-03-25", tz=zone)

    def dated(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(t=start + pd.to_timedelta((table["t"] * 24).round(), unit="h"))

    past, new = _both(rng)
    return dated(past), dated(new)


def dates(rng: np.random.Generator) -> Case:
    past, new = _dated(rng)
    at = {"t": [pd.Timestamp("2024-03-27T06:00"), pd.Timestamp("2024-04-20")]}
    return Case(past, new, at, adapter=False)


def zoned_dates(rng: np.random.Generator) -> Case:
    past, new = _dated(rng, "Europe/Berlin")
    at = {"t": [pd.Timestamp("2024-03-27T06:00"), pd.Timestamp("2024-03-31T12:00")]}
    return Case(past, new, at, adapter=False)


def times_of_day(rng: np.random.Generator) -> Case:
    def clocked(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(t=[time(int(2 * t), int(30 * t) % 60) for t in table["t"]])

    past, new = map(clocked, _both(rng))
    return Case(past, new, {"t": [0.25, 0.5]}, adapter=False)


def task_covariates(rng: np.random.Generator) -> Case:
    def described(table: pd.DataFrame, ages: list[float], diets: str) -> pd.DataFrame:
        place = pd.factorize(table["who"])[0]
        return table.assign(age=np.array(ages)[place], diet=np.array(list(diets))[place])

    past, new = _both(rng)
    past, new = described(past, [float(k) for k in range(9)], "abcabcabc"), described(new, [2.5, 8.0, 90.0], "bca")
    columns = {"task": "who", "x": "t", "y": "y", "task_x": ["age", "diet"]}
    deep = FAST | {"mean": "deep", "kernel": "deep", "hidden": (6, 5)}
    return Case(past, new, AT, columns, deep, adapter=False)


def two_targets(rng: np.random.Generator) -> Case:
    past, new = (table.assign(z=3 - table["y"] ** 2) for table in _both(rng))
    return Case(past, new, AT, {"task": "who", "x": "t", "y": ["y", "z"]})


def two_inputs(rng: np.random.Generator) -> Case:
    past, new = (table.assign(dose=rng.uniform(1, 3, len(table)).round(1)) for table in _both(rng))
    at = {"t": [2.0, 8.0], "dose": [0.5, 2.0]}
    return Case(past, new, at, {"task": "who", "x": ["t", "dose"], "y": "y"})


def wide(rng: np.random.Generator) -> Case:
    def table(tasks: int, first: int) -> pd.DataFrame:
        values = np.sin(np.arange(6)) + rng.normal(size=(tasks, 1)) + 0.1 * rng.normal(size=(tasks, 6))
        values[rng.uniform(size=values.shape) < 0.2] = np.nan
        found = pd.DataFrame(values, columns=[f"week_{k}" for k in range(6)])
        return found.assign(who=[f"p{first + k}" for k in range(tasks)])

    return Case(table(9, 0), table(3, 50), {"week": [2.5, 7.0]}, {"task": "who", "wide": "week_*"})


def names_of_several_columns(rng: np.random.Generator) -> Case:
    def named(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(site=table["who"].str[-1].map(lambda digit: "ab"[int(digit) % 2]), who="0" + table["who"])

    past, new = map(named, _both(rng))
    return Case(past, new, AT, {"task": ["site", "who"], "x": "t", "y": "y"}, adapter=False)


def gaps(rng: np.random.Generator) -> Case:
    past, new = _both(rng)
    new = pd.concat([new, waves(3, rng, first=50, points=4)], ignore_index=True)
    new.loc[::4, "y"] = np.nan
    new.loc[[1, 4], "t"] = np.nan
    return Case(past, new, "missing", missing="drop", adapter=False)


def duplicates(rng: np.random.Generator) -> Case:
    past, new = _both(rng)
    return Case(past, pd.concat([new, new.iloc[[0, 4, 4]]], ignore_index=True), AT)


def strangers(rng: np.random.Generator) -> Case:
    past, new = waves(30, rng), waves(3, rng, first=50, points=4)
    new.loc[new["who"] == "p51", "y"] += 60 * np.arange(4)
    new = new.sample(frac=1, random_state=3)
    at = pd.DataFrame({"who": ["p52", "p51", "none", "p50", "p51", "empty"], "t": [1.0, 5.0, 2.0, 3.0, 20.0, 8.0]})
    return Case(past, new, at, options=CHOSEN | {"rungs": ["fpca", "shared gp"]}, tolerance=SEARCHED)


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "sea temperatures": sea,
    **{name: _law(name) for name in KNOWN},
    "counts": counts,
    "shares": shares,
    "log scale": skewed,
    "dates": dates,
    "dates of a time zone": zoned_dates,
    "times of day": times_of_day,
    "task covariates": task_covariates,
    "two targets": two_targets,
    "two inputs": two_inputs,
    "wide": wide,
    "names of several columns": names_of_several_columns,
    "gaps": gaps,
    "duplicate rows": duplicates,
    "strangers": strangers,
}
"""By name."""
