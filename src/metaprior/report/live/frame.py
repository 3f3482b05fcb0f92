"""The live page inside another: a notebook's output, a page of documentation."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metaprior.errors import OptionError
from metaprior.output import write_whole
from metaprior.report.live.page import live_page


class LivePage:
    """A model at work, where HTML is shown: the value of a notebook's last line.

        LivePage(gp, [1, 2, 3], [24.2, 25.9, 26.1])

    gp: a fitted `MetaGP`. x, y: what is known of a task to begin with; by default points that the prior itself would
    have. name: what the page calls the model. height: of the frame, in pixels.
    """

    def __init__(
        self, gp: Any, x: ArrayLike | None = None, y: ArrayLike | None = None, *, name: str = "model", height: int = 860
    ) -> None:
        inputs, targets = (_rows(() if given is None else given) for given in (x, y))
        if len(inputs) != len(targets):
            raise OptionError("give as many inputs as targets of the task that the page begins with, or neither.")
        example = list(zip(inputs, targets, strict=True))
        self.height, self.html = height, live_page(gp.method_, gp.trained_on_, name, example or None)

    def write(self, path: str | Path) -> None:
        """The page as a file of its own."""
        write_whole(Path(path), lambda part: part.write_text(self.html, encoding="utf-8"))

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe title="A prior at work" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def _rows(values: ArrayLike) -> list[list[float]]:
    """A row for each point, of one number or several."""
    found = np.asarray(values, dtype=float)
    rows: list[list[float]] = found.reshape(len(found), -1).tolist() if len(found) else []
    return rows
