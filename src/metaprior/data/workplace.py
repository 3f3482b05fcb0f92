"""The folder in which shards are made: what in it is ours, what is done so far, and clearing it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metaprior.data.manifest import FORMAT, MANIFEST, PARTIAL, Manifest, is_shards
from metaprior.errors import OutputError
from metaprior.output import prepare_folder, write_whole

PLAN = "plan.json"

_BUCKET = re.compile(r"bucket-\d{5}\.parquet")
_WITHIN = re.compile(r"(\.\d+\.)?((plan|read|manifest|bucket-\d{5})\.json|chunk-\d{6}\.arrow|bucket-\d{5}\.parquet)")
_PROBE = re.compile(r"\.metaprior-\d+")

_DIFFERENT = {
    "source": "the source has changed",
    "task": "the task columns are others",
    "schema": "the columns are others",
    "buckets": "the number of buckets is another",
    "versions": "the versions of metaprior or pyarrow are others",
}


def plan_of(source: Any, task: Any, schema: Any, buckets: int, versions: Any) -> dict[str, Any]:
    """All that the bytes of shards follow from, as JSON has it; of a source also when its files were written."""
    found = {"source": source, "task": task, "schema": schema, "buckets": buckets, "versions": versions}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def without_times(source: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Files as a manifest names them: copies of the same are the same."""
    return [{key: value for key, value in one.items() if key != "modified"} for one in source]


class Workplace:
    """A folder for shards. Each file is written to `partial/` first, and moved from there when it is whole.

    plan: all that the shards' bytes follow from. `partial/` says of which plan it is, and goes when all is done.
    """

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder, self.partial, self.plan = folder, folder / PARTIAL, plan

    def bucket(self, k: int) -> Path:
        return self.folder / f"bucket-{k:05d}.parquet"

    def note(self, k: int) -> Path:
        """What is known of a bucket that is done."""
        return self.partial / f"bucket-{k:05d}.json"

    def chunk(self, k: int) -> Path:
        return self.partial / f"chunk-{k:06d}.arrow"

    def write(self, path: Path, content: Any) -> None:
        """A file of the folder, whole or not at all."""
        part = self.partial / path.name
        write_whole(part, lambda beside: beside.write_bytes(content))
        if part != path:
            try:
                part.replace(path)
            except OSError as error:
                raise OutputError(f"cannot write {path}: {error.strerror or error}.") from None

    def write_json(self, path: Path, found: Any) -> None:
        self.write(path, json.dumps(found, allow_nan=False).encode())

    def read_json(self, path: Path) -> Any:
        """What a file of ours says; None where there is none."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads(path.read_text("utf-8"))
        return None

    def take(self, *, overwrite: bool) -> bool:
        """Make the folder ours, with what is done of this plan. Whether everything is, already."""
        prepare_folder(self.folder)
        (found, failed), finished = self._plan(), is_shards(self.folder)
        if not finished and (found is None or (self.folder / MANIFEST).exists()):
            self._check_empty()
        elif overwrite or (failed and found != self.plan):
            self._clear()
        elif finished and (self._is_current() if found is None else found == self.plan):
            self.tidy()
            return True
        elif found != self.plan:
            raise OutputError(self._why_not(found, finished))
        self.partial.mkdir(exist_ok=True)
        self._write_plan(self.plan)
        return False

    def give_up(self) -> None:
        """The source cannot be used as it is: what was done is of use for the same alone, and not worth a word else."""
        self._write_plan(self.plan, failed=True)

    def _write_plan(self, plan: dict[str, Any], *, failed: bool = False) -> None:
        self.write_json(self.partial / PLAN, {"format": FORMAT, "plan": plan, "failed": failed})

    def finish(self, manifest: Manifest) -> None:
        self.write(self.folder / MANIFEST, manifest.text().encode())
        self.tidy()

    def tidy(self) -> None:
        """Remove what was needed on the way, the plan last."""
        for path in [*self._ours(), self.partial / PLAN]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.partial.rmdir()  # it is left if someone has put something into it

    def _plan(self) -> tuple[Any, bool]:
        """Of what is there, and whether it could not be done; None where nothing is of ours."""
        found = self.read_json(self.partial / PLAN)
        ours = isinstance(found, dict) and found.get("format") == FORMAT
        return (found["plan"], found["failed"]) if ours else (None, False)

    def _is_current(self) -> bool:
        """Whether finished shards are of this plan, and no older than what they were made of."""
        manifest, made = Manifest.read(self.folder), (self.folder / MANIFEST).stat().st_mtime_ns
        of_it = plan_of(manifest.source, manifest.task, manifest.schema, len(manifest.buckets), manifest.versions)
        newer = any(one.get("modified", 0) > made for one in self.plan["source"])
        return self.plan | {"source": without_times(self.plan["source"])} == of_it and not newer

    def _why_not(self, found: dict[str, Any], finished: bool) -> str:
        what = "shards already" if finished else "shards that are not finished"
        reasons = [words for key, words in _DIFFERENT.items() if found and found.get(key) != self.plan[key]]
        because = f", and this command does not go on with them, for {' and '.join(reasons)}" if reasons else ""
        return f"{self.folder} holds {what}{because}. Choose another --out, or replace them with --overwrite."

    def _check_empty(self) -> None:
        left = [path.name for path in self.partial.iterdir()] if self.partial.is_dir() else []
        foreign = [path.name for path in self.folder.iterdir() if not _PROBE.fullmatch(path.name)]
        if self.partial.is_dir() and all(_WITHIN.fullmatch(name) for name in left):
            foreign.remove(PARTIAL)  # it was begun, and stopped before it had a plan
        if foreign:
            raise OutputError(
                f"the folder {self.folder} holds {min(foreign)!r}, which is not of shards, and is left alone: choose "
                "another --out, which is empty or does not exist."
            )

    def _ours(self) -> Iterator[Path]:
        """The files of ours in `partial/` but the plan, and what a try of the folder may have left."""
        for path in [*self.partial.iterdir()] if self.partial.is_dir() else []:
            if _WITHIN.fullmatch(path.name) and path.name != PLAN:
                yield path
        yield from (path for path in [*self.folder.iterdir()] if _PROBE.fullmatch(path.name))

    def _clear(self) -> None:
        """Remove shards, and what was done of some; stopped in between, the folder is still known as ours."""
        self.partial.mkdir(exist_ok=True)
        self._write_plan({})
        if is_shards(self.folder):
            (self.folder / MANIFEST).unlink()
        buckets = [path for path in self.folder.iterdir() if _BUCKET.fullmatch(path.name)]
        for path in [*buckets, *self._ours()]:
            path.unlink()
