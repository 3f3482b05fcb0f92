"""A prior on a GPU gives the same answers as on the CPU."""

import pytest
import torch

from metaprior import MetaGP, NumericalError, Tasks, condition, evidence, make_prior, meta_train
from metaprior.inference import summed_evidence, trusting
from metaprior.inference.small import LARGEST, fits, inverse_and_logdet
from metaprior.learning import OPTIMIZERS, evidence_loss, make_updates
from metaprior.learning.recording import Recorded
from metaprior.tasks import batches
from tests.problems import mixed, ragged

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
    assert torch.allclose(a.mean, b.mean, rtol=1e-9)
    assert torch.allclose(a.sd, b.sd, rtol=1e-9)
    assert torch.allclose(a.evidence.total, b.evidence.total)
    assert torch.allclose(a.joint_log_density(target.y), b.joint_log_density(target.y), rtol=1e-8)
    assert torch.allclose(a.samples(3, seed=0), b.samples(3, seed=0), atol=1e-6)
    assert all(torch.allclose(x, y, atol=1e-9) for x, y in zip(a.covariances(), b.covariances(), strict=True))


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
