"""Functional PCA of curves that are seen anywhere, each at a few points: a linear prior, learned by EM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, OptionError, numerical
from metaprior.files import State
from metaprior.inference import KeptMethod, UserConditional, condition
from metaprior.learning import Curves, Going, MixedEffects, design_of, em_over_parts
from metaprior.methods.components import Search, Tried, Wanted, best, choose, fit_all
from metaprior.options import Parameters
from metaprior.priors import Basis, Prior, described_basis, make_basis
from metaprior.progress import progress_bar
from metaprior.splits import k_folds, to_stop_by
from metaprior.tasks import Parts, Scaler, Tasks, TrainedOn, in_order, padded

SIZES, SMALL = (5, 10, 20, 40), (2, 3)
MOST = 60
"""Numbers of basis functions to choose from: these, and as many as there are distinct inputs if not more than so. Of
several inputs, smaller ones first: planes and parabolas may be all that they can tell."""

FOLDS = 5

OVER_PARTS = 1e-6
"""Gain of evidence per value below which EM over all parts ends."""


@dataclass(frozen=True, eq=False)
class ComponentScores:
    """How much of each component each curve has, and how sure that is: Gaussian, one row per curve."""

    mean: Float[Tensor, "m r p"]
    covariance: Float[Tensor, "m p r r"]

    @property
    def sd(self) -> Float[Tensor, "m r p"]:
        return self.covariance.diagonal(dim1=-2, dim2=-1).sqrt().mT


class FPCA(Parameters, KeptMethod):
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
    tried_: list[Tried]
    evidence_: tuple[float, ...]
    converged_: bool

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
        type(self).fit_many([self], [tasks])
        return self

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """Fit several, each on tasks of its own: the models of all their folds are learned together."""
        scaled = [method._scaled(own) for method, own in zip(methods, tasks, strict=True)]
        cls._choose(methods, scaled)
        wanted = [method._wanted(own) for method, own in zip(methods, scaled, strict=True)]
        for method, own, fit in zip(methods, tasks, fit_all(wanted), strict=True):
            units = float(method.scaler_.log_jacobian(own).sum())
            method.evidence_, method.converged_ = tuple(value + units for value in fit.evidence), fit.converged
            method._keep(fit.model)
            method.trained_on_ = TrainedOn.of(own)

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """Fit with the size and rank that some of the tasks have chosen."""
        given = self.size, self.rank
        if isinstance(self.basis, Basis) or self.knots is not None or not earlier.tried_:
            return super().fit_from(earlier, tasks)
        self.size, self.rank, _ = best(earlier.tried_)
        try:
            return super().fit_from(earlier, tasks)
        except (DataError, OptionError):
            self.size, self.rank = given
            return super().fit_from(earlier, tasks)

    def fit_on(self, parts: Parts, rows: int, going: Going, name: str) -> None:
        """Go on from what a sample has taught, with all curves, of so many rows: their sums are taken part by part."""
        self._check_fitted()
        scaler = self.scaler_
        scaled = parts.changed(lambda own: in_order(scaler.scale(own)))
        how = {"floor": self.noise_floor, "tolerance": OVER_PARTS}
        fit = em_over_parts(scaled, self.basis_, self._model, going, name=name, **how)
        units = -rows * float(scaler.y_scale.log().sum())
        self.evidence_, self.converged_ = tuple(value + units for value in fit.evidence), fit.converged
        self._keep(fit.model)

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

    def _scaled(self, tasks: Tasks) -> Tasks:
        self._check(tasks)
        self.scaler_ = Scaler.of_targets(tasks)
        return in_order(self.scaler_.scale(tasks))

    def _wanted(self, tasks: Tasks) -> Wanted:
        """The model of the best size and rank."""
        size, rank, _ = best(self.tried_)
        self.basis_ = self._basis(tasks.x, size)
        return Wanted(Curves.whole(tasks), self.basis_, rank, self.noise_floor, self.tolerance, self.max_steps)

    def _sizes(self, x: Float[Tensor, "N d"]) -> list[int]:
        """The numbers of basis functions to try, smallest first."""
        if isinstance(self.basis, Basis):
            return [self.basis.size]
        if self.knots is not None:
            return [len(self.knots) + self.degree + 1]
        if self.size is not None:
            return [self.size]
        distinct, sizes = (
            max(len(column.unique()) for column in x.unbind(1)),
            SIZES if x.shape[1] == 1 else SMALL + SIZES,
        )
        return [*(size for size in sizes if size < distinct), *([distinct] if distinct <= MOST else [])]

    @classmethod
    def _choose(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """Held-out evidence of sizes and ranks, until it stops rising; nothing where nothing is open."""
        searches = {}
        for method, own in zip(methods, tasks, strict=True):
            sizes, curves = method._sizes(own.x), method._curves(own)
            if curves is None or (len(sizes) == 1 and method.rank is not None):
                method.tried_ = [Tried(sizes[0], method.rank or 1, math.nan)]
            else:
                searches[method] = method._search(own, sizes, curves)
        if not searches:
            return
        shown = next((method.progress for method in searches if method.progress), False)
        label = shown if isinstance(shown, str) else "functional PCA"
        most = max(len(search.sizes) for search in searches.values())
        with progress_bar(label, most, show=bool(shown)) as advance:
            choose(list(searches.values()), advance)
        for method, search in searches.items():
            method.tried_ = search.tried or [method._untried(search.sizes)]

    def _search(self, tasks: Tasks, sizes: Sequence[int], curves: Curves) -> Search:
        given = self.size is not None or self.knots is not None or isinstance(self.basis, Basis)
        make = partial(self._basis, tasks.x)
        return Search(curves, sizes, make, self.rank, self.noise_floor, self.tolerance, given)

    def _untried(self, sizes: Sequence[int]) -> Tried:
        """The choice where too few curves leave none to spare."""
        if self.rank is None:
            raise DataError(
                f"the curves cannot support a basis of {sizes[0]} functions: give more curves, or a smaller size."
            )
        if self.rank > max(sizes):
            raise OptionError(f"rank {self.rank}: the inputs can show {max(sizes)} components at most.")
        return Tried(min(size for size in sizes if size >= self.rank), self.rank, math.nan)

    def _curves(self, tasks: Tasks) -> Curves | None:
        """Curves to learn from and to judge by; none where there are too few to spare any."""
        if self.held_out is not None:
            others = self.scaler_.scale(self.held_out) if isinstance(self.held_out, Tasks) else self.held_out
            training, judge = to_stop_by(tasks, others, self.seed)
            return Curves.judged_by(training, in_order(judge))
        if len(tasks) < 4:
            return None
        folds = torch.empty(len(tasks), dtype=torch.int64)
        for number, fold in enumerate(k_folds(tasks, FOLDS, self.seed)):
            folds[fold.judge] = number
        return Curves.in_folds(tasks, folds)

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
