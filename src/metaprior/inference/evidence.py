"""Evidence: the log marginal likelihood of tasks under a prior, by its three terms (eq:explicit-LML)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from metaprior.errors import DataError, NumericalError, OptionError
from metaprior.inference.factor import factor, inverse, is_trusted, mean_over, padded_identity
from metaprior.inference.small import inverse_and_logdet
from metaprior.priors import AtPoints, FeatureKernel, InnerProduct, Prior
from metaprior.tasks import Batch, Padded, Task, Tasks, batches

LOG_2PI = math.log(2 * math.pi)

STIRLING = 20.0
"""From here on, four terms of Stirling's series have all digits."""


class Evidence(NamedTuple):
    """The three terms of the log marginal likelihood, each `[m]` (per task) or a sum.

    Also the largest jitter that a factorisation needed, relative to the diagonal: 0 unless one failed without.
    """

    data_fit: Tensor
    complexity: Tensor
    normaliser: Tensor
    jitter: float = 0.0

    @property
    def total(self) -> Tensor:
        """`log p(y | x, ψ)`."""
        return self.data_fit + self.complexity + self.normaliser

    @property
    def terms(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three terms without the jitter."""
        return self.data_fit, self.complexity, self.normaliser

    @staticmethod
    def of_total(total: Tensor) -> Evidence:
        """Where the sum alone is known: of a mixture."""
        zero = torch.zeros_like(total)
        return Evidence(total, zero, zero)

    def to(self, device: torch.device | str) -> Evidence:
        """The same on a device."""
        fit, complexity, normaliser = (term.to(device) for term in self.terms)
        return Evidence(fit, complexity, normaliser, self.jitter)

    def shifted(self, log_jacobian: Tensor) -> Evidence:
        """The same in other units of y: the Jacobian goes to the complexity."""
        return self._replace(complexity=self.complexity + log_jacobian.to(self.complexity))


def evidence(prior: Prior, tasks: Tasks | Task) -> Evidence:
    """The evidence of each task, in the order of the tasks; differentiable in the prior's parameters."""
    return evidences([prior], as_tasks(tasks))[0]


def as_tasks(tasks: Tasks | Task) -> Tasks:
    """Tasks, of which there is one where that is given alone."""
    if not isinstance(tasks, Task):
        return tasks
    if len(tasks.x) == 0:
        return Tasks.empty([tasks.id], tasks.x.shape[1], tasks.y.shape[1])
    return Tasks.from_pairs([(tasks.x, tasks.y)], [tasks.id])


def evidences(priors: Sequence[Prior], tasks: Tasks) -> list[Evidence]:
    """The evidence of each task under each of some priors of one precision: the tasks are laid out once for all."""
    for prior in priors:
        check_fits(prior, tasks)
    laid_out = batches(tasks, priors[0].like)
    order = torch.cat([batch.tasks for batch in laid_out]).argsort().to(priors[0].like.device)
    found = []
    for prior in priors:
        parts = [task_evidence(prior, batch, tasks.ids) for batch in laid_out]
        fit, complexity, normaliser = (torch.cat([part.terms[k] for part in parts])[order] for k in range(3))
        found.append(Evidence(fit, complexity, normaliser, max(part.jitter for part in parts)))
    return found


def task_evidence(prior: Prior, batch: Batch, ids: Sequence[Hashable], at_distinct: AtPoints | None = None) -> Evidence:
    """The evidence of each task of a batch, in the batch's order."""
    z = at_inputs(prior, batch, at_distinct)
    if isinstance(batch, Padded):
        mask, residual = None if batch.full else batch.mask, batch.y - z.mean
        residual = residual if mask is None else torch.where(mask[..., None], residual, 0.0)
        names = [ids[i] for i in batch.tasks.tolist()]
        quadratic, _, logdet, jitter = prior_terms(prior, z, residual, None, names, mask)
        fit, sizes = quadratic.sum(-1), batch.mask.sum(1).to(quadratic)
    else:
        count, n, p = batch.y.shape
        columns = (batch.y - z.mean).permute(1, 0, 2).reshape(1, n, count * p)
        quadratic, _, logdet, jitter = prior_terms(prior, z, columns, None, [ids[int(batch.tasks[0])]])
        fit, logdet = quadratic.reshape(count, p).sum(-1), logdet.expand(count)
        sizes = torch.full_like(fit, n)
    return Evidence(*evidence_terms(prior, fit, logdet, sizes, batch.y.shape[-1]), jitter)


def evidence_terms(
    prior: Prior, quadratic: Float[Tensor, " b"], logdet: Float[Tensor, " b"], sizes: Float[Tensor, " b"], p: int
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Data fit, complexity and normaliser of tasks, from `rᵀA⁻¹r` (over all outputs), `log|A|` and their sizes."""
    complexity = -0.5 * p * logdet
    if prior.degrees is None:
        return -0.5 * quadratic, complexity, -0.5 * p * LOG_2PI * sizes
    fit, normaliser = student_terms(quadratic, p * sizes, prior.degrees())
    return fit, complexity, normaliser


def student_terms(
    quadratic: Float[Tensor, " b"], count: Float[Tensor, " b"], degrees: Float[Tensor, "*b"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """What takes the place of data fit and normaliser under a Student-t process, for `count` values a task."""
    fit = -0.5 * (degrees + count) * torch.log1p(quadratic / (degrees - 2))
    return fit, log_gamma_ratio(degrees / 2, count / 2) - 0.5 * count * ((degrees - 2) * math.pi).log()


def log_gamma_ratio(a: Float[Tensor, "*b"], h: Tensor | float) -> Float[Tensor, "*b"]:
    """`log Γ(a + h) − log Γ(a)`; where a is large, by Stirling's series: two large numbers would lose the digits."""
    large = a.clamp(min=STIRLING)
    rest = _beyond_stirling(large + h) - _beyond_stirling(large)
    series = (large - 0.5) * torch.log1p(h / large) + h * ((large + h).log() - 1) + rest
    return torch.where(a > STIRLING, series, torch.lgamma(a + h) - torch.lgamma(a))


def _beyond_stirling(a: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    square = a.square()
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / a


def student_slopes(
    quadratic: Float[Tensor, "*b"], count: Float[Tensor, "*#b"], degrees: Float[Tensor, "*#b"]
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b"]]:
    """How these two together rise along the quadratic term and along the degrees of freedom."""
    free, both = degrees - 2, degrees + count
    of_quadratic = -0.5 * both / (free + quadratic)
    normaliser = torch.digamma(both / 2) - torch.digamma(degrees / 2) - count / free
    return of_quadratic, 0.5 * (normaliser - torch.log1p(quadratic / free)) - of_quadratic * quadratic / free


def summed_evidence(
    prior: Prior, laid_out: Iterable[Batch], ids: Sequence[Hashable], *, per_point: bool = False
) -> Evidence:
    """The sum over all tasks of the batches: the objective of meta-learning.

    Tasks with identical inputs enter through their count, mean and scatter: one factorisation however many they
    are. With `per_point` each task's evidence is divided by its number of points first.
    """
    said: dict[Tensor, AtPoints] = {}  # what the prior says of distinct points that batches have in common
    terms = []
    for batch in laid_out:
        distinct = batch.inputs.distinct
        if distinct not in said and not prior.has_own_means:
            said[distinct] = prior.at(distinct)
        terms.append(_batch_sum(prior, batch, ids, per_point, said.get(distinct)))
    fit, complexity, normaliser = (torch.stack([term.terms[k] for term in terms]).sum() for k in range(3))
    return Evidence(fit, complexity, normaliser, max(term.jitter for term in terms))


def _batch_sum(
    prior: Prior, batch: Batch, ids: Sequence[Hashable], per_point: bool, at_distinct: AtPoints | None
) -> Evidence:
    if isinstance(batch, Padded) or prior.degrees is not None:  # tasks enter one by one
        terms = task_evidence(prior, batch, ids, at_distinct)
        sizes = batch.mask.sum(1).to(terms[0]) if isinstance(batch, Padded) else terms[0].new_tensor(batch.y.shape[1])
        weight = 1 / sizes.expand_as(terms[0]) if per_point else torch.ones_like(terms[0])
        fit, complexity, normaliser = ((weight * term).sum() for term in terms.terms)
        return Evidence(fit, complexity, normaliser, terms.jitter)
    z = at_inputs(prior, batch, at_distinct)
    count, n, p = batch.y.shape
    names = [ids[int(batch.tasks[0])]]
    residual = batch.mean - z.mean + batch.rounded
    quadratic, trace, logdet, jitter = prior_terms(prior, z, residual, batch.scatter, names)
    half = -0.5 * (count / n if per_point else count)
    fit, complexity = quadratic.sum() + trace.sum(), logdet.sum()
    return Evidence(half * fit, half * p * complexity, torch.full_like(complexity, half * p * n * LOG_2PI), jitter)


def at_inputs(prior: Prior, batch: Batch, at_distinct: AtPoints | None = None) -> AtPoints:
    """What the prior says of each point of a batch, computed once per distinct point (or known of those already)."""
    inputs = batch.inputs
    if prior.has_own_means:  # the same point has another mean in another task
        return prior.at(inputs.distinct[inputs.index])
    said = prior.at(inputs.distinct) if at_distinct is None else at_distinct
    return said.laid_out(inputs.index.shape) if inputs.own else said.gather(inputs.index)


def prior_terms(
    prior: Prior,
    z: AtPoints,
    R: Float[Tensor, "b n q"],
    S: Float[Tensor, "b n n"] | None,
    names: Sequence[Hashable],
    mask: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, " b"], Float[Tensor, " b"], float]:
    """`gaussian_terms` of `A = K + σ²I`, computed in the kernel's features where these are fewer than the points."""
    if in_features(prior, z):
        few = with_few_points(z, mask)
        if few is None or mask is None:
            found = feature_terms(z.features, z.noise, R, S, names, mask)
        else:
            found = _each_its_way(prior, z, R, names, mask, few)
        if found[3] == 0:  # jitter of `M` would stand for something else than jitter of A, which is what is told
            return found
    A = covariance_matrix(prior, z, mask)
    scale = None if mask is None else mean_over(A.detach().diagonal(dim1=-2, dim2=-1), mask)
    return gaussian_terms(A, R, S, names, scale)


def in_features(prior: Prior, z: AtPoints) -> bool:
    """Whether the kernel is an inner product of fewer features than there are points, and there is noise everywhere."""
    kernel = prior.kernel
    if not (isinstance(kernel, FeatureKernel) and isinstance(kernel.base_kernel, InnerProduct)):
        return False
    few = z.distinct.shape[-1] < z.noise.shape[-1] and not prior.differs_by_task
    return few and (is_trusted(z.noise) or bool((z.noise.detach() > 0).all()))


def with_few_points(z: AtPoints, mask: Bool[Tensor, "b n"] | None) -> Bool[Tensor, " b"] | None:
    """Which tasks of a padded batch have no more points than features; None: none has, or nothing may be looked at.

    In the features, such a task would lose the digits that its points leave open: by its points it does not.
    """
    if mask is None or is_trusted(z.noise):
        return None
    few = mask.sum(1) <= z.distinct.shape[-1]
    return few if bool(few.any()) else None


def _each_its_way(
    prior: Prior,
    z: AtPoints,
    R: Float[Tensor, "b n q"],
    names: Sequence[Hashable],
    mask: Bool[Tensor, "b n"],
    few: Bool[Tensor, " b"],
) -> tuple[Float[Tensor, "b q"], Float[Tensor, " b"], Float[Tensor, " b"], float]:
    """`prior_terms` of tasks of which some have fewer points than features."""
    parts, order = [], torch.cat([few.nonzero()[:, 0], (~few).nonzero()[:, 0]])
    for which in (few, ~few):
        at = torch.nonzero(which)[:, 0]
        if len(at) == 0:
            continue
        n = int(mask[at].sum(1).max())
        own, inside = z.of_tasks(at).trimmed(n), mask[at, :n]
        some = [names[i] for i in at.tolist()]
        if bool(few[at[0]]):
            A = covariance_matrix(prior, own, inside)
            scale = mean_over(A.detach().diagonal(dim1=-2, dim2=-1), inside)
            parts.append(gaussian_terms(A, R[at, :n], None, some, scale))
        else:
            parts.append(feature_terms(own.features, own.noise, R[at, :n], None, some, inside))
    quadratic, trace, logdet = (torch.cat([part[k] for part in parts])[order.argsort()] for k in range(3))  # type: ignore[misc]
    return quadratic, trace, logdet, max(part[3] for part in parts)


def feature_terms(
    Z: Float[Tensor, "b n r"],
    noise: Float[Tensor, "b n"],
    R: Float[Tensor, "b n q"],
    S: Float[Tensor, "b n n"] | None,
    names: Sequence[Hashable],
    mask: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, " b"], Float[Tensor, " b"], float]:
    """`gaussian_terms` of `A = Z Zᵀ + N` by Woodbury's identity: only `M = I + Zᵀ N⁻¹ Z` is factored."""
    root = noise.sqrt()[..., None]
    Z, R = Z / root, R / root
    if mask is not None:
        Z, root = torch.where(mask[..., None], Z, 0.0), torch.where(mask[..., None], root, 1.0)
    M = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device) + Z.mT @ Z
    inner = None if S is None else Z.mT @ (S / root / root.mT) @ Z
    _, trace, logdet, u, jitter = _terms(M, Z.mT @ R, inner, names, None, solved=True)
    # the least of this over u: never negative, as |R|² − |M^{-½}ZᵀR|² may be, and its slope is that at a fixed u
    quadratic = (R - Z @ u).square().sum(-2) + u.square().sum(-2)
    if not is_trusted(M):
        check_overflow(quadratic.sum(-1), names)
    whole = 0.0 if S is None else (S.diagonal(dim1=-2, dim2=-1) / root[..., 0].square()).sum(-1)
    return quadratic, whole - trace, logdet + 2 * root.log().sum((-2, -1)), jitter


def covariance_matrix(prior: Prior, z: AtPoints, mask: Bool[Tensor, "b n"] | None = None) -> Float[Tensor, "b n n"]:
    """`K + σ²I` of each task; padded points are independent of all others, with variance 1."""
    A = prior.covariance(z, z) + torch.diag_embed(z.noise)
    if mask is None or (not is_trusted(A) and bool(mask.all())):
        return A
    return padded_identity(A, mask)


def check_fits(prior: Prior, tasks: Tasks) -> None:
    """The prior must answer at the tasks' inputs, with as many outputs as the tasks have target columns."""
    if len(tasks) == 0:
        raise DataError("no tasks.")
    if (tasks.d, tasks.p) in prior.fits:
        return
    probe = torch.zeros(1, tasks.d).to(prior.like)
    try:
        with torch.no_grad():
            z = prior.at(probe)
            K = prior.covariance(z, z)
    except RuntimeError as error:
        if "same device" in str(error) or "indices should be" in str(error):
            raise OptionError(
                f"the prior's mean or kernel holds numbers on another device than {prior.like.device}, where it is to "
                "compute: register them as buffers of a module, make them where the points lie (value.to(x)), or use "
                f"device='cpu'. ({error})"
            ) from None
        raise DataError(
            f"the prior cannot be evaluated at points with {tasks.d} input columns; make it with d={tasks.d}. ({error})"
        ) from None
    if z.mean.shape[-1] != tasks.p:
        raise DataError(
            f"the prior's mean has {z.mean.shape[-1]} outputs, but the tasks have {tasks.p} target columns; "
            f"make the prior with p={tasks.p}."
        )
    if K.ndim != 2:
        raise DataError(f"the kernel has batch shape {tuple(K.shape[:-2])}; all tasks share one kernel.")
    prior.fits.add((tasks.d, tasks.p))


def gaussian_terms(
    A: Float[Tensor, "b n n"],
    R: Float[Tensor, "b n q"],
    S: Float[Tensor, "b n n"] | None,
    names: Sequence[Hashable] | None,
    scale: Float[Tensor, " b"] | None = None,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, " b"], Float[Tensor, " b"], float]:
    """`rᵀA⁻¹r` for each column r of R, `tr(A⁻¹S)`, `log|A|`, and the jitter; gradients are analytic."""
    quadratic, trace, logdet, _, jitter = _terms(A, R, S, names, scale, solved=False)
    return quadratic, trace, logdet, jitter


def _terms(
    A: Float[Tensor, "b n n"],
    R: Float[Tensor, "b n q"],
    S: Float[Tensor, "b n n"] | None,
    names: Sequence[Hashable] | None,
    scale: Float[Tensor, " b"] | None,
    *,
    solved: bool,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, "b n q"], float]:
    """`gaussian_terms`, and `A⁻¹R` as a constant (where it is not asked for, it may be R)."""
    jitter: list[float] = []
    found = _GaussianTerms.apply(A, R, S, names, scale, jitter, solved)  # type: ignore[no-untyped-call]
    return *found, jitter[0]


class _GaussianTerms(torch.autograd.Function):
    """With `α = A⁻¹R`: `d rᵀA⁻¹r = 2αᵀdr − αᵀdA α`, `d tr(A⁻¹S) = −tr(A⁻¹S A⁻¹ dA)`, `d log|A| = tr(A⁻¹ dA)`.

    Summed with weights −½ these are the paper's gradient `½(ααᵀ − A⁻¹)`; nothing is traced through the Cholesky.
    """

    @staticmethod
    def forward(
        ctx: Any,
        A: Tensor,
        R: Tensor,
        S: Tensor | None,
        names: Any,
        scale: Tensor | None,
        jitter: list[float],
        solved: bool,
    ) -> Any:
        if is_trusted(A):
            jitter.append(0.0)
            A_inverse, logdet = inverse_and_logdet(A)
            alpha = A_inverse @ R
            return _GaussianTerms._kept(ctx, A_inverse, alpha, S, (R * alpha).sum(-2), logdet)
        L, added = factor(A, names, scale)
        if not bool(torch.isfinite(R).all()):
            raise NumericalError(_residual_message(R, names))
        jitter.append(float(added.max()) if len(added) else 0.0)
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        half = torch.linalg.solve_triangular(L, R, upper=False)
        # by the factor, not by the inverse: where points are nearly one, that would lose twice as many digits
        quadratic = half.square().sum(-2)
        sloped = any(ctx.needs_input_grad[:3])
        alpha = torch.linalg.solve_triangular(L.mT, half, upper=True) if sloped or solved else R
        if not sloped:
            trace = logdet.new_zeros(len(A))
            if S is not None:
                trace = torch.cholesky_solve(S, L).diagonal(dim1=-2, dim2=-1).sum(-1)
            check_overflow(quadratic.sum(-1) + trace, names)
            return quadratic, trace, logdet, alpha
        A_inverse = inverse(L)
        found = _GaussianTerms._kept(ctx, A_inverse, alpha, S, quadratic, logdet)
        check_overflow(quadratic.sum(-1) + found[1], names)
        ctx.names, ctx.wild = names, not bool(_most_slope(A_inverse, alpha, found[1]).isfinite().all())
        return found

    @staticmethod
    def _kept(ctx: Any, A_inverse: Tensor, alpha: Tensor, S: Tensor | None, quadratic: Tensor, logdet: Tensor) -> Any:
        trace = (A_inverse * S).sum((-2, -1)) if S is not None else torch.zeros_like(logdet)
        ctx.save_for_backward(A_inverse, alpha, S)
        ctx.wild = False
        ctx.mark_non_differentiable(alpha)
        return quadratic, trace, logdet, alpha

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, quadratic: Tensor, trace: Tensor, logdet: Tensor, _: Tensor) -> Any:
        A_inverse, alpha, S = ctx.saved_tensors
        grad_A = grad_R = grad_S = None
        weighted = quadratic[:, None, :] * alpha
        if ctx.needs_input_grad[0]:
            grad_A = logdet[:, None, None] * A_inverse
            if alpha.shape[-1] == 1:  # in one pass
                grad_A.addcmul_(weighted, alpha.mT, value=-1.0)
            else:
                grad_A.baddbmm_(weighted, alpha.mT, alpha=-1.0)
            if S is not None:
                grad_A = grad_A - trace[:, None, None] * (A_inverse @ S @ A_inverse)
            if ctx.wild:
                check_overflow(0 * grad_A.sum((-2, -1)), ctx.names)
        if ctx.needs_input_grad[1]:
            grad_R = 2 * weighted
        if ctx.needs_input_grad[2]:
            grad_S = trace[:, None, None] * A_inverse
        return grad_A, grad_R, grad_S, None, None, None, None


def _most_slope(
    A_inverse: Float[Tensor, "b n n"], alpha: Float[Tensor, "b n q"], trace: Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """What no entry of `A⁻¹`, `ααᵀ` or `A⁻¹SA⁻¹` is above: where it is finite, no slope needs to be looked at."""
    return alpha.square().sum((-2, -1)) + (1 + trace) * A_inverse.diagonal(dim1=-2, dim2=-1).sum(-1)


def check_overflow(quadratic: Float[Tensor, " b"], names: Sequence[Hashable] | None) -> None:
    """A sum of squares may be infinite, and a density 0; but not NaN, which is what an overflow on the way leaves."""
    wrong = torch.isnan(quadratic)
    if bool(wrong.any()):
        bad = int(torch.nonzero(wrong)[0, 0])
        which = f"task {names[bad]!r}" if names is not None else f"batch element {bad}"
        raise NumericalError(
            f"y − m(x) of {which} is so large beside its covariance, or that is so small by itself, that something "
            "overflows: scale y."
        )


def _residual_message(R: Float[Tensor, "b n q"], names: Sequence[Hashable] | None) -> str:
    bad = int(torch.nonzero(~torch.isfinite(R).flatten(1).all(1))[0, 0])
    which = f"task {names[bad]!r}" if names is not None else f"batch element {bad}"
    return (
        f"y − m(x) of {which} is not finite. Likely causes: (a) a mean function that is not finite at these inputs; "
        "(b) a parameter of the mean that has become infinite or NaN; (c) values so large that their squares overflow."
    )
