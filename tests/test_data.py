"""Where data is looked for, the readers, what they refuse, and the command that lists datasets."""

import gzip
import io
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

import metaprior
from metaprior.cli import main
from metaprior.data import VARIABLES, cache_folder, find, load_digits, load_elnino, load_mnist, load_physionet, locate

IDX = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
]
HEADER = "Time,Parameter,Value\n"
MEASUREMENTS = {
    "set-a": {"GCS": 61_563, "Urine": 136_918, "HCT": 18_271, "Creatinine": 13_983, "BUN": 13_916},
    "set-b": {"GCS": 62_566, "Urine": 137_123, "HCT": 18_439, "Creatinine": 13_959, "BUN": 13_891},
}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path_factory):
    """No test sees what lies in the real cache or is named in the environment."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("METAPRIOR_DATA", raising=False)
    return cache / "metaprior"


def touch(folder, names=IDX):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


# ---- where files are


def test_the_given_folder_may_hold_the_files_or_a_folder_of_them(tmp_path):
    assert find("mnist", touch(tmp_path / "one")) == tmp_path / "one"
    assert find("mnist", touch(tmp_path / "two" / "mnist").parent) == tmp_path / "two" / "mnist"


def test_the_environment_comes_before_the_cache(tmp_path, monkeypatch, empty_cache):
    assert locate("mnist") is None
    touch(empty_cache / "mnist")
    assert find("mnist") == empty_cache / "mnist"
    monkeypatch.setenv("METAPRIOR_DATA", str(tmp_path))
    assert find("mnist") == empty_cache / "mnist"
    touch(tmp_path / "mnist")
    assert find("mnist") == tmp_path / "mnist"


def test_only_the_given_folder_is_looked_at(tmp_path, monkeypatch, empty_cache):
    touch(empty_cache / "mnist")
    monkeypatch.setenv("METAPRIOR_DATA", str(touch(tmp_path / "named")))
    (tmp_path / "given").mkdir()
    assert locate("mnist", tmp_path / "given") is None


def test_missing_files_are_named_with_all_places_and_the_remedy(tmp_path, monkeypatch, empty_cache):
    monkeypatch.setenv("METAPRIOR_DATA", str(tmp_path))
    touch(tmp_path / "mnist", IDX[:2])
    with pytest.raises(metaprior.DataError, match="`metaprior data fetch mnist`") as caught:
        load_mnist()
    message = str(caught.value)
    assert f"{tmp_path / 'mnist'} (without {IDX[2]}, {IDX[3]})" in message
    assert f"{tmp_path} (without {', '.join(IDX)})" in message
    assert f"{empty_cache / 'mnist'} (no such folder)" in message


def test_only_the_set_asked_for_must_be_there(tmp_path):
    touch(tmp_path, ["set-b.tar"])
    assert find("physionet2012", tmp_path, ["set-b.tar.gz"]) == tmp_path
    with pytest.raises(metaprior.DataError, match=r"without set-a\.tar\.gz\)"):
        find("physionet2012", tmp_path)


@pytest.mark.parametrize(("make", "message"), [(Path.touch, "is a file"), (lambda _: None, "does not exist")])
def test_a_data_folder_must_be_a_folder(make, message, tmp_path, monkeypatch):
    make(tmp_path / "data")
    with pytest.raises(metaprior.DataError, match=f"the data folder {tmp_path / 'data'} {message}"):
        load_mnist(tmp_path / "data")
    monkeypatch.setenv("METAPRIOR_DATA", str(tmp_path / "data"))
    with pytest.raises(metaprior.DataError, match=rf"\(from METAPRIOR_DATA\) {message}"):
        load_mnist()


def test_an_unknown_dataset_is_named():
    with pytest.raises(metaprior.MetapriorError, match=r"unknown dataset 'minst'. Did you mean 'mnist'\?"):
        find("minst")


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", "~/.cache/metaprior"),
        ("darwin", "XDG_CACHE_HOME", "~/Library/Caches/metaprior"),
        ("win32", "LOCALAPPDATA", "~/AppData/Local/metaprior"),
    ],
)
def test_the_cache_follows_the_systems_custom(platform, variable, folder, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.delenv(variable, raising=False)
    assert cache_folder() == Path(folder).expanduser()
    monkeypatch.setenv(variable, str(tmp_path))
    assert (cache_folder() == tmp_path / "metaprior") == (platform != "darwin")


# ---- MNIST


def idx(array):
    array = np.asarray(array, dtype=np.uint8)
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, named=lambda name: name, **changed):
    """A tiny MNIST of 3 + 2 images of 4×5; `changed` replaces the content of files by their first word."""
    bodies = [idx(np.arange(60).reshape(3, 4, 5)), idx([7, 8, 9]), idx(np.ones((2, 4, 5))), idx([0, 1])]
    for name, body in zip(IDX, bodies, strict=True):
        path = folder / named(name)
        body = changed.get(name.partition("-idx")[0].replace("-", "_"), body)
        path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return folder


@pytest.mark.parametrize(
    "named",
    [lambda n: n, lambda n: n.removesuffix(".gz"), lambda n: n.removesuffix(".gz").replace("-idx", ".idx")],
    ids=["gzipped", "plain", "dotted"],
)
def test_mnist_is_read_from_gzipped_and_plain_files(named, tmp_path):
    images = load_mnist(write_mnist(tmp_path, named))
    assert images.train.dtype == images.train_labels.dtype == torch.uint8
    assert torch.equal(images.train, torch.arange(60, dtype=torch.uint8).reshape(3, 4, 5))
    assert images.test.shape == (2, 4, 5)
    assert images.train_labels.tolist() == [7, 8, 9]
    assert images.test_labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"train_images": idx([1, 2])},
            "train-images.* begins with 00 00 08 01, but .* in 3 dimensions with 00 00 08 03",
        ),
        ({"t10k_labels": b""}, "t10k-labels.* begins with nothing"),
        ({"train_labels": idx([7, 8, 9])[:6]}, "train-labels.* has 6 bytes, but the header .* has 8"),
        ({"t10k_images": idx(np.ones((2, 4, 5)))[:-1]}, "promises 2 × 4 × 5 = 40 bytes, but 39 follow"),
        ({"t10k_images": idx(np.ones((2, 4, 5))) + b"x"}, "promises 2 × 4 × 5 = 40 bytes, but 41 follow"),
        ({"train_labels": idx([7, 8])}, "has 3 images, but .*train-labels.* has 2 labels"),
        ({"t10k_images": idx(np.ones((2, 5, 4)))}, r"of size \(4, 5\), those for testing \(5, 4\)"),
    ],
)
def test_damaged_idx_files_are_named_and_left_in_place(changed, message, tmp_path):
    write_mnist(tmp_path, **changed)
    with pytest.raises(metaprior.DataError, match=message) as caught:
        load_mnist(tmp_path)
    assert "left in place" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(IDX)


@pytest.mark.parametrize(
    "damage", [lambda body: b"<html>", lambda body: body[:-12], lambda body: body[:12] + b"\xff" * 9 + body[21:]]
)
def test_broken_gzip_is_said(damage, tmp_path):
    path = write_mnist(tmp_path) / IDX[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        metaprior.DataError, match=f"{IDX[0]} is damaged: expected a whole gzip file, but .*left in place"
    ):
        load_mnist(tmp_path)


def test_a_file_that_cannot_be_opened_is_said(tmp_path):
    path = write_mnist(tmp_path) / IDX[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(metaprior.DataError, match=f"cannot read .*{IDX[0]}: Is a directory"):
        load_mnist(tmp_path)


def test_the_real_mnist(data_folder):
    images = load_mnist(data_folder)
    assert images.train.shape == (60_000, 28, 28)
    assert images.test.shape == (10_000, 28, 28)
    assert images.train_labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert images.test_labels[:5].tolist() == [7, 2, 1, 0, 4]


# ---- PhysioNet


def patient(*lines):
    return HEADER + "".join(f"{line}\n" for line in ("00:00,RecordID,1", "00:00,Age,54", "00:00,Height,-1", *lines))


def tarred(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(_directory("set-a"))
        for name, text in members.items():
            body = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def _directory(name):
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


PATIENTS = {
    "set-a/132541.txt": patient("00:20,GCS,15", "00:20,Urine,30", "48:00,GCS,3.5"),
    "set-a/132539.txt": patient(
        "00:07,GCS,15", "00:07,HR,73", "01:30,Urine,60", "01:30,Urine,1.2e+3", "02:00,Urine,-1"
    ),
    "set-a/132540.txt": patient("05:00,Urine,-1"),
}


def write_set(folder, members=PATIENTS):
    (folder / "set-a.tar.gz").write_bytes(gzip.compress(tarred(members)))
    return folder


def write_folder(folder, members=PATIENTS):
    (folder / "set-a").mkdir()
    for name, text in members.items():
        (folder / name).write_bytes(text.replace("\n", "\r\n").removesuffix("\r\n").encode())
    return folder


def write_plain(folder, members=PATIENTS):
    (folder / "set-a.tar").write_bytes(tarred(members))
    return folder


@pytest.mark.parametrize("write", [write_set, write_plain, write_folder])
def test_patients_are_read_as_tasks(write, tmp_path):
    found = load_physionet("set-a", ["Urine", "GCS"], write(tmp_path))
    assert list(found) == ["Urine", "GCS"]
    gcs, urine = found["GCS"], found["Urine"]
    assert gcs.ids == urine.ids == (132539, 132541)
    assert gcs.columns == (("RecordID",), ("hour",), ("GCS",), ())
    assert gcs.x.dtype == gcs.y.dtype == torch.float64
    assert gcs.x[:, 0].tolist() == [7 / 60, 20 / 60, 48.0]
    assert gcs.y[:, 0].tolist() == [15.0, 15.0, 3.5]
    assert gcs.offsets.tolist() == [0, 1, 3]
    assert urine[0].x[:, 0].tolist() == [1.5, 1.5]
    assert urine[0].y[:, 0].tolist() == [60.0, 1200.0]
    assert gcs.notes == ("skipped 1 of 3 patients: no measurement of GCS",)
    assert urine.notes == (
        "dropped 2 of 5 measurements of Urine: negative, which means missing",
        "skipped 1 of 3 patients: no measurement of Urine",
    )


def test_what_is_ignored_is_counted(tmp_path):
    strange = {"set-a/200000.txt": patient("01:00,GCS,9", "02:00,,-1", "03:00,GSC,4")}
    system = {"set-a/._132539.txt": "\x00\x05", "set-a/.DS_Store": "\x00"}
    tasks = load_physionet("set-a", "GCS", write_set(tmp_path, PATIENTS | strange | system))["GCS"]
    assert tasks.ids == (132539, 132541, 200000)
    assert tasks.notes[1:] == (
        "skipped 2 files that macOS adds to archives and folders (._*, .DS_Store)",
        "ignored 2 lines whose parameter is none of the challenge's",
    )


@pytest.mark.parametrize("write", [write_set, write_folder])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Time,Parameter\n", "line 1: expected the header Time,Parameter,Value, found 'Time,Parameter'"),
        ("", "line 1: expected the header Time,Parameter,Value, found ''"),
        (patient("00:07,GCS,x"), "line 5: the value of GCS must be a number, found 'x'"),
        (patient("00:07,GCS,"), "line 5: the value of GCS must be a number, found ''"),
        (patient("00:07,GCS,nan"), "line 5: the value of GCS must be a number, found 'nan'"),
        (patient("00:07,GCS,1e999"), "line 5: the value of GCS must be a number, found '1e999'"),
        (patient("00:07,HR,73", "24:75,GCS,15"), "line 6: expected a time HH:MM .* found '24:75'"),
        (patient("x,GCS,15"), "line 5: expected a time HH:MM with minutes 00 to 59, found 'x'"),
        (patient("48:01,GCS,15"), "line 5: the time 48:01 is beyond 48:00"),
        (patient("00:07,GCS"), "line 5: expected 3 columns .* found 2 in '00:07,GCS'"),
        (patient("00:07,GCS,1,2"), "line 5: expected 3 columns .* found 4"),
        (patient("", "00:07,GCS,15"), "line 5: expected 3 columns .* found 1 in ''"),
    ],
)
def test_a_wrong_line_is_named_by_file_and_number(text, message, write, tmp_path):
    write(tmp_path, PATIENTS | {"set-a/132542.txt": text})
    where = r"set-a\.tar\.gz, set-a/132542\.txt, " if write is write_set else r"set-a, 132542\.txt, "
    with pytest.raises(metaprior.DataError, match=where + message):
        load_physionet("set-a", ["GCS"], tmp_path)


@pytest.mark.parametrize("name", ["set-a/13254.txt", "set-a/132542.csv", "set-a/Outcomes-a.txt", "set-a/x132542.txt"])
def test_a_file_that_is_no_patients_is_refused(name, tmp_path):
    write_set(tmp_path, PATIENTS | {name: patient("00:07,GCS,15")})
    with pytest.raises(metaprior.DataError, match=rf"set-a\.tar\.gz, {name}: unexpected file; expected .*NNNNNN\.txt"):
        load_physionet("set-a", ["GCS"], tmp_path)


def test_a_patient_who_is_there_twice_is_refused(tmp_path):
    write_set(tmp_path, PATIENTS | {"set-a/again/132539.txt": patient("00:07,GCS,15")})
    with pytest.raises(metaprior.DataError, match=r"set-a/again/132539\.txt: patient 132539 is there twice"):
        load_physionet("set-a", ["GCS"], tmp_path)


def test_a_link_in_an_archive_is_refused(tmp_path):
    with tarfile.open(tmp_path / "set-a.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("set-a/132539.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere"
        archive.addfile(link)
    with pytest.raises(metaprior.DataError, match=r"set-a/132539\.txt: a link or device"):
        load_physionet("set-a", ["GCS"], tmp_path)


def _flip(body, at):
    return body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :]


@pytest.mark.parametrize("packed", [gzip.compress, bytes], ids=["gzipped", "plain"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: b"<html>come back later</html>",
        lambda body: body[: len(body) // 5],
        lambda body: _flip(body, 0),
    ],
)
def test_a_damaged_archive_is_said_and_left_in_place(damage, packed, tmp_path):
    path = tmp_path / ("set-a.tar.gz" if packed is gzip.compress else "set-a.tar")
    path.write_bytes(damage(packed(tarred(PATIENTS))))
    with pytest.raises(metaprior.DataError, match=rf"{path.name} is damaged or cut short.*left in place: delete it"):
        load_physionet("set-a", ["GCS"], tmp_path)
    assert path.exists()


@pytest.mark.parametrize(
    "damage",
    [lambda body: body[: 3 * 512], lambda body: _flip(body, 3 * 512), lambda body: body[: 3 * 512 + 100]],
    ids=["cut between members", "damaged second header", "cut within a header"],
)
def test_a_tar_archive_that_stops_between_its_members_is_not_taken_for_whole(damage, tmp_path):
    (tmp_path / "set-a.tar").write_bytes(damage(tarred(PATIENTS)))
    with pytest.raises(metaprior.DataError, match=r"set-a\.tar is damaged or cut short.*does not end as a tar archive"):
        load_physionet("set-a", ["GCS"], tmp_path)


def test_a_gzip_checksum_that_is_wrong_is_noticed(tmp_path):
    path = write_set(tmp_path) / "set-a.tar.gz"
    path.write_bytes(_flip(path.read_bytes(), -8))
    with pytest.raises(metaprior.DataError, match=r"set-a\.tar\.gz is damaged or cut short.*CRC"):
        load_physionet("set-a", ["GCS"], tmp_path)


def test_names_that_are_asked_for_must_be_known(tmp_path):
    write_set(tmp_path)
    with pytest.raises(metaprior.MetapriorError, match=r"unknown variable 'Ureen'. Did you mean 'Urine'\?"):
        load_physionet("set-a", ["GCS", "Ureen"], tmp_path)
    with pytest.raises(metaprior.MetapriorError, match="unknown variable 'Age'"):
        load_physionet("set-a", ["Age"], tmp_path)
    with pytest.raises(metaprior.MetapriorError, match="unknown part of physionet2012 'set-d'"):
        load_physionet("set-d", ["GCS"], tmp_path)
    with pytest.raises(metaprior.OptionError, match="no variable was asked for"):
        load_physionet("set-a", [], tmp_path)
    with pytest.raises(metaprior.DataError, match=r"set-a\.tar\.gz: no patient has a measurement of Lactate"):
        load_physionet("set-a", ["Lactate"], tmp_path)
    assert len(VARIABLES) == len(set(VARIABLES)) == 37


@pytest.mark.parametrize("part", ["set-a", "set-b"])
def test_the_real_patients(part, data_folder):
    found = load_physionet(part, list(MEASUREMENTS[part]), data_folder)
    assert {name: len(tasks.y) for name, tasks in found.items()} == MEASUREMENTS[part]
    for name, tasks in found.items():
        assert bool((tasks.sizes > 0).all())
        assert tasks.notes == (f"skipped {4000 - len(tasks)} of 4,000 patients: no measurement of {name}",)
        assert tasks.x.min() >= 0
        assert tasks.x.max() <= 48
        later = tasks.x[1:, 0] >= tasks.x[:-1, 0]
        assert bool((later | tasks.task_of_row.diff().bool()).all())


def test_missing_measurements_of_the_real_patients(data_folder):
    temperature = load_physionet("set-a", ["Temp"], data_folder)["Temp"]
    assert temperature.notes[0] == "dropped 24 of 86,405 measurements of Temp: negative, which means missing"
    assert len(temperature.y) == 86_405 - 24
    assert temperature.y.min() >= 0


# ---- what comes with the package


def test_the_embedded_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = load_digits()
    assert images.dtype == labels.dtype == torch.uint8
    assert np.array_equal(images.numpy(), datasets.load_digits().images)
    assert np.array_equal(labels.numpy(), datasets.load_digits().target)


# ---- the command line, and the count of these tests


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `metaprior` with these arguments; gives the exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["metaprior", *arguments])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code, *capsys.readouterr()

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return run


def test_the_command_lists_what_there_is(command, empty_cache):
    mnist = touch(empty_cache / "mnist")
    code, out, _ = command("data", "list")
    assert code == 0
    rows = {line.split()[1]: line for line in out.splitlines() if "│" in line}
    assert "CC BY 4.0" in rows["digits"]
    assert "in the package" in rows["digits"]
    assert "CC BY-SA 3.0" in rows["mnist"]
    assert str(mnist) in rows["mnist"]
    assert "ODC-By 1.0" in rows["physionet2012"]
    assert "metaprior data fetch physionet2012" in rows["physionet2012"]


def test_the_users_mistakes_exit_with_2(command):
    code, out, error = command("data", "fetch", "mnits")
    assert (code, out) == (2, "")
    assert error.startswith("error: unknown dataset 'mnits'. Did you mean 'mnist'?")
    code, out, error = command("data", "fetch", "mnist", "--folder", "/dev/null/data")
    assert (code, out) == (2, "")
    assert error.startswith("error: cannot write to the folder /dev/null/data/mnist: Not a directory.")


def test_help_shows_options_and_an_example(command):
    assert "data" in command("--help")[1]
    text = command("data", "fetch", "--help")[1]
    for word in ("--folder", "Example: metaprior data fetch mnist", "physionet2012"):
        assert word in text
    assert "Example: metaprior data list" in command("data", "list", "--help")[1]


SOME_TESTS = """
import pytest

@pytest.mark.parametrize("i", [0, 1])
def test_with(i, data_folder):
    assert data_folder.is_dir()

def test_without():
    assert True
"""


@pytest.mark.parametrize(
    ("there", "options", "line"),
    [
        (True, ["-n", "2"], "data tests: 2 ran, 0 skipped for want of data"),
        (False, ["-p", "no:xdist"], "data tests: 0 ran, 2 skipped for want of data"),
    ],
)
def test_a_run_says_how_many_tests_saw_data(there, options, line, tmp_path):
    tests = tmp_path / "repository" / "tests"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tests / "test_some.py").write_text(SOME_TESTS)
    if there:
        (tmp_path / "shared" / "data").mkdir(parents=True)
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(pytest_command, capture_output=True, text=True, cwd=tests.parent)
    assert done.returncode == 0, done.stdout
    assert line in done.stdout.splitlines()


def test_sea_surface_temperatures_are_years_of_twelve_months():
    years = load_elnino()
    assert len(years) == 61
    assert years.ids[0] == 1950
    assert years.sizes.unique().tolist() == [12]
    assert years.y.mean() == pytest.approx(23.0, abs=0.3)
