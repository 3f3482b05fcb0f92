"""A conditional neural process: what is known of a task becomes one vector, from which a network predicts.

Each known point is encoded by a network, and the codes are averaged (deep sets); a second network makes a mean and a
deviation of that average, the number of known points and a new input. Learned by the log density of a task's other
points, from 1 to 10 known ones, half of the time its first ones. Each of a few members learns without some of the tasks
and stops by them; together they are one Gaussian with the moments of their mixture. The first one's tasks set aside
choose how wide the layers are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metaprior.priors import Network
from metaprior.seeds import child_seed, generator_of
from small_tables.protocol import Array, Gaussian, Pair, Predict
from small_tables.units import Units

WIDTHS, MOST = (32, 64), 10
"""Units of a layer (and numbers that an average has) to choose from; the most known points while learning."""
MEMBERS, PARTS = 3, 5
"""Networks, each of which learns without another fifth of the tasks."""
BATCH, RATE, DECAY, STEPS, LOOK, PATIENCE = 64, 1e-3, 1e-2, 4_000, 50, 10
"""Tasks of a step, Adam's rate and weight decay, steps at most, steps between looks, looks without a gain."""
CUTS = 2
"""How often the rate is cut to a quarter, from the best network so far, before a training ends."""
LOOKED_AT = 10
"""Random contexts of each task that is set aside, by which a look judges."""
LEAST = 0.01
"""The least deviation, in units of the targets' own."""


class Curves(NamedTuple):
    """Tasks of one shape, with places that are filled up: x [m, n, d], y [m, n], and which are there."""

    x: Tensor
    y: Tensor
    there: Tensor

    def of(self, rows: Tensor) -> Curves:
        return Curves(self.x[rows], self.y[rows], self.there[rows])


class NeuralProcess(nn.Module):
    """Means and deviations at all places, from the known ones."""

    def __init__(self, inputs: int, width: int, seed: int) -> None:
        super().__init__()
        layers: dict[str, Any] = {"hidden": (width, width), "activation": "relu", "dtype": torch.float32}
        self.encode = Network(inputs + 1, width, seed=child_seed(seed, 0), **layers)
        self.decode = Network(width + 1 + inputs, 2, seed=child_seed(seed, 1), **layers)

    def forward(self, curves: Curves, known: Tensor) -> tuple[Tensor, Tensor]:
        codes = self.encode(torch.cat([curves.x, curves.y[..., None]], -1))
        count = known.sum(1, keepdim=True)
        average = (codes * known[..., None]).sum(1) / count.clamp(min=1)
        told = torch.cat([average, count.log1p()], -1)[:, None].expand(-1, curves.y.shape[1], -1)
        mean, raw = self.decode(torch.cat([told, curves.x], -1)).unbind(-1)
        return mean, LEAST + nn.functional.softplus(raw)

    def loss(self, curves: Curves, known: Tensor) -> Tensor:
        """Minus the log density of a task's other points, each task counting the same."""
        mean, sd = self.forward(curves, known)
        density = -0.5 * ((curves.y - mean) / sd) ** 2 - sd.log() - 0.5 * math.log(2 * math.pi)
        others = curves.there & ~known
        return -((density * others).sum(1) / others.sum(1).clamp(min=1)).mean()


def fit(
    train: Sequence[Pair], members: int = MEMBERS, widths: Sequence[int] = WIDTHS, steps: int = STEPS, seed: int = 0
) -> Predict:
    units = Units.of(train)
    curves = _filled([pair for pair in units.scaled(train) if len(pair[1]) > 1])
    order = torch.randperm(len(curves.y), generator=generator_of(seed))

    def member(k: int, width: int) -> tuple[float, NeuralProcess]:
        aside = torch.zeros(len(order), dtype=torch.bool)
        aside[order[k::PARTS]] = True
        start = NeuralProcess(curves.x.shape[-1], width, child_seed(seed, k))
        return _learned(start, curves.of(~aside), curves.of(aside), steps, child_seed(seed, k, width))

    tried = {width: member(0, width) for width in widths}
    width = min(tried, key=lambda one: tried[one][0])
    networks = [tried[width][1], *(member(k, width)[1] for k in range(1, members))]

    def predict(contexts: Sequence[Pair], inputs: Sequence[Array]) -> Gaussian:
        asked = [
            (np.concatenate([x, at]), np.concatenate([y, np.zeros(len(at))]))
            for (x, y), at in zip(contexts, inputs, strict=True)
        ]
        filled = _filled(units.scaled(asked))
        known = torch.arange(filled.y.shape[1]) < torch.tensor([len(y) for _, y in contexts])[:, None]
        with torch.no_grad():
            said = [network(filled, known) for network in networks]
        means, sds = (
            np.stack([one[filled.there & ~known].double() for one in each]) for each in zip(*said, strict=True)
        )
        return units.back(means.mean(0), (sds**2).mean(0) + means.var(0))

    return predict


def _learned(
    network: NeuralProcess, train: Curves, aside: Curves, steps: int, seed: int
) -> tuple[float, NeuralProcess]:
    """The best network on the way, by the tasks that are set aside, and its loss there."""
    generator = generator_of(seed)
    judged = [_known(aside, generator) for _ in range(LOOKED_AT)]
    best, kept, since, cuts = math.inf, copy.deepcopy(network.state_dict()), 0, 0
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    for step in range(1, steps + 1):
        batch = train.of(torch.randint(len(train.y), (BATCH,), generator=generator))
        optimizer.zero_grad()
        network.loss(batch, _known(batch, generator)).backward()
        optimizer.step()
        if step % LOOK:
            continue
        with torch.no_grad():
            value = float(np.mean([float(network.loss(aside, known)) for known in judged]))
        since += 1
        if value < best:
            best, kept, since = value, copy.deepcopy(network.state_dict()), 0
        elif since == PATIENCE:
            if cuts == CUTS:
                break
            cuts, since = cuts + 1, 0
            network.load_state_dict(kept)
            optimizer = torch.optim.AdamW(network.parameters(), RATE / 4**cuts, weight_decay=DECAY)
    network.load_state_dict(kept)
    return best, network


def _known(curves: Curves, generator: torch.Generator) -> Tensor:
    """Which points of each task are known: random ones, or its first ones; from 1 to 10, and never all."""
    tasks, places = curves.y.shape
    size = (1 + torch.rand(tasks, generator=generator) * (curves.there.sum(1) - 1).clamp(max=MOST)).long()
    key = torch.rand((tasks, places), generator=generator)
    first = torch.rand(tasks, generator=generator) < 0.5
    key[first] = torch.arange(places, dtype=key.dtype)
    rank = key.masked_fill(~curves.there, math.inf).argsort(1).argsort(1)
    return rank < size[:, None]


def _filled(tasks: Sequence[Pair]) -> Curves:
    longest = max(len(y) for _, y in tasks)
    x = torch.zeros(len(tasks), longest, tasks[0][0].shape[1])
    y, there = torch.zeros(len(tasks), longest), torch.zeros(len(tasks), longest, dtype=torch.bool)
    for k, (inputs, values) in enumerate(tasks):
        x[k, : len(values)], y[k, : len(values)] = torch.from_numpy(inputs), torch.from_numpy(values)
        there[k, : len(values)] = True
    return Curves(x, y, there)
