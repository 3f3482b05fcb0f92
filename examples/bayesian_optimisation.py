"""What a meta-learned prior is worth in Bayesian optimisation: find a good learning rate in a few trials.

    pip install 'metaprior[botorch]'
    python examples/bayesian_optimisation.py --out docs/figures/bayesian-optimisation.png

A task is the validation loss of one model against the logarithm of its learning rate: a valley whose place, depth and
width differ from model to model, and which rises steeply where training diverges. Past models were tried at eight rates
each. A new one is optimised by expected improvement, with the learned prior and with BoTorch's default one, from the
same two first trials, over 20 new models.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure
from torch import Tensor

from metaprior import MetaGP, Tasks

RATES = torch.linspace(-5, 0, 201, dtype=torch.float64)[:, None]
"""Logarithms (base 10) of the learning rates to choose from."""

TRIALS, SEEDS, PAST = 8, 20, 150

Loss = Callable[[np.ndarray], np.ndarray]


def new_model(rng: np.random.Generator) -> Loss:
    """A model's loss against the logarithm of its learning rate."""
    best, width, floor = rng.normal(-2.6, 0.5), rng.uniform(0.8, 1.6), rng.uniform(0.2, 0.6)
    cliff = best + rng.uniform(0.4, 1.0)
    return lambda x: floor + 0.3 * ((x - best) / width) ** 2 + 1.5 / (1 + np.exp(-8 * (x - cliff)))


def learned_prior(rng: np.random.Generator) -> MetaGP:
    past = []
    for _ in range(PAST):
        loss, x = new_model(rng), np.sort(rng.uniform(-5, 0, 8))
        past.append((x, -loss(x) + rng.normal(0, 0.01, 8)))
    return MetaGP("deep", "deep", progress=False).fit(Tasks.from_pairs(past))


def default_model(x: Tensor, y: Tensor) -> Any:
    """BoTorch's own: its kernel and scaling fitted on the trials so far."""
    model = SingleTaskGP(x, y, input_transform=Normalize(1, bounds=RATES[[0, -1]]))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def regrets(loss: Loss, model_of: Callable[[Tensor, Tensor], Any], x: Tensor) -> list[float]:
    """How far the best trial so far is from the best rate, after each trial from the second one on."""
    best, found = float(loss(RATES[:, 0].numpy()).min()), []
    while len(x) <= TRIALS:
        y = -torch.from_numpy(loss(x.numpy()))
        found.append(float(-y.max()) - best)
        improvement = LogExpectedImprovement(model_of(x, y), best_f=float(y.max()))
        with torch.no_grad():
            value = improvement(RATES[:, None, :])
        x = torch.cat([x, RATES[int(value.argmax())][None]])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bayesian-optimisation.png"))
    arguments = parser.parse_args()
    gp = learned_prior(np.random.default_rng(0))
    makers: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "meta-learned prior": gp.to_botorch,
        "BoTorch's default prior": default_model,
    }
    curves: dict[str, list[list[float]]] = {name: [] for name in makers}
    for seed in range(SEEDS):
        rng = np.random.default_rng(1000 + seed)
        loss, first = new_model(rng), torch.from_numpy(rng.uniform(-5, 0, (2, 1)))
        for name, make in makers.items():
            curves[name].append(regrets(loss, make, first))
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for (name, found), colour in zip(curves.items(), ("#0072b2", "#d55e00"), strict=True):
        values = np.array(found)
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
        trials = np.arange(2, TRIALS + 1)
        axes.fill_between(trials, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(trials, middle, "o-", color=colour, label=name)
        shown = ", ".join(f"{middle[n - 2]:.4f}" for n in (3, 5, TRIALS))
        print(f"{name}: median regret after 3, 5 and {TRIALS} trials: {shown}")
    axes.set(xlabel="trials of the new model", ylabel="regret (loss above the best)")
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(bottom=0)
    axes.set_title(f"Learning rates for {SEEDS} new models: median and quartiles", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
