"""What a GP knows: evidence with its three terms, contexts conditioned once, posteriors of every family."""

from metaprior.inference.calibrated import (
    CalibratedConditional,
    CalibratedPosterior,
    Calibration,
    normal_scores,
    quadrature_rule,
)
from metaprior.inference.conditional import Conditional
from metaprior.inference.conditioning import condition, condition_many, conditioned
from metaprior.inference.evidence import (
    LOG_2PI,
    Evidence,
    at_inputs,
    check_fits,
    covariance_matrix,
    evidence,
    evidences,
    summed_evidence,
    task_evidence,
)
from metaprior.inference.factor import JITTER, Factor, factor, inverse, mean_over, padded_identity, trusting
from metaprior.inference.gathered import Gathered
from metaprior.inference.gaussian import GaussianMarginals, IndependentGaussians
from metaprior.inference.gaussian_process import ContextBatch, GaussianConditional, GaussianPosterior
from metaprior.inference.method import KeptMethod, Method, posterior_of
from metaprior.inference.mixtures import MixtureConditional, MixturePosterior
from metaprior.inference.moved import MovedConditional, MovedPosterior, moved
from metaprior.inference.normal import normal_cdf, normal_log_cdf, normal_score
from metaprior.inference.possible import PossibleConditional, PossiblePosterior, WithinPossible
from metaprior.inference.posterior import Interval, Posterior, next_below, normal_nodes
from metaprior.inference.stack import Covariances, StackedTasks, stacked_evidence
from metaprior.inference.student import StudentConditional, StudentPosterior
from metaprior.inference.suggesting import Suggestion
from metaprior.inference.units import InUnits, UserConditional, UserPosterior
from metaprior.inference.warped import WarpedConditional, WarpedPosterior

__all__ = [
    "JITTER", "LOG_2PI", "CalibratedConditional", "CalibratedPosterior", "Calibration", "Conditional",
    "ContextBatch", "Covariances", "Evidence", "Factor", "Gathered", "GaussianConditional", "GaussianMarginals",
    "GaussianPosterior", "InUnits", "IndependentGaussians", "Interval", "KeptMethod", "Method", "MixtureConditional",
    "MixturePosterior", "MovedConditional", "MovedPosterior", "PossibleConditional", "PossiblePosterior", "Posterior",
    "StackedTasks", "StudentConditional", "StudentPosterior", "Suggestion", "UserConditional", "UserPosterior",
    "WarpedConditional", "WarpedPosterior", "WithinPossible", "at_inputs", "check_fits", "condition",
    "condition_many", "conditioned", "covariance_matrix", "evidence",
    "evidences", "factor", "inverse", "mean_over", "moved", "next_below", "normal_cdf",
    "normal_log_cdf", "normal_nodes", "normal_score", "normal_scores", "padded_identity", "posterior_of",
    "quadrature_rule", "stacked_evidence", "summed_evidence", "task_evidence", "trusting",
]  # fmt: skip
