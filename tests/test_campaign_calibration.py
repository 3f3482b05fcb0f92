"""The campaign's calibration: it runs, what it draws is what the library believes, and planted errors are found."""

import numpy as np
import pytest
import torch

from campaign.calibration import learned, run
from campaign.calibration.asking import asked_of, uniforms
from campaign.calibration.band import LEVELS, Counts
from campaign.calibration.kinds import KINDS, SHAPES, fitted
from campaign.calibration.own import law_of, unwarped
from campaign.calibration.planted import ERRORS, Stretched
from campaign.calibration.predictive import PREDICTIVES
from campaign.parts import Effort


def test_the_part_runs_and_finds_what_is_planted(monkeypatch):
    monkeypatch.setattr("campaign.calibration.learned.RUNGS", {"shared gp": ("shared gp",)})
    section = run(Effort(0.0002, seed=1))
    assert section.holds, [check for check in section.checks if not check.holds]
    kinds, planted, covered = section.tables
    assert [row[0] for row in kinds.rows] == [*KINDS, *PREDICTIVES]
    assert [row[0] for row in planted.rows] == list(ERRORS)
    assert len(covered.rows) == 1
    assert sum(check.text.startswith("planted") for check in section.checks) == len(ERRORS)


@pytest.mark.parametrize("kind", ["vanilla", "learned both", "eigenfunctions", "functional PCA"])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[-1]])
def test_own_laws_are_those_of_the_priors(kind, shape):
    prior = fitted(kind, *shape, 0).prior_
    x = np.random.default_rng(0).normal(size=(3, 5, shape[0]))
    law = law_of(prior, x)
    with torch.no_grad():
        z = prior.at(torch.from_numpy(x))
        covariance = prior.covariance(z, z) + torch.diag_embed(z.noise)
    np.testing.assert_allclose(law.mean, z.mean.expand(law.mean.shape).numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(law.covariance, covariance.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_own_inverse_warps_are_inverse(shape):
    warp = fitted("warped", *shape, 0).warp_
    t = np.random.default_rng(0).normal(0, 1.5, (200, shape[1]))
    y = unwarped(warp, t)
    keep = y > 0 if warp.name == "box-cox" else np.isfinite(y)
    np.testing.assert_allclose(warp(torch.from_numpy(y)).numpy()[keep], t[keep], rtol=1e-9, atol=1e-9)


def test_the_band_holds_uniforms_and_finds_a_shift():
    rng = np.random.default_rng(0)
    outside = [Counts.of(rng.random(2_000)).judged(1).used > 1 for _ in range(300)]
    assert sum(outside) <= 5  # 1% of 300 are 3; limits are a little too far away rather than too near
    assert Counts.of(rng.random(20_000) ** 1.05).judged(40).used > 1
    parts = [Counts.of(part) for part in np.split(rng.random(900), 3)]
    assert (parts[0] + parts[1] + parts[2]).total == 900
    assert len(LEVELS) == len(parts[0].below)


def test_a_gross_error_is_found_by_every_statistic():
    method = fitted("functional PCA", 1, 2, 0)
    asked = asked_of(method, (1, 2), 500, 3, on_grid=True)
    right, wrong = (uniforms(method, asked, 4, plant) for plant in (None, lambda one: Stretched(one, 1.6)))
    for name in ("value", "projection", "rank", "density"):
        assert Counts.of(right[name]).judged(40).inside
        assert not Counts.of(wrong[name]).judged(40).inside
    assert right["gap"].max() < 1e-6


def test_coverage_that_is_off_is_told():
    off = learned._check(100, np.full((4, 2), 0.8))
    assert not off.holds
    assert learned._check(100, np.array([[0.8, 0.895], [0.8, 0.91]])).holds
