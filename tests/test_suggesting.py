"""Where to measure next: against conditioning itself, over all subsets and over draws; tables, pictures, bad input."""

import importlib.util
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pytest
import torch
import typer
from typer.testing import CliRunner

from metaprior import DataError, LearnedPrior, MetaGP, Mixture, OptionError, Tasks, Warped
from metaprior.cli import main
from metaprior.cli.app import app
from metaprior.inference import WithinPossible
from metaprior.inference.suggesting import Places, _among, _repeated, places_of, suggestion
from metaprior.methods import LastValue
from metaprior.tasks import Possible

GRID = torch.linspace(0, 2, 9, dtype=torch.float64)


def past(count=40, seed=0, outputs=1, unit=1.0):
    """Curves whose level and slope differ from task to task: the right end is the most uncertain."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = np.sort(rng.uniform(0, 2, 8))
        y = [3 + rng.normal() + x * rng.normal() + 0.1 * rng.normal(size=8) for _ in range(outputs)]
        pairs.append((x, unit * np.stack(y, 1)))
    return Tasks.from_pairs(pairs)


@pytest.fixture(scope="module")
def gp():
    return MetaGP("constant", "rbf", max_epochs=30, progress=False).fit(past())


def left_open(method, x, y, more, at=GRID):
    """The root mean variance of the curve, by conditioning on the points and on those that are measured."""
    both = torch.cat([torch.tensor(x, dtype=torch.float64), torch.tensor(more, dtype=torch.float64)])
    values = torch.cat([torch.tensor(y, dtype=torch.float64), torch.zeros(len(more), dtype=torch.float64)])
    return float(method.condition(both, values).at(at).function.sd.square().mean().sqrt())


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(("x", "y"), [([], []), ([0.5, 1.1], [3.0, 3.5])])
def test_of_a_gaussian_the_best_of_all_subsets_is_found_and_what_it_leaves_is_exact(gp, x, y, count):
    found = gp.condition(x, y).suggest(GRID, count)
    rest = [float(value) for value in GRID if float(value) not in x]
    at = torch.tensor(rest)
    by_hand = {S: left_open(gp, x, y, S, at) for S in itertools.combinations(rest, count)}
    assert tuple(sorted(found.x[:, 0].tolist())) == min(by_hand, key=by_hand.get)
    for k in range(count + 1):
        expected = left_open(gp, x, y, found.x[:k, 0].tolist(), at)
        assert float(found.sd[k]) == pytest.approx(expected, rel=1e-6)
    shares = 1 - found.sd[1:, 0] / found.sd[:-1, 0]
    assert torch.allclose(found.gain, shares)
    after = gp.condition([*x, *found.x[:, 0].tolist()], [*y, *[0.0] * count]).at(at).function.sd
    assert torch.allclose(found.left * found.curve.sd, after, rtol=1e-6)


def by_hand(F, noise, measured):
    """The variance of each output at each point once some are measured."""
    S = list(measured)
    after = [
        f - f[:, S] @ np.linalg.solve(f[np.ix_(S, S)] + np.diag(s[S]), f[S]) for f, s in zip(F, noise, strict=True)
    ]
    return np.stack([np.diag(f) for f in after])


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_outputs_that_differ_are_weighed_by_the_share_that_is_left_of_each(seed, elsewhere):
    """Over all pairs of four points. The third output is certain, and says nothing."""
    rng, n = np.random.default_rng(seed), 6
    roots = rng.normal(size=(3, n, 3)) * np.array([1.0, 30.0, 0.0])[:, None, None]
    F, noise = roots @ roots.transpose(0, 2, 1), rng.uniform(0.1, 0.5, (3, n)) * np.array([1.0, 900.0, 1.0])[:, None]
    now, points, candidate = F.diagonal(0, 1, 2), Tasks.from_inputs([np.arange(float(n))]), torch.arange(n) < 4
    target = ~candidate if elsewhere else candidate
    sd, of_values = (torch.from_numpy(np.sqrt(variance).T) for variance in (now, now + noise))
    function = SimpleNamespace(sd=sd, points=points, covariances=lambda: [torch.from_numpy(F)])
    posterior = SimpleNamespace(function=function, sd=of_values, points=points)
    found = suggestion(posterior, Places(points.x, candidate, target), 2, seed)

    def share(measured):
        left, before = by_hand(F, noise, measured)[:2, target], now[:2, target]
        return (left.mean(1) / before.mean(1)).sum()

    chosen = [int(place) for place in found.x[:, 0]]
    assert set(chosen) == set(min(itertools.combinations(range(4), 2), key=share))
    assert chosen[0] == min(chosen, key=lambda place: share([place]))
    left = [by_hand(F, noise, chosen[:k]) for k in range(3)]
    assert found.sd.numpy() == pytest.approx(np.sqrt([variance[:, target].mean(1) for variance in left]))
    assert found.gain.tolist() == pytest.approx(
        [1 - (share(chosen[: k + 1]) / share(chosen[:k])) ** 0.5 for k in (0, 1)]
    )
    assert found.left[:, :2].numpy() == pytest.approx(np.sqrt(left[2][:2] / now[:2]).T, abs=1e-6)
    first, last = (", ".join(f"{value:.4g}" for value in found.sd[k].tolist()) for k in (0, 2))
    assert repr(found) == f"Suggestion(x={found.x.tolist()}, sd {first} → {last})"


def test_places_are_each_given_once_and_what_is_asked_about_is_not_measured():
    x, about = torch.tensor([[0.0], [1.0], [2.0], [1.0], [3.0]]).double(), torch.tensor([[3.0], [4.0], [4.0]]).double()
    known = Tasks.from_pairs([([2.0], [0.5])])
    found = places_of(known, x, None, 3)
    assert found.x[:, 0].tolist() == [0.0, 1.0, 3.0]
    assert found.candidate.all()
    assert found.target.all()
    found = places_of(known, x, about, 2)
    assert found.x[:, 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert found.candidate.tolist() == [True, True, False, False]
    assert found.target.tolist() == [False, False, True, True]
    with pytest.raises(DataError, match=r"has 2 points left to measure at \(5 are given, 1 are known\): 3 are wanted"):
        places_of(known, x, about, 3)
    many = torch.arange(2000.0).double()[:, None]
    assert len(places_of(known, many, None, 1).x) == 1999
    for at, more in ((many[:1999], many[:2]), (many, many[:1])):
        with pytest.raises(OptionError, match="2,001 points of a task are too many to choose among: give 2,000"):
            places_of(known, at, more, 1)


def test_the_first_of_several_is_what_takes_most_of_them_all_and_the_order_is_by_what_each_adds(gp):
    found = gp.condition([], []).suggest(GRID, 3)
    alone = [left_open(gp, [], [], [place]) for place in found.x[:, 0].tolist()]
    assert alone[0] == min(alone)


def test_points_asked_about_are_what_counts_and_are_not_measured(gp):
    found = gp.condition([], []).suggest(GRID, 1, about=[2.0])
    by_hand = {place: left_open(gp, [], [], [place], [2.0]) for place in GRID[:-1].tolist()}
    assert float(found.x) == min(by_hand, key=by_hand.get)
    assert float(found.sd[1]) == pytest.approx(min(by_hand.values()), rel=1e-6)
    outside = gp.condition([], []).suggest(GRID, 2, about=[2.05, 2.05])
    assert len(outside.left) == len(GRID) + 1
    assert float(outside.x[0]) == 2.0


def expected_by_draws(method, x, y, measured, at, draws=300):
    """The root mean variance of the curve, averaged over what may be measured."""
    drawn = method.condition(x, y).at(measured).samples(draws, 1)[..., 0]
    known = [(np.concatenate([x, measured[:, 0]]), np.concatenate([y, one])) for one in drawn]
    variance = method.condition(Tasks.from_pairs(known)).at(at).function.sd.square().reshape(draws, -1).mean(1)
    return float(variance.mean().sqrt()), float(variance.std() / draws**0.5 / 2 / variance.mean().sqrt())


def kinds():
    """Rising and falling curves, each on a level of its own."""
    rng, pairs = np.random.default_rng(0), []
    for k in range(60):
        x = np.sort(rng.uniform(0, 2, 8))
        pairs.append((x, (-1) ** k * 0.4 * x + 0.8 * rng.normal() + 0.1 * rng.normal(size=8)))
    return Tasks.from_pairs(pairs)


def test_of_a_mixture_conditioning_leaves_no_more_than_was_expected():
    method = MetaGP.of(Mixture(2, rank=1, size=4).fit(kinds()))
    for x, y in (([], []), ([1.0], [0.2])):
        found = method.condition(x, y).suggest(GRID, 2)
        mean, stderr = expected_by_draws(method, x, y, found.x, found.curve.points.x)
        assert mean < float(found.sd[-1]) + 3 * stderr
        assert mean < 0.9 * float(found.sd[0])


def test_of_a_warped_prior_it_is_about_what_conditioning_leaves():
    rng, pairs = np.random.default_rng(3), []
    for _ in range(40):
        x = np.sort(rng.uniform(0, 2, 8))
        pairs.append((x, np.exp(0.5 * rng.normal() + 0.3 * x * rng.normal() + 0.1 * rng.normal(size=8))))
    inner = LearnedPrior("constant", "rbf", max_epochs=20, progress=False)
    method = MetaGP.of(Warped(inner, "log").fit(Tasks.from_pairs(pairs)))
    found = method.condition([1.0], [1.2]).suggest(GRID, 2)
    mean, _ = expected_by_draws(method, [1.0], [1.2], found.x, found.curve.points.x)
    assert mean == pytest.approx(float(found.sd[-1]), rel=0.15)


def test_units_of_y_change_nothing_but_the_deviations():
    small, large = (
        MetaGP("constant", "rbf", max_epochs=20, progress=False).fit(past(unit=unit)) for unit in (1.0, 1e-100)
    )
    one, other = (one.condition([], []).suggest(GRID, 2) for one in (small, large))
    assert torch.equal(one.x, other.x)
    assert torch.allclose(one.sd * 1e-100, other.sd, rtol=1e-6, atol=0.0)
    assert torch.allclose(one.gain, other.gain)


def test_outputs_count_the_same_in_any_units():
    tasks = past(outputs=2)
    wide = Tasks(tasks.x, tasks.y * torch.tensor([1.0, 1000.0]), tasks.offsets, tasks.ids, tasks.columns)
    found = [
        MetaGP("constant", "rbf", max_epochs=20, progress=False).fit(some).condition([], []).suggest(GRID, 2)
        for some in (tasks, wide)
    ]
    assert found[0].sd.shape == (3, 2)
    assert torch.equal(found[0].x, found[1].x)
    assert torch.allclose(found[0].gain, found[1].gain, rtol=1e-4)


def test_several_inputs_are_points_of_a_grid():
    rng = np.random.default_rng(0)
    pairs = [(x, rng.normal() + rng.normal() * x[:, 0]) for x in (rng.uniform(0, 1, (6, 2)) for _ in range(20))]
    gp = MetaGP("constant", "rbf", max_epochs=10, progress=False).fit(Tasks.from_pairs(pairs))
    grid = np.stack(np.meshgrid([0.0, 0.5, 1.0], [0.0, 1.0]), -1).reshape(-1, 2)
    found = gp.condition(grid[:1], [0.3]).suggest(grid, 2, about=[[0.5, 0.5]])
    after = gp.condition(np.concatenate([grid[:1], found.x]), [0.3, 0.0, 0.0]).at([[0.5, 0.5]]).function.sd
    assert float(found.sd[-1]) == pytest.approx(float(after), rel=1e-6)
    assert grid[0].tolist() not in found.x.tolist()


def test_the_other_tasks_and_their_order_change_nothing():
    gp = MetaGP(rungs=("warped", "fpca"), progress=False).fit(past(30))
    context, _ = past(6, seed=1).context_target(2, seed=0)
    forth = gp.suggest(context, GRID, 2)
    back = gp.suggest(context.select(range(5, -1, -1)), GRID, 2)
    for one, other in zip(forth, reversed(back), strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.sd, other.sd)


def test_every_method_can_be_asked(gp):
    possible = WithinPossible(gp.method_, [Possible(0.0, 6.0, True)])
    found = possible.condition(Tasks.empty(["new"], 1, 1)).suggest(GRID, 2)
    assert float(found.sd[0]) > float(found.sd[-1]) > 0
    alone = LastValue(held_out=0.5).fit(past()).condition(past(1).select([0])).suggest(GRID, 1)
    assert 0 <= float(alone.gain) < 0.5  # it knows of no ties: the point itself is what is bought


def test_repeats_and_known_points_are_no_candidates(gp):
    found = gp.condition([0.1 + 0.2], [3.0]).suggest([0.3, 1.0, 1.0, 1.5], 2)
    assert sorted(found.x[:, 0].tolist()) == [1.0, 1.5]
    with pytest.raises(DataError, match=r"'new task' has 2 points left .* 3 are wanted"):
        gp.condition([0.1 + 0.2], [3.0]).suggest([0.3, 1.0, 1.0, 1.5], 3)
    with pytest.raises(OptionError, match="0 points: give 1 or more"):
        gp.condition([], []).suggest(GRID, 0)
    with pytest.raises(OptionError, match="too many to choose among"):
        gp.condition([], []).suggest(np.linspace(0, 2, 2001))
    with pytest.raises(DataError, match="2 tasks: suggest for each"):
        gp.condition(past(2)).suggest(GRID)
    with pytest.raises(DataError, match="NaN or infinity"):
        gp.condition([], []).suggest([0.0, np.nan])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_points_are_alike_but_for_rounding_whatever_their_units(scale):
    x = scale * torch.tensor([[0.0], [1.0], [1.0 + 1e-14], [1.0 + 1e-9], [3.0]], dtype=torch.float64)
    assert _repeated(x).tolist() == [False, False, True, False, False]
    assert _among(x, x[[1]]).tolist() == [False, True, True, False, False]
    assert _repeated(torch.zeros(2, 1)).tolist() == [False, True]


# tables and the command line


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Doses of two diets, over days."""
    rng, rows = np.random.default_rng(0), []
    for k in range(40):
        level, slope, rich = rng.normal(), rng.normal(), k % 2
        for day in rng.choice(20, 6, replace=False):
            rows.append((f"p{k}", "rich" if rich else "plain", int(day), level + slope * (1 + rich) * day / 10))
    table = pd.DataFrame(rows, columns=["patient", "diet", "day", "weight"])
    table["day"] = pd.Timestamp("2020-03-01") + pd.to_timedelta(table["day"], "D")
    path = tmp_path_factory.mktemp("suggest") / "m.metaprior"
    columns = {"task": "patient", "x": "day", "y": "weight", "task_x": "diet"}
    MetaGP("deep", "rbf", hidden=(4,), max_epochs=15, progress=False).fit(table, **columns).save(path)
    return path


KNOWN = "patient,diet,day,weight\na,rich,2020-03-01,1.0\na,rich,2020-03-03,1.3\nb,plain,2020-03-20,-1\n"


def run(*words):
    return CliRunner().invoke(app, ["suggest", *map(str, words)], catch_exceptions=True)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_table_of_the_same_kind_comes_back(gp, kind):
    gp = MetaGP.of(gp.method_)
    table = kind({"task": ["b", "b", "a"], "x": [0.0, 0.25, 2.0], "y": [3.0, 3.1, 2.0]})
    found = gp.suggest(table, GRID, 2)
    assert isinstance(found, kind)
    assert list(found.columns) == ["task", "order", "x", "sd_before", "sd_after", "gain"]
    assert found["task"].to_list() == ["b", "b", "a", "a"]
    assert found["order"].to_list() == [1, 2, 1, 2]
    one = gp.condition([0.0, 0.25], [3.0, 3.1]).suggest(GRID, 2)
    assert found["x"].to_list()[:2] == one.x[:, 0].tolist()
    assert found["sd_after"].to_list()[:2] == pytest.approx(one.sd[1:, 0].tolist())


def test_a_stream_of_arrow_tables_is_a_table_as_it_is_to_predict(gp):
    gp = MetaGP.of(gp.method_)
    table = pa.table({"task": ["b", "b", "a"], "x": [0.0, 0.25, 2.0], "y": [3.0, 3.1, 2.0]})
    at = pa.table({"task": ["a", "b", "a"], "x": [0.5, 1.0, 1.5]})
    found = gp.suggest(table.to_reader(), at.to_reader(), 1)
    assert found.equals(gp.suggest(table, at, 1))
    assert gp.predict(table.to_reader(), at.to_reader()).equals(gp.predict(table, at))
    with pytest.raises(DataError, match=r"a table is a pandas, polars or Arrow one, or speaks Arrow .* not int"):
        gp.suggest(3, GRID)


def test_the_command_writes_dates_and_pictures(model, tmp_path):
    (tmp_path / "known.csv").write_text(KNOWN)
    out, at = tmp_path / "next.csv", "2020-03-01:2020-03-20:1d"
    words = (model, tmp_path / "known.csv", "--at", at, "--points", 2, "--out", out, "--plot", tmp_path / "pictures")
    done = run(*words)
    assert done.exit_code == 0, done.output
    table = pc.read_csv(out).to_pylist()
    assert [(row["patient"], row["order"]) for row in table] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert {str(row["day"])[:8] for row in table} == {"2020-03-"}
    assert all(0 < row["sd_after"] < row["sd_before"] and 0 < row["gain"] < 1 for row in table)
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"a.png", "b.png"}
    assert run(*words).exit_code == 0  # suggestions take the place of suggestions
    assert "a: measure at 2020-03-" in done.output


def test_a_new_task_needs_no_table(model, tmp_path):
    at = ("--at", "2020-03-01:2020-03-20:1d", "--points", 2)
    done = run(model, *at, "--given", "diet=rich", "--about", "2020-03-25", "--quiet")
    assert done.exit_code == 0, done.output
    assert done.output.count("new task") == 2
    (tmp_path / "places.csv").write_text("patient,diet,day\nc,rich,2020-03-02\nc,rich,2020-03-09\n")
    done = run(model, "--at", tmp_path / "places.csv", "--quiet")
    assert done.exit_code == 0, done.output
    assert "c,1,2020-03-0" in done.output.replace('"', "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "2020-03-01:2020-03-20:1d"), "was learned with the task columns diet: say what a new task has"),
        (("--at", "2020-03-01:2020-03-20:1d", "--given", "diet=raw"), "which no past task had"),
        (("--at", "2020-03-01:2020-03-20:1d", "--given", "age=3"), "--given age=3: give NAME=VALUE, of diet"),
        (("--at", "2020-03-01", "--points", "0"), "--points 0: give 1 or more"),
        (("--at", "2020-03-01", "--level", "2"), "--level 2.0: give a number between 0 and 1"),
        (("--at", "missing"), "rows without targets are those of a table"),
        (("--at", "3", "--given", "diet=rich"), "holds dates"),
        (("--at", "2020-03-01", "--about", "x", "--given", "diet=rich"), "--about x: 'x' is no number, date or file"),
        (("known.csv", "--at", "2020-03-01,2020-03-20"), "task 'a' has 1 points left to measure at"),
        (("known.csv", "--at", "2020-03-02", "--given", "diet=rich"), "a table has columns for that"),
        (("wrong.csv", "--at", "2020-03-02"), "'weight'"),
        (("known.csv", "--at", "2020-03-02", "--out", "known.csv"), "is what this command reads"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(model, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known.csv").write_text(KNOWN)
    (tmp_path / "wrong.csv").write_text(KNOWN.replace("weight", "mass"))
    points = () if "--points" in words else ("--points", "2")
    monkeypatch.setattr("sys.argv", ["metaprior", "suggest", str(model), *words, *points])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert {path.name for path in tmp_path.iterdir()} == {"known.csv", "wrong.csv"}


def test_a_file_that_is_no_model_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "no.metaprior").write_text(json.dumps({}))
    monkeypatch.setattr("sys.argv", ["metaprior", "suggest", str(tmp_path / "no.metaprior"), "--at", "1:3:1"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "no.metaprior" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["where_to_measure", "sparse_curves"])
def test_the_examples_run(name, tmp_path, monkeypatch, capsys):
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    if name == "where_to_measure":  # the same with fewer patients
        monkeypatch.setattr(example, "PAST", 24)
        monkeypatch.setattr(example, "NEW", 4)
    picture = tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", [str(path), "--out", str(picture)])
    example.main()
    assert picture.stat().st_size > 10_000
    assert "error" in capsys.readouterr().out


def test_the_page_is_true(gp, tmp_path, monkeypatch, capsys):
    """Its commands have the options that they are given, and its example runs."""
    page = (Path(__file__).parent.parent / "docs" / "suggesting.md").read_text()
    options = {option for one in typer.main.get_command(app).commands["suggest"].params for option in one.opts}
    named = [line for line in page.splitlines() if "metaprior suggest" in line]
    assert len(named) == 2
    assert {word for line in named for word in re.findall(r"--[a-z]+", line)} <= options
    monkeypatch.chdir(tmp_path)
    gp.save("elnino.metaprior")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict = {}
    exec(example, found)
    assert found["found"].x.shape == (3, 1)
    assert capsys.readouterr().out
