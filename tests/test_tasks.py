import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from metaprior import DataError, MetaGP, OptionError, Tasks
from metaprior import tasks as tasks_room
from tests.problems import mixed, ragged


def test_container_holds_what_came_in():
    pairs = [(np.array([1.0, 2.0]), np.array([3.0, 4.0])), (torch.tensor([[5.0]]), [[6.0]])]
    tasks = Tasks.from_pairs(pairs, ids=["a", "b"])
    assert len(tasks) == 2
    assert (tasks.d, tasks.p) == (1, 1)
    assert tasks.offsets.tolist() == [0, 2, 3]
    assert tasks.x.dtype == torch.float64
    assert [task.id for task in tasks] == ["a", "b"]
    assert tasks[-1].y.tolist() == [[6.0]]
    assert repr(tasks) == "Tasks(2 tasks × 1–2 points, d=1, p=1)"


def test_container_is_a_copy():
    x = np.zeros(3)
    tensor = torch.zeros(3, dtype=torch.float64)
    tasks = Tasks.from_pairs([(x, tensor)])
    x[0] = tensor[0] = 7.0
    assert tasks.x.abs().sum() == 0
    assert tasks.y.abs().sum() == 0


def test_fields_cannot_be_replaced():
    with pytest.raises(AttributeError):
        ragged().x = None  # type: ignore[misc]


def test_select_by_position_and_by_mask():
    tasks = mixed()
    some = tasks.select([4, 0, -1])
    assert some.ids == (tasks.ids[4], tasks.ids[0], tasks.ids[-1])
    assert torch.equal(some[1].y, tasks[0].y)
    big = tasks.select(tasks.sizes > 4)
    assert set(big.sizes.tolist()) == {n for n in tasks.sizes.tolist() if n > 4}
    with pytest.raises(DataError, match="positions must lie in"):
        tasks.select([len(tasks)])
    with pytest.raises(DataError, match="booleans for"):
        tasks.select(torch.tensor([True]))
    with pytest.raises(DataError, match="not fractions"):
        tasks.select([0.6])


def test_split_is_a_partition_and_repeatable():
    tasks = mixed()
    first, second = tasks.split(0.3, seed=5)
    assert len(first) == round(0.3 * len(tasks))
    assert sorted(first.ids + second.ids) == sorted(tasks.ids)
    assert tasks.split(0.3, seed=5)[0].ids == first.ids
    assert tasks.split(0.3, seed=6)[0].ids != first.ids


def test_split_needs_two_tasks_and_a_fraction():
    with pytest.raises(DataError, match="cannot be split"):
        ragged(count=1).split(0.5, seed=0)
    with pytest.raises(OptionError, match="between 0 and 1"):
        ragged().split(1.0, seed=0)


def test_random_context_has_n_points_of_each_task_and_the_target_has_the_rest():
    tasks = mixed().select(mixed().sizes >= 3)
    context, target = tasks.context_target(3, seed=1)
    assert context.sizes.tolist() == [3] * len(tasks)
    for whole, given, rest in zip(tasks, context, target, strict=True):
        assert sorted(torch.cat([given.y, rest.y]).ravel().tolist()) == sorted(whole.y.ravel().tolist())
    assert torch.equal(tasks.context_target(3, seed=1).context.x, context.x)
    assert not torch.equal(tasks.context_target(3, seed=2).context.x, context.x)


def test_random_contexts_are_uniform():
    tasks = Tasks.from_pairs([(np.arange(4.0), np.zeros(4))] * 4000)
    chosen = tasks.context_target(1, seed=0).context.x[:, 0]
    assert torch.bincount(chosen.long()).float() == pytest.approx([1000] * 4, rel=0.1)


def test_context_by_predicate():
    tasks = Tasks.from_pairs([([1.0, 30.0], [0.0, 1.0]), ([50.0], [2.0])])
    context, target = tasks.context_target(where=lambda x: x[:, 0] < 24)
    assert context.sizes.tolist() == [1, 0]
    assert target.y.ravel().tolist() == [1.0, 2.0]
    with pytest.raises(OptionError, match="one boolean per row"):
        tasks.context_target(where=lambda x: x < 24)


def test_context_options_are_checked():
    with pytest.raises(OptionError, match="either n"):
        ragged().context_target()
    with pytest.raises(OptionError, match="need a seed"):
        ragged().context_target(1)
    with pytest.raises(OptionError, match="0 or more"):
        ragged().context_target(-1, seed=0)
    with pytest.raises(OptionError, match="whole number of points"):
        ragged().context_target(2.5, seed=0)  # type: ignore[arg-type]


def test_context_larger_than_a_task_names_the_task():
    tasks = Tasks.from_pairs([(np.zeros(5), np.zeros(5)), (np.zeros(2), np.zeros(2))], ids=["long", "short"])
    with pytest.raises(DataError, match=r"larger than 1 of the 2 tasks \(the first is 'short' with 2\)"):
        tasks.context_target(3, seed=0)


def test_joined_puts_context_and_target_together_again():
    tasks = ragged(d=2, largest=6)
    context, target = tasks.context_target(1, seed=0)
    whole = context.joined(target)
    assert whole.sizes.tolist() == tasks.sizes.tolist()
    for a, b in zip(whole, tasks, strict=True):
        assert sorted(a.y.ravel().tolist()) == sorted(b.y.ravel().tolist())
    with pytest.raises(DataError, match="same tasks"):
        context.joined(target.select([0]))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no tasks"),
        ([([1.0, 2.0], [1.0])], r"task 0: x has 2 rows and y has 1"),
        ([([], [])], "task 0 has no rows"),
        (
            [(np.zeros((2, 1)), np.zeros(2)), (np.zeros((2, 3)), np.zeros(2))],
            "task 1: x has 3 columns, but task 0 has 1",
        ),
        ([(np.zeros(2), np.zeros((2, 2))), (np.zeros(2), np.zeros(2))], "task 1: y has 1 columns"),
        ([(["a"], [1.0])], "x of task 0 is not an array of numbers"),
        ([(["1"], [1.0])], "x of task 0 is not an array of numbers"),
        ([(np.array(["2020-01-01"], dtype="datetime64[D]"), [1.0])], "it holds datetime64"),
        ([([1.0], [1j])], "it holds complex"),
        ([(np.zeros((1, 1, 1)), [1.0])], "has 3 dimensions"),
    ],
)
def test_bad_pairs(pairs, message):
    with pytest.raises(DataError, match=message):
        Tasks.from_pairs(pairs)


def test_ids_must_match():
    with pytest.raises(DataError, match="1 tasks but 2 ids"):
        Tasks.from_pairs([([1.0], [1.0])], ids=["a", "b"])


@pytest.mark.parametrize(
    "make",
    [
        lambda ids: Tasks.from_pairs([([1.0], [1.0])] * len(ids), ids),
        lambda ids: Tasks.on_grid([0.0, 1.0], np.zeros((len(ids), 2)), ids),
        lambda ids: Tasks.from_inputs([[1.0]] * len(ids), ids),
    ],
    ids=["pairs", "grid", "inputs"],
)
def test_two_tasks_have_two_ids(make):
    with pytest.raises(DataError, match=r"same id: 'a' \(3 times\), 'b' \(2 times\)\. Give each task an id of its own"):
        make(["a", "b", "a", "c", "a", "b"])
    with pytest.raises(DataError, match="same id: 1950"):
        make([1950, 1950.0])
    with pytest.raises(DataError, match="cannot name tasks"):
        make([["a"], ["b"]])
    assert make([("a", 1), ("a", 2), "a"]).ids == (("a", 1), ("a", 2), "a")


def test_a_task_may_be_chosen_twice():
    twice = ragged(count=3).select([2, 0, 2])
    assert twice.ids == (2, 0, 2)
    assert torch.equal(twice[0].y, twice[2].y)
    assert Tasks.empty(twice.ids, 1, 1).ids == twice.ids
    assert twice.joined(Tasks.empty(twice.ids, 1, 1)).ids == twice.ids


def test_one_array_of_points_for_every_task():
    tasks = Tasks.from_pairs([([0.0, 1.0], [1.0, 2.0]), ([5.0], [3.0])], ["a", "b"])
    known = tasks.with_task_x({"age": [50, 60]}).select([1, 0, 1])
    found = known.at_points([7, 8, 9])
    assert found.ids == ("b", "a", "b")
    assert found.sizes.tolist() == [3, 3, 3]
    assert found.x.flatten().tolist() == [7.0, 8.0, 9.0] * 3
    assert found.x.dtype == torch.float64
    assert (found.p, found.covariates, found.columns) == (0, None, known.columns)
    same = Tasks.from_inputs([[7.0, 8.0]] * 2, ["a", "b"])
    assert torch.equal(tasks.at_points(torch.tensor([[7.0], [8.0]])).x, same.x)
    for wrong, message in (
        ([1.0, np.nan, np.inf], r"NaN or infinity in 2 points \(the first is row 1"),
        ([], "no points to predict at"),
        (["a"], "not an array of numbers"),
        (np.zeros((1, 1, 1)), "3 dimensions"),
    ):
        with pytest.raises(DataError, match=message):
            tasks.at_points(wrong)


def test_the_files_of_the_room_do_not_import_each_other_in_a_circle():
    """Each file alone, by what it imports at its top: nothing comes back to where it began."""
    folder = Path(tasks_room.__file__).parent
    found = {path.stem: _imported(path) for path in folder.glob("*.py") if path.stem != "__init__"}
    while found:
        leaves = {name for name, others in found.items() if not others & set(found)}
        assert leaves, f"a circle among {sorted(found)}"
        found = {name: others for name, others in found.items() if name not in leaves}


def _imported(path):
    """Files of the same room that a file imports, wherever in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    modules = [node.module for node in nodes if node.module and node.module.startswith("metaprior.tasks")]
    assert "metaprior.tasks" not in modules  # the room's own door
    return {module.removeprefix("metaprior.tasks.") for module in modules}


def test_nan_and_infinity_are_counted_and_placed():
    pairs = [([0.0, np.nan], [1.0, 2.0]), ([1.0, 2.0], [np.inf, np.nan])]
    with pytest.raises(DataError, match=r"column 'x': 1 \(row 1 of task 0\); column 'y': 2 .*missing='drop'"):
        Tasks.from_pairs(pairs)


def test_missing_rows_can_be_dropped_and_it_is_said():
    pairs = [([0.0, np.nan], [1.0, 2.0]), ([1.0, 2.0], [np.inf, np.nan])]
    tasks = Tasks.from_pairs(pairs, missing="drop")
    assert tasks.ids == (0,)
    assert tasks.y.tolist() == [[1.0]]
    assert "dropped 3 of 4 rows" in tasks.notes[0]
    assert "dropped 1 of 2 tasks" in tasks.notes[1]


def test_masked_values_are_missing():
    y = np.ma.array([1.0, 2.0], mask=[False, True])
    assert Tasks.from_pairs([([0.0, 1.0], y)], missing="drop").y.tolist() == [[1.0]]


def test_empty_tasks():
    tasks = Tasks.empty(["a", "b"], 2, 3)
    assert (len(tasks), tasks.d, tasks.p) == (2, 2, 3)
    assert tasks.sizes.tolist() == [0, 0]
    assert tasks.x.dtype == tasks.y.dtype == torch.float64
    with pytest.raises(DataError, match="at least one id"):
        Tasks.empty([], 1, 1)


def test_dropping_everything_is_an_error():
    with pytest.raises(DataError, match="no task has a usable row"):
        Tasks.from_pairs([([np.nan], [1.0])], missing="drop")
    with pytest.raises(OptionError, match="missing='ignore'"):
        Tasks.from_pairs([([1.0], [1.0])], missing="ignore")  # type: ignore[arg-type]


def test_many_tasks_on_one_grid():
    tasks = Tasks.on_grid([0.0, 1.0, 2.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], ids=["a", "b"])
    assert [task.id for task in tasks] == ["a", "b"]
    assert tasks[1].x[:, 0].tolist() == [0.0, 1.0, 2.0]
    assert tasks[1].y[:, 0].tolist() == [4.0, 5.0, 6.0]
    assert Tasks.on_grid(np.zeros((2, 3)), np.zeros((4, 2, 5))).p == 5


@pytest.mark.parametrize(
    ("y", "ids", "message"),
    [
        ([[1.0, 2.0]], None, "on a grid of 3 points"),
        (np.zeros((0, 3)), None, "on a grid of 3 points"),
        ([1.0, 2.0, 3.0], None, "on a grid of 3 points"),
        ([[1.0, 2.0, 3.0]], ["a", "b"], "1 tasks but 2 ids"),
        ([[1.0, np.nan, 3.0]], ["a"], "'a'"),
    ],
)
def test_what_does_not_fit_a_grid(y, ids, message):
    with pytest.raises(DataError, match=message):
        Tasks.on_grid([0.0, 1.0, 2.0], y, ids)


@pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor, lambda y: torch.as_tensor(y)[..., None]])
def test_tasks_on_a_grid_are_their_own(as_given):
    x, y = np.array([0.0, 1.0]), as_given(np.array([[1.0, 2.0], [3.0, 4.0]]))
    tasks = Tasks.on_grid(x, y)
    x[:], y[:] = 9.0, 9.0
    assert tasks.y[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert tasks.x[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0]


def test_arrays_that_may_not_be_written_to_are_taken_without_a_warning():
    """As pandas hands them out; warnings are errors here."""
    x, y = np.linspace(0, 1, 4), np.arange(8.0).reshape(2, 4)
    x.setflags(write=False)
    y.setflags(write=False)
    tasks = Tasks.on_grid(x, y)
    assert tasks.y.ravel().tolist() == list(range(8))
    posterior = MetaGP("zero", "rbf", max_epochs=1, progress=False).fit(tasks).predict(tasks, x)
    assert torch.isfinite(posterior.log_density(y.ravel())).all()
    assert not y.flags.writeable
