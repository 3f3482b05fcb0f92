"""The files that inputs are made from: a small model of each kind, a checkpoint, shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metaprior import FPCA, MAML, HyperPosterior, MetaGP, Mixture, Tasks, Warped, shard
from metaprior.learning import checkpoints
from metaprior.methods import ContextMean, GPPerTask, HierarchicalGP, LastValue, NeuralNetwork

MODELS: dict[str, Callable[[], Any]] = {
    "deep": lambda: MetaGP("deep", "deep", hidden=(4,), max_epochs=5, progress=False),
    "matern": lambda: MetaGP("linear", "matern", max_epochs=5, progress=False),
    "student": lambda: MetaGP("deep", "deep", hidden=(4,), degrees=5.0, max_epochs=5, progress=False),
    "eigenfunctions": lambda: MetaGP("deep", "eigenfunctions + deep", hidden=(4,), max_epochs=5, progress=False),
    "fpca": lambda: FPCA(size=4, rank=2),
    "mixture": lambda: Mixture(kinds=2, seed=0),
    "warped": lambda: Warped(FPCA(size=4, rank=2)),
    "hierarchical": lambda: HierarchicalGP(seed=0),
    "hyper-posterior": lambda: HyperPosterior(members=2, hidden=(4,), max_epochs=5, seed=0),
    "maml": lambda: MAML(hidden=(4,), max_epochs=1, progress=False),
    "network": lambda: NeuralNetwork(hidden=(4,), max_epochs=3, progress=False),
    "last value": LastValue,
    "context mean": ContextMean,
    "gp per task": GPPerTask,
    "auto": lambda: MetaGP(budget=0, progress=False),
}


def past(dated: bool = False) -> pa.Table:
    """Eight tasks of five points, with an age and a diet."""
    rng = np.random.default_rng(0)
    count, size = 8, 5
    task = np.repeat(np.arange(count), size)
    x = rng.uniform(0, 4, (count, size)).round(2).ravel()
    y = np.sin(x + rng.normal(0, 0.3, count)[task]) + rng.normal(0, 0.1, count * size)
    moments = pa.array((x * 86_400).astype("int64"), pa.timestamp("s"))
    return pa.table(
        {
            "task": [f"t{k}" for k in task],
            "x": moments if dated else x,
            "y": y,
            "age": 30.0 + task,
            "diet": np.array(["rich", "poor"])[task % 2],
            "z": x[::-1].copy(),
            "count": np.abs(np.round(3 * y)),
        }
    )


def make_home(home: Path) -> None:
    """Fit and write everything."""
    named: dict[str, Any] = {"task": "task", "x": "x", "y": "y"}
    for name, make in MODELS.items():
        method = make()
        (method if isinstance(method, MetaGP) else _Table(method)).fit(past(), **named).save(home / f"{name}.metaprior")
    small = {"hidden": (4,), "max_epochs": 5, "progress": False}
    others: dict[str, Any] = {
        "dated": (past(dated=True), named),
        "whole": (past(), named | {"y": "count", "support": (0, None), "integer": True}),
        "two": (past(), named | {"x": ["x", "z"], "y": ["y", "count"]}),
        "about": (past(), named | {"task_x": ["age", "diet"]}),
    }
    for name, (table, roles) in others.items():
        gp = MetaGP("deep", "deep", **small).fit(table, **roles)
        gp.save(home / f"{name}.metaprior")
    make_checkpoints(home)
    pq.write_table(past(), home / "past.parquet")
    (home / "past.csv").write_text("task,x,y\n" + "".join(f"{t},{x},{y}\n" for t, x, y in _rows()))
    shard(home / "past.parquet", home / "shards", task="task", buckets=2, progress=False)


RESUMED: dict[str, Callable[[], MetaGP]] = {
    "prior": lambda: MetaGP("deep", "deep", hidden=(4,), max_epochs=4, check_every=2, progress=False),
    "adam": lambda: MetaGP("deep", "rbf", hidden=(4,), optimizer="adam", max_epochs=4, check_every=2, progress=False),
    "auto": lambda: MetaGP(rungs=("gp per task", "fpca"), progress=False),
}
"""Trainings that are kept while they run, and go on from there."""


def make_checkpoints(home: Path) -> None:
    """What each of these trainings leaves where it is stopped."""
    every, remove = checkpoints.EVERY, checkpoints.Checkpoint.remove
    checkpoints.EVERY = 0.0
    checkpoints.Checkpoint.remove = lambda self: None  # type: ignore[method-assign]
    try:
        for name, make in RESUMED.items():
            make().fit(past(), task="task", x="x", y="y", checkpoint=home / f"{name}.checkpoint")
    finally:
        checkpoints.EVERY = every
        checkpoints.Checkpoint.remove = remove  # type: ignore[method-assign]


def _rows() -> list[tuple[Any, ...]]:
    table = past()
    return list(zip(*(table[name].to_pylist() for name in ("task", "x", "y")), strict=True))


class _Table:
    """A method that learns from `Tasks`, given a table."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def fit(self, table: Any, **named: Any) -> Any:
        return self.method.fit(Tasks.from_table(table, **named))
