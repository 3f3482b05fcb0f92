"""Progress bars: on a terminal they are drawn, elsewhere they are silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Call it once per unit of work, or with the amount done, and a short note on how things stand."""

    def __call__(self, note: str = "", amount: int = 1) -> None: ...


@contextmanager
def progress_bar(
    label: str, total: int | None, *, show: bool = True, in_bytes: bool = False, in_shares: bool = False
) -> Iterator[Advance]:
    """A bar of `total` units (None: not known) on standard error; the caller gets a function that moves it on.

    in_shares: units are parts of a whole that nobody counts.
    """
    if not show:
        yield lambda note="", amount=1: None
        return
    from rich import console, progress  # a tenth of what importing the package takes, for those who look at a bar

    screen = console.Console(stderr=True)
    counted = progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn()
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn() if in_shares else counted,
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
    )
    with progress.Progress(*columns, console=screen, disable=not screen.is_terminal) as bar:
        unit = bar.add_task(label, total=total, note="")

        def advance(note: str = "", amount: int = 1) -> None:
            bar.update(unit, advance=amount, note=note)

        yield advance
        bar.update(unit, completed=total)
