"""EM for many reduced-rank mixed-effects models together: those of the folds of a table, and of several tables.

On small tables a step costs its calls, not its arithmetic, so models of one shape take their steps together, each until
its own end. The steps are those of `learning/em.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from metaprior.errors import DataError, MetapriorError, NumericalError, numerical
from metaprior.inference import LOG_2PI
from metaprior.learning.em import COMPONENTS, UNDETERMINED, Fit, MixedEffects
from metaprior.learning.stacks import StackedCurves

MOST_ENTRIES = 20_000_000
"""Numbers that the models of one batch may hold; fewer learn at a time where they would be more."""

NO_BASIS, NO_SCORES, NOT_FINITE = 1, 2, 3
"""Why a model cannot be learned: `error_of` has it in words."""


class Models(NamedTuple):
    """`[β W]ᵀ` and noise of each model of each table."""

    coefficients: Float[Tensor, "o i s q"]
    noise: Float[Tensor, "o i"]

    def model(self, table: int, p: int, rank: int) -> MixedEffects:
        """The first of a table, with p outputs and no more than so many components."""
        mean, loadings = self.coefficients[table, 0, :p].mT, self.coefficients[table, 0, p : p + rank].mT
        return MixedEffects(mean.contiguous(), loadings.contiguous(), float(self.noise[table, 0]))


class Learned(NamedTuple):
    """Models with the evidence before each step and at the end, and NaN after a model's own end."""

    models: Models
    evidence: Float[Tensor, "steps o i"]
    converged: Bool[Tensor, "o i"]
    failure: Int[Tensor, "o i"]

    def fit(self, table: int, p: int, rank: int) -> Fit:
        """The first model of a table with its components, or the error that kept it from being learned."""
        if int(self.failure[table, 0]):
            raise error_of(int(self.failure[table, 0]))
        trace, model = self.evidence[:, table, 0], self.models.model(table, p, rank)
        return Fit(model, tuple(trace[~trace.isnan()].tolist()), bool(self.converged[table, 0]))


class Start(NamedTuple):
    """Mean function, covariance of ridge estimates (its eigenvalues fall) and noise, for models of any rank."""

    mean: Float[Tensor, "o i p q"]
    values: Float[Tensor, "o i q"]
    vectors: Float[Tensor, "o i q q"]
    noise: Float[Tensor, "o i"]
    failure: Int[Tensor, "o i"]

    def tables(self, which: Int[Tensor, " n"]) -> Start:
        """Those of some tables."""
        return Start(*(part[which] for part in self))

    def models(self, rank: int, smaller: Models | None = None) -> Models:
        """Where models of a rank begin: at what those of a lower rank have learned, where there are any."""
        p = self.mean.shape[2]
        values, least = self.values[..., :rank], 1e-3 * self.values[..., :1].clamp(min=0.0)
        rough = self.vectors[..., :rank] * values.maximum(least).sqrt()[..., None, :]
        if smaller is None or smaller.coefficients.shape[2] - p >= rank:
            return Models(torch.cat([self.mean, rough.mT], 2), self.noise)
        known = torch.linalg.qr(smaller.coefficients[..., p:, :].mT)[0]
        left, sizes, _ = torch.linalg.svd(rough - known @ (known.mT @ rough), full_matrices=False)
        added = rank + p - smaller.coefficients.shape[2]
        more = left[..., :added] * sizes[..., None, :added]
        return Models(torch.cat([smaller.coefficients, more.mT], 2), smaller.noise)


def error_of(failure: int) -> MetapriorError:
    """What kept a model from being learned, in words."""
    if failure == NO_BASIS:
        return DataError(UNDETERMINED)
    if failure == NO_SCORES:
        return NumericalError("the scores' covariance is not positive definite: use fewer components, more noise.")
    return NumericalError("the evidence of the curves is not finite: values too large for their squares, or NaN.")


@torch.no_grad()
@numerical(COMPONENTS)
def starts(stack: StackedCurves, floor: Float[Tensor, " o"]) -> Start:
    """A covariance of ridge estimates, by which models of any rank can start."""
    o, i, k, t, q, p = stack.shape
    if o > 1 and o * i * k * q * (q + t) > MOST_ENTRIES:
        halves = [starts(stack.tables(which), floor[which]) for which in _places(o, floor).tensor_split(2)]
        return Start(*(torch.cat(part) for part in zip(*halves, strict=True)))
    weights = stack.learn
    columns = (stack.outputs * weights.columns[:, :, :, None]).transpose(2, 3).reshape(o, i * p, k * t)
    projected = (columns @ stack.projected.mT).view(o, i, p, q)
    total = (weights.designs @ stack.gram).view(o, i, q, q)
    L, info = torch.linalg.cholesky_ex(total)
    mean = torch.cholesky_solve(projected.mT, L).mT
    ridge = total.diagonal(dim1=-2, dim2=-1).sum(-1) / (q * weights.tasks)
    gram = stack.gram.view(o, 1, k, q, q)
    eye = torch.eye(q, dtype=torch.float64, device=gram.device)
    factor, _ = torch.linalg.cholesky_ex(gram + ridge[:, :, None, None, None] * eye)
    through = (mean.view(o, i * p, q) @ stack.gram_rows).view(o, i, p, k, q).permute(0, 1, 3, 4, 2)  # Gβ
    residual = stack.projected.view(o, 1, q, k, t).transpose(2, 3) - _product(through, stack.outputs)
    estimate = torch.cholesky_solve(residual, factor)
    weighted = estimate * weights.columns[:, :, :, None]
    covariance = weighted.transpose(2, 3).reshape(o, i, q, k * t) @ estimate.transpose(2, 3).reshape(o, i, q, k * t).mT
    covariance = covariance / (weights.tasks * p)[..., None, None]
    failed = (info > 0) | ~covariance.isfinite().all(-1).all(-1)
    values, vectors = torch.linalg.eigh(torch.where(failed[..., None, None], eye, covariance))
    variance = (weights.squares - (mean * projected).sum((-2, -1))) / weights.values
    noise = (0.5 * variance.maximum(floor[:, None])).maximum(floor[:, None])
    failure = torch.where(info > 0, NO_BASIS, torch.where(failed, NOT_FINITE, 0))
    return Start(mean, values.flip(-1), vectors.flip(-1), noise, failure)


@torch.no_grad()
@numerical(COMPONENTS)
def fit_together(
    stack: StackedCurves, start: Models, *, floor: Float[Tensor, " o"], tolerance: float, max_steps: int = 500
) -> Learned:
    """EM of each model until a step gains less than `tolerance` of evidence per value. floor: the least noise."""
    (o, i, k, t, q, _), s = stack.shape, start.coefficients.shape[2]
    if o * i > 1 and o * i * ((q * s) ** 2 + k * (2 * q * q + s * (q + s + 2 * t))) > MOST_ENTRIES:
        return _in_two(stack, start, floor=floor, tolerance=tolerance, max_steps=max_steps)
    running = _Running(stack, start, floor)
    for _ in range(max_steps):
        expected = _expect(running.stack, running.models)
        running.judge(expected, tolerance)
        if not len(running.open):
            return running.learned(o, i)
        running.advance(*_maximise(running.stack, expected, running.floor))
    running.end()
    return running.learned(o, i)


def em_step(
    stack: StackedCurves, models: Models, floor: Float[Tensor, " o"]
) -> tuple[Models, Bool[Tensor, "o i"], Bool[Tensor, "o i"]]:
    """One step of EM of each model; which have no scores, and which a basis that their tasks do not determine."""
    expected = _expect(stack, models)
    found, failed = _maximise(stack, expected, floor)
    return found, expected.failed, failed


@torch.no_grad()
@numerical("the evidence of the curves")
def evidence_together(stack: StackedCurves, models: Models) -> Float[Tensor, "o i"]:
    """The summed evidence of what each model learns from; NaN where there is none."""
    (o, i, k, t, q, _), s = stack.shape, models.coefficients.shape[2]
    if o > 1 and o * i * k * s * (q + s + 2 * t) > MOST_ENTRIES:
        halves = _places(o, models.noise).tensor_split(2)
        return torch.cat([evidence_together(stack.tables(at), Models(*(x[at] for x in models))) for at in halves])
    expected = _expect(stack, models)
    return torch.where(expected.failed, torch.nan, expected.evidence)


def _in_two(
    stack: StackedCurves, start: Models, *, floor: Float[Tensor, " o"], tolerance: float, max_steps: int
) -> Learned:
    """Half of the models after the other half."""
    o, i = stack.shape[:2]
    along = 0 if o > 1 else 1
    found = []
    for at in _places(o if o > 1 else i, floor).tensor_split(2):
        half = stack.tables(at) if o > 1 else stack.models(int(at[0]), int(at[-1]) + 1)
        began, least = Models(*(part.index_select(along, at) for part in start)), floor[at] if o > 1 else floor
        found.append(fit_together(half, began, floor=least, tolerance=tolerance, max_steps=max_steps))
    models = Models(*(torch.cat(part, along) for part in zip(*(one.models for one in found), strict=True)))
    steps = max(len(one.evidence) for one in found)
    traces = [pad(one.evidence, (0, 0, 0, 0, 0, steps - len(one.evidence)), value=torch.nan) for one in found]
    converged, failure = (torch.cat([getattr(one, name) for one in found], along) for name in ("converged", "failure"))
    return Learned(models, torch.cat(traces, along + 1), converged, failure)


class _Running:
    """Models on their way. Those that have come to their end are kept, and leave the batch when they are many."""

    def __init__(self, stack: StackedCurves, start: Models, floor: Float[Tensor, " o"]) -> None:
        (o, i), (s, q) = stack.shape[:2], start.coefficients.shape[2:]
        self.stack, self.models, self.floor = stack, start, floor
        self.kept = Models(start.coefficients.reshape(-1, s, q).clone(), start.noise.flatten().clone())
        device = start.noise.device
        self.converged = torch.zeros(o * i, dtype=torch.bool, device=device)
        self.failure = torch.zeros(o * i, dtype=torch.int64, device=device)
        self.trace: list[tuple[Tensor, Tensor]] = []
        self.which = torch.arange(o * i, device=device)  # the place of each model of the batch among all of them
        self.open = torch.arange(o * i, device=device)  # the places in the batch of those that have not ended
        self.last = torch.full((o * i,), -torch.inf, dtype=torch.float64, device=device)

    def judge(self, expected: _Expected, tolerance: float) -> None:
        """Close the models whose last step gained too little, and those that have no evidence."""
        evidence, failed = expected.evidence.flatten(), expected.failed.flatten()
        gained = (evidence - self.last >= tolerance * self.stack.learn.values.flatten()) & ~failed  # NaN has not
        self.last = evidence
        self._note(evidence)
        ended = ~gained[self.open]
        if bool(ended.any()):
            done = self.open[ended]
            at, fine = self.which[done], evidence[done].isfinite() & ~failed[done]
            why = torch.where(failed[done], NO_SCORES, NOT_FINITE)
            self.converged[at], self.failure[at] = fine, torch.where(fine, 0, why)
            self._keep(done)
            self.open = self.open[~ended]

    def advance(self, models: Models, failed: Bool[Tensor, "o i"]) -> None:
        """Take a step; when half of the models have ended, go on without them."""
        self.models = models
        if bool(failed.any()):
            failing = failed.flatten()[self.open]
            self.failure[self.which[self.open[failing]]] = NO_BASIS
            self.open = self.open[~failing]
        if 2 * len(self.open) <= len(self.which):
            self._leave()

    def end(self) -> None:
        """Out of steps: keep the models as they are."""
        self._note(_expect(self.stack, self.models).evidence.flatten())
        self._keep(self.open)

    def learned(self, o: int, i: int) -> Learned:
        shape = self.kept.coefficients.shape[1:]
        models = Models(self.kept.coefficients.view(o, i, *shape), self.kept.noise.view(o, i))
        trace = torch.full((len(self.trace), o * i), torch.nan, dtype=torch.float64, device=self.last.device)
        for row, (which, evidence) in zip(trace, self.trace, strict=True):
            row[which] = evidence
        return Learned(models, trace.view(-1, o, i), self.converged.view(o, i), self.failure.view(o, i))

    def _leave(self) -> None:
        """Go on with the open models alone."""
        left, i = self.open, self.stack.shape[1]
        self.stack, self.floor = self.stack.single(left), self.floor[left // i]
        self.models = Models(*(part.flatten(0, 1)[left][:, None] for part in self.models))
        self.which, self.last = self.which[left], self.last[left]
        self.open = torch.arange(len(left), device=left.device)

    def _note(self, evidence: Float[Tensor, " n"]) -> None:
        self.trace.append((self.which[self.open], evidence[self.open]))

    def _keep(self, some: Int[Tensor, " n"]) -> None:
        at = self.which[some]
        self.kept.coefficients[at] = self.models.coefficients.flatten(0, 1)[some]
        self.kept.noise[at] = self.models.noise.flatten()[some]


class _Expected(NamedTuple):
    """The E-step: evidence, and what the M-step needs of `z̃ = (a, z)`, which output it is and the scores."""

    evidence: Float[Tensor, "o i"]
    failed: Bool[Tensor, "o i"]
    moments: Float[Tensor, "o i k s s"]  # Σ z̃ z̃ᵀ of each design
    projected: Float[Tensor, "o i s q"]  # Σ z̃ hᵀ


def _expect(stack: StackedCurves, models: Models) -> _Expected:
    (o, i, k, t, q, p), C, noise = stack.shape, models.coefficients, models.noise[:, :, None]
    s, weights, flat = C.shape[2], stack.learn, C.reshape(o, -1, q)
    inner = (flat @ stack.gram_rows).view(o * i, s * k, q) @ C.reshape(o * i, s, q).mT
    inner = inner.view(o, i, s, k, s).transpose(2, 3)  # [β W]ᵀ G [β W] of each design
    h = (flat @ stack.projected).view(o, i, s, k, t).transpose(2, 3)
    eye = torch.eye(s - p, dtype=torch.float64, device=C.device)
    L, info = torch.linalg.cholesky_ex(inner[..., p:, p:] + noise[..., None, None] * eye)
    residual = h[..., p:, :] - _product(inner[..., p:, :p], stack.outputs)
    solved = torch.cholesky_solve(torch.cat([residual, eye.expand(o, i, k, -1, -1)], -1), L)
    scores = torch.cat([stack.outputs.expand(o, i, -1, -1, -1), solved[..., :t]], -2)
    weighted = scores * weights.columns[:, :, :, None]
    moments = _product(weighted, scores.mT)
    known = (inner[..., :p, :p] * moments[..., :p, :p]).sum((2, 3, 4)) - (weighted[..., p:, :] * residual).sum(
        (2, 3, 4)
    )
    moments[..., p:, p:] += (weights.designs * (p * noise))[..., None, None] * solved[..., t:]
    projected = (weighted.transpose(2, 3).reshape(o, i * s, k * t) @ stack.projected.mT).view(o, i, s, q)
    squares = weights.squares - 2 * (C[:, :, :p] * projected[:, :, :p]).sum((2, 3)) + known
    logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (stack.points[:, None] - (s - p)) * noise.log()
    summed = squares / models.noise + p * (weights.designs * logdet).sum(2) + weights.values * LOG_2PI
    return _Expected(-0.5 * summed, (info > 0).any(2), moments, projected)


def _maximise(
    stack: StackedCurves, expected: _Expected, floor: Float[Tensor, " o"]
) -> tuple[Models, Bool[Tensor, "o i"]]:
    """`learning.em`'s M-step: mean and components by their normal equations `Σ G C S = R`, noise, then expansion."""
    o, i, k, _, q, p = stack.shape
    S, R, weights = expected.moments, expected.projected, stack.learn
    s = R.shape[2]
    pairs = S.permute(0, 1, 3, 4, 2).reshape(o, -1, k) @ stack.gram  # Σ S ⊗ G, entry by entry
    A = pairs.view(o, i, s, s, q, q).transpose(3, 4).reshape(o, i, s * q, s * q)
    L, info = torch.linalg.cholesky_ex(A)
    half = torch.linalg.solve_triangular(L, R.reshape(o, i, s * q, 1), upper=False)
    C = torch.linalg.solve_triangular(L.mT, half, upper=True).view(o, i, s, q)  # `cholesky_solve` would copy L
    noise = (weights.squares - (C * R).sum((2, 3))) / weights.values
    spread, own = torch.linalg.cholesky_ex(S[..., p:, p:].sum(2) / (p * weights.tasks)[..., None, None])
    W = torch.where(own[..., None, None] > 0, C[:, :, p:], spread.mT @ C[:, :, p:])
    return Models(torch.cat([C[:, :, :p], W], 2), noise.maximum(floor[:, None])), info > 0


def _places(count: int, like: Tensor) -> Int[Tensor, " n"]:
    return torch.arange(count, device=like.device)


def _product(a: Float[Tensor, "*b m n"], b: Float[Tensor, "*b n l"]) -> Float[Tensor, "*b m l"]:
    """`a @ b`: of very many columns with rows, one multiplication is quicker than as many calls."""
    return a * b if a.shape[-1] == 1 else a @ b
