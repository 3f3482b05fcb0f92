"""A prior on a GPU gives the same answers as on the CPU."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from metaprior import LearnedPrior, MetaGP, NumericalError, Tasks, condition, evidence, make_prior, meta_train
from metaprior.errors import DeviceMemoryError, MetapriorWarning, OptionError
from metaprior.inference import summed_evidence, trusting
from metaprior.inference.small import LARGEST, fits, inverse_and_logdet
from metaprior.learning import OPTIMIZERS, evidence_loss, make_updates
from metaprior.learning.recording import Recorded
from metaprior.methods import MeanFitOnTarget
from metaprior.tasks import batches
from tests.problems import mixed, ragged
from tests.test_families import COMPOSITIONS, FAMILIES, past
from tests.test_pretended import LEARNED, everything, moved_methods

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def pair(**options):
    cpu, gpu = (make_prior("deep", "deep", d=1, p=2, hidden=(8, 4), seed=0, **options) for _ in range(2))
    return cpu, gpu.to("cuda")


def test_evidence_and_its_gradient():
    cpu, gpu = pair()
    tasks = mixed(p=2)
    totals = [evidence(prior, tasks).total for prior in (cpu, gpu)]
    assert torch.allclose(totals[0], totals[1].cpu(), rtol=1e-9)
    for total in totals:
        total.sum().backward()
    for a, b in zip(cpu.parameters(), gpu.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad.cpu(), rtol=1e-7, atol=1e-9)


def test_posterior():
    cpu, gpu = pair()
    context, target = ragged(p=2, largest=12).context_target(1, seed=0)
    a, b = (condition(prior, context).at(target) for prior in (cpu, gpu))
    assert b.mean.is_cuda
    for key, value in everything(a, target.y).items():
        torch.testing.assert_close(everything(b, target.y)[key].cpu(), value, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_learning(optimizer):
    cpu, gpu = pair()
    found = [
        meta_train(prior, mixed(p=2), seed=0, optimizer=optimizer, max_epochs=3, check_every=1, progress=False)
        for prior in (cpu, gpu)
    ]
    for a, b in zip(found[0].checks, found[1].checks, strict=True):
        assert a.held_out_evidence == pytest.approx(b.held_out_evidence, rel=1e-6)


def test_a_model_fitted_on_a_gpu_is_the_same_file(tmp_path):
    tasks = ragged(count=20)
    gp = MetaGP("deep", "deep", hidden=(6,), max_epochs=10, device="cuda", progress=False).fit(tasks)
    gp.save(tmp_path / "m")
    again = MetaGP.load(tmp_path / "m")
    context, target = tasks.context_target(1, seed=0)
    assert torch.allclose(gp.predict(context, target).mean, again.predict(context, target).mean, rtol=1e-8)
    assert again.method_.device == "cpu"


@pytest.mark.parametrize("n", [1, 7, 16, 33, LARGEST])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_small_matrices_are_inverted_as_by_the_library(n, dtype):
    x = torch.rand(300, n, 1, dtype=torch.float64, device="cuda") * 5
    A = torch.exp(-0.5 * (x - x.mT).square()) + 0.1 * torch.eye(n, device="cuda")
    assert fits(A)
    inverse, logdet = inverse_and_logdet(A.to(dtype))
    apart = (inverse.double() - torch.linalg.inv(A)).norm() / torch.linalg.inv(A).norm()
    assert float(apart) < (1e-12 if dtype == torch.float64 else 1e-4)
    torch.testing.assert_close(
        logdet.double(), torch.logdet(A), rtol=1e-3 if dtype == torch.float32 else 1e-10, atol=1e-3
    )


def test_a_matrix_that_is_not_positive_definite_is_nan_and_no_other():
    A = torch.eye(5, dtype=torch.float64, device="cuda").repeat(3, 1, 1)
    A[1, 2, 2] = -1.0
    inverse, logdet = inverse_and_logdet(A)
    assert logdet.isnan().tolist() == [False, True, False]
    assert torch.equal(inverse[[0, 2]], A[[0, 2]])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("make", [ragged, mixed])
def test_nothing_is_looked_at_on_the_way_and_the_evidence_is_the_same(make):
    tasks, (cpu, gpu) = make(p=2), pair()
    laid_out = batches(tasks, gpu.like)
    expected = summed_evidence(cpu, batches(tasks), tasks.ids).total
    try:
        torch.cuda.set_sync_debug_mode("error")
        with trusting():
            found = summed_evidence(gpu, laid_out, tasks.ids).total
            found.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)


def test_a_recorded_loss_follows_its_parameters():
    tasks, (cpu, gpu) = ragged(p=2), pair()
    updates = [
        make_updates("lbfgs", prior, tasks, evidence_loss(prior, "task"), rate=1.0, batch_size=None, seed=0)
        for prior in (cpu, gpu)
    ]
    assert isinstance(updates[1].objective, Recorded)
    for _ in range(3):
        values = [one.evaluate(one.objective) for one in updates]
        assert values[1] == pytest.approx(values[0], rel=1e-9)
        for a, b in zip(cpu.learned_parameters(), gpu.learned_parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad.cpu(), rtol=1e-6, atol=1e-8)
        with torch.no_grad():
            for a, b in zip(cpu.learned_parameters(), gpu.learned_parameters(), strict=True):
                a.add_(0.05)
                b.add_(0.05)


def test_the_task_that_is_at_fault_is_still_named():
    tasks = Tasks.from_pairs([([0.0, 1.0], [0.0, 1.0]), ([2.0, 3.0], [1e200, 1.0])], ["good", "bad"])
    prior = make_prior("zero", "rbf", d=1, p=1, seed=0).to("cuda", torch.float32)
    updates = make_updates("lbfgs", prior, tasks, evidence_loss(prior, "task"), rate=1.0, batch_size=None, seed=0)
    assert updates.evaluate(updates.objective) is None
    assert "'bad'" in updates.trouble
    with pytest.raises(NumericalError, match="bad"):
        evidence(prior, tasks)


@pytest.mark.parametrize("name", [*FAMILIES, *COMPOSITIONS])
def test_every_answer_is_the_same(name):
    context, target = past(6, seed=5).context_target(2, seed=0)
    method = copy.deepcopy((FAMILIES | COMPOSITIONS)[name]().fit(past()))
    here = everything(method.condition(context).at(target), target.y)
    moved_methods(method)
    there = everything(method.condition(context).at(target), target.y)
    for key, value in here.items():
        torch.testing.assert_close(there[key].cpu(), value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("name", LEARNED)
def test_em_learns_the_same(name, grid):
    tasks = past(24)
    if grid:
        tasks = Tasks.on_grid(tasks.x[:9], tasks.y.view(24, 9), tasks.ids)
    context, target = tasks.context_target(3, seed=0)
    expected = LEARNED[name]().fit(tasks).predict(context, target).mean
    found = LEARNED[name]().to("cuda").fit(tasks).predict(context, target).mean
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"degrees": 5.0},
        {"network_dtype": torch.float32},
        {"hyper_prior": 1.0},
        {"hyper_prior": 1.0, "held_out": None},
    ],
)
def test_many_trainings_take_the_same_steps(options):
    tasks, how = [ragged(count=30), ragged(count=20)], {"hidden": (6,), "max_epochs": 12, "check_every": 3}
    found = []
    for device in ("cpu", "cuda"):
        methods = [LearnedPrior("deep", "deep", device=device, progress=False, **how, **options) for _ in tasks]
        LearnedPrior.fit_many(methods, tasks)
        found.append([check.held_out_evidence for one in methods for check in one.training_.checks])
    assert found[1] == pytest.approx(found[0], rel=1e-3 if "network_dtype" in options else 1e-5)


def test_a_mean_fit_on_targets():
    prior = LearnedPrior("constant", "rbf", max_epochs=5, progress=False).fit(ragged(count=20)).prior_
    context, target = ragged(count=4).context_target(2, seed=0)
    options = {"max_steps": 20, "hidden": (6,)}
    expected = MeanFitOnTarget(prior, **options).fit(context).predict(context, target).mean
    there = MeanFitOnTarget(copy.deepcopy(prior).to("cuda"), **options).fit(context)
    torch.testing.assert_close(there.predict(context, target).mean.cpu(), expected, rtol=1e-5, atol=1e-6)


def waves(count=150, n=40):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, (count, n))
    y = rng.normal(size=(count, 1)) + np.sin(x) + 0.1 * rng.normal(size=(count, n))
    return Tasks.from_pairs(list(zip(x, y, strict=True)))


def test_the_choice_is_the_same_up_to_rounding(tmp_path):
    tasks, rungs = waves(), ("shared gp", "fpca", "mixture", "warped fpca", "learned both")
    here, there = (MetaGP(rungs=rungs, device=device, progress=False).fit(tasks) for device in ("cpu", "cuda"))
    for a, b in zip(here.method_.tried_, there.method_.tried_, strict=True):
        assert (a.name, b.density.mean) == (b.name, pytest.approx(a.density.mean, abs=0.02))
    both = here.method_.chosen_.keys() | there.method_.chosen_.keys()
    for name in both:
        assert there.method_.chosen_.get(name, 0.0) == pytest.approx(here.method_.chosen_.get(name, 0.0), abs=0.1)
    there.save(tmp_path / "model")
    context, target = tasks.select(range(20)).context_target(3, seed=1)
    expected = there.predict(context, target)
    for device in ("cpu", "cuda"):
        again = MetaGP.load(tmp_path / "model", device).predict(context, target)
        assert not again.mean.is_cuda
        torch.testing.assert_close(again.mean, expected.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(again.interval(0.9).upper, expected.interval(0.9).upper, rtol=1e-6, atol=1e-6)


@pytest.fixture
def little_memory():
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    yield lambda megabytes: torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + megabytes * 2**20) / total
    )
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_memory_that_runs_out(little_memory):
    gp = MetaGP("deep", "deep", hidden=(8,), max_epochs=3, device="cuda", progress=False).fit(waves(40, 20))
    known = waves(4_000, 20)
    table = pd.DataFrame(
        {"task": np.repeat(np.arange(len(known)), 20), "x0": known.x[:, 0].numpy(), "y0": known.y[:, 0].numpy()}
    )
    columns = gp.trained_on_.columns
    table.columns = [*columns.task, *columns.x, *columns.y] if columns.task else table.columns
    at = np.linspace(0, 6, 50)
    expected = gp.predict(known, at).mean
    torch.cuda.empty_cache()
    little_memory(64)
    with pytest.raises(DeviceMemoryError, match="the memory of the GPU is too small"):
        gp.predict(known, at)
    if columns.task:
        with pytest.warns(MetapriorWarning, match="the memory was too small"):
            found = gp.predict(table, at)
        np.testing.assert_allclose(found["mean"], expected[:, 0].numpy(), rtol=1e-9)


def test_a_mean_of_the_users_own_on_another_device():
    level = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for mean in (lambda x: level[:1] + 0 * x[:, 0], lambda x: level[(x[:, 0] > 0).long()]):
        with pytest.raises(OptionError, match="on another device than cuda"):
            MetaGP(mean, "rbf", device="cuda", max_epochs=2, progress=False).fit(ragged(count=10))
    gp = MetaGP(lambda x: level.to(x)[(x[:, 0] > 0).long()], "rbf", device="cuda", max_epochs=2, progress=False)
    assert gp.fit(ragged(count=10)).prior_.like.is_cuda
