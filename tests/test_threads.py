"""One thread for what is small: no other Python thread notices, however uses overlap."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch

from metaprior.learning import one_thread


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def of_new_threads():
    """The number of threads that a new Python thread starts with."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_nested_uses_give_back_the_number():
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    assert of_new_threads() == 2


def test_a_thread_that_starts_meanwhile_has_the_users_number():
    with one_thread():
        assert of_new_threads() == 2


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_overlapping_uses_give_back_the_number(first_to_end):
    inside, end = (Event(), Event()), (Event(), Event())

    def use(k):
        with one_thread():
            inside[k].set()
            assert end[k].wait(20)
            during = torch.get_num_threads()
        return during, torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        found = []
        for k in (0, 1):  # the second starts while the first is at one thread
            found.append(pool.submit(use, k))
            assert inside[k].wait(20)
        for k in (first_to_end, 1 - first_to_end):
            end[k].set()
            assert found[k].result() == (1, 2)
    assert torch.get_num_threads() == 2
    assert of_new_threads() == 2
