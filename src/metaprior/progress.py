"""Progress bars: on a terminal they are drawn, elsewhere they are silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Advance(Protocol):
    """Call it once per unit of work, or with the amount done, and a short note on how things stand."""

    def __call__(self, note: str = "", amount: int = 1) -> None: ...


@contextmanager
def progress_bar(label: str, total: int | None, *, show: bool = True, in_bytes: bool = False) -> Iterator[Advance]:
    """A bar of `total` units (None: not known) on standard error; the caller gets a function that moves it on."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        unit = bar.add_task(label, total=total, note="")

        def advance(note: str = "", amount: int = 1) -> None:
            bar.update(unit, advance=amount, note=note)

        yield advance
        bar.update(unit, completed=total)
