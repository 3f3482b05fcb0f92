"""Seeds: every random choice takes one, and the global generator is never touched."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
import torch

from metaprior.errors import OptionError

LIMIT = 2**63
"""Seeds are below this."""


def generator_of(seed: SupportsIndex) -> torch.Generator:
    """A generator that starts from this seed."""
    return torch.Generator().manual_seed(_checked(seed))


def child_seed(seed: SupportsIndex, *path: SupportsIndex) -> int:
    """A seed for a part of something random: the third member is `child_seed(seed, 2)`, its second draw `(seed, 2, 1)`.

    Other seeds and other paths give streams that have nothing to do with each other, as sums such as `seed + k` do not:
    there the second part of one seed is the first part of the next.
    """
    numbers = [len(path), _checked(seed), *map(_checked, path)]
    # two words each: numpy takes a number for as many words as it needs, and 2³² would be 0 followed by 1
    words = [word for number in numbers for word in (number % 2**32, number >> 32)]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) >> 2


def affine_seed(seed: SupportsIndex, *, factor: int = 1, offset: int = 0) -> int:
    """`factor · seed + offset`, or a child seed where that would be above the highest seed.

    For what was made from such numbers before there were child seeds, and is to stay as it is.
    """
    number = factor * _checked(seed) + offset
    return number if number < LIMIT else child_seed(seed, factor, offset)


def _checked(seed: SupportsIndex) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < LIMIT:
        raise OptionError(f"seed {seed!r}: give a whole number from 0 to 2**63 - 1.")
    return number
