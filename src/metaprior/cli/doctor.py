"""`metaprior doctor`: what is here to work with, for a person who wonders or who reports a fault."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

import torch
from rich.table import Table

import metaprior
from metaprior import data
from metaprior.cli.common import Screen

EXTRA = re.compile(r"([\w.-]+)(?:\[.*\])?[^;]*;.*extra == ['\"](\w+)['\"]")
"""A package that an extra asks for, as the package's own description has it."""

OURS = ("benchmark", "dev", "dist", "docs")
"""Extras that are for those who work on the package."""

CORE = ("torch", "gpytorch", "numpy", "scipy", "pyarrow", "narwhals", "safetensors", "matplotlib")


def examine(screen: Screen) -> None:
    """Versions, threads, GPU, datasets and extras."""
    found = {
        "versions": dict(_versions()),
        "threads": _threads(),
        "gpu": _gpu(),
        "data": {name: _place(name) for name in data.DATASETS},
        "extras": {name: _extra(packages) for name, packages in _extras().items()},
    }
    table = Table("what", "found")
    for what, said in found.items():
        for name, value in said.items() if isinstance(said, dict) else [("", said)]:
            table.add_row(f"{what} {name}".strip(), str(value))
    screen.show(table)
    screen.result(found)


def _versions() -> Iterator[tuple[str, str]]:
    yield "metaprior", metaprior.__version__
    yield "Python", f"{platform.python_version()} on {platform.system()} ({platform.machine()})"
    for name in CORE:
        yield name, version(name)


def _threads() -> str:
    limit = os.environ.get("OMP_NUM_THREADS")
    said = f", OMP_NUM_THREADS={limit}" if limit else ""
    return f"{torch.get_num_threads()} of {os.cpu_count()} cores{said}"


def _gpu() -> str:
    if not torch.cuda.is_available():
        built = "built without CUDA" if torch.version.cuda is None else f"built for CUDA {torch.version.cuda}"
        return f"none that torch sees (torch is {built}); --device cpu is the default"
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name()}, {memory:.0f} GB: use it with --device cuda"


def _place(name: str) -> str:
    found = data.locate(name)
    return f"not here: metaprior data fetch {name}" if found is None else str(found)


def _extras() -> dict[str, list[str]]:
    """The packages of each extra that is for users."""
    found: dict[str, list[str]] = {}
    for line in requires("metaprior") or ():
        match = EXTRA.match(line)
        if match is not None and match[2] not in OURS:
            found.setdefault(match[2], []).append(match[1])
    return dict(sorted(found.items()))


def _extra(packages: list[str]) -> str:
    """Its packages with their versions, and which are lacking."""
    said = []
    for name in packages:
        try:
            said.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            said.append(f"{name} is not installed")
    return ", ".join(said)
