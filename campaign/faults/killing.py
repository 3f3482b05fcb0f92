"""A job killed at random moments, and then gone on with or done again: what has to hold after each kill."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from campaign.faults.children import Ended, child, counted_events, killed_at_event
from campaign.faults.jobs import Job
from campaign.faults.outcomes import TORN, UNFINISHED, content, litter
from metaprior import MetapriorError
from metaprior.learning import checkpoints
from metaprior.report import Results

AT_EVENTS = 0.4
"""Share of the kills that come when a file is about to be touched; the others at any moment."""

AGAIN = 0.4
"""Chance that the run which goes on is killed as well."""


RESULTS = ("r/results.json", "r/tasks.parquet", "r/curves.npz")


@dataclass
class Found:
    """What came of many kills. wrong: what did not hold, in words."""

    kills: int = 0
    ends: int = 0
    with_checkpoint: int = 0
    litter: int = 0
    wrong: list[str] = field(default_factory=list)


class Killer:
    """One job, with what it comes to when it is left alone. home: a folder for all of this."""

    def __init__(self, job: Job, given: Path, home: Path) -> None:
        self.job, self.given, self.home = job, given, home
        self.marker, self.found = home / "written", Found()
        self.before = self._left_alone("before", job.earlier) if job.earlier is not None else {}
        self.alone = self._left_alone("alone", job.work)
        self.seconds, self.events = self.took, (home / "events").stat().st_size

    def kill(self, kills: int, rng: random.Random, *, until_wrong: bool = False) -> Found:
        """So many kills; or until something does not hold."""
        while self.found.kills < kills and not (until_wrong and self.found.wrong):
            self._trial(kills, rng)
        return self.found

    def _left_alone(self, name: str, work: Callable[[Path], None]) -> dict[str, str]:
        place = self.home / name
        place.mkdir()
        ended = self._run(place, work, before=counted_events(self.home / "events", place))
        if ended.code:
            raise RuntimeError(f"{self.job.name}, left alone: {ended.in_short()}")
        self.took = ended.seconds
        return content(place)

    def _run(
        self,
        place: Path,
        work: Callable[[Path], None],
        moment: float | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> Ended:
        def begin() -> None:
            _tell_checkpoints(self.marker)
            before()

        return child(partial(work, self.given), place, moment=moment, before=begin)

    def _trial(self, kills: int, rng: random.Random) -> None:
        """Kill, perhaps kill again what goes on, and let it come to its end."""
        place = self.home / "place"
        old = bool(self.before) and rng.random() < 0.5
        shutil.copytree(self.home / "before", place) if old else place.mkdir()
        self.marker.unlink(missing_ok=True)
        while self.found.kills < kills:
            ended = self._killed(place, rng)
            if not ended.killed:
                break
            self.found.kills += 1
            self._check_stopped(place, self.before if old else {})
            if rng.random() > AGAIN:
                break
        ended = self._run(place, self.job.work)
        self.found.ends += 1
        self._check_end(place, ended)
        shutil.rmtree(place)

    def _killed(self, place: Path, rng: random.Random) -> Ended:
        if rng.random() < AT_EVENTS:
            event = killed_at_event(rng.randint(1, self.events), place)
            return self._run(place, self.job.work, before=event)
        return self._run(place, self.job.work, moment=rng.uniform(0, self.seconds))

    def _check_stopped(self, place: Path, before: dict[str, str]) -> None:
        """Every file is absent, the old one or the new one; a training that was kept once is not lost."""
        found = content(place)
        for name, now in found.items():
            if now.startswith(TORN) or now not in (before.get(name), self.alone.get(name), UNFINISHED):
                self._wrong(f"{name} is neither the old one nor the new one ({now[:120]})")
        self._check_together(place, found)
        if self.job.kept and self.marker.exists():
            self.found.with_checkpoint += 1
            kept = place / self.job.kept
            there = any(kept.iterdir()) if kept.is_dir() else kept.exists()
            if not there and found != self.alone:
                self._wrong("what was kept is lost: there is neither a checkpoint nor the outcome")

    def _check_together(self, place: Path, found: dict[str, str]) -> None:
        """A folder that says it is complete is: a manifest, or the record of predictions."""
        for record in ("s/manifest.json", "p/predictions.json"):
            if found.get(record) == self.alone.get(record, "") and found != self.alone:
                self._wrong(f"{record} says that all is there, and it is not")
        if "r/results.json" in found:
            self._check_results(place, found)

    def _check_results(self, place: Path, found: dict[str, str]) -> None:
        """Results that can be read are of one run."""
        try:
            Results.read(place / "r")
        except MetapriorError:
            return
        for run in (self.before, self.alone):
            if all(found[name] == run.get(name) for name in RESULTS):
                return
        self._wrong("results of two runs are read as one")

    def _check_end(self, place: Path, ended: Ended) -> None:
        """What was gone on with, or done again, has come to the same."""
        found, name = content(place), ended.in_short()
        if ended.code:
            self._wrong(f"the run after a kill has failed: {name}")
        elif found != self.alone:
            differ = [one for one in {*found, *self.alone} if found.get(one) != self.alone.get(one)]
            self._wrong(f"other bytes than a run without a kill: {', '.join(sorted(differ))}")
        elif self.job.kept and (place / self.job.kept).exists():
            self._wrong(f"{self.job.kept} is left after the end")
        self.found.litter += bool(litter(place))

    def _wrong(self, what: str) -> None:
        self.found.wrong.append(f"{self.job.name}, after {self.found.kills} kills: {what}")


def _tell_checkpoints(marker: Path) -> None:
    """Leave a mark whenever a checkpoint has been written."""
    write, save = checkpoints.Checkpoint.write, Results.save_checkpoint

    def told(self: checkpoints.Checkpoint, values: object) -> None:
        write(self, values)  # type: ignore[arg-type]
        marker.touch()

    def saved(self: Results, path: Path) -> None:
        save(self, path)
        marker.touch()

    checkpoints.Checkpoint.write = told  # type: ignore[method-assign, assignment]
    Results.save_checkpoint = saved  # type: ignore[method-assign]
