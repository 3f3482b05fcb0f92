"""Results are data: three files, from which table, figures and page are made."""

from __future__ import annotations

import io
import json
import math
import platform
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metaprior.errors import DataError, MetapriorError, OptionError
from metaprior.files import load_method
from metaprior.inference import KeptMethod
from metaprior.output import prepare_folder, write_whole
from metaprior.scoring import Scores

MODEL, LIVE = "model.metaprior", "live.html"
"""The files of a model that was kept, and of a page on which it can be tried."""

FILES = "files"
"""Where results.json names the checksums of the other two."""

KEYS = ("experiment", "settings", "seconds", "peak_memory_mb", "versions", "rows", "claims", "parts")
"""What results.json holds; what is in arrays is in the other two files."""

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
    parts: list[str] = field(default_factory=list)  # of the experiment, complete: "METHOD" or "METHOD, SETTING"

    def add(self, method: str, setting: str, scores: Scores, published: Published | None = None) -> None:
        """One row per metric, beside the paper's figure where it has one, and each task's values.

        Rows of an earlier run, of the same method and setting, are replaced. A mean that is infinite (a density where
        nothing is uncertain) is null in its row; the tasks' values keep it.
        """
        self._remove(method, setting)
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

    def _remove(self, method: str, setting: str) -> None:
        """Drop the rows of a method in one setting, if there are any."""
        key = (method, setting)
        if any((row["method"], row["setting"]) == key for row in self.rows):
            self.rows = [row for row in self.rows if (row["method"], row["setting"]) != key]
            others = (pc.field("method") != method) | (pc.field("setting") != setting)
            self.tasks = [table.filter(others) for table in self.tasks]

    def continued(self, experiment: str, settings: dict[str, Any]) -> Results:
        """A copy to add rows to. settings: of the run that goes on; those that both runs state must be the same."""
        if self.experiment != experiment:
            raise OptionError(f"the earlier results are of {self.experiment}, not of {experiment}.")
        return Results(
            experiment,
            _merged(_as_read(self.settings), _as_read(settings)),
            list(self.rows),
            seconds=dict(self.seconds),
            peak_memory_mb=self.peak_memory_mb,
            tasks=list(self.tasks),
            curves=dict(self.curves),
            model=self.model,
            parts=list(self.parts),
        )

    def reopened(self, methods: Collection[str]) -> Results:
        """The same, with the parts of these methods (none: of all) to be run again; their rows stay until then."""

        def again(part: str) -> bool:
            return not methods or part.partition(", ")[0] in methods

        parts = [part for part in self.parts if not again(part)]
        seconds = {name: value for name, value in self.seconds.items() if not again(name)}
        return replace(self, parts=parts, seconds=seconds)

    def close(self) -> None:
        """Note what it took and what it ran on."""
        self.peak_memory_mb = max(self.peak_memory_mb or 0.0, _peak_memory_mb() or 0.0) or None
        packages = ("metaprior", "torch", "gpytorch", "numpy")
        self.versions = {"python": platform.python_version()} | {p: version(p) for p in packages}

    def write(self, folder: Path) -> None:
        """`results.json`, `tasks.parquet`, `curves.npz`, and the model if there is one: each whole or not at all.

        The first names the others' checksums, so that files of two runs, of which one was stopped, are not taken for
        one.
        """
        prepare_folder(folder)
        for name, content in self._files().items():
            write_whole(folder / name, lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
        if self.model is not None:
            self.model.save(folder / MODEL)

    def save_checkpoint(self, path: Path) -> None:
        """What there is so far, in one file: whole or not at all, so a run that is killed loses no complete part."""
        files = self._files()

        def write(part: Path) -> None:
            with zipfile.ZipFile(part, "w") as archive, tempfile.TemporaryDirectory() as folder:
                for name, content in files.items():
                    archive.writestr(name, content)
                if self.model is not None:
                    self.model.save(Path(folder) / MODEL)
                    archive.write(Path(folder) / MODEL, MODEL)

        write_whole(path, write)

    def _files(self) -> dict[str, bytes]:
        """The content of the three files."""
        others = {"tasks.parquet": self._table_bytes(), "curves.npz": self._curve_bytes()}
        found = {key: getattr(self, key) for key in KEYS} | {FILES: {name: _crc(one) for name, one in others.items()}}
        text = json.dumps(found, indent=1, allow_nan=False) + "\n"
        return {"results.json": text.encode()} | others

    def _table_bytes(self) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(self.tasks).combine_chunks(), sink)
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
            return _results_in(lambda name: (folder / name).read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} does not hold an experiment's results: {error}") from None

    @staticmethod
    def read_checkpoint(path: Path) -> Results:
        """What `save_checkpoint` wrote."""
        try:
            with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
                results = _results_in(archive.read)
                if MODEL in archive.namelist():
                    results.model = load_method(archive.extract(MODEL, folder))
                return results
        except (zipfile.BadZipFile, LookupError, TypeError, OSError, ValueError, MetapriorError) as error:
            raise DataError(
                f"{path} does not hold the rows of a run that was stopped ({error}): start anew with --overwrite."
            ) from None


def _results_in(content: Callable[[str], bytes]) -> Results:
    """Results from the content of the three files, by name."""
    found = json.loads(content("results.json"))
    for name, crc in found.pop(FILES, {}).items():  # older ones do not name them
        if _crc(content(name)) != crc:
            raise ValueError(f"{name} is of another run than results.json. Run it again")
    table = pq.read_table(io.BytesIO(content("tasks.parquet")))
    with np.load(io.BytesIO(content("curves.npz"))) as arrays:
        curves = dict(arrays)
    return Results(**found, tasks=[table], curves=curves)


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def among_results(path: Path) -> bool:
    """Whether a file lies among the results that an earlier run has written."""
    try:
        return "experiment" in json.loads((path.parent / "results.json").read_text())
    except (OSError, ValueError):
        return False


def _as_read(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they come back from a file, where tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def _merged(earlier: dict[str, Any], later: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Settings of both; what both state must be the same."""
    merged = dict(earlier)
    for key, value in later.items():
        known = earlier.get(key, value)
        if isinstance(value, dict) and isinstance(known, dict):
            merged[key] = _merged(known, value, f"{place}{key}, ")
        elif known != value:
            raise OptionError(
                f"the earlier run has {place}{key} = {known!r} and this one {value!r}: choose another folder, or "
                "replace that run with --overwrite."
            )
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
