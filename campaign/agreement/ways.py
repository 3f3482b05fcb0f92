"""The ways to a prediction: each takes a model and a table, and gives the numbers of every row, and the notes."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import time
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from campaign.agreement.tables import Case
from metaprior import MetaGP, MetapriorWarning
from metaprior.report import live_page

Array = np.ndarray[Any, np.dtype[np.float64]]

MOMENTS = ("mean", "sd", "lower", "upper")
HOST = "http://127.0.0.1"


class Answer(NamedTuple):
    """`mean`, `sd`, `lower` and `upper` of every target in each row that was asked about, `[N, 4 p]`; and the notes."""

    numbers: Array
    notes: list[str]


class Fitted:
    """A case with its model, which is in a file as well."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MetapriorWarning)
            gp = MetaGP(**case.options)
            self.gp = gp.fit(case.past, **case.columns, **case.possible)
        self.file = folder / "model.metaprior"
        self.gp.save(self.file)

    @cached_property
    def roles(self) -> tuple[list[str], list[str], list[str], list[str]]:
        """The names of task, input, target and covariate columns of the long table."""
        case = self.case
        if case.wide is not None:
            return case.names("task"), ["week"], ["value"], []
        return case.names("task"), case.names("x"), case.names("y"), case.names("task_x")

    @cached_property
    def long(self) -> pd.DataFrame:
        """What is known of the new tasks, a row for each observation."""
        return self.melted(self.case.new)

    def melted(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table of the case with a row for each observation."""
        if self.case.wide is None:
            return table
        task, (x,), (y,), _ = self.roles
        found = table.melt(id_vars=task, var_name=x, value_name=y)
        found[x] = found[x].str.removeprefix("week_").astype(float)
        return found.dropna().sort_values([*task, x]).reset_index(drop=True)

    @cached_property
    def grid(self) -> list[tuple[Any, ...]]:
        """The points that every task is asked at."""
        assert isinstance(self.case.at, dict)
        return list(itertools.product(*self.case.at.values()))

    @property
    def text(self) -> str:
        """The same as an option of the command line."""
        assert isinstance(self.case.at, dict)
        return ",".join(f"{name}={','.join(map(_written, values))}" for name, values in self.case.at.items())

    @property
    def at(self) -> Any:
        """Where it is asked, for Python."""
        return np.array([_numbers(row) for row in self.grid]) if isinstance(self.case.at, dict) else self.case.at

    @cached_property
    def asked(self) -> pd.DataFrame:
        """The task and the inputs of each row of the answer, in numbers."""
        task, x, y, _ = self.roles
        if isinstance(self.case.at, dict):
            ids = self.long[task].drop_duplicates()
            rows = [(*name, *_numbers(row)) for name in ids.itertuples(index=False) for row in self.grid]
            return pd.DataFrame(rows, columns=[*task, *x])
        table = self.long[self.long[y].isna().any(axis=1)] if isinstance(self.case.at, str) else self.case.at
        return self.in_numbers(table[[*task, *x]].dropna())

    def in_numbers(self, table: pd.DataFrame) -> pd.DataFrame:
        """The inputs in numbers: dates and times of day in days."""
        x = self.roles[1]
        rows = [_numbers(row) for row in table[x].itertuples(index=False)]
        return table.assign(**dict(zip(x, np.array(rows).reshape(-1, len(x)).T, strict=True)))

    @cached_property
    def tasks(self) -> list[tuple[Array, Array, Array, Array, dict[str, Any]]]:
        """Of each task that is asked about: its known x and y, where it is asked, the rows of these, its covariates."""
        task, x, y, about = self.roles
        known = self.in_numbers(self.long.dropna(subset=[*x, *y]))
        found = []
        asked = self.asked.reset_index(drop=True)
        for _, points in asked.groupby(task, sort=False):
            own = known
            for name in task:
                own = own[own[name] == points[name].iloc[0]]
            said = {name: own[name].iloc[0] for name in about}
            found.append((own[x].to_numpy(), own[y].to_numpy(), points[x].to_numpy(), points.index.to_numpy(), said))
        return found


def _written(value: Any) -> str:
    return value.isoformat() if isinstance(value, pd.Timestamp) else repr(float(value))


def _numbers(row: Any) -> list[float]:
    """Inputs as numbers: days since 1970, in UTC, or parts of a day."""
    return [_days(value) for value in row]


def _days(value: Any) -> float:
    if isinstance(value, pd.Timestamp):
        return float(value.timestamp()) / 86_400
    if isinstance(value, time):
        return (value.hour + value.minute / 60) / 24
    return float(value)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """The warnings of the library inside, in order."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", MetapriorWarning)
        yield notes
    notes += [str(one.message) for one in said if issubclass(one.category, MetapriorWarning)]


def _columns(fitted: Fitted, table: pd.DataFrame) -> Array:
    """The numbers of a table of predictions."""
    y = fitted.roles[2]
    names = [part if len(y) == 1 else f"{name}_{part}" for name in y for part in MOMENTS]
    return np.asarray(table[names].to_numpy(dtype=float))


def from_python(fitted: Fitted) -> Answer:
    """`gp.predict(table, at)`."""
    case = fitted.case
    wide = {} if case.wide is None else {"wide": case.wide}
    with _heard() as notes:
        found = fitted.gp.predict(case.new, fitted.at, missing=case.missing, **wide)
    return Answer(_columns(fitted, found), notes)


def from_arrays(fitted: Fitted) -> Answer:
    """`gp.condition(x, y).at(x_new)`, task by task; notes are of each task, `[task] note`."""
    p, notes = len(fitted.roles[2]), []
    numbers = np.empty((len(fitted.asked), 4 * p))
    for k, (x, y, at, rows, about) in enumerate(fitted.tasks):
        with _heard() as said:
            posterior = fitted.gp.condition(x, y, task_x=about or None).at(at)
        parts = torch.stack([posterior.mean, posterior.sd, *posterior.interval(0.9)], -1)
        numbers[rows] = parts.reshape(len(at), 4 * p).numpy()
        notes += [f"[{k}] {note}" for note in said]
    return Answer(numbers, notes)


def from_command_line(fitted: Fitted) -> Answer:
    """`metaprior predict MODEL TABLE --at … --out …`."""
    from typer.testing import CliRunner

    from metaprior.cli.app import app

    case, out = fitted.case, fitted.folder / "out.parquet"
    case.new.to_parquet(fitted.folder / "new.parquet")
    if isinstance(case.at, pd.DataFrame):
        case.at.to_parquet(fitted.folder / "at.parquet")
    at: Any = case.at if isinstance(case.at, str) else fitted.folder / "at.parquet"
    at = fitted.text if isinstance(case.at, dict) else at
    words = [fitted.file, fitted.folder / "new.parquet", "--at", at, "--out", out, "--missing", case.missing]
    wide = [] if case.wide is None else ["--wide", case.wide]
    found = CliRunner().invoke(app, ["predict", *map(str, words), *wide, "--overwrite"])
    if found.exit_code:
        raise AssertionError(found.output) from found.exception
    notes = re.findall(r"^note: (.*)$", found.stderr, re.MULTILINE)
    return Answer(_columns(fitted, pd.read_parquet(out)), notes)


def from_server(fitted: Fitted) -> Answer:
    """`POST /predict`, as JSON where its rows can hold the table, else as Parquet."""
    from starlette.testclient import TestClient

    from metaprior.serve import Server, Settings, load_models

    case, table = fitted.case, fitted.long
    options: dict[str, Any] = {"missing": case.missing, "at": case.at}
    if isinstance(case.at, dict):
        options["at"] = fitted.text
    if isinstance(case.at, pd.DataFrame):
        options["at"] = case.at.to_dict("records")
    app = Server(load_models([str(fitted.file)]), Settings(log="none")).app()
    with TestClient(app, base_url=HOST) as server:
        if any(dtype.kind == "M" for dtype in table.dtypes) or _holds_times(table):
            sink = io.BytesIO()
            table.to_parquet(sink)
            kind = {"Content-Type": "application/vnd.apache.parquet"}
            answer = server.post("/predict", params=options, content=sink.getvalue(), headers=kind)
        else:
            rows = json.loads(table.to_json(orient="records", double_precision=15))
            answer = server.post("/predict", json={"rows": rows, **options})
    if answer.status_code != 200:
        raise AssertionError(answer.text)
    found = answer.json()
    return Answer(_columns(fitted, pd.DataFrame(found["rows"])), found["notes"])


def _holds_times(table: pd.DataFrame) -> bool:
    return any(isinstance(value, time) for value in table.iloc[0])


def from_sklearn(fitted: Fitted) -> Answer:
    """`MetaGPRegressor(…).fit(…).with_context(…)`: a model that it has learned itself."""
    from metaprior.adapters.sklearn import MetaGPRegressor

    task, x, y, _ = fitted.roles
    past, known, asked = fitted.melted(fitted.case.past), fitted.long, fitted.asked
    targets = y[0] if len(y) == 1 else y
    model = MetaGPRegressor(**fitted.case.options, **fitted.case.possible)
    model.fit(past[x], past[targets].to_numpy(), past[task[0]])
    model = model.with_context(known[x], known[targets].to_numpy(), known[task[0]])
    with _heard() as notes:
        mean = model.predict(asked[x], asked[task[0]])
    with _heard():
        sd, bounds = model.predict_std(asked[x], asked[task[0]]), model.predict_interval(asked[x], 0.9, asked[task[0]])
    parts = np.stack([mean, sd, bounds.lower, bounds.upper], -1)
    return Answer(parts.reshape(len(asked), -1), notes)


def from_page(fitted: Fitted, browser: Any) -> Answer:
    """The page's own arithmetic and notes, task by task, in a browser."""
    gp, p = fitted.gp, len(fitted.roles[2])
    page = browser.new_page()
    page.set_content(live_page(gp.method_, gp.trained_on_, fitted.file.name))
    ask = """([x, y, at, about]) => {
        const options = { levels: [0.05, 0.95], count: 0, ...(about ? { about } : {}) };
        return [metaprior.predict(x, y, at, options), metaprior.notes(x, at, about ?? [])];
    }"""
    numbers, notes = np.empty((len(fitted.asked), 4 * p)), []
    for k, (x, y, at, rows, about) in enumerate(fitted.tasks):
        found, said = page.evaluate(ask, [x.tolist(), y.tolist(), at.tolist(), _encoded(fitted, about)])
        parts = [found["mean"], found["sd"], *found["quantiles"]]
        numbers[rows] = np.stack(parts, -1).reshape(len(at), 4 * p)
        notes += [f"[{k}] {note}" for note in said]
    page.close()
    return Answer(numbers, notes)


def _encoded(fitted: Fitted, about: Mapping[str, Any]) -> list[float] | None:
    """Covariates of a task as the page holds them: numbers, and a 1 among zeros for a level."""
    found: list[float] = []
    for one in fitted.gp.trained_on_.columns.task_x:
        value = about[one.name]
        found += [float(level == value) for level in one.levels] if one.levels else [float(value)]
    return found or None


@contextmanager
def browser_of_this_machine() -> Iterator[Any]:
    """A chromium, or None where there is none."""
    path = shutil.which("chromium")
    if path is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
