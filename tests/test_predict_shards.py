"""Shards are predicted bucket by bucket, as the table they were made of is; whatever stops a run, it goes on."""

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metaprior import DataError, MetaGP, shard
from metaprior.bulk import Question, alone, bucket, predict_bucket, predict_shards
from metaprior.cli import main
from metaprior.cli.app import app
from metaprior.errors import WorkerError
from metaprior.workers import in_processes
from tests.test_streams import COLUMNS, check_equal, table_of, with_gaps

QUESTION = Question("model", "shards", "1:10:3")
PARTS = [f"part-{k:05d}.parquet" for k in range(8)]
HERE = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model, a table of forty tasks, and shards of it, of which some are empty."""
    home = tmp_path_factory.mktemp("shards")
    past = table_of(30, 8, seed=1)
    MetaGP("deep", "rbf", hidden=(8,), max_epochs=20, progress=False).fit(past, **COLUMNS).save(home / "model")
    pq.write_table(table_of(40, 5, seed=2), home / "table.parquet")
    pq.write_table(table_of(3, 5, seed=3), home / "few.parquet")
    shard(home / "table.parquet", home / "shards", task="id", buckets=8, progress=False)
    shard(home / "few.parquet", home / "few", task="id", buckets=8, progress=False)
    return home


@pytest.fixture(autouse=True)
def _there(home, monkeypatch):
    monkeypatch.chdir(home)


def run(*words):
    found = CliRunner().invoke(app, ["predict", *map(str, words)])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stderr


def refused(*words, capsys, monkeypatch):
    """The message with which the program ends, and that it is the user's to put right: exit code 2."""
    monkeypatch.setattr(sys, "argv", ["metaprior", "predict", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def table_in(folder):
    return pa.concat_tables([pq.read_table(Path(folder) / name) for name in PARTS]).replace_schema_metadata()


@pytest.fixture(scope="module")
def expected(home, tmp_path_factory):
    """What a run that nothing stops leaves."""
    out = tmp_path_factory.mktemp("expected") / "p"
    here = Question(str(home / "model"), str(home / "shards"), "1:10:3")
    predict_shards(here, str(out), alone, show=False)
    return content(out)


def test_shards_are_predicted_as_the_table(tmp_path):
    said = run("model", "shards", "--at", "1:10:3", "--out", tmp_path / "p", "--quantiles", "0.1,0.5", "--level", 0.5)
    assert "160 predictions for 40 tasks written to" in said
    run(
        "model",
        "table.parquet",
        "--at",
        "1:10:3",
        "--out",
        tmp_path / "p.parquet",
        "--quantiles",
        "0.1,0.5",
        "--level",
        0.5,
    )
    order = [("id", "ascending"), ("x", "ascending")]
    check_equal(table_in(tmp_path / "p").sort_by(order), pq.read_table(tmp_path / "p.parquet").sort_by(order))
    assert sorted(os.listdir(tmp_path / "p")) == [*PARTS, "predictions.json"]
    record = json.loads((tmp_path / "p" / "predictions.json").read_text())
    assert (record["complete"], record["tasks"], record["rows"], record["buckets"]) == (True, 40, 160, 8)
    assert record["made_of"]["at"] == "1:10:3"


def test_buckets_without_tasks_have_their_file_too(tmp_path):
    run("model", "few", "--at", "1:10:3", "--out", tmp_path / "p")
    counts = [pq.read_table(tmp_path / "p" / name).num_rows for name in PARTS]
    assert sum(counts) == 12
    assert counts.count(0) >= 5
    assert len({pq.read_schema(tmp_path / "p" / name).remove_metadata() for name in PARTS}) == 1


@pytest.mark.parametrize("at", ["missing", "points.csv"])
def test_missing_targets_and_points_of_a_table(at, home, tmp_path):
    pq.write_table(with_gaps(table_of(40, 5, seed=2)), "gaps.parquet")
    if not Path("gaps").is_dir():
        shard("gaps.parquet", "gaps", task="id", buckets=8, progress=False)
        Path("points.csv").write_text("id,x\n" + "".join(f"t{k:02d},{k / 4}\n" for k in range(50)))
    more = ("--missing", "drop")
    said = run("model", "gaps", "--at", at, "--out", tmp_path / "p", *more)
    run("model", "gaps.parquet", "--at", at, "--out", tmp_path / "p.parquet", *more)
    whole = pq.read_table(tmp_path / "p.parquet")
    if at != "missing":
        assert "note: 10 of 50 tasks of the points are not predicted: they have no rows in the table, or" in said
        assert "dropped 40 of 200 rows with NaN or infinity." in said
        whole = whole.filter(pa.array([name < "t40" for name in whole["id"].to_pylist()]))
    order = [("id", "ascending"), ("x", "ascending")]
    check_equal(table_in(tmp_path / "p").sort_by(order), whole.sort_by(order))


def test_notes_are_added_up_over_buckets_and_told_once(tmp_path):
    said = run("model", "shards", "--at", "1:30:1", "--out", tmp_path / "p")
    assert said.count("1 of 200 known points lie outside the range of 'x'") == 1
    whole = run("model", "table.parquet", "--at", "1:30:1", "--out", tmp_path / "p.csv")
    assert said.splitlines()[:2] == whole.splitlines()[:2]  # the same notes, of all points
    assert re.match(r"note: 8\d\d of 1,200 points lie outside the range of 'x'", said.splitlines()[1])
    record = json.loads((tmp_path / "p" / "predictions.json").read_text())
    assert [f"note: {note}" for note in record["notes"]] == said.splitlines()[:2]
    again = run("model", "shards", "--at", "1:30:1", "--out", tmp_path / "p")
    assert again.splitlines()[:2] == said.splitlines()[:2]  # also of files that were there


def test_a_bucket_may_be_written_in_pieces(tmp_path, monkeypatch, expected):
    monkeypatch.setattr(bucket, "PIECE", 15)
    predict_shards(QUESTION, str(tmp_path / "p"), alone, show=False)
    assert max(pq.ParquetFile(tmp_path / "p" / name).num_row_groups for name in PARTS) > 2
    (tmp_path / "whole").mkdir()
    for name in PARTS:
        (tmp_path / "whole" / name).write_bytes(expected[name])
    check_equal(table_in(tmp_path / "p"), table_in(tmp_path / "whole"))


def work(k):
    if k == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k


def test_workers_come_to_the_same_bytes(tmp_path, expected):
    for workers in (2, 8):
        said = run("model", "shards", "--at", "1:10:3", "--out", tmp_path / f"{workers}", "--workers", workers)
        assert content(tmp_path / f"{workers}") == expected
        beyond = f"note: --workers {workers}, but there are" in said
        assert beyond == (workers > len(os.sched_getaffinity(0)))


def test_a_worker_that_dies_is_named_with_what_it_did():
    with pytest.raises(WorkerError, match=r"worker [12] \(process \d+\), at bucket 5, died \(signal 9: was there"):
        list(in_processes(work, range(8), workers=2, what="bucket"))
    found = in_processes(work, [1, 2, 3], workers=2, what="bucket")
    assert sorted(found) == [(1, 1), (2, 4), (3, 9)]


def test_what_goes_wrong_in_a_worker_is_told_as_if_it_were_here(tmp_path, capsys, monkeypatch):
    odd = table_of(40, 5, seed=2)
    y = odd["y"].to_numpy().copy()
    y[77] = np.inf
    pq.write_table(odd.set_column(2, "y", pa.array(y)), "odd.parquet")
    shard("odd.parquet", tmp_path / "odd", task="id", buckets=8, progress=False)
    words = ["model", tmp_path / "odd", "--at", "1", "--out", tmp_path / "p"]
    said = refused(*words, "--workers", 2, capsys=capsys, monkeypatch=monkeypatch)
    assert re.search(r"bucket-0000\d.parquet: NaN or infinity in column 'y': 1 \(row \d+ of task 't15'\).*drop", said)
    done = [name for name in os.listdir(tmp_path / "p") if name.startswith("part")]
    assert len(done) < 8
    assert not json.loads((tmp_path / "p" / "predictions.json").read_text())["complete"]
    assert not list((tmp_path / "p").glob(".*"))
    said = refused(*words, capsys=capsys, monkeypatch=monkeypatch)
    assert re.search(r"bucket-0000\d.parquet: NaN or infinity in column 'y'", said)


def in_a_process(out, prepare):
    """A run in a process of its own; how it ended."""

    def child():
        prepare()
        predict_shards(QUESTION, str(out), alone, show=False)
        sys.setprofile(None)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def stopped_at_file(number, after):
    """To be killed at the so-manyth file that is written, before or after it is moved to its place."""
    replace, calls = Path.replace, [0]

    def watched(self, target):
        calls[0] += 1
        if calls[0] == number and not after:
            die()
        replace(self, target)
        if calls[0] == number:
            die()

    Path.replace = watched


def stopped_at_call(number, count):
    """To be killed at the so-manyth call of any function, which are counted."""

    def look(*_):
        count.value += 1
        if count.value == number:
            die()

    sys.setprofile(look)


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_was_killed_goes_on(tmp_path, after, expected):
    for number in (1, 2, 5, 9, 10):  # ten files are written: the record, eight buckets, and the record again
        out = tmp_path / f"{number}"
        assert in_a_process(out, partial(stopped_at_file, number, after)) == -signal.SIGKILL
        left = content(out)
        kept = [name for name in PARTS if name in left]
        assert len(kept) == min(number - 1 - (not after), 8) if number > 1 else not kept
        assert {name: left[name] for name in kept} == {name: expected[name] for name in kept}
        times = {name: (out / name).stat().st_mtime_ns for name in kept}
        found = predict_shards(QUESTION, str(out), alone, show=False)
        assert content(out) == expected
        assert found.kept == len(kept)
        assert {name: (out / name).stat().st_mtime_ns for name in kept} == times


def test_a_run_that_was_killed_at_any_moment_again_and_again_goes_on(tmp_path, expected):
    count, chance = multiprocessing.get_context("fork").Value("q", lock=False), random.Random(0)
    assert in_a_process(tmp_path / "whole", partial(stopped_at_call, -1, count)) == 0
    whole = count.value
    assert whole > 10_000
    for k in range(12):
        out, count.value = tmp_path / f"{k % 4}", 0
        ended = in_a_process(out, partial(stopped_at_call, chance.randrange(whole), count))
        assert ended == -signal.SIGKILL or k >= 4  # later ones may have little left to do
    for k in range(4):
        predict_shards(QUESTION, str(tmp_path / f"{k}"), alone, show=False)
        assert content(tmp_path / f"{k}") == expected


def test_what_is_there_and_whole_is_kept_and_the_rest_is_made_again(tmp_path, expected):
    out = tmp_path / "p"
    predict_shards(QUESTION, str(out), alone, show=False)
    (out / PARTS[2]).unlink()
    (out / PARTS[4]).write_bytes(expected[PARTS[4]][:-20])
    (out / f".123.{PARTS[5]}").write_bytes(b"half")
    other = predict_bucket(QUESTION._replace(at="1:10:4"), str(out), 6)
    assert other.made_of != predict_bucket(QUESTION, str(tmp_path), 0).made_of
    found = predict_shards(QUESTION, str(out), alone, show=False)
    assert found.kept == 5
    assert content(out) == expected


def test_predictions_of_something_else_are_left_alone(tmp_path, capsys, monkeypatch, expected, home):
    out, say = tmp_path / "p", partial(refused, capsys=capsys, monkeypatch=monkeypatch)
    predict_shards(QUESTION, str(out), alone, show=False)
    said = say("model", "shards", "--at", "1:10:4", "--level", 0.5, "--out", out)
    assert "holds predictions of something else: at was '1:10:3' and is '1:10:4'; level was 0.9 and is 0.5." in said
    assert "--overwrite" in said
    assert "the shards is not the same" in say("model", "few", "--at", "1:10:3", "--out", out)
    MetaGP("zero", "rbf", max_epochs=2, progress=False).fit(table_of(), **COLUMNS).save("other")
    assert "the model is not the same" in say("other", "shards", "--at", "1:10:3", "--out", out)
    assert content(out) == expected
    shard("few.parquet", tmp_path / "two", task="id", buckets=2, progress=False)
    run("model", tmp_path / "two", "--at", "1:10:3", "--out", out, "--overwrite")
    assert sorted(os.listdir(out)) == [*PARTS[:2], "predictions.json"]
    run("model", "shards", "--at", "1:10:3", "--out", out, "--overwrite")
    assert content(out) == expected


def test_a_model_that_is_replaced_is_read_again_and_never_mixed_with_the_old(tmp_path, home):
    """Also in a process that has read the old one."""
    question = QUESTION._replace(model=str(tmp_path / "model"))
    shutil.copy("model", question.model)
    before = predict_bucket(question, str(tmp_path), 0)
    other = MetaGP("zero", "rbf", max_epochs=2, progress=False).fit(table_of(), **COLUMNS)

    def engine(work, numbers):
        yield work(numbers[0])
        other.save(question.model)
        yield work(numbers[1])

    with pytest.raises(DataError, match="were changed while they were read"):
        predict_shards(question, str(tmp_path / "p"), engine, show=False)
    assert predict_bucket(question, str(tmp_path), 0).made_of != before.made_of


def test_what_is_refused(tmp_path, capsys, monkeypatch, home):
    say = partial(refused, capsys=capsys, monkeypatch=monkeypatch)
    at, out = ("--at", "1:10:3"), ("--out", tmp_path / "p")
    assert "predictions of shards are a folder" in say("model", "shards", *at)
    assert "predictions of shards are a folder" in say("model", "shards", *at, "--out", "p.csv")
    assert "--plot draws a picture of each task of a table" in say("model", "shards", *at, *out, "--plot", "pictures")
    assert "--workers 0: give 1 or more" in say("model", "shards", *at, *out, "--workers", 0)
    assert "--workers and --ray are for shards" in say("model", "table.parquet", *at, "--workers", 2)
    assert "which can be read more than once" in say("model", "shards", "--at", "-", *out)
    assert "level 2" in say("model", "shards", *at, *out, "--level", 2)
    assert "nothing to predict" in say("model", "shards", "--at", "missing", *out)
    (tmp_path / "empty").mkdir()
    assert "holds no shards, for it has no manifest.json" in say("model", tmp_path / "empty", *at, *out)
    assert "not a metaprior model" in say("table.parquet", "shards", *at, *out)
    assert "there is no model file" in say("nothing", "shards", *at, *out)
    assert "what this command reads" in say("model", "shards", *at, "--out", "shards")
    assert not (tmp_path / "p").exists()
    other = table_of(5, 5).rename_columns(["id", "hour", "y"])
    pq.write_table(other, tmp_path / "other.parquet")
    shard(tmp_path / "other.parquet", tmp_path / "other", task="id", buckets=2, progress=False)
    assert "no column 'x'" in say("model", tmp_path / "other", *at, *out)
    shard(tmp_path / "other.parquet", tmp_path / "by-hour", task="hour", buckets=2, progress=False)
    assert "was made by the task column hour, not id" in say("model", tmp_path / "by-hour", *at, *out)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    assert "holds something else than predictions (letter.txt)" in say(
        "model", "shards", *at, "--out", tmp_path / "mine"
    )
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    run("model", "shards", *at, "--out", tmp_path / "mine", "--overwrite")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
