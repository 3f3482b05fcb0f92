"""The counter-example to Assumption 1: a function that is zero where it was seen, and not zero elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from jaxtyping import Float
from torch import Tensor

from metaprior.inference import condition
from metaprior.paper.options import Options, derived_seeds
from metaprior.priors import DeepKernel, FixedMean, Prior
from metaprior.report import Results
from metaprior.scoring import Scores
from metaprior.seeds import generator_of
from metaprior.tasks import Tasks

KERNELS: dict[str, Callable[[int], Kernel]] = {
    "RBF": lambda seed: RBFKernel(),
    "Matérn 1/2": lambda seed: MaternKernel(nu=0.5),
    "Matérn 5/2": lambda seed: MaternKernel(nu=2.5),
    "rational quadratic": lambda seed: RQKernel(),
    "periodic": lambda seed: PeriodicKernel(),
    "linear": lambda seed: LinearKernel(),
    "deep": lambda seed: DeepKernel(1, 2, seed=seed, hidden=(16, 8)),
}
"""The kernels tried; the deep one has random weights."""

SIZES = (1, 2, 4, 8, 16, 32, 64)
ENDS = 2.0
FLAT = 1.0


def run(results: Results, options: Options) -> None:
    """For every kernel the posterior from points where the function is zero; then from points anywhere."""
    seeds = derived_seeds(options.seed, ["points", "kernels"])
    trials = 10 if options.quick else 50
    results.settings["counter-example"] = {"trials": trials, "context": 5, "noise_variance": 0.0}
    at = torch.linspace(-ENDS, ENDS, 81, dtype=torch.float64)[:, None]
    where_zero = draw_points(trials, 5, FLAT, seeds["points"])
    for kernel in KERNELS:
        for name in ("zero mean", "true mean"):
            mean, _ = posterior(name, kernel, where_zero, at, seeds["kernels"])
            errors = (mean - truth(at)[:, 0]).abs()
            found = {"largest_posterior_mean": mean.abs().amax(1)} if name == "zero mean" else {}
            _add(results, name, f"kernel = {kernel}", found | {"largest_error": errors.amax(1)})
    _note_curves(results, where_zero, at, seeds["kernels"])
    for n in SIZES[:4] if options.quick else SIZES:
        anywhere = draw_points(trials, n, ENDS, seeds["points"] + n)
        for name in ("zero mean", "true mean"):
            mean, _ = posterior(name, "Matérn 5/2", anywhere, at, seeds["kernels"])
            _add(results, name, f"points anywhere = {n}", {"mse": (mean - truth(at)[:, 0]).square().mean(1)})


def truth(x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n 1"]:
    """`m_true`: zero on [−1, 1], a hump on the left and a dip on the right."""
    beyond = (x.abs() - FLAT).clamp(min=0.0)
    return -torch.sign(x) * (3 * beyond).sin().square()


def draw_points(trials: int, n: int, reach: float, seed: int) -> Float[Tensor, "trials n 1"]:
    """Points of [−reach, reach], one at random in each of n equal parts."""
    draw = torch.rand(trials, n, 1, generator=generator_of(seed), dtype=torch.float64)
    return reach * (2 * (torch.arange(n)[:, None] + draw) / n - 1)


def posterior(
    mean: str, kernel: str, x: Float[Tensor, "t n 1"], at: Float[Tensor, "k 1"], seed: int
) -> tuple[Float[Tensor, "t k"], Float[Tensor, "t k"]]:
    """Mean and deviation at some points, of each trial, with the noiseless truth observed at x."""
    own = FixedMean(truth) if mean == "true mean" else FixedMean(torch.zeros_like)
    prior = Prior(own, KERNELS[kernel](seed).double(), 0.0, learn=())
    context = Tasks.from_pairs([(points, truth(points)) for points in x])
    found = condition(prior, context).at(Tasks.from_inputs([at] * len(x))).function
    return found.mean.reshape(len(x), -1), found.sd.reshape(len(x), -1)


def _add(results: Results, name: str, setting: str, values: dict[str, Tensor]) -> None:
    count = len(next(iter(values.values())))
    results.add(name, setting, Scores(tuple(f"trial {i}" for i in range(count)), values))


def _note_curves(results: Results, x: Float[Tensor, "t n 1"], at: Float[Tensor, "k 1"], seed: int) -> None:
    results.curves |= {
        "counter x": at[:, 0].numpy(),
        "counter truth": truth(at)[:, 0].numpy(),
        "counter context": x[0, :, 0].numpy(),
    }
    for kernel in KERNELS:
        for name in ("zero mean", "true mean"):
            mean, sd = posterior(name, kernel, x[:1], at, seed)
            results.curves[f"counter {name} {kernel} mean"] = mean[0].numpy()
            results.curves[f"counter {name} {kernel} sd"] = sd[0].numpy()
