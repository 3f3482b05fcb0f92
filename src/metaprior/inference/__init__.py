"""What a GP knows: evidence with its three terms, posteriors, samples."""

from metaprior.inference.calibrated import CalibratedPosterior, Calibration
from metaprior.inference.conditioning import condition
from metaprior.inference.evidence import Evidence, evidence, evidences, summed_evidence, task_evidence
from metaprior.inference.factor import JITTER, factor
from metaprior.inference.gathered import Gathered
from metaprior.inference.gaussian import GaussianMarginals, IndependentGaussians
from metaprior.inference.marginals import Interval, Marginals
from metaprior.inference.method import Method, Predictive
from metaprior.inference.mixtures import MixturePosterior, by_evidence
from metaprior.inference.posterior import Conditional, ContextBatch, Posterior
from metaprior.inference.student import StudentPosterior
from metaprior.inference.units import InUnits, UserConditional, UserPosterior
from metaprior.inference.warped import WarpedPosterior

__all__ = [
    "JITTER",
    "CalibratedPosterior",
    "Calibration",
    "Conditional",
    "ContextBatch",
    "Evidence",
    "Gathered",
    "GaussianMarginals",
    "InUnits",
    "IndependentGaussians",
    "Interval",
    "Marginals",
    "Method",
    "MixturePosterior",
    "Posterior",
    "Predictive",
    "StudentPosterior",
    "UserConditional",
    "UserPosterior",
    "WarpedPosterior",
    "by_evidence",
    "condition",
    "evidence",
    "evidences",
    "factor",
    "summed_evidence",
    "task_evidence",
]
