"""Other faults than kills: full disks, folders that cannot be written, files that change, memory, signals.

After each of them: the command has done what it was asked, or says clearly why not; nothing half-written is taken for
whole; and what was there before is still there. Then it is done again, without the fault, to the same bytes.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from campaign.faults.children import Ended, child, limited, started, waited
from campaign.faults.jobs import JOBS, Job
from campaign.faults.outcomes import TORN, UNFINISHED, content, same_numbers
from metaprior import MetapriorError, load
from metaprior.files import read_state

NOBODY = 65534
"""A user who may write nowhere."""

USED = ("fit auto", "fit of one prior", "fit of shards", "predict to CSV", "predict to Parquet", "predict shards",
        "compare", "reproduce", "shard", "save", "fetch")  # fmt: skip


INPUTS: dict[str, tuple[str, ...]] = {
    "predict to CSV": ("0.metaprior", "table.csv"),
    "predict to Parquet": ("0.metaprior", "table.parquet"),
    "predict shards": ("0.metaprior", "shards/bucket-00003.parquet", "shards/manifest.json"),
    "fit of shards": ("shards/bucket-00003.parquet",),
    "shard": ("table.parquet",),
    "save": ("0.metaprior",),
}
"""What may vanish while a job reads it."""


@dataclass(frozen=True)
class Tried:
    """One try: the fault, what met it, how it was made, how it ended, and what is wrong with that."""

    fault: str
    job: str
    how: str
    code: int | None
    wrong: str = ""


class Scene:
    """A job with a folder, what is there before and what it comes to when nothing goes wrong."""

    def __init__(self, job: Job, given: Path, home: Path) -> None:
        self.job, self.given, self.home = job, given, home
        self.before: dict[str, str] = {}
        self.old: Path | None = None
        if job.earlier is not None:
            self.before, self.old = self._kept("old", job.earlier)
        self.alone, self.new = self._kept("new", job.work)

    def _kept(self, name: str, work: Callable[[Path], None]) -> tuple[dict[str, str], Path]:
        place = self.home / f"{self.job.name} {name}"
        if not place.exists():
            place.mkdir()
            ended = child(partial(work, self.given), place)
            if ended.code:
                raise RuntimeError(f"{self.job.name}: {ended.in_short()}")
            (self.home / f"{self.job.name} {name} took").write_text(f"{ended.seconds}")
        self.seconds = float((self.home / f"{self.job.name} {name} took").read_text())
        return content(place), place

    def size(self) -> int:
        """Bytes of what it writes."""
        return sum(path.stat().st_size for path in self.new.rglob("*") if path.is_file())

    def fill(self, place: Path) -> None:
        """What was there before."""
        if self.old is not None:
            shutil.copytree(self.old, place, dirs_exist_ok=True)

    def wrong(self, place: Path, ended: Ended, codes: Sequence[int] = (0, 2), *, digits: bool = False) -> str:
        """What should not be, after a fault. digits: the last ones of a table's numbers may be others."""
        if ended.code not in codes:
            return ended.in_short()
        if ended.code == 2 and not ended.clear:
            return f"the error is not clear: {ended.in_short()}"
        found = content(place)
        if digits:
            new = {name: self.alone[name] for name in found if same_numbers(place / name, self.new / name)}
            found = found | new
        if ended.code == 0 and found != self.alone:
            return "it says that all is well, and has made something else"
        for name, now in found.items():
            known = now in (self.before.get(name), self.alone.get(name), UNFINISHED)
            if now.startswith(TORN) or not (known or (name == "m" and self._not_scored(place / name))):
                return f"{name} is neither the old one nor the new one ({now[:100]})"
        lost = [name for name in self.before if name not in found]
        return f"{lost[0]} is lost" if lost else ""

    def _not_scored(self, model: Path) -> bool:
        """Whether it is the new model, which was written when scoring it was stopped: what was learned comes first."""
        found, whole = read_state(model), read_state(self.new / "m")
        if found.about["scores"] or set(found.tensors) != set(whole.tensors):
            return False
        return all(np.array_equal(one, whole.tensors[name], equal_nan=True) for name, one in found.tensors.items())

    def again(self, place: Path) -> str:
        """What is wrong when it is done again, without a fault."""
        ended = child(partial(self.job.work, self.given), place)
        if ended.code:
            return f"done again: {ended.in_short()}"
        return "" if content(place) == self.alone else "done again, it comes to something else"


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[str]:
    """A disk of so many bytes, where this user may make one; else a limit for the length of each file."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={max(size, 4096) // 1024}k", "none", str(place)]
    if subprocess.run(words, capture_output=True).returncode:
        yield "RLIMIT_FSIZE"
    else:
        try:
            yield "tmpfs"
        finally:
            subprocess.run(["umount", str(place)], check=True)


def full_disk(scene: Scene, rng: random.Random, place: Path) -> Tried:
    """Room for some of what is written."""
    there = 0 if scene.old is None else sum(path.stat().st_size + 4096 for path in scene.old.rglob("*"))
    room = rng.randrange(1, scene.size())
    with small_disk(place, there + room) as kind:
        scene.fill(place)
        before = (lambda: None) if kind == "tmpfs" else limited(resource.RLIMIT_FSIZE, room)
        ended = child(partial(scene.job.work, scene.given), place, before=before)
        wrong = scene.wrong(place, ended)
        if kind == "tmpfs":
            subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        wrong = wrong or scene.again(place)
    return Tried("full disk", scene.job.name, f"{kind}, {room:,} bytes of {scene.size():,}", ended.code, wrong)


def read_only(scene: Scene, rng: random.Random, place: Path) -> Tried:
    """A folder in which nothing can be made, for a user without power over it."""
    place.mkdir()
    scene.fill(place)
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    how = "another user" if os.geteuid() == 0 else "no permission"
    before = (lambda: os.setuid(NOBODY)) if os.geteuid() == 0 else (lambda: None)
    ended = child(partial(scene.job.work, scene.given), place, before=before)
    for path in folders:
        path.chmod(0o755)
    wrong = scene.wrong(place, ended, codes=(2,))
    return Tried("read-only folder", scene.job.name, how, ended.code, wrong or scene.again(place))


def changed_file(scene: Scene, rng: random.Random, place: Path) -> Tried:
    """A file that is read vanishes, or is cut short, at some moment."""
    place.mkdir()
    scene.fill(place)
    given = place.parent / "changing"
    shutil.copytree(scene.given, given)
    name = rng.choice(INPUTS.get(scene.job.name, ("table.csv",)))
    vanishes = name.endswith(".csv") or rng.random() < 0.5  # half of a text is a table too
    moment = rng.uniform(0, scene.seconds)
    pid = started(partial(_change, given / name, moment, vanishes), place)
    ended = child(partial(scene.job.work, given), place)
    waited(pid, None)
    shutil.rmtree(given)
    how = f"{name} {'vanishes' if vanishes else 'is cut short'}"
    wrong = scene.wrong(place, ended)
    if scene.job.name == "shard" and not wrong:
        shutil.rmtree(place / "s", ignore_errors=True)  # its source is another now
    return Tried("a file changes while it is read", scene.job.name, how, ended.code, wrong or scene.again(place))


def _change(path: Path, moment: float, vanishes: bool) -> None:
    time.sleep(moment)
    if vanishes:
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 3)


def little_memory(scene: Scene, rng: random.Random, place: Path) -> Tried:
    """Little more memory than what is taken already: products may be taken another way, with other last digits."""
    place.mkdir()
    scene.fill(place)
    more = int(2 ** rng.uniform(16, 25))

    def limit() -> None:
        taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
        limited(resource.RLIMIT_DATA, (int(taken.split()[1]) << 10) + more)()

    ended = child(partial(scene.job.work, scene.given), place, before=limit)
    wrong = scene.wrong(place, ended, digits=True)
    return Tried("little memory", scene.job.name, f"{more / 2**20:.1f} MB", ended.code, wrong or scene.again(place))


def signalled(number: int, scene: Scene, rng: random.Random, place: Path) -> Tried:
    """Asked to end at some moment."""
    place.mkdir()
    scene.fill(place)
    name = signal.Signals(number).name
    moment = 0.005 + rng.uniform(0, scene.seconds)  # when it has begun
    work = partial(scene.job.work, scene.given)
    ended = child(
        work, place, moment=moment, by=number, before=partial(signal.signal, number, signal.default_int_handler)
    )
    wrong = scene.wrong(place, ended, codes=(0, 128 + number))
    if not wrong and "Traceback" in ended.said and "Exception ignored" not in ended.said:
        wrong = f"a traceback: {ended.in_short()}"
    return Tried(name, scene.job.name, f"after {moment:.2f} s", ended.code, wrong or scene.again(place))


def two_at_once(scene: Scene, rng: random.Random, place: Path) -> Tried:
    """Two processes write one model again and again, and a third reads it."""
    place.mkdir()
    scene.fill(place)
    assert scene.job.earlier is not None
    both = [started(partial(_often, work, scene.given), place) for work in (scene.job.work, scene.job.earlier)]
    wrong, looks = "", 0
    while len(both) and looks < 2_000:
        looks += 1
        try:
            load(place / "m")
        except MetapriorError as error:
            wrong = str(error)
        both = [pid for pid in both if os.waitpid(pid, os.WNOHANG)[0] == 0]
    codes = [waited(pid, None) for pid in both]
    found = content(place)
    if not wrong and (any(codes) or found["m"] not in (scene.before["m"], scene.alone["m"])):
        wrong = f"exit codes {codes}, or the model is of neither"
    return Tried("two processes write one model", scene.job.name, f"read {looks} times meanwhile", 0, wrong)


def _often(work: Callable[[Path], None], given: Path) -> None:
    for _ in range(5):
        work(given)


FAULTS: tuple[tuple[Callable[[Scene, random.Random, Path], Tried], tuple[str, ...]], ...] = (
    (full_disk, tuple(name for name in USED)),
    (read_only, tuple(name for name in USED if name != "save")),
    (changed_file, (*INPUTS, "fit auto")),
    (little_memory, ("fit auto", "fit of one prior", "predict to CSV", "predict to Parquet", "compare", "shard")),
    (partial(signalled, signal.SIGTERM), ("fit auto", "fit of one prior", "predict to Parquet", "compare", "shard")),
    (partial(signalled, signal.SIGINT), ("fit auto", "fit of one prior", "predict to Parquet", "compare", "shard")),
    (two_at_once, ("save",)),
)  # fmt: skip
"""Each fault, and the jobs that meet it."""

PAIRS = tuple((fault, name) for fault, names in FAULTS for name in names)


def jobs_of(numbers: Sequence[int]) -> list[str]:
    """The jobs of some tries."""
    return list(dict.fromkeys(PAIRS[number % len(PAIRS)][1] for number in numbers))


def tried(numbers: Sequence[int], seed: int, given: Path, home: Path) -> Iterator[Tried]:
    """Some of the tries, of which there are any number: number by number, all pairs of fault and job in turn."""
    jobs, scenes = {job.name: job for job in JOBS}, dict[str, Scene]()
    for number in numbers:
        fault, name = PAIRS[number % len(PAIRS)]
        if name not in scenes:
            scenes[name] = Scene(jobs[name], given, home)
        place = home / "place"
        yield fault(scenes[name], random.Random(f"{seed} {number}"), place)
        shutil.rmtree(place)
