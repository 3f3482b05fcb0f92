"""Seeds: every random choice takes one, and the global generator is never touched."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import torch

from metaprior.errors import OptionError


def generator_of(seed: SupportsIndex) -> torch.Generator:
    """A generator that starts from this seed."""
    number = operator.index(seed)
    if not 0 <= number < 2**63:
        raise OptionError(f"seed {number}: give a whole number from 0 to 2**63 - 1.")
    return torch.Generator().manual_seed(number)
