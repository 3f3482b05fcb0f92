"""Tasks of several kinds, given some of their points: which kind each may be of, and what those kinds say together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.inference import (
    Conditional,
    Evidence,
    Gathered,
    GaussianConditional,
    GaussianPosterior,
    IndependentGaussians,
    MixturePosterior,
    Posterior,
    UserPosterior,
    conditioned,
)
from metaprior.tasks import Inputs, Tasks

if TYPE_CHECKING:  # whose conditional it is
    from metaprior.methods.mixture import Mixture

UNLIKELY = 1e-5
"""A kind of less probability than this, given a task's context, has no say in its prediction."""


class KindsConditional(Conditional["KindsPosterior"]):
    """Tasks under every kind, each context factored once for each. Only likely kinds have a say in predictions."""

    @torch.no_grad()
    def __init__(self, method: Mixture, context: Tasks) -> None:
        self.method, self.context = method, context
        given = method.scaler_.scale(context)
        kinds = conditioned(method.priors_, given, method.at_each)
        shares = torch.tensor(method.shares_, dtype=torch.float64, device=kinds[0].device).log()
        log_joint = shares + torch.stack([kind.evidence.total for kind in kinds], 1)
        total = log_joint.logsumexp(1)
        self.total = total + method.scaler_.log_jacobian(given).to(total)
        ranked = (log_joint - total[:, None]).sort(1, descending=True)  # each task's kinds, the most probable first
        asked = ranked.values > math.log(UNLIKELY)
        most = int(asked.sum(1).max())
        weights = torch.where(asked, ranked.values, -torch.inf)[:, :most]
        self.log_weights = weights - weights.logsumexp(1, keepdim=True)
        self.order = torch.where(asked, ranked.indices, -1)[:, :most].cpu()  # −1 where no further kind has a say
        self.kinds = {c: self._of_kind(kinds[c], c) for c in self.order.unique().tolist() if c >= 0}

    def _of_kind(self, kind: GaussianConditional, c: int) -> tuple[Tensor, GaussianConditional]:
        """The tasks that may be of a kind, under it."""
        who = torch.nonzero((self.order == c).any(1))[:, 0]
        return who, kind.select(who)

    @property
    def device(self) -> torch.device:
        return self.total.device

    @property
    def evidence(self) -> Evidence:
        """The evidence of each task's context: `log Σ_c π_c p(y | kind c)`."""
        return Evidence.of_total(self.total)

    @torch.no_grad()
    def posterior(self, points: Tasks) -> KindsPosterior:
        """The mixture of what each likely kind says at these points."""
        scaled = self.method.scaler_.scale(points)
        known = Inputs.of_rows(scaled)
        said = self.method.at_each(known.distinct)
        answers = {}
        for c, (who, kind) in self.kinds.items():
            theirs = Inputs(known.distinct, known.index[scaled.rows_of(who)])
            answers[c] = kind.posterior(scaled.select(who), theirs, said[c])
        places = _Places(self, points, answers)
        return KindsPosterior(places, self.log_weights, self.evidence, self, places.moments())


class _Places(Sequence[Posterior]):
    """What each task's most probable kind says, then the next: put together where more is asked than its moments."""

    def __init__(self, given: KindsConditional, points: Tasks, answers: Mapping[int, GaussianPosterior]) -> None:
        self.given, self.points, self.answers = given, points, answers
        self._found: dict[int, Posterior] = {}

    def __len__(self) -> int:
        return self.given.order.shape[1]

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < len(self):
            raise IndexError(k)
        if k not in self._found:
            self._found[k] = self._place(k)
        return self._found[k]

    def _place(self, k: int) -> Posterior:
        scaler, parts = self.given.method.scaler_, []
        for c, (who, _) in self.given.kinds.items():
            here = torch.nonzero(self.given.order[who, k] == c)[:, 0]
            if len(here):
                some = self.answers[c].select(here)
                evidence = some.evidence.shifted(scaler.log_jacobian(some.conditional.context))
                parts.append((who[here], UserPosterior(some, self.points.select(who[here]), scaler, evidence)))
        return Gathered(self.points, parts)

    def moments(self) -> list[IndependentGaussians]:
        """Mean and deviation at each place, in the user's units; 0 and 1 where no further kind has a say."""
        rows, p = len(self.points.x), self.given.context.p
        means = torch.zeros(len(self), rows, p, dtype=torch.float64, device=self.given.device)
        sds, scaler, task_of_row = torch.ones_like(means), self.given.method.scaler_, self.points.task_of_row
        for c, (who, _) in self.given.kinds.items():
            own = self.points.rows_of(who)
            mean, sd = scaler.unscale_mean(self.answers[c].mean), scaler.unscale_sd(self.answers[c].sd)
            at, place = torch.nonzero(self.given.order[task_of_row[own]] == c, as_tuple=True)
            rows_of = own.to(means.device)
            at, place = at.to(means.device), place.to(means.device)
            means[place, rows_of[at]], sds[place, rows_of[at]] = mean[at], sd[at]
        return [IndependentGaussians(self.points, *each) for each in zip(means, sds, strict=True)]


@dataclass(frozen=True, eq=False)
class KindsPosterior(MixturePosterior):
    """The mixture over the kinds that a context leaves probable; a joint density is of all kinds."""

    conditional: KindsConditional | None = None
    moments: Sequence[IndependentGaussians] = ()

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.moments[0].points

    @property
    def shape(self) -> tuple[int, int]:
        return self.moments[0].shape

    def marginals(self, c: int) -> Posterior:
        """What a component says of each value on its own."""
        return self.moments[c]

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together: evidence of everything less evidence of the context.

        Many values together may be of a kind that the context had made improbable.
        """
        assert self.conditional is not None
        given = self.conditional.context
        together = given.joined(replace(self.points, y=self.as_targets(y).cpu(), columns=given.columns))
        return self.conditional.method.evidence(together) - self.conditional.total
