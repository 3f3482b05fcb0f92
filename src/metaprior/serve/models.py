"""The models that are served: loaded once, each with its pages."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import torch

from metaprior.errors import DataError, OptionError
from metaprior.model import MetaGP, load
from metaprior.report import facts_of, live_page, model_figures, model_page
from metaprior.selection import portrait
from metaprior.tasks import Columns, Tasks

_DRAWING = threading.Lock()
"""Figures are drawn one after the other."""


class Served:
    """A model, by the name of its file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self._stamp = self._now()
        self.gp: MetaGP = load(path)
        self.size = path.stat().st_size
        self._warm_up()

    def _warm_up(self) -> None:
        """Ask it once, so that nobody waits for what is imported or computed on the first occasion."""
        about = self.gp.trained_on_
        covariates = torch.tensor([about.task_x.typical], dtype=torch.float64) if about.task_x.typical else None
        middle = torch.tensor([[(low + high) / 2 for low, high in about.x_range]], dtype=torch.float64)
        points = replace(Tasks.from_inputs([middle]), columns=about.columns, covariates=covariates)
        empty = replace(Tasks.empty(points.ids, points.d, len(about.columns.y)), columns=about.columns)
        self.gp.predict(replace(empty, covariates=covariates), points).interval(0.9)

    @property
    def columns(self) -> Columns:
        """What the columns of its tables are called."""
        return self.gp.trained_on_.columns

    @property
    def notes(self) -> tuple[str, ...]:
        """A word where the file is no longer what was loaded."""
        if self._now() == self._stamp:
            return ()
        return (
            f"the file of the model {self.name} has changed since it was loaded: restart the server for the new one.",
        )

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    @cached_property
    def page(self) -> str:
        """The page on which it can be tried, with tables that are sent to this server."""
        return live_page(self.gp.method_, self.gp.trained_on_, self.path.name, served=f"/models/{quote(self.name)}")

    @cached_property
    def about(self) -> str:
        """The page about it: facts and pictures."""
        method, trained_on = self.gp.method_, self.gp.trained_on_
        names = (str(trained_on.columns.x[0]), str(trained_on.columns.y[0]))
        pictures = {}
        with _DRAWING:
            for name, figure in model_figures(portrait(method, trained_on), self.gp.scores_, names).items():
                content = io.BytesIO()
                figure.savefig(content, format="png", dpi=130)
                pictures[name] = content.getvalue()
        facts = facts_of(method, trained_on, self.gp.scores_, self.size)
        return model_page(f"The model {self.name}", facts, pictures)


def load_models(paths: Sequence[str]) -> dict[str, Served]:
    """Models by name; two of one name are told."""
    if not paths:
        raise OptionError("give one model file or more: metaprior serve elnino.metaprior.")
    found: dict[str, Served] = {}
    for path in paths:
        one = Served(Path(path))
        if not one.name.isprintable() or "/" in one.name:
            raise DataError(f"{path}: a model is asked for by the name of its file, and this one cannot be.")
        if one.name in found:
            raise OptionError(f"{path} and {found[one.name].path} would both be called {one.name!r}: rename one.")
        found[one.name] = one
    return found
