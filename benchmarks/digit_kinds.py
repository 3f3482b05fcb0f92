"""Do three pixels tell a digit's kind? One Gaussian for each of the ten digits, with labels, against one for all.

    python benchmarks/digit_kinds.py --data FOLDER [--pixels 3]

Both know the exact mean and covariance of the first 55,000 training images; the last 5,000 are completed from random
pixels. Labelled kinds are what a mixture could find at best if its kinds were the digits.
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


def completed(training: Tensor, test: Tensor, known: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The mean of each image given its known pixels, and the evidence of these up to a constant."""
    mean, C = training.mean(0), torch.cov(training.T)
    A = C[known[:, :, None], known[:, None, :]] + noise * torch.eye(known.shape[1], dtype=torch.float64)
    residual = (test.gather(1, known) - mean[known])[..., None]
    weights = torch.linalg.solve(A, residual)
    evidence = -0.5 * ((residual * weights).sum((1, 2)) + torch.logdet(A))
    return mean + torch.einsum("ikj,ik->ij", C[known], weights[..., 0]), evidence


if __name__ == "__main__":
    main()
