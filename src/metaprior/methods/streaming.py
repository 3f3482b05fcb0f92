"""Methods that learn from tasks in parts: from a sample of them as ever, and then on from there with all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any, NamedTuple

import torch

from metaprior.files import State, method_of
from metaprior.inference import KeptMethod
from metaprior.learning import Going, Ranks, fingerprint_of, one_thread
from metaprior.methods.combined import Combination
from metaprior.methods.fpca import FPCA
from metaprior.methods.learned import LearnedPrior
from metaprior.methods.warped import Warped, warped
from metaprior.tasks import Parts, Tasks, TrainedOn, check_targets

SAMPLE, OF_ONE = 4_000, 1_000
"""Tasks of the sample by which priors are chosen, and of that from which one of given structure is learned: what they
teach is where learning from all of them begins."""

REMEMBERED = 1 << 29
"""Bytes of tasks that a process keeps, so that it need not read them again in the next round."""


class Begun(NamedTuple):
    """What a sample has taught, and those of its tasks that learning is judged by from now on."""

    method: KeptMethod
    judges: Sequence[Hashable]


def fit_parts(
    parts: Parts,
    begin: Callable[[Tasks], Begun],
    most: int,
    *,
    judge: Tasks | None = None,
    folder: Path | None = None,
    decides: object = None,
    progress: bool = False,
) -> tuple[Any, list[str]]:
    """A method that has learned from all tasks, and a word on what has learned from a sample of them only.

    begin: learns from a sample of so many tasks at most; one rank does it for all. judge: tasks to stop by that are not
    among the parts; where there are none, some of the sample. folder: of checkpoints; where there are some of the same
    training (of the same parts, and what else decides), it goes on from them. Every rank has one thread, so that the
    bits do not depend on their number.
    """
    ranks, known = Ranks.here(), parts.remembered(REMEMBERED)
    going = Going(ranks, folder, fingerprint_of([], parts.fingerprint, decides), progress)
    with one_thread():
        sample = parts.sample(most)
        method, judges = _begun(sample, begin, going)
        if len(sample) == parts.tasks:
            return method, []
        everything = _survey(known, going, takes_task_x=bool(method.trained_on_.columns.task_x))
        if judge is None:
            judge = sample.select([k for k, name in enumerate(sample.ids) if name in judges])
        notes = go_on(method, All(known.apart_from(judge), judge, everything, going), method.saved_as)
        method.trained_on_ = everything
    return method, notes


class All(NamedTuple):
    """All tasks, those that learning is judged by (not among the parts), what is known of them, and who works how."""

    parts: Parts
    judge: Tasks
    trained_on: TrainedOn
    going: Going


@singledispatch
def go_on(method: Any, given: All, name: str) -> list[str]:
    """Learn on from what a sample has taught, in place. What cannot stays as the sample has left it, and is told."""
    return [f"{name} has learned from a sample of the tasks alone: it cannot learn part by part."]


@go_on.register
def _(method: FPCA, given: All, name: str) -> list[str]:
    method.fit_on(given.parts, given.trained_on.rows, given.going, name)
    return []


@go_on.register
def _(method: LearnedPrior, given: All, name: str) -> list[str]:
    method.fit_on(given.parts, given.judge, given.going, name)
    return []


@go_on.register
def _(method: Warped, given: All, name: str) -> list[str]:
    lower, upper = torch.tensor(given.trained_on.y_range, dtype=torch.float64).mT.contiguous()
    method.warp_ = warp = method.warp_.within(lower, upper)
    inside = given._replace(parts=given.parts.changed(lambda own: warped(own, warp)), judge=warped(given.judge, warp))
    return go_on(method.method, inside, name)


@go_on.register
def _(method: Combination, given: All, name: str) -> list[str]:
    notes = []
    for k, one in enumerate(method.methods):
        notes += go_on(one, given, f"{name} {k + 1}")
    return notes


def _begun(sample: Tasks, begin: Callable[[Tasks], Begun], going: Going) -> tuple[KeptMethod, set[Hashable]]:
    """What the sample has taught, on every rank; where an earlier run has kept it, from there."""

    def work() -> tuple[State, list[Hashable]]:
        kept = going.checkpoint("sample")
        found = None if kept is None else kept.read()
        if found is not None:
            return State(**found["state"]), found["judges"]
        begun = begin(sample)
        state, judges = _laid_out(begun.method.whole_state()), list(begun.judges)
        if kept is not None:
            kept.write({"state": vars(state), "judges": judges})
        return state, judges

    state, judges = going.ranks.told(work)
    return method_of(state, "what the sample has taught"), set(judges)


def _laid_out(state: State) -> State:
    """The same numbers as a file would give them back: the last bits of a product depend on how its parts lie."""
    return replace(state, tensors={name: value.contiguous().clone() for name, value in state.tensors.items()})


def _survey(parts: Parts, going: Going, *, takes_task_x: bool) -> TrainedOn:
    """Counts, ranges and hashes of all tasks."""

    def of(k: int) -> TrainedOn | None:
        tasks = parts.part(k)
        check_targets(tasks)
        return TrainedOn.of(tasks, task_x=takes_task_x, salt=parts.fingerprint[:16]) if len(tasks) else None

    return TrainedOn.joined([one for one in going.ranks.joined(range(parts.count), of) if one is not None])
