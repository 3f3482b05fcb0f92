"""Tasks that need not be in memory together: read part by part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable

from metaprior.tasks.columns import Columns
from metaprior.tasks.tasks import Tasks


class Parts(ABC):
    """Tasks in numbered parts, each of which is whole and small enough for memory.

    Which part a task is in says nothing about it, so that the first few of them are a sample of all. A part may be
    empty. The same number gives the same tasks in the same order, whoever asks, and whenever.
    """

    count: int  # parts
    tasks: int
    rows: int
    columns: Columns
    fingerprint: str  # of everything that the parts hold

    @abstractmethod
    def part(self, k: int) -> Tasks:
        """The tasks of one part."""

    @abstractmethod
    def sample(self, most: int) -> Tasks:
        """So many tasks at most, from the first parts; all of them if there are no more."""

    def changed(self, change: Callable[[Tasks], Tasks]) -> Parts:
        """The same parts, each changed as it is read."""
        return _Changed(self, change)

    def without(self, ids: Collection[Hashable]) -> Parts:
        """The same parts without some tasks."""
        left_out = set(ids)
        return self.changed(lambda own: own.select([k for k, name in enumerate(own.ids) if name not in left_out]))


class _Changed(Parts):
    def __init__(self, parts: Parts, change: Callable[[Tasks], Tasks]) -> None:
        self.parts, self.change = parts, change
        self.count, self.tasks, self.rows, self.columns = parts.count, parts.tasks, parts.rows, parts.columns
        self.fingerprint = parts.fingerprint

    def part(self, k: int) -> Tasks:
        return self.change(self.parts.part(k))

    def sample(self, most: int) -> Tasks:
        return self.change(self.parts.sample(most))
