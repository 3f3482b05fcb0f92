"""What a server is sent: bodies and addresses of requests, read and answered as it does."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from pyarrow import ipc

from campaign.hostile.contract import Family, Place
from campaign.hostile.mutations import dumped, mutated, mutated_json, token
from campaign.hostile.options import POINTS
from campaign.hostile.tables import _arrow, check_truth, lines, make_parquet, numbers, text
from metaprior.errors import OptionError

HAS_SERVER = find_spec("starlette") is not None
TYPES = ("application/json", "text/csv", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet")
REQUEST: dict[str, Any] = {
    "rows": [{"task": "a", "x": 1, "y": 0.5}, {"task": "a", "x": 2, "y": None}, {"task": "b", "x": 0.5, "y": -1.5}],
    "at": "0:3:1",
    "level": 0.9,
    "quantiles": [0.1, 0.5],
    "samples": 2,
    "seed": 1,
    "latent": False,
    "missing": "drop",
}
COLUMNWISE = {"columns": {"task": ["a", "a"], "x": [1, 2.5], "y": [0.5, None]}, "at": "missing"}


def make_body(rng: Random, place: Place) -> bytes:
    kind = rng.choice((0, 0, 0, 1, 2, 3))
    if kind == 0:
        base = REQUEST | {"at": rng.choice((rng.choice(POINTS), [1, 2], [[1.0]], [{"task": "a", "x": 1}]))}
        body = dumped(mutated_json(rng.choice((base, COLUMNWISE)), rng, 3)).encode("utf-8", "surrogatepass")
        body = mutated(body, rng, 1) if rng.random() < 0.1 else body
    elif kind == 1:
        body = rng.choice((text, text, lines))(rng)
    elif kind == 2:
        sink = io.BytesIO()
        table = _arrow(rng)
        with ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        body = mutated(sink.getvalue(), rng, 3) if rng.random() < 0.9 else sink.getvalue()
    else:
        body = make_parquet(rng, place).partition(b"\n")[2]
    query = {} if kind == 0 else {"at": rng.choice(POINTS)}
    if rng.random() < 0.2:
        query[rng.choice(("at", "level", "samples", "quantiles", "seed", "latent", token(rng)))] = token(rng)
    head = {"type": rng.choice(TYPES) if rng.random() < 0.03 else TYPES[kind], "query": query}
    return json.dumps(head).encode() + b"\n" + body


@lru_cache(maxsize=1)
def _served(home: Path) -> Any:
    from metaprior.serve.models import Served

    return Served(home / "deep.metaprior")


def attempt_body(given: bytes, place: Place) -> Iterator[Any]:
    """As a request to predict goes through a server; refusals of its own are counted as ours."""
    from metaprior.serve.predicting import points_of, predicted, read_request
    from metaprior.serve.refusals import Refusal
    from metaprior.serve.settings import Settings
    from metaprior.serve.tables import JSON, answer_of, rows_of
    from metaprior.serve.work import Stop

    head, _, body = given.partition(b"\n")
    asked = json.loads(head)
    served, settings = _served(place.home), Settings()
    try:
        table, wanted = read_request(body, asked["type"], asked["query"], served, settings)
        points_of(table, wanted, served, settings)
        found, _ = predicted(table, wanted, served, Stop(10.0))
        if asked["type"] == JSON:
            json.dumps(rows_of(found), allow_nan=False).encode()
            _check_numbers(json.loads(body.decode("utf-8-sig")))
        else:
            answer_of(found, asked["type"])
    except Refusal as error:
        raise OptionError(str(error)) from error
    yield from numbers(found)


def _check_numbers(request: dict[str, Any]) -> None:
    """Whether true or false of a request that was answered was taken for a number."""
    rows, at = request.get("rows") or [], request.get("at")
    check_truth([*rows, *(at if isinstance(at, list) else [])], ("task", "x", "y"))
    columns = request.get("columns") or {}
    check_truth([{"x": value} for name in ("task", "x", "y") for value in columns.get(name, ())], ("x",))
    if isinstance(at, list) and "true" in json.dumps([part for part in at if not isinstance(part, dict)]):
        raise RuntimeError("true was taken for a point")


FAMILIES = (
    *(
        [Family("requests", "bodies and addresses that a server is sent", 30_000, 300, make_body, attempt_body)]
        * HAS_SERVER
    ),
)
