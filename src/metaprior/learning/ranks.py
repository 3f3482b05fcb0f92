"""Who does the work: this process alone, or one of several that have the parts of the tasks between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, distributed

from metaprior.errors import MetapriorError

T = TypeVar("T")

WAVE = 32
"""Parts whose sums are exchanged at a time: what is kept of them is that many times the size of one."""


@dataclass(frozen=True)
class Ranks:
    """One process of several. Sums are taken part by part in one order, so that their bits are the same for any number.

    Every rank has to come to each of these calls, in the same order.
    """

    rank: int = 0
    size: int = 1

    @staticmethod
    def here() -> Ranks:
        """As `torch.distributed` has it, where it has been set up; else alone."""
        if distributed.is_available() and distributed.is_initialized():
            return Ranks(distributed.get_rank(), distributed.get_world_size())
        return Ranks()

    @staticmethod
    def started() -> bool:
        """Whether this process is one of several, or will be: torchrun has started it."""
        return distributed.is_torchelastic_launched() or distributed.is_initialized()

    @property
    def first(self) -> bool:
        """Whether this one speaks and writes for all."""
        return self.rank == 0

    def summed(self, parts: Sequence[int], of: Callable[[int], Float[Tensor, " k"]]) -> Float[Tensor, " k"]:
        """`Σ of(part)` over the parts, each of which one rank computes: the same numbers on all ranks."""
        total: Tensor | None = None
        for start in range(0, len(parts), WAVE):
            for values in self._gathered(parts[start : start + WAVE], of):
                total = values.clone() if total is None else total.add_(values)
        assert total is not None
        return total

    def joined(self, parts: Sequence[int], of: Callable[[int], T]) -> list[T]:
        """Any values of each part, in the order of the parts."""
        mine: list[T] = self._tried(lambda: [of(k) for k in self._own(parts)])
        if self.size == 1:
            return mine
        everyone: list[list[T]] = [[] for _ in range(self.size)]
        distributed.all_gather_object(everyone, mine)
        return [everyone[place % self.size][place // self.size] for place in range(len(parts))]

    def told(self, value: Callable[[], T]) -> T:
        """What the first rank finds, on all of them."""
        content: list[T] = [self._tried(value if self.first else lambda: None)]
        if self.size > 1:
            distributed.broadcast_object_list(content)
        return content[0]

    def _own(self, parts: Sequence[int]) -> Sequence[int]:
        return parts[self.rank :: self.size]

    def _gathered(self, parts: Sequence[int], of: Callable[[int], Tensor]) -> list[Tensor]:
        mine: list[Tensor] = self._tried(lambda: [of(k) for k in self._own(parts)])
        if self.size == 1:
            return mine
        width = self.told(lambda: mine[0].numel())  # the first rank has the first part
        sent = torch.zeros(-(-len(parts) // self.size), width, dtype=torch.float64)
        for row, values in zip(sent, mine, strict=False):
            row.copy_(values)
        everyone = [torch.empty_like(sent) for _ in range(self.size)]
        distributed.all_gather(everyone, sent)
        return [everyone[place % self.size][place // self.size] for place in range(len(parts))]

    def _tried(self, work: Callable[[], Any]) -> Any:
        """What this rank's work has brought. Where that of any has failed, all of them fail."""
        found, error = None, None
        try:
            found = work()
        except MetapriorError as mine:
            error = mine
        if self.size > 1:
            said: list[str | None] = [None] * self.size
            distributed.all_gather_object(said, None if error is None else str(error))
            error = error or next((MetapriorError(text) for text in said if text is not None), None)
        if error is not None:
            raise error
        return found
