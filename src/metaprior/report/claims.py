"""The paper's claims and whether they hold, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text


def terminal_claims(claims: list[dict[str, Any]]) -> Iterable[Text]:
    """A heading, then each claim with the numbers that decided it; nothing where no claim could be judged."""
    if claims:
        yield Text("What the paper says, and whether it holds here", style="bold")
    for claim in claims:
        mark = ("✓", "green") if claim["holds"] else ("✗", "red")
        own = " (its own table: ✗)" if claim["holds_in_paper"] is False else ""
        yield Text.assemble(mark, f" {claim['text']}{own}\n", (f"  {claim['because']}", "dim"))
