"""What is known of a task as a whole: from a table to the prior, into a file and out again."""

import json

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from metaprior import DataError, LearnedPrior, MetaGP, MetapriorWarning, OptionError, PriorSpec, Tasks, load
from metaprior.cli import app
from metaprior.methods import HyperPosterior, Warped, make_method
from metaprior.priors import KERNELS, MEANS
from metaprior.selection import Auto, portrait
from metaprior.tasks import Covariate
from tests.problems import ragged

SLOPES = {"plain": 1.0, "rich": 3.0, "none": -1.0}
FAST = {"progress": False, "hidden": (12,), "max_epochs": 60}


def chicks(count=36, seed=0, n=6, first=0):
    """Weights that grow by diet, and start by size; both are known of a chick as a whole."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        diet, size = list(SLOPES)[k % 3], float(rng.uniform(1, 3))
        for day in np.sort(rng.choice(12, n, replace=False)):
            weight = 10 * size + SLOPES[diet] * day + rng.normal(0, 0.3)
            rows.append((f"c{first + k}", float(day), weight, diet, size))
    return pd.DataFrame(rows, columns=["chick", "day", "weight", "diet", "size"])


NAMES = {"task": "chick", "x": "day", "y": "weight"}


@pytest.fixture(scope="module")
def gp():
    return MetaGP("deep", "rbf", **FAST).fit(chicks(), **NAMES, task_x=["diet", "size"])


def test_text_is_one_hot_and_numbers_stay_numbers():
    tasks = Tasks.from_table(chicks(6), **NAMES, task_x=["diet", "size"])
    assert tasks.columns.task_x == (Covariate("diet", ("none", "plain", "rich")), Covariate("size", ()))
    assert tasks.covariates.shape == (6, 4)
    assert tasks.covariates[:3, :3].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    table = chicks(6)
    assert tasks.covariates[:, 3].tolist() == table.groupby("chick", sort=False)["size"].first().tolist()
    assert tasks.d == 1  # they are no inputs of the points
    wide = tasks.widened(tasks.covariates)
    assert wide.d == 5
    assert torch.equal(wide.x[:, 1:], tasks.covariates[tasks.task_of_row])


def test_they_follow_their_tasks_through_every_cut():
    tasks = Tasks.from_table(chicks(9), **NAMES, task_x="size")
    some = tasks.select([7, 2])
    assert torch.equal(some.covariates, tasks.covariates[[7, 2]])
    first, rest = tasks.split(0.4, seed=1)
    for part in (first, rest):
        for name, value in zip(part.ids, part.covariates, strict=True):
            assert value == tasks.covariates[tasks.ids.index(name)]
    context, target = tasks.context_target(2, 0)
    assert torch.equal(context.covariates, tasks.covariates)
    assert torch.equal(context.joined(target).covariates, tasks.covariates)


def test_from_arrays_it_is_the_same():
    table = chicks(5)
    named = Tasks.from_table(table, **NAMES, task_x=["diet", "size"])
    bare = Tasks.from_table(table, **NAMES)
    firsts = table.groupby("chick", sort=False).first()
    given = bare.with_task_x({"diet": firsts["diet"].tolist(), "size": firsts["size"].to_numpy()})
    assert torch.equal(given.covariates, named.covariates)
    assert given.columns == named.columns
    with pytest.raises(DataError, match="2 values for 5 tasks"):
        bare.with_task_x({"size": [1.0, 2.0]})


def test_a_prior_learns_what_they_say(gp):
    new = chicks(9, seed=5, first=100)
    blank = MetaGP("deep", "rbf", **FAST).fit(chicks(), **NAMES)
    tasks = Tasks.from_table(new, **NAMES, task_x=gp.trained_on_.columns.task_x)
    context, target = tasks.context_target(1, 0)
    with_them = (gp.predict(context, target).mean - target.y).square().mean()
    without = (blank.predict(context, target).mean - target.y).square().mean()
    assert with_them < 0.2 * without


def test_the_algebra_is_that_of_wider_inputs(gp):
    """A prior with covariates is the prior on points that have them as inputs."""
    tasks = Tasks.from_table(chicks(4, seed=3), **NAMES, task_x=gp.trained_on_.columns.task_x)
    context, target = tasks.context_target(2, 0)
    ours = gp.predict(context, target)
    inner = gp.method_
    plain = LearnedPrior("deep", "rbf", **FAST)
    plain.prior_, plain.scaler_ = inner.prior_, inner.scaler_
    wide = plain.predict(context.widened(context.covariates), target.widened(target.covariates))
    torch.testing.assert_close(ours.mean, wide.mean)
    torch.testing.assert_close(ours.joint_log_density(target.y), wide.joint_log_density(target.y))
    torch.testing.assert_close(ours.evidence.total, wide.evidence.total)


def test_one_new_task_from_arrays(gp):
    rich, none = (
        gp.condition([0.0], [20.0], task_x={"diet": diet, "size": 2.0}).at([10.0]).mean for diet in ("rich", "none")
    )
    assert float(rich - none) == pytest.approx(40, abs=8)
    before = gp.condition([], [], task_x={"diet": "plain", "size": 2.0}).at([0.0]).mean
    assert float(before) == pytest.approx(20, abs=4)
    with pytest.raises(DataError, match="task columns diet, size"):
        gp.condition([0.0], [20.0])


@pytest.mark.parametrize("at", ["missing", "array", "table"])
def test_tables_go_in_and_come_out(gp, at):
    table = chicks(4, seed=7, first=200)
    if at == "missing":
        table.loc[table.groupby("chick").cumcount() >= 2, "weight"] = np.nan
        table.loc[table["chick"] == "c203", "weight"] = np.nan  # nothing is known of it but what it is
        table.loc[table["weight"].isna() & (table["chick"] != "c203"), "diet"] = None  # the known rows say it
        with pytest.warns(MetapriorWarning, match="1 of 4 tasks have no known rows"):
            found = gp.predict(table, "missing")
        assert set(found["chick"]) == {"c200", "c201", "c202", "c203"}
    elif at == "array":
        found = gp.predict(table, [0.0, 11.0])
        assert len(found) == 8
    else:
        points = pd.DataFrame({"chick": ["c200", "c201"], "day": [3.0, 4.0]})
        found = gp.predict(table, points)
        assert len(found) == 2
    assert found["mean"].notna().all()


def test_bad_ones_are_told(gp):
    table = chicks(6)
    varying = table.copy()
    varying.loc[4, "diet"] = "rich" if varying.loc[4, "diet"] != "rich" else "none"
    with pytest.raises(DataError, match=r"'diet' is not constant within 1 of 6 tasks .*'c0'.*input column"):
        Tasks.from_table(varying, **NAMES, task_x="diet")
    empty = table.copy()
    empty.loc[2, "size"] = np.nan  # the task's other rows say it
    assert torch.equal(
        Tasks.from_table(empty, **NAMES, task_x="size").covariates,
        Tasks.from_table(table, **NAMES, task_x="size").covariates,
    )
    empty.loc[empty["chick"] == "c1", "size"] = np.nan
    with pytest.raises(DataError, match="'size' is empty for task 'c1'"):
        Tasks.from_table(empty, **NAMES, task_x="size")
    dropped = Tasks.from_table(empty, **NAMES, task_x="size", missing="drop")
    assert "c1" not in dropped.ids
    assert "dropped 1 of 6 tasks without size: 'c1'" in dropped.notes
    new = chicks(3)
    new["diet"] = "keto"
    with pytest.raises(DataError, match=r"'keto' .*no past task had; known are 'none', 'plain', 'rich'"):
        gp.predict(new, [0.0])
    new["diet"] = 2
    with pytest.raises(DataError, match="'diet' is text for other tasks"):
        gp.predict(new, [0.0])
    with pytest.raises(DataError, match="no column 'diet'"):
        gp.predict(chicks(3).drop(columns="diet"), [0.0])
    with pytest.raises(DataError, match="no column 'weigh'"):
        Tasks.from_table(table, **NAMES, task_x="weigh")
    with pytest.raises(DataError, match="'day' is named more than once, as x and as task_x"):
        Tasks.from_table(table, **NAMES, task_x="day")
    with pytest.raises(DataError, match="name it in task_x"):  # as an ordinary input a category stays refused
        Tasks.from_table(table, task="chick", x=["day", "diet"], y="weight")
    points = pd.DataFrame({"chick": ["c0", "c900"], "day": [3.0, 4.0]})
    with pytest.raises(DataError, match="'diet' is empty for task 'c900'"):
        gp.predict(table, points)
    points = pd.DataFrame({"chick": ["c0"], "day": [3.0], "diet": ["rich"], "size": [2.0]})
    with pytest.raises(DataError, match="task 'c0' has diet 'plain' in its known rows and 'rich' in the points"):
        gp.predict(table, points)
    with pytest.raises(OptionError, match="cannot be exported"):
        gp.to_gpytorch([0.0], [1.0])
    with pytest.raises(DataError, match="with_task_x"):
        MetaGP().fit(Tasks.from_table(table, **NAMES), task_x="diet")


def test_the_trip_to_a_file_keeps_the_levels(gp, tmp_path):
    gp.save(tmp_path / "chicks.metaprior")
    again = load(tmp_path / "chicks.metaprior")
    assert again.trained_on_.columns == gp.trained_on_.columns
    table = chicks(3, seed=9)
    pd.testing.assert_frame_equal(again.predict(table, [0.0, 5.0]), gp.predict(table, [0.0, 5.0]))
    assert {"mean", "draws", "eigenfunctions"} <= set(portrait(again.method_, again.trained_on_))


@pytest.mark.parametrize("name", ["last value", "fpca", "gp per task"])
def test_methods_that_know_nothing_of_them_go_their_way(name):
    tasks = Tasks.from_table(chicks(12), **NAMES, task_x=["diet", "size"])
    bare = Tasks.from_table(chicks(12), **NAMES)
    found, expected = (make_method(name, one).fit(one).predict(*one.context_target(2, 0)) for one in (tasks, bare))
    torch.testing.assert_close(found.mean, expected.mean)


def test_wrapped_priors_take_them_in():
    tasks = Tasks.from_table(chicks(15), **NAMES, task_x=["diet", "size"])
    context, target = tasks.context_target(2, 0)
    for method in (HyperPosterior(members=2, hidden=(6,), max_epochs=20), Warped(LearnedPrior("deep", "rbf", **FAST))):
        posterior = method.fit(tasks).predict(context, target)
        assert bool(posterior.mean.isfinite().all())
        other = method.predict(context.select([1, 0]), target.select([1, 0]))
        torch.testing.assert_close(
            other.mean[: int(target.sizes[1])], posterior.mean[int(target.sizes[0]) :][: int(target.sizes[1])]
        )


def test_the_choice_finds_them_useful():
    tasks = Tasks.from_table(chicks(30), **NAMES, task_x=["diet", "size"])
    auto = Auto(rungs=("shared gp", "fpca", "mean and last value"), progress=False).fit(tasks)
    assert "mean and last value" in auto.chosen_
    assert auto.plausibility(tasks.context_target(2, 0).context).shape == (30,)


def test_the_commands_take_them(tmp_path):
    chicks(30).to_csv(tmp_path / "chicks.csv", index=False)
    chicks(2, seed=4, first=50).to_csv(tmp_path / "new.csv", index=False)
    model, out = tmp_path / "m.metaprior", tmp_path / "p.csv"
    names = ["--task", "chick", "--x", "day", "--y", "weight", "--task-x", "diet,size"]
    run = CliRunner().invoke
    structure = ["--mean", "deep", "--kernel", "deep", "--epochs", "40"]
    fit = ["fit", str(tmp_path / "chicks.csv"), *names, "--out", str(model), *structure]
    found = run(app, fit)
    assert found.exit_code == 0, found.output
    assert "given diet (none, plain, rich), size" in found.output
    found = run(app, ["predict", str(model), str(tmp_path / "new.csv"), "--at", "0:11:1", "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert len(pd.read_csv(out)) == 24
    assert "outside the range" not in found.output
    found = run(app, ["show", str(model), "--json"])
    low, high = load(model).trained_on_.task_x.ranges[-1]  # of the tasks that were learned from
    assert chicks(30)["size"].min() <= low < high <= chicks(30)["size"].max()
    said = json.loads(found.stdout)["task inputs"]
    assert said.startswith(
        f"diet (none, plain, rich), size ({low:g} to {high:g}); pictures are of a task with the average"
    )
    chicks(2, seed=4, first=50).assign(size=high + 5).to_csv(tmp_path / "large.csv", index=False)
    for ask in (["predict", "--at", "0:11:1", "--out", str(out)], ["evaluate", "--context", "1"]):
        found = run(app, [ask[0], str(model), str(tmp_path / "large.csv"), *ask[1:]])
        assert f"2 of 2 tasks lie outside the range of 'size' that the model was trained on ({low:g}" in found.output
    found = run(app, ["evaluate", str(model), str(tmp_path / "new.csv"), "--context", "1"])
    assert found.exit_code == 0, found.output


def test_what_cannot_use_them_does_not_ask_for_them(tmp_path):
    gp = MetaGP("zero", "rbf", progress=False, max_epochs=10).fit(chicks(9), **NAMES, task_x=["diet", "size"])
    assert gp.trained_on_.columns.task_x == ()
    assert gp.predict(chicks(2).drop(columns=["diet", "size"]), [0.0])["mean"].notna().all()
    with pytest.raises(DataError, match="knows nothing of the task column diet"):
        gp.condition([0.0], [1.0], task_x={"diet": "rich"})


def test_a_learned_prior_checks_them_itself(gp):
    inner = gp.method_
    bare = Tasks.from_table(chicks(2), **NAMES)
    with pytest.raises(DataError, match="these lack size"):
        inner.predict(bare.with_task_x({"diet": ["rich", "none"]}), bare)
    with pytest.raises(DataError, match="other levels"):
        inner.predict(bare.with_task_x({"diet": ["rich", "zzz"], "size": [1.0, 2.0]}), bare)
    reordered = gp.condition([0.0], [20.0], task_x={"size": 2.0, "diet": "rich"}).at([5.0]).mean
    assert torch.equal(reordered, gp.condition([0.0], [20.0], task_x={"diet": "rich", "size": 2.0}).at([5.0]).mean)
    for wrong in ({"diet": None, "size": 1.0}, {"diet": "rich", "size": [1.0]}, {"diet": "rich"}):
        with pytest.raises(DataError):
            gp.condition([0.0], [20.0], task_x=wrong)


def test_values_are_compared_as_they_are_written():
    bare = Tasks.from_table(chicks(4), **NAMES)
    known = bare.with_task_x({"ward": ["10", "10b", "10", "true"]}).columns.task_x
    again = bare.with_task_x({"ward": [10, 10.0, "10b", True]}, known)
    assert again.covariates.argmax(1).tolist() == [0, 0, 1, 2]
    dated = bare.with_task_x({"born": [np.datetime64("1970-01-02"), pd.Timestamp("1970-01-03"), 3, 4.0]})
    assert dated.covariates[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    for wrong in ({}, {"a": "abcd"}, {"a": 3}, {"a": [None] * 4}, {"a": [[1]] * 4}):
        with pytest.raises(DataError):
            bare.with_task_x(wrong)


def test_either_table_may_have_them(gp):
    """The known rows, the points, or some of them in each; `Tasks` are taken so too."""
    table = chicks(3)
    points = table.loc[[0, 6, 12], ["chick", "day", "diet", "size"]].reset_index(drop=True)
    expected = gp.predict(table, points[["chick", "day"]])
    for known, asked in ((["diet"], ["size"]), (["diet", "size"], ["diet"]), ([], ["diet", "size"])):
        found = gp.predict(table[["chick", "day", "weight", *known]], points[["chick", "day", *asked]])
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(DataError, match="no column 'size'"):
        gp.predict(table[["chick", "day", "weight"]], points[["chick", "day", "diet"]])


def test_tasks_without_inputs_keep_what_is_known_of_them(gp):
    table = chicks(3)
    table.loc[table["chick"] == "c1", "day"] = np.nan
    with pytest.warns(MetapriorWarning) as told:
        found = gp.predict(table, [0.0, 1.0], missing="drop")
    assert [str(one.message)[:22] for one in told] == [
        "dropped 6 of 18 rows: ",
        "dropped 1 of 3 tasks w",
        "1 of 3 tasks have no k",
    ]
    assert all(one.filename == __file__ for one in told)  # where the user called
    assert set(found["chick"]) == {"c0", "c1", "c2"}


def test_the_choice_tries_curves_alone_and_says_which(tmp_path):
    rng = np.random.default_rng(2)
    table = chicks(24)
    lottery = dict(zip(table["chick"].unique(), rng.normal(size=24), strict=True))
    tasks = Tasks.from_table(table.assign(lot=table["chick"].map(lottery)), **NAMES, task_x="lot")
    auto = Auto(rungs=("shared gp", "mean and last value"), progress=False).fit(tasks)
    assert [one.name for one in auto.tried_] == [
        "shared gp",
        "mean and last value, curves alone",
        "mean and last value",
    ]
    assert "mean and last value" not in auto.chosen_  # a lot says nothing
    assert auto.trained_on_.columns.task_x == ()
    gp = MetaGP.of(auto)
    gp.save(tmp_path / "m.metaprior")
    assert load(tmp_path / "m.metaprior").predict(table, [0.0])["mean"].notna().all()


def test_learning_goes_on_with_the_levels_of_the_model(tmp_path):
    chicks(30).to_csv(tmp_path / "chicks.csv", index=False)
    few = chicks(30, seed=2, first=60)
    few[few["diet"] == "rich"].to_csv(tmp_path / "rich.csv", index=False)
    names = ["--task", "chick", "--x", "day", "--y", "weight"]
    run = CliRunner().invoke
    model = str(tmp_path / "m.metaprior")
    given = [*names, "--task-x", "diet,size", "--out", model, "--mean", "deep", "--kernel", "rbf", "--epochs", "10"]
    assert run(app, ["fit", str(tmp_path / "chicks.csv"), *given]).exit_code == 0
    more = ["fit", str(tmp_path / "rich.csv"), *names, "--from", model, "--out", model, "--overwrite"]
    found = run(app, [*more, "--epochs", "10"])
    assert found.exit_code == 0, found.output
    assert load(model).trained_on_.columns.task_x[0].levels == ("none", "plain", "rich")
    with pytest.raises(OptionError, match="has the task columns diet, size"):
        run(app, [*more, "--task-x", "diet"], catch_exceptions=False)


class Bent(gpytorch.means.ConstantMean):
    def forward(self, x):
        return super().forward(x) + x.sum(-1)


class Tilted(gpytorch.kernels.RBFKernel):
    """It has a lengthscale, and is not stationary for all that."""

    def forward(self, x1, x2, diag=False, **options):
        found = super().forward(x1, x2, diag=diag, **options)
        ends = [part.sum(-1) for part in (x1, x2)]
        return found * (ends[0] * ends[1] if diag else ends[0][..., :, None] * ends[1][..., None, :])


def test_who_sees_what_never_differs_within_a_task(monkeypatch):
    monkeypatch.setitem(KERNELS, "tilted", lambda made_for: Tilted())
    monkeypatch.setitem(KERNELS, "wide", lambda made_for: gpytorch.kernels.RBFKernel(active_dims=(0, made_for.d - 1)))
    monkeypatch.setitem(MEANS, "bent", lambda made_for: Bent())
    blind = [(mean, kernel) for mean in ("zero", "constant") for kernel in ("rbf", "matern", "exponential", "wide")]
    seeing = [("linear", "rbf"), ("deep", "rbf"), ("zero", "deep"), ("constant", "eigenfunctions"), ("bent", "rbf")]
    seeing += [("zero", "tilted"), ("zero", "eigenfunctions + deep"), (Bent(), "rbf"), ("zero", Tilted())]
    assert [PriorSpec(*parts).sees_levels(d) for parts in blind for d in (1, 2)] == [False] * 2 * len(blind)
    assert [PriorSpec(*parts).sees_levels(d) for parts in seeing for d in (1, 2)] == [True] * 2 * len(seeing)
    assert PriorSpec("zero", "rbf", noise="deep").sees_levels(1)


def test_what_is_said_twice_of_a_task_is_the_same():
    tasks = ragged(count=4).with_task_x({"age": [1.0, 2.0, 3.0, 4.0]})
    context, target = tasks.context_target(1, seed=0)
    gp = MetaGP("deep", "rbf", hidden=(3,), max_epochs=2, progress=False).fit(tasks)
    with pytest.raises(DataError, match="something else of a task as a whole"):
        gp.predict(context, target.with_task_x({"age": [1.0, 2.0, 3.0, 5.0]}))
