"""A mixture of priors, for tasks that come in kinds: `p(f) = Σ_c π_c GP(m_c, k_c)`, learned without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NotFittedError, OptionError
from metaprior.files import Saved, State
from metaprior.inference import Gathered, MixturePosterior, Predictive, UserPosterior, condition, evidences
from metaprior.inference.evidence import Evidence
from metaprior.learning.em import Designs, MixedEffects, fit_em
from metaprior.learning.mixtures import KindsFit, TaskDesigns, fit_kinds, k_means, kind_evidences
from metaprior.priors import Basis, described_basis, make_basis
from metaprior.progress import progress_bar
from metaprior.tasks import Scaler, Tasks, TrainedOn, on_one_grid
from metaprior.tasks.rounding import rounding_variance

COUNTS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Numbers of kinds to choose from, as long as held-out evidence rises and there are tasks enough for each."""

TASKS_PER_KIND = 10

SIZE = 20
"""Basis functions per input where tasks share no grid; on a grid there are as many as points."""

SOME = 2_000
"""Tasks that numbers of kinds and ranks are compared on, where each has inputs of its own and costs its own time."""

UNLIKELY = 1e-5
"""A kind of less probability than this, given a task's context, has no say in its prediction."""


class TriedKinds(NamedTuple):
    """A number of kinds and a rank with the evidence per value of held-out tasks."""

    kinds: int
    rank: int
    held_out_evidence: float


class Mixture(Saved):
    """Tasks of several kinds, each with a mean function and components of its own (functional PCA), learned by EM.

    Which kind a new task is of, its context says: prediction is the full mixture, by responsibilities. kinds: how many,
    or some numbers; where several are possible, the evidence of held-out tasks chooses. rank: components of each kind.
    size: functions of the basis per input. held_out: a share of the tasks, or other tasks.
    """

    kind = "mixture"
    scaler_: Scaler
    basis_: Basis

    def __init__(
        self,
        kinds: int | Sequence[int] | None = None,
        *,
        rank: int | Sequence[int] = (2, 4, 8, 16),
        size: int | None = None,
        noise_floor: float = 1e-6,
        held_out: Tasks | float = 0.1,
        seed: int = 0,
        progress: bool | str = False,
    ) -> None:
        self.kinds, self.rank, self.size = kinds, rank, size
        self.noise_floor, self.held_out, self.seed, self.progress = noise_floor, held_out, seed, progress

    @torch.no_grad()
    def fit(self, tasks: Tasks) -> Self:
        """Choose the number of kinds and the rank, then learn the kinds from all tasks."""
        self._check(tasks)
        own, identity = Scaler.fit(tasks), Scaler.identity(tasks.d, tasks.p)
        self.scaler_ = Scaler(identity.x_shift, identity.x_scale, own.y_shift, own.y_scale)
        scaled = self.scaler_.scale(tasks)
        if isinstance(self.held_out, Tasks):
            judge, training = self.scaler_.scale(self.held_out), scaled
        else:
            judge, training = scaled.split(self.held_out, self.seed)
        self.basis_ = self._basis(scaled)
        self._floor = max(self.noise_floor, rounding_variance(scaled))
        if len(training) > SOME and not on_one_grid(training):
            training = training.split(SOME / len(training), self.seed)[0]
        chosen, fit = self._choose(training, judge)
        if training is not scaled:
            designs = TaskDesigns.of(self.basis_, scaled)
            places = self._places(scaled, designs)
            with suppress(DataError):  # kinds that the training tasks determine may fall otherwise with all of them
                fit = self._fit(designs, places, chosen.kinds, chosen.rank)
        self.notes_ = fit.notes
        self._set(fit.models, fit.shares)
        self.trained_on_ = TrainedOn.of(tasks)
        return self

    def _choose(self, training: Tasks, judge: Tasks) -> tuple[TriedKinds, KindsFit]:
        """More and more kinds, as long as the evidence of held-out tasks rises."""
        designs, judged = TaskDesigns.of(self.basis_, training), TaskDesigns.of(self.basis_, judge)
        places = self._places(training, designs)
        label = self.progress if isinstance(self.progress, str) else "mixture"
        counts, ranks = self._counts(len(training)), self._ranks()
        self.tried_: list[TriedKinds] = []
        best: tuple[TriedKinds, KindsFit] | None = None
        with progress_bar(label, len(counts) * len(ranks), show=bool(self.progress)) as advance:
            for count in counts:
                found = []
                for rank in ranks:
                    try:
                        fit = self._fit(designs, places, count, rank)
                    except DataError:
                        if best is None:
                            raise
                        break  # a kind has too few tasks to tell every function of the basis: no more kinds than before
                    shares = torch.tensor(fit.shares, dtype=torch.float64).log()
                    log_joint = shares + kind_evidences(judged, fit.models)
                    found.append((TriedKinds(count, rank, float(log_joint.logsumexp(1).sum()) / judge.y.numel()), fit))
                    advance(f"{count} kinds of rank {rank}")
                self.tried_ += [tried for tried, _ in found]
                if len(found) < len(ranks):
                    break
                here = max(found, key=lambda pair: pair[0].held_out_evidence)
                if best is not None and here[0].held_out_evidence <= best[0].held_out_evidence:
                    break
                best, ranks = here, [rank for rank in self._ranks() if rank <= here[0].rank][-2:]
        assert best is not None
        return best

    def _fit(self, designs: TaskDesigns, places: Float[Tensor, "m r"], kinds: int, rank: int) -> KindsFit:
        return fit_kinds(designs, k_means(places, kinds, self.seed), rank, floor=self._floor)

    def predict(self, context: Tasks, at: Tasks) -> KindsPosterior:
        """The mixture of what each likely kind predicts, by how probable it is given the context."""
        self._check_fitted()
        given, points = self.scaler_.scale(context), self.scaler_.scale(at)
        log_joint = self._log_joint(given)
        total = log_joint.logsumexp(1)
        found = (log_joint - total[:, None]).sort(1, descending=True)  # each task's kinds, the most probable first
        asked = found.values > math.log(UNLIKELY)
        most = int(asked.sum(1).max())
        weights = torch.where(asked, found.values, -torch.inf)[:, :most]
        weights = weights - weights.logsumexp(1, keepdim=True)
        slots = [self._slot(given, points, at, found.indices[:, k], asked[:, k]) for k in range(most)]
        zero = torch.zeros_like(total)
        known = Evidence(total + self.scaler_.log_jacobian(given), zero, zero)
        return KindsPosterior(slots, weights, known, self, context)

    @torch.no_grad()
    def responsibilities(self, tasks: Tasks) -> Float[Tensor, "m c"]:
        """How probable each kind is for each task, given its points."""
        self._check_fitted()
        return torch.softmax(self._log_joint(self.scaler_.scale(tasks)), 1)

    @torch.no_grad()
    def evidence(self, tasks: Tasks) -> Float[Tensor, " m"]:
        """The evidence of each task: `log Σ_c π_c p(y | kind c)`."""
        self._check_fitted()
        scaled = self.scaler_.scale(tasks)
        return self._log_joint(scaled).logsumexp(1) + self.scaler_.log_jacobian(scaled)

    @torch.no_grad()
    def _log_joint(self, scaled: Tasks) -> Float[Tensor, "m c"]:
        shares = torch.tensor(self.shares_, dtype=torch.float64).log()
        return shares + torch.stack([found.total.detach() for found in evidences(self.priors_, scaled)], 1)

    def state(self) -> State:
        """Basis, kinds and shares, for a file."""
        self._check_fitted()
        structure = {
            "basis": self.basis_.described(),
            "noises": [model.noise.hex() for model in self.models_],
            "shares": [share.hex() for share in self.shares_],
            "notes": list(self.notes_),
        }
        tensors = {f"mean.{c}": model.mean for c, model in enumerate(self.models_)}
        tensors |= {f"loadings.{c}": model.loadings for c, model in enumerate(self.models_)}
        return State(self.kind, structure, tensors | self.scaler_.as_tensors())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted mixture again."""
        found = cls()
        found.basis_, found.scaler_ = described_basis(state.structure["basis"]), Scaler.from_tensors(state.tensors)
        found.notes_, found.tried_ = tuple(state.structure["notes"]), []
        shape = (found.basis_.size, len(found.scaler_.y_shift))
        models = [
            MixedEffects(state.tensor(f"mean.{c}", shape), state.tensor(f"loadings.{c}"), float.fromhex(noise))
            for c, noise in enumerate(state.structure["noises"])
        ]
        found._set(models, [float.fromhex(share) for share in state.structure["shares"]])
        return found

    def _slot(self, given: Tasks, points: Tasks, at: Tasks, chosen: Tensor, asked: Tensor) -> Predictive:
        """Each task that is asked under one kind, the one that is chosen for it."""
        parts = []
        for c in chosen[asked].unique().tolist():
            which = torch.nonzero((chosen == c) & asked)[:, 0]
            conditional = condition(self.priors_[c], given.select(which))
            posterior = conditional.at(points.select(which))
            parts.append((which, UserPosterior(posterior, at.select(which), self.scaler_)))
        return Gathered(at, parts)

    def _set(self, models: Sequence[MixedEffects], shares: Sequence[float]) -> None:
        self.models_, self.shares_ = list(models), list(shares)
        self.priors_ = [model.prior(self.basis_) for model in models]

    def _check(self, tasks: Tasks) -> None:
        if len(tasks) < 2 or int(tasks.sizes.max()) < 2:
            raise DataError("a mixture of priors needs two tasks or more, of two points or more.")
        for kinds in self._counts(len(tasks)):
            if not 1 <= kinds <= len(tasks):
                raise OptionError(f"{kinds} kinds: {len(tasks)} tasks can be of 1 to {len(tasks)}.")

    def _basis(self, tasks: Tasks) -> Basis:
        distinct = [len(column.unique()) for column in tasks.x.unbind(1)]
        most = min(distinct) if on_one_grid(tasks) else min(SIZE, *distinct)
        return make_basis("spline", tasks.x, self.size or most)

    def _counts(self, tasks: int) -> list[int]:
        if self.kinds is not None:
            return [self.kinds] if isinstance(self.kinds, int) else sorted(self.kinds)
        return [count for count in COUNTS if count == 1 or count * TASKS_PER_KIND <= tasks]

    def _ranks(self) -> list[int]:
        return [
            min(rank, self.basis_.size) for rank in ([self.rank] if isinstance(self.rank, int) else sorted(self.rank))
        ]

    def _places(self, tasks: Tasks, designs: TaskDesigns) -> Float[Tensor, "m r"]:
        """Where each task lies among the others: its scores under one prior for all, for the kinds to start from."""
        rank = min(16, self.basis_.size, len(tasks) - 1)
        model = fit_em(Designs.of(self.basis_, tasks), rank, floor=self._floor, tolerance=1e-3).model
        beta, W, noise = model
        M = noise * torch.eye(rank, dtype=torch.float64) + (designs.gram @ W).mT @ W
        scores = torch.linalg.solve(M, W.mT @ (designs.projected - designs.gram @ beta))
        scale = W.norm(dim=0).repeat_interleave(tasks.p)
        places: Tensor = scores.reshape(len(tasks), -1) * scale / max(float(scale.max()), math.ulp(1.0))
        return places

    def _check_fitted(self) -> None:
        if not hasattr(self, "models_"):
            raise NotFittedError("this mixture has learned nothing yet: call fit(tasks) first.")


@dataclass(frozen=True, eq=False)
class KindsPosterior(MixturePosterior):
    """The mixture over the kinds that a context leaves probable; a joint density is of all kinds."""

    method: Mixture | None = None
    given: Tasks | None = None

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: evidence of everything less evidence of the context.

        Many values together may be of a kind that the context had made improbable.
        """
        assert self.method is not None
        assert self.given is not None
        assert self.evidence is not None
        together = self.given.joined(replace(self.points, y=self.as_targets(y), columns=self.given.columns))
        return self.method.evidence(together) - self.evidence.total
