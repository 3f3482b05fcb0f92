"""Trying rungs: together where they are small, no longer than it matters, and never on what they have learned from."""

import dataclasses
import math
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from metaprior import MetaGP, Tasks
from metaprior.cli.app import app
from metaprior.errors import DataError, OptionError
from metaprior.inference import KeptMethod
from metaprior.methods import METHODS, Entry, GPPerTask
from metaprior.selection import Auto
from metaprior.selection import trials as trials_module
from metaprior.selection.trials import LEAST, RANKED, Plan, Trials
from metaprior.selection.trying import Question, Seen, Values, joined
from metaprior.splits import Fold, default_contexts, random_sizes
from metaprior.tasks import resolution


def curves(count: int, n: int = 6, seed: int = 0) -> Tasks:
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 1, n))
        pairs.append((x, np.sin(6 * x) + rng.normal() + 0.1 * rng.normal(size=n)))
    return Tasks.from_pairs(pairs)


class Wide(GPPerTask):
    """A rung that knows nothing and says so: its values are spread over a thousand times what they are."""

    learned_from: ClassVar[list[int]] = []

    def fit(self, tasks):
        type(self).learned_from.append(len(tasks))
        super().fit(tasks)
        self.scaler_ = dataclasses.replace(self.scaler_, y_scale=1000 * self.scaler_.y_scale)
        return self


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setattr(Wide, "learned_from", [])
    monkeypatch.setitem(METHODS, "wide", Entry(lambda *asked: Wide(), rung=True))
    return Wide


def test_few_tasks_are_one_wave_and_many_are_ranked_on_some():
    few, some, many = (Plan.of(curves(count, 3), 0, thorough=False) for count in (12, 150, 1_500))
    assert (len(few.waves), len(few.waves[0]), few.whole) == (1, 5, True)
    assert (len(some.waves), len(some.waves[0]), some.whole) == (4, 1, False)
    assert (len(many.waves), many.whole, many.growing) == (2, False, True)
    (ranked,), (last,) = many.waves
    assert len(ranked.train) + len(ranked.judge) == RANKED
    learned = set(last.train.tolist())
    assert {*ranked.train.tolist(), *ranked.judge.tolist()} <= learned
    assert sorted([*learned, *last.judge.tolist()]) == list(range(1_500))
    for plan in (few, some):
        judged = torch.cat([fold.judge for wave in plan.waves for fold in wave])
        assert sorted(judged.tolist()) == list(range(len(plan.tasks)))
    thorough = Plan.of(curves(1_500, 3), 0, thorough=True)
    assert (len(thorough.tasks), thorough.racing) == (1_500, False)
    _, (last,) = Plan.of(curves(4_500, 1), 0, thorough=False).waves
    assert (len(last.judge), len(last.train)) == (800, 3_700)  # a fifth at most, and no more than that


def test_a_hopeless_rung_is_given_up_after_the_first_wave(wide):
    tasks = curves(120)
    auto = Auto(rungs=("gp per task", "shared gp", "wide"), progress=False).fit(tasks)
    found = {one.name: one for one in auto.tried_}
    assert found["wide"].density.tasks == 30
    assert found["shared gp"].density.tasks > 30
    assert "wide" not in auto.chosen_
    assert wide.learned_from == [90]
    thorough = Auto(rungs=("gp per task", "shared gp", "wide"), thorough=True, progress=False).fit(tasks)
    assert {one.density.tasks for one in thorough.tried_} == {120}
    assert wide.learned_from == [90, 90, 90, 90, 90]


def test_no_rung_is_given_up_on_the_word_of_a_few_tasks(wide, monkeypatch):
    monkeypatch.setattr(trials_module, "SMALL", 0)  # fold by fold, though there are few tasks
    auto = Auto(rungs=("gp per task", "wide"), progress=False).fit(curves(4 * LEAST))
    found = {one.name: one.density.tasks for one in auto.tried_}
    assert found["gp per task"] == 4 * LEAST
    assert LEAST <= found["wide"] < 4 * LEAST


def test_what_may_have_a_share_goes_on_with_all_other_tasks_and_is_used_as_it_was_judged(wide):
    tasks = curves(RANKED + 200, 3)
    auto = Auto(rungs=("gp per task", "shared gp", "wide"), progress=False).fit(tasks)
    found = {one.name: one.density.tasks for one in auto.tried_}
    ranked, weighed = (fold.judge for (fold,) in Plan.of(tasks, 0, thorough=False).waves)
    assert found["wide"] == len(ranked)
    assert max(wide.learned_from) < RANKED  # how long ranking takes does not depend on how many tasks there are
    assert len(auto.trained_on_.seen(tasks.ids)) == len(tasks)
    assert found["shared gp"] == len(weighed) == len(tasks) // 5
    learned = auto.method_.methods[-1] if len(auto.chosen_) > 1 else auto.method_
    names = [tasks.ids[k] for k in weighed.tolist()]
    assert not learned.trained_on_.seen(names)
    assert learned.trained_on_.tasks == len(tasks) - len(weighed)


def test_a_budget_of_nothing_leaves_the_quick_rungs():
    tasks = curves(12)
    auto = Auto(budget=0, progress=False).fit(tasks)
    quick = {name for name, one in METHODS.items() if one.quick and one.suits(tasks)}
    assert {one.name for one in auto.tried_} == quick
    assert "hyper-posterior" in auto.left_out_
    assert "time" in auto.left_out_["hyper-posterior"]
    for wrong in (-1, -math.inf, math.nan):
        with pytest.raises(OptionError, match="budget"):
            MetaGP(budget=wrong)


def test_a_budget_in_the_midst_of_waves_compares_what_all_were_tried_on(monkeypatch):
    tasks = curves(120)
    clock = iter(range(10_000))
    monkeypatch.setattr(trials_module.time, "perf_counter", lambda: float(next(clock)))
    auto = Auto(rungs=("gp per task", "shared gp"), budget=6, progress=False).fit(tasks)
    assert {one.density.tasks for one in auto.tried_} == {30}


def test_what_was_tried_before_an_interruption_is_chosen_from(tmp_path, monkeypatch):
    tasks, file = curves(12), tmp_path / "kept"

    class Interrupted(GPPerTask):
        def fit(self, tasks):
            raise KeyboardInterrupt

    rungs = ("gp per task", "shared gp", "late", "fpca")
    monkeypatch.setitem(METHODS, "late", Entry(lambda *asked: Interrupted(), rung=True))
    with pytest.raises(KeyboardInterrupt):
        Auto(rungs=rungs, progress=False).fit(tasks, checkpoint=file)
    tries = []
    monkeypatch.setattr(Trials, "_try", lambda self, name, wave: tries.append(name))
    auto = Auto(rungs=rungs, budget=0, progress=False).fit(tasks, checkpoint=file)
    assert tries == []
    assert {one.name for one in auto.tried_} == {"gp per task", "shared gp"}
    assert set(auto.left_out_) == {"late", "fpca"}
    assert all(one.seconds is not None for one in auto.tried_)
    assert not file.exists()


def test_all_settings_at_once_are_each_setting_asked_alone():
    """The slow way: every context size, and the first and random points, one after the other."""
    tasks = curves(9, 8)
    method, contexts = GPPerTask().fit(tasks), default_contexts(tasks, 0)
    splits = contexts(tasks)
    question = Question.of(tasks, torch.arange(len(tasks)), contexts, resolution(tasks), list(splits))
    seen, values = question.answer(method), question.values
    for k, (context, target) in enumerate(splits.values()):
        alone, here = method.predict(context, target), values.setting == k
        torch.testing.assert_close(seen.density[here], alone.log_density(target.y).flatten())
        torch.testing.assert_close(seen.pit[1][here], alone.cdf(target.y).flatten())
        torch.testing.assert_close(seen.mean[here], alone.mean.flatten())
        torch.testing.assert_close(values.y[here], target.y.flatten())
        evidence = method.condition(context).evidence.total
        torch.testing.assert_close(seen.evidence.view(len(splits), -1)[k], evidence)


def test_what_is_kept_has_learned_from_all_tasks():
    """Of few tasks, it was learned beside the folds; it is what it would be alone."""
    tasks = curves(12)
    auto = Auto(rungs=("shared gp",), progress=False).fit(tasks)
    alone = METHODS["shared gp"].make(tasks, 0, None)
    type(alone).fit_many([alone], [tasks])
    context, target = curves(3, seed=1).context_target(2, 0)
    ours, theirs = (method.predict(context, target).mean for method in (auto.method_, alone))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["fpca", "warped fpca"])
def test_what_was_not_tried_learns_from_all_tasks_when_it_is_asked_for(name):
    tasks = curves(12)
    trials = Trials(Plan.of(tasks, 0, thorough=False), default_contexts(tasks, 0), [name])
    found, alone = trials.fitted(name, tasks), METHODS[name].make(tasks, 0, None).fit(tasks)
    assert trials.fitted(name, tasks) is found
    context, target = curves(3, seed=1).context_target(2, 0)
    ours, theirs = (method.predict(context, target).mean for method in (found, alone))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_parts_of_waves_are_joined_in_their_order():
    tasks = curves(120)
    trials = Trials(Plan.of(tasks, 0, thorough=True), default_contexts(tasks, 0), ["gp per task"])
    trials.run(None, lambda note, amount: None)
    values, (seen,) = trials.known(4), trials.complete().values()
    assert len(values.y) == len(seen.density)
    assert values.task.unique().tolist() == list(range(120))
    assert isinstance(trials.fitted("gp per task", tasks), KeptMethod)
    assert joined(Seen, trials.seen["gp per task"][:1]).density.shape == joined(Values, trials.values[:1]).y.shape


def test_a_rung_that_fails_in_a_later_wave_is_left_out(monkeypatch):
    class Late(GPPerTask):
        count = 0

        def fit(self, tasks):
            Late.count += 1
            if Late.count > 1:
                raise DataError("no more.")
            return super().fit(tasks)

    monkeypatch.setitem(METHODS, "late", Entry(lambda *asked: Late(), rung=True))
    auto = Auto(rungs=("gp per task", "late"), progress=False).fit(curves(120))
    assert (list(auto.chosen_), auto.left_out_) == (["gp per task"], {"late": "no more."})
    Late.count = 0
    with pytest.raises(DataError, match=r"no prior can be learned.*no more"):
        Auto(rungs=("late",), progress=False).fit(curves(120))


def test_waves_end_where_it_is_decided_unless_it_is_to_be_thorough(monkeypatch):
    monkeypatch.setattr(Trials, "_decided", lambda self, wave: wave == 1)
    for thorough, waves in ((False, 2), (True, 4)):
        tasks = curves(120, 3)
        trials = Trials(Plan.of(tasks, 0, thorough=thorough), default_contexts(tasks, 0), ["gp per task"])
        trials.run(None, lambda note, amount: None)
        assert len(trials.seen["gp per task"]) == len(trials.values) == waves


def test_a_fold_of_which_no_task_can_be_asked_says_nothing():
    tasks = Tasks.from_pairs([(np.arange(float(n)), np.arange(float(n))) for n in (3, 3, 1, 1)])
    first, last, none = torch.tensor([0]), torch.tensor([1]), torch.tensor([2, 3])
    for judged, said in (((first, none), 2), ((none, none), None)):
        plan = Plan(tasks, (tuple(Fold(last, own) for own in judged),), whole=False, racing=False)
        trials = Trials(plan, random_sizes([1]), ["gp per task"])
        trials.run(None, lambda note, amount: None)
        assert [len(one.density) for one in trials.complete().values()] == ([said] if said else [])
        assert trials.left_out == ({} if said else {"gp per task": "no held-out task has points to predict."})


@pytest.mark.parametrize(("count", "thorough"), [(12, False), (150, False), (700, False), (150, True)])
def test_a_bar_never_goes_beyond_its_end(count, thorough):
    """What is gone through is no more than the bar has expected, and all of it where nothing is left out."""
    tasks = curves(count, 3)
    plan, gone = Plan.of(tasks, 0, thorough=thorough), []
    trials = Trials(plan, default_contexts(tasks, 0), ["gp per task"])
    trials.run(None, lambda note, amount: gone.append(amount))
    assert 0 < sum(gone) <= plan.rounds
    assert plan.rounds - sum(gone) == (not plan.whole) or plan.racing


def test_the_command_line_takes_a_budget_and_refuses_one_below_nothing(tmp_path):
    fit = ["fit", "elnino", "--out", str(tmp_path / "m")]
    found = CliRunner().invoke(app, [*fit, "--budget", "0"])
    assert found.exit_code == 0
    assert "seconds" in found.stdout  # of each prior, in the table
    assert "warped student (not tried" in found.stderr
    assert set(MetaGP.load(tmp_path / "m").method_.chosen_) <= {name for name, one in METHODS.items() if one.quick}
    for wrong in ("-1", "nan"):
        found = CliRunner().invoke(app, [*fit[:-1], str(tmp_path / "other"), "--budget", wrong])
        assert isinstance(found.exception, OptionError)
        assert not (tmp_path / "other").exists()


def test_what_goes_on_begins_with_what_it_was_and_sees_what_it_may(monkeypatch):
    """Waves that grow: the second begins with what the first has learned; curves alone never see covariates."""
    given = []

    class Going(GPPerTask):
        def fit(self, tasks):
            given.append((None, len(tasks), tasks.covariates is not None))
            return super().fit(tasks)

        def fit_from(self, earlier, tasks):
            given.append((earlier, len(tasks), tasks.covariates is not None))
            return super().fit(tasks)

    monkeypatch.setitem(METHODS, "going", Entry(lambda *asked: Going(), rung=True, takes_task_x=True))
    tasks = curves(30).with_task_x({"size": np.arange(30.0)})
    order = torch.arange(30)
    waves = ((Fold(order[:10], order[10:20]),), (Fold(order[:20], order[20:]),))
    for name, sees in (("going", True), ("going, curves alone", False)):
        given.clear()
        plan = Plan(tasks, waves, whole=False, racing=True, growing=True)
        trials = Trials(plan, default_contexts(tasks, 0), [name])
        trials.run(None, lambda note, amount: None)
        (first, *rest), (second, *others) = given
        assert (first, *rest) == (None, 10, sees)
        assert isinstance(second, Going)
        assert others == [20, sees]
        assert trials.fitted(name, tasks) is trials.learned[name]  # as it was judged
        assert len(given) == 2
        assert trials.seconds[name] > 0
        kept = trials._kept() | {"seen": {name: trials._kept()["seen"][name][:1]}}  # as after the first wave
        given.clear()
        again = Trials(plan, default_contexts(tasks, 0), [name])
        file = SimpleNamespace(read=lambda kept=kept: kept, write=lambda values: None)
        again.run(file, lambda note, amount: None)
        assert [(type(earlier), count) for earlier, count, _ in given] == [(type(None), 10), (Going, 20)]
        assert torch.equal(again.said(name, 2).density, trials.said(name, 2).density)
    waved = Plan(tasks, waves, whole=False, racing=False)
    trials = Trials(waved, default_contexts(tasks, 0), ["going"])
    trials.run(None, lambda note, amount: None)
    given.clear()
    assert isinstance(trials.fitted("going", tasks), Going)
    assert [(type(earlier), count) for earlier, count, _ in given] == [(Going, 30)]
