"""MNIST's idx files, gzipped or plain."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from metaprior.data.locations import accepted_file, damaged, find
from metaprior.errors import DataError

UNSIGNED_BYTES = 8  # the third byte of an idx file's magic number; the fourth is the number of dimensions


class Images(NamedTuple):
    """Grey images (0–255) for meta-training and for testing, and the digits they show."""

    train: UInt8[Tensor, "m h w"]
    test: UInt8[Tensor, "k h w"]
    train_labels: UInt8[Tensor, " m"]
    test_labels: UInt8[Tensor, " k"]


def load_mnist(given: Path | None = None) -> Images:
    """All of MNIST, from the folder given, METAPRIOR_DATA or the cache."""
    folder = find("mnist", given)
    train, train_labels = _images_and_labels(folder, "train")
    test, test_labels = _images_and_labels(folder, "t10k")
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{folder}: the images for training are of size {tuple(train.shape[1:])}, those for testing "
            f"{tuple(test.shape[1:])}; they must match. The files were left in place."
        )
    return Images(train, test, train_labels, test_labels)


def _images_and_labels(folder: Path, part: str) -> tuple[UInt8[Tensor, "m h w"], UInt8[Tensor, " m"]]:
    paths = [accepted_file("mnist", folder, f"{part}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
    assert paths[0] is not None
    assert paths[1] is not None
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise DataError(
            f"{paths[0]} has {len(images):,} images, but {paths[1]} has {len(labels):,} labels; they must agree. "
            "The files were left in place."
        )
    return images, labels


def read_idx(path: Path, rank: int) -> UInt8[Tensor, ...]:
    """The array of bytes in one idx file, which must have this many dimensions."""
    body = _content(path)
    start = 4 * (1 + rank)
    expected = f"an idx file of bytes in {rank} dimension{'s' * (rank > 1)}"
    magic = bytes([0, 0, UNSIGNED_BYTES, rank])
    if body[:4] != magic:
        raise _damaged(path, f"it begins with {body[:4].hex(' ') or 'nothing'}, but {expected} with {magic.hex(' ')}")
    if len(body) < start:
        raise _damaged(path, f"it has {len(body)} bytes, but the header of {expected} has {start}")
    shape = struct.unpack(f">{rank}I", body[4:start])
    if len(body) - start != math.prod(shape):
        by = " × ".join(f"{size:,}" for size in shape)
        found = f"{len(body) - start:,}"
        raise _damaged(path, f"its header promises {by} = {math.prod(shape):,} bytes, but {found} follow")
    return torch.from_numpy(np.frombuffer(body, np.uint8, offset=start).reshape(shape).copy())


def _content(path: Path) -> bytes:
    try:
        body = path.read_bytes()
        return gzip.decompress(body) if path.suffix == ".gz" else body
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, f"expected a whole gzip file, but {str(error) or 'it is cut short'}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None


def _damaged(path: Path, why: str) -> DataError:
    return damaged("mnist", path, f": {why}")
