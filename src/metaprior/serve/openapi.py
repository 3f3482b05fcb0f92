"""What can be asked, as OpenAPI 3.1 describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaprior import __version__
from metaprior.serve.settings import Settings
from metaprior.serve.tables import ARROW, CSV, JSON, PARQUET

Route = tuple[str, str, str]
"""Method, path and what it does."""

ROUTES: tuple[Route, ...] = (
    ("get", "/", "A page with the models."),
    ("get", "/sign-in", "A page that asks for the token."),
    ("post", "/sign-in", "Sign a browser in."),
    ("get", "/models/{name}/", "The page on which a model is tried."),
    ("get", "/models/{name}/about", "The page about a model."),
    ("post", "/models/{name}/tasks", "The tasks of a table, for that page; nothing is kept."),
    ("post", "/models/{name}/predict", "Predict with one of several models."),
    ("post", "/predict", "Predict: rows in, rows with mean, sd, lower, upper and plausibility out."),
    ("get", "/metrics", "Counts, as Prometheus reads them."),
    ("get", "/openapi.json", "This description."),
    ("get", "/v2", "The server, by the Open Inference Protocol."),
    ("get", "/v2/health/live", "Whether the server is alive."),
    ("get", "/v2/health/ready", "Whether all models are loaded."),
    ("get", "/v2/models/{name}", "A model's tensors."),
    ("get", "/v2/models/{name}/ready", "Whether a model is loaded."),
    ("post", "/v2/models/{name}/infer", "Predict rows that are tensors, one for each column."),
)


def description(models: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Of this server, with its models."""
    paths: dict[str, Any] = {}
    for method, path, what in ROUTES:
        paths.setdefault(path, {})[method] = _operation(method, path, what, models)
    envelope = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message", "where"],
                "properties": {
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "where": {"type": ["string", "null"]},
                },
            }
        },
    }
    said: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "metaprior",
            "version": __version__,
            "description": "Predictions of new tasks by learned priors.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": envelope}},
    }
    if settings.token is not None:
        said["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        said["security"] = [{"token": []}]
    return said


def _operation(method: str, path: str, what: str, models: Sequence[str]) -> dict[str, Any]:
    refused = {"description": "Refused.", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    answers: dict[str, Any] = {"200": {"description": what}, "default": refused}
    operation: dict[str, Any] = {"summary": what, "responses": answers}
    if "{name}" in path:
        schema = {"type": "string", "enum": list(models)}
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": schema}]
    if path.endswith(("/predict", "/tasks")):
        table = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {CSV: table, ARROW: table, PARQUET: table}}
    if path.endswith("/predict"):
        operation["requestBody"]["content"][JSON] = {"schema": _PREDICT}
        named = {"model": {"type": "string", "enum": list(models)}} if path == "/predict" else {}
        operation.setdefault("parameters", []).extend(
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in (named | _OPTIONS).items()
        )
        answers["200"]["content"] = {kind: {} for kind in (JSON, CSV, ARROW, PARQUET)}
    elif path.endswith("/infer"):
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": {"type": "object"}}}}
    elif path == "/sign-in" and method == "post":
        content = {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


_OPTIONS: dict[str, Any] = {
    "at": {"type": "string", "description": "Where: 3, 1,2,3, START:STOP:STEP, or missing (rows without target)."},
    "level": {"type": "number", "default": 0.9},
    "latent": {"type": "boolean", "default": False},
    "quantiles": {"type": "string", "description": "Such as 0.1,0.5,0.9."},
    "samples": {"type": "integer", "default": 0},
    "seed": {"type": "integer", "default": 0},
    "missing": {"type": "string", "enum": ["error", "drop"]},
}

_PREDICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "object"}, "description": "Objects with the table's columns."},
        "columns": {"type": "object", "description": "The same as lists, one for each column."},
        **_OPTIONS,
        "at": {"description": "As in the address; or numbers, rows of all inputs, or objects with task and inputs."},
        "quantiles": {"type": ["array", "string"], "items": {"type": "number"}},
    },
}
