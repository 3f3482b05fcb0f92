"""Models learned together against the same learned one by one, by the EM of `learning/em.py`."""

import math

import numpy as np
import pytest
import torch

from metaprior import DataError, NumericalError, Tasks
from metaprior.learning import (
    Curves,
    Designs,
    Grids,
    MixedEffects,
    StackedCurves,
    evidence_of,
    fit_em,
    start_of,
    together,
)
from metaprior.learning.together import Models, evidence_together, fit_together, starts
from metaprior.methods import FPCA
from metaprior.methods.components import FEW_STEPS, PATIENCE, ROUGHLY, Tried, best
from metaprior.priors import PolynomialBasis, SplineBasis
from metaprior.splits import k_folds
from metaprior.tasks import Scaler, in_order, same_inputs


def drawn(inputs, seed, p=1, noise=0.3) -> Tasks:
    """Curves of two components at given inputs."""
    rng = np.random.default_rng(seed)
    pairs = []
    for x in inputs:
        first = x if x.ndim == 1 else x.sum(1)
        waves = np.stack([np.sin(5 * first), np.cos(5 * first)])
        y = first + np.einsum("kp,kn->pn", rng.normal(size=(2, p)) * [[2.0], [0.7]], waves)
        pairs.append((x, (y + rng.normal(0, noise, y.shape)).T))
    return Tasks.from_pairs(pairs)


def tables() -> dict[str, Tasks]:
    rng = np.random.default_rng(7)
    grid = np.linspace(0, 1, 9)
    some = [np.sort(rng.choice(np.linspace(0, 1, 12), 7, replace=False)) for _ in range(3)]
    return {
        "one grid": drawn([grid] * 24, 0),
        "one grid, two outputs": drawn([grid] * 16, 1, p=2),
        "one grid in any order": drawn([rng.permutation(grid) for _ in range(20)], 2),
        "irregular": drawn([np.sort(rng.uniform(0, 1, rng.integers(3, 9))) for _ in range(30)], 3),
        "irregular, two outputs": drawn([rng.uniform(0, 1, rng.integers(3, 8)) for _ in range(20)], 4, p=2),
        "few designs": drawn([some[k % 3] for k in range(28)], 5),
        "few designs of many tasks": drawn([some[k % 3] for k in range(240)], 6),
        "a grid with points missing": drawn([grid] * 20 + [grid[:6], grid[:5], grid[2:]], 8),
        "two inputs": drawn([rng.uniform(0, 1, (9, 2)) for _ in range(24)], 9),
    }


TABLES = tables()
irregular = pytest.mark.parametrize("name", [name for name in TABLES if "one grid" not in name])


def options(tasks):
    return {"size": 3} if tasks.d == 2 else {}


def tried_slowly(fpca: FPCA, tasks: Tasks) -> list[Tried]:
    """The search, one fold and one model after the other."""
    tried: list[Tried] = []
    sizes = fpca._sizes(tasks.x)
    folds = [(tasks.select(fold.train), tasks.select(fold.judge)) for fold in k_folds(tasks, 5, fpca.seed)]
    for k, size in enumerate(sizes):
        basis = fpca._basis(tasks.x, size)
        parts = [(Designs.of(basis, training), Designs.of(basis, judge)) for training, judge in folds]
        models: list[MixedEffects | None] = [None] * len(parts)
        highest, since_best = -math.inf, 0
        for rank in range(1, min(size**tasks.d, 6) + 1):
            judged = []
            try:
                for n, (training, judge) in enumerate(parts):
                    start = start_of(training, rank, fpca.noise_floor, models[n])
                    how = {"floor": fpca.noise_floor, "tolerance": ROUGHLY, "max_steps": FEW_STEPS}
                    models[n] = fit_em(training, rank, start=start, **how).model
                    judged.append(evidence_of(judge, models[n]))
            except (DataError, NumericalError):
                break
            found = sum(judged) / len(tasks.x) / tasks.p
            tried.append(Tried(size, rank, found))
            since_best = 0 if found > highest + fpca.tolerance else since_best + 1
            highest = max(highest, found)
            if since_best >= PATIENCE:
                break
        if tried and k > sizes.index(best(tried).size):
            break
    return tried


def test_tables_together_are_what_each_is_alone():
    """The same choice and evidence, and the same curves, as by the slow way."""
    methods = {name: FPCA(**options(tasks)) for name, tasks in TABLES.items()}
    FPCA.fit_many(list(methods.values()), list(TABLES.values()))
    for name, fpca in methods.items():
        tasks = in_order(fpca.scaler_.scale(TABLES[name]))
        slowly = {one[:2]: one.held_out_evidence for one in tried_slowly(fpca, tasks)}
        both = [one for one in fpca.tried_ if one[:2] in slowly]
        assert len(both) >= 3
        if "grid" in name:  # EM's closed form there is not that of a model with fewer components than its rank
            assert [x.held_out_evidence for x in both] == pytest.approx([slowly[x[:2]] for x in both], abs=0.02), name
        else:
            assert [x.held_out_evidence for x in both] == pytest.approx([slowly[x[:2]] for x in both], abs=1e-6), name
        chosen = best(fpca.tried_)
        assert slowly[chosen[:2]] == pytest.approx(max(slowly.values()), abs=1e-3), name
        fit = fit_em(Designs.of(fpca.basis_, tasks), fpca.rank_)
        units = float(fpca.scaler_.log_jacobian(tasks).sum())
        assert (fpca.evidence_[-1] - units) / tasks.y.numel() == pytest.approx(
            fit.evidence[-1] / tasks.y.numel(), abs=1e-5
        ), name
        x = tasks.x[:10]
        assert fpca.mean_function(x).numpy() == pytest.approx(
            fpca.scaler_.unscale_mean(fpca.basis_(x) @ fit.model.mean).numpy(), abs=1e-5
        ), name
        values, ours = fpca.basis_(x) @ fit.model.loadings, fpca.basis_(x) @ fpca._model.loadings
        assert (ours @ ours.mT).numpy() == pytest.approx((values @ values.mT).numpy(), abs=1e-5), name


@irregular
def test_a_step_together_is_a_step_alone(name):
    """To the last digits: start, evidence of either role, and models after a few steps, fold by fold."""
    tasks = in_order(Scaler.of_targets(TABLES[name]).scale(TABLES[name]))
    fpca = FPCA()
    basis, folds = fpca._basis(tasks.x, 3 if tasks.d == 2 else 5), k_folds(tasks, 5, 0)
    curves = fpca._curves(tasks)
    stack = StackedCurves.of([curves], [basis])
    floor = torch.tensor([1e-6]).double()
    start = starts(stack, floor)
    lower = fit_together(stack, start.models(1), floor=floor, tolerance=-1.0, max_steps=3)
    learned = fit_together(stack, start.models(2, lower.models), floor=floor, tolerance=-1.0, max_steps=5)
    judged = evidence_together(stack.judging, learned.models)
    p = tasks.p
    for n, fold in enumerate(folds):
        designs, judge = (Designs.of(basis, tasks.select(part)) for part in (fold.train, fold.judge))
        if designs.one_grid:  # has a closed form to start from
            continue
        one = fit_em(designs, 1, tolerance=-1.0, max_steps=3)
        fit = fit_em(designs, 2, start=start_of(designs, 2, 1e-6, one.model), tolerance=-1.0, max_steps=5)
        assert learned.evidence[:, 0, n].tolist() == pytest.approx(fit.evidence, rel=1e-8)
        assert float(judged[0, n]) == pytest.approx(evidence_of(judge, fit.model), rel=1e-7)
        found = learned.models.coefficients[0, n]
        assert found[:p].mT.numpy() == pytest.approx(fit.model.mean.numpy(), abs=1e-6)
        both = [W @ W.mT for W in (found[p:].mT, fit.model.loadings)]
        assert both[0].numpy() == pytest.approx(both[1].numpy(), abs=1e-6)


def test_what_runs_out_of_steps_has_not_converged():
    stack = StackedCurves.of([Curves.whole(TABLES["irregular"])], [PolynomialBasis(0.0, 1.0, 4)])
    floor = torch.tensor([1e-6]).double()
    start = starts(stack, floor).models(2)
    few, many = (fit_together(stack, start, floor=floor, tolerance=1e-4, max_steps=most) for most in (2, 500))
    assert [one.fit(0, 1, 2).converged for one in (few, many)] == [False, True]
    assert len(few.fit(0, 1, 2).evidence) < len(many.fit(0, 1, 2).evidence) < 500
    designs = Designs.of(PolynomialBasis(0.0, 1.0, 4), TABLES["irregular"])
    for one, most in ((few, 2), (many, 500)):
        alone = fit_em(designs, 2, tolerance=1e-4, max_steps=most)
        assert alone.converged == one.fit(0, 1, 2).converged
        assert alone.evidence == pytest.approx(one.fit(0, 1, 2).evidence)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("lower", [None, 1, 2, 3])
def test_models_begin_at_what_those_of_a_lower_rank_have_learned(lower, rank):
    """Those of the same rank or a higher one are of no use."""
    tasks, basis = TABLES["irregular, two outputs"], PolynomialBasis(0.0, 1.0, 4)
    designs, floor = Designs.of(basis, tasks), torch.tensor([1e-6]).double()
    known = None if lower is None else fit_em(designs, lower, max_steps=2)
    start = starts(StackedCurves.of([Curves.whole(tasks)], [basis]), floor)
    smaller = None
    if known is not None:
        coefficients = torch.cat([known.model.mean, known.model.loadings], 1).mT
        smaller = Models(coefficients[None, None], torch.full((1, 1), known.model.noise).double())
    together, alone = (
        start.models(rank, smaller).model(0, 2, rank),
        start_of(designs, rank, 1e-6, known and known.model),
    )
    goes_on = known is not None and lower < rank
    assert alone.noise == pytest.approx((known.model if goes_on else start_of(designs, rank, 1e-6)).noise)
    if goes_on:
        assert torch.equal(alone.loadings[:, :lower], known.model.loadings)
        assert float((known.model.loadings.mT @ alone.loadings[:, lower:]).abs().max()) < 1e-9
    assert together.noise == pytest.approx(alone.noise)
    torch.testing.assert_close(together.mean, alone.mean)
    torch.testing.assert_close(together.loadings @ together.loadings.mT, alone.loadings @ alone.loadings.mT)


def test_few_models_at_a_time_are_all_models_at_once(monkeypatch):
    names = ["irregular", "few designs", "a grid with points missing"]
    at_once, few = [FPCA() for _ in names], [FPCA() for _ in names]
    FPCA.fit_many(at_once, [TABLES[name] for name in names])
    monkeypatch.setattr(together, "MOST_ENTRIES", 500)
    FPCA.fit_many(few, [TABLES[name] for name in names])
    for one, other in zip(at_once, few, strict=True):
        assert [x[:2] for x in one.tried_] == [x[:2] for x in other.tried_]
        assert [x[2] for x in one.tried_] == pytest.approx([x[2] for x in other.tried_], abs=1e-8)
        assert one.evidence_ == pytest.approx(other.evidence_, rel=1e-8)


def test_a_table_that_determines_little_does_not_stop_the_others():
    rng = np.random.default_rng(0)
    crowded = [*(rng.uniform(0, 0.5, 6) for _ in range(12)), rng.uniform(0.5, 1, 30)]  # without the last, half a range
    methods = [FPCA(), FPCA(), FPCA(size=5, rank=2), FPCA(noise_floor=0.1, rank=2)]
    tasks = [TABLES["irregular"], drawn(crowded, 0), TABLES["one grid"], TABLES["few designs"]]
    FPCA.fit_many(methods, tasks)
    alone = FPCA().fit(TABLES["irregular"])
    assert methods[0].tried_ == [(size, rank, pytest.approx(found, abs=1e-9)) for size, rank, found in alone.tried_]
    assert {one.size for one in methods[1].tried_} == {5}
    assert (methods[2].basis_.size, methods[2].rank_, methods[3].rank_) == (5, 2, 2)
    wide = SplineBasis(-10.0, 10.0, np.linspace(-9, 9, 40))
    with pytest.raises(DataError, match="Use fewer basis functions"):
        FPCA.fit_many([FPCA(), FPCA(wide)], tasks[:2])


@pytest.mark.parametrize("d", [1, 2])
def test_curves_know_whether_all_of_them_share_a_grid_and_what_there_is_of_each_part(d, monkeypatch):
    monkeypatch.setattr("metaprior.learning.stacks.CHUNK", 2)
    grid = np.random.default_rng(0).uniform(0, 1, (5, d))
    train, last = drawn([grid] * 12, 0, p=2), grid.copy()
    last[-1, -1] += 0.1
    others = {True: [grid] * 7, False: [grid] * 6 + [last]}
    judges = [(drawn(inputs, 1, p=2), same) for same, inputs in others.items()]
    judges += [(drawn([grid[:4]] * 5, 1, p=2), False), (drawn([grid] * 3 + [grid[:4]], 1, p=2), False)]
    for judge, same in judges:
        curves = Curves.judged_by(train, judge)
        assert curves.one_grid == same
        assert not Curves.judged_by(drawn([grid], 0, p=2), judge).one_grid  # one task makes none
        assert not Curves.judged_by(drawn([grid] * 11 + [last], 0, p=2), judge).one_grid
        parts = [(len(part), part.y.numel(), float(part.y.square().sum())) for part in (train, judge)]
        assert curves.totals.numpy() == pytest.approx(np.array(parts))
        assert (curves.learn @ curves.totals).tolist() == [curves.totals[0].tolist()]
        assert (curves.judge @ curves.totals).tolist() == [curves.totals[1].tolist()]
        every, (design, some) = [*train, *judge], curves.designs
        assert curves.sizes.tolist() == [len(task.x) for task in every]
        for task, k in zip(every, design.tolist(), strict=True):
            assert torch.equal(every[int(some[k])].x, task.x)


def test_held_out_curves_choose_wherever_they_lie():
    train, grid = TABLES["irregular"], TABLES["one grid"]
    others = drawn([np.linspace(0, 1, 6)] * 9, 3)
    assert FPCA(held_out=others).fit(train).tried_ != FPCA(held_out=0.2).fit(train).tried_
    elsewhere, same = FPCA(held_out=others).fit(grid), FPCA(held_out=grid.select(range(9))).fit(grid)
    assert elsewhere.rank_ in (1, 2, 3)
    assert same.tried_[0].held_out_evidence > elsewhere.tried_[0].held_out_evidence


def test_on_a_grid_no_step_of_em_finds_more():
    """Also where a model has fewer components than its rank, or its noise is at the floor."""
    tasks = TABLES["one grid"]
    basis = PolynomialBasis(0.0, 1.0, 6)
    designs, curves = Designs.of(basis, tasks), Curves.whole(tasks)
    for floor in (1e-6, 0.5):
        grids = Grids.of([curves], [basis], torch.tensor([floor]).double())
        for rank in (1, 2, 4, 6):
            model = grids.model(0, rank)
            found = float(grids.evidence(grids.learn, [rank]))
            assert found == pytest.approx(evidence_of(designs, model), rel=1e-9)
            fit = fit_em(designs, rank, start=model, floor=floor, tolerance=-1.0, max_steps=50)
            assert fit.evidence[-1] == pytest.approx(found, rel=1e-9)


def test_what_cannot_be_learned_is_said_in_words():
    stack = StackedCurves.of([Curves.whole(TABLES["irregular"])], [PolynomialBasis(0.0, 1.0, 4)])
    floor = torch.tensor([1e-6]).double()
    far = starts(stack, floor).models(2)
    far.coefficients[..., 0, :] = torch.inf
    with pytest.raises(NumericalError, match="evidence of the curves is not finite"):
        fit_together(stack, far, floor=floor, tolerance=1e-4).fit(0, 1, 2)
    steep = Models(1e9 * torch.ones(1, 1, 3, 4).double(), torch.full((1, 1), 1e-12).double())
    with pytest.raises(NumericalError, match="covariance is not positive definite"):
        fit_together(stack, steep, floor=floor, tolerance=1e-4).fit(0, 1, 2)


def test_tasks_of_the_same_inputs_have_the_same_number():
    tasks = Tasks.from_pairs([([1.0, 0.0], [1, 2]), ([0.0, 2.0], [3, 4]), ([-0.0, 1.0], [5, 6]), ([0.0], [7])])
    assert same_inputs(tasks).tolist() == [0, 1, 0, 2]
    assert in_order(tasks).y[:, 0].tolist() == [2, 1, 3, 4, 5, 6, 7]
