"""Learning from tasks that are read part by part: EM by sums over the parts, priors by minibatches of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import NumericalError
from metaprior.inference import check_fits
from metaprior.learning.checkpoints import Checkpoint, going_on
from metaprior.learning.designs import Designs
from metaprior.learning.em import Fit, MixedEffects, Statistics
from metaprior.learning.meta_train import Check, Training
from metaprior.learning.objective import HeldOut, evidence_loss
from metaprior.learning.ranks import Ranks
from metaprior.learning.spec import TrainingSpec
from metaprior.priors import Basis, Prior
from metaprior.progress import progress_bar
from metaprior.seeds import child_seed, generator_of
from metaprior.tasks import Parts, Tasks, batches

ROUNDS = 40
"""Of EM over all tasks, at most: it begins where a sample of them has led to."""

UPDATES, EPOCHS = 32, 1
"""Of a prior in one pass over all tasks, and how many passes."""

RATE = 1e-3
"""Adam's, at the first of them; it falls to nothing along half a wave."""

LOOKS = 4
"""At held-out tasks, in a pass."""


@dataclass(frozen=True)
class Going:
    """What a method needs to go on with all tasks: who works, where it is kept meanwhile, and what is said."""

    ranks: Ranks
    folder: Path | None = None  # in which checkpoints are kept
    fingerprint: str = ""  # of the tasks and of what was learned before
    progress: bool = True

    def checkpoint(self, name: str) -> Checkpoint | None:
        """For one of the things that are learned, on the rank that writes."""
        if self.folder is None or not self.ranks.first:
            return None
        return Checkpoint(self.folder / f"{name}.checkpoint", f"{self.fingerprint} {name}")


@torch.no_grad()
def em_over_parts(
    parts: Parts, basis: Basis, start: MixedEffects, going: Going, *, name: str, floor: float, tolerance: float
) -> Fit:
    """`fit_em` with the sums over tasks taken part by part; it goes on from a model that was learned from some."""
    kept, ranks = going.checkpoint(name), going.ranks
    none = Statistics.none(len(start.mean), start.mean.shape[1], start.loadings.shape[1])
    found = ranks.told(lambda: None if kept is None else kept.read())
    with going_on(kept):
        model, trace = start, list[float]()
        if found is not None:
            model, trace = MixedEffects(found["mean"], found["loadings"], found["noise"]), found["trace"]

        def expected(k: int) -> Float[Tensor, " n"]:
            tasks = parts.part(k)
            return (Statistics.under(model, Designs.of(basis, tasks)) if len(tasks) else none).flat

        with progress_bar(f"{name}, all tasks", ROUNDS, show=going.progress and ranks.first) as advance:
            for _ in range(len(trace), ROUNDS):
                sums = none.shaped(ranks.summed(range(parts.count), expected))
                trace.append(sums.evidence(model))
                gained = math.inf if len(trace) < 2 else (trace[-1] - trace[-2]) / sums.values
                if gained < tolerance:
                    break
                model = sums.maximised(floor)
                advance(f"evidence {trace[-1] / sums.values:.6f} per value")
                if kept is not None:
                    kept.write({**model._asdict(), "trace": trace})
    return Fit(model, tuple(trace), len(trace) < ROUNDS)


def learn_over_parts(
    prior: Prior, parts: Parts, judge: Tasks, how: TrainingSpec, going: Going, *, name: str, seed: int
) -> Training:
    """Adam on minibatches of whole parts, from a prior that was learned from some of the tasks, in place.

    What the tasks to judge by find best is kept, the start included. Every rank takes the same steps.
    """
    ranks, kept = going.ranks, going.checkpoint(name)
    check_fits(prior, judge)
    run = _Run(prior, HeldOut(prior, judge, how.weighting), parts, how, ranks, seed)
    found = ranks.told(lambda: None if kept is None else kept.read())
    with going_on(kept):
        if found is not None:
            run.restore(found)
        steps = run.steps
        with progress_bar(f"{name}, all tasks", len(steps), show=going.progress and ranks.first) as advance:
            advance("", amount=run.done)
            for group in steps[run.done :]:
                run.step(group)
                advance(f"held-out evidence {run.best.held_out_evidence:.4f} per value")
                if kept is not None and kept.due():
                    kept.write(run.kept())
    return run.end(judge)


class _Run:
    """A prior on its way through the parts."""

    def __init__(self, prior: Prior, judge: HeldOut, parts: Parts, how: TrainingSpec, ranks: Ranks, seed: int) -> None:
        self.prior, self.judge, self.parts, self.ranks = prior, judge, parts, ranks
        self.loss, self.parameters = evidence_loss(prior, how.weighting), prior.learned_parameters()
        self.optimizer = torch.optim.Adam(self.parameters, lr=RATE)
        self.steps = _groups(parts.count, seed)
        self.done, self.skipped = 0, 0
        self.best = Check(0, math.nan, self._judged(), math.nan)
        self.checks, self.chosen = [self.best], self._values()

    def step(self, group: Sequence[int]) -> None:
        """An update by some parts; now and then a look at the tasks to judge by."""
        sums = self.ranks.summed(group, self._slopes)
        count, value, slopes = float(sums[0]), float(sums[1]), sums[2:]
        self.done += 1
        for rate in self.optimizer.param_groups:
            rate["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * self.done / len(self.steps)))
        if count and bool(slopes.isfinite().all()):
            for parameter, slope in zip(self.parameters, self._shaped(slopes / count), strict=True):
                parameter.grad = slope
            self.optimizer.step()
        else:
            self.skipped += 1
        if self.done % max(len(self.steps) // (LOOKS * EPOCHS), 1) == 0 or self.done == len(self.steps):
            check = Check(self.done, value / max(count, 1.0), self._judged(), math.nan)
            self.checks.append(check)
            if check.held_out_evidence > self.best.held_out_evidence:
                self.best, self.chosen = check, self._values()

    def end(self, judge: Tasks) -> Training:
        """The best there was."""
        self._take(self.chosen)
        stopped = f"went through all tasks, in {len(self.steps)} updates"
        return Training(tuple(self.checks), self.best, stopped, self.skipped, judge.ids)

    def kept(self) -> dict[str, Any]:
        """Everything that the rest depends on."""
        checks = [[one.epoch, one.loss_per_task, one.held_out_evidence] for one in self.checks]
        numbers = {"done": self.done, "skipped": self.skipped, "best": self.checks.index(self.best)}
        state = self.optimizer.state_dict()["state"]
        return {"here": self._values(), "chosen": self.chosen, "checks": checks, "adam": state, **numbers}

    def restore(self, kept: dict[str, Any]) -> None:
        """What `kept` gave."""
        self._take(kept["here"])
        self.chosen, self.done, self.skipped = kept["chosen"], kept["done"], kept["skipped"]
        self.checks = [Check(done, loss, judged, math.nan) for done, loss, judged in kept["checks"]]
        self.best = self.checks[kept["best"]]
        own = self.optimizer.state_dict()
        self.optimizer.load_state_dict(own | {"state": kept["adam"]})

    def _slopes(self, k: int) -> Float[Tensor, " n"]:
        """Of one part: how many tasks, their loss, and its slopes."""
        tasks = self.parts.part(k)
        flat = torch.zeros(2 + sum(one.numel() for one in self.parameters), dtype=torch.float64)
        if len(tasks) == 0:
            return flat
        try:
            loss = self.loss(batches(tasks, self.prior.like), tasks.ids)
            slopes = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        except NumericalError:  # of one part in hundreds: it is left out of the step
            return flat
        flat[0], flat[1] = len(tasks), float(loss.detach())
        flat[2:] = torch.cat(
            [
                torch.zeros(one.numel(), dtype=torch.float64) if slope is None else slope.flatten().cpu()
                for one, slope in zip(self.parameters, slopes, strict=True)
            ]
        )
        return flat if bool(flat.isfinite().all()) else torch.zeros_like(flat)

    def _shaped(self, flat: Float[Tensor, " n"]) -> list[Tensor]:
        parts = flat.split([one.numel() for one in self.parameters])
        return [values.view_as(one).to(one) for values, one in zip(parts, self.parameters, strict=True)]

    def _values(self) -> list[Tensor]:
        return [one.detach().clone() for one in self.parameters]

    @torch.no_grad()
    def _take(self, values: Sequence[Tensor]) -> None:
        for one, value in zip(self.parameters, values, strict=True):
            one.copy_(value)

    def _judged(self) -> float:
        return self.ranks.told(self.judge.evidence)


def _groups(parts: int, seed: int) -> list[list[int]]:
    """The parts of each update: neighbours, so that all ranks have some of them; in another order in each pass."""
    size = max(parts // UPDATES, 1)
    groups = [list(range(start, min(start + size, parts))) for start in range(0, parts, size)]
    found = []
    for epoch in range(EPOCHS):
        order = torch.randperm(len(groups), generator=generator_of(child_seed(seed, epoch)))
        found += [groups[k] for k in order.tolist()]
    return found
