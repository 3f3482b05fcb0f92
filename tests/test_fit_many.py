"""What is learned from some tasks does not depend on what is learned beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metaprior import FPCA, LearnedPrior, Method, Tasks
from metaprior.methods import METHODS, HierarchicalGP, Warped, hierarchical, make_method, table

EPOCHS = 10
"""Rounding differs with what is computed in one product. Every epoch multiplies that; after ten it is still small."""


def curves(count, seed):
    """Tasks of positive, skewed values."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        x = rng.uniform(0, 1, int(rng.integers(3, 7)))
        pairs.append((x, np.exp(np.sin(5 * x) + rng.normal(0, 0.5) + 0.1 * rng.normal(size=len(x)))))
    return Tasks.from_pairs(pairs)


def brief(method):
    """The method, which learns for few epochs where it learns by epochs."""
    if isinstance(method, Warped):
        brief(method.method)
    elif isinstance(method, LearnedPrior):
        method.training = replace(method.training, max_epochs=EPOCHS, check_every=5)
    elif "max_epochs" in getattr(method, "options", {}):
        method.options["max_epochs"] = EPOCHS
    return method


def assert_alike(found, expected, y):
    close = {"atol": 1e-3 * float(y.std()), "rtol": 0}
    torch.testing.assert_close(found.mean, expected.mean, **close)
    torch.testing.assert_close(found.sd, expected.sd, **close)


def learns_together(name):
    """Whether several of a method are learned otherwise than one by one."""
    made = None if METHODS[name].make is None else make_method(name, curves(8, 0))
    return made is not None and type(made).fit_many.__func__ is not Method.fit_many.__func__


@pytest.mark.parametrize("name", list(filter(learns_together, METHODS)))
def test_a_fit_alone_is_the_fit_beside_others(name, monkeypatch):
    """On both sides of every number of tasks that a method looks at: the largest set decides for none of the others."""
    monkeypatch.setattr(table, "SOME", 12)
    monkeypatch.setattr(table, "MANY", 30)
    monkeypatch.setattr(hierarchical, "FEW", 10)
    sets = [curves(count, count) for count in (8, 11, 20, 40)]
    together = [brief(make_method(name, own)) for own in sets]
    type(together[0]).fit_many(together, sets)
    context, target = curves(6, 0).context_target(2, seed=0)
    for one, own in zip(together, sets, strict=True):
        alone = brief(make_method(name, own))
        type(alone).fit_many([alone], [own])
        assert_alike(one.predict(context, target), alone.predict(context, target), target.y)


def test_draws_around_the_mode_do_not_depend_on_the_signs_of_axes(monkeypatch):
    own, plain = curves(9, 0), torch.linalg.eigh
    context, target = curves(6, 1).context_target(2, seed=0)
    expected = HierarchicalGP().fit(own).predict(context, target)

    def mirrored(matrix):
        values, vectors = plain(matrix)
        return values, -vectors * torch.tensor([1.0, -1.0]).repeat(matrix.shape[-1])[: matrix.shape[-1]].double()

    monkeypatch.setattr(torch.linalg, "eigh", mirrored)
    assert_alike(HierarchicalGP().fit(own).predict(context, target), expected, target.y)


def test_warped_methods_of_several_kinds_learn_as_each_alone():
    sets = [curves(9, 0), curves(8, 1)]

    def made():
        prior = LearnedPrior("constant", "matern", held_out=None, max_epochs=EPOCHS, progress=False)
        return [Warped(prior), Warped(FPCA(size=4, rank=1))]

    together, alone = made(), made()
    Warped.fit_many(together, sets)
    context, target = curves(6, 2).context_target(2, seed=0)
    for one, other, own in zip(together, alone, sets, strict=True):
        Warped.fit_many([other], [own])
        assert_alike(one.predict(context, target), other.predict(context, target), target.y)


def test_priors_of_several_structures_learn_as_each_alone():
    """Those that have a formula are learned by it, whatever is beside them."""
    sets = [curves(9, 0), curves(8, 1), curves(10, 2)]

    def made():
        options = {"held_out": None, "max_epochs": EPOCHS, "progress": False}
        return [LearnedPrior("constant", kernel, **options) for kernel in ("matern", "rbf", "matern")]

    together, alone = made(), made()
    LearnedPrior.fit_many(together, sets)
    context, target = curves(6, 3).context_target(2, seed=0)
    for one, other, own in zip(together, alone, sets, strict=True):
        LearnedPrior.fit_many([other], [own])
        assert_alike(one.predict(context, target), other.predict(context, target), target.y)
