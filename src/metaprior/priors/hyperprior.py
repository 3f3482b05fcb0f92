"""`p(ψ)`: what is believed of a prior's own parameters before any task is seen (eq:hyper-posterior)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.errors import OptionError
from metaprior.priors.networks import Network, Standardised
from metaprior.priors.prior import Prior

SPREAD = 3.0
"""Of parameters that belong to no network (lengthscales, variances, noise), before they are made positive: wide, since
they are few and every point of every task speaks of them."""


class HyperPrior:
    """Independent Gaussians. Weights and biases of networks have the law they start from, of mean 0; the other
    parameters lie around their start.

    The law of a network is that of its parameters for standardised inputs: where the inputs themselves lie does not
    matter. width: times the deviations; a narrower one holds the networks closer to a constant. anchored: networks lie
    around their own start too, as the members of a hyper-posterior do (see `HyperPosterior`).
    """

    def __init__(self, prior: Prior, *, width: float = 1.0, anchored: bool = False) -> None:
        if not 0 < width < math.inf:
            raise OptionError(f"hyper_prior={width}: give a finite width above 0, or None for no hyper-prior.")
        self.width = width
        self._learned = prior.learned_parameters()
        self._networks = [module for module in prior.modules() if isinstance(module, Network)]
        of_networks = {id(one.parameter) for network in self._networks for one in network.standardised()}
        self.centres = []
        for one in self.standardised():
            around_start = anchored or id(one.parameter) not in of_networks
            start = one.value.detach().clone()
            self.centres.append(start if around_start else torch.zeros_like(start))

    def log_density(self) -> Float[Tensor, ""]:
        """`log p(ψ)` at the parameters as they are, up to a constant."""
        total = torch.zeros((), dtype=torch.float64)
        for one, centre in zip(self.standardised(), self.centres, strict=True):
            scaled = (one.value - centre) / (self.width * one.spread)
            total = total.to(one.value.device) - 0.5 * scaled.square().sum()
        return total

    def standardised(self) -> list[Standardised]:
        """The parameters that are learned, those of networks as for standardised inputs."""
        known = {id(one.parameter): one for network in self._networks for one in network.standardised()}
        return [known.get(id(parameter)) or _plain(parameter) for parameter in self._learned]


def _plain(parameter: nn.Parameter) -> Standardised:
    """A parameter that belongs to no network."""
    return Standardised(parameter, parameter.double(), SPREAD)
