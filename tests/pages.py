"""The pages that people read, block by block.

What a block's language means: `python` and `sh` are run by the tests, those of a page in their order and in one folder;
`bash` needs data, minutes or another machine, and is checked against the program; `text` is what a command has printed;
`r` is run where R is. Others are checked where their page is.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
}

ELSEWHERE = {
    "docs/adapters.md": ("test_examples", "test_sktime", "test_optuna_examples"),
    "docs/extending.md": ("test_extending",),
    "docs/scale-predicting.md": ("test_scale_docs",),
    "docs/serving.md": ("test_serve",),
    "docs/suggesting.md": ("test_suggesting",),
}
"""Pages whose Python examples need more than a folder, and the tests that run them."""


class Block(NamedTuple):
    language: str
    text: str
    above: str
    below: str
    """The paragraphs, or tables, on both sides of it."""

    @property
    def before(self) -> str:
        """The line above it."""
        return self.above.rpartition("\n")[2]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line and not line.startswith("#")]


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page, of some languages or all."""
    return [block for block in blocks_of(PAGES[page]) if not languages or block.language in languages]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text."""
    found, end = [], 0
    for match in re.finditer(r"^```([\w{}-]+)\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        above = text[end : match.start()].rstrip("\n").rpartition("\n\n")[2]
        found.append(Block(match[1], match[2], above, text[match.end() :].lstrip("\n").partition("\n\n")[0]))
        end = match.end()
    return found
