"""One file that conditions a model in the browser: no server, no request to any other host."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaprior.errors import OptionError
from metaprior.frames import IMPLAUSIBLE
from metaprior.inference import KeptMethod, Posterior, WithinPossible
from metaprior.output import write_whole
from metaprior.report.html import Html, tag
from metaprior.report.live.described import Description, integration
from metaprior.tasks import ASKED, KNOWN, Possible, Tasks, TrainedOn

SCRIPTS = ("numbers", "priors", "posteriors", "methods", "model", "values", "plot", "served", "page")
"""Those of `script/`, each of which uses only those before it."""

MOST = 20_000_000
"""Bytes of a model's numbers beyond which a page would take too long to open."""

EXAMPLE = (0.12, 0.3, 0.55)
"""Where the first task has its points, as shares of the range of the first input."""


Points = Sequence[tuple[Sequence[float], Sequence[float]]]
"""Inputs and targets of some points of one task."""


def write_live_page(
    method: KeptMethod, trained_on: TrainedOn, model: str, path: Path, example: Points | None = None
) -> None:
    """A page in which points of a new task are put down by hand and the prediction follows.

    model: its file's name. example: points that are there at first; by default some that the prior itself would have,
    for a model holds no past tasks.
    """
    text = live_page(method, trained_on, model, example)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def is_live_page(path: Path) -> bool:
    """Whether a file is a page that `write_live_page` has written."""
    with path.open("rb") as file:
        return b'<meta name="generator" content="metaprior page">' in file.read(1200)


def live_page(
    method: KeptMethod, trained_on: TrainedOn, model: str, example: Points | None = None, served: str | None = None
) -> str:
    """The page as text. served: where a server is asked about tables; without one the page asks nobody."""
    told = Description(method, trained_on.possible)
    if len(told.numbers) > MOST:
        raise OptionError(
            f"the model takes {len(told.numbers) / 1e6:.0f} MB, more than a page that opens ({MOST / 1e6:.0f} MB): ask "
            "a server of it (`metaprior serve MODEL`) or `metaprior predict`, or learn a smaller prior, such as "
            "`metaprior fit --mean deep --kernel deep`."
        )
    given = {
        "about": _about(trained_on, model, example or _example(method, trained_on)) | {"served": served},
        "said": told.said,
        "numbers": told.numbers,
        "integration": integration(),
    }
    data = json.dumps(given, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    script, style = _script(), _part("page.css")
    asks = "" if served is None else "; connect-src 'self'"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        f"form-action 'none'{asks}"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content="metaprior page"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "A prior at work"),
        tag("style", Html(style)),
    )
    model_data = tag("script", Html(data), type="application/json", id="model")
    body = tag("body", Html(_part("page.html")), model_data, tag("script", Html(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _part(name: str) -> str:
    return (files("metaprior.report.live") / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """All scripts as one, with a scope of its own."""
    inside = "\n".join(_part(f"script/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{inside}}})();\n'


def _about(trained_on: TrainedOn, model: str, example: Points) -> dict[str, Any]:
    """What the page says of the model: names, ranges, and a task to begin with."""
    columns = trained_on.columns
    possible = trained_on.possible or (Possible(),) * len(columns.y)
    x: list[dict[str, Any]] = [
        {
            "name": name,
            "range": list(ends),
            "kind": kind,
            "parts": _parts(ends, kind),
            "said": [trained_on.said_outside(k, words) for words in (KNOWN, ASKED)],
        }
        for k, (name, ends) in enumerate(zip(columns.x, trained_on.x_range, strict=True))
        for kind in [_kind(name, trained_on)]
    ]
    y = [
        {"name": name, "range": list(ends), "ends": _ends(one), "whole": one.whole, "said": str(one)}
        for name, ends, one in zip(columns.y, trained_on.y_range, possible, strict=True)
    ]
    (low, high), kind = trained_on.x_range[0], x[0]["kind"]
    return {
        "model": model,
        "version": version("metaprior"),
        "task": list(columns.task),
        "x": x,
        "y": y,
        "task_x": _task_x(trained_on),
        "tasks": trained_on.tasks,
        "rows": trained_on.rows,
        "unusual": IMPLAUSIBLE,
        "example": [{"x": list(x), "y": list(y)} for x, y in example],
        "ask": ", ".join(_written(_place(end, (low, high), kind), kind) for end in (low + 0.75 * (high - low), high)),
    }


def _kind(name: str, trained_on: TrainedOn) -> str:
    return "date" if name in trained_on.dated else "clock" if name in trained_on.clocks else "number"


def _ends(one: Possible) -> list[float | None]:
    return [None if np.isinf(end) else end for end in (one.lower, one.upper)]


def _task_x(trained_on: TrainedOn) -> list[dict[str, Any]]:
    found, place = [], 0
    for one in trained_on.columns.task_x:
        about: dict[str, Any] = {"name": one.name, "levels": list(one.levels or ())}
        if not one.levels:
            low, high = trained_on.task_x.ranges[place]
            said = trained_on.said_unlike(one.name, low, high)
            about |= {"range": [low, high], "typical": trained_on.task_x.typical[place], "said": said}
        found.append(about)
        place += one.width
    return found


def _place(value: float, ends: tuple[float, float], kind: str) -> float:
    """A place within the range, as fine as a person would write it: to a thousandth of the range, or by `_parts`."""
    low, high = ends
    steps = 10.0 ** _digits(high - low, value) if kind == "number" else float(_parts(ends, kind))
    for count in (round(value * steps), math.floor(value * steps), math.ceil(value * steps)):
        found = float(f"{count / steps:.15g}")
        if low <= found <= high:
            return found
    return value


def _parts(ends: tuple[float, float], kind: str) -> int:
    """How many places of a day are told apart: whole days where that is fine enough, else minutes or seconds."""
    span = ends[1] - ends[0]
    daily = span > 50 or (span >= 5 and all(end == round(end) for end in ends))
    return 1 if kind == "date" and daily else 1440 if span * 1440 > 50 else 86400


def _written(place: float, kind: str) -> str:
    if kind == "number":
        return f"{place:.15g}"
    day, time = str(np.datetime64(round(place * 86400), "s")).split("T")
    short = time.removesuffix(":00")
    return short if kind == "clock" else day if short == "00:00" else f"{day}T{short}"


@torch.no_grad()
def _example(method: Any, trained_on: TrainedOn) -> Points:
    """A few points of a task as the prior would have it."""
    possible = trained_on.possible
    within = WithinPossible(method, possible) if possible else method
    x = [
        [
            _place(low + (0.5 if k else share) * (high - low), (low, high), _kind(name, trained_on))
            for k, (name, (low, high)) in enumerate(zip(trained_on.columns.x, trained_on.x_range, strict=True))
        ]
        for share in EXAMPLE
    ]
    numbers = trained_on.task_x.typical
    about = torch.tensor([_first_levels(trained_on, numbers)], dtype=torch.float64) if numbers else None
    points = replace(Tasks.from_inputs([x]), covariates=about, columns=trained_on.columns)
    posterior: Posterior = within.predict(Tasks.empty(points.ids, points.d, len(trained_on.columns.y)), points)
    middle, drawn = posterior.quantiles([0.5])[0], posterior.samples(1, 3)[0]
    y = 0.3 * middle + 0.7 * drawn  # not far from the middle: a task that surprises is for later
    if possible:
        y = torch.where(torch.tensor([one.whole for one in possible]), y.round(), y)
    spans = [high - low for low, high in trained_on.y_range]
    return [
        (
            row,
            [
                round(value, _digits(span, value)) or float(f"{value:.2g}")
                for value, span in zip(values, spans, strict=True)
            ],
        )
        for row, values in zip(x, y.tolist(), strict=True)
    ]


def _first_levels(trained_on: TrainedOn, typical: tuple[float, ...]) -> list[float]:
    """A task of average numbers and, in each column of text, of the first level: as the page begins."""
    found: list[float] = []
    for one in trained_on.columns.task_x:
        found += [1.0, *[0.0] * (one.width - 1)] if one.levels else [typical[len(found)]]
    return found


def _digits(range_: float, value: float) -> int:
    """Decimals that tell a thousandth of the range."""
    return math.ceil(3 - math.log10(range_ or abs(value) or 1.0))
