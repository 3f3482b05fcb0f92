"""Hostile input: a thousandth of the campaign, what is planted in it, and everything that it has found so far."""

import json
import math
import resource
import zlib
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from pyarrow import feather
from typer.testing import CliRunner

import metaprior
from campaign.hostile import mutations, part, watch
from campaign.hostile.contract import KEPT, Place
from campaign.hostile.families import FAMILIES
from campaign.hostile.files import signed, tensors_of
from campaign.hostile.home import make_home, past
from campaign.hostile.planted import PLANTED, found_planted
from campaign.hostile.smaller import minimised
from campaign.parts import Effort
from metaprior import DataError, MetaGP, NumericalError, OptionError, Shards, Tasks, load
from metaprior.cli import app
from metaprior.data import column_names, read_table, shard
from metaprior.devices import within_memory
from metaprior.errors import DeviceMemoryError
from metaprior.learning import checkpoints
from metaprior.points import points_at
from metaprior.priors.kernels import kernel_matrix
from metaprior.serve.typed import check_parquet
from metaprior.tasks import Columns

CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").glob("*/*") if path.is_file())
COLUMNS = Columns(("task",), ("x",), ("y",))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    found = tmp_path_factory.mktemp("home")
    make_home(found)
    return found


# ---- the campaign ---------------------------------------------------------------------------------------------------


def test_a_small_campaign_holds(home, monkeypatch):
    monkeypatch.setattr(part, "make_home", lambda folder: None)
    monkeypatch.setattr(part, "PLANTED", {})
    monkeypatch.setattr(part.tempfile, "TemporaryDirectory", lambda **_: _Kept(home))
    monkeypatch.setattr(part, "FAMILIES", {name: one for name, one in FAMILIES.items() if name != "commands"})
    section = part.run(Effort(0.0005))
    assert section.holds, [table.rows for table in section.tables[1:]]
    rows = {row[0]: row for row in section.tables[0].rows}
    assert section.counts["mutated inputs"] == sum(row[2] for row in rows.values()) > 450
    assert all(row[3] + row[4] == row[2] for row in rows.values())
    assert sum(row[3] > 0 for row in rows.values()) > 8  # most families get beyond the first check
    json.dumps(section.counts, allow_nan=False)


class _Kept:
    """A folder that stays."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return str(self.path)

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    assert found_planted(name)


def test_the_full_campaign_has_a_million_inputs_each_of_which_follows_from_its_seed(home):
    blocks = part.blocks_of(Effort(1.0))
    counts = dict.fromkeys(FAMILIES, 0)
    for name, start, stop in blocks:
        assert start == counts[name]
        counts[name] = stop
    assert counts == {name: one.full for name, one in FAMILIES.items()}
    assert sum(counts.values()) - counts["requests"] >= 1_000_000  # also where no server is installed
    for family in FAMILIES.values():
        first, again, *others = (watch.input_of(family, seed, 3, Place(home, home)) for seed in (1, 1, 2, 3, 4))
        assert first == again
        assert {first} != set(others) or family.name == "points"


def test_mutations_change_most_inputs_and_stay_small():
    rng, text = Random(0), b"task,x,y\na,1,2\n" * 5
    found = [mutations.mutated(text, rng) for _ in range(300)]
    assert sum(one != text for one in found) > 280
    assert max(map(len, found)) <= mutations.LARGEST
    trees = [mutations.mutated_json({"a": [1, {"b": "c"}], "d": None}, rng) for _ in range(300)]
    assert len({json.dumps(one, sort_keys=True) for one in trees}) > 150
    assert mutations.dumped(["<deep 3>"]) == "[[[[1]]]]"


def test_an_input_is_made_smaller_and_what_is_found_is_told_with_it(home, monkeypatch):
    def attempt(given, place):
        if b"bad" in given:
            raise KeyError("planted")
        yield 1.0

    family = FAMILIES["points"]._replace(attempt=attempt, make=lambda rng, place: b"all is bad here")
    assert minimised(family, b"all is bad here", home)[0] == b"bad"
    monkeypatch.setattr(part, "FAMILIES", {"points": family._replace(full=20, block=7)})
    monkeypatch.setattr(part, "make_home", lambda folder: None)
    monkeypatch.setattr(part, "PLANTED", {})
    section = part.run(Effort(0.1))
    assert [check.holds for check in section.checks] == [False, True]
    (row, _) = section.tables[1].rows
    assert row[:4] == ("points", 0, "exception", "KeyError: 'planted'")
    assert row[5].startswith("`")
    right = family._replace(full=20, block=7, attempt=lambda given, place: [1.0])
    monkeypatch.setattr(part, "FAMILIES", {"points": right})
    tried_again = part.again(section, Effort(0.1), ["points"])
    assert tried_again.holds
    assert len(tried_again.tables) == 1
    assert tried_again.tables[0].rows[0][2:7] == (2, 2, 0, 0, 0)
    assert tried_again.notes == ("Tried again, after something was put right: points.",)


@pytest.mark.parametrize("family", sorted({path.parent.name for path in CORPUS}))
def test_what_was_found_stays_put_right(family, home):
    (known,) = [one for one in FAMILIES.values() if one.name.replace(" ", "-").lower() == family]
    paths = [path for path in CORPUS if path.parent.name == family]
    assert all(path.stat().st_size < 4096 for path in paths)
    outcomes = watch.all_of(known, [path.read_bytes() for path in paths], home)
    broken = {path.name: one for path, one in zip(paths, outcomes, strict=True) if one.kind not in KEPT}
    assert not broken


def test_there_is_a_corpus():
    assert len(CORPUS) > 30


# ---- what it has found ----------------------------------------------------------------------------------------------


def feather_of(path, **columns):
    feather.write_feather(pa.table(columns), path, compression="uncompressed")
    return path.read_bytes()


def test_a_feather_file_whose_texts_lie_out_of_bounds_is_no_table(tmp_path):
    path = tmp_path / "t.feather"
    content = feather_of(path, task=["aa", "bb"], x=[1.0, 2.0], y=[1.0, 2.0])
    offsets = np.array([0, 2, 4], np.int32).tobytes()
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, np.array([0, 2**31 - 1, 4], np.int32).tobytes()))
    with pytest.raises(DataError, match="no Feather table"):
        read_table(str(path), COLUMNS)
    with pytest.raises(DataError, match="cannot be read as a Feather table"):
        shard(path, tmp_path / "shards", task="task", buckets=2, progress=False)


def test_names_of_columns_that_are_no_text(tmp_path):
    for write, name in ((feather_of, "Feather"), (_parquet, "Parquet")):
        path = tmp_path / f"t.{name.lower()}"
        write(path, task=["a"], xxxx=[1.0], y=[1.0])
        path.write_bytes(path.read_bytes().replace(b"xxxx", b"\xff\xfe\xff\xfe"))
        with pytest.raises(DataError, match=f"no {name} table"):
            read_table(str(path), COLUMNS)
        with pytest.raises(DataError):
            column_names(path)


def _parquet(path, **columns):
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, store_schema=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([2**60, 1], pa.timestamp("s")), "task column 'task' holds timestamp"),
        (pa.array([2**30, 1], pa.date32()), "task column 'task' holds date32"),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), "task column 'task' holds fixed_size_list"),
        (pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()), "task column 'task' holds month_day_nano"),
    ],
)
def test_tasks_named_by_what_python_cannot_hold(values, said):
    with pytest.raises(DataError, match=said):
        Tasks.from_table(pa.table({"task": values, "x": [1.0, 2.0], "y": [1.0, 2.0]}), task="task", x="x", y="y")


@pytest.mark.parametrize("dtype", [pa.timestamp("s"), pa.date32(), pa.timestamp("us", "No/Where")])
def test_targets_that_are_dates_of_no_calendar(dtype):
    table = pa.table({"task": ["a", "a"], "x": [1.0, 2.0], "y": pa.array([2**30, 2], pa.int32()).cast(pa.int64())})
    table = table.set_column(
        2, "y", table["y"].cast(pa.int32()).cast(dtype) if dtype == pa.date32() else table["y"].cast(dtype)
    )
    with pytest.raises(DataError, match="column 'y' must hold numbers, but it holds"):
        Tasks.from_table(table, task="task", x="x", y="y")


def test_times_of_day_to_the_nanosecond():
    clock = pa.array([1, 3_600_000_000_001], pa.time64("ns"))
    found = Tasks.from_table(pa.table({"task": ["a", "a"], "x": clock, "y": [1.0, 2.0]}), task="task", x="x", y="y")
    assert found.x[:, 0].tolist() == pytest.approx([0.0, 1 / 24], abs=1e-9)


def test_points_beyond_all_dates_are_told(home):
    gp = load(home / "dated.metaprior")
    with pytest.raises(DataError, match="lead to no date that can be written"):
        gp.predict(past(dated=True).select(["task", "x", "y"]), at=[[1e300]])


def test_a_file_without_a_name_in_an_archive(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("x"), "task,x,y\na,1,2\n")
    content = bytearray((tmp_path / "t.zip").read_bytes())
    end = content.rindex(b"PK\x01\x02")
    content[end + 28 : end + 30] = b"\0\0"  # the length of the name, where the archive lists it
    content[end + 30 : end + 32] = b"\1\0"  # which is a further field now
    (tmp_path / "t.zip").write_bytes(content)
    with pytest.raises(DataError):
        read_table(str(tmp_path / "t.zip"), COLUMNS)


# ---- model files ----------------------------------------------------------------------------------------------------


def altered(path, change=lambda header: None, tensors=lambda found: None):
    """The file signed again, with another header or other tensors."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["metaprior"].partition("\n")[0])
    found = tensors_of(content)
    change(header)
    tensors(found)
    path.with_name("altered").write_bytes(signed(json.dumps(header), found))
    return path.with_name("altered")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("about", "trained_on", "x_range"), [[0, "1"]]),
        (("about", "trained_on", "x_range"), []),
        (("about", "trained_on", "x_range"), [[2, 1]]),
        (("about", "trained_on", "y_range"), [[0, 1], [0, 1]]),
        (("about", "trained_on", "tasks"), [8]),
        (("about", "trained_on", "sizes"), [0, "5"]),
        (("about", "trained_on", "salt"), 3),
        (("about", "trained_on", "dated"), ["other"]),
        (("about", "trained_on", "typical"), [1.0]),
        (("about", "trained_on", "possible"), [["0x1p+0", "0x0p+0", False]]),
        (("about", "trained_on", "columns"), {"task": [["a"]], "x": ["x"], "y": ["y"]}),
        (("about", "trained_on", "columns"), {"task": ["t"], "x": [], "y": ["y"]}),
        (("about", "scores"), {"5": {"mse": {"mean": "1", "stderr": None}}}),
        (("about", "scores"), [1]),
        (("kind",), ["metagp"]),
        (("structure",), [["parts", 1]]),
        (("about", "versions"), 3),
    ],
)
def test_what_a_signed_file_says_of_itself_is_checked(home, place, value):
    def change(header):
        *way, last = place
        for name in way:
            header = header[name]
        header[last] = value
        if last == "versions":
            header["more"] = 0

    path = altered(home / "deep.metaprior", change)
    if place[-1] == "versions":
        assert load(path).trained_on_.tasks == 8
        return
    with pytest.raises(DataError):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["chosen"].update({next(iter(said["chosen"])): [[]]}),
        lambda said: said["tried"][0].update(density=["1", 0.1, 8]),
        lambda said: said["tried"][0].update(mse={}),
        lambda said: said.update(coverage=[0.9, "0.9"]),
        lambda said: said.update(coverage=[0.9, 0.9, 0.9]),
    ],
)
def test_what_a_file_says_of_a_choice_is_checked(home, change):
    path = altered(home / "auto.metaprior", lambda header: change(header["structure"]["parts"]["method"]["structure"]))
    with pytest.raises(DataError, match="does not describe"):
        load(path)


def test_dates_beyond_all_days_are_told(home):
    path = altered(home / "dated.metaprior", lambda header: header["about"]["trained_on"].update(x_range=[[0, 10**30]]))
    with pytest.raises(DataError, match="a date cannot be what it was trained on"):
        load(path)


def test_a_file_of_another_format_that_does_not_say_by_what_it_was_written(home):
    path = altered(home / "deep.metaprior", lambda header: header.update(format=99, about={"versions": 3}))
    with pytest.raises(DataError, match="a version that it does not name"):
        load(path)


def test_a_header_that_is_too_deep(home):
    found = tensors_of((home / "deep.metaprior").read_bytes())
    (home / "altered").write_bytes(signed('{"format": ' + "[" * 200_000, found))
    with pytest.raises(DataError, match="header that cannot be read"):
        load(home / "altered")
    assert metaprior.files.saved_in(home / "altered") is None


def test_a_model_that_does_not_say_what_it_was_trained_on(home):
    with pytest.raises(DataError, match="does not say what it was trained on"):
        load(altered(home / "deep.metaprior", lambda header: header["about"].pop("trained_on")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("deep", math.nan), ("deep", math.inf), ("fpca", math.nan), ("fpca", 1e308)),
        *(("mixture", math.nan), ("mixture", 1e308), ("last value", math.nan), ("last value", math.inf)),
    ],
)
def test_tensors_from_which_nothing_finite_follows_are_refused(home, name, value):
    def change(found):
        for key, tensor in found.items():
            if tensor.dtype.is_floating_point and "scaler" not in key:
                found[key] = torch.full_like(tensor, value)

    with pytest.raises(metaprior.errors.MetapriorError):
        load(altered(home / f"{name}.metaprior", tensors=change))


@pytest.mark.parametrize("scale", [torch.tensor([-1.0]), torch.tensor([0.0]), torch.ones(1, 1, 1), torch.ones(2)])
def test_scales_that_are_none(home, scale):
    def change(found):
        found[next(name for name in found if name.endswith("scaler.y_scale"))] = scale.double()

    with pytest.raises(DataError, match="does not fit together"):
        load(altered(home / "gp per task.metaprior", tensors=change))


def test_sizes_and_variances_below_zero(home):
    def change(found):
        found[next(name for name in found if name.endswith("variance.sizes"))] -= 5.0

    with pytest.raises(DataError, match="below 0"):
        load(altered(home / "last value.metaprior", tensors=change))


# ---- checkpoints and shards -----------------------------------------------------------------------------------------


def deep(checkpoint):
    gp = MetaGP("deep", "deep", hidden=(4,), max_epochs=4, check_every=2, progress=False)
    return gp.fit(past(), task="task", x="x", y="y", checkpoint=checkpoint)


def _no_values(header):
    header["structure"]["values"] = {}


def _no_pair(header):
    header["structure"]["values"]["pairs"][0] = [1]


def _other_shape(found):
    found["tensor 0"] = torch.ones(7, 7, dtype=torch.float64)


def _nothing(found):
    for name in found:
        if found[name].dtype.is_floating_point:
            found[name] = torch.full_like(found[name], float("nan"))


@pytest.mark.parametrize("change", [_no_values, _no_pair, _other_shape, _nothing])
def test_checkpoints_that_were_altered_and_signed_again(home, change):
    which = "tensors" if change in (_other_shape, _nothing) else "change"
    path = altered(home / "prior.checkpoint", **{which: change})
    with pytest.raises(DataError, match=r"cannot go on from .*Remove the file"):
        deep(path)
    assert path.exists()


def test_what_goes_wrong_in_a_training_of_its_own_is_no_fault_of_a_file(tmp_path):
    with pytest.raises(KeyError), checkpoints.going_on(checkpoints.Checkpoint(tmp_path / "none", "")):
        raise KeyError("ours")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("levels", 3),
        ("levels", {"diet": [["rich"]]}),
        ("task", []),
        ("task", [["task"]]),
        ("schema", [["task", 3]]),
        ("file", "../shards/a"),
        ("file", "a" * 500),
        ("file", 3.5),
        ("crc32", 7),
        ("tasks", -1),
    ],
)
def test_manifests_of_strangers(home, tmp_path, entry, value):
    shard(home / "past.parquet", tmp_path / "shards", task="task", buckets=2, progress=False)
    path = tmp_path / "shards" / "manifest.json"
    found = json.loads(path.read_text())
    if entry in ("file", "crc32", "tasks"):
        found["buckets"][0][entry] = value
        found["tasks"] = sum(one["tasks"] for one in found["buckets"])
    else:
        found[entry] = value
    path.write_text(json.dumps(found))
    with pytest.raises(DataError, match="lacks something"):
        Shards.open(tmp_path / "shards", x="x", y="y", task_x="diet")


def test_a_bucket_whose_columns_have_names_that_are_no_text(home, tmp_path):
    _parquet(tmp_path / "t", task=["a", "b"], xxxx=[1.0, 2.0], y=[1.0, 2.0])
    made = shard(tmp_path / "t", tmp_path / "shards", task="task", buckets=1, progress=False)
    path, manifest = made / "manifest.json", json.loads((made / "manifest.json").read_text())
    bucket = made / manifest["buckets"][0]["file"]
    content = bucket.read_bytes().replace(b"xxxx", b"\xff\xfe\xff\xfe")
    bucket.write_bytes(content)
    manifest["buckets"][0]["crc32"] = f"{zlib.crc32(content):08x}"
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="cannot be read"):
        Shards.open(made, x="xxxx", y="y").part(0)


def test_a_manifest_that_is_too_deep(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match="cannot be read"):
        Shards.open(tmp_path, x="x", y="y")
    assert not metaprior.data.is_shards(tmp_path)


def test_pandas_objects_of_no_calendar():
    frame = pd.DataFrame({"task": ["a", "a"], "x": [1.0, 2.0], "y": [object(), 1.0]})
    with pytest.raises(DataError, match="column 'y' must hold numbers"):
        Tasks.from_table(frame, task="task", x="x", y="y")


# ---- numbers and options --------------------------------------------------------------------------------------------


def test_a_task_that_does_not_fit_into_memory_is_told(home):
    gp, many = load(home / "matern.metaprior"), np.linspace(0, 4, 1_000_000)
    with limited(2 << 30), pytest.raises(DeviceMemoryError, match="the memory of this machine is too small"):
        gp.condition(many, many)


@contextmanager
def limited(more):
    """A process that may take so many bytes more than it has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    now = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_what_is_wrong_inside_is_not_taken_for_want_of_memory():
    with pytest.raises(RuntimeError, match="ours"), within_memory("what", "instead"):
        raise RuntimeError("ours")
    with pytest.raises(DeviceMemoryError, match="what: the memory of this machine"), within_memory("what", "instead"):
        raise MemoryError


def test_a_lengthscale_that_has_vanished_is_told():
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.raw_lengthscale.data.fill_(-1e5)
    points = torch.ones(2, 1, dtype=torch.float64)
    with torch.no_grad(), pytest.raises(NumericalError, match="the lengthscale has vanished"):
        kernel_matrix(kernel, points, points)


def test_more_draws_than_columns_are_told_of_shards_too(home, tmp_path):
    words = [
        "predict",
        home / "deep.metaprior",
        home / "shards",
        "--at",
        "1",
        "--out",
        tmp_path / "p",
        "--workers",
        "1",
    ]
    found = CliRunner().invoke(app, [*map(str, words), "--samples", "60981610797712469147192"])
    assert isinstance(found.exception, OptionError)
    assert "samples are too many" in str(found.exception)


def test_names_of_columns_with_a_line_break(home):
    words = ["fit", str(home / "past.csv"), "--task", "a\nb", "--x", "x", "--y", "y", "--out", str(home / "new")]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, OptionError)
    assert "names of columns" in str(found.exception)


def test_parts_of_a_second_without_seconds_are_no_moment():
    with pytest.raises(OptionError, match="is no number, date or file"):  # a warning would be an error
        points_at("2020-03-28T22:00.7", ["day"], ["day"])
    assert points_at("2020-03-28T22:00:00.5", ["day"], ["day"]).shape == (1, 1)


def test_a_request_whose_columns_have_names_that_are_no_text(home, tmp_path):
    _parquet(tmp_path / "t", task=["a"], xxxx=[1.0], y=[1.0])
    body = (tmp_path / "t").read_bytes().replace(b"xxxx", b"\xff\xfe\xff\xfe")
    with pytest.raises(DataError, match="no Parquet table"):
        check_parquet(body, COLUMNS, 10)


@pytest.mark.parametrize("dtype", [pa.decimal128(3, -2), pa.decimal128(3, 7)])
def test_inputs_in_a_type_that_only_arrow_knows(home, dtype):
    bits = (1).to_bytes(16, "little") + (2).to_bytes(16, "little")
    x = pa.Array.from_buffers(dtype, 2, [None, pa.py_buffer(bits)])
    table = pa.table({"task": ["a", "a"], "x": x, "y": [0.5, 0.1]})
    assert load(home / "deep.metaprior").predict(table, at=[[2.0]]).num_rows == 1


def test_text_that_arrow_keeps_as_views(home):
    """Arrow cannot take some rows of it: with rows to leave out, its own error came through."""
    table = pa.table({"task": pa.array(["a", "a"]).cast(pa.string_view()), "x": [1.0, 2.0], "y": [0.5, None]})
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    found = load(home / "deep.metaprior").predict(chunked, at="missing")
    assert (found["task"].to_pylist(), found["x"].to_pylist()) == (["a"], [2.0])
