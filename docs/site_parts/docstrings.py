"""Our docstrings, which are plain text with code in backticks and in indented blocks, as reStructuredText."""

from __future__ import annotations

import re
from typing import Any


def as_rest(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Sphinx' event `autodoc-process-docstring`: the lines are changed in place.

    An indented block is code. `CODE` in backticks is a literal. What is said of an argument (`seed: …`) and begins a
    line is a paragraph of its own. The lines of a section of Google's style are items of a list.
    """
    found: list[str] = []
    section = False  # of Google's style: `Args:` and lines that are indented
    for k, line in enumerate(lines):
        if line in ("Args:", "Returns:", "Raises:"):
            section = True
            found += ["", line]
            continue
        section = section and (not line.strip() or line.startswith("    "))
        if section:
            if line.strip() and not line.startswith("        "):
                found += ["", f"- {_plain(line.strip())}"]
            else:
                found.append(f"  {_plain(line.strip())}" if line.strip() else "")
            continue
        indented = line.startswith("    ")
        if indented and (k == 0 or not lines[k - 1].strip()) and not _in_block(found):
            found += ["::", ""]
        if re.match(r"[a-z_][a-z_, ]*: ", line) and found and found[-1].strip():
            found.append("")
        found.append(line if indented else _plain(line))
    lines[:] = found


def skip_others(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Sphinx' event `autodoc-skip-member`: what a class has from another library is told by that library."""
    module = getattr(getattr(member, "fget", member), "__module__", None)
    return True if module is not None and not str(module).startswith("metaprior") else None


def _plain(line: str) -> str:
    """A line of words, in which nothing but code in backticks is more than it seems."""
    parts = re.split(r"(?<!`)(`[^`]+`)(?!`)", line)
    return "".join(f"`{one}`" if k % 2 else re.sub(r"([*|\\]|_\b)", r"\\\1", one) for k, one in enumerate(parts))


def _in_block(found: list[str]) -> bool:
    """Whether the last line that says something is of an indented block."""
    said = [line for line in found if line.strip()]
    return bool(said) and said[-1].startswith("    ")
