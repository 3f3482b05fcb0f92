"""Tasks that need not be in memory together: read part by part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn

from metaprior.errors import DataError
from metaprior.tasks.columns import Columns
from metaprior.tasks.tasks import Tasks

BYTES_OF_AN_ID = 60
"""Roughly, of a task's name as Python keeps it."""


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

    def __len__(self) -> int:
        return self.tasks

    def __getattr__(self, name: str) -> NoReturn:
        """Whatever asks for what only `Tasks` have needs them in memory: that is told."""
        if name.startswith("_") or name not in Tasks.__dict__ | Tasks.__annotations__:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        raise DataError(
            "this needs all tasks in memory, and they are in parts. MetaGP(...).fit learns part by part: priors of "
            "given mean and kernel, functional PCA and warps of these from all tasks, other priors from a sample of "
            "them. Or give a sample yourself: shards.sample(20_000)."
        )

    def remembered(self, most: int) -> Parts:
        """The same parts, of which those that are read first stay in memory, up to so many bytes."""
        return _Remembered(self, most)

    def changed(self, change: Callable[[Tasks], Tasks]) -> Parts:
        """The same parts, each changed as it is read."""
        return _Changed(self, change)

    def apart_from(self, *others: Tasks) -> Parts:
        """The same parts without some tasks, and without any that share a cluster with one of these."""
        names = {name for part in others for name in part.ids}
        groups = {group for part in others if part.clusters is not None for group in part.clusters.tolist()}

        def left(own: Tasks) -> Tasks:
            clusters = own.clusters.tolist() if own.clusters is not None and groups else [None] * len(own)
            kept = [
                k
                for k, (name, group) in enumerate(zip(own.ids, clusters, strict=True))
                if name not in names and group not in groups
            ]
            return own if len(kept) == len(own) else own.select(kept)

        return self.changed(left)


class _Around(Parts):
    """Other parts, seen through something."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.fingerprint = parts, parts.fingerprint
        self.count, self.tasks, self.rows, self.columns = parts.count, parts.tasks, parts.rows, parts.columns

    def sample(self, most: int) -> Tasks:
        return self.parts.sample(most)


class _Remembered(_Around):
    def __init__(self, parts: Parts, most: int) -> None:
        super().__init__(parts)
        self.left, self.known = most, dict[int, Tasks]()

    def part(self, k: int) -> Tasks:
        if k in self.known:
            return self.known[k]
        found = self.parts.part(k)
        size = found.x.nbytes + found.y.nbytes + found.offsets.nbytes + BYTES_OF_AN_ID * len(found)
        if size <= self.left:
            self.left, self.known[k] = self.left - size, found
        return found


class _Changed(_Around):
    def __init__(self, parts: Parts, change: Callable[[Tasks], Tasks]) -> None:
        super().__init__(parts)
        self.change = change

    def part(self, k: int) -> Tasks:
        return self.change(self.parts.part(k))

    def sample(self, most: int) -> Tasks:
        return self.change(self.parts.sample(most))
