"""`metaprior show`: what a model file holds, in words and pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from metaprior.cli.common import Screen
from metaprior.model import MetaGP, load
from metaprior.output import check_file, check_folder
from metaprior.report import (
    drawn_before,
    facts_of,
    is_live_page,
    is_model_page,
    model_figures,
    write_figure,
    write_live_page,
    write_model_page,
)
from metaprior.selection import portrait


def show_model(path: str, folder: Path | None, html: Path | None, screen: Screen, *, overwrite: bool = False) -> None:
    """What a model file holds, a page of pictures, and one on which it can be tried."""
    if html is not None:
        check_page(html, [path], overwrite)
    gp = load(path)
    method, trained_on = gp.method_, gp.trained_on_
    facts = facts_of(method, trained_on, gp.scores_, os.path.getsize(path))
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
