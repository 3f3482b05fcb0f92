"""The one contract of posteriors: what every method answers at points of some tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.arrays import writable
from metaprior.errors import DataError, OptionError
from metaprior.inference.evidence import Evidence
from metaprior.inference.normal import normal_cdf
from metaprior.tasks import Tasks

LEGENDRE = 64
"""Probabilities at which a ranked probability score is integrated."""

PANELS = (0.0, 0.6744897501960817, 1.2815515655446004, 1.6448536269514722, 2.1700903775845606, 3.5, 5.5, 8.2)
"""Normal scores between which moments are integrated, on either side: a recalibrated distribution has kinks there."""

IN_A_PANEL = 4
"""Nodes in each of them."""

AT_ONCE = 200_000
"""Values that nodes are asked for together: what is made of them stays in the cache …"""

ON_GPU = 50_000_000
"""… which a GPU does not need: there it is the calls that cost."""


class Interval(NamedTuple):
    """The bounds of a central interval at each point."""

    lower: Float[Tensor, "N p"]
    upper: Float[Tensor, "N p"]


class Posterior(ABC):
    """At the rows of some points, each value with a distribution of its own; and all values of a task together.

    Everything that it answers is of one distribution: `quantiles` invert the `cdf`, `mean` and `sd` are its moments,
    `samples` are drawn from it. Nobody computes bounds from mean and sd: a mixture, a warp or a recalibrated posterior
    has others.
    """

    points: Tasks
    mean: Float[Tensor, "N p"]

    is_gaussian: bool = False
    """Whether each value on its own is Gaussian, so that mean and sd say everything about it."""

    evidence: Evidence | None = None
    """The evidence of each task's context, where the method has one."""

    jitter: float = 0.0
    """The largest jitter that a factorisation needed so far, relative to its scale: 0 if none failed without."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of points and of outputs."""
        N, p = self.mean.shape
        return N, p

    @property
    def device(self) -> torch.device:
        """Where its answers lie, and where what it is asked has to lie; targets may be anywhere."""
        return self.mean.device

    @property
    @abstractmethod
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""

    @property
    @abstractmethod
    def function(self) -> Posterior:
        """The same for the function: without observation noise, where the method tells the two apart."""

    @abstractmethod
    def cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point."""

    @abstractmethod
    def inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u, between 0 and 1, below it, at each point; u may be one for all of them."""

    @abstractmethod
    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""

    @abstractmethod
    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""

    @abstractmethod
    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together; different tasks are independent."""

    def covariances(self) -> list[Float[Tensor, "p n n"]] | None:
        """Each task's full covariance at its points, for each output; None where it has no closed form."""
        return None

    def quantiles(self, probabilities: Sequence[float]) -> Float[Tensor, "k N p"]:
        """The values below which each point lies with these probabilities."""
        return self.inverse_cdf(checked_probabilities(probabilities)[:, None, None].to(self.device))

    def interval(self, level: float = 0.9) -> Interval:
        """The central interval that holds a value with this probability."""
        if not 0 < level < 1:
            raise OptionError(f"level={level} must lie between 0 and 1.")
        lower, upper = self.quantiles([(1 - level) / 2, (1 + level) / 2])
        return Interval(lower, upper)

    def between(self, u: Float[Tensor, "*k #N #p"]) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
        """Values that the one which has probability u below it lies between: where it takes a search, known without."""
        found = self.inverse_cdf(u)
        return found, found

    def crps(self, y: Any) -> Float[Tensor, "N p"]:
        """Continuous ranked probability score of each value: an error in y's units, for the whole distribution.

        It is twice the pinball loss, averaged over all probabilities.
        """
        values = self.as_targets(y)
        total = torch.zeros_like(values)
        probabilities, weights = np.polynomial.legendre.leggauss(LEGENDRE)
        for probability, weight in zip(((probabilities + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
            gap = values - self.quantiles([probability])[0]
            total += 2 * weight * torch.maximum(probability * gap, (probability - 1) * gap)
        return total

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights, at each point, that stand for the distribution: sums over them are expectations."""
        for probabilities, weights in rule.some():
            yield self.inverse_cdf(probabilities[:, None, None]), weights[:, None, None]

    def as_targets(self, y: Any) -> Float[Tensor, "N p"]:
        """Values of y, one row per point, as a tensor of the mean's shape."""
        values = torch.as_tensor(writable(y), dtype=torch.float64).to(self.device)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != self.shape:
            raise DataError(
                f"y has shape {tuple(values.shape)}, but the posterior has {self.shape}; "
                "give one value per point and output."
            )
        if not bool(torch.isfinite(values).all()):
            raise DataError("NaN or infinity in y: a density is of finite values.")
        return values


@dataclass(frozen=True, eq=False)
class Around(Posterior):
    """A posterior that answers by another one, at the same points and from the same contexts."""

    posterior: Posterior

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.posterior.points

    @property
    def shape(self) -> tuple[int, int]:
        return self.posterior.shape

    @property
    def device(self) -> torch.device:
        return self.posterior.device

    @property
    def evidence(self) -> Evidence | None:  # type: ignore[override]
        """The evidence of each task's context, where the method has one."""
        return self.posterior.evidence

    @property
    def jitter(self) -> float:  # type: ignore[override]
        return self.posterior.jitter


def checked_probabilities(probabilities: Sequence[float]) -> Float[Tensor, " k"]:
    """Probabilities as a tensor, if they are some."""
    wanted = torch.as_tensor(probabilities, dtype=torch.float64)
    if wanted.ndim != 1 or not bool(((wanted > 0) & (wanted < 1)).all()):
        raise OptionError(f"probabilities {probabilities}: give a list of numbers between 0 and 1.")
    return wanted


Weighed = tuple[Float[Tensor, "k N p"], Float[Tensor, "k #N #p"]]
"""Some values at each point, and their weights."""


class Nodes(NamedTuple):
    """Probabilities at which a distribution is asked, and their weights in an expectation. at_once: how many."""

    probabilities: Float[Tensor, " k"]
    weights: Float[Tensor, " k"]
    at_once: int

    @staticmethod
    def of(posterior: Posterior, scores: Sequence[float] | None = None) -> Nodes:
        """Those of an expectation, panel by panel of normal scores, or at these scores; at once what fits the cache."""
        N, p = posterior.shape
        most = AT_ONCE if posterior.device.type == "cpu" else ON_GPU
        at_once = max(most // max(N * p, 1), 1)
        if scores is None:
            probabilities, weights = (part.to(posterior.device) for part in normal_nodes())
            return Nodes(probabilities, weights, at_once)
        probabilities = normal_cdf(torch.tensor(scores, dtype=torch.float64, device=posterior.device))
        return Nodes(probabilities, torch.ones_like(probabilities), at_once)

    def some(self) -> Iterator[tuple[Float[Tensor, " k"], Float[Tensor, " k"]]]:
        """Probabilities and their weights, some at a time."""
        return zip(self.probabilities.split(self.at_once), self.weights.split(self.at_once), strict=True)


def moments(
    nodes: Iterable[Weighed], around: Float[Tensor, "N p"]
) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
    """Mean and standard deviation from values with weights. around: some value of each, so that no digits are lost."""
    unit, total, first, second = (torch.zeros_like(around) for _ in range(4))
    for values, weights in nodes:
        gaps = values - around
        unit = torch.where(unit > 0, unit, gaps.abs().amax(0))  # squares of very small values would vanish
        gaps = gaps / torch.where(unit > 0, unit, 1.0)
        total, first = total + weights.sum(0), first + (weights * gaps).sum(0)
        second = second + (weights * gaps.square()).sum(0)
    shift = first / total
    return around + unit * shift, unit * (second / total - shift.square()).clamp(min=0.0).sqrt()


@cache
def normal_nodes() -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Probabilities and weights of an expectation over a distribution."""
    nodes, weights = np.polynomial.legendre.leggauss(IN_A_PANEL)
    low, high = np.array(PANELS[:-1])[:, None], np.array(PANELS[1:])[:, None]
    z = ((low + high) / 2 + (high - low) / 2 * nodes).ravel()
    share = ((high - low) / 2 * weights).ravel() * np.exp(-0.5 * z**2)
    both = torch.from_numpy(np.concatenate([-z, z]))
    half = torch.from_numpy(share / share.sum() / 2)
    return normal_cdf(both), torch.cat([half, half])
