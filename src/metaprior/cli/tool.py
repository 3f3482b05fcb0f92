"""`metaprior fit`, `predict`, `evaluate`, `compare`, `show`: a user's own table in, predictions out."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from metaprior.baselines import GPPerTask, LastValue
from metaprior.data import check_output, read_table, write_table
from metaprior.errors import DataError, OptionError
from metaprior.experiments import Results
from metaprior.frames import Wanted, predict_table
from metaprior.inference import Method
from metaprior.model import MetaGP
from metaprior.output import prepare_folder, write_whole
from metaprior.report import (
    draw_figures,
    markdown_tables,
    model_figures,
    task_figure,
    terminal_tables,
    write_model_page,
    write_page,
)
from metaprior.scoring import Scores, evaluate, paired_difference
from metaprior.selection import (
    ContextsBySetting,
    compare,
    contexts_until,
    default_sizes,
    load,
    make_method,
    random_sizes,
)
from metaprior.selection.portrait import held_out_scores, portrait
from metaprior.tasks import Tasks, TrainedOn

SHOWN = ("mse", "log_likelihood", "crps", "coverage_90", "calibration_error")


class Screen:
    """What a command says: to standard error while it works, so that standard output is free for tables and JSON."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.console = Console(stderr=True, soft_wrap=True)
        self.out = Console(width=None if sys.stdout.isatty() else 160)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, markup=False)

    def show(self, table: Any) -> None:
        if not self.quiet and not self.as_json:
            self.out.print(table)

    def result(self, found: dict[str, Any]) -> None:
        if self.as_json:
            self.out.print_json(json.dumps(found))


def split_names(text: str) -> list[str]:
    """Column names separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("give at least one column name.")
    return names


def read_tasks(table: str, task: str, x: str, y: str, *, missing: str, delimiter: str | None, screen: Screen) -> Tasks:
    """A table as tasks, and a word on what was seen."""
    found = read_table(table, delimiter)
    names = {"task": split_names(task), "x": split_names(x), "y": split_names(y)}
    tasks = Tasks.from_table(found, **names, missing=missing)  # type: ignore[arg-type]
    sizes = tasks.sizes
    screen.say(
        f"{table}: {found.num_rows:,} rows, {len(tasks):,} tasks of {int(sizes.min())} to {int(sizes.max())} points "
        f"(median {int(sizes.median())}); {x} → {y}"
    )
    for note in tasks.notes:
        screen.say(f"note: {note}")
    return tasks


def fit_model(tasks: Tasks, gp: MetaGP, out: Path, *, start: MetaGP | None, resume: bool, screen: Screen) -> None:
    """Meta-learn, score on held-out tasks beside `vanilla`, and write the model."""
    if out.is_dir() or not out.parent.is_dir():
        raise OptionError(f"--out {out}: give the name of a file in a folder that exists.")
    held, training = _hold_out(tasks, gp.seed)
    gp.held_out = held if held is not None else None
    checkpoint = out.with_name(f".{out.name}.checkpoint")
    if checkpoint.exists() and not resume:
        checkpoint.unlink()
    try:
        gp.fit(training, start=start, checkpoint=checkpoint)
    except KeyboardInterrupt:
        if checkpoint.exists():
            screen.say("stopped; the training so far is kept: add --resume to go on.")
        raise
    gp.trained_on_ = TrainedOn.of(tasks, getattr(start, "trained_on_", None))
    screen.say(f"learned in {gp.training_.epochs} epochs, {gp.training_.seconds:.1f} s ({gp.training_.stopped})")
    _score_held_out(gp, training, held, screen)
    gp.save(out)
    screen.say(f"written to {out}. Next: metaprior predict {out} TABLE --at START:STOP:STEP --out predictions.csv")
    screen.result({"model": str(out), "tasks": len(tasks), "epochs": gp.training_.epochs, "scores": gp.scores_})


def _hold_out(tasks: Tasks, seed: int) -> tuple[Tasks | None, Tasks]:
    if len(tasks) < 3:
        return None, tasks
    return tasks.split(min(max(0.1, 5 / len(tasks)), 0.34), seed)


def _score_held_out(gp: MetaGP, training: Tasks, held: Tasks | None, screen: Screen) -> None:
    gp.scores_ = {}
    if held is None or int(held.sizes.max()) < 2:
        screen.say("too few tasks or points to hold any out: no scores.")
        return
    contexts = random_sizes(default_sizes(held), gp.seed)
    plain = MetaGP("zero", "rbf", held_out=held, seed=gp.seed, progress=False).fit(training)
    gp.scores_ = held_out_scores(gp, held, contexts)
    beside = held_out_scores(plain, held, contexts)
    table = Table(
        "held-out tasks, from", "MSE", "vanilla", "log density", "vanilla", "90% covers", title_justify="left"
    )
    for n, found in gp.scores_.items():
        table.add_row(
            f"{n} points" if n != "1" else "1 point",
            *(_figure(part["mse"]) for part in (found, beside[n])),
            *(_figure(part["log_likelihood"]) for part in (found, beside[n])),
            f"{found['coverage_90']['mean']:.0%}",
        )
    screen.show(table)


def _figure(found: dict[str, Any]) -> str:
    error = f" ± {found['stderr']:.2g}" if found["stderr"] is not None else ""
    return f"{found['mean']:.4g}{error}"


def predict_model(
    model: str,
    table: str,
    at: str,
    out: str,
    wanted: Wanted,
    *,
    delimiter: str | None,
    plot: Path | None,
    screen: Screen,
) -> None:
    """Predictions of every task of a table, as a table."""
    wanted.check()
    check_output(out)
    method = load(model)
    columns = method.trained_on_.columns
    given = read_table(table, delimiter)
    where = _where(at, columns.x, delimiter)
    found = predict_table(method, columns, given, where, wanted)
    _warn_range(method.trained_on_, found, screen)
    write_table(found, out)
    if out != "-":
        tasks = len(set(zip(*(found[name].to_pylist() for name in columns.task), strict=True)))
        screen.say(f"{found.num_rows:,} predictions for {tasks:,} tasks written to {out}")
    if plot is not None:
        _plot_tasks(method, given, where, wanted, plot, screen)


def _where(at: str, names: Sequence[str], delimiter: str | None) -> Any:
    """Where to predict: `start:stop:step` with its end, a second table, or `missing`."""
    if at == "missing":
        return at
    if ":" not in at or Path(at).exists():
        return read_table(at, delimiter)
    parts = at.split(":")
    try:
        start, stop, step = (float(part) for part in parts)
    except ValueError:
        raise OptionError(f"--at {at}: give START:STOP:STEP in numbers, a table, or 'missing'.") from None
    if len(names) != 1:
        raise OptionError(f"--at {at}: a range is of one input column; the model has {len(names)}. Give a table.")
    if step <= 0 or stop < start or not math.isfinite(stop - start):
        raise OptionError(f"--at {at}: give a step above 0 and a stop that is not before the start.")
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > 1_000_000:
        raise OptionError(f"--at {at}: {count:,} points for each task are too many; give a larger step.")
    return start + step * np.arange(count)


def _warn_range(trained_on: TrainedOn, found: pa.Table, screen: Screen) -> None:
    for name, (low, high) in zip(trained_on.columns.x, trained_on.x_range, strict=True):
        values = found[name].to_numpy()
        outside = int(((values < low) | (values > high)).sum())
        if outside:
            screen.say(
                f"warning: {outside:,} of {len(values):,} points lie outside the range of {name!r} that the model was "
                f"trained on ({low:g} to {high:g}): there it only repeats its prior."
            )


def _plot_tasks(method: Method, given: pa.Table, where: Any, wanted: Wanted, folder: Path, screen: Screen) -> None:
    columns = method.trained_on_.columns  # type: ignore[attr-defined]
    if len(columns.x) != 1 or len(columns.y) != 1:
        raise OptionError("--plot draws one target over one input column.")
    prepare_folder(folder)
    found = predict_table(method, columns, given, where, wanted)
    owner = list(zip(*(found[name].to_pylist() for name in columns.task), strict=True))
    known = list(zip(*(given[name].to_pylist() for name in columns.task), strict=True))
    arrays = {name: found[name].to_numpy() for name in (columns.x[0], "mean", "lower", "upper")}
    x, y = (given[name].to_numpy() for name in (columns.x[0], columns.y[0]))
    for task in dict.fromkeys(owner):
        rows = np.array([one == task for one in owner])
        order = np.argsort(arrays[columns.x[0]][rows])
        curves = {key: values[rows][order] for key, values in arrays.items()}
        curves["x"] = curves.pop(columns.x[0])
        mine = np.array([one == task for one in known])
        curves |= {"context x": x[mine], "context y": y[mine]}
        label = " ".join(map(str, task))
        figure = task_figure(curves, label, (columns.x[0], columns.y[0]), wanted.level)
        safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in label)
        write_whole(folder / f"{safe}.png", lambda part, figure=figure: figure.savefig(part, format="png", dpi=110))  # type: ignore[misc]
    screen.say(f"pictures of {len(dict.fromkeys(owner))} tasks are in {folder}")


def chosen_contexts(context: str | None, until: str | None, tasks: Tasks, seed: int) -> ContextsBySetting:
    """`--context 1,3,5` or `--context-until hour=24`; by default sizes that suit the tasks."""
    if context and until:
        raise OptionError("give --context or --context-until, not both.")
    if until:
        name, _, value = until.partition("=")
        try:
            return contexts_until(name.strip(), float(value))
        except ValueError:
            raise OptionError(f"--context-until {until}: give COLUMN=NUMBER, such as hour=24.") from None
    if context:
        try:
            return random_sizes([int(part) for part in context.split(",")], seed)
        except ValueError:
            raise OptionError(f"--context {context}: give whole numbers, such as 1,3,5.") from None
    return random_sizes(default_sizes(tasks), seed)


def evaluate_model(
    model: str, table: str, context: str | None, until: str | None, *, missing: str, delimiter: str | None, seed: int,
    screen: Screen,
) -> None:  # fmt: skip
    """Scores of a model on a table's tasks, beside what needs no other tasks."""
    method = load(model)
    names = method.trained_on_.columns
    tasks = read_tasks(
        table, ",".join(names.task), ",".join(names.x), ",".join(names.y), missing=missing, delimiter=delimiter,
        screen=screen,
    )  # fmt: skip
    seen = method.trained_on_.seen(tasks.ids)
    if seen:
        screen.say(
            f"warning: the model was trained on {len(seen):,} of these {len(tasks):,} tasks (the first is "
            f"{seen[0]!r}): their scores are too good."
        )
    splits = chosen_contexts(context, until, tasks, seed)(tasks)
    rivals = _rivals(method, tasks)
    found: dict[str, Any] = {}
    for setting, split in splits.items():
        scores = {name: evaluate(one, *split) for name, one in {model: method, **rivals}.items()}
        found[setting] = {name: _summaries(one) for name, one in scores.items()}
        _show_scores(setting, scores, screen)
    screen.result(found)


def _rivals(method: Any, tasks: Tasks) -> dict[str, Method]:
    """`last value` and `gp per task`, with the units and variances of these tasks: nothing of theirs is learned."""
    rivals: dict[str, Method] = {"gp per task": GPPerTask().fit(tasks)}
    if tasks.d == 1 and len(tasks) > 1:
        rivals["last value"] = LastValue(held_out=tasks).fit(tasks)
    return rivals


def _summaries(scores: Scores) -> dict[str, Any]:
    return {metric: scores.summary(metric)._asdict() for metric in SHOWN if metric in scores.metrics}


def _show_scores(setting: str, scores: dict[str, Scores], screen: Screen) -> None:
    title = f"from {setting} points" if setting.isdigit() else f"from {setting}"
    table = Table("", *SHOWN, title=title, title_justify="left")
    ours, *_ = scores.values()
    for name, found in scores.items():
        cells = [_figure(found.summary(metric)._asdict()) for metric in SHOWN]
        table.add_row(name, *cells)
    screen.show(table)
    for name, found in list(scores.items())[1:]:
        gain = paired_difference(ours.values["log_likelihood"], found.values["log_likelihood"])
        screen.say(f"  log density against {name}: {gain.mean:+.3f} ± {gain.stderr or 0:.3f} per point")


def compare_methods(
    tasks: Tasks, contexts: ContextsBySetting, methods: Sequence[str], folds: int, seed: int, folder: Path,
    out: Path | None, screen: Screen,
) -> None:  # fmt: skip
    """Cross-validate, write results and report, say which prior to use, and keep it if asked."""
    prepare_folder(folder)
    found = compare(tasks, contexts, methods=methods, folds=folds, seed=seed, progress=not screen.quiet)
    settings = {
        "seed": seed,
        "tasks": len(tasks),
        "folds": folds,
        "chosen_in_each_fold": list(found.winners),
        "left_out": found.skipped,
        "verdict": found.verdict(),
    }
    results = Results("compare", settings)
    for (method, setting), scores in found.scores.items():
        results.add(method, setting, scores)
    results.close()
    results.write(folder)
    write_whole(folder / "table.md", lambda path: path.write_text(markdown_tables(results.rows)))
    draw_figures("compare", results.rows, results.curves, folder)
    write_page([folder], folder / "report.html")
    for table in terminal_tables(results.rows):
        screen.show(table)
    for name, why in found.skipped.items():
        screen.say(f"left out: {name} ({why})")
    screen.say(found.verdict())
    screen.say(f"written to {folder}: report.html, results.json, tasks.parquet, table.md")
    if out is not None:
        winner = make_method(found.best, tasks, seed).fit(tasks)
        held, _ = _hold_out(tasks, seed)
        winner.scores_ = held_out_scores(winner, held if held is not None else tasks, contexts)
        winner.save(out)
        screen.say(f"{found.best}, fitted on all tasks, is in {out}")
    screen.result({"best": found.best, "verdict": found.verdict(), "folder": str(folder)})


def show_model(path: str, folder: Path | None, screen: Screen) -> None:
    """What a model file holds, and a page of pictures."""
    method = load(path)
    trained_on = method.trained_on_
    facts: dict[str, Any] = {
        "kind": method.kind,
        "structure": _structure(method),
        "task columns": ", ".join(map(str, trained_on.columns.task)),
        "input columns": ", ".join(
            f"{name} ({low:g} to {high:g})"
            for name, (low, high) in zip(trained_on.columns.x, trained_on.x_range, strict=True)
        ),
        "target columns": ", ".join(
            f"{name} ({low:g} to {high:g})"
            for name, (low, high) in zip(trained_on.columns.y, trained_on.y_range, strict=True)
        ),
        "trained on": f"{trained_on.tasks:,} tasks, {trained_on.rows:,} rows, {trained_on.sizes[0]} to "
        f"{trained_on.sizes[1]} points each",
        "file": f"{os.path.getsize(path):,} bytes",
    }
    for n, found in method.scores_.items():
        label = f"held out, from {n} points"
        facts[label] = f"MSE {_figure(found['mse'])}, log density {_figure(found['log_likelihood'])}"
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    screen.show(table)
    screen.result(facts)
    if folder is not None:
        prepare_folder(folder)
        names = (str(trained_on.columns.x[0]), str(trained_on.columns.y[0]))
        pictures = {}
        for name, figure in model_figures(portrait(method), method.scores_, names).items():
            pictures[name] = folder / f"{name}.png"
            write_whole(pictures[name], lambda part, figure=figure: figure.savefig(part, format="png", dpi=130))  # type: ignore[misc]
        write_model_page(f"The model {Path(path).name}", facts, pictures, folder / "model.html")
        screen.say(f"pictures: {folder / 'model.html'}")


def _structure(method: Any) -> str:
    if isinstance(method, MetaGP):
        return f"mean {method.mean}, kernel {method.kernel}, hidden layers {list(method.hidden)}"
    if hasattr(method, "basis_"):
        return f"{method.basis_.size} basis functions, {method.rank_} components"
    return str(method.kind)


def start_of(path: str | None) -> MetaGP | None:
    """The model that learning goes on from."""
    if path is None:
        return None
    found = load(path)
    if not isinstance(found, MetaGP):
        raise DataError(f"{path} holds a {found.kind}; learning can go on from a prior (mean and kernel) only.")
    return found
