"""`metaprior fit`: a table of past tasks to a model file."""

from __future__ import annotations

import math
from pathlib import Path

from rich.table import Table

from metaprior.cli.common import Screen, check_model_file
from metaprior.cli.given import Given
from metaprior.cli.show import check_page
from metaprior.errors import OptionError, OutputError
from metaprior.files import saved_in
from metaprior.learning import CHECKPOINT
from metaprior.model import MetaGP, load
from metaprior.output import check_file
from metaprior.report import figure_text
from metaprior.selection import Auto, held_out_scores
from metaprior.splits import Roles, default_sizes, random_sizes, roles_of
from metaprior.tasks import Columns, Tasks


def fit_model(tasks: Tasks, gp: MetaGP, out: Path, *, start: MetaGP | None, resume: bool, screen: Screen) -> None:
    """Meta-learn, score on tasks that had no say in it, and write the model."""
    checkpoint = _checkpoint_of(out)
    if checkpoint.exists() and not resume:
        checkpoint.unlink()
    auto = gp.mean is None and gp.kernel is None
    roles = Roles(tasks, None, None) if auto else roles_for(tasks, start, gp.options["seed"])
    if not auto:
        gp.options["held_out"] = roles.stop
    if resume and not checkpoint.exists():
        screen.say("there is nothing to resume: learning starts anew.")
    try:
        with screen.noting():
            gp.fit(roles.train, start=start, checkpoint=checkpoint, keep=True)
    except KeyboardInterrupt:
        if checkpoint.exists():
            screen.say("stopped; the training so far is kept: add --resume to go on.")
        raise
    tell_and_save(gp, roles, out, len(tasks), tasks.d, screen)
    checkpoint.unlink(missing_ok=True)  # not before the model is there


def tell_and_save(gp: MetaGP, roles: Roles, out: Path, tasks: int, d: int, screen: Screen) -> None:
    """What was learned, and how it scores; whatever goes wrong there, it is written."""
    auto = isinstance(gp.method_, Auto)
    try:
        if auto:
            _tell_choice(gp.method_, screen)
        else:
            training = gp.training_
            took = "" if math.isnan(training.seconds) else f", {training.seconds:.1f} s"
            screen.say(f"learned in {training.epochs} epochs{took} ({training.stopped})")
            _score(gp, roles, screen)
    finally:  # nothing that goes wrong now can lose it
        gp.save(out)
    where = "START:STOP:STEP" if d == 1 else "POINTS.csv"
    screen.say(f"written to {out}. Next: metaprior predict {out} TABLE --at {where} --out predictions.csv")
    found = {"chosen": gp.method_.chosen_} if auto else {"epochs": gp.training_.epochs, "scores": gp.scores_}
    screen.result({"model": str(out), "tasks": tasks, **found})


def check_out(
    asked: Path | None, given: Given, start: str | None, html: Path | None, *, resume: bool, overwrite: bool
) -> Path:
    """Where the model goes, if nothing is lost by it, by its page, or by what is kept of the training meanwhile."""
    out = asked or Path(f"{given.stem}.metaprior")
    check_model_file(out, given, overwrite, start)
    checkpoint, reads = _checkpoint_of(out), given.files
    check_file(checkpoint, reads, ours=lambda path: saved_in(path) == CHECKPOINT, overwrite=overwrite)
    kept = [checkpoint] if given.folder is None else [*checkpoints_folder(out).glob("*.checkpoint")]
    if any(path.exists() for path in kept) and not resume and not overwrite:
        raise OutputError(
            f"{checkpoint if given.folder is None else checkpoints_folder(out)} holds what a run that was stopped has "
            "learned: go on with --resume, or start anew with --overwrite."
        )
    if html is not None:
        check_page(html, [*reads, str(out)], overwrite)
    return out


def _checkpoint_of(out: Path) -> Path:
    return out.with_name(f".{out.name}.checkpoint")


def checkpoints_folder(out: Path) -> Path:
    """The folder in which what is learned from shards is kept meanwhile."""
    return out.with_name(f".{out.name}.parts")


def roles_for(tasks: Tasks, start: MetaGP | None, seed: int) -> Roles:
    """Tasks to train on, to stop by and to judge by; a model has learned from none of the last two before."""
    known = set(start.trained_on_.seen(tasks.ids)) if start is not None else set()
    return roles_of(tasks, seed, [i for i, name in enumerate(tasks.ids) if name not in known])


def _tell_choice(auto: Auto, screen: Screen) -> None:
    """What was tried, what was chosen and why, and what recalibration has done."""
    table = Table("prior", "log density per value", "behind the best", "MSE", "seconds", "weight", title_justify="left")
    for one in auto.tried_:
        weight = auto.chosen_.get(one.name)
        table.add_row(
            one.name,
            figure_text(one.density._asdict()),
            figure_text(one.behind._asdict()) if one.behind.mean else "",
            f"{one.mse:.4g}",
            f"{one.seconds:.1f}" if one.seconds is not None else "",
            f"{weight:.2f}" if weight else "",
        )
    screen.show(table)
    most = max(one.density.tasks for one in auto.tried_)
    if early := [one.name for one in auto.tried_ if one.density.tasks < most]:
        screen.say(f"given up early, on fewer held-out tasks than the {most} of the others: {', '.join(early)}")
    for name, why in auto.left_out_.items():
        screen.say(f"left out: {name} ({why})")
    screen.say(f"chosen: {' + '.join(auto.chosen_)}, because {auto.why_}")
    before, after = auto.coverage_
    screen.say(f"90% intervals held {before:.0%} of held-out values, and {after:.0%} after recalibration.")


def _score(gp: MetaGP, roles: Roles, screen: Screen) -> None:
    """How the model predicts tasks that neither taught it anything nor decided when to stop."""
    judge = roles.judge
    if judge is None or int(judge.sizes.max()) < 2:
        screen.say(
            "too few tasks or points to set some aside to judge by: no scores (metaprior compare cross-validates)."
        )
        return
    gp.scores_ = held_out_scores(gp, judge, random_sizes(default_sizes(judge), gp.options["seed"]))
    title = f"{len(judge)} tasks that it has not seen, from"
    table = Table(title, "MSE", "log density", "90% covers", title_justify="left")
    for n, found in gp.scores_.items():
        table.add_row(
            f"{n} points" if n != "1" else "1 point",
            figure_text(found["mse"]),
            figure_text(found["log_likelihood"]),
            f"{found['coverage_90']['mean']:.0%}",
        )
    screen.show(table)


def start_of(path: str | None, mean: str | None, kernel: str | None) -> MetaGP | None:
    """The model that learning goes on from; it has its own mean and kernel."""
    if path is None:
        return None
    found = load(path)
    same = found.like_new()
    for name, asked, known in (("mean", mean, same.mean), ("kernel", kernel, same.kernel)):
        if asked is not None and asked != known:
            raise OptionError(f"--{name} {asked}: the model {path} has {name} {known!r}, and learning goes on with it.")
    return found


def columns_of_start(columns: Columns, start: MetaGP | None) -> Columns:
    """The task columns as an earlier model knows them, with its levels; others than its own are told."""
    if start is None:
        return columns
    known = start.trained_on_.columns.task_x
    named, own = {one.name for one in columns.task_x}, {one.name for one in known}
    if named and named != own:
        has = f"has the task columns {', '.join(sorted(own))}" if own else "has no task columns"
        raise OptionError(
            f"--task-x {','.join(sorted(named))}: the earlier model {has}, and learning goes on with them."
        )
    return columns._replace(task_x=known)
