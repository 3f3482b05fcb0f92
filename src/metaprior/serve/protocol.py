"""The Open Inference Protocol, version 2: a model's rows as tensors.

One tensor for each column of the table, all of shape [n]: the task columns as BYTES, inputs and targets as FP64 (dates
as days since 1970), task covariates as FP64 or BYTES. A target that is NaN (or null) is to be predicted; the others are
what is known. The answer has mean, sd, lower and upper (with the target's name before, where there are several) and
plausibility where the model can tell, FP64 of shape [k]: a value for each row that is to be predicted, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from metaprior.errors import DataError
from metaprior.frames import Wanted
from metaprior.serve.models import Served
from metaprior.serve.predicting import Asked, number, truth
from metaprior.serve.refusals import Refusal


def described(served: Served) -> dict[str, Any]:
    """A model, as the protocol describes one."""
    columns = served.columns
    inputs = [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in columns.task]
    inputs += [{"name": name, "datatype": "FP64", "shape": [-1]} for name in (*columns.x, *columns.y)]
    inputs += [
        {"name": one.name, "datatype": "BYTES" if one.levels else "FP64", "shape": [-1]} for one in columns.task_x
    ]
    outputs = [{"name": name, "datatype": "FP64", "shape": [-1]} for name in outputs_of(served)]
    return {"name": served.name, "versions": ["1"], "platform": "metaprior", "inputs": inputs, "outputs": outputs}


def outputs_of(served: Served) -> list[str]:
    """What an answer holds."""
    y = served.columns.y
    names = [part if len(y) == 1 else f"{one}_{part}" for one in y for part in ("mean", "sd", "lower", "upper")]
    return [*names, *(["plausibility"] if hasattr(served.gp.method_, "usual_") else [])]


def table_of_tensors(given: Any, served: Served, most: int) -> tuple[pa.Table, Asked]:
    """The rows of a request to infer, and what is asked."""
    if not isinstance(given, Mapping) or not isinstance(given.get("inputs"), list):
        raise DataError('give {"inputs": [{"name", "shape", "datatype", "data"}, …]}.')
    known = {one["name"]: one for one in described(served)["inputs"]}
    found: dict[str, Any] = {}
    about = served.gp.trained_on_
    for one in given["inputs"]:
        name = _named(one, known, "inputs")
        found[name] = _values(one, name, str(known[name]["datatype"]), most)
        if name in about.dated or name in about.clocks:
            found[name] = _moments(found[name], name in about.clocks)
    lacking = [name for name in known if name not in found]
    if lacking:
        raise DataError(f"no tensor {lacking[0]!r}: there have to be {', '.join(known)}.")
    if len({len(values) for values in found.values()}) > 1:
        raise DataError("the tensors have to be of one length.")
    options = given.get("parameters") or {}
    if not isinstance(options, Mapping):
        raise DataError("parameters: give an object.")
    level, latent = number(options.get("level", 0.9), "level"), truth(options.get("latent", False), "latent")
    wanted = Wanted(level=level, latent=latent)
    wanted.check()
    return pa.table(found), Asked("missing", wanted)


def wanted_outputs(given: Mapping[str, Any], served: Served) -> list[str]:
    """The tensors that a request names; all of them where it names none."""
    known, asked = outputs_of(served), given.get("outputs") or []
    if not isinstance(asked, list):
        raise DataError('outputs: give [{"name"}, …].')
    return [_named(one, known, "outputs") for one in asked] or known


def _named(one: Any, known: Collection[str], what: str) -> str:
    name = one.get("name") if isinstance(one, Mapping) else None
    if not isinstance(name, str) or name not in known:
        raise DataError(f"{what}: there are {', '.join(known)}.")
    return name


def _values(one: Mapping[str, Any], name: str, kind: str, most: int) -> pa.Array:
    data, shape, datatype = one.get("data"), one.get("shape"), one.get("datatype")
    if not isinstance(data, list) or not isinstance(shape, list) or shape != [len(data)]:
        raise DataError(f"tensor {name!r}: give its data as a list, and its shape as [n].")
    if len(data) > most:
        raise Refusal(413, "too large", f"{len(data):,} rows: {most:,} are the most (--max-rows).", "inputs")
    if kind == "BYTES":
        if datatype != "BYTES" or not all(isinstance(value, str) for value in data):
            raise DataError(f"tensor {name!r} holds text: datatype BYTES, and strings as data.")
        return pa.array(data, pa.string())
    if datatype not in ("FP64", "FP32", "INT64", "INT32"):
        raise DataError(f"tensor {name!r} holds numbers: datatype FP64.")
    if not all(value is None or type(value) in (int, float) for value in data):
        raise DataError(f"tensor {name!r} holds numbers.")
    try:
        numbers = [math.nan if value is None else float(value) for value in data]
    except OverflowError:
        raise DataError(f"tensor {name!r} has a number that is too large.") from None
    return pa.array([None if math.isnan(value) else value for value in numbers], pa.float64())


def _moments(values: pa.Array, clock: bool) -> pa.Array:
    """Days as moments, or as times of day: as the model's table had them."""
    found = []
    for days in values.to_pylist():
        if days is None or not -1e6 < days < 1e6:
            raise DataError("inputs that are dates are days since 1970.")
        found.append(round(days * 86_400e6))
    if clock:
        return pa.array([one % 86_400_000_000 for one in found], pa.time64("us"))
    return pa.array(found, pa.timestamp("us"))


def answer(served: Served, found: pa.Table, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Predictions as the protocol has them, in the order of the rows that were asked about; with the request's id."""
    outputs = [
        {"name": name, "datatype": "FP64", "shape": [found.num_rows], "data": found[name].to_pylist()} for name in names
    ]
    told: dict[str, Any] = {"model_name": served.name, "model_version": "1", "outputs": outputs}
    return told if given.get("id") is None else told | {"id": str(given["id"])}
