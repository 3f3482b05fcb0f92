"""A mixture of priors, for tasks that come in kinds: `p(f) = Σ_c π_c GP(m_c, k_c)`, learned without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import DataError, NumericalError, OptionError, numerical
from metaprior.files import State
from metaprior.inference import KeptMethod, check_fits, evidences
from metaprior.learning import AnyDesigns, GridDesigns, GridKind, KindsEM, KindsFit, MixedEffects, designs_of, k_means
from metaprior.methods.kinds import KindsConditional
from metaprior.options import Parameters
from metaprior.priors import AtPoints, Basis, described_basis, make_basis
from metaprior.progress import progress_bar
from metaprior.splits import some_of, to_stop_by
from metaprior.tasks import Inputs, Scaler, SharedInputs, Tasks, TrainedOn, batches, on_one_grid, rounding_variance

COUNTS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Numbers of kinds to choose from, as long as held-out evidence rises and there are tasks enough for each."""

TASKS_PER_KIND = 10

SIZES = (3, 5, 10, 20)
"""Basis functions per input to choose from where tasks share no grid; on a grid there are as many as points."""

SOME = 1_000
"""Tasks that numbers of kinds and ranks are compared on, where each has inputs of its own and costs its own time."""

BRIEF, ROUNDS = 4, 15
"""Rounds of EM after which candidates are first compared, where there are more tasks than that, and in all."""

CLEARLY = 2.0
"""Standard errors of the difference between two candidates, over the held-out tasks, from which on it is clear."""


class TriedKinds(NamedTuple):
    """A number of kinds and a rank with the evidence per value of held-out tasks."""

    kinds: int
    rank: int
    held_out_evidence: float


class Mixture(Parameters, KeptMethod):
    """Tasks of several kinds, each with a mean function and components of its own (functional PCA), learned by EM.

    Which kind a new task is of, its context says: prediction is the full mixture, by responsibilities. kinds: how many,
    or some numbers; where several are possible, the evidence of held-out tasks chooses. rank: components of each kind.
    size: functions of the basis per input; by default chosen too, unless tasks share a grid. held_out: a share of the
    tasks, or other tasks.
    """

    saved_as = "mixture"
    fitted_as = "models_"
    scaler_: Scaler
    basis_: Basis
    _said: tuple[Tensor, list[AtPoints]] | None = None

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
        """Choose the basis, the number of kinds and the rank, then learn the kinds from all tasks."""
        self._check(tasks)
        self.scaler_ = Scaler.of_targets(tasks)
        scaled = self.scaler_.scale(tasks)
        others = self.scaler_.scale(self.held_out) if isinstance(self.held_out, Tasks) else self.held_out
        training, judge = to_stop_by(scaled, others, self.seed)
        self._floor = max(self.noise_floor, rounding_variance(scaled))
        sized = self.size is not None or on_one_grid(scaled)
        if sized and isinstance(self.kinds, int) and isinstance(self.rank, int):  # nothing is left to choose
            training = scaled
        elif not on_one_grid(training):
            training = some_of(training, SOME, self.seed)
        chosen, fit = self._in_a_basis(scaled, training, judge)
        if training is not scaled:
            with suppress(
                DataError, NumericalError
            ):  # kinds that the training tasks determine may fall otherwise with all of them
                designs = designs_of(self.basis_, scaled, self._floor)
                start = k_means(self._places(designs), chosen.kinds, self.seed)
                fit = KindsEM(designs, start, chosen.rank, self._floor).advance(ROUNDS).fit
        self.notes_ = fit.notes
        self._set(fit.models, fit.shares)
        self.trained_on_ = TrainedOn.of(tasks)
        if isinstance(self.held_out, Tasks):
            self.trained_on_ = self.trained_on_.and_of(self.held_out)
        return self

    def fit_from(self, earlier: Self, tasks: Tasks) -> Self:
        """Fit with as many kinds and components as some of the tasks have chosen; far more may have more kinds."""
        chosen = max(earlier.tried_, key=lambda one: one.held_out_evidence)
        if not on_one_grid(tasks):
            self.size = self.size or earlier.size_
        more = [count for count in COUNTS if count > chosen.kinds and count * TASKS_PER_KIND <= len(tasks)]
        many = len(tasks) > 2 * earlier.trained_on_.tasks  # of which there may be more kinds
        self.kinds, self.rank = [chosen.kinds, *more] if many else chosen.kinds, chosen.rank
        return self.fit(tasks)

    def _in_a_basis(self, scaled: Tasks, training: Tasks, judge: Tasks) -> tuple[TriedKinds, KindsFit]:
        """The choice in the basis that serves best for tasks of one kind: larger ones as long as they gain."""
        x = scaled.x[: int(scaled.sizes[0])] if on_one_grid(scaled) else scaled.x  # the others are at the same places
        sizes, best = self._sizes(scaled, x), None
        for size in sizes:
            try:
                here = _InBasis(size, make_basis("spline", x, size), training, judge, self._floor)
                if len(sizes) > 1:
                    here.tried = self._ranked(here, 1, torch.ones(len(training), 1, dtype=torch.float64))
            except (DataError, NumericalError):
                if best is None:
                    raise
                break  # more functions than the tasks determine
            if best is not None and here.best <= best.best:
                break
            best = here
        assert best is not None
        self.size_, self.basis_ = best.size, best.basis
        return self._choose(best)

    def _ranked(
        self, here: _InBasis, kinds: int, start: Float[Tensor, "m c"], most: int | None = None
    ) -> list[_Candidate]:
        """So many kinds of rising rank, until held-out evidence falls; of the last two ranks up to a most, if given."""
        ranks = sorted({min(rank, here.basis.size) for rank in self._ranks})
        found: list[_Candidate] = []
        for rank in ranks if most is None else [rank for rank in ranks if rank <= most][-2:]:
            one = _Candidate(kinds, rank, KindsEM(here.designs, start, rank, self._floor), here.judged)
            found.append(one.advanced(BRIEF if len(here.designs) > SOME else ROUNDS))
            if _falling(found):
                break  # higher ranks would take the longest
        return found

    def _choose(self, here: _InBasis) -> tuple[TriedKinds, KindsFit]:
        """More and more kinds, as long as the evidence of held-out tasks rises.

        Where there are many tasks, a few rounds tell which candidates cannot win.
        """
        places, counts = self._places(here.designs), self._counts(len(here.designs))
        label = self.progress if isinstance(self.progress, str) else "mixture"
        tried: list[_Candidate] = []
        best: _Candidate | None = None
        with progress_bar(label, len(counts), show=bool(self.progress)) as advance:
            for count in counts:
                try:
                    if count == 1 and here.tried:
                        found = here.tried
                    else:
                        start = k_means(places, count, self.seed)
                        found = self._ranked(here, count, start, None if best is None else best.rank)
                except (DataError, NumericalError):
                    if best is None:
                        raise
                    break  # a kind has too few tasks to tell every function of the basis: no more kinds than before
                advance(f"{count} kinds")
                tried += found
                top = max(found, key=lambda one: one.mean)
                if best is not None and top.mean <= best.mean:
                    break
                best = top
        chosen = _best_of(tried)
        self.tried_ = [TriedKinds(one.kinds, one.rank, one.mean) for one in tried]
        return TriedKinds(chosen.kinds, chosen.rank, chosen.mean), chosen.em.fit

    def condition(self, context: Tasks) -> KindsConditional:
        """Each task under every kind, by how probable that is given the context."""
        self._check_fitted()
        return KindsConditional(self, context)

    def at_each(self, x: Float[Tensor, "u d"]) -> list[AtPoints]:
        """What each kind says of each point: the basis is evaluated once for all, and not again for the same points."""
        said = self._said  # one look: another thread may ask about other points meanwhile
        if said is not None and torch.equal(said[0], x):
            return said[1]
        B, p = self.basis_(x), len(self.scaler_.y_shift)
        columns = [torch.cat([model.mean, model.loadings], 1) for model in self.models_]
        values = (B @ torch.cat(columns, 1)).split([part.shape[1] for part in columns], 1)
        found = [
            AtPoints(part[:, :p].contiguous(), part.new_full((len(x),), model.noise), part[:, p:].contiguous())
            for part, model in zip(values, self.models_, strict=True)
        ]
        self._said = x, found
        return found

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
        check_fits(self.priors_[0], scaled)
        first, *others = batches(scaled)
        if isinstance(first, SharedInputs) and not others:  # a lone group holds its tasks in their order
            return shares + GridDesigns.of_values(first.y).evidences(self._on_grid(first.inputs))
        return shares + torch.stack([found.total.detach() for found in evidences(self.priors_, scaled)], 1)

    def _on_grid(self, inputs: Inputs) -> list[GridKind]:
        said = [one.gather(inputs.index[0]) for one in self.at_each(inputs.distinct)]
        kinds = zip(said, self.models_, strict=True)
        return [GridKind(one.mean, one.features, model.noise, None) for one, model in kinds]

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
        self._said = None
        self.priors_ = [model.prior(self.basis_) for model in models]

    def _check(self, tasks: Tasks) -> None:
        least = 2 if isinstance(self.held_out, Tasks) else 3  # of which one is set aside
        if len(tasks) < least or int(tasks.sizes.max()) < 2:
            raise DataError(f"a mixture of priors needs {least} tasks or more, of two points or more.")
        for kinds in self._counts(len(tasks)):
            if not 1 <= kinds <= len(tasks):
                raise OptionError(f"{kinds} kinds: {len(tasks)} tasks can be of 1 to {len(tasks)}.")

    def _sizes(self, tasks: Tasks, x: Float[Tensor, "n d"]) -> list[int]:
        """Numbers of basis functions per input, the smallest first."""
        if self.size is not None:
            return [self.size]
        most = min(len(column.unique()) for column in x.unbind(1))
        if on_one_grid(tasks):
            return [most]
        return [*(size for size in SIZES if size < most), *([most] if most <= SIZES[-1] else [])]

    def _counts(self, tasks: int) -> list[int]:
        if self.kinds is not None:
            return [self.kinds] if isinstance(self.kinds, int) else sorted(self.kinds)
        return [count for count in COUNTS if count == 1 or count * TASKS_PER_KIND <= tasks]

    @property
    def _ranks(self) -> Sequence[int]:
        return [self.rank] if isinstance(self.rank, int) else self.rank

    @numerical("where the tasks lie among each other")
    def _places(self, designs: AnyDesigns) -> Float[Tensor, "m r"]:
        """Where each task lies among the others: its scores under one prior for all, for the kinds to start from."""
        scores, loadings = designs.scores(min(16, self.basis_.size, len(designs) - 1), self._floor)
        scale = loadings.norm(dim=0).repeat_interleave(scores.shape[2])
        places: Tensor = scores.reshape(len(designs), -1) * scale / max(float(scale.max()), math.ulp(1.0))
        return places


class _InBasis:
    """What tasks say of models in a basis, those to learn from and those to judge by; and models of one kind there."""

    def __init__(self, size: int, basis: Basis, training: Tasks, judge: Tasks, floor: float) -> None:
        self.size, self.basis = size, basis
        self.designs, self.judged = (designs_of(basis, tasks, floor) for tasks in (training, judge))
        self.tried: list[_Candidate] = []

    @property
    def best(self) -> float:
        """The highest held-out evidence of one kind."""
        return max((one.mean for one in self.tried), default=-math.inf)


class _Candidate:
    """A number of kinds and a rank on the way, with the evidence of each held-out task so far."""

    def __init__(self, kinds: int, rank: int, em: KindsEM, judged: AnyDesigns) -> None:
        self.kinds, self.rank, self.em, self.judged = kinds, rank, em, judged

    def advanced(self, rounds: int) -> Self:
        """The same after so many rounds in all."""
        fit = self.em.advance(rounds).fit
        shares = torch.tensor(fit.shares, dtype=torch.float64).log()
        self.evidence = (shares + self.judged.evidences(fit.models)).logsumexp(1)
        self.mean = float(self.evidence.sum()) / self.judged.values
        return self

    def cannot_win(self, best: _Candidate) -> bool:
        """Whether held-out tasks say clearly that another is better."""
        gap = best.evidence - self.evidence
        error = float(gap.std()) / math.sqrt(len(gap)) if len(gap) > 1 else math.inf
        return float(gap.mean()) > CLEARLY * error


def _falling(found: Sequence[_Candidate]) -> bool:
    """Whether held-out evidence has fallen twice, from rank to rank."""
    last = [one.mean for one in found[-3:]]
    return len(last) == 3 and last[0] > last[1] > last[2]


def _best_of(tried: Sequence[_Candidate]) -> _Candidate:
    """The best when all who can win have come to their end."""
    first, *others = sorted(tried, key=lambda one: -one.mean)
    brief = copy(first)  # what it says now is what the others are compared with
    ended: list[_Candidate] = []
    failed: list[Exception] = []
    for one in (first, *others):
        if ended and one.cannot_win(brief):
            continue
        try:
            ended.append(one.advanced(ROUNDS))
        except (DataError, NumericalError) as error:  # it was determined for a while
            failed.append(error)
    if not ended:
        raise failed[0]
    return max(ended, key=lambda one: one.mean)
