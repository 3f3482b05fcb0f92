"""A prior on a GPU gives the same answers as on the CPU."""

import pytest
import torch

from metaprior import MetaGP, condition, evidence, make_prior, meta_train
from metaprior.learning import OPTIMIZERS
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
