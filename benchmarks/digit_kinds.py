"""Do three pixels tell a digit's kind, and how much could anything tell from them?

    python benchmarks/digit_kinds.py --data FOLDER [--pixels 3]

The last 5,000 training images are completed from random pixels by what the other 55,000 show:

- one Gaussian with their exact mean and covariance: the linear limit;
- one Gaussian for each of the ten digits, with labels: what a mixture could find at best if its kinds were the digits;
- the average of the images that are alike at the known pixels, after the linear limit is taken away. It assumes nothing
  of the images, and with few pixels and 55,000 of them it comes close to the conditional mean itself, which no
  predictor can beat.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from metaprior.data import load_mnist
from metaprior.seeds import generator_of

TRAINING = 55_000
NOISES = (1e-3, 1e-2, 3e-2, 6e-2)
ALIKE = (0.02, 0.03, 0.05, 0.1, 0.2)
"""Standard deviations of a pixel's value within which two images are alike."""

AT_ONCE = 50
"""Test images for which the alike ones are sought together."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds mnist/")
    parser.add_argument("--pixels", type=int, default=3)
    arguments = parser.parse_args()
    found = load_mnist(arguments.data)
    images, labels = found.train.flatten(1).double() / 255, torch.as_tensor(found.train_labels)
    training, test = images[:TRAINING], images[TRAINING:]
    known = torch.rand(test.shape, generator=generator_of(0)).argsort(1)[:, : arguments.pixels]
    unseen = torch.ones_like(test).scatter(1, known, 0.0)
    for noise in NOISES:
        linear, _ = completed(training, test, known, noise)
        means, evidences = zip(
            *(completed(training[labels[:TRAINING] == c], test, known, noise) for c in range(10)), strict=True
        )
        shares = torch.bincount(labels[:TRAINING].long(), minlength=10).double().log()
        weights = torch.softmax(torch.stack(evidences, 1) + shares, 1)
        by_kind = (torch.stack(means, 1) * weights[..., None]).sum(1)
        errors = [float((unseen * (mean - test).square()).sum() / unseen.sum()) for mean in (linear, by_kind)]
        ratio = errors[1] / errors[0]
        print(f"noise {noise:g}: one for all {errors[0]:.4f}, one for each digit {errors[1]:.4f}, {ratio:.3f} ×")
    for alike in ALIKE:
        error = float((unseen * (like_it(training, test, known, alike) - test).square()).sum() / unseen.sum())
        print(f"alike within {alike:g}: {error:.4f}", flush=True)


def completed(training: Tensor, test: Tensor, known: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The mean of each image given its known pixels, and the evidence of these up to a constant."""
    mean, C = training.mean(0), torch.cov(training.T)
    A = C[known[:, :, None], known[:, None, :]] + noise * torch.eye(known.shape[1], dtype=torch.float64)
    residual = (test.gather(1, known) - mean[known])[..., None]
    weights = torch.linalg.solve(A, residual)
    evidence = -0.5 * ((residual * weights).sum((1, 2)) + torch.logdet(A))
    return mean + torch.einsum("ikj,ik->ij", C[known], weights[..., 0]), evidence


def like_it(training: Tensor, test: Tensor, known: Tensor, alike: float, noise: float = 1e-2) -> Tensor:
    """Each image as the linear limit has it, plus what that missed on average where the known pixels are alike."""
    C = torch.cov(training.T)
    pixels = torch.eye(known.shape[1], dtype=torch.float64)
    single, found = training.float(), []
    for some, at in zip(test.split(AT_ONCE), known.split(AT_ONCE), strict=True):
        slopes = torch.linalg.solve(C[at[:, :, None], at[:, None, :]] + noise * pixels, C[at])
        seen, theirs = some.gather(1, at), single[:, at]
        weights = torch.softmax(-0.5 * ((theirs - seen) / alike).square().sum(-1).T, 1).float()
        average, their_average = (weights @ single).double(), torch.einsum("ni,ink->nk", weights, theirs).double()
        found.append(average + torch.einsum("nk,nkj->nj", seen - their_average, slopes))
    return torch.cat(found)


if __name__ == "__main__":
    main()
