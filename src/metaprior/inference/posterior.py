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

from metaprior.errors import DataError, OptionError
from metaprior.inference.crps import integrated_crps
from metaprior.inference.evidence import Evidence
from metaprior.inference.normal import normal_cdf, normal_score
from metaprior.tasks import Tasks

FINE_EDGES = tuple(0.25 * k for k in range(-32, 33))
EDGES = FINE_EDGES[::2]
"""Normal scores of a distribution's parts, between whose values its quantiles are interpolated."""

PANELS = (0.0, 0.6744897501960817, 1.2815515655446004, 1.6448536269514722, 2.1700903775845606, 3.5, 5.5, 8.2)
"""Normal scores between which moments are integrated, on either side: a recalibrated distribution has kinks there."""

IN_A_PANEL = 4
"""Nodes in each of them."""

NARROW = 1e-4
"""Relative difference of two probabilities up to which what lies between them is a density times a width.

There the difference has lost four digits, and the middle of the step stands for it with an error of 1e-9."""

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

    def cdf(self, y: Any) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point.

        Args:
            y: one number for all points, one value per point (a list or an array), or values of shape `[…, N, p]`.
        """
        return self._cdf(self._values(y, "y"))

    def inverse_cdf(self, u: Any) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point.

        Args:
            u: one probability for all points, one per point (a list or an array), or values of shape `[…, N, p]`.
        """
        probabilities = self._at_each_point(u, "u")
        if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
            raise OptionError("probabilities u must lie between 0 and 1.")
        return self._inverse_cdf(probabilities)

    @abstractmethod
    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """`cdf` of a tensor."""

    @abstractmethod
    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """`inverse_cdf` of a tensor, which may hold one probability for all points or outputs."""

    def log_cdf(self, y: Any) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point: exact however far y is below the median.

        Args:
            y: as in `cdf`.
        """
        return self._log_cdf(self._values(y, "y"))

    def log_sf(self, y: Any) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point: exact however far y is above the median.

        Args:
            y: as in `cdf`.
        """
        return self._log_sf(self._values(y, "y"))

    def log_interval_probability(self, lower: Any, upper: Any) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above `lower` and up to `upper`, at each point, in both tails.

        Args:
            lower: as y in `cdf`.
            upper: of the same shape.
        """
        return self._log_interval_probability(self._values(lower, "lower"), self._values(upper, "upper"))

    def normal_score(self, y: Any) -> Float[Tensor, "*k N p"]:
        """`Φ⁻¹(F(y))`, at each point, from the probability on either side that has the digits.

        Args:
            y: as in `cdf`.
        """
        values = self._values(y, "y")
        return normal_score(self._log_cdf(values), self._log_sf(values))

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """`log_cdf` of a tensor."""
        return self._cdf(y).log()

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """`log_sf` of a tensor."""
        return torch.log1p(-self._cdf(y))

    def _log_interval_probability(
        self, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
    ) -> Float[Tensor, "*k N p"]:
        """`log_interval_probability` of tensors.

        It is a difference of probabilities in the tail where these are small. Where the two agree in most digits, it is
        the density in the middle times the width.
        """
        found, gap = log_difference(self, lower, upper)
        narrow = (gap > -NARROW) & lower.isfinite() & upper.isfinite()
        if bool(narrow.any()):
            middle = torch.where(narrow, lower + (upper - lower) / 2, 0.0)
            density = torch.stack([self.log_density(each) for each in middle.reshape(-1, *self.shape)])
            found = torch.where(narrow, density.view_as(found) + (upper - lower).log(), found)
        return found

    def log_recorded_density(self, y: Any, steps: Float[Tensor, " p"] | None = None) -> Float[Tensor, "N p"]:
        """Log density of values as they were recorded: the mean over the step that was rounded to each of them.

        A value that repeats has a density without bound under a prior that is sure of it: it would decide alone.

        Args:
            y: the values.
            steps: the step in which each target was recorded; None or 0 where it was not rounded.
        """
        density = self.log_density(y)
        if steps is None or not bool((steps > 0).any()):
            return density
        values, steps = self.as_targets(y), steps.to(density)
        rounded, step = steps > 0, torch.where(steps > 0, steps, 1.0)
        mass = self.log_interval_probability(values - step / 2, values + step / 2)
        return torch.where(rounded, mass - step.log(), density)

    def pit_interval(self, y: Any) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
        """The probabilities of a value below y and up to y: they differ where y has a probability of its own."""
        values = self.as_targets(y)
        return self.cdf(next_below(values)), self.cdf(values)

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
        """Continuous ranked probability score of each value: an error in y's units, for the whole distribution."""
        return integrated_crps(self.cdf, self.as_targets(y), self.edges(fine=True))

    def edges(self, fine: bool = False) -> Float[Tensor, "k N p"]:
        """Values at each point, in no order, between which the cdf is smooth. fine: twice as many."""
        return torch.cat([values for values, _ in self.nodes(Nodes.of(self, FINE_EDGES if fine else EDGES))])

    def nodes(self, rule: Nodes) -> Iterator[Weighed]:
        """Values with weights, at each point, that stand for the distribution: sums over them are expectations."""
        for probabilities, weights in rule.some():
            yield self.inverse_cdf(probabilities[:, None, None]), weights[:, None, None]

    def as_targets(self, y: Any) -> Float[Tensor, "N p"]:
        """Values of y, one row per point or one number for all, as a tensor of the mean's shape."""
        values = as_values(y, "y").to(self.device)
        values = values.expand(self.shape) if values.ndim == 0 else values
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != self.shape:
            raise DataError(
                f"y has shape {tuple(values.shape)}, but the posterior has {self.shape}; "
                "give one value per point and output."
            )
        if not bool(torch.isfinite(values).all()):
            raise DataError("NaN or infinity in y: a density is of finite values.")
        return values

    def _values(self, values: Any, name: str) -> Float[Tensor, "*k N p"]:
        """Numbers as a tensor with one for each point and output."""
        found = self._at_each_point(values, name)
        return found.expand(*found.shape[:-2], *self.shape)

    def _at_each_point(self, values: Any, name: str) -> Float[Tensor, "*k #N #p"]:
        """Numbers as a tensor whose last two dimensions are points and outputs, or 1 where one number is for all."""
        found, (N, p) = as_values(values, name).to(self.device), self.shape
        if found.ndim == 0 or (found.ndim == 1 and p == 1):
            found = found.reshape(-1, 1)
        if found.ndim < 2 or found.shape[-2] not in (1, N) or found.shape[-1] not in (1, p):
            raise DataError(
                f"{name} has shape {tuple(found.shape)}, but the posterior has {self.shape}; "
                "give one number, or one value per point and output."
            )
        return found


END_SHARE = 1e-9
"""Where a value has no density, as 0 under Box and Cox's warp, what ties it to others is taken so near to it."""


def log_dependence(posterior: Posterior, y: Float[Tensor, "N p"]) -> Float[Tensor, " m"]:
    """Log density of a task's values together, less that of each on its own: what ties them, and no marginal.

    A value that has no density is moved towards the mean by `END_SHARE` of the way. 0 where none has a density there.
    """
    alone = posterior.log_density(y)
    if not bool(alone.isfinite().all()):
        y = torch.where(alone.isfinite(), y, y + END_SHARE * (posterior.mean - y))
        alone = posterior.log_density(y)
    separate, together = posterior.points.summed(alone.sum(1)), posterior.joint_log_density(y)
    return torch.where(separate.isfinite() & together.isfinite(), together - separate, 0.0)


def next_below(y: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """The next number below each value: the probability up to it is that of all that is less than the value."""
    return torch.nextafter(y, torch.full_like(y, -torch.inf))


def log_difference(
    posterior: Posterior, lower: Float[Tensor, "*k N p"], upper: Float[Tensor, "*k N p"]
) -> tuple[Float[Tensor, "*k N p"], Float[Tensor, "*k N p"]]:
    """The log probability between two values, and the gap between the logarithms that it is the difference of."""
    return log_tail_difference(
        posterior.log_cdf(lower), posterior.log_sf(lower), posterior.log_cdf(upper), posterior.log_sf(upper)
    )


def log_tail_difference(
    log_cdf_lower: Float[Tensor, "*n"],
    log_sf_lower: Float[Tensor, "*n"],
    log_cdf_upper: Float[Tensor, "*n"],
    log_sf_upper: Float[Tensor, "*n"],
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """The log of a difference of two probabilities, in the tail where they are smaller; and the gap of their logs."""
    low = log_cdf_upper <= log_sf_lower
    more, less = torch.where(low, log_cdf_upper, log_sf_lower), torch.where(low, log_cdf_lower, log_sf_upper)
    gap = torch.where(more > -torch.inf, less - more, 0.0).clamp(max=0.0)
    return more + (-gap.expm1()).log(), gap


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


def as_values(values: Any, name: str) -> Float[Tensor, "*n"]:
    """Numbers as a float64 tensor: one number, a list, an array, a column of a table or a tensor."""
    if isinstance(values, Tensor):
        return values.to(torch.float64)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" and array.size:
            raise TypeError(f"it holds {array.dtype}")
        return torch.from_numpy(np.array(array, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not an array of numbers: {error}.") from None


def checked_probabilities(probabilities: Sequence[float]) -> Float[Tensor, " k"]:
    """Probabilities as a tensor, if they are some."""
    wanted = as_values(probabilities, "probabilities")
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
