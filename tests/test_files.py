"""The model file: the same predictions after a round trip, and nothing made of a file that is not what it says."""

import dataclasses
import json
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

import metaprior
from metaprior import (
    FPCA,
    MAML,
    Auto,
    DataError,
    HyperPosterior,
    MetaGP,
    Mixture,
    NotFittedError,
    OptionError,
    OutputError,
    Tasks,
    Warped,
)
from metaprior.files import FORMAT, State, read_state, saved_in, write_state
from metaprior.learning import checkpoints
from metaprior.methods import ContextMean, GPPerTask, LastValue, NeuralNetwork
from metaprior.output import check_file
from tests.problems import ragged

TASKS = ragged(count=30, largest=7)

METHODS = {
    "learned both": lambda: MetaGP("deep", "deep", hidden=(6, 5), max_epochs=20, progress=False),
    "linear mean, Matérn": lambda: MetaGP("linear", "matern", noise=0.2, max_epochs=10, progress=False),
    "float32": lambda: MetaGP("deep", "deep", hidden=(6,), max_epochs=5, dtype=torch.float32, progress=False),
    "float32 networks": lambda: MetaGP(
        "deep", "deep", hidden=(6,), max_epochs=5, network_dtype=torch.float32, progress=False
    ),
    "fpca": lambda: FPCA(size=4, rank=2),
    "fourier": lambda: FPCA("fourier", size=3, rank=1),
    "maml": lambda: MAML(hidden=(6,), max_epochs=1, progress=False),
    "neural network": lambda: NeuralNetwork(hidden=(6,), max_epochs=5, progress=False),
    "last value": lambda: LastValue(),
    "context mean": lambda: ContextMean(),
    "gp per task": lambda: GPPerTask(),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_round_trip_changes_no_bit(name, tmp_path):
    method = METHODS[name]().fit(TASKS)
    path = tmp_path / "model.metaprior"
    method.save(path)
    again = metaprior.load(path)
    assert type(again.method_) is type(getattr(method, "method_", method))
    context, target = TASKS.context_target(where=lambda x: x[:, 0] < 0.3)
    first, second = (one.predict(context, target) for one in (method, again))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.sd, second.sd)
    assert torch.equal(first.joint_log_density(target.y), second.joint_log_density(target.y))
    assert again.trained_on_.columns == TASKS.columns
    assert again.trained_on_.tasks == len(TASKS)
    assert again.trained_on_.seen([*TASKS.ids[:2], "new"]) == list(TASKS.ids[:2])
    again.save(path)
    assert torch.equal(metaprior.load(path).predict(context, target).mean, first.mean)


def test_two_inputs_and_two_outputs_make_the_trip_too(tmp_path):
    tasks = ragged(d=2, p=2, count=20, largest=9)
    for method in (MetaGP("deep", "deep", hidden=(5,), max_epochs=5, progress=False), FPCA(size=2, rank=1)):
        method.fit(tasks).save(tmp_path / "m")
        again = metaprior.load(tmp_path / "m")
        context, target = tasks.context_target(where=lambda x: x[:, 0] < 0)
        assert torch.equal(method.predict(context, target).mean, again.predict(context, target).mean)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.metaprior"
    MetaGP("deep", "deep", hidden=(6, 5), max_epochs=3, progress=False).fit(TASKS).save(path)
    return path


def test_the_file_holds_no_data(model):
    text = model.read_bytes()
    for value in TASKS.y[:5, 0].tolist():
        assert struct.pack("<d", value) not in text
    about = read_state(model).about
    assert set(about) == {"trained_on", "scores", "versions"}


FILES = Path(__file__).parent / "files"
KEPT = json.loads((FILES / "predictions.json").read_text())
"""Mean and deviation at 0 and 0.9, as the models predicted when their files were written."""


@pytest.mark.parametrize("name", KEPT)
def test_files_that_were_written_before_predict_as_they_did(name):
    posterior = metaprior.load(FILES / name).condition([0.1, 0.5], [1.2, 0.7])
    found = posterior.at([0.0, 0.9])
    assert found.mean[:, 0].tolist() == pytest.approx(KEPT[name][0], rel=1e-9)
    assert found.sd[:, 0].tolist() == pytest.approx(KEPT[name][1], rel=1e-9)


METHODS_OF_0_2 = FILES / "methods"
WRITTEN = json.loads((METHODS_OF_0_2 / "predictions.json").read_text())
"""Predictions of one model for each method, and of an ensemble of counts, by the version that wrote their files."""


@pytest.mark.parametrize("name", WRITTEN)
def test_every_method_of_version_0_2_predicts_as_it_did(name):
    counts = name == "counts.metaprior"
    known = {"task_x": {"treated": 1.0}} if counts else {}
    y = [3.0, 2.0] if counts else [2.2, 1.7]
    posterior = metaprior.load(METHODS_OF_0_2 / name).condition([0.1, 0.5], y, **known).at([0.0, 0.3, 0.9, 1.4])
    lower, upper = posterior.interval(0.9)
    values = torch.full((4, 1), 2.0, dtype=torch.float64)
    found = {"mean": posterior.mean, "sd": posterior.sd, "lower": lower, "upper": upper}
    found |= {"log_density": posterior.log_density(values), "cdf": posterior.cdf(values)}
    for what, value in found.items():
        assert value.reshape(-1).tolist() == pytest.approx(WRITTEN[name][what], rel=1e-9, abs=1e-12), what


def altered(model, tmp_path, change):
    path = tmp_path / "altered"
    path.write_bytes(change(bytearray(model.read_bytes())))
    return path


@pytest.fixture
def pipe(tmp_path):
    """A pipe with a writer who says nothing: whoever reads it does not wait for ever."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.open("wb").close(), daemon=True)
    writer.start()
    yield path
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(reader)


def test_a_pipe_is_no_model_and_is_not_read(pipe):
    for read in (metaprior.load, read_state, MetaGP.load):
        with pytest.raises(DataError, match="pipe is a pipe or a device, not a model file: write the model to a regul"):
            read(pipe)
    assert saved_in(pipe) is None


def test_a_pipe_is_not_read_to_know_whether_it_may_be_replaced(pipe):
    with pytest.raises(OutputError, match="pipe exists, and would be lost"):
        check_file(pipe, [], ours=lambda path: pytest.fail("it was read"), overwrite=False)


def header_of(content):
    length = struct.unpack("<Q", content[:8])[0]
    return length, json.loads(bytes(content[8 : 8 + length]))


def rewritten(model, tmp_path, change):
    """The same file with another metaprior header, under a checksum that fits."""
    state = read_state(model)
    path = tmp_path / "rewritten"
    structure, about = json.loads(json.dumps([state.structure, state.about]))
    change(structure["parts"]["method"]["structure"])
    write_state(path, State(state.saved_as, structure, state.tensors, about))
    return path


def test_a_file_that_was_cut_short(model, tmp_path):
    size = model.stat().st_size
    for kept in (0, 4, 8, 100, size // 2, size - 1):
        with pytest.raises(DataError, match="not a metaprior model, or it was cut short"):
            metaprior.load(altered(model, tmp_path, lambda content, kept=kept: content[:kept]))


def test_a_file_that_was_altered(model, tmp_path):
    def flip(content):
        content[-3] ^= 1
        return content

    with pytest.raises(DataError, match="was altered"):
        metaprior.load(altered(model, tmp_path, flip))


def test_a_file_that_claims_enormous_sizes(model, tmp_path):
    def huge_header(content):
        return struct.pack("<Q", 2**60) + content[8:]

    def huge_tensor(content):
        length, header = header_of(content)
        name = next(key for key in header if key != "__metadata__")
        header[name] |= {"shape": [10**12], "data_offsets": [0, 8 * 10**12]}
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]

    for change in (huge_header, huge_tensor):
        with pytest.raises(DataError, match="cut short"):
            metaprior.load(altered(model, tmp_path, change))
    for key, value in (("hidden", [10**9, 10**9]), ("features", 10**12), ("d", 10**12), ("p", 10**12)):
        with pytest.raises(DataError, match=r"does not (fit together|describe)"):
            metaprior.load(rewritten(model, tmp_path, lambda found, key=key, value=value: found.update({key: value})))


def test_a_file_of_another_kind_or_a_newer_format(model, tmp_path):
    path = tmp_path / "other"
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(DataError, match="safetensors file of another kind"):
        metaprior.load(path)
    path.write_text("year,month\n1,2\n")
    with pytest.raises(DataError, match="not a metaprior model"):
        metaprior.load(path)
    for step, by, do in ((1, "9.1.0", "install a newer metaprior"), (-1, "0.0.7", "fit the model again, or install")):
        about = {"versions": {"metaprior": by}}
        other = json.dumps({"format": FORMAT + step, "kind": "metagp", "structure": {}, "about": about})
        save_file({}, path, metadata={"metaprior": other})
        with pytest.raises(DataError, match=f"written by metaprior {by}, in format {FORMAT + step}.*{do}"):
            metaprior.load(path)
    save_file({}, path, metadata={"metaprior": "[1]"})
    with pytest.raises(DataError, match="header that cannot be read"):
        metaprior.load(path)
    write_state(path, State("oracle", {}, {}))
    with pytest.raises(DataError, match="'oracle', which is no model"):
        metaprior.load(path)
    with pytest.raises(DataError, match=r"use metaprior\.load"):
        FPCA.load(model)
    with pytest.raises(DataError, match="is a folder"):
        metaprior.load(tmp_path)
    with pytest.raises(DataError, match="there is no model file"):
        metaprior.load(tmp_path / "nothing")
    write_state(path, State("fpca", {"basis": {"kind": "spline"}}, {}))
    with pytest.raises(DataError, match="does not describe"):
        metaprior.load(path)


def test_code_does_not_go_into_a_file(tmp_path):
    gp = MetaGP(lambda x: x[..., 0], "rbf", max_epochs=2, progress=False).fit(TASKS)
    with pytest.raises(OptionError, match="a mean that was given as code cannot be saved"):
        gp.save(tmp_path / "m")


def test_a_failed_writing_leaves_the_earlier_file(model, tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(model.read_bytes())

    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metaprior.files._write", full_disk)
    with pytest.raises(OutputError, match="No space left"):
        metaprior.load(path).save(path)
    assert path.read_bytes() == model.read_bytes()
    assert os.listdir(tmp_path) == ["m"]


def test_a_file_is_what_safetensors_would_write(tmp_path):
    numbers = torch.arange(6.0)
    tensors = {
        "b/é": numbers.double().reshape(2, 3), "a": numbers.float(), "whole": numbers.long(), "one": torch.tensor(1.5),
        "none": torch.zeros(0, 3, dtype=torch.float64), "bytes": numbers.to(torch.uint8), "small": numbers.int(),
        "bits": numbers > 2,
    }  # fmt: skip
    for named in (tensors, {}):
        write_state(tmp_path / "m", State("kind", {"text": 'é\n"', "list": [1, 2.5, None]}, named))
        text = read_header(tmp_path / "m")
        assert (tmp_path / "m").read_bytes() == save(named, metadata=text)
        assert set(read_state(tmp_path / "m").tensors) == set(named)


def read_header(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata()


class StoppedError(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("lbfgs", {"check_every": 3}), ("adam", {"batch_size": 8}), ("adam", {"check_every": 3}), ("algorithm1", {})],
)
def test_a_training_that_was_stopped_ends_as_if_it_had_not_been(optimizer, options, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    path = tmp_path / "checkpoint"

    def fresh(seed=0):
        return MetaGP(
            "deep", "deep", hidden=(6,), optimizer=optimizer, max_epochs=12, seed=seed, progress=False, **options
        )

    whole = fresh().fit(TASKS)
    write, count = checkpoints.Checkpoint.write, []

    def write_twice(self, values):
        write(self, values)
        count.append(1)
        if len(count) == 2:
            raise StoppedError

    monkeypatch.setattr(checkpoints.Checkpoint, "write", write_twice)
    with pytest.raises(StoppedError):
        fresh().fit(TASKS, checkpoint=path)
    assert path.exists()
    monkeypatch.setattr(checkpoints.Checkpoint, "write", write)
    with pytest.raises(DataError, match="belongs to another training"):
        fresh(seed=1).fit(TASKS, checkpoint=path)
    resumed = fresh().fit(TASKS, checkpoint=path)
    assert not path.exists()
    assert [c.held_out_evidence for c in resumed.training_.checks] == [
        c.held_out_evidence for c in whole.training_.checks
    ]
    for name, value in whole.prior_.state_dict().items():
        assert torch.equal(value, resumed.prior_.state_dict()[name])


def test_a_model_is_no_checkpoint(model):
    with pytest.raises(DataError, match="is a model, not a checkpoint"):
        MetaGP("deep", "deep", hidden=(6,), max_epochs=2, progress=False).fit(TASKS, checkpoint=model)


def test_learning_goes_on_from_an_earlier_model(tmp_path):
    first, more = ragged(count=20, seed=1), ragged(count=25, seed=2)
    more = Tasks.from_pairs([(task.x, task.y) for task in more], [f"new {k}" for k in range(25)])
    gp = MetaGP("deep", "deep", hidden=(5,), max_epochs=10, progress=False).fit(first)
    on = MetaGP("deep", "deep", hidden=(5,), max_epochs=1, progress=False).fit(more, start=gp)
    assert on.trained_on_.tasks == 45
    again = MetaGP("deep", "deep", hidden=(5,), max_epochs=1, progress=False).fit(more, start=on)
    assert again.trained_on_.tasks == 45  # the same tasks count once
    assert torch.equal(on.scaler_.y_scale, gp.scaler_.y_scale)
    anew = MetaGP("deep", "deep", hidden=(5,), max_epochs=1, progress=False).fit(more)
    assert on.training_.checks[0].held_out_evidence != anew.training_.checks[0].held_out_evidence
    with pytest.raises(DataError, match="another structure"):
        MetaGP("deep", "deep", hidden=(7,), max_epochs=1, progress=False).fit(more, start=gp)


def test_which_tasks_were_seen_is_told_by_salted_hashes():
    others = dataclasses.replace(TASKS, y=TASKS.y + 1)
    gp = MetaGP("zero", "rbf", max_epochs=1, progress=False)
    one, again, two = (gp.fit(tasks).trained_on_ for tasks in (TASKS, TASKS, others))
    assert one.salt == again.salt  # the same tasks make the same file
    assert one.salt != two.salt
    assert not np.array_equal(one.hashes.numpy(), two.hashes.numpy())
    assert one.seen([0, "0", 99]) == [0, "0"]  # a table may give numbers as text


def test_a_file_that_may_not_be_read_is_told_as_such(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError("permission denied")

    path = tmp_path / "m"
    path.touch()
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DataError, match="may not be read by this user"):
        metaprior.load(path)


@pytest.mark.parametrize(
    "method",
    [MetaGP(), MetaGP("zero", "rbf"), Auto(), Warped(FPCA()), FPCA(), MAML(), Mixture(), HyperPosterior(), GPPerTask()],
    ids=lambda one: type(one).__name__,
)
def test_what_has_learned_nothing_says_so(method, tmp_path):
    blank = Tasks.empty(["new"], 1, 1)
    for ask in (lambda: method.predict(blank, [[0.0]]), lambda: method.save(tmp_path / "m"), method.state):
        with pytest.raises(NotFittedError, match=f"this {type(method).__name__} has learned nothing yet: call fit"):
            ask()
    assert list(tmp_path.iterdir()) == []
