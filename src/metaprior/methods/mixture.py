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

from metaprior.errors import DataError, NumericalError, OptionError, numerical
from metaprior.files import State
from metaprior.inference import (
    Conditional,
    Evidence,
    Gathered,
    GaussianConditional,
    KeptMethod,
    MixturePosterior,
    Posterior,
    UserConditional,
    conditioned,
    evidences,
)
from metaprior.learning import Designs, KindsFit, MixedEffects, TaskDesigns, fit_em, fit_kinds, k_means, kind_evidences
from metaprior.priors import Basis, described_basis, make_basis
from metaprior.progress import progress_bar
from metaprior.splits import some_of, to_stop_by
from metaprior.tasks import Scaler, Tasks, TrainedOn, on_one_grid, rounding_variance

COUNTS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Numbers of kinds to choose from, as long as held-out evidence rises and there are tasks enough for each."""

TASKS_PER_KIND = 10

SIZE = 20
"""Basis functions per input where tasks share no grid; on a grid there are as many as points."""

SMALLER = (10, 5, 3)
"""Where so few tasks do not determine as many."""

SOME = 2_000
"""Tasks that numbers of kinds and ranks are compared on, where each has inputs of its own and costs its own time."""

UNLIKELY = 1e-5
"""A kind of less probability than this, given a task's context, has no say in its prediction."""


class TriedKinds(NamedTuple):
    """A number of kinds and a rank with the evidence per value of held-out tasks."""

    kinds: int
    rank: int
    held_out_evidence: float


class Mixture(KeptMethod):
    """Tasks of several kinds, each with a mean function and components of its own (functional PCA), learned by EM.

    Which kind a new task is of, its context says: prediction is the full mixture, by responsibilities. kinds: how many,
    or some numbers; where several are possible, the evidence of held-out tasks chooses. rank: components of each kind.
    size: functions of the basis per input. held_out: a share of the tasks, or other tasks.
    """

    saved_as = "mixture"
    fitted_as = "models_"
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
        self.scaler_ = Scaler.of_targets(tasks)
        scaled = self.scaler_.scale(tasks)
        others = self.scaler_.scale(self.held_out) if isinstance(self.held_out, Tasks) else self.held_out
        training, judge = to_stop_by(scaled, others, self.seed)
        self._floor = max(self.noise_floor, rounding_variance(scaled))
        if not on_one_grid(training):
            training = some_of(training, SOME, self.seed)
        chosen, fit = self._in_a_basis(scaled, training, judge)
        if training is not scaled:
            designs = TaskDesigns.of(self.basis_, scaled)
            places = self._places(scaled, designs)
            with suppress(
                DataError, NumericalError
            ):  # kinds that the training tasks determine may fall otherwise with all of them
                fit = self._fit(designs, places, chosen.kinds, chosen.rank)
        self.notes_ = fit.notes
        self._set(fit.models, fit.shares)
        self.trained_on_ = TrainedOn.of(tasks)
        if isinstance(self.held_out, Tasks):
            self.trained_on_ = self.trained_on_.and_of(self.held_out)
        return self

    def _in_a_basis(self, scaled: Tasks, training: Tasks, judge: Tasks) -> tuple[TriedKinds, KindsFit]:
        """The choice in as large a basis as so few tasks determine."""
        sizes = self._sizes(scaled)
        for size in sizes:
            self.basis_ = make_basis("spline", scaled.x, size)
            try:
                return self._choose(training, judge)
            except (DataError, NumericalError):
                if size == sizes[-1]:
                    raise
        raise AssertionError  # there is one size or more

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
                    except (DataError, NumericalError):
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

    def condition(self, context: Tasks) -> KindsConditional:
        """Each task under every kind, by how probable that is given the context."""
        self._check_fitted()
        return KindsConditional(self, context)

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
        return State(self.saved_as, structure, tensors | self.scaler_.as_tensors())

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

    def _set(self, models: Sequence[MixedEffects], shares: Sequence[float]) -> None:
        self.models_, self.shares_ = list(models), list(shares)
        self.priors_ = [model.prior(self.basis_) for model in models]

    def _check(self, tasks: Tasks) -> None:
        least = 2 if isinstance(self.held_out, Tasks) else 3  # of which one is set aside
        if len(tasks) < least or int(tasks.sizes.max()) < 2:
            raise DataError(f"a mixture of priors needs {least} tasks or more, of two points or more.")
        for kinds in self._counts(len(tasks)):
            if not 1 <= kinds <= len(tasks):
                raise OptionError(f"{kinds} kinds: {len(tasks)} tasks can be of 1 to {len(tasks)}.")

    def _sizes(self, tasks: Tasks) -> list[int]:
        """Numbers of basis functions per input, the largest first: fewer where tasks do not determine them."""
        if self.size is not None:
            return [self.size]
        distinct = [len(column.unique()) for column in tasks.x.unbind(1)]
        if on_one_grid(tasks):
            return [min(distinct)]
        most = min(SIZE, *distinct)
        return [most, *(size for size in SMALLER if size < most)]

    def _counts(self, tasks: int) -> list[int]:
        if self.kinds is not None:
            return [self.kinds] if isinstance(self.kinds, int) else sorted(self.kinds)
        return [count for count in COUNTS if count == 1 or count * TASKS_PER_KIND <= tasks]

    def _ranks(self) -> list[int]:
        return [
            min(rank, self.basis_.size) for rank in ([self.rank] if isinstance(self.rank, int) else sorted(self.rank))
        ]

    @numerical("where the tasks lie among each other")
    def _places(self, tasks: Tasks, designs: TaskDesigns) -> Float[Tensor, "m r"]:
        """Where each task lies among the others: its scores under one prior for all, for the kinds to start from."""
        rank = min(16, self.basis_.size, len(tasks) - 1)
        model = fit_em(Designs.of(self.basis_, tasks), rank, floor=self._floor, tolerance=1e-3).model
        scores, scale = designs.scores(model), model.loadings.norm(dim=0).repeat_interleave(tasks.p)
        places: Tensor = scores.reshape(len(tasks), -1) * scale / max(float(scale.max()), math.ulp(1.0))
        return places


class KindsConditional(Conditional["KindsPosterior"]):
    """Tasks under every kind, each context factored once for each. Only likely kinds have a say in predictions."""

    @torch.no_grad()
    def __init__(self, method: Mixture, context: Tasks) -> None:
        self.method, self.context = method, context
        given = method.scaler_.scale(context)
        kinds = conditioned(method.priors_, given)
        shares = torch.tensor(method.shares_, dtype=torch.float64).log()
        log_joint = shares + torch.stack([kind.evidence.total for kind in kinds], 1)
        total = log_joint.logsumexp(1)
        self.total = total + method.scaler_.log_jacobian(given)
        ranked = (log_joint - total[:, None]).sort(1, descending=True)  # each task's kinds, the most probable first
        asked = ranked.values > math.log(UNLIKELY)
        most = int(asked.sum(1).max())
        weights = torch.where(asked, ranked.values, -torch.inf)[:, :most]
        self.log_weights = weights - weights.logsumexp(1, keepdim=True)
        self.places = [_place(kinds, ranked.indices[:, k], asked[:, k]) for k in range(most)]

    @property
    def evidence(self) -> Evidence:
        """The evidence of each task's context: `log Σ_c π_c p(y | kind c)`."""
        return Evidence.of_total(self.total)

    def posterior(self, points: Tasks) -> KindsPosterior:
        """The mixture of what each likely kind says at these points."""
        return KindsPosterior(
            [self._gathered(place, points) for place in self.places], self.log_weights, self.evidence, self
        )

    def _gathered(self, place: Sequence[tuple[Tensor, GaussianConditional]], points: Tasks) -> Posterior:
        scaler = self.method.scaler_
        parts: list[tuple[Tensor, Posterior]] = []
        for which, kind in place:
            inside = UserConditional(kind, scaler, self.context.select(which))
            parts.append((which, inside.posterior(points.select(which))))
        return Gathered(points, parts)


def _place(
    kinds: Sequence[GaussianConditional], chosen: Tensor, asked: Tensor
) -> list[tuple[Tensor, GaussianConditional]]:
    """Each task that has a kind at some place in its order, under that kind."""
    found = []
    for c in chosen[asked].unique().tolist():
        which = torch.nonzero((chosen == c) & asked)[:, 0]
        found.append((which, kinds[c].select(which)))
    return found


@dataclass(frozen=True, eq=False)
class KindsPosterior(MixturePosterior):
    """The mixture over the kinds that a context leaves probable; a joint density is of all kinds."""

    conditional: KindsConditional | None = None

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: evidence of everything less evidence of the context.

        Many values together may be of a kind that the context had made improbable.
        """
        assert self.conditional is not None
        given = self.conditional.context
        together = given.joined(replace(self.points, y=self.as_targets(y), columns=given.columns))
        return self.conditional.method.evidence(together) - self.conditional.total
