"""Who may see what: roles that cannot be mixed up, folds, contexts."""

import pickle

import numpy as np
import pytest
import torch

from metaprior import DataError, LearnedPrior, OptionError, Tasks
from metaprior.selection import held_out_scores
from metaprior.splits import (
    Doubling,
    Fold,
    Given,
    RandomSizes,
    Roles,
    Until,
    default_contexts,
    drawn_contexts,
    first_sizes,
    k_folds,
    one_fold,
    random_sizes,
    roles_of,
    some_of,
    spare,
    to_stop_by,
    within,
)
from tests.problems import ragged


@pytest.mark.parametrize(("count", "folds"), [(10, 5), (7, 3), (3, 5), (61, 5)])
def test_every_task_is_judged_once_by_what_has_not_seen_it(count, folds):
    tasks = ragged(count=count)
    found = k_folds(tasks, folds, seed=1)
    assert sorted(torch.cat([fold.judge for fold in found]).tolist()) == list(range(count))
    assert len(found) == min(folds, count)
    for fold in found:
        assert sorted([*fold.train.tolist(), *fold.judge.tolist()]) == list(range(count))
        assert fold.train.tolist() == sorted(fold.train.tolist())
    assert [fold.judge.tolist() for fold in k_folds(tasks, folds, seed=1)] == [fold.judge.tolist() for fold in found]
    assert [fold.judge.tolist() for fold in k_folds(ragged(count=61), 5, seed=2)] != [
        fold.judge.tolist() for fold in k_folds(ragged(count=61), 5, 1)
    ]


def test_a_hold_out_is_one_fold_and_may_lie_within_another():
    tasks = ragged(count=40)
    fold = one_fold(tasks, 0.25, seed=0)
    assert (len(fold.judge), len(fold.train)) == (10, 30)
    inner = within(fold, tasks, 0.25, seed=0)
    assert len(inner.judge) == 8  # a quarter of 30
    assert set(inner.train.tolist()) | set(inner.judge.tolist()) == set(fold.train.tolist())
    assert len(one_fold(ragged(count=2), 0.01, seed=0).judge) == 1
    assert len(one_fold(ragged(count=2), 0.99, seed=0).train) == 1


def test_no_task_has_two_roles():
    with pytest.raises(DataError, match="both to train on and to judge by"):
        Fold(torch.tensor([0, 1, 2]), torch.tensor([2, 3]))
    tasks = ragged(count=9)
    train, stop, judge = (tasks.select(which) for which in (range(5), [5, 6], [7, 8]))
    Roles(train, stop, judge)
    for wrong in ((train, stop, stop), (train, stop, train), (train, None, train)):
        with pytest.raises(DataError, match="is to judge by, and to train on or to stop by"):
            Roles(*wrong)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 19, 20, 61, 400])
def test_roles_are_as_many_as_can_be_spared(count):
    roles = roles_of(ragged(count=count), seed=3)
    parts = [part.ids if part is not None else () for part in (roles.train, roles.stop, roles.judge)]
    assert sorted(name for part in parts for name in part) == list(range(count))
    assert (roles.judge is None) == (count < 20)
    assert (roles.stop is None) == (count < 3)
    assert len(roles.train) >= count / 2
    if roles.judge is not None:
        assert len(roles.judge) == len(roles.stop) == max(4, round(count / 10))


def test_roles_come_from_the_tasks_that_are_free():
    roles = roles_of(ragged(count=50), seed=0, among=range(25, 50))
    assert min((*roles.stop.ids, *roles.judge.ids)) >= 25
    assert set(range(25)) <= set(roles.train.ids)


def test_a_score_on_tasks_that_decided_when_to_stop_is_refused():
    """Not by discipline: what would write it looks at everything that the model has seen."""
    tasks = ragged(count=20, largest=6)
    roles = roles_of(tasks, seed=0)
    gp = LearnedPrior("constant", "rbf", held_out=roles.stop, max_epochs=3, progress=False).fit(roles.train)
    contexts = random_sizes([1])
    for seen in (roles.train, roles.stop):
        with pytest.raises(DataError, match="was trained on, or decided when to stop"):
            held_out_scores(gp, seen, contexts)
    assert set(held_out_scores(gp, roles.judge, contexts)) == {"1"}


def test_tasks_to_stop_by():
    tasks, others = ragged(count=10), ragged(count=3, seed=1)
    train, stop = to_stop_by(tasks, 0.2, seed=0)
    assert (len(train), len(stop)) == (8, 2)
    assert not set(train.ids) & set(stop.ids)
    assert to_stop_by(tasks, others, seed=0) == (tasks, others)
    assert to_stop_by(tasks, None, seed=0) == (tasks, tasks)
    with pytest.raises(DataError, match="one task cannot be held out of one"):
        to_stop_by(ragged(count=1), 0.5, seed=0)
    assert [spare(count) for count in (2, 3, 10, 25, 100)] == [None, 0.34, 0.34, 0.2, 0.1]
    assert some_of(tasks, 10, seed=0) is tasks
    assert len(some_of(tasks, 4, seed=0)) == 4


def test_contexts_travel():
    """A trial is a function of what can be sent to another process."""
    tasks = ragged(count=12)
    for contexts in (
        random_sizes([1, 2], 3),
        first_sizes([1]),
        Until("x", 0.0),
        Doubling(1),
        default_contexts(tasks, 0),
    ):
        again = pickle.loads(pickle.dumps(contexts))
        assert again == contexts
        one, two = contexts(tasks), again(tasks)
        assert list(one) == list(two)
        assert all(torch.equal(one[name].context.x, two[name].context.x) for name in one)


def test_by_default_tasks_are_asked_from_random_and_from_first_points_whatever_their_inputs():
    for d in (1, 2):
        tasks = ragged(d=d, count=12, largest=9)
        found = default_contexts(tasks, seed=0)
        assert not found.at_random
        sizes = [name for name in found(tasks) if not name.startswith("first")]
        assert list(found(tasks)) == [*sizes, *(f"first {n}" for n in sizes)]
        for name in sizes:
            context, target = found(tasks)[f"first {name}"]
            for known, wanted in zip(context, target, strict=True):
                assert float(known.x[:, 0].max()) <= float(wanted.x[:, 0].min())
    single = Tasks.from_pairs([([float(k)], [1.0]) for k in range(4)])
    assert list(default_contexts(single, 0)(single)) == ["0"]


def test_where_nothing_can_be_split_nothing_is_said():
    tasks = ragged(count=5, largest=2)
    assert random_sizes([7]).where_possible(tasks) == {}
    assert Given(lambda given: {"all": given.context_target(0, 0)})(tasks)["all"].target is not None
    with pytest.raises(OptionError, match="context sizes"):
        first_sizes([-1])


def test_drawn_contexts_are_of_any_size_and_of_a_task_that_is_there_twice():
    tasks = ragged(count=6).select([0, 0, 1, 2])
    found = drawn_contexts(tasks, 50, seed=0)
    assert len(found) == 200
    sizes = found.sizes.reshape(50, 4)
    for column, size in zip(sizes.T, tasks.sizes.tolist(), strict=True):
        assert sorted(column.unique().tolist()) == list(range(1, max(size, 2)))


@pytest.mark.parametrize("wrong", [(), (-1,), ("3",), (2.5,), (None,)])
def test_sizes_of_contexts_are_whole_numbers(wrong):
    with pytest.raises(OptionError, match="give whole numbers of 0 or more"):
        RandomSizes(wrong)
    assert list(RandomSizes((np.int64(2),))(ragged())) == ["2"]
