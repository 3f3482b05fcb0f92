"""Tasks that share a fate: whole clusters are held out, wherever tasks are."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from metaprior import DataError, MetaGP, Tasks
from metaprior.scoring import summarise
from metaprior.selection import Auto
from metaprior.selection.compare import compare
from metaprior.selection.trials import Plan
from metaprior.splits import k_folds, one_fold, random_sizes, roles_of, to_stop_by, within
from tests.test_tool import run


def fields(clusters, per, seed, points=8):
    """Plots of fields: all of a field have its deviation from the common curve."""
    rng, pairs, labels = np.random.default_rng(seed), [], []
    for c in range(clusters):
        level, swing, phase = rng.normal(0, 1.0), rng.normal(0, 0.8), rng.uniform(0, 2 * math.pi)
        for _ in range(per):
            x = np.sort(rng.uniform(0, 1, points))
            own = rng.normal(0, 0.3) + 0.1 * rng.normal(size=points)
            pairs.append((x, np.sin(4 * x) + level + swing * np.sin(5 * x + phase) + own))
            labels.append(f"field {c}")
    return Tasks.from_pairs(pairs), labels


def long_table(tasks, labels):
    owner = tasks.task_of_row.tolist()
    columns = {"plot": owner, "field": [labels[i] for i in owner]}
    return pa.table(columns | {"x": tasks.x[:, 0].numpy(), "y": tasks.y[:, 0].numpy()})


def whole(tasks, *parts):
    """Whether no cluster is in two of the parts."""
    found = [set(tasks.units[part].tolist()) for part in parts]
    return sum(map(len, found)) == len(set.union(*found))


def test_clusters_stay_together_wherever_tasks_are_held_out():
    tasks, labels = fields(9, 5, 0)
    tasks = tasks.with_clusters(labels)
    folds = k_folds(tasks, 5, 0)
    assert sorted(torch.cat([fold.judge for fold in folds]).tolist()) == list(range(45))
    assert all(whole(tasks, fold.train, fold.judge) for fold in folds)
    fold = one_fold(tasks, 0.3, 0)
    inner = within(fold, tasks, 0.4, 0)
    assert whole(tasks, inner.train, inner.judge, fold.judge)
    train, stop = to_stop_by(tasks, 0.2, 0)
    assert not set(train.units.tolist()) & set(stop.units.tolist())
    roles = roles_of(tasks, 0)
    assert roles.judge is None  # nine clusters are too few to spare some, though 45 tasks would not be
    assert not set(roles.train.units.tolist()) & set(roles.stop.units.tolist())


def test_many_clusters_are_ranked_and_weighed_whole():
    rng = np.random.default_rng(0)
    tasks = Tasks.from_pairs([(rng.normal(size=2), rng.normal(size=2)) for _ in range(900)])
    plan = Plan.of(tasks.with_clusters([i // 9 for i in range(900)]), 0, thorough=False)
    assert plan.growing
    for (fold,) in plan.waves:
        assert whole(plan.tasks, fold.train, fold.judge)
    (ranked,), (last,) = plan.waves
    assert 600 <= len(ranked.train) + len(ranked.judge) < 609
    assert not set(ranked.train.tolist()) & set(last.judge.tolist())
    alone = Plan.of(tasks, 0, thorough=False).waves[0][0]
    assert len(alone.train) + len(alone.judge) == 600


def test_bounds_are_right_for_tasks_of_new_clusters():
    """Nearer to right than without, with three rungs; of the whole ladder see `benchmarks/clusters.py`."""
    context, target = fields(200, 1, 99)[0].context_target(2, 0)
    covers, density = {"alone": [], "held out whole": []}, {"alone": [], "held out whole": []}
    for seed in range(3):
        tasks, labels = fields(8, 8, seed)
        for how, clusters in (("alone", None), ("held out whole", labels)):
            gp = MetaGP(rungs=["shared gp", "hierarchical gp", "fpca"], progress=False).fit(tasks, clusters=clusters)
            found = gp.predict(context, target)
            lower, upper = found.interval(0.9)
            covers[how].append(float(((lower <= target.y) & (target.y <= upper)).double().mean()))
            density[how].append(float(found.log_density(target.y).mean()))
    assert np.mean(covers["alone"]) + 0.03 < np.mean(covers["held out whole"]) < 0.93
    assert np.mean(density["held out whole"]) > np.mean(density["alone"]) + 0.05


def test_a_cluster_counts_once():
    """In standard errors, against the formula; and in what held-out predictions say of weights and bounds."""
    tasks, labels = fields(6, 4, 1)
    auto = Auto(rungs=("shared gp",), contexts=random_sizes([2]), progress=False).fit(tasks.with_clusters(labels))
    assert auto.tried_[0].density.tasks == 6
    values, clusters = torch.randn(24, dtype=torch.float64), torch.arange(24) // 4
    found = summarise(values, clusters)
    sums = (values - values.mean()).view(6, 4).sum(1)
    assert found.stderr == pytest.approx(math.sqrt(6 / 5 * float(sums.square().sum())) / 24)
    assert summarise(values, torch.arange(24)).stderr == pytest.approx(summarise(values).stderr)
    same = summarise(torch.arange(6.0).double().repeat_interleave(4), clusters)
    assert same.stderr == pytest.approx(summarise(torch.arange(6.0).double()).stderr)


def test_methods_are_compared_on_whole_clusters():
    tasks, labels = fields(6, 4, 1)
    alone = compare(tasks, random_sizes([2]), methods=["gp per task", "shared gp"])
    together = compare(tasks.with_clusters(labels), random_sizes([2]), methods=["gp per task", "shared gp"])
    assert together.scores["shared gp", "2"].clusters is not None
    assert together.density("shared gp").stderr > alone.density("shared gp").stderr
    assert together.against("shared gp", "gp per task").stderr is not None


def test_clusters_are_a_column_of_a_table():
    tasks, labels = fields(4, 3, 2)
    table = long_table(tasks, labels)
    found = Tasks.from_table(table, task="plot", x="x", y="y", cluster="field")
    assert found.clusters.tolist() == [i // 3 for i in range(12)]
    nested = Tasks.from_table(table, task=["field", "plot"], x="x", y="y", cluster="field")  # part of the task's name
    assert nested.clusters.tolist() == [i // 3 for i in range(12)]
    assert found.select([11, 0]).clusters.tolist() == [3, 0]
    gp = MetaGP(rungs=["shared gp"], progress=False).fit(table, task="plot", x="x", y="y", clusters="field")
    assert gp.method_.tried_[0].density.tasks == 4


def test_one_cluster_that_is_left_is_split_into_its_tasks():
    tasks, labels = fields(3, 4, 2)
    left = tasks.with_clusters(labels).select([0, 1, 2, 3])
    train, stop = to_stop_by(left, 0.5, 0)
    assert len(train) == len(stop) == 2


def test_clusters_that_cannot_be_are_refused():
    tasks, labels = fields(3, 2, 0)
    with pytest.raises(DataError, match="2 clusters: some are held out"):
        tasks.with_clusters(["a", "a", "a", "b", "b", "b"])
    with pytest.raises(DataError, match="5 clusters for 6 tasks"):
        tasks.with_clusters(labels[:5])
    with pytest.raises(DataError, match="1 tasks have no cluster"):
        tasks.with_clusters([*labels[:5], None])
    table = long_table(tasks, labels).to_pandas()
    table.loc[3, "field"] = "field 2"
    with pytest.raises(DataError, match="cluster column 'field' is not constant within 1 of 6 tasks"):
        Tasks.from_table(table, task="plot", x="x", y="y", cluster="field")
    with pytest.raises(DataError, match="did you mean 'field'"):
        Tasks.from_table(table, task="plot", x="x", y="y", cluster="fields")
    with pytest.raises(DataError, match="give a label for each"):
        MetaGP().fit(tasks, clusters="field")
    with pytest.raises(DataError, match="one of its columns"):
        MetaGP().fit(table, task="plot", x="x", y="y", clusters=labels)


def test_the_tool_takes_a_column_of_clusters(tmp_path):
    tasks, labels = fields(5, 3, 0)
    table = tmp_path / "plots.csv"
    long_table(tasks, labels).to_pandas().to_csv(table, index=False)
    named = ("--task", "plot", "--x", "x", "--y", "y", "--cluster", "field")
    model = tmp_path / "m.metaprior"
    said = run("fit", table, *named, "--budget", "0", "--out", model).stderr
    assert "5 clusters (field), held out whole" in said
    scores = run("evaluate", model, table, "--cluster", "field", "--context", "2").stderr
    assert "5 clusters" in scores
    refused = run("fit", table, *named[:-1], "plat", "--out", model, "--overwrite", fails=True)
    assert "no column 'plat'" in str(refused.exception)
