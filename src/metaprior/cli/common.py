"""What the commands share: what they say, and how they read tasks and contexts."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from metaprior.cli.given import Given
from metaprior.errors import MetapriorWarning, OptionError
from metaprior.files import saved_in
from metaprior.learning import CHECKPOINT
from metaprior.output import check_file, same_file
from metaprior.points import number_or_date
from metaprior.report import described
from metaprior.splits import Contexts, Until, default_sizes, random_sizes
from metaprior.tasks import Columns, Tasks, check_targets, oddities, oddities_of_past, read_support

LONGEST = 60
"""Letters of a task's name in the name of its picture."""


class Screen:
    """What a command says: to standard error while it works, so that standard output is free for tables and JSON."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.console = Console(stderr=True, soft_wrap=True, markup=False)
        self.out = Console(width=None if sys.stdout.isatty() else 160, markup=False)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, markup=False)

    def note(self, *notes: str) -> None:
        for note in notes:
            self.say(f"note: {note}")

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Warnings of the library inside are notes of the command."""

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, MetapriorWarning):
                self.note(str(message))
            else:
                shown(message, category, *where, **more)

        with warnings.catch_warnings():
            warnings.simplefilter("always", MetapriorWarning)
            shown, warnings.showwarning = warnings.showwarning, show
            yield

    def show(self, table: Any) -> None:
        if not self.quiet and not self.as_json:
            self.out.print(table)

    def result(self, found: dict[str, Any]) -> None:
        if self.as_json:
            self.out.print_json(json.dumps(_finite(found), allow_nan=False))


def _finite(found: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def read_tasks(
    given: Given,
    columns: Columns,
    *,
    missing: str,
    delimiter: str | None,
    screen: Screen,
    cluster: str | None = None,
    support: Sequence[str] = (),
    integer: bool = False,
    past: bool = True,
) -> Tasks:
    """A table as tasks, and a word on what was seen. past: whether they are to be learned from."""
    named = {*columns.task, *columns.x, *columns.y, *(one.name for one in columns.task_x)}
    more = () if cluster is None or cluster in named else (cluster,)  # read as what names a task is: 7 and 007 are two
    found = given.read(columns._replace(task=(*columns.task, *more)), delimiter, quiet=screen.quiet)
    roles = columns._asdict() | {"cluster": cluster, "missing": missing}
    tasks = Tasks.from_table(found, wide=given.wide, **roles)
    tasks = tasks.with_possible(read_support(support, columns.y), integer)
    check_targets(tasks)
    x, y = ", ".join(columns.x), ", ".join(columns.y)
    about = f", given {', '.join(map(described, tasks.columns.task_x))}" if tasks.columns.task_x else ""
    if tasks.clusters is not None:
        about += f"; {len(tasks.clusters.unique()):,} clusters ({cluster}), held out whole"
    about += "".join(f"; {name}: {one}" for name, one in zip(columns.y, tasks.possible, strict=False) if str(one))
    sizes = tasks.sizes
    screen.say(
        f"{given}: {found.num_rows:,} rows, {len(tasks):,} tasks of {int(sizes.min())} to {int(sizes.max())} points "
        f"(median {int(sizes.median())}); {x} → {y}{about}"
    )
    screen.note(*tasks.notes, *(oddities_of_past(tasks) if past else oddities(tasks)))
    return tasks


def check_model_file(out: Path, given: Given, overwrite: bool, start: str | None = None) -> None:
    """Whether a model may be written there: in the place of another one, but not of that which it goes on from."""

    def is_other_model(path: Path) -> bool:
        return saved_in(path) not in (None, CHECKPOINT) and not (start and same_file(path, start))

    check_file(out, given.files, ours=is_other_model, overwrite=overwrite)


def picture_names(tasks: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], str]:
    """A file for each task, by its name: "a/b" and "a b" are two tasks, and none is hidden."""
    found: dict[tuple[Any, ...], str] = {}
    taken: set[str] = set()
    for task in tasks:
        label = " ".join(map(str, task))
        safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in label)[:LONGEST].lstrip(".") or "_"
        while safe.lower() in taken:
            safe += "_"
        taken.add(safe.lower())
        found[task] = f"{safe}.png"
    return found


def chosen_contexts(context: str | None, until: str | None, tasks: Tasks, seed: int, screen: Screen) -> Contexts:
    """How tasks are split to be scored, and a note where that leaves tasks out."""
    found = _contexts(context, until, tasks, seed)
    for one in found.left_out(tasks):
        screen.say(f"note: {one}")
    return found


def _contexts(context: str | None, until: str | None, tasks: Tasks, seed: int) -> Contexts:
    """`--context 1,3,5` or `--context-until hour=24`; by default sizes that suit the tasks."""
    if context and until:
        raise OptionError("give --context or --context-until, not both.")
    if until:
        name, _, value = until.rpartition("=")
        try:
            return Until(name.strip(), number_or_date(value, name.strip() in tasks.dated))
        except OptionError as error:
            form = "COLUMN=NUMBER or a date, such as hour=24, day=2020-03-01 or time=2020-03-01T06:00"
            raise OptionError(f"--context-until {until}: {error} Give {form}.") from None
    if context:
        try:
            sizes = [int(part) for part in context.split(",")]
        except ValueError:
            raise OptionError(f"--context {context}: give whole numbers, such as 1,3,5.") from None
        return random_sizes(sizes, seed)
    return random_sizes(default_sizes(tasks), seed)
