"""The automatic choice: what it says of itself is true, and it is never far behind what it chose from."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import nnls

import metaprior
from metaprior import DataError, MetaGP, MetapriorWarning, NotFittedError, OptionError, Tasks, UnknownNameError
from metaprior.inference import CalibratedPosterior, Calibration, PossiblePosterior, WithinPossible
from metaprior.learning import checkpoints
from metaprior.methods import FPCA, METHODS, Combination, Entry, GPPerTask, LearnedPrior, make_method
from metaprior.scoring import evaluate
from metaprior.selection import Auto
from metaprior.selection.stacking import (
    LEAST_WEIGHT,
    combined_weights,
    densities,
    drawn_weights,
    least_squares_weights,
    stacking_weights,
)
from metaprior.selection.trying import Question, Seen, Values
from metaprior.splits import default_contexts, default_sizes, k_folds, random_sizes
from metaprior.tasks import resolution
from tests.problems import ragged

FAST = ("gp per task", "shared gp", "fpca")


def curves(count=40, seed=0, n=8):
    """A mean curve with a random level and slope, and a little noise."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 2, n))
        pairs.append((x, np.sin(3 * x) + rng.normal() + rng.normal() * x + 0.1 * rng.normal(size=n)))
    return Tasks.from_pairs(pairs, [f"{seed} {k}" for k in range(count)])


@pytest.fixture(scope="module")
def fitted():
    return Auto(rungs=FAST, progress=False).fit(curves())


def test_it_tells_what_it_tried_and_why_it_chose(fitted):
    assert [one.name for one in fitted.tried_] == list(FAST)
    densities = {one.name: one.density.mean for one in fitted.tried_}
    best = max(densities, key=densities.get)
    assert best == "fpca"
    assert set(fitted.chosen_) <= set(FAST)
    assert sum(fitted.chosen_.values()) == pytest.approx(1.0)
    assert "fpca" in fitted.why_
    assert not fitted.left_out_


def test_held_out_tasks_are_never_learned_from(monkeypatch):
    """What each rung is fitted on and what it is scored on have no task in common."""
    seen = []

    class Spy(GPPerTask):
        kind = "spy"

        def fit(self, tasks):
            self.known = set(tasks.ids)
            return super().fit(tasks)

        def condition(self, context):
            seen.append(self.known & set(context.ids))
            return super().condition(context)

    monkeypatch.setitem(METHODS, "shared gp", Entry(lambda *asked: Spy(), rung=True))
    Auto(rungs=("shared gp",), progress=False).fit(curves(20))
    assert len(seen) == 5  # folds
    assert not any(seen)


def test_predictions_are_calibrated_on_new_tasks(fitted):
    context, target = curves(300, seed=5).context_target(3, seed=0)
    found = evaluate(fitted, context, target)
    assert found.summary("coverage_90").mean == pytest.approx(0.9, abs=0.05)
    best = evaluate(FPCA().fit(curves()), context, target)
    assert found.summary("mse").mean < 1.05 * best.summary("mse").mean
    assert found.summary("log_likelihood").mean > best.summary("log_likelihood").mean - 0.03


def test_a_task_unlike_the_past_ones_is_implausible(fitted):
    usual = curves(50, seed=9).context_target(4, seed=0).context
    strange = Tasks.from_pairs([([0.1, 0.5, 1.0, 1.5], [30.0, -20.0, 40.0, -10.0])])
    assert float(fitted.plausibility(strange)[0]) < 0.02
    found = fitted.plausibility(usual)
    assert 0.35 < float(found.mean()) < 0.65
    assert float((found < 0.02).double().mean()) < 0.1
    assert fitted.plausibility(Tasks.empty(["new"], 1, 1)).tolist() == [1.0]


def test_a_choice_makes_the_trip_to_a_file_and_back(fitted, tmp_path):
    gp = MetaGP.of(fitted)
    gp.save(tmp_path / "m")
    again = metaprior.load(tmp_path / "m")
    context, target = curves(5, seed=2).context_target(3, seed=0)
    one, two = gp.predict(context, target), again.predict(context, target)
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.quantiles([0.05, 0.95]), two.quantiles([0.05, 0.95]))
    assert again.method_.tried_ == [one._replace(seconds=None) for one in fitted.tried_]  # a file has no clock
    assert again.method_.chosen_ == fitted.chosen_
    assert torch.equal(again.method_.plausibility(context), fitted.plausibility(context))


def test_it_goes_on_from_a_checkpoint_to_the_same_end(tmp_path, monkeypatch):
    tasks, path = curves(20), tmp_path / "c"
    whole = Auto(rungs=FAST, progress=False).fit(tasks)
    write, count = checkpoints.Checkpoint.write, []

    def stop(self, values):
        write(self, values)
        count.append(len(values["seen"]))
        if len(count) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.Checkpoint, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        Auto(rungs=FAST, progress=False).fit(tasks, checkpoint=path)
    monkeypatch.setattr(checkpoints.Checkpoint, "write", write)
    again = Auto(rungs=FAST, progress=False).fit(tasks, checkpoint=path)
    assert again.chosen_ == whole.chosen_
    assert again.calibration_ == whole.calibration_
    assert not path.exists()


@pytest.mark.parametrize("count", [2, 3, 6])
def test_few_tasks_are_enough(count):
    found = Auto(rungs=FAST, progress=False).fit(curves(count))
    context, target = curves(3, seed=1).context_target(3, seed=0)
    assert torch.isfinite(found.predict(context, target).log_density(target.y)).all()


def test_what_it_cannot_do_is_told(fitted):
    with pytest.raises(DataError, match=r"there is one task only: .* Give two or more .* or choose mean and kernel"):
        Auto(rungs=FAST, progress=False).fit(curves(1))
    with pytest.raises(UnknownNameError, match="unknown rung 'fpac'"):
        Auto(rungs=("fpac",))
    with pytest.raises(OptionError, match=r"hidden: an option of a prior whose mean or kernel you choose"):
        MetaGP(hidden=(3,))
    with pytest.raises(NotFittedError):
        MetaGP().predict(curves(2), curves(2))
    several = MetaGP.of(_together(curves(20)))
    with pytest.raises(OptionError, match="a mixture of several priors, not one Gaussian-process prior"):
        several.to_botorch([1.0], [1.0])


def _together(tasks):
    return Combination([FPCA(size=4, rank=2), GPPerTask()], [3, 1]).fit(tasks)


def test_a_combination_is_the_weighted_mixture():
    tasks = curves(20)
    both = _together(tasks)
    context, target = curves(6, seed=3).context_target(3, seed=0)
    posterior = both.predict(context, target)
    parts = [method.predict(context, target).log_density(target.y) for method in both.methods]
    expected = torch.log(0.75 * parts[0].exp() + 0.25 * parts[1].exp())
    assert torch.allclose(posterior.log_density(target.y), expected)
    with pytest.raises(OptionError, match="each with a weight above 0"):
        Combination([FPCA()], [0])


def test_stacking_weights_are_where_the_likelihood_is_highest():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(np.where(rng.random(4000) < 0.7, rng.normal(0, 1, 4000), rng.normal(0, 5, 4000)))
    density = torch.stack([torch.from_numpy(stats.norm(0, s).logpdf(y.numpy())) for s in (1, 5, 0.01)], 1)
    found = stacking_weights(density, torch.ones(4000).double())
    assert found.tolist() == pytest.approx([0.7, 0.3, 0.0], abs=0.03)


def test_weights_of_the_least_squared_error():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.normal(size=3000))
    means = torch.stack([y + torch.from_numpy(rng.normal(0, s, 3000)) for s in (0.5, 1.0, 5.0)], 1)
    found = least_squares_weights(means, y, torch.ones(3000).double())
    expected = np.array([1 / 0.25, 1.0, 1 / 25])  # independent errors: by the inverse of their variance
    assert found.tolist() == pytest.approx((expected / expected.sum()).tolist(), abs=0.02)


def test_values_that_were_rounded_are_judged_as_such():
    tasks = Tasks.from_pairs([(np.arange(30.0), np.full(30, float(k % 4))) for k in range(8)])
    assert resolution(tasks).tolist() == [1.0]
    assert resolution(ragged()).tolist() == [0.0]
    gp = GPPerTask().fit(tasks)
    context, target = tasks.context_target(20, seed=0)
    posterior = gp.predict(context, target)
    plain, rounded = posterior.log_density(target.y), posterior.log_recorded_density(target.y, resolution(tasks))
    assert float(plain.max()) > 0.5  # surer than a whole number allows
    assert float(rounded.max()) <= 0.0
    assert torch.equal(posterior.log_recorded_density(target.y, torch.zeros(1).double()), plain)


def gaussians(scale=1.0, count=400, seed=0):
    """A method whose deviations are wrong by a factor, and values."""
    tasks = curves(count, seed=seed)
    context, target = tasks.context_target(4, seed=0)
    posterior = FPCA(size=6, rank=3).fit(curves(200, seed=99)).predict(context, target)
    y = (
        posterior.mean
        + scale * posterior.sd * torch.randn(posterior.mean.shape, generator=torch.Generator().manual_seed(1)).double()
    )
    return posterior, target, y


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_recalibration_puts_a_wrong_scale_right(scale):
    posterior, target, y = gaussians(scale)
    cdf = posterior.cdf(y).flatten()
    calibration = Calibration.of(cdf, torch.ones_like(cdf), len(target))
    right = CalibratedPosterior(posterior, calibration)
    for level in (0.5, 0.8, 0.9):
        lower, upper = right.interval(level)
        assert float(((lower <= y) & (y <= upper)).double().mean()) == pytest.approx(level, abs=0.03)
    assert float((right.sd / posterior.sd).mean()) == pytest.approx(scale, rel=0.1)
    gain = float((right.log_density(y) - posterior.log_density(y)).mean())
    assert gain > (0.1 if scale != 1 else -0.01)
    assert torch.equal(right.mean, posterior.mean)


def test_a_calibrated_posterior_is_a_distribution():
    posterior, _, y = gaussians(1.5, count=3)
    right = CalibratedPosterior(posterior, Calibration((0.9, 1.6, 2.6, 3.0)))
    q = right.quantiles([0.03, 0.4, 0.77])
    for k, probability in enumerate((0.03, 0.4, 0.77)):
        assert torch.allclose(right.cdf(q[k]), torch.tensor(probability).double(), atol=1e-9)
    grid = torch.linspace(-12, 12, 3001).double()
    density = torch.stack([right.log_density(posterior.mean + t * posterior.sd)[0, 0].exp() for t in grid.tolist()])
    assert float(torch.trapezoid(density, grid) * posterior.sd[0, 0]) == pytest.approx(1.0, abs=1e-3)
    same = CalibratedPosterior(posterior, Calibration.identity())
    assert torch.allclose(same.log_density(y), posterior.log_density(y), atol=1e-9)
    assert torch.allclose(same.joint_log_density(y), posterior.joint_log_density(y), atol=1e-9)
    assert torch.allclose(same.samples(3, seed=0), posterior.samples(3, seed=0))
    drawn = right.samples(4000, seed=0)
    lower, upper = right.interval(0.9)
    assert float(((drawn >= lower) & (drawn <= upper)).double().mean()) == pytest.approx(0.9, abs=0.02)


def test_a_learned_prior_of_every_new_part_makes_the_trip(tmp_path):
    tasks = curves(20)
    context, target = curves(4, seed=1).context_target(3, seed=0)
    for options in (
        {"kernel": "eigenfunctions", "functions": 3},
        {"kernel": "eigenfunctions + deep", "functions": 3, "noise": "deep"},
        {"kernel": "deep", "degrees": 4.0},
        {"kernel": "exponential"},
    ):
        gp = MetaGP("deep", hidden=(5,), max_epochs=5, progress=False, **options).fit(tasks)
        gp.save(tmp_path / "m")
        again = metaprior.load(tmp_path / "m")
        assert torch.equal(again.predict(context, target).sd, gp.predict(context, target).sd)
    warped = metaprior.methods.Warped(LearnedPrior("constant", "rbf", max_epochs=5, progress=False)).fit(tasks)
    warped.save(tmp_path / "m")
    again = metaprior.load(tmp_path / "m")
    assert torch.equal(again.predict(context, target).mean, warped.predict(context, target).mean)
    with pytest.raises(OptionError, match="a prior of warped targets"):
        again.to_gpytorch([0.1], [1.0])


def test_a_task_unlike_the_past_ones_is_noted(fitted):
    import pandas as pd

    gp = MetaGP.of(fitted)
    strange = pd.DataFrame({"task": "odd", "x": [0.1, 0.5, 1.0, 1.5], "y": [30.0, -20.0, 40.0, -10.0]})
    usual = pd.DataFrame({"task": "usual", "x": [0.1, 0.5, 1.0], "y": [0.3, 1.0, 0.1]})
    table = pd.concat([usual, strange])
    with pytest.warns(MetapriorWarning, match=r"1 of 2 tasks are unlike those the prior was learned from \(odd\)"):
        plain = gp.predict(table, at=[1.2])
    assert plain["plausibility"].tolist()[1] < 0.02 < plain["plausibility"].tolist()[0]


def test_the_removed_option_fallback_is_refused_with_what_to_do(fitted):
    gp = MetaGP.of(fitted)
    assert not hasattr(fitted, "fallback_")
    assert "fallback" not in fitted.state().structure["parts"]
    for predict in (gp.predict, lambda *args, **options: list(gp.predict_batches(*args, **options))):
        with pytest.raises(OptionError, match=r"fallback was removed: .* plausibility"):
            predict({"task": [1], "x": [0.1], "y": [0.3]}, [1.2], fallback=True)
    with pytest.raises(OptionError, match="no option 'level_': there are level, latent"):
        gp.predict({"task": [1], "x": [0.1], "y": [0.3]}, [1.2], level_=0.5)


def test_least_squares_weights_are_those_of_scipy():
    """Also with methods that say the same, and of any scale."""
    generator = torch.Generator().manual_seed(0)
    for k in range(60):
        n = 1 + k % 11
        errors = torch.randn(40, n, generator=generator, dtype=torch.float64) + torch.randn(n, generator=generator)
        if k % 3 == 0 and n > 1:
            errors[:, 0] = errors[:, 1]
        y = torch.randn(40, generator=generator, dtype=torch.float64)
        found = least_squares_weights(y[:, None] + 10.0 ** (k % 5 - 2) * errors, y, torch.ones(40).double())
        rows = torch.cat([errors / errors.abs().max() / math.sqrt(40), torch.ones(1, n)])
        theirs = torch.from_numpy(nnls(rows.numpy(), np.eye(41)[-1])[0])
        ours, least = (float((errors @ (w / w.sum())).square().mean()) for w in (found, theirs))
        assert bool((found >= 0).all())
        assert ours == pytest.approx(least, rel=1e-8)


def test_least_squares_weights_with_a_wild_method():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(500, generator=generator, dtype=torch.float64)
    errors = torch.randn(500, 3, generator=generator, dtype=torch.float64) * torch.tensor([0.3, 1.0, 300.0])
    found = least_squares_weights(y[:, None] + errors, y, torch.ones(500, dtype=torch.float64))
    best = min(
        ((a, b, 1 - a - b) for a in np.linspace(0, 1, 201) for b in np.linspace(0, 1 - a, 201)),
        key=lambda w: float((errors @ torch.tensor(w, dtype=torch.float64)).square().mean()),
    )
    np.testing.assert_allclose(found, best, atol=0.01)


def test_a_checkpoint_of_other_contexts_or_covariates_is_refused(tmp_path):
    tasks = Tasks.from_pairs([(np.arange(5.0), np.arange(5.0) + k % 3) for k in range(6)])
    rungs = ("gp per task", "shared gp")
    prints = []
    for given in (tasks, tasks.with_task_x({"kind": [0.0, 1.0, 2.0] * 2})):
        for sizes in ([1], [3]):
            auto = Auto(rungs=rungs, contexts=random_sizes(sizes, 0), progress=False)
            prints.append(auto._fingerprint(given, auto.contexts))
    assert len(set(prints)) == 4


def test_tasks_of_one_point_leave_nothing_to_find_implausible():
    tasks = Tasks.from_pairs([([float(k)], [float(k)]) for k in range(8)])
    auto = Auto(rungs=("shared gp",), progress=False).fit(tasks)
    assert auto.plausibility(tasks).tolist() == [1.0] * 8


def test_with_few_tasks_a_wide_error_does_not_make_a_bad_rung_near():
    auto = Auto(rungs=("gp per task", "shared gp"), progress=False)
    tasks = torch.arange(4)
    ones, known = torch.ones(4, dtype=torch.float64), torch.ones(4, dtype=torch.int64)
    zero = torch.zeros(4, dtype=torch.float64)
    values = Values(tasks, ones, zero, known, *torch.zeros(2, 4, dtype=torch.int64))
    auto._choose(
        {
            "gp per task": Seen(torch.tensor([-9.0, 0.0, 0.0, 0.0]).double(), *[zero] * 6),
            "shared gp": Seen(torch.tensor([0.1, 0.0, 0.0, 0.0]).double(), *[zero] * 6),
        },
        values,
        ["1"],
    )
    assert auto.chosen_["shared gp"] > 0.8


def held_out(count, *density):
    """Tasks of one held-out value each, of which methods said so much."""
    ones, zero = torch.ones(count).double(), torch.zeros(count).double()
    values = Values(torch.arange(count), ones, zero, torch.ones(count).long(), *torch.zeros(2, count).long())
    parts = [Seen(one, *[zero] * 6) for one in density]
    return dict(zip(("gp per task", "shared gp", "fpca"), parts, strict=False)), values


@pytest.mark.parametrize(("count", "least"), [(6, 0.1), (600, 0.0)])
def test_the_fewer_tasks_the_more_methods_have_a_share(count, least):
    """One is ahead on two tasks of three, by as much as the other on the third; a third one is never ahead."""
    better = torch.tensor([1.0, 1.0, 0.0]).double().repeat(count // 3)
    seen, values = held_out(count, 0.2 * better, 0.2 * (1 - better), torch.full((count,), -0.5).double())
    shares = drawn_weights(densities(seen), values, 0)
    assert float(shares.sum()) == pytest.approx(1.0)
    assert float(shares[0]) > float(shares[1]) >= least
    assert float(shares[2]) < 0.02
    plain = stacking_weights(densities(seen), values.weight)
    assert (float((shares - plain).abs().max()) > 0.1) == (count == 6)


def test_draws_weigh_whole_tasks():
    """Fifty values of one task are one voice, however often they were measured."""
    density = torch.cat([torch.full((50,), 1.0), torch.zeros(2)]).double()
    task = torch.cat([torch.zeros(50), torch.tensor([1.0, 2.0])]).long()
    weight = torch.cat([torch.full((50,), 0.02), torch.ones(2)]).double()
    zero = torch.zeros(52).double()
    values = Values(task, weight, zero, torch.ones(3).long(), *torch.zeros(2, 52).long())
    found = drawn_weights(torch.stack([density, 1 - density], 1), values, 0)
    assert float(found[0]) == pytest.approx(1 / 3, abs=0.15)


def test_the_choice_is_the_weighted_combination_and_says_why():
    auto = Auto(rungs=("gp per task", "shared gp"), progress=False)
    gains = torch.tensor([0.5, -0.5] * 6).double()
    auto._choose(*held_out(12, gains, -gains), ["1"])
    assert auto.chosen_ == {"gp per task": pytest.approx(0.5, abs=0.1), "shared gp": pytest.approx(0.5, abs=0.1)}
    assert "from that of the best candidate alone" in auto.why_
    auto._choose(*held_out(12, gains, gains - 1), ["1"])
    assert list(auto.chosen_) == ["gp per task"]
    assert "alone" in auto.why_


def test_calibration_weighs_values_by_their_tasks():
    """One task of many values that lie far out, and many of few that do not: tasks count the same."""
    near, far = torch.full((60,), 0.5).double(), torch.full((600,), 0.9999).double()
    cdf = torch.cat([near, far])
    weights = torch.cat([torch.ones(60), torch.full((600,), 1 / 600)]).double()
    weighed = Calibration.of(cdf, weights, 61)
    assert weighed.reach[2] < 1.3  # 60 of 61 tasks lie in the middle
    assert Calibration.of(cdf, torch.ones_like(cdf), 61).reach[2] > 2.0


def test_few_tasks_are_believed_half_and_many_fully():
    cdf = torch.special.ndtr(2 * torch.special.ndtri(torch.linspace(0.0005, 0.9995, 1000).double()))
    expected = torch.special.ndtri((1 + torch.tensor([0.5, 0.8, 0.9, 0.97]).double()) / 2)
    for tasks, share in ((30, 0.5), (3_000_000, 1.0), (0, 0.0)):
        found = torch.tensor(Calibration.of(cdf, torch.ones_like(cdf), tasks).reach).double()
        assert torch.allclose(found / expected, torch.full((4,), 2.0**share).double(), rtol=0.02)


def test_values_that_were_rounded_are_judged_by_the_probability_of_what_was_recorded():
    """Against the same by hand, fold by fold; a plain density of counts is another number."""
    rng = np.random.default_rng(0)
    tasks = Tasks.from_pairs([(np.arange(12.0), rng.poisson(2.0, 12).clip(0, 5).astype(float)) for _ in range(20)])
    found = Auto(rungs=("gp per task",), contexts=random_sizes([4]), progress=False).fit(tasks)
    said = {"plain": [], "recorded": []}
    for fold in k_folds(tasks, 5, seed=0):
        method = GPPerTask().fit(tasks.select(fold.train))
        context, target = random_sizes([4])(tasks.select(fold.judge))["4"]
        posterior = method.predict(context, target)
        said["plain"].append(posterior.log_density(target.y))
        said["recorded"].append(posterior.log_recorded_density(target.y, torch.ones(1).double()))
    plain, recorded = (float(torch.cat(parts).mean()) for parts in said.values())
    assert found.tried_[0].density.mean == pytest.approx(recorded, abs=1e-9)
    assert abs(plain - recorded) > 1e-3


def test_every_fold_is_judged_from_the_same_context_sizes():
    """Tasks of many sizes: what is typical of a fold is not what is typical of all."""
    rng = np.random.default_rng(0)
    pairs = [(np.sort(rng.uniform(0, 2, n)), rng.normal(size=n)) for n in rng.integers(3, 26, 30)]
    tasks = Tasks.from_pairs(pairs)
    sizes = default_sizes(tasks)
    found = Auto(rungs=("gp per task",), progress=False).fit(tasks)
    assert list(found.scores_) == [*map(str, sizes), *(f"first {n}" for n in sizes)]
    for n in sizes:
        assert found.scores_[str(n)]["mse"]["tasks"] == int((tasks.sizes > n).sum())


def test_first_points_are_judged_for_several_inputs_too():
    found = Auto(rungs=("gp per task",), progress=False).fit(ragged(d=2, count=12, largest=8))
    assert any(label.startswith("first") for label in found.scores_)


def test_scores_are_of_the_distribution_that_other_folds_recalibrated():
    """Density and coverage, against predictions fold by fold."""
    tasks = curves(40)
    auto = Auto(rungs=("fpca",), seed=0, progress=False).fit(tasks)
    contexts, folds = default_contexts(tasks, 0), k_folds(tasks, 5, 0)
    asked = []  # of each fold, every setting's posterior and target
    for fold in folds:
        given, judged = tasks.select(fold.train), tasks.select(fold.judge)
        method = make_method("fpca", given).fit(given)
        asked.append(
            {n: (method.condition(one.context).at(one.target), one.target) for n, one in contexts(judged).items()}
        )
    density, covered, plain = [], [], []
    for k in range(5):
        others = [one for other in asked[:k] + asked[k + 1 :] for one in other.values()]
        cdf = torch.cat([posterior.cdf(target.y).flatten() for posterior, target in others])
        weight = torch.cat([1 / target.sizes[target.task_of_row].double() for _, target in others])
        posterior, target = asked[k]["1"]
        right = CalibratedPosterior(posterior, Calibration.of(cdf, weight, 40 - len(folds[k].judge)))
        lower, upper = right.interval(0.9)
        density.append(right.log_density(target.y))
        covered.append(((lower <= target.y) & (target.y <= upper)).double())
        plain.append(posterior.log_density(target.y))
    found = auto.scores_["1"]
    assert found["log_likelihood"]["mean"] == pytest.approx(float(torch.cat(density).mean()), abs=1e-6)
    assert found["coverage_90"]["mean"] == pytest.approx(float(torch.cat(covered).mean()), abs=1e-6)
    assert found["log_likelihood"]["mean"] != pytest.approx(float(torch.cat(plain).mean()), abs=1e-4)


@pytest.mark.parametrize("kind", ["counts", "binary", "limited"])
def test_scores_of_whole_and_limited_targets_are_those_of_the_bounds_that_are_given(kind):
    """Against predictions fold by fold: coverage, density and error of values that are possible."""
    rng = np.random.default_rng(3)
    made = {
        "counts": lambda: rng.poisson(rng.uniform(0.5, 4), 8).astype(float),
        "binary": lambda: (rng.random(8) < rng.uniform(0.2, 0.8)).astype(float),
        "limited": lambda: rng.normal(rng.uniform(-0.5, 1), 1.0, 8).clip(0, None),
    }
    support, integer = {"counts": ((0, None), True), "binary": ((0, 1), True), "limited": ((0, None), False)}[kind]
    tasks = Tasks.from_pairs([(np.arange(8.0), made[kind]()) for _ in range(20)]).with_possible(support, integer)
    contexts, folds = random_sizes([3]), k_folds(tasks, 5, 0)
    auto = Auto(rungs=("gp per task",), contexts=contexts, progress=False).fit(tasks)
    plain = []
    for fold in folds:
        method = WithinPossible(GPPerTask().fit(tasks.select(fold.train)), tasks.possible)
        context, target = contexts(tasks.select(fold.judge))["3"]
        plain.append((method.predict(context, target), target))
    density, covered, error = [], [], []
    for k, (posterior, target) in enumerate(plain):
        pits = [found.pit_interval(other.y) for found, other in plain[:k] + plain[k + 1 :]]
        below, upto = (torch.cat(part).flatten() for part in zip(*pits, strict=True))
        nodes = Calibration.pit_nodes(below, upto)
        right = CalibratedPosterior(posterior.posterior, Calibration.of(nodes, torch.ones_like(upto), 16))
        right = PossiblePosterior.of(right, tasks.possible)
        lower, upper = right.interval(0.9)
        density.append(right.log_density(target.y))
        covered.append(((lower <= target.y) & (target.y <= upper)).double())
        error.append((posterior.mean - target.y).square())
    found = auto.scores_["3"]
    assert found["log_likelihood"]["mean"] == pytest.approx(float(torch.cat(density).mean()), abs=1e-6)
    assert found["coverage_90"]["mean"] == pytest.approx(float(torch.cat(covered).mean()), abs=1e-9)
    assert found["mse"]["mean"] == pytest.approx(float(torch.cat(error).mean()), rel=1e-6)
    assert auto.coverage_[1] == pytest.approx(found["coverage_90"]["mean"])
    lower, upper = zip(*(posterior.interval(0.9) for posterior, _ in plain), strict=True)
    y = torch.cat([target.y for _, target in plain])
    inside = ((torch.cat(lower) <= y) & (y <= torch.cat(upper))).double().mean()
    assert auto.coverage_[0] == pytest.approx(float(inside), abs=1e-9)


def test_a_combination_is_judged_after_what_has_little_weight_is_left_out():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.normal(size=600))
    task = torch.arange(200).repeat_interleave(3)
    zero = torch.zeros(600).double()
    values = Values(task, torch.ones(600).double(), y, torch.ones(200), *torch.zeros(2, 600).long())
    seen = {}
    for name, sd in (("one", 1.0), ("two", 1.3), ("hardly", 3.0)):
        density = torch.from_numpy(stats.norm(0, sd).logpdf(y.numpy()))
        seen[name] = Seen(density, *[zero] * 6)
    raw, kept = drawn_weights(densities(seen), values, 0), combined_weights(seen, values, 0)
    assert 0 < float(raw.min()) < LEAST_WEIGHT
    assert float(kept[raw < LEAST_WEIGHT].sum()) == 0.0
    assert float(kept.sum()) == pytest.approx(1.0)


def test_not_fitted_is_told():
    for ask in (lambda auto: auto.condition(curves(2)), lambda auto: auto.state()):
        with pytest.raises(NotFittedError):
            ask(Auto())


def test_every_task_is_judged_and_counts_the_same(fitted):
    assert {one.density.tasks for one in fitted.tried_} == {40}
    tasks = Tasks.from_pairs([(np.arange(float(n)), np.zeros((n, 2))) for n in (3, 9, 20)])
    steps = torch.zeros(2, dtype=torch.float64)
    question = Question.of(tasks, torch.arange(3), random_sizes([1, 2]), steps, ["1", "2"])
    seen, values = question.answer(GPPerTask().fit(tasks)), question.values
    for k, context in enumerate((1, 2)):
        part = values.some(values.setting == k)
        total = torch.zeros(3).double().index_add_(0, part.task, part.weight)
        assert total.numpy() == pytest.approx(1.0)
        assert torch.bincount(part.task).tolist() == [2 * (n - context) for n in (3, 9, 20)]
        assert part.known.tolist() == [2] * 3 + [4] * 3
    assert len(seen.density) == len(values.y)


def test_stacking_weighs_values_by_their_tasks():
    """A hundred values of one task say that the first method is right, one each of fifty that the second is."""
    first, second = torch.tensor([[0.0, -5.0]]).double(), torch.tensor([[-5.0, 0.0]]).double()
    density = torch.cat([first.expand(100, 2), second.expand(50, 2)])
    weight = torch.cat([torch.full((100,), 0.01), torch.ones(50)]).double()
    assert stacking_weights(density, weight).tolist() == pytest.approx([1 / 51, 50 / 51], abs=0.01)
