"""The campaign's look at the choice: oracles against SciPy, and checks that can fail."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from campaign import choice
from campaign.choice import CHOICE, ORACLE, SIMPLE, Outcome, run
from campaign.known import KNOWN
from campaign.parts import Effort


@pytest.mark.parametrize("kind", KNOWN)
def test_the_oracle_is_the_ratio_of_joint_densities(kind):
    law = KNOWN[kind]
    x, y = law.drawn(3, np.random.default_rng(0))
    said = law.says(x[:, :4], y[:, :4], x[:, 4:6], y[:, 4:6])
    for i in range(3):
        for j in (4, 5):
            joint = _joint(law, x[i, [0, 1, 2, 3, j]], y[i, [0, 1, 2, 3, j]])
            expected = joint - _joint(law, x[i, :4], y[i, :4])
            assert said.log_density[i, j - 4] == pytest.approx(expected, abs=1e-8)


def _joint(law, x, y):
    t = np.log(y) if law.positive else y
    parts = [
        np.log(one.share)
        + multivariate_normal(one.mean(x), one.kernel(x[:, None], x) + one.noise * np.eye(len(x))).logpdf(t)
        for one in law.kinds
    ]
    return np.logaddexp.reduce(parts) - (np.log(y).sum() if law.positive else 0.0)


def test_the_oracle_is_calibrated():
    for kind, law in KNOWN.items():
        x, y = law.drawn(2_000, np.random.default_rng(1))
        cdf = law.says(x[:, :3], y[:, :3], x[:, 3:4], y[:, 3:4]).cdf
        assert np.mean(np.abs(2 * cdf - 1) <= 0.9) == pytest.approx(0.9, abs=0.03), kind


def test_the_part_runs(monkeypatch):
    monkeypatch.setattr(choice, "KNOWN", {name: KNOWN[name] for name in ("few components", "random walk")})
    monkeypatch.setattr(choice, "LEAST", 2)
    section = run(Effort(0.0002))
    assert section.holds, section.checks
    losses, gains = section.tables
    assert [row[:3] for row in losses.rows] == [("few components", 2, 2), ("random walk", 2, 2)]
    assert len(gains.rows[0]) == 2 + len(SIMPLE)
    assert "5, 20, 100, 1000" in section.notes[0]


def _outcomes(loss, ahead, coverage, draws=16):
    """Draws in which `auto` loses so much against the oracle, and a simple rung is so much ahead of it."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        density = {ORACLE: loss, CHOICE: 0.0} | dict.fromkeys(SIMPLE, -1.0)
        density["last value"] = ahead + rng.normal(0, 0.02)
        found.append(Outcome(density, coverage + rng.normal(0, 0.01)))
    return {("random walk", 1000): found}


def test_checks_fail_where_they_should():
    good = _outcomes(loss=0.02, ahead=0.0, coverage=0.895)
    assert choice._never_worse(good).holds
    assert choice._near(good).holds
    assert choice._covered(good)[0].holds
    assert not choice._never_worse(_outcomes(loss=0.05, ahead=0.1, coverage=0.9)).holds
    assert not choice._near(_outcomes(loss=0.5, ahead=0.0, coverage=0.9)).holds
    assert not choice._covered(_outcomes(loss=0.05, ahead=0.0, coverage=0.8))[0].holds
