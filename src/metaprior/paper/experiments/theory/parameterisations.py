"""MAML lives in parameter space, a mean in function space: the same function written in two ways."""

from __future__ import annotations

import copy
from collections import defaultdict
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap

from metaprior.inference import condition
from metaprior.learning import evidence_loss, make_updates
from metaprior.methods import MetaUpdates, RandomEpisodes, Start
from metaprior.paper.experiments.step import draw_steps
from metaprior.paper.options import Options, derived_seeds
from metaprior.priors import DeepMean, Network, Prior, make_kernel
from metaprior.report import Results
from metaprior.scoring import Scores
from metaprior.seeds import generator_of
from metaprior.tasks import Tasks

HIDDEN = (32, 32)
FACTOR = 3.0
"""By which one layer's weights are multiplied and the next one's divided."""

CONTEXT, INNER_STEPS, INNER_RATE = 5, 5, 0.01
TRIALS, EPOCHS, BATCH, RATE = 5, 20, 32, 3e-3
NOISE = 1e-2

Distances = dict[tuple[str, str], list[float]]
"""Root mean square differences, one for each trial, by what was compared and how the function was written."""


def run(results: Results, options: Options) -> None:
    """How far one start function, written in its own way, rescaled and permuted, comes apart. A trial is a network."""
    seeds = derived_seeds(options.seed, ["meta", "targets", "contexts", "episodes"])
    trials, epochs = (2, 2) if options.quick else (TRIALS, EPOCHS)
    meta = draw_steps(64 if options.quick else 256, seeds["meta"])
    context, _ = draw_steps(20, seeds["targets"]).context_target(CONTEXT, seeds["contexts"])
    results.settings["parameterisations"] = {
        "hidden": list(HIDDEN),
        "activation": "relu",
        "factor": FACTOR,
        "inner_steps": INNER_STEPS,
        "inner_rate": INNER_RATE,
        "trials": trials,
        "epochs": epochs,
        "meta_functions": len(meta),
        "target_functions": len(context),
    }
    found: Distances = defaultdict(list)
    x = meta[0].x
    for trial in range(trials):
        network = Network(1, 1, seed=trial, hidden=HIDDEN, activation="relu")
        others = {"rescaled": rescaled(network, FACTOR), "permuted": permuted(network, trial)}
        if trial == 0:
            _note_curves(results, network, others, context, x)
        _without_training(found, network, others, context, x)
        _with_training(found, network, others, meta, context, x, epochs, seeds["episodes"])
    ids = tuple(f"network {trial}" for trial in range(trials))
    for (name, setting), distances in found.items():
        results.add(name, f"written = {setting}", Scores(ids, {"distance": torch.tensor(distances).double()}))


def _without_training(
    found: Distances, network: Network, others: dict[str, Network], context: Tasks, x: Float[Tensor, "n 1"]
) -> None:
    at = Tasks.from_inputs([x] * len(context))
    own = condition(_prior(network), context).at(at)
    for name, other in others.items():
        theirs = condition(_prior(other), context).at(at)
        found["start function", name].append(_distance(_values(network, x), _values(other, x)))
        found["maml adapted to a context", name].append(
            _distance(adapted(network, context, x), adapted(other, context, x))
        )
        found["posterior of the mean", name].append(_distance(own.mean, theirs.mean))
        found["evidence of the mean", name].append(_distance(own.evidence.total, theirs.evidence.total))
    middle = averaged(network, others["permuted"])
    halfway = (_values(network, x) + _values(others["permuted"], x)) / 2
    found["average of the parameters", "permuted"].append(_distance(_values(network, x), _values(middle, x)))
    found["average of the functions", "permuted"].append(_distance(_values(network, x), halfway))


def _with_training(
    found: Distances,
    network: Network,
    others: dict[str, Network],
    meta: Tasks,
    context: Tasks,
    x: Float[Tensor, "n 1"],
    epochs: int,
    seed: int,
) -> None:
    """One optimiser, the same episodes: how far apart do the learned functions end?"""
    mean = _values(learned_mean(network, meta, epochs, seed), x)
    maml = adapted(learned_start(network, meta, epochs, seed), context, x)
    for name, other in others.items():
        other_mean = _values(learned_mean(other, meta, epochs, seed), x)
        other_maml = adapted(learned_start(other, meta, epochs, seed), context, x)
        found["mean after training", name].append(_distance(mean, other_mean))
        found["maml after training", name].append(_distance(maml, other_maml))


def rescaled(network: Network, factor: float) -> Network:
    """The same function with one layer larger and the next one smaller: a ReLU passes positive factors on."""
    other = copy.deepcopy(network)
    first, second, _ = (layer for layer in other.layers if isinstance(layer, nn.Linear))
    with torch.no_grad():
        first.weight.mul_(factor)
        first.bias.mul_(factor)
        second.weight.div_(factor)
    return other


def permuted(network: Network, seed: int) -> Network:
    """The same function with its hidden units in another order."""
    other = copy.deepcopy(network)
    layers = [layer for layer in other.layers if isinstance(layer, nn.Linear)]
    generator = generator_of(seed)
    with torch.no_grad():
        for before, after in pairwise(layers):
            order = torch.randperm(before.out_features, generator=generator)
            before.weight.copy_(before.weight[order])
            before.bias.copy_(before.bias[order])
            after.weight.copy_(after.weight[:, order])
    return other


def averaged(first: Network, second: Network) -> Network:
    """The network halfway between two in parameter space."""
    other = copy.deepcopy(first)
    with torch.no_grad():
        for parameter, one, two in zip(other.parameters(), first.parameters(), second.parameters(), strict=True):
            parameter.copy_((one + two) / 2)
    return other


@torch.no_grad()
def adapted(network: Network, context: Tasks, x: Float[Tensor, "n 1"]) -> Float[Tensor, "m n"]:
    """What MAML's inner steps make of a network on each context."""
    start = Start(network, INNER_RATE, INNER_STEPS, learn_rates=False, first_order=False)
    given = context.x.view(len(context), -1, 1), context.y.view(len(context), -1, 1)
    parameters = vmap(start.adapt)(*given, torch.ones(given[0].shape[:2], dtype=torch.float64))
    found: Tensor = vmap(start.at, in_dims=(0, None))(parameters, x)
    return found[..., 0]


def learned_mean(network: Network, meta: Tasks, epochs: int, seed: int) -> Network:
    """The mean after so many epochs of Adam on the evidence, from this start."""
    prior = _prior(copy.deepcopy(network))
    loss = evidence_loss(prior, "task")
    make_updates("adam", prior, meta, loss, rate=RATE, batch_size=BATCH, seed=seed).run(epochs)
    assert isinstance(prior.mean, DeepMean)
    return prior.mean.network


def learned_start(network: Network, meta: Tasks, epochs: int, seed: int) -> Network:
    """MAML's start after so many epochs of Adam, from this start."""
    start = Start(copy.deepcopy(network), INNER_RATE, INNER_STEPS, learn_rates=False, first_order=False)
    MetaUpdates(start, RandomEpisodes(meta, BATCH, seed), RATE).run(epochs)
    return start.network


def _note_curves(
    results: Results, network: Network, others: dict[str, Network], context: Tasks, x: Float[Tensor, "n 1"]
) -> None:
    one = context.select([0])
    with torch.no_grad():
        results.curves |= {
            "parameters x": x[:, 0].numpy(),
            "parameters start": network(x)[:, 0].numpy(),
            "parameters context x": one.x[:, 0].numpy(),
            "parameters context y": one.y[:, 0].numpy(),
            "parameters average": averaged(network, others["permuted"])(x)[:, 0].numpy(),
        }
        for name, other in {"own": network, **others}.items():
            at = Tasks.from_inputs([x])
            results.curves[f"parameters maml {name}"] = adapted(other, one, x)[0].numpy()
            results.curves[f"parameters mean {name}"] = condition(_prior(other), one).at(at).mean[:, 0].numpy()


def _prior(network: Network) -> Prior:
    mean = DeepMean(1, 1, seed=0, hidden=HIDDEN, activation="relu")
    mean.network = network
    kernel = make_kernel("rbf", d=1, features=2, seed=0)
    return Prior(mean, kernel, NOISE, learn=["mean"])


@torch.no_grad()
def _values(network: Network, x: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
    values: Tensor = network(x)
    return values[:, 0]


def _distance(first: Tensor, second: Tensor) -> float:
    return float((first - second).detach().square().mean().sqrt())
