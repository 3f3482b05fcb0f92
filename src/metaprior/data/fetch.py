"""Downloads: datasets from their official homes, checked, resumed where they broke off, never half under their name."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from metaprior.data.locations import DATASETS, cache_folder
from metaprior.data.physionet import check_set
from metaprior.errors import DataError, MetapriorError, OutputError, UnknownNameError
from metaprior.progress import progress_bar

TIMEOUT = 30.0  # seconds without a byte
RETRIES = 3
WAIT = 1.0  # seconds before a dropped connection is tried again
CHUNK = 1 << 16


class Source(NamedTuple):
    """A file, the addresses it can be had from, and its check, which raises a `DataError` if the file is not right."""

    file: str
    addresses: tuple[str, ...]
    check: Callable[[Path], None]


def check_md5(expected: str, path: Path) -> None:
    """Has the file this md5? If not, an error says which it has."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None
    if found != expected:
        raise DataError(f"{path}: its md5 is {found}, expected {expected}.")


_MNIST_HOMES = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
_MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_PHYSIONET_HOME = "https://physionet.org/files/challenge-2012/1.0.0/"

SOURCES = {
    "mnist": tuple(
        Source(file, tuple(home + file for home in _MNIST_HOMES), partial(check_md5, md5))
        for file, md5 in _MNIST_MD5.items()
    ),
    "physionet2012": tuple(
        Source(file, (_PHYSIONET_HOME + file,), check_set) for file in DATASETS["physionet2012"].files
    ),
}


class _FailedError(Exception):
    """This address does not give the file; the message says why."""


class _DroppedError(_FailedError):
    """The connection was lost on the way; what came is kept."""

    def __init__(self, why: str, total: int | None) -> None:
        super().__init__(why)
        self.total = total


def fetch(
    name: str, folder: Path | None = None, *, sources: Sequence[Source] | None = None, progress: bool = True
) -> Path:
    """Download the files of a dataset that are not there yet. Returns their folder, `folder/name` or in the cache."""
    if name not in DATASETS:
        raise UnknownNameError("dataset", name, DATASETS)
    home = (cache_folder() if folder is None else Path(folder).expanduser()) / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        for source in SOURCES[name] if sources is None else sources:
            if (home / source.file).exists():
                _check_present(source, home / source.file)
            else:
                _fetch_file(source, home / source.file, progress)
    except MetapriorError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write to the folder {home}: {error.strerror or error}. Choose another with --folder."
        ) from None
    return home


def _check_present(source: Source, path: Path) -> None:
    try:
        source.check(path)
    except DataError as error:
        raise DataError(
            f"{path} is damaged and was left in place: delete it and run the same command again. Found: {error}"
        ) from None


def _fetch_file(source: Source, path: Path, show: bool) -> None:
    """From the first address that gives a file which passes its check."""
    part = path.with_name(f"{path.name}.part")
    failures, total = [], None
    for address in source.addresses:
        try:
            _download(address, part, show)
            source.check(part)
            part.replace(path)
            return
        except _DroppedError as failure:
            failures.append(f"{address}: {failure}.")
            total = failure.total or total
        except _FailedError as failure:
            failures.append(f"{address}: {failure}.")
        except DataError as error:
            part.unlink()  # whole and wrong: nothing to go on from
            failures.append(f"{address}: what came is not the file and was removed. {error}")
    raise DataError(f"cannot get {path.name}. {' '.join(failures)} {_advice(part, total)}")


def _advice(part: Path, total: int | None) -> str:
    if not _size(part):
        return f"Run the same command again later, or put the file into {part.parent} yourself."
    of = "" if total is None else f" of {total:,}"
    return f"Run the same command again to go on from {_size(part):,}{of} bytes."


def _download(address: str, part: Path, show: bool) -> None:
    """The whole body of an address, added to what is there already; a lost connection is taken up again."""
    for _ in range(RETRIES):
        try:
            _download_rest(address, part, show)
            return
        except _DroppedError:
            time.sleep(WAIT)
    _download_rest(address, part, show)


def _download_rest(address: str, part: Path, show: bool) -> None:
    """One request for what is missing of a part, and one for everything if the server gives no such rest."""
    start = _size(part)
    with _answer(address, start) as answer:
        span = answer.headers.get("Content-Range", "")
        if answer.status == 416 and span == f"bytes */{start}":  # nothing is missing
            return
        other_span = answer.status == 206 and not span.startswith(f"bytes {start}-")
        if not start or not (answer.status == 416 or other_span):
            if isinstance(answer, HTTPError):
                raise _FailedError(f"the server answered {answer.status} {answer.reason}")
            _receive(answer, part, start if answer.status == 206 else 0, show)
            return
    part.unlink()
    _download_rest(address, part, show)


def _answer(address: str, start: int) -> HTTPResponse | HTTPError:
    """What the server says to a request for the bytes from `start` on."""
    request = Request(address, headers={"User-Agent": "metaprior"} | ({"Range": f"bytes={start}-"} if start else {}))
    try:
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT)  # nosec B310 # the addresses are those above
    except HTTPError as error:
        return error
    except URLError as error:
        raise _FailedError(f"no connection ({error.reason})") from None
    except (OSError, HTTPException) as error:
        raise _DroppedError(f"the connection was lost ({error})", None) from None
    return response


def _receive(response: HTTPResponse, part: Path, start: int, show: bool) -> None:
    """Write the body to the part, from `start` on."""
    total = None if response.length is None else start + response.length
    label = part.name.removesuffix(".part")
    with part.open("ab" if start else "wb") as file, progress_bar(label, total, show=show, in_bytes=True) as advance:
        advance(amount=start)
        while chunk := _read(response, total):
            file.write(chunk)
            advance(amount=len(chunk))
    if total is not None and _size(part) < total:
        raise _DroppedError("the connection was lost", total)


def _read(response: HTTPResponse, total: int | None) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _DroppedError(f"the connection was lost ({error})", total) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
