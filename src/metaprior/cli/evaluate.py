"""`metaprior evaluate`: a model on tasks, beside what needs no other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from metaprior.cli.common import Screen, chosen_contexts, read_tasks
from metaprior.cli.given import Given
from metaprior.inference import Method, WithinPossible
from metaprior.methods import GPPerTask, LastValue
from metaprior.model import load
from metaprior.report import figure_text
from metaprior.scoring import Scores, paired_difference, scores_by_setting
from metaprior.splits import Contexts
from metaprior.tasks import Possible, Tasks

SHOWN = ("mse", "log_likelihood", "crps", "coverage_90", "calibration_error")


def evaluate_model(
    model: str, given: Given, context: str | None, until: str | None, *, missing: str, delimiter: str | None, seed: int,
    screen: Screen, cluster: str | None = None, device: str = "cpu",
) -> None:  # fmt: skip
    """Scores of a model on a table's tasks, beside what needs no other tasks."""
    method = load(model, device)
    columns = method.trained_on_.columns
    how: dict[str, Any] = {"missing": missing, "delimiter": delimiter, "screen": screen, "cluster": cluster}
    tasks = read_tasks(given, columns, past=False, **how)
    screen.note(*method.notes_on_scored(tasks))
    contexts = chosen_contexts(context, until, tasks, seed, screen)
    methods: dict[str, Method] = {model: method, **_rivals(tasks, contexts, method.trained_on_.possible)}
    by_method = {name: scores_by_setting(one, tasks, contexts) for name, one in methods.items()}
    found: dict[str, Any] = {}
    for setting in by_method[model]:
        scores = {name: by_method[name][setting] for name in methods}
        found[setting] = {name: _summaries(one) for name, one in scores.items()}
        _show_scores(setting, scores, screen)
    screen.result(found)


def _rivals(tasks: Tasks, contexts: Contexts, possible: Sequence[Possible]) -> dict[str, Method]:
    """`last value` and `gp per task`, with the units and variances of these very tasks: they are not disadvantaged.

    Args:
        tasks: those that are scored.
        contexts: how they are split.
        possible: what the targets can be, which is known of the model as well.
    """
    rivals: dict[str, Method] = {"gp per task": GPPerTask().fit(tasks)}
    if tasks.d == 1 and len(tasks) > 1:
        asked = None if contexts.at_random else contexts
        rivals["last value"] = LastValue(contexts=asked, held_out=tasks).fit(tasks)
    return {name: WithinPossible(one, possible) if possible else one for name, one in rivals.items()}


def _summaries(scores: Scores) -> dict[str, Any]:
    return {metric: scores.summary(metric)._asdict() for metric in SHOWN if metric in scores.metrics}


def _show_scores(setting: str, scores: dict[str, Scores], screen: Screen) -> None:
    title = f"from {setting} points" if setting.isdigit() else f"from {setting}"
    table = Table("", *SHOWN, title=title, title_justify="left")
    ours, *_ = scores.values()
    for name, found in scores.items():
        cells = [figure_text(found.summary(metric)._asdict()) for metric in SHOWN]
        table.add_row(name, *cells)
    screen.show(table)
    for name, found in list(scores.items())[1:]:
        gain = paired_difference(ours.values["log_likelihood"], found.values["log_likelihood"], ours.clusters)
        screen.say(f"  log density against {name}: {gain.mean:+z.3f} ± {gain.stderr or 0:.3f} per point")
