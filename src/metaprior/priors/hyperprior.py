"""`p(ψ)`: what is believed of a prior's own parameters before any task is seen (eq:hyper-posterior)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.errors import OptionError
from metaprior.priors.networks import Network
from metaprior.priors.prior import Prior

SPREAD = 3.0
"""Of parameters that belong to no network (lengthscales, variances, noise), before they are made positive: wide, since
they are few and every point of every task speaks of them."""


class HyperPrior:
    """Independent Gaussians. Weights and biases of networks have the law they start from, of mean 0; the other
    parameters lie around their start.

    width: times the deviations; a narrower one holds the networks closer to a constant. anchored: networks lie around
    their own start too, as the members of a hyper-posterior do (see `HyperPosterior`).
    """

    def __init__(self, prior: Prior, *, width: float = 1.0, anchored: bool = False) -> None:
        if not 0 < width < math.inf:
            raise OptionError(f"hyper_prior={width}: give a finite width above 0, or None for no hyper-prior.")
        self.width = width
        spreads: dict[int, Tensor] = {}
        for module in prior.modules():
            if isinstance(module, Network):
                spreads |= {id(parameter): spread for parameter, spread in module.spreads()}
        self.parameters = prior.learned_parameters()
        self.centres, self.scales = [], []
        for parameter in self.parameters:
            start, spread = parameter.detach().clone(), spreads.get(id(parameter))
            around_start = anchored or spread is None
            self.centres.append(start if around_start else torch.zeros_like(start))
            self.scales.append(width * (SPREAD if spread is None else spread.to(start)))

    def log_density(self) -> Float[Tensor, ""]:
        """`log p(ψ)` at the parameters as they are, up to a constant."""
        total = torch.zeros((), dtype=torch.float64)
        for parameter, centre, scale in zip(self.parameters, self.centres, self.scales, strict=True):
            total = total.to(parameter.device) - 0.5 * ((parameter - centre) / scale).square().sum().double()
        return total
