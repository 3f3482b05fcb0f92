"""A loss and its gradient on a GPU as one recording: what is launched does not depend on the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metaprior.inference import trusting

WARM = 3
"""Times that it is computed as ever before it is recorded: libraries set themselves up meanwhile."""


class Recorded:
    """The loss, and its slopes in place, each time it is called: the GPU plays again what it was asked for once.

    Python and the launches of a hundred small kernels take longer than those kernels. Nothing is looked at on the way
    (`trusting`): what cannot be computed is NaN.
    """

    def __init__(self, objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
        self.objective, self.parameters = objective, list(parameters)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), trusting():
            for _ in range(WARM):
                self._computed()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph), trusting():
            self.value, self.slopes = self._computed()

    def __call__(self) -> Tensor:
        self.graph.replay()  # type: ignore[no-untyped-call]
        for parameter, slope in zip(self.parameters, self.slopes, strict=True):
            parameter.grad = slope
        return self.value

    def _computed(self) -> tuple[Tensor, list[Tensor]]:
        value = self.objective()
        slopes = torch.autograd.grad(value, self.parameters, allow_unused=True)
        given = zip(self.parameters, slopes, strict=True)
        return value.detach(), [torch.zeros_like(one) if slope is None else slope for one, slope in given]


def recorded(objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> Callable[[], Tensor]:
    """A recording of it on a GPU; elsewhere, and where a step of it cannot be recorded, the objective itself."""
    if not parameters or not parameters[0].is_cuda:
        return objective
    try:
        return Recorded(objective, parameters)
    except RuntimeError:  # something waits for a value, as a user's own kernel may
        torch.cuda.synchronize()
        return objective
