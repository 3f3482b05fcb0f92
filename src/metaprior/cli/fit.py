"""`metaprior fit`: a table of past tasks to a model file."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from metaprior.cli.common import Screen, figure_text, hold_out
from metaprior.errors import OptionError
from metaprior.model import MetaGP, load
from metaprior.output import check_file
from metaprior.selection import Auto, default_sizes, random_sizes
from metaprior.selection.portrait import held_out_scores
from metaprior.tasks import Columns, Tasks, TrainedOn


def fit_model(tasks: Tasks, gp: MetaGP, out: Path, *, start: MetaGP | None, resume: bool, screen: Screen) -> None:
    """Meta-learn, score on held-out tasks beside `vanilla`, and write the model."""
    check_file(out)
    checkpoint = out.with_name(f".{out.name}.checkpoint")
    if checkpoint.exists() and not resume:
        checkpoint.unlink()
    auto = gp.mean is None and gp.kernel is None
    held, training = (None, tasks) if auto else _held_out(tasks, start, gp.options["seed"], screen)
    if not auto:
        gp.options["held_out"] = held
    if resume and not checkpoint.exists():
        screen.say("there is nothing to resume: learning starts anew.")
    try:
        gp.fit(training, start=start, checkpoint=checkpoint)
    except KeyboardInterrupt:
        if checkpoint.exists():
            screen.say("stopped; the training so far is kept: add --resume to go on.")
        raise
    takes = bool(gp.method_.trained_on_.columns.task_x)
    if tasks.columns.task_x and not takes:
        screen.say("note: the prior makes no use of the task columns, and does not ask for them again.")
    gp.trained_on_ = TrainedOn.of(tasks, getattr(start, "trained_on_", None), task_x=takes)
    gp.save(out)  # nothing that comes now can lose it
    if auto:
        _tell_choice(gp.method_, screen)
    else:
        screen.say(f"learned in {gp.training_.epochs} epochs, {gp.training_.seconds:.1f} s ({gp.training_.stopped})")
        _score_held_out(gp, training, held, screen)
        gp.save(out)
    where = "START:STOP:STEP" if tasks.d == 1 else "POINTS.csv"
    screen.say(f"written to {out}. Next: metaprior predict {out} TABLE --at {where} --out predictions.csv")
    found = {"chosen": gp.method_.chosen_} if auto else {"epochs": gp.training_.epochs, "scores": gp.scores_}
    screen.result({"model": str(out), "tasks": len(tasks), **found})


def _held_out(tasks: Tasks, start: MetaGP | None, seed: int, screen: Screen) -> tuple[Tasks | None, Tasks]:
    """Tasks to stop and to score by, none of which the model has learned from before; and the rest."""
    known = set(start.trained_on_.seen(tasks.ids)) if start is not None else set()
    if not known:
        return hold_out(tasks, seed)
    screen.say(f"note: the earlier model has learned from {len(known):,} of these {len(tasks):,} tasks before.")
    new = [i for i, name in enumerate(tasks.ids) if name not in known]
    if len(new) < 2:
        return None, tasks
    held, _ = hold_out(tasks.select(new), seed)
    if held is None:
        return None, tasks
    chosen = set(held.ids)
    return held, tasks.select([i for i, name in enumerate(tasks.ids) if name not in chosen])


def _tell_choice(auto: Auto, screen: Screen) -> None:
    """What was tried, what was chosen and why, and what recalibration has done."""
    table = Table("prior", "log density per value", "behind the best", "MSE", "weight", title_justify="left")
    for one in auto.tried_:
        weight = auto.chosen_.get(one.name)
        table.add_row(
            one.name,
            figure_text(one.density._asdict()),
            figure_text(one.behind._asdict()) if one.behind.mean else "",
            f"{one.mse:.4g}",
            f"{weight:.2f}" if weight else "",
        )
    screen.show(table)
    for name, why in auto.left_out_.items():
        screen.say(f"left out: {name} ({why})")
    screen.say(f"chosen: {' + '.join(auto.chosen_)}, because {auto.why_}")
    before, after = auto.coverage_
    screen.say(f"90% intervals held {before:.0%} of held-out values, and {after:.0%} after recalibration.")


def _score_held_out(gp: MetaGP, training: Tasks, held: Tasks | None, screen: Screen) -> None:
    gp.scores_ = {}
    if held is None or int(held.sizes.max()) < 2:
        screen.say("too few tasks or points to hold any out: no scores.")
        return
    seed = gp.options["seed"]
    contexts = random_sizes(default_sizes(held), seed)
    plain = MetaGP("zero", "rbf", held_out=held, seed=seed, progress=False).fit(training)
    gp.scores_ = held_out_scores(gp, held, contexts)
    beside = held_out_scores(plain, held, contexts)
    table = Table(
        "held-out tasks, from", "MSE", "vanilla", "log density", "vanilla", "90% covers", title_justify="left"
    )
    for n, found in gp.scores_.items():
        table.add_row(
            f"{n} points" if n != "1" else "1 point",
            *(figure_text(part["mse"]) for part in (found, beside[n])),
            *(figure_text(part["log_likelihood"]) for part in (found, beside[n])),
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


def columns_of_start(columns: Columns, start: MetaGP) -> Columns:
    """The task columns as the earlier model knows them, with its levels; others than its own are told."""
    known = start.trained_on_.columns.task_x
    named, own = {one.name for one in columns.task_x}, {one.name for one in known}
    if named and named != own:
        has = f"has the task columns {', '.join(sorted(own))}" if own else "has no task columns"
        raise OptionError(
            f"--task-x {','.join(sorted(named))}: the earlier model {has}, and learning goes on with them."
        )
    return columns._replace(task_x=known)
