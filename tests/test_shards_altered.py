"""Shards that are not what their manifest says, or none at all, are told before anything is learned from them."""

import json
import os
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metaprior import DataError, Shards, shard
from metaprior.data import Manifest


@pytest.fixture
def made(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"id": rng.integers(0, 40, 300), "x": np.arange(300.0), "y": rng.normal(size=300)})
    pq.write_table(table, tmp_path / "table.parquet")
    return shard(tmp_path / "table.parquet", tmp_path / "shards", task="id", buckets=4, progress=False)


def opened(folder):
    return Shards.open(folder, x="x", y="y")


def altered(folder, **entries):
    """A manifest with other entries."""
    found = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(found | entries))


def replaced(folder, k, change, **entries):
    """A bucket with other rows, of which the manifest knows size, checksum and whatever is said."""
    found = json.loads((folder / "manifest.json").read_text())
    path = folder / found["buckets"][k]["file"]
    pq.write_table(change(pq.read_table(path)), path)
    found["buckets"][k] |= {"bytes": path.stat().st_size, "crc32": f"{zlib.crc32(path.read_bytes()):08x}"} | entries
    totals = {name: sum(one[name] for one in found["buckets"]) for name in ("tasks", "rows")}
    altered(folder, buckets=found["buckets"], **totals)


def test_what_is_no_folder_of_shards_is_told(made, tmp_path):
    for folder, said in (
        (tmp_path / "none", "there is no folder"),
        (tmp_path, r"has no manifest\.json.*metaprior shard"),
    ):
        with pytest.raises(DataError, match=said):
            opened(folder)
    for text, said in (("{", "cannot be read"), ('{"format": "other"}', "no manifest of shards")):
        (made / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=said):
            opened(made)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"version": 2}, "of version 2"),
        ({"hash": "md5"}, "hash 'md5'"),
        ({"rows": 301}, "do not add up"),
        ({"tasks": 1}, "do not add up"),
        ({"buckets": []}, "lacks something"),
        ({"moments": 3}, "lacks something"),
    ],
)
def test_manifests_that_make_no_sense(made, entries, said):
    altered(made, **entries)
    with pytest.raises(DataError, match=said):
        opened(made)


def test_roles_that_the_table_does_not_have(made):
    with pytest.raises(DataError, match="made by the task column id, not x"):
        Shards.open(made, task="x", x="x", y="y")
    with pytest.raises(DataError, match="no column 'yy'"):
        Shards.open(made, x="x", y="yy")
    assert Shards.open(made, task=["id"], x="x", y="y").fingerprint != Shards.open(made, x="y", y="x").fingerprint
    assert opened(made).fingerprint == opened(made).fingerprint


def test_buckets_that_are_missing_or_of_another_size(made):
    shards, path = opened(made), made / "bucket-00002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    for read in (lambda: opened(made), lambda: shards.part(2)):
        with pytest.raises(DataError, match=r"bucket-00002\.parquet was altered: bytes.*make the shards again"):
            read()
    path.unlink()
    for read in (lambda: opened(made), lambda: shards.part(2)):
        with pytest.raises(DataError, match=r"bucket-00002\.parquet is missing"):
            read()


def test_buckets_of_other_bytes_also_after_they_were_read(made):
    shards, path = opened(made), made / "bucket-00001.parquet"
    assert len(shards.part(1))
    whole = bytearray(path.read_bytes())
    whole[40] ^= 1
    path.write_bytes(whole)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    for one in (shards, opened(made)):
        with pytest.raises(DataError, match="was altered: the checksum"):
            one.part(1)


def test_buckets_of_which_only_the_content_is_wrong(made):
    first = Manifest.read(made).buckets[0]
    replaced(made, 0, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    with pytest.raises(DataError, match=f"altered: rows {first.rows + 1}, and in the manifest {first.rows}"):
        opened(made).part(0)
    replaced(made, 0, lambda table: table, rows=first.rows + 1)  # but a task is in two places
    with pytest.raises(DataError, match=f"altered: tasks {first.tasks + 1}, and in the manifest {first.tasks}"):
        opened(made).part(0)


def test_a_task_in_two_buckets(made):
    first, last = (Manifest.read(made).buckets[k] for k in (0, 3))
    more = pq.read_table(made / first.file)
    counts = {"rows": first.rows + last.rows, "tasks": first.tasks + last.tasks}
    replaced(made, 3, lambda table: pa.concat_tables([table, more]), **counts)
    with pytest.raises(
        DataError, match=r"holds the task \d+, which belongs to bucket-00000\.parquet: a task is in one"
    ):
        opened(made).part(3)


def test_other_columns_than_those_of_the_manifest(made):
    replaced(made, 1, lambda table: table.set_column(1, "x", table["x"].cast(pa.float32())))
    with pytest.raises(DataError, match=r"altered: the columns.*float.*double"):
        opened(made).part(1)
    replaced(made, 1, lambda table: table.drop_columns("x"))
    with pytest.raises(DataError, match="altered: the columns"):
        opened(made).part(1)
