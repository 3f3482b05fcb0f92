"""Functional PCA as a Gaussian process: the proposition as an identity, and components of real curves."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.data import load_elnino
from metaprior.inference import condition
from metaprior.methods import FPCA
from metaprior.paper.options import Options, derived_seeds
from metaprior.priors import Basis, BasisKernel, BasisMean, FourierBasis, PolynomialBasis, Prior, SplineBasis
from metaprior.report import Results
from metaprior.scoring import Scores, evaluate
from metaprior.seeds import generator_of
from metaprior.tasks import Tasks

BASES: dict[str, Basis] = {
    "splines": SplineBasis(0.0, 1.0, [0.2, 0.4, 0.6, 0.8]),
    "polynomials": PolynomialBasis(0.0, 1.0, 8),
    "Fourier": FourierBasis(0.0, 1.0, 9),
}
NOISES = (1e-6, 1e-3, 1.0)
POINTS = (3, 20)
"""Fewer points than basis functions, and more."""

SIZES = (1, 2, 3, 6)
"""Known months of a new year."""

LAST = 20
"""Years at the end of the record that are predicted from the years before."""

SHOWN = 4


def run(results: Results, options: Options) -> None:
    """The identity on random problems, then sea-surface temperatures: components, and years from a few months."""
    seeds = derived_seeds(options.seed, ["identity", "contexts"])
    trials = 5 if options.quick else 30
    results.settings["functional PCA"] = {"trials": trials, "noise_variances": list(NOISES), "points": list(POINTS)}
    for name, basis in BASES.items():
        found = torch.stack([identity_gap(basis, seeds["identity"] + trial) for trial in range(trials)])
        ids = tuple(f"trial {i}" for i in range(trials))
        results.add("posterior mean", f"basis = {name}", Scores(ids, {"relative_error": found[:, 0]}))
        results.add("posterior covariance", f"basis = {name}", Scores(ids, {"relative_error": found[:, 1]}))
    _years(results, seeds["contexts"])


def identity_gap(basis: Basis, seed: int) -> Float[Tensor, 2]:
    """The largest relative differences of mean and covariance between the GP and the mixed model, over the settings."""
    generator = generator_of(seed)
    worst = torch.zeros(2, dtype=torch.float64)
    for n in POINTS:
        x, at = (torch.rand(count, 1, generator=generator, dtype=torch.float64) for count in (n, 5))
        y, theta = (torch.randn(count, 1, generator=generator, dtype=torch.float64) for count in (n, basis.size))
        for noise in NOISES:
            prior = Prior(BasisMean(basis, theta), BasisKernel(basis), noise, learn=())
            gp = condition(prior, Tasks.from_pairs([(x, y)])).at(Tasks.from_inputs([at]))
            mean, covariance = mixed_model(basis, theta, noise, x, y, at)
            scale = basis(at).square().sum(1).max()  # of the prior covariance, from which the posterior is left over
            gaps = [(gp.mean - mean).abs().max() / mean.abs().max()]
            gaps.append((gp.covariances()[0][0] - covariance).abs().max() / scale)
            worst = torch.maximum(worst, torch.stack(gaps))
    return worst


def mixed_model(
    basis: Basis, theta: Float[Tensor, "q 1"], noise: float, x: Tensor, y: Tensor, at: Tensor
) -> tuple[Float[Tensor, "k 1"], Float[Tensor, "k k"]]:
    """`B* β̂` and `σ²I + B* Γ̂ B*ᵀ` (eq:fpca_mu, eq:fpca_sigma)."""
    B, B_star, eye = basis(x), basis(at), torch.eye(basis.size, dtype=torch.float64)
    beta = theta + torch.linalg.solve(B.mT @ B + noise * eye, B.mT @ (y - B @ theta))
    gamma = torch.linalg.inv(eye + B.mT @ B / noise)
    return B_star @ beta, noise * torch.eye(len(at), dtype=torch.float64) + B_star @ gamma @ B_star.mT


def _years(results: Results, seed: int) -> None:
    """Years of sea-surface temperature as curves: components of the early ones, prediction of the late ones."""
    years = load_elnino()
    early, late = years.select(range(len(years) - LAST)), years.select(range(len(years) - LAST, len(years)))
    fpca = FPCA().fit(early)
    results.settings["functional PCA"] |= {
        "curves": len(early),
        "basis_functions": fpca.basis_.size,
        "components": fpca.rank_,
        "explained": [round(share, 4) for share in fpca.explained_.tolist()],
    }
    for n in SIZES:
        context, target = late.context_target(n, seed + n)
        results.add("fpca", f"known months = {n}", _some(evaluate(fpca, context, target)))
    x = torch.linspace(1, 12, 111, dtype=torch.float64)[:, None]
    context, target = late.context_target(3, seed + 3)
    shown = late.ids[:SHOWN]
    posterior = fpca.predict(context, Tasks.from_inputs([x] * len(late), late.ids))
    lower, upper = posterior.interval(0.9)
    results.curves |= {
        "fpca x": x[:, 0].numpy(),
        "fpca mean": fpca.mean_function(x)[:, 0].numpy(),
        "fpca functions": fpca.eigenfunctions(x).numpy(),
        "fpca eigenvalues": fpca.eigenvalues_[:, 0].numpy(),
        "fpca scores": fpca.scores(early).mean[..., 0].numpy(),
        "fpca curves": early.y.view(len(early), -1).numpy(),
    }
    for j, name in enumerate(shown):
        rows, label = slice(j * len(x), (j + 1) * len(x)), f"fpca year {name}"
        bands = {"mean": posterior.mean, "lower": lower, "upper": upper}
        results.curves |= {f"{label} {key}": values[rows, 0].numpy() for key, values in bands.items()}
        for key, (_, at, y) in {"context": context[j], "target": target[j]}.items():
            results.curves |= {f"{label} {key} x": at[:, 0].numpy(), f"{label} {key} y": y[:, 0].numpy()}


def _some(found: Scores) -> Scores:
    return Scores(found.ids, {key: found.values[key] for key in ("mse", "coverage_90")})
