"""Where a rising function has given values: quickly, to the last digits that matter, whatever the function."""

import numpy as np
import pytest
import torch
from scipy import stats

from metaprior.inference.searching import CLOSE, rising_root

U = torch.tensor([1e-250, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9], dtype=torch.float64)
FAMILIES = {
    "normal": stats.norm(3, 2),
    "student": stats.t(2),
    "skewed": stats.gamma(2.0),
    "far": stats.norm(1e6, 1e-3),
    "two kinds": None,
}


def cdf_of(name, calls):
    """A cdf that counts how often it is asked."""

    def cdf(x):
        calls.append(len(x))
        if name == "two kinds":
            values = 0.5 * stats.norm.cdf(x, -9, 1) + 0.5 * stats.norm.cdf(x, 9, 0.1)
        else:
            values = FAMILIES[name].cdf(x)
        return torch.as_tensor(values)

    return cdf


@pytest.mark.parametrize("name", FAMILIES)
def test_quantiles_are_found_in_a_few_steps(name):
    calls = []
    cdf = cdf_of(name, calls)
    u = U if name in ("normal", "two kinds") else U[1:]
    low, high = {"far": (1e6 - 1, 1e6 + 1), "skewed": (0.0, 90.0), "student": (-1e5, 1e5)}.get(name, (-80.0, 80.0))
    lower, upper = torch.full_like(u, low), torch.full_like(u, high)
    found = rising_root(cdf, u, lower, upper)
    again = cdf_of(name, [])(found)
    scores = [torch.special.ndtri(one.clamp(1e-300, 1 - 2**-53)) for one in (again, u)]
    tolerance = 1e-6 if name in ("far", "two kinds") else 1e-7  # of what digits of x, or a flat stretch, leave
    assert scores[0].numpy() == pytest.approx(scores[1].numpy(), abs=tolerance)
    assert lower.unique().tolist() == [low]
    assert upper.unique().tolist() == [high]
    assert len(calls) <= {"normal": 11, "far": 16, "skewed": 33, "student": 28, "two kinds": 20}[name], len(calls)


def test_what_lies_at_an_end_is_found_there():
    u = torch.tensor([0.2, 0.8], dtype=torch.float64)
    ends = torch.from_numpy(stats.norm.ppf([0.2, 0.8]))
    wide = torch.tensor([9.0, 9.0], dtype=torch.float64)
    cdf = torch.special.ndtr
    for lower, upper in ((ends, wide), (-wide, ends)):
        assert rising_root(cdf, u, lower, upper).numpy() == pytest.approx(ends.numpy(), abs=2 * CLOSE)


def test_values_do_not_wait_for_or_change_each_other():
    u = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lower, upper = torch.full_like(u, -30.0), torch.full_like(u, 30.0)
    together = rising_root(torch.special.ndtr, u, lower, upper)
    alone = [rising_root(torch.special.ndtr, u[[k]], lower[[k]], upper[[k]]) for k in range(50)]
    assert together.numpy() == pytest.approx(torch.cat(alone).numpy(), abs=1e-9)
    assert np.abs(together.numpy() - stats.norm.ppf(u)).max() < 1e-8
