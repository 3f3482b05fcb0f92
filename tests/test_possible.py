"""What is known of a target: bounds, draws and means are possible values, and densities are those of recorded ones."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from metaprior import DataError, MetaGP, OptionError, Tasks, UnknownNameError, condition
from metaprior.inference import (
    CalibratedPosterior,
    Calibration,
    IndependentGaussians,
    MixturePosterior,
    PossiblePosterior,
    WarpedPosterior,
)
from metaprior.priors import make_warp
from metaprior.report import figure_text
from metaprior.scoring import score
from metaprior.selection import Auto
from metaprior.splits import random_sizes
from metaprior.tasks import Possible, read_support, resolution
from metaprior.tasks.possible import suggested_values
from tests.problems import known_rbf
from tests.test_tool import run

MEANS, SDS = torch.tensor([[-0.4], [0.3], [0.97], [5.0]]).double(), torch.tensor([[0.5], [0.1], [0.3], [2.0]]).double()


def posterior(*possible, means=MEANS, sds=SDS):
    points = Tasks.from_inputs([np.arange(float(len(means)))])
    return PossiblePosterior.of(IndependentGaussians(points, means, sds), possible)


def draws_of(found, count=200_000):
    return found.samples(count, 0)


@pytest.mark.parametrize(
    "one", [Possible(0.0, 1.0), Possible(0.0, math.inf), Possible(-math.inf, 1.0), Possible(0.0, 7.0, True)]
)
def test_everything_is_that_of_its_draws(one):
    found = posterior(one)
    drawn = draws_of(found)
    assert ((drawn >= one.lower) & (drawn <= one.upper)).all()
    assert found.mean.numpy() == pytest.approx(drawn.mean(0).numpy(), abs=0.02)
    assert found.sd.numpy() == pytest.approx(drawn.std(0).numpy(), abs=0.02)
    for value in (0.0, 0.4, 1.0, 3.0):
        expected = (drawn <= value).double().mean(0)
        assert found.cdf(torch.full_like(MEANS, value)).numpy() == pytest.approx(expected.numpy(), abs=0.005)
    lower, upper = found.interval(0.9)
    inside = ((drawn >= lower) & (drawn <= upper)).double().mean(0)
    assert (inside > 0.895).all()  # more, where an end or a whole number holds much
    assert ((lower >= one.lower) & (upper <= one.upper)).all()
    y = torch.tensor([[0.0], [0.3], [1.0], [1.0]]).double()
    y = y.round() if one.whole else y
    apart = (drawn[:100_000] - drawn[100_000:]).abs().mean(0)
    expected = (drawn - y).abs().mean(0) - 0.5 * apart
    assert found.crps(y).numpy() == pytest.approx(expected.numpy(), abs=0.02)


def has_minus_zero(values):
    return bool((np.signbit(values) & (np.asarray(values) == 0)).any())


def test_no_zero_has_a_sign(tmp_path):
    found = posterior(Possible(0.0, math.inf, True), means=torch.tensor([[-0.4], [0.3], [0.1], [-0.2]]).double())
    every = (found.mean, *found.interval(0.9), draws_of(found, 1000), found.quantiles([0.1, 0.5]), found.function.mean)
    assert not any(has_minus_zero(values.numpy()) for values in every)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"t": np.repeat(np.arange(12), 5), "x": np.tile(np.arange(5.0), 12), "y": rng.poisson(0.4, 60)}
    )
    gp = MetaGP(rungs=("gp per task", "fpca"), progress=False).fit(table, task="t", x="x", y="y", integer=True)
    at = pd.DataFrame({"t": [0, 0, 1], "x": [-0.0, 1.5, 3.0]})
    answer = gp.predict(table, at, quantiles=(0.3, 0.5), samples=20)
    assert (answer.select_dtypes("float") == 0).to_numpy().sum() > 10
    assert not has_minus_zero(answer.select_dtypes("float").to_numpy())
    table.to_csv(tmp_path / "t.csv", index=False)
    at.to_csv(tmp_path / "at.csv", index=False)
    gp.save(tmp_path / "m")
    said = run("predict", tmp_path / "m", tmp_path / "t.csv", "--at", tmp_path / "at.csv", "--samples", 20).stdout
    assert "-0" not in said.replace("\n", ",").split(",")
    assert figure_text({"mean": -0.0, "stderr": None}) == "0"


def drawn_targets(seed=0):
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=400)
    return {
        "wheeze": (rng.random(400) < 0.15, Possible(0, 1, True), "--support 0,1 --integer"),
        "seizures": (rng.negative_binomial(1, 0.05, 400), Possible(0, math.inf, True), "--support 0, --integer"),
        "score": (np.clip((12 + 3 * normal).round(), 3, 15), Possible(-math.inf, 15, True), "--support ,15 --integer"),
        "rain": (np.maximum(normal, 0), Possible(0), "--support 0,"),
        "dose": (np.exp(normal), Possible(0), "--support 0,"),
        "share": (rng.beta(3, 1, 400), Possible(0, 1), "--support 0,1"),
        "percent": (100 * rng.beta(0.8, 0.8, 400), Possible(0, 100), "--support 0,100"),
        "limit": (np.minimum(0.3 + normal, 1), Possible(-math.inf, 1), "--support ,1"),
        "celsius": ((20 + 2 * normal).round(), Possible(whole=True), "--integer"),
        "height": (150 + 9 * normal, Possible(), ""),
        "tenths": ((23 + 2 * normal).round(1), Possible(), ""),
        "grams": ((200 + 90 * rng.random(400)).round(), Possible(), ""),
        "constant": (np.ones(400), Possible(), ""),
        "few": (np.arange(19) % 2, Possible(), ""),
    }


@pytest.mark.parametrize("name", drawn_targets())
@pytest.mark.parametrize("seed", range(3))
def test_values_suggest_what_a_target_can_be(name, seed):
    values, possible, options = drawn_targets(seed)[name]
    found = suggested_values(torch.from_numpy(np.asarray(values, float)))
    assert (found, found.options()) == (possible, options)
    if options:  # the command reads them, and takes the values
        (word,) = [word for word in options.split() if not word.startswith("--")] or [None]
        tasks = Tasks.from_pairs([(np.arange(len(values)), np.asarray(values, float))])
        tasks = tasks.with_possible(read_support([word] if word else [], ["y"]), "--integer" in options)
        assert tasks.possible == (possible,)


def test_fit_names_the_options_for_targets_that_cannot_have_every_value(tmp_path):
    rng = np.random.default_rng(0)
    x, task = np.tile(np.arange(5.0), 12), np.repeat(np.arange(12), 5)
    table = pd.DataFrame({"t": task, "x": x, "y": rng.poisson(1.0, 60), "log dose": rng.exponential(size=60)})
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ["fit", tmp_path / "t.csv", "--task", "t", "--x", "x", "--out", tmp_path / "m", "--budget", "0"]
    alone = [*words, "--rungs", "gp per task"]
    said = run(*alone, "--y", "y").stderr
    assert (
        "note: all values of column 'y' are whole numbers 0 or more. If it can have no others, add --support 0, "
        "--integer: predictions then keep to them."
    ) in said
    assert "If it can have" not in run(*alone, "--y", "y", "--support", "0,").stderr
    assert "If it can have" not in run(*alone, "--y", "y", "--integer", "--quiet").stderr
    both = run(*words, "--rungs", "gp per task", "--y", "y,log dose").stderr
    assert "column 'y' are 0 or more. If it can have no others, add --support y=0,:" in both
    assert "column 'log dose' are 0 or more. If it can have no others, add --support 'log dose=0,':" in both
    compared = run(
        "compare", *words[1:-4], "--y", "y", "--methods", "context mean", "--folds", 2, "--report", tmp_path / "r"
    )
    assert "add --support 0, --integer:" in compared.stderr
    known = [*words[:-2], "--y", "y", "--mean", "constant", "--kernel", "rbf", "--epochs", 2]
    run(*known, "--support", "0,", "--overwrite")
    again = run(*words[:-4], "--out", tmp_path / "again", "--y", "y", "--from", tmp_path / "m", "--epochs", 2)
    assert "If it can have" not in again.stderr  # the model knows it
    assert "If it can have" not in run("evaluate", tmp_path / "m", tmp_path / "t.csv", "--context", 2).stderr


def test_the_density_of_a_whole_number_is_its_probability_and_all_of_them_are_one():
    found = posterior(Possible(0.0, 7.0, True))
    drawn = draws_of(found)
    total = torch.zeros_like(MEANS)
    for value in range(8):
        density = found.log_density(torch.full_like(MEANS, float(value)))
        assert density.exp().numpy() == pytest.approx((drawn == value).double().mean(0).numpy(), abs=0.005)
        total += density.exp()
    assert total.numpy() == pytest.approx(np.ones((4, 1)))
    assert (found.log_density(torch.full_like(MEANS, 2.5)) == -math.inf).all()
    assert (found.log_density(torch.full_like(MEANS, 8.0)) == -math.inf).all()


def test_inside_a_density_is_what_it_was_and_outside_there_is_none():
    found = posterior(Possible(0.0, 1.0))
    inside = torch.full_like(MEANS, 0.6)
    assert torch.equal(found.log_density(inside), found.posterior.log_density(inside))
    assert (found.log_density(inside + 1.0) == -math.inf).all()
    at_end = found.log_density(torch.ones_like(MEANS)).exp()
    assert at_end.numpy() == pytest.approx(stats.norm.sf(1.0, MEANS, SDS), rel=1e-12)
    assert torch.allclose(found.joint_log_density(inside), found.posterior.joint_log_density(inside))


def test_of_large_numbers_rounding_does_not_matter():
    found = posterior(Possible(0.0, math.inf, True), means=1e4 * MEANS.abs(), sds=1e3 * SDS)
    assert torch.equal(found.mean[1:], found.posterior.mean[1:])
    y = (1e4 * MEANS.abs()).round()
    assert found.crps(y)[1:].numpy() == pytest.approx(found.posterior.crps(y)[1:].numpy(), rel=1e-2)


@pytest.mark.parametrize("level", [0.0, -1e3, 1e9])
def test_rounding_keeps_the_mean_and_adds_a_twelfth_to_the_variance(level):
    """Sheppard's corrections, of a Gaussian that is not narrower than the steps; at 1e9 no weight may be missing."""
    means, sds = level + torch.tensor([[0.3], [-2.5], [7.25]]).double(), torch.tensor([[1.5], [4.0], [9.0]]).double()
    found = posterior(Possible(whole=True), means=means, sds=sds)
    assert (found.mean - means).abs().max() < 1e-6
    assert found.sd.numpy() == pytest.approx((sds.square() + 1 / 12).sqrt().numpy(), rel=1e-7)


def test_the_function_is_cut_and_not_rounded():
    found = posterior(Possible(0.0, 7.0, True)).function
    assert float(found.quantiles([0.5])[0, 1]) == pytest.approx(0.3)
    assert float(found.quantiles([0.5])[0, 0]) == 0.0


def doses(seed=0, count=20):
    """Concentrations near 0 and counts from 0 to 4."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        level = rng.normal(0.3, 0.3)
        for x in np.linspace(0, 1, 8):
            dose = max(level + 0.3 * np.sin(6 * x) + 0.1 * rng.normal(), 0.0)
            rows.append({"who": i, "x": x, "dose": dose, "count": float(np.clip(round(3 * dose), 0, 4))})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("y", "known"), [("dose", {"support": (0, None)}), ("count", {"support": (0, 4), "integer": True})]
)
def test_a_model_predicts_possible_values_and_keeps_that_in_its_file(tmp_path, y, known):
    table = doses()
    columns = {"task": "who", "x": "x", "y": y}
    gp = MetaGP(rungs=["shared gp", "fpca"], progress=False).fit(table, **columns, **known)
    gp.save(tmp_path / "m.metaprior")
    context, target = Tasks.from_table(doses(7), **columns).context_target(3, 0)
    for model in (gp, MetaGP.load(tmp_path / "m.metaprior")):
        found = model.predict(context, target)
        lower, upper = found.interval(0.9)
        drawn = found.samples(50, 0)
        highest = known["support"][1] or math.inf
        for values in (lower, upper, drawn, found.mean):
            assert ((values >= 0) & (values <= highest)).all()
        if known.get("integer"):
            assert torch.equal(drawn, drawn.round())
            assert torch.equal(upper, upper.round())
        covers = float(((lower <= target.y) & (target.y <= upper)).double().mean())
        assert covers > 0.85
    plain = MetaGP(rungs=["shared gp", "fpca"], progress=False).fit(table, **columns)
    assert (plain.predict(context, target).interval(0.9).lower < 0).any()  # or there would be nothing to keep in range
    steps = resolution(Tasks.from_table(table, **columns))
    metric = "log_likelihood" if known.get("integer") else "crps"  # a probability and a density have other units
    ours, theirs = (score(one.predict(context, target), target, steps).summary(metric).mean for one in (gp, plain))
    assert ours > theirs if known.get("integer") else ours < theirs


def test_values_that_are_said_to_be_impossible_are_told_with_their_rows():
    table = doses()
    tasks = Tasks.from_table(table, task="who", x="x", y=["dose", "count"])
    with pytest.raises(DataError, match=r"'dose' is said to be 0\.5 or more, but .* \(row 0 of task 0\)"):
        tasks.with_possible({"dose": (0.5, None)})
    with pytest.raises(DataError, match="'dose' is said to be whole numbers"):
        tasks.with_possible(integer=True)
    assert tasks.with_possible({"dose": (0, None)}, integer=["count"]).possible == (
        Possible(0.0, math.inf),
        Possible(whole=True),
    )
    assert tasks.with_possible().possible == ()
    for wrong in ((1, 0), (0, 0), ("a", 1), (0,)):
        with pytest.raises(OptionError):
            tasks.with_possible(wrong)
    with pytest.raises(OptionError, match="the ends of whole numbers are whole"):
        tasks.with_possible({"count": (0.5, None)}, integer=["count"])
    with pytest.raises(UnknownNameError, match="dosis"):
        tasks.with_possible({"dosis": (0, None)})


def test_what_the_tool_reads_as_support():
    assert read_support(["0,"], ["a", "b"]) == {"a": (0.0, None), "b": (0.0, None)}
    assert read_support(["0,1", "b=,5"], ["a", "b"]) == {"a": (0.0, 1.0), "b": (None, 5.0)}
    assert read_support([], ["a"]) is None
    for wrong in ("0", ",", "0,1,2", "a,b", ""):
        with pytest.raises(OptionError, match="--support"):
            read_support([wrong], ["a"])


def test_the_tool_knows_what_is_possible(tmp_path):
    table, model, out = tmp_path / "doses.csv", tmp_path / "m.metaprior", tmp_path / "predictions.csv"
    doses().to_csv(table, index=False)
    columns = ("--task", "who", "--x", "x", "--y", "count")
    said = run("fit", table, *columns, "--support", "0,4", "--integer", "--budget", "0", "--out", model).stderr
    assert "count: whole numbers 0 to 4" in said
    run("predict", model, table, "--at", "0:1:0.1", "--samples", "3", "--out", out)
    found = pd.read_csv(out)
    assert found[["mean", "lower", "upper"]].ge(0).all(axis=None)
    assert found[["mean", "lower", "upper"]].le(4).all(axis=None)
    draws = found[[name for name in found if name.startswith("sample")]]
    assert draws.eq(draws.round()).all(axis=None)
    shown = run("show", model, "--pictures", tmp_path / "pictures").stdout
    assert "can be whole numbers 0 to 4" in " ".join(shown.split())
    refused = run("fit", table, *columns, "--support", "1,4", "--out", model, "--overwrite", fails=True)
    assert "is said to be 1 to 4" in str(refused.exception)


def test_trials_of_other_possible_values_are_not_gone_on_with():
    tasks = Tasks.from_table(doses(), task="who", x="x", y="count")
    auto = Auto(rungs=("shared gp",), progress=False)
    plain, known = (auto._fingerprint(one, random_sizes([2])) for one in (tasks, tasks.with_possible((0, 4))))
    assert plain != known


def inner(name):
    """Four values of another family, of which both ends of 0 to 1 cut off some."""
    points = Tasks.from_inputs([np.arange(4.0)])
    normal = IndependentGaussians(points, MEANS, SDS)
    if name == "mixture":
        parts = [normal, IndependentGaussians(points, 1 - MEANS, SDS / 3)]
        return MixturePosterior(parts, torch.tensor([[0.3, 0.7]], dtype=torch.float64).log())
    if name == "recalibrated":
        return CalibratedPosterior(inner("mixture"), Calibration((0.5, 1.2, 1.7, 2.3)))
    if name == "box-cox":  # which has a probability at 0 already
        bent = make_warp("box-cox", torch.tensor([[0.1], [0.5], [2.0]]).double())
        return WarpedPosterior(normal, bent.bent_by(torch.tensor([-1.0]).double()))
    return normal


@pytest.mark.parametrize("name", ["normal", "mixture", "recalibrated", "box-cox"])
def test_the_density_between_the_ends_and_the_probabilities_there_are_1_together(name):
    found = PossiblePosterior.of(inner(name), [Possible(0.0, 1.0)])
    edges = np.unique(np.concatenate([np.geomspace(1e-14, 0.5, 150), 1 - np.geomspace(1e-14, 0.5, 150)]))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    total = sum(found.log_density(torch.full_like(MEANS, end)).exp() for end in (0.0, 1.0)).numpy()
    assert total.max() > 0.1
    for low, high in pairwise(edges):
        for node, weight in zip(nodes, weights, strict=True):
            y = torch.full_like(MEANS, (low + high) / 2 + (high - low) / 2 * node)
            total = total + weight * (high - low) / 2 * found.log_density(y).exp().numpy()
    assert total == pytest.approx(np.ones((4, 1)), abs=2e-3 if name == "recalibrated" else 1e-6)  # it has steps


def test_an_end_of_the_support_is_as_precise_as_the_values():
    """As 32-bit numbers, 2.8 lay above its own end, and was impossible."""
    found = posterior(Possible(-0.1, 2.8))
    for end, tail in ((-0.1, stats.norm.cdf), (2.8, stats.norm.sf)):
        at_end = torch.full_like(MEANS, end)
        assert found.log_density(at_end).exp().numpy() == pytest.approx(tail(end, MEANS, SDS))
        assert found.inverse_cdf(1e-300 if end < 0 else 1 - 1e-15)[0, 0].item() in (end, pytest.approx(end))
    assert found.cdf(2.8).tolist() == [[1.0]] * 4


@pytest.mark.parametrize("name", ["box-cox", "box-cox mixture", "recalibrated box-cox"])
def test_a_joint_density_at_an_end_where_the_posterior_has_none_is_a_number(name):
    """Of Box and Cox's warp, 0 has a probability: what ties values was −∞ − (−∞) there."""
    whole = inner("box-cox")
    if name != "box-cox":
        whole = MixturePosterior([whole, whole], torch.tensor([[0.3, 0.7]], dtype=torch.float64).log())
    if name.startswith("recal"):
        whole = CalibratedPosterior(whole, Calibration((0.5, 1.2, 1.7, 2.3)))
    found = PossiblePosterior.of(whole, [Possible(0.0, 1.0)])
    y = torch.tensor([[0.0], [0.4], [1.0], [0.0]]).double()
    alone = found.log_density(y)
    assert alone.isfinite().all()
    if name == "box-cox":  # its values are independent: nothing ties them
        assert found.joint_log_density(y).item() == pytest.approx(alone.sum().item(), rel=1e-9)
    assert found.joint_log_density(y).isfinite().all()
    assert (found.joint_log_density(torch.full_like(y, -1.0)) == -math.inf).all()


def test_what_ties_two_values_at_an_end_is_that_of_the_values_before_the_warp():
    """Under a prior that ties two points, warped: the copula has no slope of the warp in it."""
    prior = known_rbf(variance=1.0, lengthscale=2.0, noise=0.1)
    points = Tasks.from_inputs([np.array([0.0, 0.5])])
    plain = condition(prior, Tasks.empty(points.ids, 1, 1)).at(points)
    bent = make_warp("box-cox", torch.tensor([[0.1], [0.5], [2.0]]).double())
    found = PossiblePosterior.of(WarpedPosterior(plain, bent), [Possible(0.0, math.inf)])
    t = bent(torch.tensor([[1e-12], [0.3]]).double())
    C = plain.covariances()[0][0].numpy()
    joint = stats.multivariate_normal(plain.mean[:, 0].numpy(), C).logpdf(t[:, 0].numpy())
    apart = stats.norm(plain.mean.numpy(), plain.sd.numpy()).logpdf(t.numpy()).sum()
    y = torch.tensor([[0.0], [0.3]]).double()
    ties = found.joint_log_density(y).item() - found.log_density(y).sum().item()
    assert abs(joint - apart) > 0.3
    assert ties == pytest.approx(joint - apart, abs=1e-5)


def test_each_of_two_outputs_is_cut_and_rounded_for_itself():
    means, sds = torch.cat([MEANS, MEANS], 1), torch.cat([SDS, SDS], 1)
    both = posterior(Possible(0.0, 1.0), Possible(0.0, 7.0, True), means=means, sds=sds)
    alone = posterior(Possible(0.0, 1.0)), posterior(Possible(0.0, 7.0, True))
    y = torch.tensor([[0.0, 0.0], [0.3, 1.0], [1.0, 2.0], [0.5, 7.0]]).double()
    for k, one in enumerate(alone):
        assert both.mean[:, [k]].numpy() == pytest.approx(one.mean.numpy())
        assert both.sd[:, [k]].numpy() == pytest.approx(one.sd.numpy())
        assert both.crps(y)[:, [k]].numpy() == pytest.approx(one.crps(y[:, [k]]).numpy())
        assert both.log_density(y)[:, [k]].numpy() == pytest.approx(one.log_density(y[:, [k]]).numpy())
        assert both.quantiles([0.2, 0.8])[..., [k]].numpy() == pytest.approx(one.quantiles([0.2, 0.8]).numpy())
    assert both.joint_log_density(y).tolist() == pytest.approx([float(both.log_density(y).sum())])


def test_of_very_many_impossible_values_the_first_are_looked_up_alone(monkeypatch):
    """Two million of them took ten seconds to tell, of which three were shown."""
    asked = []
    monkeypatch.setattr(Tasks, "_where", lambda self, row: asked.append(row) or f"row {row}")
    with pytest.raises(DataError, match=r"but 1,000 of its values are not: 2 \(row 0\), 2 \(row 1\), 2 \(row 2\), …"):
        Tasks.from_pairs([(np.arange(1000.0), np.full(1000, 2.0))]).with_possible((None, 1.0))
    assert asked == [0, 1, 2]
