"""Tasks as functional PCA sees them: their inputs through a basis, their targets through it too.

For each set of inputs its Gram matrix `G = BᵀB`; and count, sum and products of the `h = Bᵀy` of its tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.priors import Basis
from metaprior.tasks import CHUNK, Padded, SharedInputs, Tasks, batches, on_one_grid


@dataclass(frozen=True, eq=False)
class Block:
    """Designs, one entry for each set of inputs: of single tasks, or of groups of tasks that share them.

    A single task may count more or less than once: its sums are then as many times those of the task.
    """

    count: Float[Tensor, " k"]
    points: Float[Tensor, " k"]
    gram: Float[Tensor, "k q q"]
    projected: Float[Tensor, "k q p"]  # Σ h over the tasks of the design
    products: Float[Tensor, "k q q"] | None  # Σ h hᵀ over its tasks and outputs; None: single tasks

    @staticmethod
    def of_group(B: Float[Tensor, "n q"], count: int, total: Float[Tensor, "q p"], products: Tensor) -> Block:
        tasks, points = torch.tensor([[float(count)], [float(len(B))]], dtype=torch.float64)
        return Block(tasks, points, (B.mT @ B)[None], total[None], products[None])

    @staticmethod
    def shared(basis: Basis, batch: SharedInputs) -> Block:
        B = basis(batch.inputs.distinct)[batch.inputs.index[0]]
        count, mean = len(batch.y), batch.mean[0]
        second = count * (batch.scatter[0] + mean @ mean.mT)
        return Block.of_group(B, count, count * (B.mT @ mean), B.mT @ second @ B)

    @staticmethod
    def gridded(basis: Basis, tasks: Tasks) -> Block:
        """Straight from y: a dense grid may have far more points than there are tasks."""
        n = int(tasks.sizes[0])
        B = basis(tasks.x[:n])
        total, products = torch.zeros(B.shape[1], tasks.p).double(), torch.zeros(B.shape[1], B.shape[1]).double()
        for y in tasks.y.view(len(tasks), n, tasks.p).split(CHUNK):
            h = B.mT @ y
            flat = h.permute(1, 0, 2).reshape(B.shape[1], -1)
            total += h.sum(0)
            products += flat @ flat.mT
        return Block.of_group(B, len(tasks), total, products)

    @staticmethod
    def padded(basis: Basis, batch: Padded) -> Block:
        gram, projected = designed(basis, batch)
        return Block(torch.ones(len(gram), dtype=torch.float64), batch.mask.sum(1).double(), gram, projected, None)

    @staticmethod
    def together(singles: Sequence[Block]) -> Block:
        """Blocks of single tasks as one: whatever their sizes were, their designs are of one shape."""
        parts = [(one.count, one.points, one.gram, one.projected) for one in singles]
        count, points, gram, projected = (torch.cat(part) for part in zip(*parts, strict=True))
        return Block(count, points, gram, projected, None)

    def spread(self, Gb: Float[Tensor, "k q p"]) -> Float[Tensor, "k q q"]:
        """`Σ (h − Gβ)(h − Gβ)ᵀ` over the tasks and outputs of each design, where tasks share them."""
        assert self.products is not None
        crossed = self.projected @ Gb.mT
        return self.products - crossed - crossed.mT + self.count[:, None, None] * (Gb @ Gb.mT)


def designed(basis: Basis, batch: Padded) -> tuple[Float[Tensor, "b q q"], Float[Tensor, "b q p"]]:
    """`G = BᵀB` and `h = Bᵀy` of each task of a batch."""
    B = design_of(basis, batch)
    return B.mT @ B, B.mT @ batch.y


def design_of(basis: Basis, batch: Padded) -> Float[Tensor, "b n q"]:
    """B of each task of a batch; 0 where there is padding."""
    return basis(batch.inputs.distinct)[batch.inputs.index] * batch.mask[..., None]  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Designs:
    """What many tasks say about the model."""

    blocks: tuple[Block, ...]
    tasks: float
    values: float  # number of target values
    squares: float  # Σ yᵀy over everything

    @staticmethod
    @torch.no_grad()
    def of(basis: Basis, tasks: Tasks) -> Designs:
        if on_one_grid(tasks):
            blocks = [Block.gridded(basis, tasks)]
        else:
            laid_out = batches(tasks)
            blocks = [Block.shared(basis, batch) for batch in laid_out if isinstance(batch, SharedInputs)]
            singles = [Block.padded(basis, batch) for batch in laid_out if isinstance(batch, Padded)]
            if singles:
                blocks.append(Block.together(singles))
        return Designs(tuple(blocks), len(tasks), tasks.y.numel(), float(tasks.y.square().sum()))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of basis functions and of outputs."""
        q, p = self.blocks[0].projected.shape[1:]
        return q, p

    @property
    def one_grid(self) -> bool:
        """Whether all tasks share one design."""
        return len(self.blocks) == 1 and len(self.blocks[0].count) == 1

    @property
    def projected(self) -> Float[Tensor, "q p"]:
        """Σ h over all tasks."""
        return torch.stack([block.projected.sum(0) for block in self.blocks]).sum(0)
