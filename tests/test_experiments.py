import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from metaprior import DataError, OptionError, OutputError, UnknownNameError, condition, score
from metaprior.methods import RefittedRBF
from metaprior.paper import Options, run_experiment
from metaprior.paper.experiments import icu, mnist, sinusoid, step
from metaprior.paper.published import PUBLISHED
from metaprior.report import Results, markdown_tables
from metaprior.scoring import Scores
from tests.problems import known_rbf, ragged


def test_steps_are_the_papers():
    tasks = step.draw_steps(2000, seed=0)
    y = tasks.y.reshape(2000, 50)
    assert tasks[0].x[[0, -1], 0].tolist() == [-2.0, 2.0]
    assert set(y.ravel().tolist()) == {0.0, 1.0}
    assert (y.diff(dim=1).abs().sum(1) == 1).all()  # exactly one jump
    assert y[:, 0].mean().item() == pytest.approx(0.5, abs=0.05)
    jump = tasks[0].x[:-1, 0][y.diff(dim=1).abs().argmax(1)]
    assert (jump.min(), jump.max()) == (pytest.approx(-1, abs=0.1), pytest.approx(1, abs=0.1))


def test_step_kernel_is_the_covariance_of_the_process():
    y = step.draw_steps(40_000, seed=1).y.reshape(-1, 50)
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    empirical = (y - 0.5).T @ (y - 0.5) / len(y)
    kernel = step.StepKernel()
    assert (kernel(x).to_dense() - empirical).abs().max() < 0.01
    assert torch.allclose(kernel(x, diag=True), torch.full((50,), 0.25).double())


@pytest.mark.parametrize("n", [0, 1, 5, 20])
def test_bayes_mean_is_linear_so_the_limit_gp_attains_it(n):
    test = step.draw_steps(60, seed=2)
    context, target = test.context_target(n, seed=3)
    gp = step.linear_limit(1e-9).fit(test)
    assert torch.allclose(gp.predict(context, target).mean, step.bayes_mean(context, target), atol=1e-5)


def test_bayes_mean_by_simulation():
    test = step.draw_steps(1, seed=5)
    context, target = test.context_target(3, seed=0)
    pool = step.draw_steps(100_000, seed=6).y.reshape(-1, 50)
    grid = test[0].x[:, 0].tolist()
    at = [grid.index(v) for v in context.x[:, 0].tolist()]
    same = pool[(pool[:, at] == context.y[:, 0]).all(1)]
    rest = [grid.index(v) for v in target.x[:, 0].tolist()]
    assert len(same) > 500
    assert step.bayes_mean(context, target)[:, 0].numpy() == pytest.approx(same[:, rest].mean(0).numpy(), abs=0.05)


def test_sinusoids_are_the_papers_process():
    y = sinusoid.draw_sinusoids(4000, seed=0).y.reshape(4000, 50)
    x = torch.linspace(-5, 5, 50, dtype=torch.float64)
    assert (y.mean(0) - x.sin()).abs().max() < 0.08
    rbf = torch.exp(-0.5 * (x[:, None] - x[None]) ** 2)
    assert (torch.cov(y.T) - rbf).abs().max() < 0.12


def test_options_are_checked():
    assert Options(methods=("b", "a")).chosen(["a", "b", "c"]) == ("a", "b")
    with pytest.raises(UnknownNameError, match="Did you mean 'learned both'"):
        run_experiment("step", Options(methods=("learned bth",)))
    with pytest.raises(UnknownNameError, match="Did you mean 'step'"):
        run_experiment("stepp", Options())
    with pytest.raises(UnknownNameError, match="Did you mean 'adam'"):
        Options(optimizer="adma")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def quick():
    return run_experiment("step", Options(quick=True, progress=False, methods=("vanilla", "bayes limit")))


def test_rows_follow_from_the_tasks_table(quick, tmp_path):
    quick.write(tmp_path)
    table = pq.read_table(tmp_path / "tasks.parquet").to_pandas()
    assert list(table.columns) == ["method", "setting", "metric", "task", "value"]
    means = table.groupby(["method", "setting", "metric"])["value"].agg(["mean", "sem", "count"])
    compared = 0
    for row in quick.rows:
        key = (row["method"], row["setting"], row["metric"])
        if row["metric"] == "calibration_error":
            levels = [means.loc[(*key[:2], f"pit_{level}"), "mean"] - level / 100 for level in range(10, 100, 10)]
            assert row["mean"] == pytest.approx(np.mean(np.abs(levels)))
            continue
        assert row["mean"] == pytest.approx(means.loc[key, "mean"])
        assert row["stderr"] == pytest.approx(means.loc[key, "sem"])
        assert row["tasks"] == means.loc[key, "count"] == 100
        compared += 1
    assert compared == 3 * 6 + 3  # six metrics and the evidence


def test_results_survive_a_round_trip(quick, tmp_path):
    quick.write(tmp_path)
    again = Results.read(tmp_path)
    assert again.rows == quick.rows
    assert again.settings == quick.settings
    assert set(again.curves) == set(quick.curves)
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found) == {
        "experiment",
        "settings",
        "seconds",
        "peak_memory_mb",
        "versions",
        "rows",
        "claims",
        "parts",
        "files",
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "curves.npz",
        "model.metaprior",
        "results.json",
        "tasks.parquet",
    ]


def test_the_papers_figures_stand_beside_ours(quick):
    row = quick.value("vanilla", "1", "mse")
    assert (row["paper_mean"], row["paper_stderr"]) == (0.335, 0.006)
    assert quick.value("vanilla", "20", "joint_log_likelihood")["paper_mean"] == 0.47
    assert quick.value("vanilla", "1", "log_likelihood")["paper_mean"] is None
    assert quick.value("bayes limit", "1", "mse")["paper_mean"] is None
    with pytest.raises(DataError, match="no row"):
        quick.value("vanilla", "2", "mse")


def test_published_tables_are_complete():
    synthetic = (PUBLISHED["step"], PUBLISHED["sinusoid"])
    assert {name: len(cells) for table in synthetic for name, cells in table.items()} == dict.fromkeys(
        ["vanilla", "learned kernel", "learned both"], 6
    ) | dict.fromkeys(["zero mean refitted", "true mean refitted", "learned mean refitted"], 6) | dict.fromkeys(
        ["zero mean", "true mean", "learned mean"], 3
    )


@pytest.mark.parametrize("experiment", [step, sinusoid, mnist, icu])
def test_every_method_can_be_named_on_the_command_line(experiment):
    for name in experiment.METHODS:
        assert Options(methods=tuple(name.split(","))).chosen(experiment.METHODS) == (name,)


def test_an_infinite_metric_is_null_and_loses_nothing(tmp_path):
    results = Results("step", {})
    results.add("x", "1", Scores(("a", "b"), {"log_likelihood": torch.tensor([1.0, np.inf]).double()}))
    results.write(tmp_path)
    assert Results.read(tmp_path).rows[0]["mean"] is None
    assert "| x | – |" in markdown_tables(results.rows)


def test_same_seed_same_rows(quick):
    options = Options(quick=True, progress=False, methods=("vanilla",))
    again = run_experiment("step", options)
    assert again.rows == [row for row in quick.rows if row["method"] == "vanilla"]


def test_a_folder_that_cannot_be_written(quick, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(OutputError, match="cannot write to the folder"):
        quick.write(blocked / "inside")


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(DataError, match="does not hold an experiment's results"):
        Results.read(tmp_path)


@pytest.mark.parametrize("noise", [1e-6, 0.1])
def test_refitting_on_pure_noise_stays_finite(noise):
    """Evidence then pulls lengthscales to 0 and to infinity, and variances to 0."""
    context, target = ragged(count=40, largest=9, seed=3).context_target(1, seed=0)
    both = context.joined(target)
    posterior = RefittedRBF(known_rbf(noise=noise)).predict(both, both)
    assert torch.isfinite(posterior.mean).all()
    assert torch.isfinite(posterior.evidence.total).all()
    assert (posterior.evidence.total >= condition(known_rbf(noise=noise), both).evidence.total - 1e-6).all()


def test_refitted_kernel_maximises_each_contexts_own_evidence():
    """Against scikit-learn's own fit of variance and lengthscale, task by task."""
    tasks = sinusoid.draw_sinusoids(6, seed=3)
    context, target = tasks.context_target(12, seed=0)
    prior = known_rbf(noise=1e-3)
    posterior = RefittedRBF(prior).fit(tasks).predict(context, target)
    for i in range(len(tasks)):
        kernel = ConstantKernel(1.0, (1e-4, 1e4)) * RBF(1.0, (1e-2, 1e2))
        oracle = GaussianProcessRegressor(kernel, alpha=1e-3, n_restarts_optimizer=3, random_state=0)
        oracle.fit(context[i].x.numpy(), context[i].y.numpy().ravel())
        assert posterior.evidence.total[i].item() == pytest.approx(oracle.log_marginal_likelihood_value_, abs=1e-3)
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        assert posterior.mean[rows, 0].numpy() == pytest.approx(oracle.predict(target[i].x.numpy()), abs=2e-2)
    assert len(prior.learned_parameters()) == 2  # the prior that lent its mean is as it was
    fixed = score(condition(prior, context).at(target), target)
    assert isinstance(fixed, Scores)
    assert (posterior.evidence.total > fixed.values["evidence"]).all()


def test_rows_can_be_added_to_an_earlier_run(tmp_path):
    whole = run_experiment("step", Options(quick=True, progress=False, methods=("vanilla", "learned mean")))
    first = run_experiment("step", Options(quick=True, progress=False, methods=("vanilla",)))
    first.write(tmp_path)
    both = run_experiment(
        "step", Options(quick=True, progress=False, methods=("learned mean",)), Results.read(tmp_path)
    )
    assert both.rows == whole.rows
    assert {claim["id"] for claim in both.claims} == {claim["id"] for claim in whole.claims}
    assert set(both.settings["training"]) == {"vanilla", "learned mean"}
    with pytest.raises(OptionError, match="the earlier run has seed = 0 and this one 1"):
        run_experiment("step", Options(quick=True, progress=False, seed=1, methods=("vanilla",)), both)
    with pytest.raises(OptionError, match="of step, not of sinusoid"):
        run_experiment("sinusoid", Options(quick=True, progress=False, methods=("zero mean",)), both)
