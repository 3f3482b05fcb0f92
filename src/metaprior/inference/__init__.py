"""What a GP knows: evidence with its three terms, posteriors, samples."""

from metaprior.inference.conditioning import condition
from metaprior.inference.evidence import Evidence, evidence, summed_evidence, task_evidence
from metaprior.inference.factor import JITTER, factor
from metaprior.inference.gaussian import GaussianMarginals, Interval
from metaprior.inference.method import Method, Predictive
from metaprior.inference.posterior import Conditional, ContextBatch, Posterior
from metaprior.inference.units import InUnits, UserConditional, UserPosterior

__all__ = [
    "JITTER",
    "Conditional",
    "ContextBatch",
    "Evidence",
    "GaussianMarginals",
    "InUnits",
    "Interval",
    "Method",
    "Posterior",
    "Predictive",
    "UserConditional",
    "UserPosterior",
    "condition",
    "evidence",
    "factor",
    "summed_evidence",
    "task_evidence",
]
