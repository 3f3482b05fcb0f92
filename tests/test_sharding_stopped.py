"""Sharding that was stopped goes on where it was; folders of something else are left alone; what is wrong is told."""

import json
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metaprior import DataError, OutputError, Shards, shard
from metaprior.data import Manifest, sharding

OPTIONS = {"task": "id", "buckets": 4, "progress": False}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file that is read in five chunks."""
    monkeypatch.setattr(sharding, "CHUNK_ROWS", 60)
    monkeypatch.setattr("metaprior.data.streams.ROWS", 20)
    return table_at(tmp_path / "table.parquet")


def table_at(path, rows=300, seed=0):
    rng = np.random.default_rng(seed)
    table = pa.table({"id": rng.integers(0, 40, rows), "x": np.arange(float(rows)), "y": rng.normal(size=rows)})
    pq.write_table(table, path, row_group_size=70)
    return path


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def opened(folder):
    return Shards.open(folder, x="x", y="y")


# ---- stopped

KILLED = """
import json, os, random, shutil, signal, sys, zlib
import pandas  # which pyarrow else imports in every process
from metaprior.data import sharding, streams
sharding.CHUNK_ROWS, streams.ROWS = 60, 20
source, out = sys.argv[1:]

def look(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir") and out in str(arguments):
        seen += 1
        if seen == last:
            if event == "open" and "w" in str(arguments[1]):
                os.write(os.open(arguments[0], os.O_CREAT | os.O_WRONLY), b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)

def run(moment):
    "A process that is killed at this moment; how it ended."
    global seen, last
    child = os.fork()
    if child == 0:
        seen, last = 0, moment
        sys.addaudithook(look)
        sharding.shard(source, out, task="id", buckets=4, progress=False)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def done():
    "What was made; it is removed."
    found = {name: zlib.crc32(open(os.path.join(out, name), "rb").read()) for name in sorted(os.listdir(out))}
    shutil.rmtree(out)
    return found

moment, ends, shards, rng = 1, [], [], random.Random(0)
while run(moment):  # at each moment, and then to the end
    ends.append(run(0))
    shards.append(done())
    moment += 1
shards.append(done())
for _ in range(10):  # one kill after another
    run(rng.randint(1, moment // 2))
ends.append(run(0))
shards.append(done())
print(json.dumps([ends, shards]))
"""


def test_killed_at_any_moment_and_gone_on_with(source, tmp_path):
    alone = {name: zlib.crc32(found) for name, found in content(shard(source, tmp_path / "alone", **OPTIONS)).items()}
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(source), str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    ends, shards = json.loads(done.stdout)
    assert len(alone) == 5
    assert len(shards) > 60
    assert set(ends) == {0}
    assert all(found == alone for found in shards)


def recorded(patch, name, stop_at=None):
    """Of which chunks or buckets a step was done; at one of them the run is stopped."""
    done, step = [], getattr(sharding._Sharding, name)

    def recording(self, k, *rest):
        if k == stop_at:
            raise KeyboardInterrupt
        done.append(k)
        return step(self, k, *rest)

    patch.setattr(sharding._Sharding, name, recording)
    return done


def stopped(source, out, monkeypatch, **options):
    """Everything is read, and one bucket or more is written."""
    with monkeypatch.context() as patch:
        recorded(patch, "_write_bucket", 1)
        with pytest.raises(KeyboardInterrupt):
            shard(source, out, **OPTIONS, **options)


def test_what_is_whole_is_not_made_again(source, tmp_path, monkeypatch):
    expected, out = content(shard(source, tmp_path / "alone", **OPTIONS)), tmp_path / "out"
    monkeypatch.setattr(sharding, "WORKERS", 1)
    for name, stop_at in (("_write_chunk", 3), ("_write_bucket", 2)):
        with monkeypatch.context() as patch:
            first = recorded(patch, name, stop_at)
            with pytest.raises(KeyboardInterrupt):
                shard(source, out, **OPTIONS)
            assert first[:stop_at] == list(range(stop_at))
        with pytest.raises(DataError, match="not finished: run the same"):
            opened(out)
    with monkeypatch.context() as patch:
        patch.setattr(sharding._Sharding, "_read_rest", None)  # all is read
        buckets = recorded(patch, "_write_bucket")
        shard(source, out, **OPTIONS)
    assert 2 in buckets
    assert not {0, 1}.intersection(buckets)
    assert content(out) == expected
    with monkeypatch.context() as patch:
        again = recorded(patch, "_write_bucket")
        shard(source, out, **OPTIONS)  # there is nothing to do
    assert again == []


def test_chunks_after_a_gap_are_made_again(source, tmp_path, monkeypatch):
    expected, out = content(shard(source, tmp_path / "alone", **OPTIONS)), tmp_path / "out"
    stopped(source, out, monkeypatch)
    (out / "partial" / "read.json").unlink()
    whole = (out / "partial" / "chunk-000001.arrow").read_bytes()
    (out / "partial" / "chunk-000001.arrow").write_bytes(whole[: len(whole) // 2])
    with monkeypatch.context() as patch:
        chunks = recorded(patch, "_write_chunk")
        assert content(shard(source, out, **OPTIONS)) == expected
    assert sorted(chunks) == [1, 2, 3, 4]


def test_chunks_of_another_size_after_a_gap_are_not_taken(source, tmp_path, monkeypatch):
    expected, out = content(shard(source, tmp_path / "alone", **OPTIONS)), tmp_path / "out"
    stopped(source, out, monkeypatch)
    for name in ("read.json", "chunk-000001.arrow"):
        (out / "partial" / name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(sharding, "WORKERS", 1)
        patch.setattr(sharding, "CHUNK_ROWS", 100)
        recorded(patch, "_write_chunk", 2)
        with pytest.raises(KeyboardInterrupt):
            shard(source, out, **OPTIONS)
    assert content(shard(source, out, **OPTIONS)) == expected


def test_replacing_shards_can_be_stopped_too(source, tmp_path, monkeypatch):
    expected, out = content(shard(source, tmp_path / "alone", **OPTIONS)), tmp_path / "out"
    shard(source, out, **OPTIONS | {"buckets": 7})
    stopped(source, out, monkeypatch, overwrite=True)
    with pytest.raises(DataError, match="not finished"):
        opened(out)
    assert content(shard(source, out, **OPTIONS)) == expected


@pytest.mark.parametrize("disk", ["limit", "tmpfs"])
def test_a_full_disk_leaves_nothing_that_is_taken_for_whole(source, tmp_path, disk):
    expected, out = content(shard(source, tmp_path / "alone", **OPTIONS)), tmp_path / "out"
    out.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if disk == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    elif subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", out], capture_output=True).returncode:
        pytest.skip("only root makes a small disk")
    try:
        with pytest.raises(OutputError, match=r"cannot write .*: (File too large|No space left).*What is done is kept"):
            shard(source, out, **OPTIONS)
        assert not (out / "manifest.json").exists()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with pytest.raises(DataError, match="not finished"):
            opened(out)
        if disk == "tmpfs":
            subprocess.run(["mount", "-o", "remount,size=1m", out], check=True)
        assert content(shard(source, out, **OPTIONS)) == expected
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if disk == "tmpfs":
            subprocess.run(["umount", out], check=True)


# ---- another source, other options, another folder


def test_a_source_that_changed_is_not_gone_on_with(source, tmp_path, monkeypatch):
    out = tmp_path / "out"
    stopped(source, out, monkeypatch)
    with pytest.raises(OutputError, match=r"for the number of buckets is another.*--overwrite"):
        shard(source, out, **OPTIONS | {"buckets": 5})
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
    with pytest.raises(OutputError, match=r"not finished.*for the source has changed.*--overwrite"):
        shard(source, out, **OPTIONS)
    table_at(source, seed=1)
    with pytest.raises(OutputError, match="the source has changed"):
        shard(source, out, **OPTIONS)
    expected = content(shard(source, tmp_path / "alone", **OPTIONS))
    assert content(shard(source, out, **OPTIONS, overwrite=True)) == expected


def test_a_source_that_changes_while_it_is_read_is_told(source, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        write = sharding._Sharding._write_chunk
        patch.setattr(
            sharding._Sharding, "_write_chunk", lambda self, *rest: (os.utime(source, ns=(0, 1)), write(self, *rest))[1]
        )
        with pytest.raises(DataError, match="was changed while it was read"):
            shard(source, tmp_path / "out", **OPTIONS)
    assert opened(shard(source, tmp_path / "out", **OPTIONS)).rows == 300  # and starts anew


def test_finished_shards_are_replaced_only_if_asked(source, tmp_path):
    out = shard(source, tmp_path / "out", **OPTIONS)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds shards already.*--overwrite"):
        shard(source, out, **OPTIONS | {"buckets": 2})
    os.utime(source, ns=(0, (out / "manifest.json").stat().st_mtime_ns + 10**9))
    with pytest.raises(OutputError, match="holds shards already"):
        shard(source, out, **OPTIONS)  # the source is newer
    assert len(Manifest.read(shard(source, out, **OPTIONS | {"buckets": 2, "overwrite": True})).buckets) == 2
    names = {"bucket-00000.parquet", "bucket-00001.parquet", "manifest.json", "mine.txt"}
    assert {path.name for path in out.iterdir()} == names
    with pytest.raises(OutputError, match="would be lost"):
        shard(out, out, **OPTIONS | {"overwrite": True})


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "bucket-00000.parquet", "partial/mine.txt"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_left_alone(source, tmp_path, name, overwrite):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(OutputError, match=f"holds '{Path(name).parts[0]}', which is not of shards.*another --out"):
        shard(source, tmp_path / "out", **OPTIONS, overwrite=overwrite)
    assert content(tmp_path / "out") == {name: b"{}"}
