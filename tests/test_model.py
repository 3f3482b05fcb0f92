import dataclasses
import inspect

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import metaprior
from metaprior import (
    DataError,
    HyperPosterior,
    HyperPrior,
    LearnedPrior,
    MetaGP,
    Method,
    NotFittedError,
    OptionError,
    Prior,
    PriorSpec,
    Tasks,
    TrainingSpec,
    condition,
    evidence,
    make_prior,
    meta_train,
)
from metaprior.cli import app
from metaprior.priors import DeepMean
from metaprior.selection import Auto
from tests.problems import known_rbf, ragged
from tests.test_learning import sines

QUICK = {"hidden": (8,), "max_epochs": 40, "progress": False}


@pytest.fixture(scope="module")
def fitted():
    return MetaGP("deep", "deep", seed=0, **QUICK).fit(in_units())


def in_units(seed=0, p=1):
    """Sines in the units of some instrument: x in hundreds, y around 40."""
    tasks = sines(seed=seed)
    return Tasks.from_pairs([(300 + 50 * t.x, (40 + 7 * t.y).expand(-1, p)) for t in tasks])


def test_it_is_a_method_and_fit_returns_it():
    gp = MetaGP("zero", "rbf", seed=0, **QUICK)
    assert isinstance(gp, Method)
    assert gp.fit(in_units()) is gp


def test_options_are_kept_in_two_specifications_and_given_modules_stay_as_they_are():
    mean, kernel = DeepMean(1, hidden=(3,), seed=0), known_rbf().kernel
    made_of = {"mean": mean, "kernel": kernel, "hidden": (5,), "learn": ("mean",), "noise": 0.1}
    how = {"max_epochs": 3, "patience": 2, "weighting": "point"}
    gp = LearnedPrior(**made_of, **how, progress=False)
    before = [p.clone() for p in mean.parameters()]
    gp.fit(in_units())
    assert all(getattr(gp.spec, name) == value for name, value in made_of.items())
    assert (gp.spec.mean is mean, gp.spec.kernel is kernel) == (True, True)
    assert gp.training == TrainingSpec(**how)
    assert all(torch.equal(a, b) for a, b in zip(before, mean.parameters(), strict=True))
    assert {k for k in vars(gp) if k.endswith("_")} == {"prior_", "scaler_", "task_x_", "trained_on_", "training_"}
    given = {"hidden": [5], "learn": ["mean"]}
    assert all(MetaGP("deep", "deep", **given).options[name] is value for name, value in given.items())  # untouched


def test_signatures_say_every_option_with_its_default():
    own = {"scale", "device", "dtype", "seed", "progress"}
    fields = {one.name: one.default for spec in (PriorSpec, TrainingSpec) for one in dataclasses.fields(spec)}
    for function, more in ((LearnedPrior, own), (MetaGP, own | {"contexts", "rungs", "budget", "thorough"})):
        found = inspect.signature(function).parameters
        assert set(found) == {*fields, *more}
        differs = {name for name, value in fields.items() if found[name].default != value}
        assert differs == ({"mean", "kernel"} if function is MetaGP else set())  # where it chooses them
    assert inspect.signature(HyperPosterior).parameters["hidden"].default == (32, 32)
    assert {*inspect.signature(meta_train).parameters} >= {one.name for one in dataclasses.fields(TrainingSpec)}


def test_an_option_that_does_not_exist_is_told_with_those_that_do():
    for wrong in (
        lambda: LearnedPrior(hiden=(3,)),
        lambda: MetaGP("deep", "deep", hiden=(3,)),
        lambda: meta_train(None, None, seed=0, hiden=(3,)),
        lambda: HyperPosterior(hiden=(3,)),
    ):
        with pytest.raises(OptionError, match=r"hiden: no option of .*patience"):
            wrong()


def test_predictions_are_in_the_users_units(fitted):
    task = in_units(seed=5)[0]
    posterior = fitted.condition(task.x[:4], task.y[:4]).at(task.x[4:])
    lower, upper = posterior.interval(0.9)
    assert ((lower < posterior.mean) & (posterior.mean < upper)).all()
    assert posterior.mean.min() > 25
    assert posterior.mean.max() < 55
    assert 0.1 < posterior.sd.median() < 10


def test_user_units_are_a_change_of_variables(fitted):
    """Everything against the prior in scaled units, by hand."""
    tasks, scaler = in_units(seed=5), fitted.scaler_
    context, target = tasks.context_target(3, seed=0)
    ours = fitted.predict(context, target)
    scaled = condition(fitted.prior_, scaler.scale(context)).at(scaler.scale(target))
    s = scaler.y_scale
    assert torch.allclose(ours.mean, scaled.mean * s + scaler.y_shift)
    assert torch.allclose(ours.variance, scaled.variance * s**2)
    assert torch.allclose(ours.function.sd, scaled.function.sd * s)
    assert torch.allclose(ours.covariances()[2][0], scaled.covariances()[2][0] * s**2)
    assert torch.allclose(ours.samples(4, seed=1), scaled.samples(4, seed=1) * s + scaler.y_shift)
    density = scaled.log_density(scaler.scale_y(target.y)) - s.log()
    assert torch.allclose(ours.log_density(target.y), density)
    joint = scaled.joint_log_density(scaler.scale_y(target.y)) - target.sizes * s.log().sum()
    assert torch.allclose(ours.joint_log_density(target.y), joint)
    found = evidence(fitted.prior_, scaler.scale(context)).total.detach() - context.sizes * s.log().sum()
    assert torch.allclose(ours.evidence.total, found)


def test_predict_many_is_condition_one_by_one(fitted):
    context, target = in_units(seed=5).context_target(2, seed=0)
    many = fitted.predict(context, target)
    for i in (0, 7, 30):
        one = fitted.condition(context[i].x, context[i].y).at(target[i].x)
        rows = slice(int(target.offsets[i]), int(target.offsets[i + 1]))
        assert torch.allclose(many.mean[rows], one.mean)
        assert torch.allclose(many.sd[rows], one.sd)


def test_one_array_of_points_serves_every_task(fitted):
    context = in_units(seed=5).context_target(2, seed=0).context
    posterior = fitted.predict(context, np.linspace(200, 400, 5))
    assert posterior.mean.shape == (5 * len(context), 1)
    assert posterior.points.sizes.tolist() == [5] * len(context)


def test_score_by_number_and_by_predicate(fitted):
    tasks = in_units(seed=5)
    many, few = fitted.score(tasks, 6), fitted.score(tasks, 1)
    assert many.summary("mse").mean < few.summary("mse").mean
    early = fitted.score(tasks, lambda x: x[:, 0] < 300)
    assert 0 < early.summary("coverage_90").mean <= 1
    assert "mse" in repr(early)


def test_several_outputs(fitted):
    gp = MetaGP("deep", "deep", seed=0, **QUICK).fit(in_units(p=2))
    posterior = gp.condition([300.0], [[40.0, 41.0]]).at([310.0, 320.0])
    assert posterior.mean.shape == (2, 2)
    assert posterior.covariances()[0].shape == (2, 2, 2)
    assert posterior.samples(3, seed=0).shape == (3, 2, 2)


def test_scaling_can_be_left_out():
    gp = MetaGP("zero", "rbf", scale=False, seed=0, **QUICK).fit(sines())
    assert gp.scaler_.y_scale.tolist() == [1.0]
    assert isinstance(gp.prior_, Prior)


def test_not_fitted():
    with pytest.raises(NotFittedError, match="call fit"):
        MetaGP().condition([1.0], [1.0])


def test_points_of_another_dimension(fitted):
    with pytest.raises(DataError, match="2 input columns, but the prior was learned on 1"):
        fitted.condition([[1.0, 2.0]], [1.0])
    with pytest.raises(DataError, match="2 target columns, but the prior was learned on 1"):
        fitted.condition([1.0], [[1.0, 2.0]])
    with pytest.raises(DataError, match="2 input columns, but the context has 1"):
        fitted.condition([1.0], [1.0]).at([[1.0, 2.0]])


def test_too_few_columns_are_not_broadcast():
    tasks = Tasks.from_pairs([(t.x.expand(-1, 2), t.y) for t in sines(20)])
    gp = MetaGP("zero", "rbf", seed=0, **QUICK).fit(tasks)
    with pytest.raises(DataError, match="1 input columns, but the context has 2"):
        gp.condition([[1.0, 2.0]], [1.0]).at([0.5, 1.0])
    with pytest.raises(DataError, match="1 input columns"):
        MetaGP("zero", "rbf", held_out=sines(5), **QUICK).fit(tasks)


def test_without_points_it_is_the_prior(fitted):
    nothing = fitted.condition([], []).at([300.0, 350.0])
    something = fitted.condition([300.0], [40.0]).at([300.0, 350.0])
    assert nothing.sd[0] > something.sd[0]
    z = fitted.prior_.at(fitted.scaler_.scale(Tasks.from_inputs([[300.0, 350.0]])).x)
    assert torch.allclose(nothing.mean, fitted.scaler_.unscale_mean(z.mean))


def test_a_callable_mean_and_a_fixed_noise_are_in_the_users_units():
    tasks = in_units()
    options = {"learn": ["kernel"], "seed": 0, **QUICK}
    scaled = MetaGP(lambda x: 0.1 * x[..., 0], "rbf", noise=4.0, **options).fit(tasks)
    posterior = scaled.condition([], []).at([300.0, 500.0])
    assert posterior.mean.ravel().tolist() == pytest.approx([30.0, 50.0])
    assert (posterior.variance - posterior.function.variance).ravel().tolist() == pytest.approx([4.0, 4.0])
    two = Tasks.from_pairs([(t.x, torch.cat([t.y, 9 * t.y], 1)) for t in tasks])
    with pytest.raises(OptionError, match="differ in scale"):
        MetaGP("zero", "rbf", noise=4.0, **options).fit(two)


def test_meta_learning_beats_a_plain_gp():
    tasks, test = in_units(), in_units(seed=9)
    learned = MetaGP("deep", "rbf", seed=0, hidden=(16, 16), progress=False).fit(tasks).score(test, 2)
    plain = MetaGP("zero", "rbf", seed=0, progress=False).fit(tasks).score(test, 2)
    assert learned.summary("mse").mean < 0.5 * plain.summary("mse").mean
    assert learned.summary("log_likelihood").mean > plain.summary("log_likelihood").mean


@pytest.mark.parametrize("dtypes", [{"dtype": torch.float32}, {"network_dtype": torch.float32}])
def test_float32_learns_and_predicts_nearly_the_same(dtypes):
    tasks, test = in_units(), in_units(seed=9)
    scores = [MetaGP("deep", "rbf", seed=0, **QUICK, **kind).fit(tasks).score(test, 3) for kind in ({}, dtypes)]
    assert scores[0].summary("mse").mean == pytest.approx(scores[1].summary("mse").mean, rel=0.1)
    assert scores[1].values["joint_log_likelihood"].dtype == torch.float64
    with pytest.raises(OptionError, match="float64 or float32"):
        MetaGP("deep", "deep", dtype=torch.float16).fit(tasks)


def test_going_on_leaves_the_start_as_it_was():
    options = {"max_epochs": 5, "progress": False}
    start = MetaGP("zero", "rbf", **options).fit(ragged(count=8))
    own, start.trained_on_ = (
        start.method_.trained_on_,
        MetaGP("zero", "rbf", **options).fit(ragged(count=3)).trained_on_,
    )
    gone_on = MetaGP("zero", "rbf", **options).fit(ragged(count=6, seed=1), start=start)
    assert start.method_.trained_on_ is own
    assert gone_on.trained_on_.tasks >= 6


def test_a_law_of_another_prior_is_refused():
    law = HyperPrior(make_prior("deep", "rbf", d=1, hidden=(3,), seed=0))
    for method in (LearnedPrior, MetaGP, HyperPosterior):
        with pytest.raises(OptionError, match="hyper_prior: give its width"):
            method("deep", "rbf", hyper_prior=law, **{} if method is HyperPosterior else QUICK).fit(in_units())


def test_a_description_of_fewer_fields_has_the_defaults_of_the_others():
    found = PriorSpec("deep", "matern", hidden=(4,)).described()
    del found["functions"], found["degrees"], found["network_dtype"]
    assert PriorSpec.from_description(found) == PriorSpec("deep", "matern", hidden=(4,))


def test_a_checkpoint_of_another_prior_is_not_taken_up(tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.learning.checkpoints.EVERY", 0.0)
    monkeypatch.setattr("metaprior.learning.checkpoints.Checkpoint.remove", lambda self: None)
    options = {"max_epochs": 4, "check_every": 2, "progress": False}
    MetaGP("constant", "rbf", **options).fit(in_units(), checkpoint=tmp_path / "kept")
    for other in ({"kernel": "matern"}, {"kernel": "rbf", "learn": ("mean",)}):
        with pytest.raises(DataError, match="another training"):
            MetaGP("constant", **other, **options).fit(in_units(), checkpoint=tmp_path / "kept")


@pytest.mark.parametrize(
    ("named", "effective"),
    [
        ({"kernel": "matern"}, ("constant", "matern")),
        ({"mean": "linear"}, ("linear", "rbf")),
        ({"mean": "zero", "kernel": "exponential"}, ("zero", "exponential")),
    ],
)
def test_a_part_that_is_not_named_is_simple(named, effective):
    gp = MetaGP(**named, **QUICK | {"max_epochs": 2}).fit(in_units())
    assert (gp.method_.spec.mean, gp.method_.spec.kernel) == effective
    assert repr(gp).startswith("MetaGP(mean={!r}, kernel={!r}, ".format(*effective))
    params = gp.get_params()
    assert {name: params[name] for name in ("mean", "kernel")} == {"mean": None, "kernel": None} | named  # as given
    again = MetaGP(*effective, **QUICK | {"max_epochs": 2}).fit(in_units())
    context, target = in_units(seed=1).context_target(3, seed=0)
    assert torch.equal(gp.predict(context, target).mean, again.predict(context, target).mean)


def test_without_mean_and_kernel_the_prior_is_chosen():
    assert isinstance(MetaGP()._make(), Auto)
    assert repr(MetaGP(seed=2)) == "MetaGP(seed=2)"


@pytest.mark.parametrize(
    ("words", "effective"),
    [
        (["--kernel", "matern"], ("constant", "matern")),
        (["--mean", "linear"], ("linear", "rbf")),
        (["--epochs", "2"], ("deep", "deep")),
    ],
)
def test_the_command_line_names_a_part_as_python_does(words, effective, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["fit", "elnino", "--epochs", "2", "--quiet", "--out", "m", *words])
    assert found.exit_code == 0, found.output
    spec = metaprior.load("m").method_.spec
    assert (spec.mean, spec.kernel) == effective
    shown = CliRunner().invoke(app, ["show", "m", "--json"]).stdout
    assert ("hidden layers" in shown) == ("deep" in effective)  # what is not there is not shown
