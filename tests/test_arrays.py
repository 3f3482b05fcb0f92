"""NumPy's arrays with torch's threads: the same numbers as without."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special

from metaprior import arrays
from metaprior.arrays import MANY, by_threads
from metaprior.inference import StudentPosterior
from metaprior.inference.gaussian import IndependentGaussians
from metaprior.tasks import Tasks

SOURCE = Path(arrays.__file__).parent


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

    def fails(of_rows, values):
        raise ValueError("no such value")

    with pytest.raises(ValueError, match="no such value"):
        by_threads(fails, np.ones((4, 1)), np.ones((MANY, 4, 1)))


def student():
    """A Student-t posterior of three tasks with different degrees of freedom."""
    points = Tasks.from_pairs([(np.arange(float(n))[:, None], np.zeros((n, 1))) for n in (1, 4, 2)])
    mean = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None]
    gaussian = IndependentGaussians(points, mean, 0.5 + mean.square())
    return StudentPosterior(gaussian, torch.tensor([3.0, 5.0, 40.0]).double(), torch.tensor([1.0, 2.0, 0.3]).double())


def ask_cdf():
    return student().cdf(torch.linspace(-9, 9, 5 * 7, dtype=torch.float64).reshape(5, 7, 1))


def ask_inverse_cdf():
    """Quantiles whose probabilities differ from point to point, some of them in far tails."""
    u = torch.linspace(0.001, 0.999, 5 * 7, dtype=torch.float64).reshape(5, 7, 1)
    u[0, 2], u[1, 5] = 1e-150, 1e-20
    return student().inverse_cdf(u)


def ask_log_cdf():
    """Of values in both far tails too."""
    return student().log_cdf(torch.linspace(-1e6, 1e6, 5 * 7, dtype=torch.float64).reshape(5, 7, 1))


PUBLIC_OPERATIONS = {
    ("inference/student.py", "special.stdtr"): ask_cdf,
    ("inference/student.py", "_student_log_cdf"): ask_log_cdf,
    ("inference/student.py", "_quantile"): ask_inverse_cdf,
}
"""Of each call of `by_threads`, by file and function: a public operation that reaches it."""


def calls_of_by_threads():
    """File and first argument of each call of `by_threads` in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "by_threads":
                yield path.relative_to(SOURCE).as_posix(), ast.unparse(node.args[0])


def test_every_function_given_to_threads_is_tested():
    assert set(calls_of_by_threads()) == set(PUBLIC_OPERATIONS)


@pytest.mark.parametrize("call", PUBLIC_OPERATIONS)
def test_two_threads_answer_as_one_beyond_the_threshold(call, monkeypatch):
    alone = PUBLIC_OPERATIONS[call]()
    started = []

    class Pool(arrays.ThreadPoolExecutor):
        def submit(self, *args, **options):
            started.append(self)
            return super().submit(*args, **options)

    monkeypatch.setattr(arrays, "MANY", 1)
    monkeypatch.setattr(arrays, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    together = PUBLIC_OPERATIONS[call]()
    assert len(started) == 2
    torch.testing.assert_close(together, alone, rtol=1e-14, atol=0)
