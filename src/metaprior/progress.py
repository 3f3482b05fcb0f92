"""Progress bars: on a terminal they are drawn, elsewhere they are silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[str], None]
"""Call it once per unit of work, with a short note on how things stand."""


@contextmanager
def progress_bar(label: str, total: int, *, show: bool = True) -> Iterator[Advance]:
    """A bar of `total` units on standard error; the caller gets a function that moves it on."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        unit = bar.add_task(label, total=total, note="")

        def advance(note: str = "") -> None:
            bar.update(unit, advance=1, note=note)

        yield advance
        bar.update(unit, completed=total)
