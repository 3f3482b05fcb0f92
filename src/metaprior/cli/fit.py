"""`metaprior fit`: a table of past tasks to a model file."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from metaprior.cli.common import Screen, figure_text, hold_out
from metaprior.errors import OptionError
from metaprior.model import MetaGP, load
from metaprior.selection import Auto, default_sizes, random_sizes
from metaprior.selection.portrait import held_out_scores
from metaprior.tasks import Tasks, TrainedOn


def fit_model(tasks: Tasks, gp: MetaGP, out: Path, *, start: MetaGP | None, resume: bool, screen: Screen) -> None:
    """Meta-learn, score on held-out tasks beside `vanilla`, and write the model."""
    if out.is_dir() or not out.parent.is_dir():
        raise OptionError(f"--out {out}: give the name of a file in a folder that exists.")
    checkpoint = out.with_name(f".{out.name}.checkpoint")
    if checkpoint.exists() and not resume:
        checkpoint.unlink()
    auto = gp.mean is None and gp.kernel is None
    held, training = (None, tasks) if auto else hold_out(tasks, gp.options["seed"])
    if not auto:
        gp.options["held_out"] = held
    try:
        gp.fit(training, start=start, checkpoint=checkpoint)
    except KeyboardInterrupt:
        if checkpoint.exists():
            screen.say("stopped; the training so far is kept: add --resume to go on.")
        raise
    gp.trained_on_ = TrainedOn.of(tasks, getattr(start, "trained_on_", None))
    gp.save(out)  # nothing that comes now can lose it
    if auto:
        _tell_choice(gp.method_, screen)
    else:
        screen.say(f"learned in {gp.training_.epochs} epochs, {gp.training_.seconds:.1f} s ({gp.training_.stopped})")
        _score_held_out(gp, training, held, screen)
        gp.save(out)
    screen.say(f"written to {out}. Next: metaprior predict {out} TABLE --at START:STOP:STEP --out predictions.csv")
    found = {"chosen": gp.method_.chosen_} if auto else {"epochs": gp.training_.epochs, "scores": gp.scores_}
    screen.result({"model": str(out), "tasks": len(tasks), **found})


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


def start_of(path: str | None) -> MetaGP | None:
    """The model that learning goes on from."""
    if path is None:
        return None
    return load(path)
