"""`metaprior fit` of shards: one process or many learn from tasks that are read bucket by bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaprior.cli.common import Screen
from metaprior.cli.fit import checkpoints_folder, columns_of_start, roles_for, start_of, tell_and_save
from metaprior.cli.given import Given
from metaprior.data import Shards
from metaprior.errors import OptionError, OutputError
from metaprior.learning import Ranks
from metaprior.methods import OF_ONE, SAMPLE
from metaprior.model import MetaGP
from metaprior.output import outlive_readers
from metaprior.splits import Roles
from metaprior.tasks import Columns, Tasks, read_support, support_hints
from metaprior.workers import cores, run_on, run_on_ray, started_by_torchrun


@dataclass(frozen=True)
class Asked:
    """What was asked for, as every worker takes it."""

    folder: str
    out: Path
    columns: Columns
    known: dict[str, Any]  # cluster, support, integer
    missing: str
    model: dict[str, Any]  # mean, kernel, and options of the model
    from_model: str | None
    resume: bool
    quiet: bool
    as_json: bool


def check_workers(given: Given, workers: int | None, ray: str | None, device: str) -> None:
    """Whether the workers that were asked for have something to share."""
    if workers is not None and workers < 1:
        raise OptionError(f"--workers {workers}: give 1 or more.")
    if given.folder is None and (workers is not None or ray is not None):
        raise OptionError(
            "--workers and --ray are for shards: `metaprior shard TABLE --task … --out FOLDER` makes them."
        )
    if given.folder is not None and device != "cpu":
        raise OptionError(
            f"--device {device}: shards are learned from and predicted on CPUs, by as many --workers as you like."
        )


def fit_shards(asked: Asked, workers: int | None, ray: str | None) -> None:
    """Meta-learn from all tasks of a folder, on this machine or on a cluster."""
    screen = Screen(asked.quiet)
    _opened(asked)  # what is wrong with the folder is told before any worker starts
    if ray is not None:
        run_on_ray(ray, workers or 1, learn, asked)
        return
    count = workers if workers is not None else cores()
    if workers is not None and workers > cores():
        screen.say(f"note: {workers} workers on {cores()} cores: they wait for each other.")
    if count > 1 and not Ranks.started():
        run_on(count, learn, asked)
        return
    with started_by_torchrun():
        learn(asked)


def learn(asked: Asked) -> None:
    """What every rank does; the first speaks and writes."""
    outlive_readers()
    ranks = Ranks.here()
    screen = Screen(asked.quiet or not ranks.first, asked.as_json and ranks.first)
    shards = _opened(asked)
    columns = ", ".join(shards.columns.x) + " → " + ", ".join(shards.columns.y)
    screen.say(
        f"{asked.folder}: {shards.rows:,} rows, {shards.tasks:,} tasks in {shards.count:,} buckets; {columns}; "
        f"{ranks.size} worker{'s' * (ranks.size > 1)}"
    )
    start = start_of(asked.from_model, asked.model.get("mean"), asked.model.get("kernel"))
    chosen = asked.model.get("mean") is None and asked.model.get("kernel") is None and start is None
    sample = shards.sample(SAMPLE if chosen else OF_ONE)
    if start is None or not start.trained_on_.possible:
        screen.note(*support_hints(sample))
    gp = MetaGP(**asked.model) if start is None else start.like_new(**_without_structure(asked.model))
    roles = Roles(sample, None, None) if chosen else roles_for(sample, start, asked.model["seed"])
    others = [part for part in (roles.stop, roles.judge) if isinstance(part, Tasks)]
    if roles.stop is not None:
        gp.options["held_out"] = roles.stop
    kept = checkpoints_folder(asked.out)
    ranks.told(lambda: _prepare(kept, asked.resume, screen))
    with screen.noting():
        gp.fit(shards.apart_from(*others) if others else shards, start=start, checkpoint=kept)
    ranks.told(lambda: tell_and_save(gp, roles, asked.out, shards.tasks, len(shards.columns.x), screen))
    if ranks.first:
        _forget(kept)


def _without_structure(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a model that goes on from another one, which has its mean and kernel."""
    return {name: value for name, value in options.items() if name not in ("mean", "kernel")}


def _opened(asked: Asked) -> Shards:
    columns, known = columns_of_start(asked.columns, start_of(asked.from_model, None, None)), dict(asked.known)
    known["support"] = read_support(known["support"], columns.y)
    named = {"x": columns.x, "y": columns.y, "task": columns.task, "task_x": columns.task_x}
    return Shards.open(asked.folder, **named, **known, missing=asked.missing)  # type: ignore[arg-type]


def _prepare(folder: Path, resume: bool, screen: Screen) -> None:
    """A folder for what is learned, empty unless an earlier training goes on."""
    if resume and not folder.exists():
        screen.say("there is nothing to resume: learning starts anew.")
    if not resume:
        _forget(folder)
    folder.mkdir(exist_ok=True)


def _forget(folder: Path) -> None:
    """Remove what an earlier training has kept; anything else that lies there is the user's."""
    if not folder.exists():
        return
    others = [path.name for path in folder.iterdir() if path.suffix != ".checkpoint"]
    if others:
        raise OutputError(f"{folder} holds {others[0]}, which is not ours: move it, or give another --out.")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
