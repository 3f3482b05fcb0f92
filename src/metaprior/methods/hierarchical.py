"""A hierarchy of Gaussian processes: the curve that tasks have in common is itself uncertain, as few tasks leave it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaprior.arrays import Array
from metaprior.errors import DataError, NumericalError, numerical
from metaprior.files import State
from metaprior.inference import (
    LOG_2PI,
    Conditional,
    KeptMethod,
    MixtureConditional,
    Posterior,
    UserConditional,
    condition_many,
    inverse,
    padded_identity,
)
from metaprior.learning import learn_together
from metaprior.priors import JITTER, HierarchicalKernel, Prior, SharedCurve, SharedMean, matern_3, matern_5
from metaprior.seeds import generator_of
from metaprior.tasks import Covariate, Padded, Scaler, Tasks, TrainedOn, check_task_x, padded

CENTRES, BETWEEN = 30, 10
"""Inputs at which the shared curve is known: so many at most, and of these some that are spread evenly."""

LEVEL = 2.0
"""Deviation of the shared curve's level, in deviations of y: next to nothing is believed of it."""

FLOOR = 1e-6
"""The least noise variance, as a share of y's."""

EPOCHS, CHECK, TOLERANCE = 60, 5, 1e-3
"""Evaluations in which the deviations and lengthscales are learned, and when it is looked whether they still change."""

LOOK = 2_000
"""Inputs among which centres are looked for."""

FEW, MEMBERS = 50, 8
"""Fewer tasks than so many leave deviations and lengthscales so open that this number of draws stands for them."""

STEP, LEAST_CURVATURE = 1e-3, 0.3
"""Of logarithms: the step by which curvature is told, and the least that is believed of it."""

NEGLIGIBLE = 1e-3
"""A draw of less weight is left out."""


class _Believed(NamedTuple):
    """What is believed of one deviation or lengthscale before any task: the middle and width of its logarithm."""

    middle: float
    width: float


CURVE = _Believed(0.0, 1.0)
CURVE_LENGTH = _Believed(math.log(0.7), 0.7)
OWN_LEVEL = _Believed(math.log(0.5), 1.0)
OWN = _Believed(math.log(0.4), 1.0)
OWN_LENGTH = _Believed(math.log(0.5), 1.0)
NOISE = _Believed(math.log(0.1), 1.5)


class HierarchicalGP(KeptMethod):
    """`y = m(x) + c + f(x) + ε`: a curve m of all tasks, a level c and a curve f of each, Gaussian processes all.

    Deviations and lengthscales are learned by the evidence of all tasks together, with a weak belief about each. What
    the tasks leave open goes into the prior of a new one. Of m that is part of the kernel: much with three past tasks,
    next to nothing with a hundred. Of deviations and lengthscales it is a mixture, where there are few tasks: of draws
    around the most probable ones, which a new task's own points then choose from. What is known of a task as a whole
    is one more input of m.
    """

    saved_as = "hierarchical"
    fitted_as = "priors_"
    priors_: list[Prior]
    scaler_: Scaler
    task_x_: tuple[Covariate, ...]
    range_: tuple[Tensor, Tensor]

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, tasks: Tasks) -> Self:
        """Learn from all tasks."""
        type(self).fit_many([self], [tasks])
        return self

    @classmethod
    def fit_many(cls, methods: Sequence[Self], tasks: Sequence[Tasks]) -> None:
        """Fit several, each on tasks of its own, as one training."""
        cls._learn(methods, tasks, None)

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """Fit from the deviations and lengthscales that some of the tasks have taught."""
        self._learn([self], [tasks], earlier.learned_[:1].numpy())
        return self

    @classmethod
    @numerical("the evidence of the hierarchy")
    def _learn(cls, methods: Sequence[Self], tasks: Sequence[Tasks], start: Float[Array, "B P"] | None) -> None:
        for one, own in zip(methods, tasks, strict=True):
            _check(own)
            one.task_x_ = own.columns.task_x if own.covariates is not None else ()
        wide = [one._widened(own) for one, own in zip(methods, tasks, strict=True)]
        scalers = [Scaler.fit(own) for own in wide]
        scaled = [scaler.scale(own) for scaler, own in zip(scalers, wide, strict=True)]
        centres = [_centres(own.x, one.seed) for one, own in zip(methods, scaled, strict=True)]
        problems = _Hierarchies(scaled, centres)
        ends = learn_together(
            problems,
            problems.start if start is None else start,
            np.ones(problems.start.shape[1], bool),
            max_epochs=EPOCHS,
            check_every=CHECK,
            patience=1,
            tolerance=TOLERANCE,
        )
        best = torch.from_numpy(np.stack([end.values for end in ends]))
        few = torch.tensor([len(own) < FEW for own in tasks])
        for group in (torch.nonzero(few)[:, 0], torch.nonzero(~few)[:, 0]):  # what one set leaves open is its own
            if len(group):
                part = problems.select(group.tolist())
                seeds = [methods[k].seed for k in group.tolist()]
                draws, proposed = part.draws(best[group], seeds) if few[group[0]] else (best[None, group], None)
                for one, weighed in zip(group.tolist(), part.weighed(draws, proposed), strict=True):
                    lower, upper = scaled[one].x.amin(0), scaled[one].x.amax(0)
                    methods[one].scaler_, methods[one].range_ = scalers[one], (lower, upper)
                    methods[one]._set(centres[one], *weighed)
                    methods[one].trained_on_ = TrainedOn.of(tasks[one], task_x=bool(methods[one].task_x_))

    def _set(
        self,
        centres: Float[Tensor, "q d"],
        learned: Float[Tensor, "k P"],
        log_shares: Float[Tensor, " k"],
        weights: Float[Tensor, "k q p"],
        left_open: Float[Tensor, "k q q"],
    ) -> None:
        """Priors with these deviations and lengthscales, and what each says of the shared curve."""
        self.centres_, self.learned_, self.log_shares_ = centres, learned, log_shares
        self.weights_, self.left_open_ = weights, left_open
        self.priors_ = []
        for logs, mean, root in zip(learned, weights, left_open, strict=True):
            said = _Said.of(logs, centres.shape[1])
            curve = SharedCurve(centres, said.curve_length, float(said.curve), LEVEL, *self.range_)
            kernel = HierarchicalKernel(curve, root, float(said.own_level), float(said.own), said.own_length)
            self.priors_.append(Prior(SharedMean(curve, mean), kernel, float(said.noise.square() + FLOOR), learn=()))

    def _widened(self, tasks: Tasks) -> Tasks:
        """The tasks' points with what is known of each task as a whole."""
        if not self.task_x_:
            return tasks
        check_task_x(self.task_x_, tasks)
        return tasks.widened(tasks.covariates)

    def condition(self, context: Tasks) -> Conditional[Posterior]:
        """Each task, given some of its points."""
        self._check_fitted()
        covariates = context.covariates if self.task_x_ else None
        given = condition_many(self.priors_, self.scaler_.scale(self._widened(context)))
        found = [UserConditional(each, self.scaler_, context, covariates) for each in given]
        return found[0] if len(found) == 1 else MixtureConditional(found, self.log_shares_, by_evidence=True)

    def state(self) -> State:
        """What was learned, for a file."""
        self._check_fitted()
        names = ("centres", "learned", "log_shares", "weights", "left_open")
        tensors = {name: getattr(self, f"{name}_") for name in names}
        tensors |= dict(zip(("lower", "upper"), self.range_, strict=True))
        about = [[one.name, list(one.levels or ())] for one in self.task_x_]
        return State(self.saved_as, {"task_x": about}, tensors | self.scaler_.as_tensors())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted model again."""
        found = cls()
        found.scaler_ = Scaler.from_tensors(state.tensors)
        found.task_x_ = tuple(Covariate(name, tuple(levels)) for name, levels in state.structure["task_x"])
        d, p = len(found.scaler_.x_shift), len(found.scaler_.y_shift)
        centres, shares = state.tensor("centres"), state.tensor("log_shares")
        k, q = len(shares), len(centres) + 1
        found.range_ = state.tensor("lower", (d,)), state.tensor("upper", (d,))
        learned = state.tensor("learned", (k, len(_Said.believed(d))))
        weights, left_open = state.tensor("weights", (k, q, p)), state.tensor("left_open", (k, q, q))
        found._set(centres, learned, shares, weights, left_open)
        return found


class _Said(NamedTuple):
    """Deviations and lengthscales, of one problem or of several."""

    curve: Tensor
    curve_length: Tensor
    own_level: Tensor
    own: Tensor
    own_length: Tensor
    noise: Tensor

    @staticmethod
    def of(logs: Float[Tensor, "*B P"], d: int) -> _Said:
        curve, curve_length, own_level, own, own_length, noise = logs.exp().split([1, d, 1, 1, d, 1], -1)
        return _Said(curve[..., 0], curve_length, own_level[..., 0], own[..., 0], own_length, noise[..., 0])

    @staticmethod
    def believed(d: int) -> list[_Believed]:
        return [CURVE, *[CURVE_LENGTH] * d, OWN_LEVEL, OWN, *[OWN_LENGTH] * d, NOISE]


class _Found(NamedTuple):
    """Evidence and belief of each problem, and what it says of the shared curve's weights: `M w = h` in the mean."""

    total: Float[Tensor, " B"]
    belief: Float[Tensor, " B"]
    precision: Float[Tensor, "B q q"]
    pull: Float[Tensor, "B q p"]


class _Hierarchies:
    """Several sets of tasks, each with deviations and lengthscales of its own, as `Problems`: their logs are the rows.

    With the shared curve's weights w integrated out, `y ~ N(0, A + Φ Φᵀ)` with A block by block of the tasks and Φ the
    curve's features at all points: by Woodbury's identity every task is factored alone, and then one matrix of the
    size of w.
    """

    def __init__(self, tasks: Sequence[Tasks], centres: Sequence[Float[Tensor, "q d"]]) -> None:
        self.tasks, self.centres = list(tasks), list(centres)
        self.d, self.p = tasks[0].d, tasks[0].p
        owner = torch.arange(len(tasks)).repeat_interleave(torch.tensor([len(own) for own in tasks]))
        most = max(len(own) for own in centres)
        z = torch.stack([torch.cat([own, own[:1].expand(most - len(own), -1)]) for own in centres])
        self.real = torch.arange(most) < torch.tensor([len(own) for own in centres])[:, None]  # the others fill up
        self.alike = bool(self.real.all())
        self.among = _gaps(z, z)
        self.batches = [
            _Batch.of(batch, owner[batch.tasks], z) for batch in padded(Tasks.one_after_another(self.tasks))
        ]
        self.values = np.array([own.y.numel() for own in tasks], float)
        self.middle, self.width = torch.tensor(_Said.believed(self.d), dtype=torch.float64).unbind(1)

    @property
    def start(self) -> Float[Array, "B P"]:
        """What is believed."""
        return np.repeat(self.middle[None].numpy(), len(self.tasks), 0)

    @property
    def entries(self) -> int:
        """Covariance entries."""
        return sum(batch.mask.numel() * batch.mask.shape[1] for batch in self.batches)

    def loss(self, values: Float[Array, "B P"]) -> tuple[Float[Array, " B"], Float[Array, "B P"]]:
        """The negative of evidence and belief per value, and its slopes."""
        loss, slopes = self._sloped(torch.from_numpy(values))
        return loss.numpy() / self.values, slopes.numpy() / self.values[:, None]

    def _sloped(self, logs: Float[Tensor, "B P"]) -> tuple[Float[Tensor, " B"], Float[Tensor, "B P"]]:
        given = logs.clone().requires_grad_()
        with torch.enable_grad():
            found = self.evidence(given)
            loss = -(found.total + found.belief)
            (slopes,) = torch.autograd.grad(loss.sum(), given)
        return loss.detach(), slopes

    def evidence(self, logs: Float[Tensor, "B P"]) -> _Found:
        """The evidence of each set of tasks."""
        said, B, q = _Said.of(logs, self.d), len(logs), self.real.shape[1] + 1
        gram, logdet = logs.new_zeros(B, q + self.p, q + self.p), logs.new_zeros(B)
        for batch in self.batches:
            who = batch.owner
            K = said.own[who, None, None].square() * matern_3(_distances(batch.within, said.own_length[who]))
            noise = (said.noise[who].square() + FLOOR)[:, None].expand(batch.mask.shape)
            A = K + said.own_level[who, None, None].square() + torch.diag_embed(noise)
            cross = said.curve[who, None, None] * matern_5(_distances(batch.across, said.curve_length[who]))
            cross = cross if self.alike else torch.where(self.real[who, None], cross, 0.0)
            sides = torch.cat([torch.full_like(batch.y[..., :1], LEVEL), cross, batch.y], -1)
            if not batch.full:
                A, sides = padded_identity(A, batch.mask), torch.where(batch.mask[..., None], sides, 0.0)
            products, own = _Products.apply(A, sides)  # type: ignore[no-untyped-call]
            gram, logdet = gram.index_add(0, who, products), logdet.index_add(0, who, own)
        white = self._whitened(gram, said)
        M, h, fit = white[:, :q, :q] + torch.eye(q).to(logs), white[:, :q, q:], white[:, q:, q:]
        R, info = torch.linalg.cholesky_ex(M)
        explained = torch.linalg.solve_triangular(R, h, upper=False).square().sum((-2, -1))
        quadratic = fit.diagonal(dim1=-2, dim2=-1).sum(-1) - explained
        whole = logdet + 2 * R.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        total = -0.5 * (quadratic + self.p * whole + torch.from_numpy(self.values) * LOG_2PI)
        belief = -0.5 * ((logs - self.middle) / self.width).square().sum(1)
        return _Found(torch.where(info == 0, total, torch.nan), belief, M, h)

    def _whitened(self, gram: Float[Tensor, "B k k"], said: _Said) -> Float[Tensor, "B k k"]:
        """Products with what the curve is at its centres, as products with its independent weights."""
        K = matern_5(_distances(self.among, said.curve_length))
        both, q = self.real[:, :, None] & self.real[:, None, :], K.shape[-1]
        extra = torch.diag_embed(torch.where(self.real, JITTER, torch.ones_like(K[..., 0])))
        root = torch.eye(gram.shape[1]).to(K).expand_as(gram).clone()
        root[:, 1 : 1 + q, 1 : 1 + q] = torch.linalg.cholesky_ex(torch.where(both, K, 0.0) + extra)[0]
        left: Tensor = torch.linalg.solve_triangular(root, gram, upper=False)
        found: Tensor = torch.linalg.solve_triangular(root, left.mT, upper=False)
        return found

    def draws(
        self, best: Float[Tensor, "B P"], seeds: Sequence[int]
    ) -> tuple[Float[Tensor, "k B P"], Float[Tensor, "k B"]]:
        """Rows around the most probable ones, as far away as the curvature there says, and how likely they were drawn.

        In pairs, one on each side. Where the curvature says little, belief bounds it.
        """
        P = best.shape[1]
        _, here = self._sloped(best)
        there = [self._sloped(best + STEP * unit)[1] for unit in torch.eye(P, dtype=best.dtype)]
        curvature = torch.stack([(slopes - here) / STEP for slopes in there], 1)
        finite = torch.where(curvature.isfinite(), curvature, 0.0)
        size, axes = torch.linalg.eigh((finite + finite.mT) / 2)
        each = [torch.randn(MEMBERS // 2, P, generator=generator_of(seed), dtype=torch.float64) for seed in seeds]
        half = torch.stack(each, 1)
        normal = torch.cat([half, -half])
        root = axes @ torch.diag_embed(size.clamp(min=LEAST_CURVATURE).rsqrt()) @ axes.mT  # whatever sign its axes have
        return best + (root @ normal[..., None])[..., 0], -0.5 * normal.square().sum(-1)

    def weighed(
        self, draws: Float[Tensor, "k B P"], proposed: Float[Tensor, "k B"] | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Of each problem the draws that count, the logs of their shares, and what each says of the shared curve.

        Args:
            draws: rows of each problem.
            proposed: log density by which they were drawn; without, all alike.
        """
        with torch.no_grad():
            found = [self.evidence(logs) for logs in draws]
        for k, own in enumerate(self.centres):
            q = len(own) + 1
            log_weights = torch.stack([each.total[k] + each.belief[k] for each in found])
            log_weights = log_weights if proposed is None else log_weights - proposed[:, k]
            log_weights = torch.where(log_weights.isfinite(), log_weights, -torch.inf)  # a draw that went too far
            if not bool(log_weights.isfinite().any()):
                raise NumericalError("the evidence of the hierarchy has no finite value: are the targets constant?")
            kept = [j for j, weight in enumerate(log_weights.softmax(0).tolist()) if weight > NEGLIGIBLE]
            roots = [torch.linalg.cholesky(found[j].precision[k, :q, :q]) for j in kept]
            eye = torch.eye(q, dtype=torch.float64)
            yield (
                draws[kept, k],
                log_weights[kept].log_softmax(0),
                torch.stack([torch.cholesky_solve(found[j].pull[k, :q], R) for j, R in zip(kept, roots, strict=True)]),
                torch.stack([torch.linalg.solve_triangular(R, eye, upper=False).mT for R in roots]),
            )

    def judged(self, values: Float[Array, "B P"], loss: Float[Array, " B"]) -> Float[Array, " B"]:
        """Evidence and belief themselves: a few numbers are not learned by heart."""
        return -loss

    def select(self, which: Sequence[int]) -> _Hierarchies:
        """Some of them."""
        return _Hierarchies([self.tasks[k] for k in which], [self.centres[k] for k in which])


class _Products(torch.autograd.Function):
    """`SᵀA⁻¹S` and `log|A|` of each matrix, NaN where it has no factor.

    With `U = A⁻¹S`, a weight G of the first (taken symmetric) and g of the second: `dA = g A⁻¹ − U G Uᵀ`, `dS = 2 U G`.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        L, info = torch.linalg.cholesky_ex(A)
        half = torch.linalg.solve_triangular(L, S, upper=False)
        ctx.save_for_backward(L, half)
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return half.mT @ half, torch.where(info == 0, logdet, torch.nan)

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor, Tensor]:
        L, half = ctx.saved_tensors
        G, g = (along[0] + along[0].mT) / 2, along[1]
        U = torch.linalg.solve_triangular(L.mT, half, upper=True)
        dS = U @ G
        return g[:, None, None] * inverse(L) - dS @ U.mT, 2 * dS


class _Batch(NamedTuple):
    """Tasks of similar size, and which problem each is of. Gaps: between its points, and to the centres."""

    y: Float[Tensor, "b n p"]
    mask: Bool[Tensor, "b n"]
    owner: Int[Tensor, " b"]
    within: Float[Tensor, "b n n d"]
    across: Float[Tensor, "b n q d"]
    full: bool

    @staticmethod
    def of(batch: Padded, owner: Int[Tensor, " b"], centres: Float[Tensor, "B q d"]) -> _Batch:
        x = batch.inputs.distinct[batch.inputs.index]
        return _Batch(batch.y, batch.mask, owner, _gaps(x, x), _gaps(x, centres[owner]), bool(batch.mask.all()))


def _gaps(x1: Float[Tensor, "b n d"], x2: Float[Tensor, "b k d"]) -> Float[Tensor, "b n k d"]:
    return (x1[:, :, None] - x2[:, None]).abs()


def _distances(gaps: Float[Tensor, "b n k d"], lengths: Float[Tensor, "b d"]) -> Float[Tensor, "b n k"]:
    """In lengthscales, with a slope where they are 0."""
    if gaps.shape[-1] == 1:
        return gaps[..., 0] / lengths[:, :, None]
    return ((gaps / lengths[:, None, None]).square().sum(-1) + 1e-14).sqrt()


def _centres(x: Float[Tensor, "N d"], seed: int) -> Float[Tensor, "q d"]:
    """Inputs of one column by rank; of several, such as are far apart: each next is the farthest from those before."""
    found: Tensor = torch.unique(x, dim=0)
    if x.shape[1] == 1:  # some between them as well, where no task was ever seen
        count = min(len(found), CENTRES - BETWEEN)
        some = found[torch.linspace(0, len(found) - 1, count, dtype=torch.float64).round().long()]
        even = found[0] + (found[-1] - found[0]) * torch.linspace(0, 1, BETWEEN, dtype=found.dtype)[:, None]
        both: Tensor = torch.unique(torch.cat([some, even]), dim=0)
        return both
    if len(found) <= CENTRES:
        return found
    some = found[torch.randperm(len(found), generator=generator_of(seed))[:LOOK]]
    chosen, gap = [0], torch.full((len(some),), math.inf, dtype=torch.float64)
    while len(chosen) < CENTRES:
        gap = torch.minimum(gap, (some - some[chosen[-1]]).square().sum(1))
        chosen.append(int(gap.argmax()))
    return some[chosen]


def _check(tasks: Tasks) -> None:
    if len(tasks) < 2:
        raise DataError(f"{len(tasks)} task: what tasks have in common needs two or more of them.")
    if int(tasks.sizes.max()) < 2:
        raise DataError("every task has one point: what its points have to do with each other cannot be learned.")
