import copy
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import gpytorch
import numpy as np
import pytest
import torch

from metaprior import (
    DataError,
    NumericalError,
    OptionError,
    Prior,
    Tasks,
    UnknownNameError,
    evidence,
    make_prior,
    meta_train,
)
from metaprior.inference.factor import _trusted
from metaprior.learning import (
    OPTIMIZERS,
    HeldOut,
    TrainingSpec,
    checkpoints,
    evidence_loss,
    make_updates,
    meta_train_many,
    recording,
)
from metaprior.learning.objective import with_hyper_prior
from metaprior.learning.recording import with_slopes
from metaprior.learning.threads import SMALL, entries_of, threads_for
from metaprior.learning.updates import LBFGS, Stochastic
from metaprior.priors import HyperPrior
from metaprior.tasks import batches
from metaprior.tasks.batches import padded
from tests.problems import PRIORS, mixed, ragged, shared, slow_evidence

meta_train_module = sys.modules["metaprior.learning.meta_train"]
QUIET = {"seed": 0, "progress": False}


def sines(count=60, n=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(count, n))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=(count, 1)) + 0.05 * rng.normal(size=(count, n))
    return Tasks.from_pairs(zip(x, y, strict=True))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_raises_the_held_out_evidence(optimizer):
    prior, tasks = make_prior("deep", "rbf", d=1, hidden=(16,), seed=0), sines()
    held_out = sines(seed=1)
    before = HeldOut(prior, held_out).evidence()
    epochs = 20 if optimizer == "algorithm1" else 200
    rate = 2e-3 if optimizer == "algorithm1" else None
    training = meta_train(
        prior, tasks, optimizer=optimizer, learning_rate=rate, max_epochs=epochs, held_out=held_out, **QUIET
    )
    assert training.best.held_out_evidence > before + 0.5
    assert training.skipped == 0
    assert math.isfinite(training.best.loss_per_task)


def test_algorithm_1_is_the_papers_loop():
    """ψ ← ψ − η ∇L(Dᵢ; ψ), one task after another, against a version with nothing batched."""
    tasks, prior = ragged(count=7), make_prior("deep", "rbf", d=1, hidden=(4,), seed=0)
    by_hand = copy.deepcopy(prior)
    options = {"optimizer": "algorithm1", "learning_rate": 1e-3, "max_epochs": 2, "held_out": None}
    training = meta_train(prior, tasks, **options, **QUIET)
    generator = torch.Generator().manual_seed(0)
    for check in training.checks[1:]:
        losses = []
        for i in torch.randperm(len(tasks), generator=generator).tolist():
            loss = -slow_evidence(by_hand, tasks.select([i])).sum()
            losses.append(loss.item())
            gradients = torch.autograd.grad(loss, by_hand.learned_parameters())
            with torch.no_grad():
                for parameter, gradient in zip(by_hand.learned_parameters(), gradients, strict=True):
                    parameter -= 1e-3 * gradient
        assert check.loss_per_task == pytest.approx(np.mean(losses))
    for ours, theirs in zip(prior.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_size", [3, None])
def test_adam_takes_a_step_for_each_batch_and_tells_the_loss_of_a_task(batch_size):
    """Against torch's Adam on batches of which the last has one task, with nothing batched in them."""
    tasks, prior = ragged(count=7), PRIORS["learned mean"](1, 1)
    by_hand = copy.deepcopy(prior)
    updates = make_updates("adam", prior, tasks, evidence_loss(prior, "task"), rate=1e-2, batch_size=batch_size, seed=3)
    generator, optimizer = torch.Generator().manual_seed(3), torch.optim.Adam(by_hand.learned_parameters(), lr=1e-2)
    for _ in range(2):
        told, total = updates.run(1), 0.0
        for some in torch.randperm(len(tasks), generator=generator).split(batch_size or len(tasks)):
            optimizer.zero_grad()
            loss = -slow_evidence(by_hand, tasks.select(some)).mean()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(some)
        assert told == pytest.approx(total / len(tasks))
    for ours, theirs in zip(prior.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_the_optimum_of_a_constant_mean_is_the_weighted_average():
    """With kernel and noise fixed, ∂L/∂c = 0 at c = Σ 1ᵀA⁻¹y / Σ 1ᵀA⁻¹1."""
    tasks = mixed()
    prior = make_prior("constant", "rbf", d=1, learn=["mean"], seed=0)
    above = below = 0.0
    for task in tasks:
        z = prior.at(task.x)
        w = torch.linalg.solve(prior.covariance(z, z) + torch.diag(z.noise), torch.ones(len(task.x)).double())
        above, below = above + float(w @ task.y[:, 0]), below + float(w.sum())
    meta_train(prior, tasks, held_out=None, **QUIET)
    assert prior.mean.constant.item() == pytest.approx(above / below, rel=1e-6)


def test_full_batch_optimizers_reach_the_same_optimum():
    x, rng = np.linspace(-2, 2, 8), np.random.default_rng(0)
    tasks = Tasks.from_pairs([(x, np.sin(x + rng.uniform(0, 6)) + 0.1 * rng.normal(size=8)) for _ in range(60)])
    reached = []
    for optimizer, epochs in (("lbfgs", 300), ("adam", 3000)):
        prior = make_prior("constant", "rbf", d=1, seed=0)
        meta_train(prior, tasks, optimizer=optimizer, max_epochs=epochs, patience=50, held_out=None, **QUIET)
        reached.append(HeldOut(prior, tasks).evidence())
    assert reached[0] == pytest.approx(reached[1], abs=1e-4)


def test_minibatches_of_all_tasks_are_full_batches():
    whole, parts = (make_prior("deep", "rbf", d=1, hidden=(4,), seed=0) for _ in range(2))
    tasks = mixed()
    for prior, size in ((whole, None), (parts, len(tasks))):
        options = {"max_epochs": 5, "held_out": None, "check_every": 5}
        meta_train(prior, tasks, optimizer="adam", batch_size=size, **options, **QUIET)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-10)


def test_small_problems_run_on_one_thread_and_the_users_number_comes_back():
    torch.set_num_threads(2)
    try:
        with threads_for(SMALL - 1):
            assert torch.get_num_threads() == 1
        with threads_for(SMALL):
            assert torch.get_num_threads() == 2
        assert entries_of(batches(shared(count=9, n=6))) == 36
        assert entries_of(padded(shared(count=9, n=6))) == 9 * 36
        prior = PRIORS["vanilla"](1, 1)
        how = {"rate": 0.1, "batch_size": 9, "seed": 0}
        assert make_updates("adam", prior, shared(count=20, n=6), evidence_loss(prior, "task"), **how).entries == 9 * 36
        with pytest.raises(KeyError), threads_for(0):
            raise KeyError
        assert torch.get_num_threads() == 2
        small, large = threads_for(0), threads_for(SMALL)  # at once, as a server's threads are
        small.__enter__()
        large.__enter__()
        small.__exit__(None, None, None)
        large.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("optimizer", "batch_size"), [("algorithm1", None), ("adam", 16), ("adam", None), ("lbfgs", None)]
)
def test_same_seed_same_result(optimizer, batch_size):
    found = []
    for seed in (3, 3, 4):
        prior = make_prior("deep", "deep", d=1, hidden=(6,), seed=0)
        meta_train(
            prior, sines(30), seed=seed, optimizer=optimizer, batch_size=batch_size, max_epochs=3, progress=False
        )
        found.append(torch.cat([p.detach().ravel() for p in prior.parameters()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_best_parameters_are_kept_and_the_history_returned():
    tasks, held_out = sines(12), sines(40, seed=1)
    prior = make_prior("deep", "rbf", d=1, hidden=(32,), seed=0)
    training = meta_train(prior, tasks, held_out=held_out, max_epochs=400, check_every=10, **QUIET)
    evidences = [check.held_out_evidence for check in training.checks]
    assert training.best.held_out_evidence == max(evidences)
    assert training.best.epoch < training.epochs  # twelve tasks overfit: it went on past its best
    assert HeldOut(prior, held_out).evidence() == pytest.approx(max(evidences))
    assert training.stopped.startswith("converged")
    assert [check.epoch for check in training.checks] == list(range(0, training.epochs + 1, 10))


def test_stops_when_held_out_evidence_no_longer_rises():
    prior = make_prior("constant", "rbf", d=1, seed=0)
    training = meta_train(prior, sines(), patience=2, check_every=10, max_epochs=1000, **QUIET)
    assert training.epochs < 1000
    assert training.stopped == "converged: no rise above 1e-06 in 2 checks"


class Cliff(gpytorch.means.Mean):
    """A mean that is not a number once its parameter passes 1; the evidence pulls it there."""

    def __init__(self):
        super().__init__()
        self.height = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return (self.height + 0 * (1 - self.height).log()).expand(x.shape[:-1])


@pytest.mark.parametrize(("optimizer", "rate"), [("algorithm1", 0.05), ("adam", 0.2), ("lbfgs", 1.0)])
def test_a_non_finite_step_is_never_applied_and_is_reported(optimizer, rate):
    tasks = Tasks.from_pairs([(np.arange(4.0), np.full(4, 5.0))] * 10)
    prior = Prior(Cliff(), gpytorch.kernels.RBFKernel().double(), 0.5, learn=["mean"])
    training = meta_train(
        prior, tasks, optimizer=optimizer, learning_rate=rate, max_epochs=60, check_every=1, held_out=None, **QUIET
    )
    assert training.skipped > 0
    assert math.isfinite(prior.mean.height.item())
    assert math.isfinite(HeldOut(prior, tasks).evidence())
    assert training.best.held_out_evidence > training.checks[0].held_out_evidence


def test_too_long_a_step_is_undone_and_shortened():
    prior = Prior(Cliff(), gpytorch.kernels.RBFKernel().double(), 0.5, learn=["mean"])
    tasks = Tasks.from_pairs([(np.arange(4.0), np.full(4, 5.0))] * 10)
    training = meta_train(prior, tasks, optimizer="adam", learning_rate=50.0, max_epochs=60, held_out=None, **QUIET)
    assert training.skipped >= 6  # 50 has to be halved six times to stay below 1
    assert 0.5 < prior.mean.height.item() < 1.0


class Sometimes(Cliff):
    """A constant mean that is not a number at negative inputs."""

    def forward(self, x):
        return self.height + 0 * x[..., 0].log()


class NoSlope(Cliff):
    """A mean whose gradient is not a number."""

    def forward(self, x):
        return (self.height.abs().sqrt() * 0).expand(x.shape[:-1])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_gradient_that_is_never_finite_is_an_error(optimizer):
    prior = Prior(NoSlope(), gpytorch.kernels.RBFKernel().double(), 0.5, learn=["mean"])
    with pytest.raises(NumericalError, match="nothing could be learned: no update was finite"):
        meta_train(prior, sines(5), optimizer=optimizer, check_every=1, held_out=None, **QUIET)
    assert prior.mean.height.item() == 0.0


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_a_training_task_without_finite_loss_is_named(optimizer):
    prior = Prior(lambda x: x[..., 0].log(), gpytorch.kernels.RBFKernel(), 0.5, learn=["kernel"])
    tasks = Tasks.from_pairs([([1.0, 2.0], [0.0, 1.0])] * 3 + [([-1.0, 2.0], [0.0, 1.0])], ids=["a", "b", "c", "bad"])
    good = tasks.select([0, 1])
    with pytest.raises(NumericalError, match=r"y − m\(x\) of task 'bad' is not finite"):
        meta_train(prior, tasks, optimizer=optimizer, held_out=good, **QUIET)


def test_a_bad_task_does_not_undo_the_steps_of_good_ones():
    def reached(tasks):
        prior = Prior(Sometimes(), gpytorch.kernels.RBFKernel(), 0.5, learn=["mean"])
        options = {"optimizer": "algorithm1", "learning_rate": 0.01, "max_epochs": 50, "patience": 50}
        training = meta_train(prior, tasks, held_out=tasks.select([0]), **options, **QUIET)
        return prior.mean.height.item(), training.skipped

    good = ([1.0, 2.0], [3.0, 3.0])
    alone, none = reached(Tasks.from_pairs([good] * 4))
    together, skipped = reached(Tasks.from_pairs([good] * 4 + [([-1.0, 2.0], [3.0, 3.0])]))
    assert (none, skipped) == (0, 50)
    assert together == pytest.approx(alone, rel=1e-6)


def test_a_prior_that_starts_without_finite_evidence_is_refused():
    prior = Prior(lambda x: x[..., 0] * math.nan, gpytorch.kernels.RBFKernel().double(), 0.5, learn=["kernel"])
    with pytest.raises(NumericalError, match=r"y − m\(x\) of task \d+ is not finite"):
        meta_train(prior, ragged(), held_out=None, **QUIET)


def test_only_learned_parts_change():
    prior = make_prior("deep", "rbf", d=1, hidden=(4,), learn=["mean"], seed=0)
    before = {name: value.clone() for name, value in prior.state_dict().items()}
    meta_train(prior, sines(20), max_epochs=5, **QUIET)
    changed = {name for name, value in prior.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("mean.") for name in changed)


def test_nothing_to_learn():
    prior = make_prior("zero", "rbf", d=1, learn=(), seed=0)
    training = meta_train(prior, sines(20), **QUIET)
    assert training.stopped == "the prior has no parameters to learn"
    assert training.epochs == 0


@pytest.mark.parametrize("p", [1, 2])
def test_objective_is_the_sum_of_the_tasks_losses(p):
    prior, tasks = PRIORS["learned both"](1, p), mixed(p=p)
    laid_out = batches(tasks)
    by_task = evidence_loss(prior, "task")(laid_out, tasks.ids).item()
    assert by_task == pytest.approx(-evidence(prior, tasks).total.sum().item())
    per_point = -(evidence(prior, tasks).total / tasks.sizes).sum().item()
    assert evidence_loss(prior, "point")(laid_out, tasks.ids).item() == pytest.approx(per_point)
    assert HeldOut(prior, tasks).evidence() == pytest.approx(-by_task / tasks.y.numel())
    assert HeldOut(prior, tasks, "point").evidence() == pytest.approx(-per_point / p / len(tasks))
    with pytest.raises(UnknownNameError, match="Did you mean 'point'"):
        evidence_loss(prior, "points")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": "adm"}, UnknownNameError, "Did you mean 'adam'"),
        ({"learning_rate": 0.0}, OptionError, "must be above 0"),
        ({"check_every": 0}, OptionError, "must be above 0"),
        ({"max_epochs": 0}, OptionError, "must be above 0"),
        ({"patience": 0}, OptionError, "must be above 0"),
        ({"optimizer": "lbfgs", "batch_size": 4}, OptionError, "batch_size"),
        ({"optimizer": "adam", "batch_size": 0}, OptionError, "batch_size"),
        ({"held_out": 2.0}, OptionError, "between 0 and 1"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        meta_train(make_prior("zero", "rbf", d=1, seed=0), sines(5), **options, **QUIET)
    priors, how = [make_prior("zero", "rbf", d=1, seed=0) for _ in range(2)], [TrainingSpec(), TrainingSpec(**options)]
    with pytest.raises(error, match=message):
        meta_train_many(priors, [sines(5)] * 2, how, [0, 0])


def test_one_look_after_one_epoch_is_a_training():
    options = {"check_every": 1, "max_epochs": 1, "patience": 1, "held_out": None}
    for more in ({}, {"optimizer": "adam", "batch_size": 1}):
        training = meta_train(PRIORS["vanilla"](1, 1), ragged(), **options, **more, **QUIET)
        assert [check.epoch for check in training.checks] == [0, 1]


def test_tasks_that_cannot_be_learned_from():
    prior = make_prior("zero", "rbf", d=1, seed=0)
    with pytest.raises(DataError, match="held_out=None"):
        meta_train(prior, sines(1), **QUIET)
    with pytest.raises(DataError, match="at least one point"):
        meta_train(prior, Tasks.empty(["a", "b"], 1, 1), **QUIET)
    with pytest.raises(DataError, match="held-out task needs at least one point"):
        meta_train(prior, sines(3), held_out=Tasks.empty(["a"], 1, 1), **QUIET)
    with pytest.raises(DataError, match="target"):
        meta_train(make_prior("deep", "rbf", d=1, hidden=(3,), seed=0), sines(3), held_out=ragged(p=2), **QUIET)


@pytest.mark.parametrize(("width", "anchored"), [(1.0, False), (0.3, True)])
@torch.no_grad()
def test_each_task_bears_its_share_of_the_law_of_the_parameters(width, anchored):
    """As much as the Gaussians of it all say, up to a constant: that is, from one place to another."""
    prior, tasks = PRIORS["learned mean"](1, 1), ragged(count=10)
    law, plain = HyperPrior(prior, width=width, anchored=anchored), evidence_loss(prior, "task")
    loss, said = with_hyper_prior(plain, law, 10), []
    for move in (0.0, 0.3):
        for parameter in prior.learned_parameters():
            parameter += move * torch.linspace(-1, 2, parameter.numel()).view_as(parameter)
        gaussians = zip(law.standardised(), law.centres, strict=True)
        density = sum(
            torch.distributions.Normal(centre, width * torch.as_tensor(one.spread)).log_prob(one.value).sum()
            for one, centre in gaussians
        )
        for some in (tasks, tasks.select(range(3))):
            own = (batches(some), some.ids)
            said.append((float(plain(*own) - loss(*own)), len(some) / 10 * float(density)))
    (all_here, part_here), (all_there, part_there) = said[:2], said[2:]
    for here, there in ((all_here, all_there), (part_here, part_there)):
        assert there[0] - here[0] == pytest.approx(there[1] - here[1])


def test_a_rise_below_the_tolerance_is_none():
    """The evidence creeps up for as long as it may; with a tolerance that it never reaches, patience ends it."""
    tasks = ragged(count=20)
    options = {"seed": 0, "optimizer": "adam", "learning_rate": 1e-4, "max_epochs": 40, "check_every": 1, "patience": 3}
    creeping = meta_train(PRIORS["vanilla"](1, 1), tasks, tolerance=0.0, held_out=None, progress=False, **options)
    rises = np.diff([check.held_out_evidence for check in creeping.checks])
    assert (rises > 0).all()
    impatient = meta_train(PRIORS["vanilla"](1, 1), tasks, tolerance=1.0, held_out=None, progress=False, **options)
    assert creeping.epochs == 40
    assert impatient.epochs == 3
    assert "converged: no rise above 1.0 in 3 checks" in impatient.stopped


@pytest.mark.parametrize("optimizer", ["algorithm1", "adam"])
def test_a_checkpoint_holds_the_order_in_which_tasks_come(optimizer):
    """The same passes over the tasks in one go, and in two with everything kept and restored between."""
    tasks = ragged(count=7)
    options = {"rate": 1e-2, "batch_size": None if optimizer == "algorithm1" else 2, "seed": 3}
    whole, first, second = (PRIORS["vanilla"](1, 1) for _ in range(3))
    loss = [evidence_loss(prior, "task") for prior in (whole, first, second)]
    make_updates(optimizer, whole, tasks, loss[0], **options).run(4)
    half = make_updates(optimizer, first, tasks, loss[1], **options)
    half.run(2)
    second.load_state_dict(first.state_dict())
    rest = make_updates(optimizer, second, tasks, loss[2], **options)
    rest.restored(half.kept())
    rest.run(2)
    for one, two in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_training_is_silent_where_it_is_asked_to_be(monkeypatch):
    shown = []
    whole = meta_train_module.progress_bar
    monkeypatch.setattr(
        meta_train_module,
        "progress_bar",
        lambda *a, show, **k: (shown.append((a[0], show)), whole(*a, show=False, **k))[1],
    )
    for progress in (False, True, "curves"):
        meta_train(PRIORS["vanilla"](1, 1), sines(6), max_epochs=1, held_out=None, seed=0, progress=progress)
    assert [show for _, show in shown] == [False, True, True]
    assert [label for label, _ in shown][1:] == ["meta-learning", "curves"]


def test_a_bar_is_full_at_the_end_also_where_learning_went_on(tmp_path, monkeypatch):
    told = []

    def bar(label, total, *, show):
        told.append([total, 0])
        return nullcontext(lambda note="", amount=1: told[-1].__setitem__(1, told[-1][1] + amount))

    monkeypatch.setattr(meta_train_module, "progress_bar", bar)
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    for _ in range(2):
        options = {"max_epochs": 7, "check_every": 3, "checkpoint": tmp_path / "kept", "keep": True}
        meta_train(PRIORS["vanilla"](1, 1), ragged(), **options, **QUIET)
    assert told == [[3, 3], [3, 3]]


def test_what_an_altered_checkpoint_leads_to_is_told_in_one_line(tmp_path):
    """What the user's data or another training leads to stays what it is."""
    kept = checkpoints.Checkpoint(tmp_path / "kept", "what decides")
    kept.write({"epoch": 3})
    for of in (None, kept):
        with pytest.raises(ValueError, match=r"^no\n  number$"), checkpoints.going_on(of):
            raise ValueError("no\n  number")
    kept.read()
    with (
        pytest.raises(DataError, match=r"kept, which was altered \(ValueError: no number\)"),
        checkpoints.going_on(kept),
    ):
        raise ValueError("no\n  number")
    with pytest.raises(NumericalError, match=r"^of the data$"), checkpoints.going_on(kept):
        raise NumericalError("of the data")


def test_priors_learn_together_where_one_way_of_learning_is_meant():
    """Whatever else a spec says: of defaults, of which tasks are held out, of how wide a law is."""
    how = [
        TrainingSpec(),
        TrainingSpec(max_epochs=TrainingSpec().most, check_every=20),
        TrainingSpec(held_out=None),
        TrainingSpec(held_out=sines(3)),
        TrainingSpec(hyper_prior=1.0),
        TrainingSpec(patience=6),
        TrainingSpec(hyper_prior=2.0),
        TrainingSpec(held_out=None, hyper_prior=2.0),
        TrainingSpec(),
    ]
    priors = [make_prior("zero", "rbf", d=1, seed=0, learn=["kernel"] if k == 8 else ["noise"]) for k in range(9)]
    assert meta_train_module._alike(priors, how) == [[0, 1, 3], [2], [4, 6], [5], [7], [8]]


@pytest.mark.parametrize(
    "other", [{"learning_rate": 0.3}, {"objective": "predictive"}, {"optimizer": "adam", "learning_rate": 0.1}]
)
def test_what_is_learned_in_another_way_than_usual_is_learned_one_by_one(other):
    how, tasks = TrainingSpec(max_epochs=4, check_every=2, **other), [sines(6), sines(7)]
    priors = [[make_prior("constant", "rbf", d=1, seed=0) for _ in tasks] for _ in range(2)]
    together = meta_train_many(priors[0], tasks, [how, how], [0, 1])
    alone = [meta_train(*one, how, seed=k, progress=False) for k, one in enumerate(zip(priors[1], tasks, strict=True))]
    for first, second in zip(together, alone, strict=True):
        looks = [
            [(one.epoch, one.loss_per_task, one.held_out_evidence) for one in own.checks[1:]] for own in (first, second)
        ]
        assert looks[0] == looks[1]
        assert first.checks[0].seconds == second.checks[0].seconds == 0
    assert torch.equal(*(torch.cat([own.flatten() for one in some for own in one.parameters()]) for some in priors))


class OfOneNumber(Stochastic):
    """Steps on the logarithm of a parameter."""

    def losses(self):
        yield lambda: self.parameters()[0].log().sum(), 1


@pytest.mark.parametrize(("before", "rate", "after"), [(1.0, 0.25, 0.75), (-2.0, 0.5, -1.0)])
def test_a_step_that_was_too_long_is_taken_back_and_halved(before, rate, after):
    """Unless what was before is no number either: then the tasks are at fault, and not the step."""
    parameter = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    updates = OfOneNumber(torch.optim.SGD([parameter], lr=0.5), torch.Generator())
    updates.last_good = [torch.tensor([before], dtype=torch.float64)]
    loss = updates.run(1)
    assert (parameter.item(), updates.optimizer.param_groups[0]["lr"], updates.skipped) == (after, rate, 1)
    assert loss == 0.0 if before > 0 else math.isnan(loss)


def test_a_wall_is_higher_than_what_is_known_also_below_zero():
    parameter = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    values = iter([-5.0, math.nan, -7.0, -6.0])
    updates = LBFGS([parameter], lambda: parameter.sum() + next(values))
    assert updates._closure() == -5.0
    assert updates._closure() == 6e6
    assert parameter.grad.tolist() == [0.0]
    assert (updates._closure(), updates.known, updates.skipped) == (-7.0, -7.0, 1)
    assert (updates._closure(), updates.known) == (-6.0, -7.0)
    nothing = LBFGS([parameter], lambda: parameter.sum() * math.nan)
    assert nothing._closure() == 1e12


def test_as_many_iterations_as_epochs():
    """Of torch's own L-BFGS, on a bent valley that takes longer."""
    ours, theirs = (torch.tensor([-1.2, 1.0, 0.5, -0.7]).double().requires_grad_() for _ in range(2))

    def valley(x):
        return (30 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def closure():
        plain.zero_grad()
        loss = valley(theirs)
        loss.backward()
        return loss

    options = {"history_size": 20, "tolerance_grad": 0.0, "tolerance_change": 0.0, "line_search_fn": "strong_wolfe"}
    plain = torch.optim.LBFGS([theirs], max_iter=12, max_eval=999, **options)
    plain.step(closure)
    updates = LBFGS([ours], lambda: valley(ours))
    assert updates.run(12) == pytest.approx(valley(theirs).item())
    torch.testing.assert_close(ours, theirs)


def test_a_fingerprint_is_of_everything_that_tasks_hold():
    tasks = sines(4, n=3).with_clusters([0, 0, 1, 2])
    other = {
        "x": tasks.x + 1e-9,
        "y": tasks.y + 1e-9,
        "offsets": torch.tensor([0, 2, 6, 9, 12]),
        "covariates": torch.zeros(4, 1).double(),
        "clusters": tasks.clusters.flip(0),
    }
    found = [[tasks], [sines(4, n=3)], [tasks, tasks], *([replace(tasks, **{name: x})] for name, x in other.items())]
    prints = [checkpoints.fingerprint_of(parts, *others) for parts in found for others in ((), (1,), (1, "a"))]
    assert len(set(prints)) == len(prints)
    assert checkpoints.fingerprint_of([sines(4, n=3).with_clusters([0, 0, 1, 2])], 1) == prints[1]


def test_a_checkpoint_is_due_some_time_after_the_last(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    kept = checkpoints.Checkpoint(tmp_path / "kept", "what decides")
    assert not kept.due()
    now[0] += checkpoints.EVERY
    assert kept.due()
    kept.write({"epoch": 3, "loss": 0.1, "state": [torch.ones(2), {"x": (1, 2.5)}], "nothing": None})
    assert not kept.due()
    now[0] += 0.9 * checkpoints.EVERY
    assert not kept.due()
    found = kept.read()
    assert (found["epoch"], found["loss"], found["nothing"]) == (3, 0.1, None)
    assert found["state"][0].tolist() == [1.0, 1.0]
    with pytest.raises(DataError, match="belongs to another training"):
        checkpoints.Checkpoint(tmp_path / "kept", "something else").read()
    assert checkpoints.Checkpoint(tmp_path / "none", "what decides").read() is None


def test_a_checkpoint_goes_when_learning_has_ended_unless_it_is_to_be_kept(tmp_path, monkeypatch):
    """One that was kept has the end in it: what goes on from there is there at once."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)

    def learned(**options):
        prior = PRIORS["vanilla"](1, 1)
        training = meta_train(
            prior, ragged(), max_epochs=4, check_every=2, checkpoint=tmp_path / "kept", **options, **QUIET
        )
        return [check.held_out_evidence for check in training.checks], [p.tolist() for p in prior.parameters()]

    first = learned()
    assert not (tmp_path / "kept").exists()
    assert learned(keep=True) == first
    assert (tmp_path / "kept").exists()
    monkeypatch.setattr(LBFGS, "run", None)
    assert learned() == first
    assert not (tmp_path / "kept").exists()


def test_slopes_along_what_does_not_matter_are_nothing():
    one, unused = (torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value, slopes = with_slopes(lambda: one.square().sum(), [one, unused])
    assert float(value) == 18.0
    assert not value.requires_grad
    assert [slope.tolist() for slope in slopes] == [[6.0, 6.0], [0.0, 0.0]]


def test_a_recording_is_made_once_libraries_are_ready_and_played_from_then_on(monkeypatch):
    """The order of things, on a GPU that only notes what it is asked for."""
    said, trusted = [], []

    class Stream:
        def wait_stream(self, other):
            said.append("wait")

    class Graph:
        def __getattr__(self, name):
            return lambda: said.append(name)

    def compute():
        said.append("compute")
        trusted.append(_trusted.get())
        return "found"

    one = Stream()
    cuda = SimpleNamespace(
        Stream=Stream,
        current_stream=lambda: one,
        stream=lambda aside: nullcontext(),
        synchronize=lambda: said.append("synchronize"),
        CUDAGraph=Graph,
    )
    monkeypatch.setattr(recording, "torch", SimpleNamespace(cuda=cuda))
    found = recording.Recording(compute)
    warm = ["compute"] * recording.WARM
    assert said == ["wait", *warm, "synchronize", "capture_begin", "compute", "capture_end", "wait"]
    assert all(trusted)
    assert not _trusted.get()
    assert [found(), found()] == ["found", "found"]
    assert said[-2:] == ["replay", "replay"]
    assert len(trusted) == recording.WARM + 1
