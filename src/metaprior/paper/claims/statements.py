"""What the paper says of its experiments, as data: each statement with the rule that judges it.

The rules compare the paper's own methods, so rows that the paper does not have (limits, newer methods) decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metaprior.paper.claims.comparing import PaperTable, TaskTable
from metaprior.paper.claims.judging import Changes, Comparable, Compared, GapNarrows, MovesMore, Rule, Within, verdict
from metaprior.paper.published import REFITTED
from metaprior.report import Results


@dataclass(frozen=True)
class Claim:
    """A statement in our words, where the paper makes it, and what it says about a table."""

    id: str
    text: str
    where: str
    experiment: str
    rule: Rule


def judge(results: Results) -> list[dict[str, Any]]:
    """Whether each claim about this experiment holds in its results and, by the same rule, in the paper's own table.

    A claim is left out where the results lack a row it needs; `holds_in_paper` is None where the paper's table does.
    """
    claims = [claim for claim in CLAIMS if claim.experiment == results.experiment]
    ours = TaskTable(results.tasks, {metric for claim in claims for metric in claim.rule.metrics})
    judged = []
    for claim in claims:
        found, published = verdict(claim.rule, ours), verdict(claim.rule, PaperTable(claim.experiment))
        if found is not None:
            judged.append(
                {
                    "id": claim.id,
                    "text": claim.text,
                    "where": claim.where,
                    "holds": found.holds,
                    "holds_in_paper": None if published is None else published.holds,
                    "because": found.because,
                }
            )
    return judged


_SIZES = ("1", "5", "20")
_MNIST = ("3", "50", "300")
_ICU = ("GCS", "Urine", "HCT", "Creatinine", "BUN")
_MSE, _JOINT, _POINTWISE, _EVIDENCE = ("mse",), ("joint_log_likelihood",), ("log_likelihood",), ("evidence",)
_DISTANCE = ("distance",)
_Told = tuple[str, str, Rule]
_SIMPLE = ("last value", "context mean")
_ALONE = ("vanilla", "learned kernel", "learned mean")


def _step() -> list[Claim]:
    where = "Sec. 5, step function regression, Tab. 1"
    told: list[_Told] = [
        (
            "mean-beats-kernel-mse",
            "From a single point, a learned mean predicts with a lower MSE than a learned kernel.",
            # "Low-data" is ñ = 1: at ñ = 5 the paper's own table has the two level.
            Compared("learned mean", ("learned kernel",), _MSE, ("1",)),
        ),
        (
            "kernel-beats-mean-likelihood",
            "A learned kernel gives a better likelihood than a learned mean.",
            Compared("learned kernel", ("learned mean",), _JOINT, _SIZES),
        ),
        (
            "mse-gap-narrows",
            "The difference in MSE between a learned mean and a learned kernel narrows as points are added.",
            GapNarrows("learned mean", "learned kernel", _MSE, _SIZES),
        ),
        (
            "both-best-mse",
            "Learning both mean and kernel has the best MSE for every number of points.",
            Compared("learned both", _ALONE, _MSE, _SIZES, ties=True),
        ),
        (
            "both-best-likelihood",
            "Learning both mean and kernel has the best likelihood for every number of points.",
            Compared("learned both", _ALONE, _JOINT, _SIZES, ties=True),
        ),
    ]
    return _claims("step", where, told) + _moves("step", _JOINT, _SIZES)


def _sinusoid() -> list[Claim]:
    where = "App. D, sinusoid function regression, Tab. S1"
    learned, true, zero = (name + REFITTED for name in ("learned mean", "true mean", "zero mean"))
    told: list[_Told] = [
        (
            "learned-like-true-mse",
            "A learned mean predicts as well as the true mean (MSE).",
            Comparable("learned mean", "true mean", "zero mean", _MSE, _SIZES),
        ),
        (
            "learned-like-true-likelihood",
            "A learned mean explains the context as well as the true mean (likelihood).",
            Comparable(learned, true, zero, _EVIDENCE, _SIZES),
        ),
        (
            "learned-beats-zero-mse",
            "With few points, a learned mean has a lower MSE than a zero mean.",
            Compared("learned mean", ("zero mean",), _MSE, ("1", "5")),
        ),
        (
            "learned-beats-zero-likelihood",
            "With few points, a learned mean has a better likelihood than a zero mean.",
            Compared(learned, (zero,), _EVIDENCE, ("1", "5")),
        ),
        (
            "effect-fades-mse",
            "What a learned mean gains in MSE over a zero mean fades as points are added.",
            # MSE alone: the evidence belongs to the whole context, so its differences grow with ñ of themselves.
            GapNarrows("learned mean", "zero mean", _MSE, _SIZES),
        ),
    ]
    return _claims("sinusoid", where, told)


def _mnist() -> list[Claim]:
    where = "Sec. 5, MNIST image completion, Tab. S2"
    gps = (*_ALONE, "learned both")
    told: list[_Told] = [
        (
            "mean-best-mse",
            "A learned mean alone has the lowest MSE of all methods.",
            Compared(
                "learned mean",
                ("neural network", "mean fit on target", "vanilla", "learned kernel", "learned both"),
                _MSE,
                _MNIST,
            ),
        ),
        (
            "mean-beats-network-mse",
            "A GP with a learned mean has a lower MSE than the same network without a GP.",
            Compared("learned mean", ("neural network",), _MSE, _MNIST),
        ),
        (
            "kernel-beats-vanilla-and-mean-likelihood",
            "A learned kernel gives a better likelihood than the vanilla GP and a learned mean.",
            Compared("learned kernel", ("vanilla", "learned mean"), _JOINT, _MNIST),
        ),
        (
            "both-best-likelihood",
            "Learning both mean and kernel has the best likelihood.",
            Compared("learned both", ("mean fit on target", *_ALONE), _JOINT, _MNIST),
        ),
        (
            "fit-on-target-loses-to-vanilla-mse",
            "A mean fit on the target's own context overfits: its MSE is worse than the vanilla GP's.",
            Compared("mean fit on target", ("vanilla",), _MSE, _MNIST, worse=True, ties=True),
        ),
        (
            "fit-on-target-worst-mse",
            "A mean fit on the target's own context has a worse MSE than every other method.",
            Compared("mean fit on target", ("neural network", *gps), _MSE, _MNIST, worse=True, ties=True),
        ),
        (
            "fit-on-target-worst-likelihood",
            "A mean fit on the target's own context has a worse likelihood than every other method.",
            Compared("mean fit on target", gps, _JOINT, _MNIST, worse=True, ties=True),
        ),
    ]
    return _claims("mnist", where, told) + _moves("mnist", _JOINT, _MNIST)


def _icu() -> list[Claim]:
    where = "Sec. 5, medical time series prediction, Tab. 2"
    both = (*_POINTWISE, *_MSE)
    told: list[_Told] = [
        (
            "mean-beats-kernel",
            "For every variable a learned mean beats a learned kernel, in likelihood and MSE.",
            Compared("learned mean", ("learned kernel",), both, _ICU),
        ),
        (
            "both-beats-kernel",
            "For every variable learning both mean and kernel beats the learned kernel alone, in likelihood and MSE.",
            Compared("learned both", ("learned kernel",), both, _ICU),
        ),
    ]
    ours: list[_Told] = [
        (
            "both-beats-last-value-and-context-mean",
            "For GCS, Urine, HCT and BUN, learning both has a lower MSE than the last value and the first day's mean.",
            Compared("learned both", _SIMPLE, _MSE, tuple(name for name in _ICU if name != "Creatinine")),
        ),
        (
            "both-not-worse-on-creatinine",
            "On Creatinine, where values hardly move, learning both is not worse than either of those.",
            Compared("learned both", _SIMPLE, _MSE, ("Creatinine",), only_ties=True),
        ),
    ]
    asked = _claims("icu", "not in the paper: what a clinician would ask", ours)
    return _claims("icu", where, told) + _moves("icu", _POINTWISE, _ICU) + asked


def _overfitting() -> list[Claim]:
    fitted = "mean fit on target"
    told: list[_Told] = [
        (
            "no-price-for-the-mean",
            "Fitting the mean on a target leaves the complexity term of its evidence as it is.",
            Changes(fitted, ("complexity",), ("steps = 0", "steps = 400"), "stay"),
        ),
        (
            "fit-rises",
            "Fitting the mean on a target raises the data-fit term of its evidence.",
            Changes(fitted, ("data_fit",), ("steps = 20", "steps = 400"), "rise"),
        ),
        (
            "fit-overfits",
            "While the data fit rises, the error on the target's other points rises too.",
            Changes(fitted, _MSE, ("steps = 20", "steps = 400"), "rise"),
        ),
        (
            "learning-does-not-overfit",
            "A mean learned from other tasks does not overfit: its error does not rise with more steps.",
            Changes("learned mean", _MSE, ("steps = 20", "steps = 400"), "fall"),
        ),
        (
            "learned-beats-fitted",
            "A mean learned from other tasks predicts better than one fitted on the target, for every ñ.",
            Compared("learned mean", (fitted,), _MSE, tuple(f"ñ = {n}" for n in (1, 2, 5, 10, 20, 40))),
        ),
        (
            "few-meta-tasks-pay",
            "Twenty meta-tasks are enough for a learned mean to beat a zero mean.",
            Compared("learned mean", ("vanilla",), _MSE, ("m = 20", "m = 100", "m = 1000", "m = 10000")),
        ),
    ]
    return _claims("theory", "Sec. 3.1, risk of overfitting", told)


def _counter_example() -> list[Claim]:
    kernels = tuple(f"kernel = {name}" for name in ("RBF", "Matérn 1/2", "Matérn 5/2", "periodic", "linear", "deep"))
    growing = tuple(f"points anywhere = {n}" for n in (4, 8, 16, 32, 64))
    told: list[_Told] = [
        (
            "zero-mean-stays-zero",
            "Where only zeros were observed, a zero mean's posterior mean is zero, whatever the kernel.",
            Within(("zero mean",), ("largest_posterior_mean",), kernels, at_most=0.0),
        ),
        (
            "true-mean-is-exact",
            "With the known function as mean the posterior mean is exact, whatever the kernel.",
            Within(("true mean",), ("largest_error",), kernels, at_most=0.0),
        ),
        (
            "advantage-vanishes",
            "The advantage of the known mean vanishes as points are added.",
            GapNarrows("true mean", "zero mean", _MSE, growing),
        ),
    ]
    return _claims("theory", "Sec. 3.2 and App. A, Assumption 1", told)


def _parameterisations() -> list[Claim]:
    rescaled, permuted = ("written = rescaled",), ("written = permuted",)
    told: list[_Told] = [
        (
            "maml-sees-scale",
            "MAML adapts the same start function differently when its layers are rescaled.",
            Within(("maml adapted to a context",), _DISTANCE, rescaled, at_least=1e-3),
        ),
        (
            "maml-blind-to-order",
            "Control: with its hidden units permuted, MAML adapts it alike, to rounding.",
            Within(("maml adapted to a context",), _DISTANCE, permuted, at_most=1e-9),
        ),
        (
            "average-of-parameters",
            "Averaging the parameters of two permuted copies of a network gives another function.",
            Within(("average of the parameters",), _DISTANCE, permuted, at_least=1e-3),
        ),
        (
            "average-of-functions",
            "Averaging the two functions gives the same function.",
            Within(("average of the functions",), _DISTANCE, permuted, at_most=1e-9),
        ),
        (
            "mean-independent",
            "Evidence and posterior of a mean do not depend on how it is written.",
            Within(("posterior of the mean", "evidence of the mean"), _DISTANCE, rescaled + permuted, at_most=1e-9),
        ),
        (
            "training-independent",
            "Training a mean does not depend on how it is written: rescaled, it ends in the same function.",
            Within(("mean after training",), _DISTANCE, rescaled, at_most=1e-3),
        ),
    ]
    return _claims("theory", "Sec. 4.1, model-agnostic meta-learning", told)


def _components() -> list[Claim]:
    bases = tuple(f"basis = {name}" for name in ("splines", "polynomials", "Fourier"))
    told: list[_Told] = [
        (
            "fpca-is-a-gp",
            "With mean and kernel linear in a basis, the posterior is that of functional PCA (to 1e-8 relative).",
            Within(("posterior mean", "posterior covariance"), ("relative_error",), bases, at_most=1e-8),
        )
    ]
    return _claims("theory", "Sec. 4.2 and App. B, Proposition 1", told)


def _moves(experiment: str, likelihood: tuple[str, ...], settings: tuple[str, ...]) -> list[Claim]:
    """What the paper expects of its measures, everywhere."""
    told: list[_Told] = [
        (
            "mean-moves-mse",
            "Against the vanilla GP, learning the mean changes the MSE more than learning the kernel does.",
            MovesMore("learned mean", "learned kernel", "vanilla", _MSE, settings),
        ),
        (
            "kernel-moves-likelihood",
            "Against the vanilla GP, learning the kernel changes the likelihood more than learning the mean does.",
            MovesMore("learned kernel", "learned mean", "vanilla", likelihood, settings),
        ),
    ]
    return _claims(experiment, "Sec. 5, performance measures", told)


def _claims(experiment: str, where: str, told: list[_Told]) -> list[Claim]:
    return [Claim(f"{experiment}-{name}", text, where, experiment, rule) for name, text, rule in told]


CLAIMS: tuple[Claim, ...] = (
    *_step(),
    *_sinusoid(),
    *_mnist(),
    *_icu(),
    *_overfitting(),
    *_counter_example(),
    *_parameterisations(),
    *_components(),
)
