"""A fitted model in words: what it is, what it was trained on, and how it predicted held-out tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaprior.methods import FPCA, LearnedPrior, Mixture
from metaprior.priors import Network
from metaprior.selection import Auto
from metaprior.tasks import Covariate, Possible, TrainedOn


def facts_of(method: Any, trained_on: TrainedOn, scores: Mapping[str, Any], size: int) -> dict[str, Any]:
    """By name, in the order in which a reader wants them. size: of the model file, in bytes."""
    columns = trained_on.columns
    possible = trained_on.possible or [Possible()] * len(columns.y)
    facts: dict[str, Any] = {
        "kind": method.saved_as,
        "structure": _structure(method),
        **({"tried": _tried(method)} if isinstance(method, Auto) else {}),
        "task columns": ", ".join(map(str, columns.task)),
        "input columns": ", ".join(f"{name} ({trained_on.shown_range(k)})" for k, name in enumerate(columns.x)),
        **({"task inputs": _task_inputs(trained_on)} if columns.task_x else {}),
        "target columns": ", ".join(
            f"{name} ({low:g} to {high:g}{f'; can be {one}' if str(one) else ''})"
            for name, (low, high), one in zip(columns.y, trained_on.y_range, possible, strict=True)
        ),
        "trained on": f"{trained_on.tasks:,} tasks, {trained_on.rows:,} rows, {trained_on.sizes[0]} to "
        f"{trained_on.sizes[1]} points each",
        "file": f"{size:,} bytes",
    }
    for n, found in scores.items():
        label = f"held out, from {n}" + (" points" if n.isdigit() else "")
        facts[label] = f"MSE {figure_text(found['mse'])}, log density {figure_text(found['log_likelihood'])}"
    return facts


def figure_text(found: Mapping[str, Any]) -> str:
    """A mean with its standard error."""
    if found["mean"] is None:
        return "infinite"
    error = f" ± {found['stderr']:.2g}" if found["stderr"] is not None else ""
    return f"{found['mean']:z.4g}{error}"


def described(one: Covariate, ranges: Mapping[str, str] | None = None) -> str:
    """A task column with the levels that it has, or the range."""
    said = ", ".join(one.levels or ()) or (ranges or {}).get(one.name)
    return f"{one.name} ({said})" if said else one.name


def _task_inputs(trained_on: TrainedOn) -> str:
    ranges = {name: f"{low:g} to {high:g}" for _, name, low, high in trained_on.task_numbers()}
    said = ", ".join(described(one, ranges) for one in trained_on.columns.task_x)
    return f"{said}; pictures are of a task with the average of these"


def _tried(auto: Auto) -> str:
    """Every prior that was tried, from simple to rich."""
    said = ", ".join(f"{one.name} {figure_text(one.density._asdict())}" for one in auto.tried_)
    return f"{said} (log density per held-out value)"


def _structure(method: Any) -> str:
    if isinstance(method, Auto):
        shares = [f"{name} ({weight:.0%})" if weight < 1 else name for name, weight in method.chosen_.items()]
        before, after = method.coverage_
        return (
            f"{' + '.join(shares)}, chosen because {method.why_} 90% intervals: {before:.0%}, recalibrated {after:.0%}"
        )
    if isinstance(method, LearnedPrior):
        networks = any(isinstance(part, Network) for part in method.prior_.modules())
        layers = f", hidden layers {list(method.spec.hidden)}" if networks else ""
        return f"mean {method.spec.mean}, kernel {method.spec.kernel}{layers}"
    if isinstance(method, Mixture):
        return f"{len(method.models_)} kinds of tasks, {method.basis_.size} basis functions"
    if isinstance(method, FPCA):
        return f"{method.basis_.size} basis functions, {method.rank_} components"
    return str(method.saved_as)
