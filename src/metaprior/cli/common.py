"""What the commands share: what they say, and how they read tasks and contexts."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

from metaprior.data import COLUMNS, read_table
from metaprior.errors import OptionError
from metaprior.selection import ContextsBySetting, contexts_until, default_sizes, random_sizes, spare
from metaprior.tasks import Columns, Tasks


class Screen:
    """What a command says: to standard error while it works, so that standard output is free for tables and JSON."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.console = Console(stderr=True, soft_wrap=True)
        self.out = Console(width=None if sys.stdout.isatty() else 160)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, markup=False)

    def show(self, table: Any) -> None:
        if not self.quiet and not self.as_json:
            self.out.print(table)

    def result(self, found: dict[str, Any]) -> None:
        if self.as_json:
            self.out.print_json(json.dumps(found))


def split_names(text: str) -> list[str]:
    """Column names separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("give at least one column name.")
    return names


def named_columns(table: str, task: str | None, x: str | None, y: str | None) -> Columns:
    """The columns that `--task`, `--x` and `--y` name; embedded tables know their own."""
    given = {"task": task, "x": x, "y": y}
    lacking = [f"--{name}" for name, text in given.items() if text is None]
    if lacking and table not in COLUMNS:
        raise OptionError(
            f"{table}: say which columns are what with {', '.join(lacking)}, such as --task patient --x hour --y pulse."
        )
    named = {name: tuple(split_names(text)) for name, text in given.items() if text is not None}
    return COLUMNS[table]._replace(**named) if lacking else Columns(**named)


def read_tasks(table: str, columns: Columns, *, missing: str, delimiter: str | None, screen: Screen) -> Tasks:
    """A table as tasks, and a word on what was seen."""
    found = read_table(table, delimiter)
    tasks = Tasks.from_table(found, **columns._asdict(), missing=missing)  # type: ignore[arg-type]
    x, y = ", ".join(columns.x), ", ".join(columns.y)
    sizes = tasks.sizes
    screen.say(
        f"{table}: {found.num_rows:,} rows, {len(tasks):,} tasks of {int(sizes.min())} to {int(sizes.max())} points "
        f"(median {int(sizes.median())}); {x} → {y}"
    )
    for note in tasks.notes:
        screen.say(f"note: {note}")
    return tasks


def chosen_contexts(context: str | None, until: str | None, tasks: Tasks, seed: int) -> ContextsBySetting:
    """`--context 1,3,5` or `--context-until hour=24`; by default sizes that suit the tasks."""
    if context and until:
        raise OptionError("give --context or --context-until, not both.")
    if until:
        name, _, value = until.partition("=")
        try:
            return contexts_until(name.strip(), float(value))
        except ValueError:
            raise OptionError(f"--context-until {until}: give COLUMN=NUMBER, such as hour=24.") from None
    if context:
        try:
            return random_sizes([int(part) for part in context.split(",")], seed)
        except ValueError:
            raise OptionError(f"--context {context}: give whole numbers, such as 1,3,5.") from None
    return random_sizes(default_sizes(tasks), seed)


def hold_out(tasks: Tasks, seed: int) -> tuple[Tasks | None, Tasks]:
    """Tasks to stop and to score by, if any can be spared, and the rest to learn from."""
    share = spare(tasks)
    return (None, tasks) if share is None else tasks.split(share, seed)


def figure_text(found: dict[str, Any]) -> str:
    """A mean with its standard error."""
    if found["mean"] is None:
        return "infinite"
    error = f" ± {found['stderr']:.2g}" if found["stderr"] is not None else ""
    return f"{found['mean']:.4g}{error}"
