"""Which datasets there are, and where their files lie: the folder given, METAPRIOR_DATA, or the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from metaprior.errors import DataError, UnknownNameError

ENVIRONMENT = "METAPRIOR_DATA"


class Dataset(NamedTuple):
    """What a dataset is, its terms of use, and its files: the official name and the names accepted in its place."""

    what: str
    terms: str
    files: Mapping[str, tuple[str, ...]]


def _idx(name: str, rank: int) -> tuple[str, ...]:
    """The names under which one of MNIST's files is passed around, the official one first."""
    return (f"{name}-idx{rank}-ubyte.gz", f"{name}-idx{rank}-ubyte", f"{name}.idx{rank}-ubyte")


def _files(*accepted: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {names[0]: names for names in accepted}


DATASETS = {
    "mnist": Dataset(
        "handwritten digits, 60,000 + 10,000 images of 28×28",
        "CC BY-SA 3.0",
        _files(_idx("train-images", 3), _idx("train-labels", 1), _idx("t10k-images", 3), _idx("t10k-labels", 1)),
    ),
    "physionet2012": Dataset(
        "PhysioNet/CinC Challenge 2012: 48 hours of intensive care, 4,000 + 4,000 patients",
        "ODC-By 1.0",
        _files(("set-a.tar.gz", "set-a.tar", "set-a"), ("set-b.tar.gz", "set-b.tar", "set-b")),
    ),
}


def cache_folder() -> Path:
    """Where downloads are kept: the user's cache folder, by the custom of the system."""
    if sys.platform == "darwin":
        base = Path("~/Library/Caches")
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser() / "metaprior"


def find(name: str, given: Path | None = None, files: Sequence[str] | None = None) -> Path:
    """The folder with this dataset: all of its files, or those named. Without one, the error says where it looked."""
    found = locate(name, given, files)
    if found is not None:
        return found
    looked = "; ".join(_what_is_missing(name, folder, files) for folder in _folders(name, given))
    raise DataError(
        f"{name}: files are missing. Looked in {looked}. Get them with `metaprior data fetch {name}`, or say where "
        f"they are with --data or the environment variable {ENVIRONMENT}."
    )


def locate(name: str, given: Path | None = None, files: Sequence[str] | None = None) -> Path | None:
    """As `find`, but None where the files are missing. A folder that was named and is none is still an error."""
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    return next((folder for folder in _folders(name, given) if not _missing(name, folder, files)), None)


def accepted_file(name: str, folder: Path, file: str) -> Path | None:
    """The path of this file of a dataset, under the first accepted name that exists in the folder."""
    paths = (folder / accepted for accepted in DATASETS[name].files[file])
    return next((path for path in paths if path.exists()), None)


def found_file(name: str, file: str, given: Path | None) -> Path:
    """The path of one file of a dataset, wherever it is found."""
    path = accepted_file(name, find(name, given, [file]), file)
    assert path is not None
    return path


def damaged(name: str, path: Path, why: str) -> DataError:
    """What to say of a file of a dataset that cannot be used."""
    return DataError(
        f"{path} is damaged{why}. It was left in place: delete it and run `metaprior data fetch {name}`, or name "
        "another folder."
    )


def _folders(name: str, given: Path | None) -> Iterator[Path]:
    for place in _places(given):
        yield place / name
        yield place


def _places(given: Path | None) -> list[Path]:
    """Where to look, in order. A folder the user named must be one."""
    if given is not None:
        return [_named_folder(Path(given).expanduser(), "")]
    places = [cache_folder()]
    named = os.environ.get(ENVIRONMENT)
    if named:
        places.insert(0, _named_folder(Path(named).expanduser(), f" (from {ENVIRONMENT})"))
    return places


def _named_folder(folder: Path, origin: str) -> Path:
    if not folder.exists():
        raise DataError(f"the data folder {folder}{origin} does not exist. Make it, or name another.")
    if not folder.is_dir():
        raise DataError(f"the data folder {folder}{origin} is a file. Name the folder that holds the datasets.")
    return folder


def _missing(name: str, folder: Path, files: Sequence[str] | None) -> list[str]:
    wanted = DATASETS[name].files if files is None else files
    return [file for file in wanted if accepted_file(name, folder, file) is None]


def _what_is_missing(name: str, folder: Path, files: Sequence[str] | None) -> str:
    if not folder.is_dir():
        return f"{folder} (no such folder)"
    return f"{folder} (without {', '.join(_missing(name, folder, files))})"
