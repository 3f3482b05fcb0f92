"""The campaign of faults at its smallest: it kills, it tries, and it finds what is put in."""

import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from campaign.faults import HOW, _other_checks, children, run
from campaign.faults.jobs import JOBS
from campaign.faults.others import PAIRS
from campaign.faults.outcomes import TORN, content, same_numbers
from campaign.parts import Effort


def test_a_little_of_it_holds_and_finds_what_is_put_in():
    found = run(Effort(0.001))
    assert found.holds, [check for check in found.checks if not check.holds]
    assert found.counts["kills"] == 3
    assert found.counts["tries of other faults"] == 3
    assert [check.text for check in found.checks if "put in" in check.text] == [
        "found, when it is put in: a resume that ignores its checkpoint's generator"
    ]
    kills, others = found.tables
    assert sum(row[1] for row in kills.rows) == 3
    assert sum(sum(row[2:]) for row in others.rows) == 3


def test_all_that_is_asked_for_is_killed_and_every_fault_met():
    assert {job.what for job in JOBS} == {"fit", "predict", "compare", "reproduce", "fetch", "shard", "save"}
    assert len({name for _, name in PAIRS}) > 10
    assert "{kills" in HOW


def test_a_child_that_does_not_begin_is_made_anew(tmp_path, monkeypatch):
    """As one whose copy of a lock nobody will ever release: it waits for ever."""
    monkeypatch.setenv("METAPRIOR_FAULTS", str(tmp_path))
    monkeypatch.setattr(children, "BEGUN", 0.2)
    made, started = [], children.started

    def first_waits(work, place, before):
        waits = not made
        made.append(started(work, place, (lambda: time.sleep(60)) if waits else before))
        return made[-1]

    monkeypatch.setattr(children, "started", first_waits)
    ended = children.child(lambda: sys.exit(2), tmp_path)
    assert (ended.code, len(made)) == (2, 2)
    assert not list(tmp_path.glob("said-*"))


def test_what_is_torn_is_told_from_what_is_whole(tmp_path):
    files = {
        "m": b"half of", "r/results.json": b'{"a": 1', "r/performance.png": b"\x89PNG", "r/report.html": b"<html>",
        "r/performance.svg": b"<svg>", "r/curves.npz": b"PK", "p.parquet": b"PAR1",
    }  # fmt: skip
    (tmp_path / "r").mkdir()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    found = content(tmp_path)
    assert set(found) == set(files)
    assert all(said.startswith(TORN) for said in found.values())


def test_the_last_digits_of_a_table_are_no_other_table(tmp_path):
    def written(name, **columns):
        table = pa.table({"task": ["a", "b"], "mean": [1.5, None]} | columns)
        {".csv": csv.write_csv, ".parquet": pq.write_table}[Path(name).suffix](table, tmp_path / name)
        return tmp_path / name

    for kind in (".csv", ".parquet"):
        one, two = written(f"one{kind}"), written(f"two{kind}", mean=[1.5 + 4e-16, None])
        others = [written(f"other{kind}", mean=[1.5 + 1e-9, None]), written(f"third{kind}", task=["a", "c"])]
        assert one.read_bytes() != two.read_bytes()
        assert same_numbers(one, two)
        assert not any(same_numbers(one, other) for other in others)
    (tmp_path / "m").write_bytes(b"")
    assert not same_numbers(tmp_path / "m", tmp_path / "m")


def test_a_fault_that_is_not_told_does_not_hold():
    tried = {"fault": "full disk", "job": "save", "how": "tmpfs", "code": 1}
    right, wrong = (_other_checks([tried | {"wrong": said}])[0] for said in ("", "exit code 1"))
    assert right.holds
    assert not wrong.holds
    assert "save (tmpfs): exit code 1" in wrong.because
