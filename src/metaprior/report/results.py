"""Results are data: three files, from which table, figures and page are made."""

from __future__ import annotations

import io
import json
import math
import platform
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metaprior.errors import DataError, OptionError
from metaprior.inference import KeptMethod
from metaprior.output import prepare_folder, write_whole
from metaprior.scoring import Scores

MODEL, LIVE = "model.metaprior", "live.html"
"""The files of a model that was kept, and of a page on which it can be tried."""

FILES = "files"
"""Where results.json names the checksums of the other two."""

Published = Mapping[tuple[str, str], tuple[float, float]]


@dataclass
class Results:
    """What an experiment found. `add` takes a method's scores in one setting; `write` makes the three files."""

    experiment: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mb: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    tasks: list[pa.Table] = field(default_factory=list)
    curves: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    model: KeptMethod | None = None  # one of the methods, to be tried by hand …
    example: list[tuple[list[float], list[float]]] = field(default_factory=list)  # … on such points at first

    def add(self, method: str, setting: str, scores: Scores, published: Published | None = None) -> None:
        """One row per metric, beside the paper's figure where it has one, and each task's values.

        A mean that is infinite (a density where nothing is uncertain) is null in its row; the tasks' values keep it.
        """
        for metric in scores.metrics:
            mean, stderr, tasks = scores.summary(metric)
            paper_mean, paper_stderr = (published or {}).get((setting, metric), (None, None))
            self.rows.append(
                {
                    "method": method,
                    "setting": setting,
                    "metric": metric,
                    "mean": _finite(mean),
                    "stderr": _finite(stderr),
                    "tasks": tasks,
                    "paper_mean": paper_mean,
                    "paper_stderr": paper_stderr,
                }
            )
        for metric, values in scores.values.items():
            same = [[method] * len(values), [setting] * len(values), [metric] * len(values)]
            columns = [*same, [str(name) for name in scores.ids], values.numpy()]
            names = ["method", "setting", "metric", "task", "value"]
            self.tasks.append(pa.table(columns, names=names))

    def value(self, method: str, setting: str, metric: str) -> dict[str, Any]:
        """One row."""
        for row in self.rows:
            if (row["method"], row["setting"], row["metric"]) == (method, setting, metric):
                return row
        raise DataError(f"no row for {method!r}, {setting!r}, {metric!r} in {self.experiment}.")

    def added_to(self, earlier: Results) -> Results:
        """These rows and the earlier ones of other methods: one run of the same experiment in two parts."""
        if self.experiment != earlier.experiment:
            raise OptionError(f"the earlier results are of {earlier.experiment}, not of {self.experiment}.")
        new = {row["method"] for row in self.rows}
        kept = pa.concat_tables(earlier.tasks).filter(~pc.field("method").isin(list(new)))
        return Results(
            self.experiment,
            _merged(earlier.settings, self.settings),
            [row for row in earlier.rows if row["method"] not in new] + self.rows,
            seconds=earlier.seconds | self.seconds,
            peak_memory_mb=max(earlier.peak_memory_mb or 0.0, self.peak_memory_mb or 0.0) or None,
            versions=self.versions,
            tasks=[kept.select(["method", "setting", "metric", "task", "value"]), *self.tasks],
            curves=earlier.curves | self.curves,
            model=self.model,
            example=self.example,
        )

    def close(self) -> None:
        """Note what it took and what it ran on."""
        self.peak_memory_mb = _peak_memory_mb()
        packages = ("metaprior", "torch", "gpytorch", "numpy")
        self.versions = {"python": platform.python_version()} | {p: version(p) for p in packages}

    def write(self, folder: Path) -> None:
        """`results.json`, `tasks.parquet`, `curves.npz`, and the model if there is one: each whole or not at all.

        The first names the others' checksums, so that files of two runs, of which one was stopped, are not taken for
        one.
        """
        prepare_folder(folder)
        keys = ("experiment", "settings", "seconds", "peak_memory_mb", "versions", "rows", "claims")
        others = {"tasks.parquet": self._table_bytes(), "curves.npz": self._curve_bytes()}
        found = {key: getattr(self, key) for key in keys} | {FILES: {name: _crc(one) for name, one in others.items()}}
        text = json.dumps(found, indent=1, allow_nan=False)
        write_whole(folder / "results.json", lambda path: path.write_text(text + "\n"))
        for name, content in others.items():
            write_whole(folder / name, lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
        if self.model is not None:
            self.model.save(folder / MODEL)

    def _table_bytes(self) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(self.tasks), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def _curve_bytes(self) -> bytes:
        sink = io.BytesIO()
        np.savez_compressed(sink, **self.curves)  # type: ignore[arg-type]
        return sink.getvalue()

    @staticmethod
    def read(folder: Path) -> Results:
        """What `write` wrote."""
        try:
            found = json.loads((folder / "results.json").read_text())
            for name, crc in found.pop(FILES, {}).items():  # older ones do not name them
                if _crc((folder / name).read_bytes()) != crc:
                    raise ValueError(f"{name} is of another run than results.json. Run it again")
            table = pq.read_table(folder / "tasks.parquet")
            with np.load(folder / "curves.npz") as arrays:
                curves = dict(arrays)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} does not hold an experiment's results: {error}") from None
        return Results(**found, tasks=[table], curves=curves)


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def among_results(path: Path) -> bool:
    """Whether a file lies among the results that an earlier run has written."""
    try:
        return "experiment" in json.loads((path.parent / "results.json").read_text())
    except (OSError, ValueError):
        return False


def _merged(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Settings of both; what both state must be the same, but for what is kept by method."""
    merged = dict(earlier)
    for key, value in later.items():
        known = earlier.get(key, value)
        if isinstance(value, dict) and isinstance(known, dict):
            merged[key] = known | value
        elif known != value:
            raise OptionError(f"the earlier run has {key} = {known!r} and this one {value!r}: choose another folder.")
        else:
            merged[key] = value
    return merged


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
