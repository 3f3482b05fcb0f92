"""A folder of predictions: a Parquet file for each bucket, and a note on what they are of."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaprior.bulk.bucket import Done, done_before
from metaprior.errors import OutputError
from metaprior.notes import added, told
from metaprior.output import prepare_folder, write_whole

FORMAT = "metaprior predictions"
VERSION = 1
RECORD = "predictions.json"
OURS = re.compile(r"(\.\d+\.)?(part-\d{5,}\.parquet|predictions\.json)")
"""What is written there; what begins with a number was being written when a run was stopped."""

WORDS = {"model": "the model", "shards": "the shards"}
"""What has a fingerprint that says nothing to anybody."""


class Folder:
    """Where predictions go. What an earlier run of the same has left there is kept."""

    def __init__(self, path: Path, made_of: dict[str, Any], fingerprint: str, buckets: int) -> None:
        self.path, self.fingerprint, self.buckets = path, fingerprint, buckets
        self.made_of = json.loads(json.dumps(made_of))
        self.record = {"format": FORMAT, "version": VERSION, "made_of": self.made_of, "buckets": buckets}

    def begin(self, overwrite: bool) -> dict[int, Done]:
        """Make sure that nothing of the user's is lost; the buckets that are done."""
        prepare_folder(self.path)
        if overwrite and self._earlier() != self.made_of:
            (self.path / RECORD).unlink(missing_ok=True)  # first: what is left then is nobody's
            self._remove(OURS)
        elif not overwrite:
            self._check()
        found = [done_before(self.path, k) for k in range(self.buckets)]
        done = {one.bucket: one for one in found if one is not None and one.made_of == self.fingerprint}
        if len(done) < self.buckets or self._earlier() != self.made_of:
            self._write({"complete": False})
        return done

    def finish(self, done: Sequence[Done]) -> tuple[int, int, list[str]]:
        """Say in the folder that all is there: tasks, rows and notes."""
        notes = told(added(note for one in done for note in one.notes))
        tasks, rows = sum(one.tasks for one in done), sum(one.rows for one in done)
        self._write({"complete": True, "tasks": tasks, "rows": rows, "notes": notes})
        return tasks, rows, notes

    def tidy(self) -> None:
        """Remove what was being written when a run was stopped."""
        self._remove(re.compile(r"\.\d+\.(part-\d{5,}\.parquet|predictions\.json)"))

    def _check(self) -> None:
        earlier = self._earlier()
        if earlier is None:
            other = sorted(one.name for one in self.path.iterdir() if not one.name.startswith("."))
            if other:
                raise OutputError(
                    f"{self.path} holds something else than predictions ({', '.join(other[:3])}"
                    f"{', …' if len(other) > 3 else ''}): give another folder with --out."
                )
            return
        differs = [name for name in {**earlier, **self.made_of} if earlier.get(name) != self.made_of.get(name)]
        if differs:
            said = "; ".join(_differs(name, earlier.get(name), self.made_of.get(name)) for name in differs)
            raise OutputError(
                f"{self.path} holds predictions of something else: {said}. Give another folder with --out, or replace "
                "them with --overwrite."
            )

    def _earlier(self) -> dict[str, Any] | None:
        """What the predictions that are there are of; None if there are none."""
        try:
            found = json.loads((self.path / RECORD).read_text("utf-8"))
            known = found["format"] == FORMAT and found["version"] == VERSION
            return dict(found["made_of"]) if known else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _remove(self, which: re.Pattern[str]) -> None:
        for path in self.path.iterdir():
            if which.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _write(self, more: dict[str, Any]) -> None:
        text = json.dumps(self.record | more, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.path / RECORD, lambda part: part.write_text(text, "utf-8"))


def _differs(name: str, was: Any, now: Any) -> str:
    return f"{WORDS[name]} is not the same" if name in WORDS else f"{name} was {was!r} and is {now!r}"
