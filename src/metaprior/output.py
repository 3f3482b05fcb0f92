"""Writing files so that nothing is lost: folders are tried before the work, files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metaprior.errors import OutputError


def prepare_folder(folder: Path) -> None:
    """Make sure that files can be written there, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".metaprior-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"cannot write to the folder {folder}: {error.strerror or error}. Choose another with --out."
        ) from None


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Write beside the final name, then move there: a reader never sees half a file."""
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        write(part)
        part.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)
