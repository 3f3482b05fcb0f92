"""EM for the reduced-rank mixed-effects model `y = B β + B W z + ε`: functional PCA of curves seen anywhere.

`Γ = W Wᵀ` is James, Hastie and Sugar's `Θ D Θᵀ` (2000). Tasks enter through their designs alone (`designs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NumericalError, OptionError, numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.designs import Block, Designs
from metaprior.priors import Basis, BasisKernel, BasisMean, FixedNoise, Prior

UNKNOWNS = 4000
"""Coefficients that one M-step may solve for together."""

COMPONENTS = "the mean function and the components of the curves"
"""What is being computed here, for messages."""

UNDETERMINED = (
    "the tasks do not determine every function of the basis: some have no points where they differ from zero. "
    "Use fewer basis functions."
)


class MixedEffects(NamedTuple):
    """The model: β, W and the noise variance."""

    mean: Float[Tensor, "q p"]
    loadings: Float[Tensor, "q r"]
    noise: float

    def factor(self, gram: Float[Tensor, "k q q"]) -> Float[Tensor, "k r r"]:
        """L with `L Lᵀ = σ²I + WᵀGW`: σ² times the precision of the scores z, given the points of a design."""
        W = self.loadings
        return self.factor_of((gram @ W).mT @ W)  # two large products, none for each task

    def factor_of(self, inner: Float[Tensor, "k r r"]) -> Float[Tensor, "k r r"]:
        """The same from `WᵀGW`."""
        eye = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
        L, info = torch.linalg.cholesky_ex(self.noise * eye + inner)
        if bool(info.any()):
            raise NumericalError("the scores' covariance is not positive definite: use fewer components, more noise.")
        return torch.as_tensor(L)

    def prior(self, basis: Basis) -> Prior:
        """The same as a Gaussian-process prior: `m(x) = b(x)ᵀβ`, `k(x, x') = b(x)ᵀ W Wᵀ b(x')`."""
        # in one layout, whatever made them: a product's last bits depend on it
        mean, kernel = BasisMean(basis, self.mean.contiguous()), BasisKernel(basis, self.loadings.contiguous())
        return Prior(mean, kernel, FixedNoise(self.noise), learn=())

    def to(self, device: torch.device | str) -> MixedEffects:
        """The same on a device."""
        return MixedEffects(self.mean.to(device), self.loadings.to(device), self.noise)


class Fit(NamedTuple):
    """A fitted model, and the evidence before each step and at the end: it never falls."""

    model: MixedEffects
    evidence: tuple[float, ...]
    converged: bool


class _Expected(NamedTuple):
    """The E-step for a block: evidence, and what the M-step needs of the scores z, summed over each design's tasks."""

    evidence: float
    z: Float[Tensor, "k r p"]
    zz: Float[Tensor, "k r r"]
    hz: Float[Tensor, "q r"]  # summed over the designs as well


@torch.no_grad()
@numerical(COMPONENTS)
def fit_em(
    designs: Designs,
    rank: int,
    *,
    start: MixedEffects | None = None,
    floor: float = 1e-6,
    tolerance: float = 1e-6,
    max_steps: int = 500,
) -> Fit:
    """EM until a step gains less than `tolerance` of evidence per value. floor: the least noise variance."""
    check_rank(rank, *designs.shape, one_grid=designs.one_grid)
    model = start_of(designs, rank, floor) if start is None else start
    trace: list[float] = []
    for _ in range(max_steps):
        expected = [_expect(block, model) for block in designs.blocks]
        trace.append(_total(designs, model, expected))
        if len(trace) > 1 and trace[-1] - trace[-2] < tolerance * designs.values:
            return Fit(model, tuple(trace), True)
        model = _maximise(designs, expected, floor)
    return Fit(model, (*trace, evidence_of(designs, model)), False)


@torch.no_grad()
@numerical(COMPONENTS)
def em_steps(
    designs: Designs, rank: int, steps: int, *, start: MixedEffects | None = None, floor: float = 1e-6
) -> MixedEffects:
    """The model after so many steps of EM."""
    check_rank(rank, *designs.shape, one_grid=designs.one_grid)
    model = start_of(designs, rank, floor) if start is None else start
    for _ in range(steps):
        model = _maximise(designs, [_expect(block, model) for block in designs.blocks], floor)
    return model


def check_rank(rank: int, q: int, p: int, *, one_grid: bool) -> None:
    """An error for a rank that q basis functions and p outputs cannot have."""
    if not 1 <= rank <= q:
        raise OptionError(f"rank {rank}: give one from 1 to the number of basis functions, {q}.")
    if not one_grid and q * (p + rank) > UNKNOWNS:
        raise OptionError(f"{q} basis functions with rank {rank} are too many for irregular tasks: give fewer.")


@torch.no_grad()
@numerical("the evidence of the curves")
def evidence_of(designs: Designs, model: MixedEffects) -> float:
    """The summed log marginal likelihood of the tasks."""
    return _total(designs, model, [_expect(block, model) for block in designs.blocks])


def _total(designs: Designs, model: MixedEffects, expected: Sequence[_Expected]) -> float:
    return _evidence(designs, model, designs.projected, sum(part.evidence for part in expected))


def _evidence(totals: Totals, model: MixedEffects, projected: Float[Tensor, "q p"], rest: float) -> float:
    """Of tasks with these totals and this Σ h; rest: what it has beside them."""
    squares = totals.squares - 2 * float((model.mean * projected).sum())
    total = rest - 0.5 * (squares / model.noise + totals.values * LOG_2PI)
    if not math.isfinite(total):
        raise NumericalError("the evidence of the curves is not finite: values too large for their squares, or NaN.")
    return total


def _expect(block: Block, model: MixedEffects) -> _Expected:
    beta, W, noise = model
    (r, p), count, G = (W.shape[1], beta.shape[1]), block.count[:, None, None], block.gram
    eye, Gb, L = torch.eye(r, dtype=W.dtype, device=W.device), G @ beta, model.factor(G)
    residual = block.projected - count * Gb  # Σ (h − Gβ)
    z = torch.cholesky_solve(W.mT @ residual, L)
    if block.products is None:
        once = z / count
        explained, outer = float((once * (W.mT @ residual)).sum()), once @ z.mT
        hz = torch.einsum("kqp,krp->qr", block.projected, once)
    else:
        through = torch.cholesky_solve(W.mT @ block.spread(Gb), L)
        explained, outer = float((through * W.mT).sum()), torch.cholesky_solve((through @ W).mT, L)
        hz = (through.mT + Gb @ z.mT).sum(0)
    zz = outer + count * p * noise * torch.cholesky_solve(eye.expand_as(L), L)
    logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (block.points - r) * math.log(noise)
    quadratic = (float((count * beta * Gb).sum()) - explained) / noise
    return _Expected(-0.5 * (quadratic + p * float((block.count * logdet).sum())), z, zz, hz)


def _maximise(designs: Designs, expected: Sequence[_Expected], floor: float) -> MixedEffects:
    """β and W together by their normal equations, then the noise; then W takes up the scores' own covariance.

    The last is parameter expansion (Liu, Rubin and Wu 1998): the same monotone ascent in far fewer steps.
    """
    if designs.one_grid:
        ((block,), (part,)) = designs.blocks, expected
        R = torch.cat([designs.projected, part.hz], -1)
        half = torch.cholesky_solve(R, _positive(block.gram[0]))
        C = torch.cholesky_solve(half.mT.contiguous(), _positive(_moments(block, part)[0])).mT.contiguous()
        return _expanded(C, R, part.zz[0], designs, floor)
    return Statistics.of(designs, expected).maximised(floor)


class Totals(Protocol):
    """How much there is of some tasks."""

    @property
    def tasks(self) -> float: ...
    @property
    def values(self) -> float: ...
    @property
    def squares(self) -> float: ...


def _expanded(
    C: Float[Tensor, "q s"], R: Float[Tensor, "q s"], zz: Float[Tensor, "r r"], totals: Totals, floor: float
) -> MixedEffects:
    """The model with these coefficients, its noise, and its components as large as their scores say."""
    p = C.shape[1] - len(zz)
    noise = (totals.squares - float((C * R).sum())) / totals.values
    L, info = torch.linalg.cholesky_ex(zz / (totals.tasks * p))
    W = C[:, p:] if info else C[:, p:] @ L
    return MixedEffects(C[:, :p].contiguous(), W.contiguous(), max(noise, floor))


class Statistics(NamedTuple):
    """What a round of EM needs of some tasks: sums over them, so that tasks in parts are as good as all at once."""

    pairs: Float[Tensor, "q q s s"]  # Σ G ⊗ z̃z̃ᵀ, with z̃ = (which output, z)
    projected: Float[Tensor, "q s"]  # Σ h z̃ᵀ
    scores: Float[Tensor, "r r"]  # Σ z zᵀ
    totals: Float[Tensor, " 4"]  # tasks, values, Σ yᵀy, and what the evidence has beside the last two

    @staticmethod
    def of(designs: Designs, expected: Sequence[_Expected]) -> Statistics:
        (q, p), r = designs.shape, expected[0].hz.shape[1]
        pairs = designs.blocks[0].gram.new_zeros(q * q, (p + r) ** 2)
        for block, part in zip(designs.blocks, expected, strict=True):
            pairs.addmm_(block.gram.reshape(-1, q * q).mT, _moments(block, part).reshape(len(block.gram), -1))
        projected = torch.cat([designs.projected, torch.stack([part.hz for part in expected]).sum(0)], -1)
        scores = torch.stack([part.zz.sum(0) for part in expected]).sum(0)
        numbers = [designs.tasks, designs.values, designs.squares, sum(part.evidence for part in expected)]
        totals = torch.tensor(numbers, dtype=torch.float64)
        return Statistics(pairs.view(q, q, p + r, p + r), projected, scores, totals)

    @staticmethod
    @torch.no_grad()
    @numerical(COMPONENTS)
    def under(model: MixedEffects, designs: Designs) -> Statistics:
        """Of these tasks, as the model expects them to be."""
        return Statistics.of(designs, [_expect(block, model) for block in designs.blocks])

    @staticmethod
    def none(q: int, p: int, r: int) -> Statistics:
        """Of no tasks."""
        shapes = ((q, q, p + r, p + r), (q, p + r), (r, r), (4,))
        return Statistics(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @property
    def flat(self) -> Float[Tensor, " k"]:
        """All numbers one after the other: statistics of several parts are summed so."""
        return torch.cat([part.flatten() for part in self])

    def shaped(self, flat: Float[Tensor, " k"]) -> Statistics:
        """The same shapes with these numbers."""
        parts = flat.split([part.numel() for part in self])
        return Statistics(*(values.view_as(part) for values, part in zip(parts, self, strict=True)))

    @property
    def tasks(self) -> float:
        return float(self.totals[0])

    @property
    def values(self) -> float:
        return float(self.totals[1])

    @property
    def squares(self) -> float:
        return float(self.totals[2])

    def evidence(self, model: MixedEffects) -> float:
        """The summed evidence of the tasks under the model by which they are expected."""
        return _evidence(self, model, self.projected[:, : model.mean.shape[1]], float(self.totals[3]))

    @numerical(COMPONENTS)
    def maximised(self, floor: float) -> MixedEffects:
        """The model that the next round begins with."""
        q, s = self.projected.shape
        A = self.pairs.permute(0, 2, 1, 3).reshape(q * s, q * s)
        C = torch.cholesky_solve(self.projected.reshape(-1, 1), _positive(A)).reshape(q, s)
        return _expanded(C, self.projected, self.scores, self, floor)


def _moments(block: Block, expected: _Expected) -> Float[Tensor, "k s s"]:
    """`Σ z̃ z̃ᵀ` over the tasks and outputs of each design, with z̃ = (which output, z)."""
    eye = torch.eye(expected.z.shape[-1], dtype=torch.float64, device=expected.z.device)
    top = torch.cat([block.count[:, None, None] * eye, expected.z.mT], -1)
    return torch.cat([top, torch.cat([expected.z, expected.zz], -1)], -2)


def _positive(A: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    L: Tensor
    L, info = torch.linalg.cholesky_ex(A)
    if info:
        raise DataError(UNDETERMINED)
    return L


@numerical(COMPONENTS)
def start_of(designs: Designs, rank: int, floor: float, smaller: MixedEffects | None = None) -> MixedEffects:
    """Where all tasks share one design, the maximum itself; elsewhere a covariance of ridge estimates.

    smaller: a model of lower rank, already fitted, to go on from.
    """
    if designs.one_grid:
        return _closed_form(designs, rank, floor)
    rough = _rough(designs, rank, floor)
    if smaller is None or smaller.loadings.shape[1] >= rank:
        return rough
    known = torch.linalg.qr(smaller.loadings)[0]
    left, sizes, _ = torch.linalg.svd(rough.loadings - known @ (known.mT @ rough.loadings), full_matrices=False)
    added = rank - smaller.loadings.shape[1]
    loadings = torch.cat([smaller.loadings, left[:, :added] * sizes[:added]], -1)
    return MixedEffects(smaller.mean, loadings, smaller.noise)


def _closed_form(designs: Designs, rank: int, floor: float) -> MixedEffects:
    """Probabilistic PCA (Tipping and Bishop 1999) within the span of the basis at the shared inputs."""
    (block,), p = designs.blocks, designs.shape[1]
    assert block.products is not None
    count = designs.tasks
    L = _positive(block.gram[0])
    inner = torch.linalg.solve_triangular(L, block.projected[0] / count, upper=False)
    half = torch.linalg.solve_triangular(L, block.products[0], upper=False)
    second = torch.linalg.solve_triangular(L, half.mT, upper=False) / (count * p)
    values, vectors = torch.linalg.eigh(second - inner @ inner.mT / p)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    total = designs.squares / (count * p) - float(inner.square().sum()) / p
    left = float(block.points[0]) - rank
    noise = max((total - float(values[:rank].sum())) / left, floor) if left > 0 else floor
    scale = (values[:rank] - noise).clamp(min=0.0).sqrt()
    back = torch.linalg.solve_triangular(L.mT, torch.cat([inner, vectors[:, :rank] * scale], -1), upper=True)
    return MixedEffects(back[:, :p].contiguous(), back[:, p:].contiguous(), noise)


def _rough(designs: Designs, rank: int, floor: float) -> MixedEffects:
    q, p = designs.shape
    total = torch.stack([(block.count[:, None, None] * block.gram).sum(0) for block in designs.blocks]).sum(0)
    beta = torch.cholesky_solve(designs.projected, _positive(total))
    ridge = float(total.diagonal().sum()) / (q * designs.tasks)
    eye, covariance = torch.eye(q, dtype=torch.float64, device=total.device), torch.zeros_like(total)
    for block in designs.blocks:
        L, Gb = torch.linalg.cholesky(block.gram + ridge * eye), block.gram @ beta
        if block.products is None:
            count = block.count[:, None, None]
            estimate = torch.cholesky_solve(block.projected - count * Gb, L)
            covariance += torch.einsum("kqp,ksp->qs", estimate, estimate / count)
        else:
            covariance += torch.cholesky_solve(torch.cholesky_solve(block.spread(Gb), L).mT, L).sum(0)
    values, vectors = torch.linalg.eigh(covariance / (designs.tasks * p))
    values, vectors = values.flip(0)[:rank], vectors.flip(1)[:, :rank]
    variance = max((designs.squares - float((beta * designs.projected).sum())) / designs.values, floor)
    least = 1e-3 * max(float(values[0]), 0.0)  # of curves that are all the same, rounding may leave less than nothing
    return MixedEffects(beta, vectors * values.clamp(min=least).sqrt(), max(0.5 * variance, floor))
