"""The PhysioNet/CinC Challenge 2012: one text file `Time,Parameter,Value` per patient, one archive per set."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch

from metaprior.data.locations import damaged, found_file
from metaprior.errors import DataError, OptionError, UnknownNameError
from metaprior.tasks import Columns, Tasks, offsets_of

Part = Literal["set-a", "set-b"]

VARIABLES = (
    "Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS",
    "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "MechVent", "Mg", "Na", "NIDiasABP", "NIMAP", "NISysABP",
    "PaCO2", "PaO2", "pH", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC",
    "Weight",
)  # fmt: skip
"""The 37 time series of the challenge."""

DESCRIPTORS = ("RecordID", "Age", "Gender", "Height", "ICUType")  # Weight is a descriptor and a time series
HEADER = "Time,Parameter,Value"
LAST_MINUTE = 48 * 60
PATIENTS = 4000

_NUMBER = r"-?(?:\d{1,99}(?:\.\d{0,99})?|\.\d{1,99})(?:[eE][+-]?\d\d?)?"  # bounded, so that it is finite as a float
_LINE = rf"(?:(?:[0-3]\d|4[0-7]):[0-5]\d|48:00),(?:{'|'.join(VARIABLES + DESCRIPTORS)}),{_NUMBER}\n"
_GOOD_FILE = re.compile(rf"{HEADER}\n(?:{_LINE})*+".encode())
_HOURS = {f"{minute // 60:02}:{minute % 60:02}".encode(): minute / 60 for minute in range(LAST_MINUTE + 1)}
_FILE_NAME = re.compile(r"(?:.*/)?(\d{6})\.txt")


class _Patients(NamedTuple):
    """The checked text of each patient's file by record id in rising order, and what was passed over."""

    texts: dict[int, bytes]
    notes: tuple[str, ...]


def load_physionet(part: Part, variables: Sequence[str], given: Path | None = None) -> dict[str, Tasks]:
    """For each variable the patients of a set as tasks: x is hours since admission, y the measurements.

    Rows are in the file's order, in which times may repeat. Negative values mean missing.
    What was left out is in each `Tasks.notes`.
    """
    names = _known_names(part, variables)
    path = found_file("physionet2012", f"{part}.tar.gz", given)
    patients = _read(path)
    measured = _Measurements(names)
    for text in patients.texts.values():
        measured.add(text)
    return {name: measured.tasks(name, path, patients) for name in names}


def check_set(path: Path) -> None:
    """Is this one whole set of the challenge, each line of it readable? If not, an error says what is wrong."""
    found = len(_read(path).texts)
    if found != PATIENTS:
        raise DataError(f"{path}: {found:,} patient files, expected {PATIENTS:,}.")


def _known_names(part: str, variables: Sequence[str]) -> tuple[str, ...]:
    if part not in get_args(Part):
        raise UnknownNameError("part of physionet2012", part, get_args(Part))
    names = (variables,) if isinstance(variables, str) else tuple(variables)
    if not names:
        raise OptionError(f"no variable was asked for; name at least one of {', '.join(VARIABLES)}.")
    for name in names:
        if name not in VARIABLES:
            raise UnknownNameError("variable", name, VARIABLES)
    return names


class _Measurements:
    """Hours and values of the wanted variables, and how many each patient has."""

    def __init__(self, names: Sequence[str]) -> None:
        self._wanted = re.compile(rf"^(.....),({'|'.join(names)}),(.*)$".encode(), re.MULTILINE)
        self._hours: dict[bytes, list[float]] = {name.encode(): [] for name in names}
        self._values: dict[bytes, list[float]] = {name.encode(): [] for name in names}
        self._ends: dict[bytes, list[int]] = {name.encode(): [] for name in names}

    def add(self, text: bytes) -> None:
        """The next patient's measurements."""
        for time, name, value in self._wanted.findall(text):
            self._hours[name].append(_HOURS[time])
            self._values[name].append(float(value))
        for name, ends in self._ends.items():
            ends.append(len(self._values[name]))

    def tasks(self, name: str, path: Path, patients: _Patients) -> Tasks:
        """One task per patient with a measurement of this variable that is not missing."""
        key = name.encode()
        x = torch.tensor(self._hours[key], dtype=torch.float64)
        y = torch.tensor(self._values[key], dtype=torch.float64)
        ends = np.array(self._ends[key], dtype=np.int64)
        owner = torch.from_numpy(np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)))
        measured = y >= 0
        sizes = torch.bincount(owner[measured], minlength=len(ends))
        if not int(sizes.sum()):
            raise DataError(f"{path}: no patient has a measurement of {name}. Ask for another variable.")
        notes = _left_out(name, len(y), int((~measured).sum()), len(ends), int((sizes == 0).sum()))
        ids = tuple(record for record, size in zip(patients.texts, sizes.tolist(), strict=True) if size)
        columns = Columns(("RecordID",), ("hour",), (name,))
        x, y, offsets = x[measured, None], y[measured, None], offsets_of(sizes[sizes > 0])
        return Tasks(x, y, offsets, ids, columns, notes + patients.notes)


def _left_out(name: str, measurements: int, missing: int, patients: int, without: int) -> tuple[str, ...]:
    """What was left out of one variable's tasks, in sentences."""
    notes = []
    if missing:
        notes.append(f"dropped {missing:,} of {measurements:,} measurements of {name}: negative, which means missing")
    if without:
        notes.append(f"skipped {without:,} of {patients:,} patients: no measurement of {name}")
    return tuple(notes)


def _read(path: Path) -> _Patients:
    """Every patient's file of a set, its lines checked."""
    texts: dict[int, bytes] = {}
    system_files = strange_lines = 0
    for member, body in _files_of_folder(path) if path.is_dir() else _files_of_archive(path):
        where = f"{path}, {member}"
        if re.fullmatch(r"(?:.*/)?(?:\._[^/]*|\.DS_Store)", member):
            system_files += 1
            continue
        record = _record_of(where, member)
        if record in texts:
            raise DataError(f"{where}: patient {record} is there twice. Remove one of the two files.")
        texts[record] = body.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
        if not _GOOD_FILE.fullmatch(texts[record]):
            strange_lines += _check_lines(where, texts[record])
    notes = []
    if system_files:
        notes.append(f"skipped {system_files:,} files that macOS adds to archives and folders (._*, .DS_Store)")
    if strange_lines:
        notes.append(f"ignored {strange_lines:,} lines whose parameter is none of the challenge's")
    return _Patients(dict(sorted(texts.items())), tuple(notes))


def _record_of(where: str, member: str) -> int:
    name = _FILE_NAME.fullmatch(member)
    if name is None:
        raise DataError(f"{where}: unexpected file; expected one file NNNNNN.txt per patient, named by record id.")
    return int(name[1])


def _files_of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file under a folder."""
    for path in sorted(folder.rglob("*")):
        if not path.is_dir():
            yield path.relative_to(folder).as_posix(), _bytes_of(path)


def _files_of_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file in a tar archive, which may be gzipped."""
    try:
        # unpacked whole, because only then gzip compares its checksum
        content = io.BytesIO(_unzipped(_bytes_of(path)))
        with tarfile.open(fileobj=content, mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield member.name, file.read()
                elif not member.isdir():
                    raise DataError(f"{path}, {member.name}: a link or device; expected plain files.")
            # tarfile takes a damaged or missing header for the archive's end, which is a block of zeros
            content.seek(archive.offset)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from None
    if content.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise _damaged(path, "it does not end as a tar archive does")


def _unzipped(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None


def _damaged(path: Path, why: str) -> DataError:
    return damaged("physionet2012", path, f" or cut short; expected a tar archive, gzipped or not ({why})")


def _check_lines(where: str, text: bytes) -> int:
    """The number of lines with an unknown parameter. The first line that cannot be read is an error that names it."""
    lines = text.decode("utf-8", errors="replace").split("\n")[:-1]
    if lines[0] != HEADER:
        raise DataError(f"{where}, line 1: expected the header {HEADER}, found {_short(lines[0])}.")
    strange = 0
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split(",")
        at = f"{where}, line {number}"
        if len(cells) != 3:
            raise DataError(f"{at}: expected 3 columns ({HEADER}), found {len(cells)} in {_short(line)}.")
        _check_time(at, cells[0])
        if not re.fullmatch(_NUMBER, cells[2], re.ASCII):
            raise DataError(f"{at}: the value of {cells[1]} must be a number, found {_short(cells[2])}.")
        strange += cells[1] not in VARIABLES + DESCRIPTORS
    return strange


def _check_time(at: str, time: str) -> None:
    parts = re.fullmatch(r"(\d\d):([0-5]\d)", time, re.ASCII)
    if parts is None:
        raise DataError(f"{at}: expected a time HH:MM with minutes 00 to 59, found {_short(time)}.")
    if 60 * int(parts[1]) + int(parts[2]) > LAST_MINUTE:
        raise DataError(f"{at}: the time {time} is beyond 48:00, the end of the record.")


def _short(text: str) -> str:
    """The text in quotes, not more than fits into a message."""
    return repr(text if len(text) <= 60 else text[:60] + "…")
