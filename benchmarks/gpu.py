"""What a GPU is worth: gradients against GPyTorch's batch mode, ragged tasks, and predictions, in one run.

    python benchmarks/gpu.py

Medians of alternating repetitions. Beside each gradient: how far it is from the limit, which is the larger of its
arithmetic and of the bytes that it must move.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import gpytorch
import numpy as np
import torch

from evidence import BatchGP
from metaprior import CONFIGURATIONS, MetaGP, Prior, Tasks, make_prior
from metaprior.learning import LBFGS, evidence_loss, make_updates

TASKS, POINTS, REPETITIONS = 4_096, 50, 30
GEMM = {torch.float64: 56e12, torch.float32: 51e12}
COPY = 4.3e12


def drawn(count: int, sizes: Callable[[np.random.Generator], int]) -> Tasks:
    """Waves, each at places of its own."""
    random, pairs = np.random.default_rng(0), []
    for _ in range(count):
        x = random.uniform(-3, 3, sizes(random))
        pairs.append((x, np.sin(2 * x + random.normal()) + 0.1 * random.normal(size=len(x))))
    return Tasks.from_pairs(pairs)


def ours(prior: Prior, tasks: Tasks) -> Callable[[], object]:
    updates = make_updates("lbfgs", prior, tasks, evidence_loss(prior, "task"), rate=1.0, batch_size=None, seed=0)
    assert isinstance(updates, LBFGS)
    return lambda: updates.evaluate(updates.objective)


def gpytorch_batch(prior: Prior, tasks: Tasks) -> Callable[[], object]:
    like = prior.like
    x, y = tasks.x.reshape(len(tasks), -1, 1).to(like), tasks.y.reshape(len(tasks), -1).to(like)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(like)
    model = BatchGP(x, y, likelihood, prior).to(like).train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def gradient() -> None:
        model.zero_grad()
        (-mll(model(x), y).sum()).backward()

    return gradient


def measured(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each, what the GPU still has to do included."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(REPETITIONS + 5):
        for name, run in contenders.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if repetition >= 5:
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def limit(dtype: torch.dtype) -> float:
    """Seconds that a gradient takes at least: `n³` operations a task, its covariance read and its inverse written."""
    operations, size = TASKS * POINTS**3, torch.finfo(dtype).bits // 8
    return max(operations / GEMM[dtype], 2 * TASKS * POINTS**2 * size / COPY)


def gradients(tasks: Tasks) -> None:
    print(f"\n{'gradient, 4,096 × 50':24}{'ours':>14}{'GPyTorch':>14}{'ratio':>8}{'limit':>10}{'× limit':>9}")
    for method in ("vanilla", "learned both"):
        for dtype in (torch.float64, torch.float32):
            prior = make_prior(*CONFIGURATIONS[method], d=1, seed=0).to("cuda", dtype)
            contenders = {"ours": ours(prior, tasks), "GPyTorch": gpytorch_batch(prior, tasks)}
            if method == "learned both" and dtype == torch.float64:  # as `auto` has it for many tasks
                mixed = make_prior(*CONFIGURATIONS[method], d=1, seed=0, network_dtype=torch.float32).to("cuda")
                contenders["networks float32"] = ours(mixed, tasks)
            found = measured(contenders)
            other, least = found.pop("GPyTorch"), limit(dtype)
            for who, one in found.items():
                name = f"{method}, {str(dtype).removeprefix('torch.')}" if who == "ours" else f"  {who}"
                print(
                    f"{name:24}{TASKS / one:12,.0f}/s{TASKS / other:12,.0f}/s{other / one:7.2f}×"
                    f"{least * 1e3:8.2f}ms{one / least:9.0f}"
                )


def ragged() -> None:
    tasks = drawn(3_936, lambda random: int(random.integers(4, 29)))
    for dtype in (torch.float32, torch.float64):
        prior = make_prior("deep", "deep", d=1, seed=0).to("cuda", dtype)
        seconds = measured({"ours": ours(prior, tasks)})["ours"]
        print(f"ragged, 3,936 of 4–28 points, {dtype}: {len(tasks) / seconds:,.0f} tasks/s")


def predictions() -> None:
    past = drawn(200, lambda random: 20)
    contexts = drawn(100_000, lambda random: 10)
    at = np.linspace(-3, 3, 50)
    for device in ("cuda", "cpu"):
        gp = MetaGP("deep", "deep", max_epochs=5, device=device, progress=False).fit(past)
        some = contexts if device == "cuda" else contexts.select(range(10_000))

        def predict(gp: MetaGP = gp, some: Tasks = some) -> None:
            posterior = gp.predict(some, at)
            _ = posterior.mean, posterior.interval(0.9)

        predict()
        start = time.perf_counter()
        predict()
        print(f"predict, 10 known, 50 ahead, {device}: {len(some) / (time.perf_counter() - start):,.0f} tasks/s")


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no GPU here.")
    print(torch.cuda.get_device_name(), torch.__version__, gpytorch.__version__)
    gradients(drawn(TASKS, lambda random: POINTS))
    ragged()
    predictions()


if __name__ == "__main__":
    main()
