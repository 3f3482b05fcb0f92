"""Methods on a GPU that is pretended: nothing mixes devices, and every answer is the one that the CPU gives."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from metaprior import FPCA, Auto, HyperPosterior, LearnedPrior, MetaGP, Mixture, Tasks, Warped, load
from metaprior.cli.app import app
from metaprior.devices import device_of, within_memory
from metaprior.errors import DeviceMemoryError, MetapriorWarning, OptionError
from metaprior.inference import KeptMethod, MovedPosterior, moved
from metaprior.learning import TrainingSpec, learn_together, meta_train_many, on_gpu
from metaprior.methods import GPPerTask, LastValue
from metaprior.priors import make_prior
from metaprior.scoring import evaluate, score
from metaprior.splits import to_stop_by
from metaprior.tasks import Possible
from tests.pretended import CPU, OnGPU, pretended_gpu
from tests.problems import ragged
from tests.test_families import COMPOSITIONS, FAMILIES, past


def everything(posterior, y):
    """All that a posterior answers."""
    found = {"mean": posterior.mean, "sd": posterior.sd, "function": posterior.function.sd}
    found |= {"cdf": posterior.cdf(posterior.as_targets(y)), "quantiles": posterior.quantiles([0.1, 0.6])}
    found |= {"density": posterior.log_density(y), "joint": posterior.joint_log_density(y)}
    found |= {"crps": posterior.crps(y), "draws": posterior.samples(3, seed=1)}
    lower, upper = posterior.interval(0.8)
    found |= {"lower": lower, "upper": upper}
    if (covariances := posterior.covariances()) is not None:
        found["covariances"] = torch.cat([one.flatten() for one in covariances])
    if posterior.evidence is not None:
        found["evidence"] = posterior.evidence.total
    return found


def moved_methods(method):
    """What of a method can go to a GPU, at any depth."""
    if isinstance(method, KeptMethod):
        method.to("cuda")
    elif hasattr(method, "method"):
        moved_methods(method.method)


@pytest.mark.parametrize("name", [*FAMILIES, *COMPOSITIONS])
def test_every_answer_is_the_same_and_lies_there(name):
    context, target = past(6, seed=5).context_target(2, seed=0)
    method = copy.deepcopy((FAMILIES | COMPOSITIONS)[name]().fit(past()))
    here = everything(method.condition(context).at(target), target.y)
    with pretended_gpu():
        moved_methods(method)
        conditional = method.condition(context)
        posterior = conditional.at(target)
        there = everything(posterior, target.y)
        back = moved(conditional, CPU).at(target)
        returned = everything(back, target.y)
        scores = score(posterior, target)
        on_gpu = posterior.device.type == "cuda"
        assert {isinstance(value, OnGPU) for value in there.values()} == {on_gpu}
        assert not any(isinstance(value, OnGPU) for value in returned.values())
        there = {key: value.cpu() for key, value in there.items()}
    stays = name in ("gp per task", "independent", "hierarchy", "members")  # nothing to gain, or few tasks
    assert on_gpu != (stays and name != "members")
    assert isinstance(back, MovedPosterior) == on_gpu
    for key, value in here.items():
        torch.testing.assert_close(there[key], value, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(returned[key], there[key])
    assert scores.summary("crps").mean == pytest.approx(float(here["crps"].mean()), rel=1e-2)


LEARNED = {
    "functional PCA": lambda: FPCA(seed=0),
    "given rank": lambda: FPCA(size=5, rank=2),
    "kinds": lambda: Mixture([1, 2], rank=2, size=5),
    "warped": lambda: Warped(Mixture(2, rank=1, size=5), "log"),
}


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("name", LEARNED)
def test_em_learns_the_same_there(name, grid):
    tasks = past(24)
    if grid:
        tasks = Tasks.on_grid(tasks.x[:9], tasks.y.view(24, 9), tasks.ids)
    context, target = tasks.context_target(3, seed=0)
    expected = LEARNED[name]().fit(tasks).predict(context, target).mean
    with pretended_gpu():
        found = LEARNED[name]().to("cuda").fit(tasks).predict(context, target).mean
        assert isinstance(found, OnGPU)
        found = found.cpu()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    x = np.tile(np.arange(8.0), 60)
    level = np.repeat(rng.normal(size=60), 8)
    return pd.DataFrame(
        {"id": np.repeat(np.arange(60), 8), "x": x, "y": level + np.sin(x) + 0.1 * rng.normal(size=480)}
    )


def test_the_choice_is_the_same_there_and_its_file_opens_here(table, tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.selection.trials.GAINS", 0)
    tasks = Tasks.from_table(table, task="id", x="x", y="y")
    rungs = ("gp per task", "fpca", "warped fpca")
    here = MetaGP(rungs=rungs, progress=False).fit(tasks)
    context, target = tasks.select(range(10)).context_target(2, seed=0)
    with pretended_gpu():
        there = MetaGP(rungs=rungs, device="cuda", progress=False).fit(tasks)
        answered = there.predict(context, target)
        assert not isinstance(answered.mean, OnGPU)
        assert answered.posterior.device.type == "cuda"
        usual = there.plausibility(context)
        frame = there.predict(table[:12], at=[9.0, 10.0])
        there.save(tmp_path / "model")
    assert there.method_.chosen_ == pytest.approx(here.method_.chosen_)
    torch.testing.assert_close(answered.mean, here.predict(context, target).mean)
    torch.testing.assert_close(usual, here.plausibility(context))
    pd.testing.assert_frame_equal(frame, here.predict(table[:12], at=[9.0, 10.0]))
    again = load(tmp_path / "model")
    torch.testing.assert_close(again.predict(context, target).mean, answered.mean)
    with pretended_gpu():
        elsewhere = load(tmp_path / "model", device="cuda").predict(context, target)
        assert elsewhere.posterior.device.type == "cuda"
        torch.testing.assert_close(elsewhere.mean, answered.mean)


def test_what_a_target_can_be_is_kept_there():
    tasks = past(24).with_possible(support=(0, None))
    with pretended_gpu():
        gp = MetaGP(rungs=("fpca",), device="cuda", progress=False).fit(tasks)
        lower = gp.predict(*tasks.context_target(1, seed=0)).interval(0.99).lower
    assert gp.trained_on_.possible == (Possible(0.0, np.inf, False),)
    assert bool((lower >= 0).all())


class Small(FPCA):
    """A method on a GPU of little memory."""

    most = 7

    def condition(self, context):
        with within_memory("what is known", "Ask for less."):
            if len(context) > self.most:
                raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().condition(context)


def test_slices_are_halved_until_they_fit(table):
    tasks = Tasks.from_table(table, task="id", x="x", y="y")
    plain, small = (MetaGP.of(cls(size=4, rank=1).fit(tasks)) for cls in (FPCA, Small))
    with pytest.warns(MetapriorWarning, match="times the memory was too small"):
        found = small.predict(table, at=[9.0, 10.0])
    pd.testing.assert_frame_equal(found, plain.predict(table, at=[9.0, 10.0]))
    context, target = tasks.context_target(2, seed=0)
    expected = evaluate(plain.method_, context, target)
    assert evaluate(small.method_, context, target).summary("crps") == expected.summary("crps")


def test_one_task_that_is_too_large_is_told(table):
    tasks = Tasks.from_table(table, task="id", x="x", y="y")
    small = Small(size=4, rank=1).fit(tasks)
    small.most = 0
    with pytest.raises(DeviceMemoryError, match=r"what is known: the memory of the GPU is too small\. Ask for less"):
        MetaGP.of(small).predict(table, at=[9.0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_tried(tmp_path):
    tasks = ragged(count=20)
    for method in (
        MetaGP(device="cuda"),
        MetaGP("deep", "deep", device="cuda"),
        Auto(device="cuda"),
        FPCA(device="cuda"),
    ):
        with pytest.raises(OptionError, match="no GPU is available here; use 'cpu' or 'auto'"):
            method.fit(tasks)
    gp = MetaGP(rungs=("fpca",), device="auto", progress=False).fit(tasks)
    gp.save(tmp_path / "model")
    with pytest.raises(OptionError, match="no GPU"):
        load(tmp_path / "model", device="cuda")
    for method in (gp, gp.method_, *(kind() for kind in (LearnedPrior, FPCA, HyperPosterior, GPPerTask, LastValue))):
        before = str(vars(method))
        with pytest.raises(OptionError, match="'gpu': use 'cpu', 'cuda' or 'auto'"):
            method.to("gpu")
        with pytest.raises(OptionError, match="no GPU"):
            method.to("cuda")
        assert str(vars(method)) == before
    assert device_of("auto") == CPU


def test_commands_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2011.csv").write_text("year,month,temperature\n2011,1,24.2\n2011,2,25.9\n")

    def run(*words):
        found = CliRunner().invoke(app, [*words, "--quiet"])
        assert found.exit_code == 0, found.output

    with pretended_gpu():
        run("fit", "elnino", "--budget", "0", "--device", "cuda", "--out", "elnino.metaprior", "--html", "elnino.html")
        for device in ("cuda", "cpu"):
            ahead = ("--at", "4:12:4", "--samples", "2", "--out", f"{device}.csv")
            run("predict", "elnino.metaprior", "2011.csv", *ahead, "--device", device)
        run("evaluate", "elnino.metaprior", "elnino", "--context-until", "month=3", "--device", "cuda")
        gp = load("elnino.metaprior", device="cuda")
        there = gp.condition([1.0, 2.0], [24.2, 25.9]).suggest([4.0, 6.0, 8.0], 2)
    here = load("elnino.metaprior").condition([1.0, 2.0], [24.2, 25.9]).suggest([4.0, 6.0, 8.0], 2)
    assert torch.equal(there.x, here.x)
    pd.testing.assert_frame_equal(pd.read_csv("cuda.csv"), pd.read_csv("cpu.csv"), rtol=1e-6)
    assert (tmp_path / "elnino.html").stat().st_size > 50_000


@pytest.mark.parametrize("held_out", [None, 0.25])
@pytest.mark.parametrize("hyper_prior", [None, 1.0])
def test_a_training_there_takes_the_steps_of_the_stack(held_out, hyper_prior, monkeypatch):
    """What is recorded on a GPU, computed as it is: only the recording needs CUDA."""
    monkeypatch.setattr(on_gpu, "recording", lambda compute: compute)
    tasks, how = (
        ragged(count=20),
        TrainingSpec(held_out=held_out, hyper_prior=hyper_prior, max_epochs=12, check_every=3),
    )
    priors = [make_prior("deep", "deep", d=1, p=1, hidden=(6,), seed=0) for _ in range(2)]
    (stack,) = meta_train_many(priors[:1], [tasks], [how], [0])
    training, judge = to_stop_by(tasks, held_out, 0)
    law = how.believed(priors[1])
    own = on_gpu.PriorOnGPU(priors[1], training, None if held_out is None else judge, how, law)
    rule = {"max_epochs": how.most, "check_every": how.every, "patience": how.patience, "tolerance": how.tolerance}
    (ended,) = learn_together(own, own.start, own.moves, **rule)
    own.write(ended.values[None])
    assert [look.judged for look in ended.looks] == pytest.approx([check.held_out_evidence for check in stack.checks])
    for a, b in zip(*(prior.parameters() for prior in priors), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
