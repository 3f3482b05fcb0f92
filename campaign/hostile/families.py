"""All families of inputs."""

from __future__ import annotations

import zlib

from campaign.hostile import bodies, files, options, tables, typed
from campaign.hostile.contract import Family

FAMILIES: dict[str, Family] = {
    one.name: one for one in (*tables.FAMILIES, *typed.FAMILIES, *files.FAMILIES, *bodies.FAMILIES, *options.FAMILIES)
}
"""By name."""


def number_of(name: str) -> int:
    """By which a family's seeds are told from those of the others, whichever these are."""
    return zlib.crc32(name.encode())
