"""`metaprior fit` of shards as a user runs it: alone, with workers, by torchrun, on Ray; killed, and resumed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metaprior
from metaprior.files import read_state
from metaprior.workers import cores
from tests.test_tool import refused, run

ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Nodes of a Ray cluster that meet on this machine's own address."""

FIT = ["--x", "hour", "--y", "pulse", "--rungs", "fpca"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """More tasks than a sample has, of a few rows each."""
    home = tmp_path_factory.mktemp("shards")
    rng, m = np.random.default_rng(0), 4_600
    owner = np.repeat(np.arange(m), rng.integers(2, 6, m))
    x, own = rng.uniform(0, 10, len(owner)), rng.normal(size=m)
    y = np.sin(x) + own[owner] + 0.2 * rng.normal(size=len(x))
    order = rng.permutation(len(owner))
    pq.write_table(pa.table({"id": owner[order], "hour": x[order], "pulse": y[order]}), home / "big.parquet")
    run("shard", home / "big.parquet", "--task", "id", "--out", home / "shards", "--buckets", 12)
    return home / "shards"


@pytest.fixture(scope="module")
def alone(shards, tmp_path_factory):
    """The model that one worker makes."""
    out = tmp_path_factory.mktemp("alone") / "m"
    found = run("fit", shards, *FIT, "--out", out, "--workers", 1)
    return out, found


def command(*words, launcher=("-m",), **options):
    """The program in a process of its own, on one core's worth of threads."""
    words = [sys.executable, *launcher, "metaprior", *map(str, words)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def same(found, expected):
    """Whether two models are the same bytes; where not, which of their parts differ."""
    if found.read_bytes() == expected.read_bytes():
        return True
    one, two = read_state(found), read_state(expected)
    assert (one.structure, one.about) == (two.structure, two.about)
    assert {name: value.tolist() for name, value in one.tensors.items()} == {
        name: value.tolist() for name, value in two.tensors.items()
    }
    return False


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ended(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (out, err)
    return err


def test_a_model_of_all_tasks(alone, shards):
    out, found = alone
    assert "4,600 tasks in 12 buckets" in found.stderr
    assert "chosen: fpca" in found.stderr
    gp = metaprior.load(out)
    assert gp.trained_on_.tasks == 4_600
    assert gp.trained_on_.seen([0, 4_599, 4_600]) == [0, 4_599]
    assert [path.name for path in out.parent.iterdir()] == ["m"]
    held_out = gp.condition([1.0], [1.5]).at([2.0])
    assert float(held_out.mean) == pytest.approx(np.sin(2) + 1.5 - np.sin(1), abs=0.3)


def test_a_learned_prior_is_scored_by_tasks_it_never_saw(shards, tmp_path, monkeypatch):
    for place in ("metaprior.model", "metaprior.cli.fit_shards"):
        monkeypatch.setattr(f"{place}.OF_ONE", 200)
    words = ["--x", "hour", "--y", "pulse", "--mean", "linear", "--kernel", "rbf", "--epochs", 10]
    found = run("fit", shards, *words, "--workers", 1, "--out", tmp_path / "m", "--html", tmp_path / "page.html")
    assert "went through all tasks" in found.stderr
    assert "tasks that it has not seen, from" in found.stdout
    gp = metaprior.load(tmp_path / "m")
    sample = metaprior.Shards.open(shards, x="hour", y="pulse").sample(200)
    unseen = len(sample) - len(gp.trained_on_.seen(sample.ids))
    assert unseen == 2 * 20  # to stop by, and to judge by
    assert gp.trained_on_.tasks == 4_600 - unseen
    assert (tmp_path / "page.html").exists()


def test_shards_go_on_from_a_model_and_take_epochs_as_a_table_does(shards, tmp_path, monkeypatch, capsys):
    for place in ("metaprior.model", "metaprior.cli.fit_shards"):
        monkeypatch.setattr(f"{place}.OF_ONE", 60)
    words, structure = ("fit", shards, "--x", "hour", "--y", "pulse", "--workers", 1), ("--mean", "linear")
    run(*words, *structure, "--epochs", 2, "--out", tmp_path / "first")
    run(*words, "--from", tmp_path / "first", "--epochs", 2, "--out", tmp_path / "second")
    run(*words, *structure, "--from", tmp_path / "first", "--epochs", 2, "--out", tmp_path / "third")
    for name in ("first", "second", "third"):
        spec = metaprior.load(tmp_path / name).method_.spec
        assert (spec.mean, spec.kernel) == ("linear", "rbf")
    found = run(*words, "--epochs", 2, "--budget", 1, "--out", tmp_path / "deep")
    assert "mean and kernel are deep and nothing is chosen" in found.stderr
    assert "are of choosing a prior" in found.stderr
    spec = metaprior.load(tmp_path / "deep").method_.spec
    assert (spec.mean, spec.kernel) == ("deep", "deep")
    said = refused(*words, "--epochs", 0, "--out", tmp_path / "none", capsys=capsys, monkeypatch=monkeypatch)
    assert "--epochs 0: give 1 or more" in said


def test_eight_workers_write_the_same_bytes(alone, shards, tmp_path):
    said = ended(command("fit", shards, *FIT, "--out", tmp_path / "m", "--workers", 8))
    assert same(tmp_path / "m", alone[0])
    assert ("cores: they wait for each other" in said) == (cores() < 8)


def test_torchrun_writes_the_same_bytes(alone, shards, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    ended(command("fit", shards, *FIT, "--out", tmp_path / "m", launcher=launcher))
    assert same(tmp_path / "m", alone[0])


def test_a_run_that_was_killed_goes_on_with_any_number_of_workers(alone, shards, tmp_path):
    random_moment, out = random.Random(0), tmp_path / "m"
    took = 8.0
    for workers in (2, 1, 2):
        process = command("fit", shards, *FIT, "--out", out, "--workers", workers, "--resume", start_new_session=True)
        time.sleep(random_moment.uniform(0.3, 1.0) * took)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if not out.exists():
        run("fit", shards, *FIT, "--out", out, "--workers", 1, "--resume")
    assert same(out, alone[0])


def test_a_training_that_was_stopped_is_not_lost_without_a_word(shards, tmp_path, capsys, monkeypatch):
    kept = tmp_path / ".m.parts" / "0.checkpoint"
    kept.parent.mkdir()
    kept.write_bytes(b"learned")
    words = ("fit", shards, *FIT, "--out", tmp_path / "m", "--workers", 1)
    said = refused(*words, capsys=capsys, monkeypatch=monkeypatch)
    assert ".m.parts holds what a run that was stopped has learned: go on with --resume, or start anew with" in said
    assert kept.read_bytes() == b"learned"


def test_a_worker_that_dies_is_named(shards, tmp_path):
    process = command("fit", shards, *FIT, "--out", tmp_path / "m", "--workers", 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for _ in range(600):
        workers = [
            pid for pid in children.read_text().split() if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        if len(workers) == 2:
            break
        time.sleep(0.05)
    os.kill(int(workers[1]), signal.SIGKILL)
    assert "worker 1 of 2 was ended by SIGKILL" in ended(process, 2)


SCRIPT = """
import sys
from ray.cluster_utils import Cluster
from metaprior.cli import main
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
cluster.add_node(num_cpus=2)
words = sys.argv[1:]
try:
    while words:
        end = words.index("then")
        sys.argv = ["metaprior", *words[:end], "--ray", cluster.address]
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
        words = words[end + 1 :]
finally:
    cluster.shutdown()
"""


def test_two_nodes_of_ray_write_the_same_bytes(alone, shards, tmp_path):
    ask = ["--at", "1:9:4", "--out"]
    run("predict", alone[0], shards, *ask, tmp_path / "here", "--workers", 1)
    words = ["fit", shards, *FIT, "--out", tmp_path / "m", "--workers", 3, "then"]
    words += ["predict", alone[0], shards, *ask, tmp_path / "there", "--workers", 2, "then"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, words)],
        env=os.environ | ON_LOOPBACK,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ended(process)
    assert same(tmp_path / "m", alone[0])
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("there", "here")
    )
    assert len(expected) == 13  # twelve buckets, and what they are of
    assert found == expected


def test_what_cannot_be_asked_for_is_told(shards, tmp_path, capsys, monkeypatch):
    ask = {"capsys": capsys, "monkeypatch": monkeypatch}
    out = ["--out", tmp_path / "m"]
    assert "give 1 or more" in refused("fit", shards, *FIT, *out, "--workers", 0, **ask)
    assert "HOST:PORT" in refused("fit", shards, *FIT, *out, "--ray", "somewhere", **ask)
    assert "no cluster answers" in refused("fit", shards, *FIT, *out, "--ray", "127.0.0.1:9", **ask)
    assert "on CPUs" in refused("fit", shards, *FIT, *out, "--device", "auto", **ask)
    assert "are for shards" in refused("fit", "elnino", *out, "--workers", 2, **ask)
    assert "--x, --y" in refused("fit", shards, *out, **ask)
    assert "no column 'blood'" in refused("fit", shards, "--x", "hour", "--y", "blood", *out, **ask)
    (tmp_path / ".m.parts").mkdir()
    (tmp_path / ".m.parts" / "mine.txt").touch()
    assert "mine.txt, which is not ours" in refused("fit", shards, *FIT, *out, "--workers", 1, **ask)
    assert not (tmp_path / "m").exists()
