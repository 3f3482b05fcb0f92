"""NumPy's arrays with torch's threads: the same numbers as without."""

import numpy as np
import pytest
import torch
from scipy import special

from metaprior.arrays import MANY, by_threads


@pytest.mark.parametrize("rows", [1, 3, MANY])
@pytest.mark.parametrize("alike", [False, True])
def test_a_function_of_each_value_by_threads(rows, alike, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    random = np.random.default_rng(0)
    of_rows = random.uniform(3, 30, (rows, 1))
    values = random.normal(size=(2 * MANY if alike else max(2 * MANY // rows, 2), 1 if alike else rows, 2))
    if alike and rows == MANY:
        values = values[:2]
    np.testing.assert_array_equal(by_threads(special.stdtr, of_rows, values), special.stdtr(of_rows, values))


def test_what_goes_wrong_in_a_thread_is_told(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fails(of_rows, values, out=None):
        raise ValueError("no such value")

    with pytest.raises(ValueError, match="no such value"):
        by_threads(fails, np.ones((4, 1)), np.ones((MANY, 4, 1)))
