"""Shards: what is written is the table, each task is in one bucket, and nothing that was altered is read."""

import datetime
import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaprior import DataError, Shards, Tasks, shard
from metaprior.data import Manifest, sharding
from metaprior.data.hashing import hashes
from metaprior.tasks import Covariate

DAY = datetime.date(2020, 1, 1)


def made_up(rows=400, tasks=40, seed=0):
    """A table in random order, with numbers, dates, times and text."""
    rng = np.random.default_rng(seed)
    task = rng.integers(0, tasks, rows)
    return pa.table(
        {
            "id": task,
            "x": np.arange(rows, dtype=float),
            "y": rng.normal(size=rows),
            "day": [DAY + datetime.timedelta(days=int(k)) for k in rng.integers(0, 999, rows)],
            "at": pa.array([datetime.datetime(2020, 1, 1, 5, int(k) % 60) for k in task], pa.timestamp("us")),
            "diet": [f"diet {k % 3}" for k in task],
            "school": [f"school {k % 5}" for k in task],
        }
    )


def sharded(table, folder, **options):
    """A table through a Parquet file into shards."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "table.parquet", row_group_size=90)
    return shard(
        folder / "table.parquet", folder / "shards", **{"task": "id", "buckets": 7, "progress": False} | options
    )


def buckets(folder):
    return [pq.read_table(path) for path in sorted(Path(folder).glob("bucket-*.parquet"))]


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(sharding, "CHUNK_ROWS", 50)
    monkeypatch.setattr("metaprior.data.streams.ROWS", 20)


# ---- the hash


def mixed(state):
    """A step of SplitMix64, in whole numbers."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def hashed(state, value):
    if not isinstance(value, str):
        word = np.float64(value).view(np.uint64) if isinstance(value, float) else value % 2**64
        return mixed(state ^ int(word))
    text = value.encode()
    state = mixed(state ^ len(text))
    for start in range(0, len(text), 8):
        state = mixed(state ^ int.from_bytes(text[start : start + 8], "little"))
    return state


def test_the_hash_is_splitmix64():
    assert hashes([pa.array([0])], ["id"]).tolist() == [0xE220A8397B1DCDAF]  # as published, of the seed 0
    assert hashes([pa.array(["task-7"])], ["id"]).tolist() == [hashed(0, "task-7")] == [13885803723974726]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=30), st.floats(-1e9, 1e9)), min_size=1))
def test_hashes_are_those_of_python(rows):
    whole, text, parts = map(list, zip(*rows, strict=True))
    expected = [hashed(hashed(hashed(0, k), word), part + 0.0) for k, word, part in rows]
    arrays = [pa.array(whole), pa.array(text), pa.array(parts)]
    assert hashes(arrays, ["k", "word", "part"]).tolist() == expected
    large = [arrays[0], arrays[1].cast(pa.large_string()), arrays[2]]
    assert (
        hashes([array.slice(len(rows) // 2) for array in large], ["k", "word", "part"]).tolist()
        == (expected[len(rows) // 2 :])
    )


def test_a_number_has_one_hash_whatever_holds_it():
    kinds = [pa.array([7], kind) for kind in (pa.int8(), pa.int32(), pa.uint64(), pa.date32(), pa.timestamp("us"))]
    assert {int(hashes([array], ["id"])[0]) for array in kinds} == {hashed(0, 7)}
    assert len({int(hashes([pa.array([zero])], ["id"])[0]) for zero in (0.0, -0.0)}) == 1
    with pytest.raises(DataError, match="'id' holds list"):
        hashes([pa.array([[1]])], ["id"])


# ---- what is written is the table

IDS = {
    "numbers": st.integers(-3, 12),
    "text": st.sampled_from(["a", "b", "7", "007", "ä", "a longer name of a task"]),
    "fractions": st.sampled_from([0.5, 1.5, -2.0, 0.0, -0.0]),
}


@pytest.mark.parametrize("kind", IDS)
@given(data=st.data(), count=st.integers(1, 9), chunk=st.integers(1, 40))
def test_the_union_of_all_buckets_is_the_table(tmp_path_factory, kind, data, count, chunk):
    ids = data.draw(st.lists(st.tuples(IDS[kind], st.sampled_from(["u", "v"])), min_size=1, max_size=60))
    first, second = map(list, zip(*ids, strict=True))
    numbers = data.draw(st.lists(st.none() | st.floats(-9, 9), min_size=len(ids), max_size=len(ids)))
    table = pa.table({"id": first, "row": range(len(ids)), "y": pa.array(numbers, pa.float64()), "site": second})
    for task in (["id"], ["site", "id"]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharding, "CHUNK_ROWS", chunk)
            folder = sharded(table, tmp_path_factory.mktemp("s"), task=task, buckets=count)
        found, names = buckets(folder), [tuple(row[name] for name in task) for row in table.to_pylist()]
        assert sorted(row["row"] for part in found for row in part.to_pylist()) == list(range(len(ids)))
        assert all(row == table.to_pylist()[row["row"]] for part in found for row in part.to_pylist())
        for k, part in enumerate(found):
            own = [tuple(row[name] for name in task) for row in part.to_pylist()]
            assert own == sorted(own)  # tasks in order
            pairs = pairwise(zip(own, part["row"].to_pylist(), strict=True))
            assert all(a < b for (one, a), (other, b) in pairs if one == other)  # rows of a task as they came
            assert all(int(hashes([pa.array([v]) for v in name], task)[0]) % count == k for name in own)
        sizes = [Counter(names[row] for row in part["row"].to_pylist()) for part in found]
        manifest = Manifest.read(folder)
        assert [one.tasks for one in manifest.buckets] == [len(own) for own in sizes]
        assert [one.largest for one in manifest.buckets] == [max(own.values(), default=0) for own in sizes]
        assert [one.smallest for one in manifest.buckets] == [min(own.values(), default=0) for own in sizes]


def test_tasks_are_those_of_the_table(tmp_path, small_chunks):
    table = made_up()
    names = {"x": ["x", "day"], "y": "y", "task_x": ["diet"], "cluster": "school"}
    shards = Shards.open(sharded(table, tmp_path), **names)
    expected, found = Tasks.from_table(table, task="id", **names), shards.sample(10**9)
    assert (shards.tasks, shards.rows, shards.count) == (len(expected), 400, 7)
    order = [found.ids.index(name) for name in expected.ids]
    for tasks in (found.select(order), _joined(shards, expected)):
        assert tasks.ids == expected.ids
        assert tasks.columns == expected.columns == shards.columns
        assert all(torch.equal(getattr(tasks, one), getattr(expected, one)) for one in ("x", "y", "offsets"))
        assert torch.equal(tasks.covariates, expected.covariates)
        assert tasks.dated == ("day",)
        same = [own[:, None] == own[None] for own in (tasks.clusters, expected.clusters)]
        assert torch.equal(*same)


def _joined(shards, like):
    """All parts one after another, in the order of other tasks."""
    tasks = Tasks.one_after_another([shards.part(k) for k in range(shards.count)])
    return tasks.select([tasks.ids.index(name) for name in like.ids])


def test_the_same_bytes_however_it_was_read(tmp_path, monkeypatch):
    table = made_up()
    expected = content(sharded(table, tmp_path / "one"))
    assert len(expected) == 8
    monkeypatch.setattr(sharding, "CHUNK_ROWS", 33)
    monkeypatch.setattr(sharding, "WORKERS", 1)
    assert content(sharded(table, tmp_path / "two")) == expected


def test_moments_and_levels(tmp_path, small_chunks):
    table = made_up()
    y = [None if k % 50 == 3 else float("nan") if k % 50 == 4 else v for k, v in enumerate(table["y"].to_pylist())]
    table = table.set_column(2, "y", pa.array(y)).append_column("name", pa.array([f"n{k}" for k in range(400)]))
    manifest = Manifest.read(sharded(table, tmp_path))
    seen = np.array([v for v in y if v is not None and v == v])
    found = manifest.moments["y"]
    assert (found.count, found.missing, found.min, found.max) == (len(seen), 16, seen.min(), seen.max())
    assert found.mean == pytest.approx(seen.mean(), abs=1e-14)
    assert found.variance == pytest.approx(seen.var(), rel=1e-13)
    days = [(day - datetime.date(1970, 1, 1)).days for day in table["day"].to_pylist()]
    assert manifest.moments["day"].mean == pytest.approx(np.mean(days), rel=1e-14)
    assert set(manifest.moments) == {"id", "x", "y", "day", "at"}
    assert manifest.levels == {
        "diet": ["diet 0", "diet 1", "diet 2"],
        "school": [f"school {k}" for k in range(5)],
        "name": None,
    }
    assert [name for name, _ in manifest.schema] == table.column_names
    assert manifest.source == [manifest.source[0]]
    assert manifest.source[0]["file"] == "table.parquet"
    assert "modified" not in manifest.source[0]


def test_levels_are_those_of_all_buckets(tmp_path):
    shards = Shards.open(sharded(made_up(tasks=9), tmp_path), x="x", y="y", task_x="diet")
    assert shards.columns.task_x == (Covariate("diet", ("diet 0", "diet 1", "diet 2")),)
    for k in range(shards.count):
        part = shards.part(k)
        assert part.columns.task_x == shards.columns.task_x
        assert part.covariates.argmax(1).tolist() == [name % 3 for name in part.ids]
    with pytest.raises(DataError, match="which no past task had"):
        Shards.open(tmp_path / "shards", x="x", y="y", task_x=[Covariate("diet", ("diet 0",))]).sample(9)


# ---- reading


@pytest.mark.parametrize("count", [1, 7])
def test_a_sample_says_nothing_about_the_ids(tmp_path, count):
    shards = Shards.open(sharded(made_up(2000, 200), tmp_path, buckets=count), x="x", y="y")
    few, more = shards.sample(20), shards.sample(60)
    assert (len(few), len(more)) == (20, 60)
    assert set(few.ids) < set(more.ids)
    assert abs(np.mean(more.ids) - 99.5) < 20  # the first by id would have 29.5
    own = {name: hashed(0, name) for name in shards.sample(10**9).ids}
    assert set(more.ids) == set(sorted(own, key=lambda name: (own[name] % count, own[name]))[:60])
    home = shards.part(own[more.ids[0]] % count)
    assert torch.equal(more[0].y, home[home.ids.index(more.ids[0])].y)


def test_empty_buckets_are_parts_without_tasks(tmp_path):
    table = made_up(30, 3)
    names = {"x": ["x", "day"], "y": "y", "task_x": ["diet"], "cluster": "school"}
    shards = Shards.open(sharded(table, tmp_path, buckets=9), **names)
    sizes = [len(shards.part(k)) for k in range(9)]
    assert sum(sizes) == 3
    empty = shards.part(sizes.index(0))
    assert empty.x.shape == (0, 2)
    assert empty.y.shape == (0, 1)
    assert empty.covariates.shape == (0, 3)
    assert empty.columns == shards.columns
    assert len(Tasks.one_after_another([shards.part(k) for k in range(9)])) == 3


def test_what_is_missing_is_told_with_its_bucket_or_dropped(tmp_path):
    table = made_up()
    y = [
        None if name < 35 else value
        for name, value in zip(table["id"].to_pylist(), table["y"].to_pylist(), strict=True)
    ]
    diet = [None if name == 36 else "plain" for name in table["id"].to_pylist()]
    table = table.set_column(2, "y", pa.array(y)).set_column(5, "diet", pa.array(diet))
    folder, names = sharded(table, tmp_path, buckets=40), {"x": "x", "y": "y", "task_x": "diet"}
    strict, shards = (Shards.open(folder, **names, missing=missing) for missing in ("error", "drop"))
    for name, said in ((3, "NaN or infinity in column 'y'"), (36, "task column 'diet' is empty for task 36")):
        home = hashed(0, name) % 40
        with pytest.raises(DataError, match=rf"bucket-000{home:02d}\.parquet: {said}"):
            strict.part(home)
        assert name not in shards.part(home).ids
    assert sorted(name for k in range(40) for name in shards.part(k).ids) == [35, 37, 38, 39]
    assert set(shards.sample(10).ids) == {35, 37, 38, 39}
    assert len(shards.sample(2)) == 2


def test_clusters_have_the_same_numbers_in_all_parts(tmp_path):
    shards = Shards.open(sharded(made_up(), tmp_path), x="x", y="y", cluster="school")
    found = {}
    for tasks in [shards.sample(30), *(shards.part(k) for k in range(7))]:
        for name, group in zip(tasks.ids, tasks.clusters.tolist(), strict=True):
            assert found.setdefault(name % 5, group) == group
    assert len(set(found.values())) == 5
    two = made_up().set_column(6, "school", pa.array(["one", "two"] * 200))
    with pytest.raises(DataError, match="'school' is not constant within"):
        Shards.open(sharded(two, tmp_path / "two"), x="x", y="y", cluster="school").part(0)
    one = made_up().set_column(6, "school", pa.array(["one"] * 400))
    with pytest.raises(DataError, match="1 cluster: some are held out"):
        Shards.open(sharded(one, tmp_path / "one"), x="x", y="y", cluster="school").sample(9)


def test_what_targets_can_be_is_checked_in_every_bucket(tmp_path):
    folder = sharded(made_up(), tmp_path)
    assert str(Shards.open(folder, x="x", y="y", support=(-99, None)).part(0).possible[0])
    with pytest.raises(DataError, match=r"bucket-00000\.parquet: .*'y'"):
        Shards.open(folder, x="x", y="y", support=(0, None)).part(0)


def test_shards_can_be_sent_elsewhere(tmp_path):
    shards = Shards.open(sharded(made_up(), tmp_path), x="x", y="y", task_x="diet", cluster="school")
    other = pickle.loads(pickle.dumps(shards))
    assert other.fingerprint == shards.fingerprint
    assert other.part(3).ids == shards.part(3).ids
