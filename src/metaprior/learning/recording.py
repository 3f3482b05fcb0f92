"""What is computed on a GPU again and again as one recording: what is launched does not depend on the values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from metaprior.inference import trusting

WARM = 2
"""Times that it is computed as ever before it is recorded: libraries set themselves up meanwhile."""

Found = TypeVar("Found")


class Recording(Generic[Found]):
    """What `compute` returns, each time it is called: the GPU plays again what it was asked for once.

    Python and the launches of a hundred small kernels take longer than those kernels. Nothing is looked at on the way
    (`trusting`): what cannot be computed is NaN. What is read and written stays where it lay.
    """

    def __init__(self, compute: Callable[[], Found]) -> None:
        self.compute = compute  # what it reads has to stay where it is
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), trusting(), warnings.catch_warnings(action="ignore"):
            for _ in range(WARM):
                compute()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            self.graph.capture_begin()  # `torch.cuda.graph` collects garbage first, which takes longer than all of this
            try:
                self.found = compute()
            finally:
                self.graph.capture_end()
        torch.cuda.current_stream().wait_stream(aside)

    def __call__(self) -> Found:
        self.graph.replay()  # type: ignore[no-untyped-call]
        return self.found


def recording(compute: Callable[[], Found]) -> Callable[[], Found]:
    """A recording of it; where a step of it cannot be recorded, as it is, with no look on the way either."""
    try:
        return Recording(compute)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # something waits for a value, as a user's own kernel may
        torch.cuda.synchronize()

    def trusted() -> Found:
        with trusting():
            return compute()

    return trusted


class Recorded:
    """The loss, and its slopes in place, each time it is called."""

    def __init__(self, objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
        self.objective, self.parameters = objective, list(parameters)
        self.play = Recording(lambda: with_slopes(objective, self.parameters))

    def __call__(self) -> Tensor:
        value, slopes = self.play()
        for parameter, slope in zip(self.parameters, slopes, strict=True):
            parameter.grad = slope
        return value


def recorded(objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> Callable[[], Tensor]:
    """A recording of it on a GPU; elsewhere, and where a step of it cannot be recorded, the objective itself."""
    if not parameters or not parameters[0].is_cuda:
        return objective
    try:
        return Recorded(objective, parameters)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # something waits for a value, as a user's own kernel may
        torch.cuda.synchronize()
        return objective


def with_slopes(objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The objective and its slopes, 0 along what it does not depend on."""
    value = objective()
    slopes = torch.autograd.grad(value, parameters, allow_unused=True)
    given = zip(parameters, slopes, strict=True)
    return value.detach(), [torch.zeros_like(one) if slope is None else slope for one, slope in given]
