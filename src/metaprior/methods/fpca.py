"""Functional PCA of curves that are seen anywhere, each at a few points: a linear prior, learned by EM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NumericalError, OptionError, numerical
from metaprior.files import State
from metaprior.inference import KeptMethod, UserConditional, condition
from metaprior.learning import UNKNOWNS, Designs, Fit, MixedEffects, design_of, evidence_of, fit_em, start_of
from metaprior.priors import Basis, Prior, described_basis, make_basis
from metaprior.progress import progress_bar
from metaprior.splits import k_folds, to_stop_by
from metaprior.tasks import Scaler, Tasks, TrainedOn, padded

SIZES = (5, 10, 20, 40)
MOST = 60
"""Numbers of basis functions to choose from: these, and as many as there are distinct inputs if not more than so."""

RANKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256, 384)
PATIENCE = 2
"""Ranks without a better one before the search ends."""

FOLDS = 5
ROUGHLY = 1e-4
"""Gain of evidence per value at which EM ends while sizes and ranks are compared."""


class Tried(NamedTuple):
    """A size and rank with the evidence per value of held-out curves."""

    size: int
    rank: int
    held_out_evidence: float


@dataclass(frozen=True, eq=False)
class ComponentScores:
    """How much of each component each curve has, and how sure that is: Gaussian, one row per curve."""

    mean: Float[Tensor, "m r p"]
    covariance: Float[Tensor, "m p r r"]

    @property
    def sd(self) -> Float[Tensor, "m r p"]:
        return self.covariance.diagonal(dim1=-2, dim2=-1).sqrt().mT


class FPCA(KeptMethod):
    """`y = μ(x) + Σ ξ_k φ_k(x) + ε` with orthonormal φ_k and independent scores ξ_k of variance λ_k.

    It is the Gaussian-process prior with a mean and a low-rank kernel in a basis (the paper's proposition); EM
    maximises its evidence, so curves may be irregular and sparse. basis: "spline", "polynomial", "fourier"
    or a `Basis`. size: functions per input, rank: components; where they are not given, the evidence of held-out
    curves chooses. held_out: other tasks to choose by, or a share of these; by default five folds of them. noise_floor:
    the least noise variance, as a share of y's.
    """

    saved_as = "fpca"
    fitted_as = "prior_"
    prior_: Prior
    scaler_: Scaler
    basis_: Basis

    def __init__(
        self,
        basis: str | Basis = "spline",
        *,
        size: int | None = None,
        rank: int | None = None,
        knots: Sequence[float] | None = None,
        degree: int = 3,
        noise_floor: float = 1e-6,
        held_out: Tasks | float | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 500,
        seed: int = 0,
        progress: bool | str = False,
    ) -> None:
        self.basis, self.size, self.rank, self.knots, self.degree = basis, size, rank, knots, degree
        self.noise_floor, self.held_out = noise_floor, held_out
        self.tolerance, self.max_steps = tolerance, max_steps
        self.seed, self.progress = seed, progress

    def fit(self, tasks: Tasks) -> Self:
        """Choose what was left open, then learn mean function, components and noise from all curves."""
        self._check(tasks)
        self.scaler_ = Scaler.of_targets(tasks)
        scaled = self.scaler_.scale(tasks)
        self.tried_ = self._try(scaled)
        size, rank, _ = _best(self.tried_)
        self.basis_ = self._basis(scaled.x, size)
        fit = self._fit(Designs.of(self.basis_, scaled), rank)
        self.evidence_ = tuple(value + float(self.scaler_.log_jacobian(tasks).sum()) for value in fit.evidence)
        self.converged_ = fit.converged
        self._keep(fit.model)
        self.trained_on_ = TrainedOn.of(tasks)
        return self

    def condition(self, context: Tasks) -> UserConditional:
        """Each curve, given some of its points."""
        self._check_fitted()
        return UserConditional(condition(self.prior_, self.scaler_.scale(context)), self.scaler_, context)

    def mean_function(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n p"]:
        """`μ` at some points."""
        self._check_fitted()
        return self.scaler_.unscale_mean(self.basis_(x) @ self._model.mean)

    def eigenfunctions(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """`φ_k` at some points: orthonormal in L² over the range of the inputs, the first is the most important."""
        self._check_fitted()
        values: Tensor = self.basis_(x) @ self._directions
        return values

    @torch.no_grad()
    @numerical("the scores of the curves")
    def scores(self, tasks: Tasks) -> ComponentScores:
        """`ξ` of each curve, given its points."""
        self._check_fitted()
        scaled, model, (r, p) = self.scaler_.scale(tasks), self._model, (self.rank_, tasks.p)
        mean = torch.zeros(len(tasks), r, p, dtype=torch.float64)
        covariance = torch.zeros(len(tasks), r, r, dtype=torch.float64)
        root = model.loadings.norm(dim=0)  # √λ
        for batch in padded(scaled):
            B = design_of(self.basis_, batch)
            Z, residual = B @ model.loadings, torch.where(batch.mask[..., None], batch.y - B @ model.mean, 0.0)
            L = model.factor_of(Z.mT @ Z)
            mean[batch.tasks] = root[:, None] * torch.cholesky_solve(Z.mT @ residual, L)
            covariance[batch.tasks] = root[:, None] * (model.noise * torch.cholesky_inverse(L)) * root
        scale = self.scaler_.y_scale
        return ComponentScores(mean * scale, covariance[:, None] * scale.square()[:, None, None])

    def state(self) -> State:
        """Basis, mean function, components and noise, for a file."""
        self._check_fitted()
        structure = {"basis": self.basis_.described(), "noise": self._model.noise.hex(), "converged": self.converged_}
        tensors = {"mean": self._model.mean, "loadings": self._model.loadings, "directions": self._directions}
        evidence = torch.tensor(self.evidence_, dtype=torch.float64)
        return State(self.saved_as, structure, tensors | self.scaler_.as_tensors() | {"evidence": evidence})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted model again."""
        basis = described_basis(state.structure["basis"])
        fpca = cls(basis)
        fpca.basis_, fpca.scaler_ = basis, Scaler.from_tensors(state.tensors)
        q, p = basis.size, len(fpca.scaler_.y_shift)
        mean, loadings = state.tensor("mean", (q, p)), state.tensor("loadings")
        directions = state.tensor("directions", tuple(loadings.shape))
        fpca._set(MixedEffects(mean, loadings, float.fromhex(state.structure["noise"])), directions)
        fpca.evidence_, fpca.converged_ = tuple(state.tensor("evidence").tolist()), state.structure["converged"]
        fpca.tried_ = []
        return fpca

    def _check(self, tasks: Tasks) -> None:
        if len(tasks) < 2:
            raise DataError(f"{len(tasks)} curve: what curves have in common needs two or more of them.")
        if int(tasks.sizes.max()) < 2:
            raise DataError(
                "every curve has one point: what its points have to do with each other cannot be learned from them. "
                "Give curves of two or more points, or learn a mean alone: MetaGP('deep', 'rbf')."
            )
        if bool((tasks.sizes == 0).any()):
            raise DataError("every curve needs at least one point.")
        if self.rank is not None and self.rank < 1:
            raise OptionError(f"rank {self.rank}: give 1 component or more.")
        if self.rank is not None and self.rank > len(tasks) * tasks.p - 1:
            raise OptionError(f"rank {self.rank}: {len(tasks)} curves can show {len(tasks) * tasks.p - 1} at most.")
        if self.size is not None and self.size < 1:
            raise OptionError(f"size {self.size}: give 1 basis function or more.")
        if not 0 < self.noise_floor < math.inf:
            raise OptionError(f"noise_floor {self.noise_floor}: give a share of y's variance above 0.")

    def _basis(self, x: Float[Tensor, "N d"], size: int) -> Basis:
        return make_basis(self.basis, x, size, knots=self.knots, degree=self.degree)

    def _fit(self, designs: Designs, rank: int) -> Fit:
        return fit_em(designs, rank, floor=self.noise_floor, tolerance=self.tolerance, max_steps=self.max_steps)

    def _roughly(self, designs: Designs, rank: int, smaller: MixedEffects | None) -> MixedEffects:
        """A model to compare with others, from one of lower rank."""
        start = start_of(designs, rank, self.noise_floor, smaller)
        return fit_em(designs, rank, start=start, floor=self.noise_floor, tolerance=ROUGHLY).model

    def _sizes(self, x: Float[Tensor, "N d"]) -> list[int]:
        """The numbers of basis functions to try, smallest first."""
        if isinstance(self.basis, Basis):
            return [self.basis.size]
        if self.knots is not None:
            return [len(self.knots) + self.degree + 1]
        if self.size is not None:
            return [self.size]
        distinct = min(len(column.unique()) for column in x.unbind(1))
        return [*(size for size in SIZES if size < distinct), *([distinct] if distinct <= MOST else [])]

    def _try(self, tasks: Tasks) -> list[Tried]:
        """Held-out evidence of sizes and ranks, until it stops rising; nothing where nothing is open."""
        sizes = self._sizes(tasks.x)
        folds = self._folds(tasks)
        if not folds or (len(sizes) == 1 and self.rank is not None):
            return [Tried(sizes[0], self.rank or 1, math.nan)]
        tried: list[Tried] = []
        label = self.progress if isinstance(self.progress, str) else "functional PCA"
        with progress_bar(label, len(sizes), show=bool(self.progress)) as advance:
            for k, size in enumerate(sizes):
                tried += self._try_ranks(tasks.x, size, folds)
                advance(f"{size} basis functions")
                if tried and k > sizes.index(_best(tried).size):
                    break
        if not tried and self.rank is not None and self.rank <= max(sizes):
            return [
                Tried(min(size for size in sizes if size >= self.rank), self.rank, math.nan)
            ]  # too few to spare any
        if not tried and self.rank is not None:
            raise OptionError(f"rank {self.rank}: the inputs can show {max(sizes)} components at most.")
        if not tried:
            raise DataError(
                f"the curves cannot support a basis of {sizes[0]} functions: give more curves, or a smaller size."
            )
        return tried

    def _try_ranks(self, x: Float[Tensor, "N d"], size: int, folds: list[tuple[Tasks, Tasks]]) -> Iterator[Tried]:
        basis = self._basis(x, size)
        parts = [(Designs.of(basis, training), Designs.of(basis, judge)) for training, judge in folds]
        values = sum(judge.values for _, judge in parts)
        irregular = not all(training.one_grid for training, _ in parts)
        models: list[MixedEffects] = []
        best, since_best = -math.inf, 0
        for rank in self._ranks(basis.size, min(len(training) for training, _ in folds) * folds[0][0].p - 1):
            if irregular and basis.size * (folds[0][0].p + rank) > UNKNOWNS:
                return
            try:
                models = [
                    self._roughly(training, rank, models[k] if models else None)
                    for k, (training, _) in enumerate(parts)
                ]
                judged = [evidence_of(judge, model) for (_, judge), model in zip(parts, models, strict=True)]
            except (DataError, NumericalError):
                if self.size is not None or self.knots is not None or isinstance(self.basis, Basis):
                    raise
                return  # a fold does not determine so many functions
            found = sum(judged) / values
            yield Tried(size, rank, found)
            since_best = 0 if found > best + self.tolerance else since_best + 1
            best = max(best, found)
            if since_best >= PATIENCE:
                return

    def _ranks(self, size: int, curves: int) -> list[int]:
        if self.rank is not None:
            return [self.rank] if self.rank <= min(size, curves) else []
        most = min(size, curves)
        return [*(rank for rank in RANKS if rank < most), most]

    def _folds(self, tasks: Tasks) -> list[tuple[Tasks, Tasks]]:
        """Pairs of curves to learn from and to judge by; none where there are too few to spare any."""
        if isinstance(self.held_out, Tasks):
            return [(tasks, self.scaler_.scale(self.held_out))]
        if self.held_out is not None:
            return [to_stop_by(tasks, self.held_out, self.seed)]
        if len(tasks) < 4:
            return []
        folds = k_folds(len(tasks), FOLDS, self.seed)
        return [(tasks.select(fold.train), tasks.select(fold.judge)) for fold in folds]

    @numerical("the components of the curves")
    def _keep(self, model: MixedEffects) -> None:
        """The same model with its components orthogonal, most important first, and signs that tell nothing fixed."""
        directions, roots, _ = torch.linalg.svd(model.loadings, full_matrices=False)
        largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
        directions = directions * largest.sign()
        self._set(MixedEffects(model.mean, directions * roots, model.noise), directions)

    def _set(self, model: MixedEffects, directions: Float[Tensor, "q r"]) -> None:
        self._model, self._directions, self.rank_ = model, directions, directions.shape[1]
        self.prior_ = model.prior(self.basis_)
        values, units = model.loadings.square().sum(0), self.scaler_.y_scale.square()
        self.eigenvalues_ = values[:, None] * units
        self.explained_ = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
        self.noise_ = model.noise * units


def _best(tried: list[Tried]) -> Tried:
    """The first of the best: with equal evidence, the smaller one."""
    return max(tried, key=lambda one: -math.inf if math.isnan(one.held_out_evidence) else one.held_out_evidence)
