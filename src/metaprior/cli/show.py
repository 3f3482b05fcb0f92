"""`metaprior show`: what a model file holds, in words and pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from metaprior.cli.common import Screen, described, figure_text, shown_range
from metaprior.methods import FPCA, LearnedPrior, Mixture
from metaprior.model import MetaGP, load
from metaprior.output import check_file, check_folder
from metaprior.report import (
    drawn_before,
    is_live_page,
    is_model_page,
    model_figures,
    write_figure,
    write_live_page,
    write_model_page,
)
from metaprior.selection import Auto, portrait
from metaprior.tasks import Possible, TrainedOn


def show_model(path: str, folder: Path | None, html: Path | None, screen: Screen, *, overwrite: bool = False) -> None:
    """What a model file holds, a page of pictures, and one on which it can be tried."""
    if html is not None:
        check_page(html, [path], overwrite)
    gp = load(path)
    method, trained_on = gp.method_, gp.trained_on_
    possible = trained_on.possible or [Possible()] * len(trained_on.columns.y)
    facts: dict[str, Any] = {
        "kind": method.saved_as,
        "structure": _structure(method),
        "task columns": ", ".join(map(str, trained_on.columns.task)),
        "input columns": ", ".join(
            f"{name} ({shown_range(trained_on, k)})" for k, name in enumerate(trained_on.columns.x)
        ),
        **({"task inputs": _task_inputs(trained_on)} if trained_on.columns.task_x else {}),
        "target columns": ", ".join(
            f"{name} ({low:g} to {high:g}{f'; can be {one}' if str(one) else ''})"
            for name, (low, high), one in zip(trained_on.columns.y, trained_on.y_range, possible, strict=True)
        ),
        "trained on": f"{trained_on.tasks:,} tasks, {trained_on.rows:,} rows, {trained_on.sizes[0]} to "
        f"{trained_on.sizes[1]} points each",
        "file": f"{os.path.getsize(path):,} bytes",
    }
    for n, found in gp.scores_.items():
        label = f"held out, from {n}" + (" points" if n.isdigit() else "")
        facts[label] = f"MSE {figure_text(found['mse'])}, log density {figure_text(found['log_likelihood'])}"
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    screen.show(table)
    screen.result(facts)
    if folder is not None:
        names = (str(trained_on.columns.x[0]), str(trained_on.columns.y[0]))
        figures = model_figures(portrait(method, trained_on), gp.scores_, names)
        pictures = {name: folder / f"{name}.png" for name in figures}
        _check_pictures(folder, [one.name for one in pictures.values()], path, overwrite)
        for name, figure in figures.items():
            write_figure(figure, pictures[name], 130)
        write_model_page(f"The model {Path(path).name}", facts, pictures, folder / "model.html")
        screen.say(f"pictures: {folder / 'model.html'}")
    if html is not None:
        write_page_of(gp, Path(path).name, html, screen)


def check_page(html: Path, reads: Iterable[str], overwrite: bool) -> None:
    """Whether nothing is lost by a page, before any work is done."""
    check_file(html, reads, ours=is_live_page, overwrite=overwrite, option="--html")


def write_page_of(gp: MetaGP, name: str, html: Path, screen: Screen) -> None:
    """A page on which the model can be tried in a browser."""
    write_live_page(gp.method_, gp.trained_on_, name, html)
    screen.say(f"a page to try it on: {html}")


def _check_pictures(folder: Path, names: list[str], model: str, overwrite: bool) -> None:
    """Whether nothing is lost by the pictures and their page."""
    options: dict[str, Any] = {"overwrite": overwrite, "option": "--pictures"}
    check_folder(folder, names, [model], ours=drawn_before, **options)
    check_folder(folder, ["model.html"], [model], ours=is_model_page, **options)


def _task_inputs(trained_on: TrainedOn) -> str:
    ranges = {name: f"{low:g} to {high:g}" for _, name, low, high in trained_on.task_numbers()}
    said = ", ".join(described(one, ranges) for one in trained_on.columns.task_x)
    return f"{said}; pictures are of a task with the average of these"


def _structure(method: Any) -> str:
    if isinstance(method, Auto):
        shares = [f"{name} ({weight:.0%})" if weight < 1 else name for name, weight in method.chosen_.items()]
        before, after = method.coverage_
        return (
            f"{' + '.join(shares)}, chosen because {method.why_} 90% intervals: {before:.0%}, recalibrated {after:.0%}"
        )
    if isinstance(method, LearnedPrior):
        return f"mean {method.spec.mean}, kernel {method.spec.kernel}, hidden layers {list(method.spec.hidden)}"
    if isinstance(method, Mixture):
        return f"{len(method.models_)} kinds of tasks, {method.basis_.size} basis functions"
    if isinstance(method, FPCA):
        return f"{method.basis_.size} basis functions, {method.rank_} components"
    return str(method.saved_as)
