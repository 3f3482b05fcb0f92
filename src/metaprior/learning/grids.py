"""Models of tables whose tasks share one grid, of every rank at once: probabilistic PCA has a closed form there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metaprior.errors import numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.designs import Block
from metaprior.learning.em import COMPONENTS, MixedEffects
from metaprior.learning.stacks import Curves
from metaprior.priors import Basis


class _Sums(NamedTuple):
    """Sums over the tasks that each model learns from or is judged by, of `h = L⁻¹Bᵀy` with `L Lᵀ = BᵀB`."""

    tasks: Float[Tensor, "o i"]
    total: Float[Tensor, "o i q p"]  # Σ h
    products: Float[Tensor, "o i q q"]  # Σ h hᵀ, over the outputs too
    squares: Float[Tensor, "o i"]  # Σ yᵀy

    def around(self, mean: Float[Tensor, "o i q p"]) -> tuple[Float[Tensor, "o i q q"], Float[Tensor, "o i"]]:
        """`Σ (h − m)(h − m)ᵀ`, and the same of y in place of h, summed."""
        crossed = self.total @ mean.mT
        spread = self.products - crossed - crossed.mT + self.tasks[..., None, None] * (mean @ mean.mT)
        return spread, self.squares + (mean * (self.tasks[..., None, None] * mean - 2 * self.total)).sum((2, 3))


@dataclass(frozen=True, eq=False)
class Grids:
    """The models of o tables, i of each: mean, axes (the most important first) and the variance along each."""

    factor: Float[Tensor, "o q q"]
    points: Float[Tensor, " o"]
    floor: Float[Tensor, " o"]
    mean: Float[Tensor, "o i q p"]
    axes: Float[Tensor, "o i q q"]
    variance: Float[Tensor, "o i q"]
    total: Float[Tensor, "o i"]  # variance along all of y, of which the axes see a part
    learn: _Sums
    judge: _Sums
    failed: Int[Tensor, " o"]  # tables whose grid does not determine the basis

    @staticmethod
    @torch.no_grad()
    @numerical(COMPONENTS)
    def of(curves: Sequence[Curves], bases: Sequence[Basis], floor: Float[Tensor, " o"]) -> Grids:
        """Tables that have equally many models and outputs, in bases of one size."""
        tables = [_blocks(own, basis) for own, basis in zip(curves, bases, strict=True)]
        gram = torch.stack([blocks[0].gram[0] for blocks, _ in tables])
        factor, failed = torch.linalg.cholesky_ex(gram)
        factor = torch.where(failed[:, None, None] > 0, torch.eye(gram.shape[-1], dtype=torch.float64), factor)
        learn, judge = (
            _sums(tables, [getattr(own, name) for own in curves], factor[:, None]) for name in ("learn", "judge")
        )
        p = learn.total.shape[-1]
        mean = learn.total / learn.tasks[..., None, None]
        spread, total = learn.around(mean)
        variance, axes = torch.linalg.eigh(spread / (p * learn.tasks)[..., None, None])
        variance, axes = variance.flip(-1).clamp(min=0.0), axes.flip(-1)
        points = torch.cat([blocks[0].points for blocks, _ in tables])
        return Grids(factor, points, floor, mean, axes, variance, total / (p * learn.tasks), learn, judge, failed)

    def noise(self, ranks: Int[Tensor, " R"]) -> Float[Tensor, "o i R"]:
        """Of models of these ranks: what is left of the variance, for each direction that is left.

        An axis along which there is less than that is none: a model may have fewer components than its rank.
        """
        left = self.points[:, None] - torch.arange(self.variance.shape[-1] + 1)
        seen = torch.nn.functional.pad(self.variance.cumsum(-1), (1, 0))
        noise = (self.total[..., None] - seen) / left.clamp(min=1.0)[:, None]
        floor = self.floor[:, None, None]
        noise = torch.where(left[:, None] > 0, noise.maximum(floor), floor)
        used = (self.variance > noise[..., 1:]).long().cumprod(-1).sum(-1)  # components that stand out
        return noise.gather(-1, used[..., None].minimum(ranks))

    @torch.no_grad()
    def evidence(self, sums: _Sums, ranks: Sequence[int]) -> Float[Tensor, "o i R"]:
        """The summed evidence of tasks under models of these ranks."""
        which = torch.tensor(ranks)
        noise = self.noise(which)[..., None]
        p, q = self.mean.shape[-1], self.variance.shape[-1]
        spread, total = sums.around(self.mean)
        along = (self.axes * (spread @ self.axes)).sum(-2)[:, :, None]
        variance = torch.where(torch.arange(q) < which[:, None], self.variance[:, :, None].maximum(noise), noise)
        noise = noise[..., 0]
        quadratic = (along * (1 / variance - 1 / noise[..., None])).sum(-1) + total[..., None] / noise
        points, values = self.points[:, None, None], (p * sums.tasks)[..., None]
        logdet = variance.log().sum(-1) + (points - q) * noise.log()
        return -0.5 * (quadratic + values * (logdet + points * LOG_2PI))

    @torch.no_grad()
    @numerical(COMPONENTS)
    def model(self, table: int, rank: int) -> MixedEffects:
        """The first model of a table."""
        noise = self.noise(torch.tensor([rank]))[table, 0, 0]
        scale = (self.variance[table, 0, :rank] - noise).clamp(min=0.0).sqrt()
        both = torch.cat([self.mean[table, 0], self.axes[table, 0, :, :rank] * scale], -1)
        back = torch.linalg.solve_triangular(self.factor[table].mT, both, upper=True)
        p = self.mean.shape[-1]
        return MixedEffects(back[:, :p].contiguous(), back[:, p:].contiguous(), float(noise))


def _blocks(curves: Curves, basis: Basis) -> tuple[list[Block], Float[Tensor, " P"]]:
    """What each part says, and its sum of squares."""
    blocks = {}
    squares = torch.zeros(curves.learn.shape[1], dtype=torch.float64)
    for source, parts in zip(curves.sources, curves.parts, strict=True):
        for part in parts.unique().tolist():
            chosen = parts == part
            own = source if bool(chosen.all()) else source.select(chosen)
            blocks[part], squares[part] = Block.gridded(basis, own), own.y.square().sum()
    return [blocks[part] for part in sorted(blocks)], squares


def _sums(
    tables: Sequence[tuple[list[Block], Tensor]], weights: Sequence[Float[Tensor, "i P"]], L: Float[Tensor, "o 1 q q"]
) -> _Sums:
    found = []
    for (blocks, squares), own in zip(tables, weights, strict=True):
        count, total, products = (
            torch.cat([part for block in blocks if (part := getattr(block, name)) is not None])
            for name in ("count", "projected", "products")
        )
        found.append((own @ count, torch.tensordot(own, total, 1), torch.tensordot(own, products, 1), own @ squares))
    count, total, products, squares = (torch.stack(part) for part in zip(*found, strict=True))
    half = torch.linalg.solve_triangular(L, products, upper=False)
    whitened = torch.linalg.solve_triangular(L, half.mT, upper=False)
    return _Sums(count, torch.linalg.solve_triangular(L, total, upper=False), whitened, squares)
