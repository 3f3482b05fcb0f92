"""Hostile input: whatever is given, the answer is a result or a `MetapriorError`.

Inputs are mutated by seed (`mutations.py`) in families (`tables.py`, `typed.py`, `files.py`, `options.py`,
`bodies.py`), and tried in processes that are watched (`watch.py`) for what is promised (`contract.py`).
`python -m campaign.hostile FAMILY NUMBER` tries one again, and makes it smaller.
"""

from campaign.hostile.part import run

__all__ = ["run"]
