"""`metaprior serve`: models for colleagues and programs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from metaprior.cli.common import Screen
from metaprior.extras import check_installed

NEEDS = ("starlette", "uvicorn", "python_multipart")


def serve_models(paths: Sequence[str], options: dict[str, Any]) -> None:
    """Load the models and serve them until the user ends it."""
    check_installed("metaprior serve", "serve", NEEDS)
    room = import_module("metaprior.serve")  # it needs an extra that others need not have
    settings = room.Settings(**options)
    room.run_server(room.load_models(paths), settings, Screen().say)
