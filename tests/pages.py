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


class Block(NamedTuple):
    language: str
    text: str
    before: str
    """The line above it."""

    @property
    def lines(self):
        return [line for line in self.text.splitlines() if line and not line.startswith("#")]


def blocks(page, *languages):
    """The blocks of a page, of some languages or all."""
    found = re.findall(r"([^\n]*)\n+```([\w{}-]+)\n(.*?)```", PAGES[page], re.DOTALL)
    return [Block(name, text, before) for before, name, text in found if not languages or name in languages]
