"""How fast is the gradient of the summed evidence? Ours against GPyTorch's batch mode, in one run, alternating.

    make bench

The tasks: 10,000 step functions on one grid of 50 points; the priors `vanilla` and `learned both`. GPyTorch takes
64 tasks at a time (its batch mode, 64 × 50 × 50). Reported: tasks per second by wall clock and by process time,
medians of alternating repetitions; and what either has to compute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import gpytorch
import torch

from metaprior import CONFIGURATIONS, Prior, make_prior
from metaprior.inference import summed_evidence
from metaprior.paper.experiments.step import draw_steps
from metaprior.priors.means import mean_values
from metaprior.tasks import Batch, Tasks, batches
from metaprior.tasks.batches import padded

COUNT, BATCH, REPETITIONS = 10_000, 64, 30


class BatchGP(gpytorch.models.ExactGP):  # type: ignore[misc]
    """GPyTorch's exact GP in batch mode with our mean and kernel."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.Likelihood, prior: Prior):
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = prior.mean, prior.kernel

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(mean_values(self.mean, x)[..., 0], self.kernel(x))


def ours(prior: Prior, tasks: Tasks, lay_out: Callable[[Tasks], Sequence[Batch]]) -> Callable[[], None]:
    laid_out = lay_out(tasks)

    def gradient() -> None:
        prior.zero_grad()
        (-summed_evidence(prior, laid_out, tasks.ids).total).backward()  # type: ignore[no-untyped-call]

    return gradient


def gpytorch_batch(prior: Prior, tasks: Tasks) -> Callable[[], None]:
    x, y = tasks.x.reshape(len(tasks), -1, 1), tasks.y.reshape(len(tasks), -1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = BatchGP(x, y, likelihood, prior).double().train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def gradient() -> None:
        model.zero_grad()
        (-mll(model(x), y).sum()).backward()

    return gradient


def measure(contenders: dict[str, tuple[Callable[[], None], int]]) -> dict[str, tuple[float, float]]:
    """Tasks per second by wall clock and by process time: medians over alternating repetitions."""
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(REPETITIONS + 3):
        for name, (run, count) in contenders.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            if repetition >= 3:  # the first rounds warm up
                wall[name].append(count / (time.perf_counter() - start))
                cpu[name].append(count / (time.process_time() - start_cpu))
    return {name: (statistics.median(wall[name]), statistics.median(cpu[name])) for name in contenders}


def compare(method: str, tasks: Tasks) -> None:
    few = tasks.select(range(BATCH))
    prior = make_prior(*CONFIGURATIONS[method], d=1, seed=0)
    names = {
        "ours, 10,000 tasks at once": (ours(prior, tasks, batches), COUNT),
        "ours, 64 tasks padded": (ours(prior, few, padded), BATCH),
        "GPyTorch batch mode, 64 tasks": (gpytorch_batch(prior, few), BATCH),
    }
    found = measure(names)
    peer = found["GPyTorch batch mode, 64 tasks"]
    print(f"\n{method:32}{'tasks/s':>14}{'ratio':>9}{'tasks/cpu-s':>14}{'ratio':>9}")
    for name, (wall, cpu) in found.items():
        print(f"{name:32}{wall:14,.0f}{wall / peer[0]:8.0f}×{cpu:14,.0f}{cpu / peer[1]:8.0f}×")


def main() -> None:
    print(f"Full gradient of the summed evidence, 50 points a task, {torch.get_num_threads()} threads.")
    tasks = draw_steps(COUNT, seed=0)
    for method in ("vanilla", "learned both"):
        compare(method, tasks)
    print(f"\nfactorisations of 50 × 50 for {COUNT:,} tasks: ours 1, GPyTorch {COUNT:,}")
    print(f"points each network sees for {COUNT:,} tasks: ours 50, GPyTorch {COUNT * 50:,}")


if __name__ == "__main__":
    main()
