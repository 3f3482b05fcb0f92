"""The numbers this project stands for, from full runs of both experiments."""

import math

import pytest

from metaprior.paper import Options, run_experiment
from metaprior.paper.experiments import sinusoid, step

SETTINGS = ("1", "5", "20")


@pytest.fixture(scope="module")
def steps():
    methods = tuple(name for name in step.METHODS if name != "maml")  # minutes: see test_recorded.py
    return run_experiment("step", Options(progress=False, methods=methods))


@pytest.fixture(scope="module")
def sines():
    methods = tuple(name for name in sinusoid.METHODS if name != "maml")
    return run_experiment("sinusoid", Options(progress=False, methods=methods))


def means(results, method, metric):
    return [results.value(method, setting, metric)["mean"] for setting in SETTINGS]


def below(found, bounds):
    return all(value <= bound for value, bound in zip(found, bounds, strict=True))


def test_step_learned_both_is_the_papers_best_in_every_cell(steps):
    assert below(means(steps, "learned both", "mse"), (0.190, 0.082, 0.024))
    assert below((0.55, 0.61, 0.69), means(steps, "learned both", "joint_log_likelihood"))


def test_step_learned_mean(steps):
    assert below(means(steps, "learned mean", "mse"), (0.215, 0.112, 0.030))


def test_step_orderings_of_the_paper(steps):
    mean, kernel = (steps.value(name, "1", "mse")["mean"] for name in ("learned mean", "learned kernel"))
    assert mean < kernel
    for setting in SETTINGS:
        likelihood = {
            name: steps.value(name, setting, "joint_log_likelihood")["mean"]
            for name in ("learned mean", "learned kernel")
        }
        assert likelihood["learned kernel"] > likelihood["learned mean"]
        both = steps.value("learned both", setting, "mse")
        best = min(steps.value(name, setting, "mse")["mean"] for name in step.CONFIGURATIONS)
        assert both["mean"] <= best + both["stderr"]
        both = steps.value("learned both", setting, "joint_log_likelihood")
        best = max(steps.value(name, setting, "joint_log_likelihood")["mean"] for name in step.CONFIGURATIONS)
        assert both["mean"] >= best - both["stderr"]


def test_step_limits(steps):
    limit = means(steps, "bayes limit", "mse")
    assert limit == pytest.approx([0.127, 0.043, 0.018], rel=0.08)
    assert means(steps, "linear limit", "mse") == pytest.approx(limit, rel=0.03)
    assert steps.settings["noise_floor"] == 0.01
    assert means(steps, "linear limit", "joint_log_likelihood") == pytest.approx([0.78, 0.83, 0.88], abs=0.01)
    for name in step.CONFIGURATIONS:
        assert below(limit, means(steps, name, "mse"))


def test_step_floor_is_chosen_on_held_out_functions(steps):
    tried = steps.settings["held_out_mse_by_noise_floor"]
    assert min(tried, key=lambda floor: sum(tried[floor])) == f"{steps.settings['noise_floor']:g}"
    assert steps.settings["held_out_functions"] == 1000
    assert all(record["skipped_updates"] == 0 for record in steps.settings["training"].values())


def test_step_another_seed_gives_other_rows_within_four_standard_errors(steps):
    other = run_experiment("step", Options(seed=1, progress=False, methods=("learned mean", "learned both")))
    compared = 0
    for row in other.rows:
        if row["stderr"] is None:
            continue
        first = steps.value(row["method"], row["setting"], row["metric"])
        assert row["mean"] != first["mean"]
        assert abs(row["mean"] - first["mean"]) <= 4 * math.hypot(row["stderr"], first["stderr"])
        compared += 1
    assert compared == 36


def test_sinusoid_learned_mean_is_as_good_as_the_true_one(sines):
    for setting in SETTINGS:
        learned, true = (sines.value(name, setting, "mse")["mean"] for name in ("learned mean", "true mean"))
        assert learned <= 1.02 * true
        learned, true = (sines.value(name, setting, "evidence")["mean"] for name in ("learned mean", "true mean"))
        assert abs(learned - true) <= 0.05 * int(setting)


def test_sinusoid_zero_mean_is_worse(sines):
    zero, true = sines.value("zero mean", "1", "mse"), sines.value("true mean", "1", "mse")
    assert zero["mean"] - true["mean"] > 2 * math.hypot(zero["stderr"], true["stderr"])


def test_sinusoid_refitted_kernels_explain_the_papers_likelihoods(sines):
    """With the RBF refitted on each context the evidence is near the paper's; with the known kernel it is not."""
    for method in ("zero mean", "true mean", "learned mean"):
        for setting in ("1", "5"):
            fixed = sines.value(method, setting, "evidence")
            refitted = sines.value(f"{method} refitted", setting, "evidence")
            assert fixed["paper_mean"] is None
            assert abs(refitted["mean"] - refitted["paper_mean"]) < 0.3
            assert abs(fixed["mean"] - refitted["paper_mean"]) > 0.3


def test_step_fpca_reaches_the_limit(steps):
    """The step process's posterior mean is linear in y, so a Gaussian with its covariance attains the Bayes limit."""
    for setting in SETTINGS:
        limit = steps.value("bayes limit", setting, "mse")["mean"]
        assert steps.value("fpca", setting, "mse")["mean"] <= 1.05 * limit
