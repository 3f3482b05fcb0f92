"""One table of problems for many tests, and the slow obvious version of everything fast."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from torch.distributions import MultivariateNormal

from metaprior import Prior, Tasks, make_prior
from metaprior.priors import FixedNoise, LearnedNoise


def ragged(d=1, p=1, count=12, seed=0, largest=9) -> Tasks:
    """Tasks of unequal size with inputs of their own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, count)
    return Tasks.from_pairs([(rng.normal(size=(n, d)), rng.normal(size=(n, p))) for n in sizes])


def shared(d=1, p=1, count=9, n=6, seed=0) -> Tasks:
    """Tasks with the same inputs, each in an order of its own."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    orders = [rng.permutation(n) for _ in range(count)]
    return Tasks.from_pairs([(x[order], rng.normal(size=(n, p))) for order in orders])


def mixed(d=1, p=1, seed=0) -> Tasks:
    """Two groups with shared inputs among ragged tasks, shuffled."""
    parts = [shared(d, p, 6, 5, seed), shared(d, p, 4, 3, seed + 1), ragged(d, p, 10, seed + 2)]
    pairs = [(task.x, task.y) for part in parts for task in part]
    order = np.random.default_rng(seed).permutation(len(pairs))
    return Tasks.from_pairs([pairs[i] for i in order], ids=[f"task {i}" for i in order])


def periodic_plus_rbf() -> PeriodicKernel:
    return (ScaleKernel(PeriodicKernel()) + ScaleKernel(RBFKernel())).double()


def sine(x):
    return x.sum(-1).sin()


PRIORS = {
    "vanilla": lambda d, p: make_prior("zero", "rbf", d=d, p=p, seed=0),
    "constant mean, Matérn": lambda d, p: make_prior("constant", "matern", d=d, p=p, seed=1),
    "linear mean, fixed noise": lambda d, p: make_prior("linear", "rbf", d=d, p=p, noise=0.05, seed=2),
    "learned kernel": lambda d, p: make_prior("zero", "deep", d=d, p=p, hidden=(8, 4), seed=3),
    "learned mean": lambda d, p: make_prior("deep", "rbf", d=d, p=p, hidden=(8, 4), activation="tanh", seed=4),
    "learned both": lambda d, p: make_prior("deep", "deep", d=d, p=p, hidden=(8,), activation="relu", seed=5),
    "any GPyTorch kernel": lambda d, p: make_prior("deep", periodic_plus_rbf(), d=d, p=p, hidden=(5,), seed=6),
}


def perturbed(prior: Prior, seed=0) -> Prior:
    """The same prior away from its initial parameters, so that nothing is zero or one by default."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return prior


def slow_evidence(prior: Prior, tasks: Tasks) -> torch.Tensor:
    """The evidence of each task, one after another, through torch's own multivariate normal."""
    found = []
    for task in tasks:
        z = prior.at(task.x)
        A = prior.covariance(z, z) + torch.diag(z.noise)
        found.append(MultivariateNormal(z.mean.mT, A).log_prob(task.y.mT).sum())
    return torch.stack(found)


def slow_posterior(prior: Prior, context, target):
    """eq:gp-posterior as it stands in the paper, with explicit inverses, for one task: m* and K*."""
    with torch.no_grad():
        z, star = prior.at(context.x), prior.at(target.x)
        inverse = torch.linalg.inv(prior.covariance(z, z) + torch.diag(z.noise))
        cross = prior.covariance(star, z)
        mean = star.mean + cross @ inverse @ (context.y - z.mean)
        return mean, prior.covariance(star, star) - cross @ inverse @ cross.mT


def known_rbf(variance=1.3, lengthscale=0.7, noise: float | LearnedNoise | FixedNoise = 0.1, mean="zero", p=1) -> Prior:
    kernel = ScaleKernel(RBFKernel()).double()
    # as float64 tensors: GPyTorch rounds plain numbers to float32
    kernel.outputscale = torch.tensor(variance, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return make_prior(mean, kernel, d=1, p=p, noise=noise, hidden=(8, 4), seed=0)
