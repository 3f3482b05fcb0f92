"""The manifest of a folder of shards: what its buckets hold, and by which their content is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from metaprior.data.hashing import HASH
from metaprior.data.moments import Moments
from metaprior.errors import DataError

FORMAT = "metaprior shards"
VERSION = 1

MANIFEST = "manifest.json"
PARTIAL = "partial"
"""The folder within, of what is done so far."""


class Bucket(NamedTuple):
    """A file of whole tasks."""

    file: str
    tasks: int
    rows: int
    smallest: int  # task, in rows
    largest: int
    bytes: int
    crc32: str


@dataclass(frozen=True)
class Manifest:
    """What shards hold: the columns that name a task, all columns with their types, the buckets, and all in short."""

    task: tuple[str, ...]
    schema: tuple[tuple[str, str], ...]
    buckets: tuple[Bucket, ...]
    moments: Mapping[str, Moments]
    levels: Mapping[str, list[str] | None]
    source: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]

    @property
    def tasks(self) -> int:
        return sum(bucket.tasks for bucket in self.buckets)

    @property
    def rows(self) -> int:
        return sum(bucket.rows for bucket in self.buckets)

    def text(self) -> str:
        """As the file has it: a line for each entry, and for each bucket."""
        entries = {
            **_HEAD,
            **self.versions,
            "task": self.task,
            "tasks": self.tasks,
            "rows": self.rows,
            "schema": self.schema,
            "moments": {name: asdict(one) for name, one in self.moments.items()},
            "levels": self.levels,
            "source": self.source,
        }
        lines = [f"{_json(key)}: {_json(value)}" for key, value in entries.items()]
        buckets = ",\n".join(f"  {_json(bucket._asdict())}" for bucket in self.buckets)
        return "{\n" + ",\n".join([*lines, f'"buckets": [\n{buckets}\n]']) + "\n}\n"

    @staticmethod
    def read(folder: Path | str) -> Manifest:
        """Of a folder of shards; anything else is told with what to do."""
        path = Path(folder) / MANIFEST
        if not Path(folder).is_dir():
            raise DataError(
                f"there is no folder {folder}: make one with `metaprior shard TABLE --task ID --out {folder}`."
            )
        if not path.is_file():
            raise _no_manifest(Path(folder))
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read: {error}. Make the shards again.") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise DataError(f"{path} is no manifest of shards: give a folder that `metaprior shard` has made.")
        if (found.get("version"), found.get("hash")) != (VERSION, HASH):
            raise DataError(
                f"{path} is of version {found.get('version')!r} (hash {found.get('hash')!r}), written by metaprior "
                f"{found.get('metaprior')}; this one reads version {VERSION}: make the shards again."
            )
        try:
            manifest = _manifest(found)
            agrees = (manifest.tasks, manifest.rows) == (found["tasks"], found["rows"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} lacks something ({error!r}): make the shards again.") from None
        if not agrees:
            raise DataError(f"{path} was altered: its buckets do not add up to its totals. Make the shards again.")
        return manifest


_HEAD = {"format": FORMAT, "version": VERSION, "hash": HASH}


def versions() -> dict[str, str]:
    """What shards are written by."""
    return {name: version(name) for name in ("metaprior", "pyarrow")}


def is_shards(folder: Path | str) -> bool:
    """Whether a folder has a manifest of ours, of whatever version."""
    path = Path(folder) / MANIFEST
    try:
        return bool(json.loads(path.read_text("utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _no_manifest(folder: Path) -> DataError:
    if (folder / PARTIAL).is_dir():
        return DataError(f"the shards in {folder} are not finished: run the same `metaprior shard` again, to go on.")
    return DataError(
        f"{folder} holds no shards, for it has no {MANIFEST}: make some with `metaprior shard TABLE --task ID --out "
        "FOLDER`."
    )


def _manifest(found: Mapping[str, Any]) -> Manifest:
    buckets = tuple(Bucket(**one) for one in found["buckets"])
    if not buckets or not all(map(_is_bucket, buckets)):
        raise ValueError("buckets")
    made = Manifest(
        tuple(found["task"]),
        tuple((name, dtype) for name, dtype in found["schema"]),
        buckets,
        {name: Moments(**one) for name, one in found["moments"].items()},
        dict(found["levels"]),
        found["source"],
        {name: found[name] for name in ("metaprior", "pyarrow")},
    )
    known = [name for name, _ in made.schema]
    if not made.task or not all(isinstance(name, str) and name in known for name in made.task):
        raise ValueError("task")
    if not all(isinstance(text, str) for field in made.schema for text in field):
        raise ValueError("schema")
    if not all(levels is None or _are_texts(levels) for levels in made.levels.values()):
        raise ValueError("levels")
    return made


def _is_bucket(one: Bucket) -> bool:
    """Whether that can be a file of this folder: a manifest of strangers names no other."""
    name = isinstance(one.file, str) and re.fullmatch(r"\w[\w.-]{0,99}", one.file)
    return bool(name) and isinstance(one.crc32, str) and all(type(count) is int and count >= 0 for count in one[1:6])


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
