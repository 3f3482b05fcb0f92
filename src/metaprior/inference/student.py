"""The posterior of a Student-t process: a Gaussian one whose scale differs from task to task and is integrated out.

With ν degrees of freedom and covariance A, k known values and `β = rᵀA⁻¹r`, the posterior has ν + k degrees of freedom,
the Gaussian's mean, and the Gaussian's covariance times `(ν − 2 + β) / (ν − 2 + k)` (Shah, Wilson and Ghahramani 2014):
a task that is wilder than expected has wider bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.arrays import Array, by_threads
from metaprior.errors import NumericalError
from metaprior.inference.conditional import Conditional
from metaprior.inference.evidence import Evidence, log_gamma_ratio, student_terms
from metaprior.inference.gaussian_process import GaussianConditional, GaussianPosterior
from metaprior.inference.posterior import Posterior
from metaprior.seeds import child_seed
from metaprior.tasks import Tasks


@dataclass(frozen=True, eq=False)
class StudentPosterior(Posterior):
    """At each point a Student-t distribution. degrees and widening: of each task."""

    gaussian: GaussianPosterior
    degrees: Float[Tensor, " m"]
    widening: Float[Tensor, " m"]

    @property
    def points(self) -> Tasks:  # type: ignore[override]
        return self.gaussian.points

    @property
    def device(self) -> torch.device:
        return self.gaussian.device

    @property
    def function(self) -> StudentPosterior:
        """The same for the function: without observation noise."""
        return StudentPosterior(self.gaussian.function, self.degrees, self.widening)

    @property
    def mean(self) -> Float[Tensor, "N p"]:  # type: ignore[override]
        return self.gaussian.mean

    @property
    def sd(self) -> Float[Tensor, "N p"]:
        """Standard deviation at each point."""
        return self.gaussian.sd * self._of_rows(self.widening.sqrt())

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """The evidence of each task's context."""
        return self.gaussian.evidence

    @property
    def jitter(self) -> float:  # type: ignore[override]
        """The largest jitter a factorisation needed."""
        return self.gaussian.jitter

    def covariances(self) -> list[Float[Tensor, "p n n"]]:
        """Each task's full covariance at its points, for each output."""
        return [widening * C for widening, C in zip(self.widening.tolist(), self.gaussian.covariances(), strict=True)]

    def _cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The probability of a value below y, at each point; a step (½ at the mean) where nothing is uncertain."""
        from scipy import special  # a tenth of a second, for those who need it

        residual, scale = y - self.mean, self._scale
        z = residual / scale
        inside = torch.from_numpy(by_threads(special.stdtr, self._freedom, z.cpu().numpy())).to(z)
        return torch.where(scale > 0, inside, (residual.sign() + 1) / 2)

    def _log_cdf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value up to y, at each point."""
        return self._log_lower_tail(y - self.mean)

    def _log_sf(self, y: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        """The log probability of a value above y, at each point."""
        return self._log_lower_tail(self.mean - y)

    def _log_lower_tail(self, residual: Float[Tensor, "*k N p"]) -> Float[Tensor, "*k N p"]:
        scale = self._scale
        z = residual / scale
        inside = torch.from_numpy(by_threads(_student_log_cdf, self._freedom, z.cpu().numpy())).to(z)
        return torch.where(scale > 0, inside, ((residual.sign() + 1) / 2).log())

    def _inverse_cdf(self, u: Float[Tensor, "*k #N #p"]) -> Float[Tensor, "*k N p"]:
        """The value that has probability u below it, at each point."""
        if u.shape[-2:] == (1, 1):  # one for all points: a few deviations for each task
            by_task = torch.from_numpy(_quantile(self.degrees.cpu().numpy(), u[..., 0].cpu().numpy()))
            deviations = by_task[..., self.points.task_of_row, None]
        else:
            deviations = torch.from_numpy(by_threads(_quantile, self._freedom, u.cpu().numpy()))
        return self.mean + deviations.to(self.mean) * self._scale

    def log_density(self, y: Any) -> Float[Tensor, "N p"]:
        """Log density of each value on its own."""
        residual, scale, degrees = self.as_targets(y) - self.mean, self._scale, self._of_rows(self.degrees)
        certain = torch.where(residual == 0, torch.inf, -torch.inf).to(residual)
        constant = log_gamma_ratio(degrees / 2, 0.5) - 0.5 * (degrees * math.pi).log()
        density = constant - scale.log() - (degrees + 1) / 2 * torch.log1p((residual / scale).square() / degrees)
        return torch.where(scale > 0, density, certain)

    def joint_log_density(self, y: Any) -> Float[Tensor, " m"]:
        """Log density of all of a task's values together, for each task."""
        quadratic, logdet = self.gaussian.joint_terms(y)
        p, count = self.mean.shape[1], (self.points.sizes * self.mean.shape[1]).to(self.mean)
        fit, normaliser = student_terms(quadratic / self.widening, count, self.degrees)
        return fit + normaliser - 0.5 * (p * logdet + count * self.widening.log())

    def samples(self, count: int, seed: int) -> Float[Tensor, "count N p"]:
        """Draws of all points of a task together: Gaussian ones, each task's with a scale of its own."""
        drawn = self.gaussian.samples(count, seed) - self.mean
        chosen = np.random.default_rng(child_seed(seed, 0))
        chi = torch.from_numpy(chosen.chisquare(self.degrees.cpu().numpy(), size=(count, len(self.degrees))))
        scale = (self.widening * (self.degrees - 2) / chi.to(self.degrees)).sqrt()
        return self.mean + drawn * scale[:, self.points.task_of_row, None]

    @cached_property
    def _freedom(self) -> Float[Array, "N 1"]:
        """Degrees of freedom at each point."""
        return self._of_rows(self.degrees).cpu().numpy()

    @cached_property
    def _scale(self) -> Float[Tensor, "N p"]:
        return self.sd * self._of_rows(((self.degrees - 2) / self.degrees).sqrt())

    def _of_rows(self, values: Float[Tensor, " m"]) -> Float[Tensor, "N 1"]:
        return values[self.points.task_of_row, None]


VANISHING = 2.0**-54
"""A quantile -t has `ν / (ν + t²)` below this: its distribution is a power of t there, in all digits."""


def _quantile(degrees: Float[Array, "*n"], u: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The quantile of Student's t. SciPy's own loses itself at probabilities such as 1e-150."""
    from scipy import special

    found: Array = special.stdtrit(degrees, u)
    if np.min(u, initial=1.0) < 1e-16:
        with np.errstate(all="ignore"):
            log_x = (np.log(degrees * u) + special.betaln(degrees / 2, 0.5)) / (degrees / 2)
            far = -np.exp(0.5 * (np.log(degrees) - log_x))
        found = np.where(log_x < math.log(VANISHING), far, found)
    return found


MIN_PROBABILITY = 1e-290
"""A probability below this is not taken from SciPy's own function, which ends at 0."""

MAX_TERMS = 500
"""Terms of a continued fraction: the last digit takes fewer than a hundred where probabilities are so small."""


def _student_log_cdf(degrees: Float[Array, "*n"], t: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The log of Student's distribution function, with all digits however far t is below 0."""
    from scipy import special

    tail = special.stdtr(degrees, -np.abs(t))
    with np.errstate(divide="ignore"):
        found: Array = np.where(t < 0, np.log(tail), np.log1p(-tail))
    far = (t < 0) & (tail < MIN_PROBABILITY) & np.isfinite(t)
    if far.any():
        found[far] = _student_log_tail(np.broadcast_to(degrees, t.shape)[far], t[far])
    return found


def _student_log_tail(degrees: Float[Array, " n"], t: Float[Array, " n"]) -> Float[Array, " n"]:
    """The log of `½ I_x(ν/2, ½)` at `x = ν / (ν + t²)`, by its continued fraction (Lentz's method)."""
    from scipy import special

    a, log_odds = degrees / 2, 2 * np.log(np.abs(t)) - np.log(degrees)  # of 1 − x
    x, log_x, log_rest = special.expit(-log_odds), -np.logaddexp(0.0, log_odds), -np.logaddexp(0.0, -log_odds)
    c, d = np.ones_like(x), 1 / (1 - (a + 0.5) / (a + 1) * x)
    fraction = d.copy()
    for m in range(1, MAX_TERMS):
        even = m * (0.5 - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + 0.5 + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            fraction *= c * d
        if np.abs(c * d - 1).max() < 2.0**-52:
            break
    found: Array = a * log_x + 0.5 * log_rest + np.log(fraction) - np.log(2 * a) - special.betaln(a, 0.5)
    return found


class StudentConditional(Conditional[StudentPosterior]):
    """A Student-t process conditioned on the contexts of some tasks: a Gaussian one of the same covariance, widened."""

    def __init__(self, gaussian: GaussianConditional, degrees: float) -> None:
        self.gaussian, self.context = gaussian, gaussian.context
        known = (self.context.sizes * self.context.p).double().to(gaussian.device)
        if not bool(torch.isfinite(gaussian.quadratic.sum())):
            self._refuse()
        self.degrees = degrees + known
        self.widening = (degrees - 2 + gaussian.quadratic) / (degrees - 2 + known)

    def _refuse(self) -> None:
        """Where some context is infinitely wilder than expected."""
        finite = torch.isfinite(self.gaussian.quadratic)
        if not bool(finite.all()):
            name = self.context.ids[int(torch.nonzero(~finite)[0, 0])]
            raise NumericalError(
                f"y − m(x) of task {name!r} is so large beside what the prior expects that its square overflows: scale "
                "y, or look for a value that is no measurement."
            )

    @property
    def device(self) -> torch.device:
        return self.gaussian.device

    @property
    def evidence(self) -> Evidence:
        """The evidence of each task's context."""
        return self.gaussian.evidence

    def posterior(self, points: Tasks) -> StudentPosterior:
        """The posterior at these points."""
        return StudentPosterior(self.gaussian.posterior(points), self.degrees, self.widening)
