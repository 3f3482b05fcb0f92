"""Whether every link inside a built site leads somewhere.

    python docs/site_parts/links.py FOLDER

Prints each that does not, and exits with 1 then. Links to other hosts are not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages_of(folder: Path) -> list[Path]:
    """The pages that people read; `_static/` has the theme's templates."""
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)


def broken(folder: Path) -> Iterator[str]:
    """Each link that leads nowhere, with the page on which it stands."""
    for path in pages_of(folder):
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            found = target.exists() and target.is_relative_to(folder.resolve())
            anchor = unquote(parts.fragment)
            if found and anchor and target.suffix == ".html":
                found = anchor in page(target).anchors
            if not found:
                yield f"{path.relative_to(folder)}: {link}"


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    pages = len(pages_of(folder))
    found = list(broken(folder))
    sys.stdout.write("".join(f"{one}\n" for one in found) + f"{pages} pages, {len(found)} broken links\n")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    raise SystemExit(main())
