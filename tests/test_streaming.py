"""Learning from tasks in parts: the same as from all of them in memory, for any number of processes."""

import copy
import math
import multiprocessing
import os
import socket
from functools import partial

import gpytorch
import numpy as np
import pytest
import torch
from torch import distributed

from metaprior import DataError, MetaGP, NumericalError, OptionError, Prior, Tasks, evidence, make_prior, model
from metaprior.errors import MetapriorError
from metaprior.learning import Designs, Going, Ranks, Statistics, em_over_parts, evidence_of, fit_em, start_of
from metaprior.learning import streaming as learning
from metaprior.methods import FPCA, LearnedPrior, Mixture, Warped, go_on
from metaprior.methods.streaming import All
from metaprior.priors import PolynomialBasis, SplineBasis
from metaprior.tasks import Parts, TrainedOn, in_order
from tests.problems import mixed, ragged, shared, slow_evidence

QUICK = {"hidden": (6,), "max_epochs": 8, "progress": False}


class Held(Parts):
    """Tasks of memory in parts, as a reader of files would give them."""

    def __init__(self, tasks, count):
        self.all, self.count, self.tasks, self.rows = tasks, count, len(tasks), len(tasks.x)
        self.columns, self.fingerprint = tasks.columns, "0123456789abcdef" * 2

    def part(self, k):
        return self.all.select(range(k, self.tasks, self.count))

    def sample(self, most):
        return self.all.select(range(min(most, self.tasks)))


def curves(count=60, seed=0):
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        x, own = np.sort(rng.uniform(0, 5, rng.integers(3, 12))), rng.normal(size=2)
        pairs.append((x, np.sin(x) + own[0] + 0.4 * own[1] * x + 0.1 * rng.normal(size=len(x))))
    return Tasks.from_pairs(pairs)


@pytest.fixture
def small_sample(monkeypatch):
    """Tables of the tests are larger than a sample."""
    monkeypatch.setattr("metaprior.model.SAMPLE", 24)
    monkeypatch.setattr("metaprior.model.OF_ONE", 24)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("make", [ragged, shared, mixed])
def test_sums_of_parts_are_those_of_all_tasks(make, p):
    tasks, basis = make(p=p), PolynomialBasis(-3.0, 3.0, 4)
    whole = Designs.of(basis, tasks)
    model = start_of(whole, 2, 1e-6)
    parts = [tasks.select(range(k, len(tasks), 3)) for k in range(3)]
    found = [Statistics.under(model, Designs.of(basis, part)) for part in parts]
    sums = found[0].shaped(sum(one.flat for one in found))
    assert sums.evidence(model) == pytest.approx(evidence_of(whole, model), rel=1e-12)
    assert sums.evidence(model) == pytest.approx(float(evidence(model.prior(basis), tasks).total.sum()), rel=1e-9)
    expected = fit_em(whole, 2, start=model, max_steps=1, tolerance=-1.0).model
    for one, other in zip(sums.maximised(1e-6), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("p", [1, 2])
def test_a_round_solves_the_normal_equations_and_scales_components_by_their_scores(p):
    """`Σ G C S = R`; components whose scores have no spread stay as they are."""
    tasks, basis = ragged(p=p), PolynomialBasis(-3.0, 3.0, 4)
    designs = Designs.of(basis, tasks)
    sums = Statistics.under(start_of(designs, 2, 1e-6), designs)
    plain = sums._replace(scores=torch.zeros(2, 2).double()).maximised(1e-6)
    C = torch.cat([plain.mean, plain.loadings], 1)
    torch.testing.assert_close(torch.einsum("abst,bt->as", sums.pairs, C), sums.projected)
    assert plain.noise == pytest.approx(
        (float(tasks.y.square().sum()) - float((C * sums.projected).sum())) / tasks.y.numel()
    )
    found, spread = sums.maximised(1e-6), sums.scores / (len(tasks) * p)
    torch.testing.assert_close(found.mean, plain.mean)
    torch.testing.assert_close(found.loadings @ found.loadings.mT, plain.loadings @ spread @ plain.loadings.mT)
    assert (found.noise, sums.maximised(99.0).noise) == (plain.noise, 99.0)


@pytest.mark.parametrize("count", [1, 4, 70])
def test_em_over_parts_is_em(count):
    """More parts than tasks leave some empty."""
    tasks, basis = in_order(curves()), SplineBasis(0.0, 5.0, [2.0])
    start = start_of(Designs.of(basis, tasks.select(range(10))), 2, 1e-6)
    expected = fit_em(Designs.of(basis, tasks), 2, start=start, tolerance=1e-5)
    found = em_over_parts(Held(tasks, count), basis, start, Going(Ranks()), name="curves", floor=1e-6, tolerance=1e-5)
    assert found.converged
    assert found.evidence == pytest.approx(expected.evidence[: len(found.evidence)], rel=1e-10)
    for one, other in zip(found.model, expected.model, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-8, atol=1e-8)


def test_a_table_that_is_all_sample_is_fitted_as_in_memory():
    tasks = curves(40)
    for gp in (MetaGP(rungs=["fpca", "shared gp"], progress=False), MetaGP("linear", "rbf", **QUICK)):
        found, expected = gp.fit(Held(tasks, 4)).method_, type(gp)(gp.mean, gp.kernel, **gp.options).fit(tasks)
        context, target = curves(5, 1).context_target(3, 0)
        torch.testing.assert_close(found.predict(context, target).mean, expected.predict(context, target).mean)
        assert gp.trained_on_.seen(tasks.ids) == list(tasks.ids)


def test_functional_pca_goes_on_with_all_tasks(small_sample):
    tasks = curves(80)
    gp = MetaGP(rungs=["fpca"], progress=False).fit(Held(tasks, 5))
    inner = gp.method_.method_
    assert isinstance(inner, FPCA)
    assert len(inner.evidence_) > 2
    assert inner.evidence_ == tuple(sorted(inner.evidence_))
    scaled = in_order(inner.scaler_.scale(tasks))
    here = evidence_of(Designs.of(inner.basis_, scaled), inner._model) + float(inner.scaler_.log_jacobian(tasks).sum())
    assert here == pytest.approx(inner.evidence_[-1], abs=0.05)  # the last step is not looked back at
    assert here > inner.evidence_[0] + 5
    assert gp.trained_on_.tasks == 80
    assert gp.trained_on_.rows == len(tasks.x)
    assert gp.trained_on_.seen(tasks.ids) == list(tasks.ids)


def test_a_prior_goes_on_with_all_tasks_and_is_never_worse_than_its_sample(small_sample, monkeypatch):
    monkeypatch.setattr(learning, "RATE", 0.02)
    tasks, judge = curves(300), curves(60, 7)
    gp = MetaGP("deep", "rbf", **QUICK, held_out=judge).fit(Held(tasks, 32))
    checks = gp.training_.checks
    assert checks[0].epoch == 0
    assert gp.training_.best.held_out_evidence == max(one.held_out_evidence for one in checks)
    assert gp.training_.best.held_out_evidence > checks[0].held_out_evidence + 0.01
    inner = gp.method_
    found = float(evidence(inner.prior_, inner.scaler_.scale(judge)).total.detach().sum()) / judge.y.numel()
    assert found == pytest.approx(gp.training_.best.held_out_evidence)  # the best is what is kept


class StoppedError(Exception):
    """Stands for whatever ends a process."""


class Counted(Held):
    """Parts that say how many of them were read, and end the process after some."""

    def __init__(self, tasks, count, most=999):
        super().__init__(tasks, count)
        self.read, self.most = 0, most

    def part(self, k):
        if self.read == self.most:
            raise StoppedError
        self.read += 1
        return super().part(k)


def curves_of(parts, going):
    basis = SplineBasis(0.0, 5.0, [2.0])
    start = start_of(Designs.of(basis, parts.all.select(range(10))), 2, 1e-6)
    found = em_over_parts(parts, basis, start, going, name="curves", floor=1e-6, tolerance=1e-5)
    return found.model.mean.tolist(), found.model.loadings.tolist(), found.model.noise, found.evidence, found.converged


def prior_of(parts, going):
    prior, judge = make_prior("constant", "rbf", d=1, seed=0), curves(10, 7)
    how = learning.TrainingSpec()
    training = learning.learn_over_parts(prior, parts, judge, how, going, name="prior", seed=0)
    assert len({check.held_out_evidence for check in training.checks}) > 4
    return [one.tolist() for one in prior.parameters()], repr(training)


@pytest.mark.parametrize(("learned", "most", "done"), [(curves_of, 15, 12), (prior_of, 4, 4)])
def test_what_was_stopped_among_the_parts_goes_on_there_to_the_same_end(learned, most, done, tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.learning.checkpoints.EVERY", 0.0)
    monkeypatch.setattr(learning, "RATE", 0.1)
    going = Going(Ranks(), tmp_path, "of these tasks", progress=False)
    tasks = in_order(curves())
    whole, first, rest = (Counted(tasks, 6, end) for end in (999, most, 999))
    expected = learned(whole, Going(Ranks(), progress=False))
    with pytest.raises(StoppedError):
        learned(first, going)
    assert learned(rest, going) == expected
    assert rest.read == whole.read - done


WRONG = torch.zeros(7, 1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("learned", "most", "name", "other"),
    [
        (curves_of, 15, "curves", {"mean": WRONG}),
        (prior_of, 4, "prior", {"here": [WRONG]}),
        (prior_of, 4, "prior", {"best": 99}),
    ],
)
def test_what_was_altered_meanwhile_is_told(learned, most, name, other, tmp_path, monkeypatch):
    monkeypatch.setattr("metaprior.learning.checkpoints.EVERY", 0.0)
    going, tasks = Going(Ranks(), tmp_path, "of these tasks", progress=False), in_order(curves())
    with pytest.raises(StoppedError):
        learned(Counted(tasks, 6, most), going)
    kept = going.checkpoint(name)
    kept.write(kept.read() | other)
    with pytest.raises(DataError, match="which was altered"):
        learned(Counted(tasks, 6, 999), going)


def test_slopes_of_parts_are_those_of_all_tasks():
    tasks, prior = curves(20), LearnedPrior("linear", "rbf", **QUICK).fit(curves(10, 3)).prior_
    run = learning._Run(prior, learning.HeldOut(prior, tasks), Held(tasks, 3), learning.TrainingSpec(), Ranks(), 0)
    sums = Ranks().summed(range(3), run._slopes)
    loss = -evidence(prior, tasks).total.sum()
    slopes = torch.autograd.grad(loss, prior.learned_parameters())
    assert float(sums[0]) == 20
    assert float(sums[1]) == pytest.approx(float(loss.detach()))
    torch.testing.assert_close(sums[2:], torch.cat([one.flatten() for one in slopes]), rtol=1e-9, atol=1e-9)
    run.parameters = [*run.parameters, torch.ones(2, dtype=torch.float64, requires_grad=True)]  # which nothing uses
    wider = Ranks().summed(range(3), run._slopes)
    torch.testing.assert_close(wider, torch.cat([sums, torch.zeros(2, dtype=torch.float64)]))


def test_what_is_summed_stays_as_it_is():
    parts = torch.arange(200).double().view(100, 2)  # more than are taken at a time
    total = Ranks().summed(range(100), list(parts).__getitem__)
    assert total.tolist() == [2.0 * sum(range(100)), 2.0 * sum(range(100)) + 100]
    assert torch.equal(parts, torch.arange(200).double().view(100, 2))


class Level(gpytorch.means.Mean):
    """A constant mean, which is not a number at negative inputs."""

    def __init__(self):
        super().__init__()
        self.height = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return self.height + 0 * x[..., 0].log()


def test_a_pass_over_the_parts_is_adams_at_a_rate_that_falls_along_half_a_wave(monkeypatch):
    """Against torch's own on tasks that nobody batches; a part without evidence has no say in its step."""
    monkeypatch.setattr(learning, "UPDATES", 3)
    bad = (1, 6)
    tasks = Tasks.from_pairs([(-t.x if k % 7 in bad else t.x, t.y) for k, t in enumerate(curves(21))])
    prior = Prior(Level(), gpytorch.kernels.RBFKernel().double(), 0.5, learn=["mean", "kernel"])
    by_hand, judge = copy.deepcopy(prior), learning.HeldOut(prior, curves(5, 1))
    run = learning._Run(prior, judge, Held(tasks, 7), learning.TrainingSpec(), Ranks(), 0)
    assert sorted(run.steps) == [[0, 1], [2, 3], [4, 5], [6]]
    optimizer = torch.optim.Adam(by_hand.learned_parameters())
    rate = optimizer.defaults["lr"]
    for done, group in enumerate(run.steps, 1):
        run.step(group)
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done / 4)) / 2
        optimizer.zero_grad()
        if some := [k for k in range(21) if k % 7 in group and k % 7 not in bad]:
            loss = -slow_evidence(by_hand, tasks.select(some)).mean()
            loss.backward()
            optimizer.step()
            assert run.checks[-1].loss_per_task == pytest.approx(loss.item())
        for one, other in zip(prior.parameters(), by_hand.parameters(), strict=True):
            torch.testing.assert_close(one, other)
        assert (len(run.checks), run.done) == (1 + done, done)
    assert run.skipped == 1
    told = run.end(curves(5, 1))
    assert (told.skipped, told.stopped) == (1, "went through all tasks, in 4 updates")
    assert judge.evidence() == told.best.held_out_evidence == max(one.held_out_evidence for one in told.checks)


def test_slopes_whose_sum_is_no_number_move_nothing(monkeypatch):
    tasks, prior = curves(20), make_prior("constant", "rbf", d=1, seed=0)
    run = learning._Run(prior, learning.HeldOut(prior, tasks), Held(tasks, 3), learning.TrainingSpec(), Ranks(), 0)
    fine = torch.ones(2 + sum(one.numel() for one in run.parameters)).double()
    huge = torch.where(torch.arange(len(fine)) == 2, 1e308, fine)
    monkeypatch.setattr(run, "_slopes", [huge, huge, fine].__getitem__)
    before = run._values()
    run.step([0, 1])
    assert all(torch.equal(one, two) for one, two in zip(before, run._values(), strict=True))
    run.step([2])
    assert not any(torch.equal(one, two) for one, two in zip(before, run._values(), strict=True))
    assert (run.done, run.skipped) == (2, 1)


def test_a_look_tells_the_loss_of_a_task():
    tasks, prior = curves(20), LearnedPrior("linear", "rbf", **QUICK).fit(curves(10, 3)).prior_
    run = learning._Run(prior, learning.HeldOut(prior, tasks), Held(tasks, 3), learning.TrainingSpec(), Ranks(), 0)
    run.done = len(run.steps) - 1
    loss = -float(evidence(prior, tasks).total.detach().sum())
    before = run._values()
    run.step(range(3))
    assert run.checks[-1].loss_per_task == pytest.approx(loss / 20)
    assert (run.checks[-1].epoch, run.skipped) == (len(run.steps), 0)
    assert all(
        torch.equal(one, two) for one, two in zip(before, run._values(), strict=True)
    )  # the last rate is nothing
    assert run.checks[-1].held_out_evidence == pytest.approx(run.checks[0].held_out_evidence)
    run.steps, looks = [[0]] * (10 * learning.LOOKS * learning.EPOCHS + 1), len(run.checks)
    for done, more in ((2, 0), (9, 1), (10, 1), (len(run.steps) - 1, 2)):  # every tenth, and the last
        run.done = done
        run.step([0])
        assert len(run.checks) == looks + more


def test_warps_and_combinations_go_on_and_others_say_that_they_do_not(small_sample):
    tasks = curves(60)
    sample, parts = tasks.select(range(24)), Held(tasks, 4)
    given = All(parts, sample.select(range(4)), TrainedOn.of(tasks), Going(Ranks()))
    one = Warped(FPCA(size=5, rank=1)).fit(sample)
    before = one.method.evidence_
    assert go_on(one, given, "warped fpca") == []
    assert one.method.evidence_ != before
    assert [float(end[0]) for end in (one.warp_.lower, one.warp_.upper)] == [float(tasks.y.min()), float(tasks.y.max())]
    assert "cannot learn part by part" in go_on(Mixture(kinds=1, rank=1).fit(sample), given, "mixture")[0]


def test_what_needs_all_tasks_in_memory_says_so():
    parts = Held(curves(10), 2)
    with pytest.raises(DataError, match=r"needs all tasks in memory.*MetaGP"):
        Mixture().fit(parts)
    with pytest.raises(DataError, match="know their columns"):
        MetaGP().fit(parts, x="hour")
    with pytest.raises(AttributeError, match="no nonsense"):
        _ = parts.nonsense
    assert len(parts) == 10


def test_thorough_is_of_memory(small_sample):
    with pytest.raises(OptionError, match="thorough"):
        MetaGP(thorough=True, progress=False).fit(Held(curves(40), 2))


def test_what_is_left_out_takes_its_clusters_along():
    tasks = curves(12).with_clusters([k % 4 for k in range(12)])
    parts = Held(tasks, 3).apart_from(tasks.select([5]))
    left = [name for k in range(3) for name in parts.part(k).ids]
    assert sorted(left) == [k for k in range(12) if k % 4 != 1]
    alone = Held(curves(12), 3).apart_from(tasks.select([5]))
    assert sum(len(alone.part(k)) for k in range(3)) == 11


def test_parts_that_are_remembered_are_read_once(monkeypatch):
    held = Held(curves(12), 3)
    counts = dict.fromkeys(range(3), 0)

    def read(k, plain=held.part):
        counts[k] += 1
        return plain(k)

    monkeypatch.setattr(held, "part", read)
    size = held.part(0).x.nbytes * 4
    counts[0] = 0
    known = held.remembered(size)
    for _ in range(3):
        assert [len(known.part(k)) for k in range(3)] == [4, 4, 4]
    assert counts[0] == 1
    assert counts[2] == 3  # there was no room for it


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def as_rank(rank, size, port, work, answers):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size)
    try:
        answers.put((rank, work(Ranks.here())))
    except MetapriorError as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
    finally:
        distributed.destroy_process_group()


def on_ranks(size, work):
    """What each of several processes finds."""
    context = multiprocessing.get_context("spawn")
    answers, port = context.Queue(), free_port()
    workers = [context.Process(target=as_rank, args=(rank, size, port, work, answers)) for rank in range(size)]
    for one in workers:
        one.start()
    found = dict(answers.get(timeout=120) for _ in workers)
    for one in workers:
        one.join()
    return [found[rank] for rank in range(size)]


def sums_of(ranks):
    parts = list(range(70))  # more than are exchanged at a time
    sums = ranks.summed(parts, partial(numbers_of, ranks))
    joined = ranks.joined(parts[:5], lambda k: f"part {k}")
    return sums.numpy().tobytes(), joined, ranks.told(lambda: "said by the first")


def numbers_of(ranks, k):
    assert k % 32 % ranks.size == ranks.rank  # no part is computed twice
    return torch.randn(7, generator=torch.Generator().manual_seed(k), dtype=torch.float64) * 10.0 ** (k % 9)


def failing(ranks):
    return ranks.joined([0, 1, 2], fails_in_one)


def fails_in_one(k):
    if k == 1:
        raise NumericalError("part 1 has no evidence")
    return k


def fitted(ranks):
    model.SAMPLE = model.OF_ONE = 24
    gp = MetaGP("deep", "rbf", **QUICK, held_out=curves(10, 5)).fit(Held(curves(60), 12))
    other = MetaGP(rungs=["fpca"], progress=False).fit(Held(curves(60), 12))
    contents = [values.numpy().tobytes() for one in (gp, other) for values in one.whole_state().tensors.values()]
    return b"".join(contents)


def test_any_number_of_ranks_finds_the_same_bytes():
    alone = sums_of(Ranks())
    assert alone[1:] == ([f"part {k}" for k in range(5)], "said by the first")
    assert on_ranks(3, sums_of) == [alone] * 3


def test_models_of_any_number_of_ranks_are_the_same_bytes(small_sample):
    alone = fitted(Ranks())
    assert on_ranks(3, fitted) == [alone] * 3


def test_what_goes_wrong_on_one_rank_goes_wrong_on_all():
    assert on_ranks(2, failing) == ["MetapriorError: part 1 has no evidence", "NumericalError: part 1 has no evidence"]
