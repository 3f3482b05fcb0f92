"""Chapters: what a page says of some results, and the figures that are drawn of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from metaprior.report.figures.common import Curves, write_figure
from metaprior.report.figures.performance import performance
from metaprior.report.methods import Row
from metaprior.report.results import LIVE, MODEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure: how it is drawn (None where rows or curves lack what it takes), and the words below it."""

    draw: Callable[[list[Row], Curves], Figure | None]
    caption: str


@dataclass(frozen=True)
class Chapter:
    """One set of results on a page. all_tables: every metric is shown, not only those with figures beside them.

    model: whether one of its methods is kept, with a page on which it can be tried.
    """

    title: str
    description: str = ""
    pictures: Mapping[str, Picture] = field(default_factory=dict)  # by file name
    all_tables: bool = False
    model: bool = False

    @property
    def files(self) -> list[str]:
        """What is written to the folder of its results."""
        pictures = [f"{name}.{suffix}" for name in self.pictures for suffix in ("png", "svg")]
        return [
            "results.json",
            "tasks.parquet",
            "curves.npz",
            "table.md",
            "report.html",
            *pictures,
            *([MODEL, LIVE] if self.model else []),
        ]


COMPARISON = Chapter(
    "Comparison of priors on your tasks",
    "Every method was fitted without each fold of the tasks and scored on that fold, from the same contexts. The "
    "row 'the choice' is what would have been chosen without looking: by log density within the other folds. "
    "Figures are means over tasks ± one standard error; bold is the best of its column.",
    {
        "performance": Picture(
            performance, "Error and likelihood of each method on tasks that it had not seen, by context points."
        )
    },
    all_tables=True,
)


def draw_figures(chapter: Chapter, rows: list[Row], curves: Curves, folder: Path) -> list[Path]:
    """Every figure of a chapter that rows and curves suffice for, as PNG and SVG.

    One that they do not suffice for is removed if an earlier run left it there.
    """
    written = []
    for name, picture in chapter.pictures.items():
        figure = picture.draw(rows, curves)
        for path in (folder / f"{name}.png", folder / f"{name}.svg"):
            if figure is None:
                path.unlink(missing_ok=True)
            else:
                write_figure(figure, path, dpi=150)
                written.append(path)
    return written
