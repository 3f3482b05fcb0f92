"""`docs/extending.md`, followed: a kernel, a mean and a rung by name, each from the one place that it says."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import metaprior
from metaprior import Auto, DataError, MetaGP, Tasks, UnknownNameError
from metaprior.methods import METHODS, ContextMean, Entry, add_methods
from metaprior.priors import KERNELS, MEANS, PriorSpec
from metaprior.report import colour_of, make_grids
from metaprior.scoring import METRICS, Metric, score

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text()


@pytest.fixture(autouse=True)
def followed():
    """The page's examples, as they stand; afterwards the tables are as they were."""
    before = [dict(table) for table in (KERNELS, MEANS, METHODS, METRICS)]
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, {"__name__": "followed"})
    yield
    for table, known in zip((KERNELS, MEANS, METHODS, METRICS), before, strict=True):
        table.clear()
        table.update(known)


def waves(count=8, seed=0):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 3, 7)
    return Tasks.from_pairs([(x, np.sin(4 * x) + x**2 + rng.normal() + 0.1 * rng.normal(size=7)) for _ in range(count)])


def test_a_new_kernel_and_mean_are_asked_for_saved_and_loaded_by_name(tmp_path):
    gp = MetaGP("quadratic", "periodic", max_epochs=10, progress=False).fit(waves())
    gp.save(tmp_path / "m")
    again = metaprior.load(tmp_path / "m")
    asked = [0.2, 1.0], [0.5, 1.0]
    first, second = (one.condition(*asked).at([0.0, 2.0]) for one in (gp, again))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.sd, second.sd)
    assert again.method_.spec == gp.method_.spec == PriorSpec("quadratic", "periodic")
    assert gp.fit(waves(), start=again).training_.epochs > 0  # learning goes on from it, too


def test_a_program_that_does_not_know_the_kernel_says_so(tmp_path):
    MetaGP("zero", "periodic", max_epochs=2, progress=False).fit(waves()).save(tmp_path / "m")
    del KERNELS["periodic"]
    with pytest.raises(UnknownNameError, match="periodic"):
        metaprior.load(tmp_path / "m")


def test_a_new_rung_is_tried_compared_and_coloured(tmp_path):
    auto = Auto(rungs=("gp per task", "wave"), progress=False).fit(waves())
    assert [one.name for one in auto.tried_] == ["gp per task", "wave"]
    assert colour_of("wave") == "#225522"
    assert METHODS["wave"].suits(waves().select(range(5)))
    assert not METHODS["wave"].suits(waves().select(range(4)))
    found = metaprior.selection.compare(waves(), metaprior.splits.random_sizes([2], 0), methods=["wave", "last value"])
    assert found.methods[:2] == ["wave", "last value"]
    MetaGP.of(auto).save(tmp_path / "m")
    assert metaprior.load(tmp_path / "m").method_.chosen_ == auto.chosen_


def test_a_new_metric_is_computed_and_shown():
    METRICS["worst"] = Metric("Largest error", abs, lambda posterior, target, steps: target.sizes.double())
    context, target = waves().context_target(2, seed=0)
    gp = MetaGP("constant", "rbf", max_epochs=2, progress=False).fit(waves())
    found = score(gp.predict(context, target), target)
    assert found.summary("worst").mean == 5.0
    row = {"method": "a", "setting": "1", "metric": "worst", "mean": 5.0, "stderr": None, "paper_mean": None}
    assert [grid.title for grid in make_grids([row | {"paper_stderr": None}])] == ["Largest error"]


def test_a_method_of_ones_own_may_be_given_again_but_none_of_ours():
    add_methods({"wave": METHODS["wave"]})  # as a notebook's cell does that is run twice
    with pytest.raises(metaprior.OptionError, match="'fpca' already"):
        add_methods({"fpca": Entry()})


def test_a_new_simple_method_is_what_a_prior_has_to_beat():
    add_methods({"level": Entry(lambda *asked: ContextMean(held_out=0.5), alone=True)})
    found = metaprior.selection.compare(waves(), metaprior.splits.random_sizes([2], 0), methods=["level", "fpca"])
    assert set(found.gains("fpca")) == {"level"}


@pytest.mark.parametrize(("change", "said"), [("hidden", "instead of"), ("features", "instead of"), ("d", "differ")])
def test_sizes_in_a_file_are_checked_before_anything_is_allocated(change, said, tmp_path):
    gp = MetaGP("deep", "deep", hidden=(3,), max_epochs=2, progress=False).fit(waves())
    state = gp.method_.state()
    huge = {"hidden": [10**9], "features": 10**9, "d": 10**9}[change]
    changed = metaprior.files.State(state.saved_as, state.structure | {change: huge}, state.tensors, state.about)
    with pytest.raises(DataError, match=said):
        metaprior.LearnedPrior.from_state(changed)
