"""The small jobs that are stopped: what is run, on what, and where its outcome lies."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

import metaprior
from campaign.faults.children import command
from metaprior import model
from metaprior.cli import fit_shards
from metaprior.data import Source, sharding, streams
from metaprior.data.fetch import SOURCES, check_md5
from metaprior.learning import checkpoints

BODY = np.random.default_rng(0).bytes(600_000)
"""What is downloaded, as three files."""

FILES = tuple(f"{name}-idx{k}-ubyte.gz" for name, k in (("train-images", 3), ("train-labels", 1), ("t10k-images", 3)))

COLUMNS = ("--task", "id", "--x", "x", "--y", "y")

SAMPLE = 60
"""Tasks of the sample that a training on shards begins with: small enough for small shards."""


@dataclass(frozen=True)
class Job:
    """Some work in a folder of its own; and, where it may be done in the place of another, that work.

    kept: where a training is kept while it goes on.
    """

    name: str
    what: str  # of fit, predict, compare, reproduce, fetch, shard and save
    work: Callable[[Path], None]
    earlier: Callable[[Path], None] | None = None
    kept: str = ""


def _words(*words: str) -> Callable[[Path], None]:
    """A command; {given} is the folder of what it reads."""
    return partial(_run, words)


def _run(words: tuple[str, ...], given: Path) -> None:
    command([word.replace("{given}", str(given)) for word in words])


def _both(name: str, what: str, *words: str, now: str, before: str, kept: str = "") -> Job:
    """A command, and the same with another option for what is there before."""
    return Job(name, what, _words(*words, now), _words(*words, before), kept)


def _save(seed: int, given: Path) -> None:
    """A model loaded and written in the place of another, ten times."""
    gp = metaprior.load(given / f"{seed}.metaprior")
    for _ in range(10):
        gp.save("m")


def _by_adam(seed: int, given: Path) -> None:
    """A training on random minibatches, whose generator goes on too; what was learned is kept until it is saved."""
    table = csv.read_csv(given / "table.csv")
    gp = metaprior.MetaGP(
        "deep", "deep", hidden=(6,), optimizer="adam", batch_size=8, max_epochs=30, seed=seed, progress=False
    )
    gp.fit(table, task="id", x="x", y="y", checkpoint="m.checkpoint", keep=True).save("m")
    Path("m.checkpoint").unlink()


def _fetch(given: Path) -> None:
    """A download of some files from the server here."""
    home = (given / "address").read_text()
    md5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
    SOURCES["mnist"] = tuple(Source(name, (f"{home}/{name}",), partial(check_md5, md5)) for name in FILES)
    command(["data", "fetch", "mnist", "--folder", "."])


FIT = ("fit", "{given}/table.csv", *COLUMNS, "--out", "m", "--quiet", "--resume")
SHARDS = ("fit", "{given}/shards", *COLUMNS[2:], "--workers", "1", "--out", "m", "--quiet", "--resume")
PREDICT = ("predict", "{given}/0.metaprior")
SEEDS = {"now": "--seed=0", "before": "--seed=7"}
LEVELS = {"now": "--level=0.9", "before": "--level=0.5"}

DEEP = ("--mean", "deep", "--kernel", "deep", "--epochs", "80")

JOBS = (
    _both("fit auto", "fit", *FIT, "--rungs", "gp per task,shared gp,fpca", **SEEDS, kept=".m.checkpoint"),
    _both("fit of one prior", "fit", *FIT, *DEEP, **SEEDS, kept=".m.checkpoint"),
    Job("fit by Adam", "fit", partial(_by_adam, 0), partial(_by_adam, 7), kept="m.checkpoint"),
    _both("fit of shards", "fit", *SHARDS, "--rungs", "fpca", **SEEDS, kept=".m.parts"),
    _both(
        "fit of shards, one prior", "fit", *SHARDS, "--mean", "linear", "--kernel", "rbf", "--epochs", "10",
        **SEEDS, kept=".m.parts",
    ),
    _both(
        "predict to CSV", "predict", *PREDICT, "{given}/table.csv", "--at", "0:1:0.002", "--quiet", "--out", "p.csv",
        **LEVELS,
    ),
    _both(
        "predict to Parquet", "predict", *PREDICT, "{given}/table.parquet", "--at", "0:1:0.005", "--samples", "2",
        "--quiet", "--out", "p.parquet", **LEVELS,
    ),
    Job(
        "predict shards", "predict",
        _words(*PREDICT, "{given}/shards", "--at", "0:1:0.01", "--workers", "1", "--quiet", "--out", "p"),
    ),
    _both(
        "compare", "compare", "compare", "{given}/table.csv", *COLUMNS, "--methods", "last value,shared gp", "--folds",
        "2", "--context", "2", "--report", "r", "--out", "m", "--quiet", **SEEDS,
    ),
    _both(
        "reproduce", "reproduce", "reproduce", "step", "--quick", "--out", "r", "--resume",
        now="--methods=vanilla,learned mean,bayes limit", before="--methods=vanilla", kept="r/.checkpoint",
    ),
    Job("fetch", "fetch", _fetch),
    Job("shard", "shard", _words("shard", "{given}/table.parquet", "--task=id", "--quiet", "--out=s", "--buckets=4")),
    Job("save", "save", partial(_save, 0), partial(_save, 1)),
)  # fmt: skip


def table_of(tasks: int, seed: int) -> pa.Table:
    """Tasks of a few points: a curve that all share, each on a level of its own."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(tasks), rng.integers(3, 8, tasks))
    x = rng.uniform(0, 1, len(owner))
    y = np.sin(5 * x) + rng.normal(size=tasks)[owner] + 0.2 * rng.normal(size=len(x))
    return pa.table({"id": [f"t{k}" for k in owner], "x": x, "y": y})


def make_given(given: Path) -> None:
    """What the jobs read."""
    given.mkdir()
    table = table_of(40, 0)
    csv.write_csv(table, given / "table.csv")
    pq.write_table(table, given / "table.parquet")
    sharding.shard(
        _written(table_of(150, 1), given / "more.parquet"), given / "shards", task="id", buckets=6, progress=False
    )
    for seed in (0, 1):
        gp = metaprior.MetaGP("deep", "deep", hidden=(24, 24), max_epochs=3, seed=seed, progress=False)
        gp.fit(table, task="id", x="x", y="y").save(given / f"{seed}.metaprior")


def _written(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path)
    return path


def make_small() -> None:
    """Let what is done every few seconds, or from thousands of rows on, be done in small jobs too."""
    checkpoints.EVERY = 0.0
    sharding.CHUNK_ROWS, streams.ROWS = 60, 20
    for module in (model, fit_shards):
        vars(module).update(SAMPLE=SAMPLE, OF_ONE=SAMPLE)


class _Slow(BaseHTTPRequestHandler):
    """Gives a body piece by piece, from where it is asked for."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "bytes=0-")
        start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start >= len(BODY):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(BODY)}")
            self.end_headers()
            return
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Range", f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
        self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        try:
            for first in range(start, len(BODY), 60_000):
                self.wfile.write(BODY[first : first + 60_000])
                time.sleep(0.01)
        except OSError:
            pass  # whoever asked was killed

    def log_message(self, *_: Any) -> None:
        pass


def serve(given: Path) -> int:
    """A server on this machine alone, in a child; its number. It ends with whoever started it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    (given / "address").write_text(f"http://127.0.0.1:{server.server_port}")
    parent, pid = os.getpid(), os.fork()
    if pid:
        server.socket.close()
        return pid
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)
