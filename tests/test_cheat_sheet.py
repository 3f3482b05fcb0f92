"""The table of posteriors in the cheat sheet: each row runs with plain Python values, for every family."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from metaprior import DataError, MetaGP, OptionError
from metaprior.data import embedded_table
from tests.pages import PAGES
from tests.test_families import COMPOSITIONS, FAMILIES, asked, fitted

TABLE = PAGES["docs/cheat-sheet.md"].split("| posterior | what |")[1].split("\n\n")[0]
ROWS = [line.replace(r"\|", "/").split("|")[1:3] for line in TABLE.splitlines()[2:]]
EXPRESSIONS = [f"posterior.{text}" for answer, _ in ROWS for text in re.findall(r"`([^`]+)`", answer)]
EXPRESSIONS += [text for _, what in ROWS for text in re.findall(r"`([^`]+)`", what) if "posterior." in text]
OF_VALUES = [text for text in EXPRESSIONS if "(y)" in text or "(u)" in text]
VALUES = [0.125, 0.25, 0.5, 0.625, 0.75, 0.875]
"""One for each point; probabilities as well as targets."""

PER_POINT = {
    "list": VALUES,
    "tuple": tuple(VALUES),
    "array": np.array(VALUES),
    "float32": np.array(VALUES, dtype=np.float32),
    "read-only array": np.broadcast_to(np.array(VALUES), (6,)),
    "nested lists": [[value] for value in VALUES],
    "column of a table": pd.Series(VALUES, index=[5, 9, 2, 3, 1, 0]),
    "tensor": torch.tensor(VALUES, dtype=torch.float64),
}
FOR_ALL = {"float": 0.5, "NumPy's float": np.float64(0.5), "array of no dimensions": np.array(0.5)}


@pytest.fixture(scope="module", params=[*FAMILIES, *COMPOSITIONS])
def posterior(request):
    context, points = asked()
    return fitted(request.param).condition(context).at(points)


def answer(expression, posterior, values):
    return eval(expression, {"posterior": posterior, "y": values, "u": values})


def test_the_table_is_read():
    named = {"cdf(y)", "inverse_cdf(u)", "quantiles([0.1, 0.9])", "interval(0.9)", "samples(100, seed=0)", "crps(y)"}
    assert {f"posterior.{text}" for text in named} <= set(EXPRESSIONS)
    assert len(OF_VALUES) == 6


def test_each_row_runs_and_does_not_mind_the_kind_of_list(posterior):
    for expression in EXPRESSIONS:
        expected = answer(expression, posterior, torch.tensor(VALUES, dtype=torch.float64)[:, None])
        for values in PER_POINT.values() if expression in OF_VALUES else ():
            torch.testing.assert_close(answer(expression, posterior, values), expected, rtol=1e-12, atol=1e-12)


def test_one_number_is_for_all_points(posterior):
    for expression in OF_VALUES:
        expected = answer(expression, posterior, torch.full(posterior.shape, 0.5, dtype=torch.float64))
        for value in FOR_ALL.values():
            torch.testing.assert_close(answer(expression, posterior, value), expected, rtol=1e-12, atol=1e-12)


def test_whole_numbers_are_numbers(posterior):
    for expression in OF_VALUES:
        if "(y)" in expression:
            assert torch.equal(answer(expression, posterior, 1), answer(expression, posterior, [1.0] * 6))
            assert torch.equal(answer(expression, posterior, np.ones(6, dtype=int)), answer(expression, posterior, 1.0))


def test_several_values_of_each_point(posterior):
    y = np.array([[[0.3]], [[1.2]]])
    found = posterior.cdf(y)
    assert found.shape == (2, *posterior.shape)
    assert torch.equal(found[1], posterior.cdf(1.2))
    assert posterior.inverse_cdf(y / 2).shape == (2, *posterior.shape)


def test_what_is_no_number_or_of_another_shape_is_refused(posterior):
    for expression in OF_VALUES:
        for wrong in ("high", ["a"] * 6, [None] * 6, VALUES[:-1], np.zeros((6, 2))):
            with pytest.raises(DataError):
                answer(expression, posterior, wrong)
    for wrong in (-0.1, 1.1, [0.5] * 5 + [float("nan")]):
        with pytest.raises(OptionError, match="between 0 and 1"):
            posterior.inverse_cdf(wrong)
    with pytest.raises(DataError, match="not an array of numbers"):
        posterior.quantiles(["a"])
    assert torch.equal(posterior.quantiles(np.array([0.1, 0.9])), posterior.quantiles([0.1, 0.9]))


def test_of_several_outputs_a_list_of_lists_has_one_value_for_each():
    table = embedded_table("elnino").to_pandas()
    table["half"] = table["temperature"] / 2
    gp = MetaGP("constant", "rbf", max_epochs=2, progress=False)
    posterior = (
        gp.fit(table, task="year", x="month", y=["temperature", "half"]).condition([1], [[24.0, 12.0]]).at([4, 5])
    )
    y = [[25.0, 12.5], [26.0, 13.0]]
    assert torch.equal(posterior.cdf(y), posterior.cdf(torch.tensor(y).double()))
    assert posterior.cdf(25).shape == (2, 2)
    with pytest.raises(DataError, match="one value per point and output"):
        posterior.cdf([25.0, 26.0])
